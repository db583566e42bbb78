"""FindCoordinator and InitProducerId: what a producer asks before its first batch."""

import pytest

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.find_coordinator import FindCoordinatorRequest
from exactlog.core.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.support.raw_client import sequenced

GROUP, TRANSACTION, SHARE = 0, 1, 2


def find(raw, *keys, key_type, version):
    """(key, error, node id, port) for each key; in versions that take one key it is not told again."""
    if version >= 4:
        response = raw.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=keys), version)
        return [(found.key, ErrorCode(found.error_code), found.node_id, found.port) for found in response.coordinators]
    answers = [raw.ask(FindCoordinatorRequest(key=key, key_type=key_type), version) for key in keys]
    return [
        (key, ErrorCode(found.error_code), found.node_id, found.port) for key, found in zip(keys, answers, strict=True)
    ]


@pytest.mark.parametrize(
    ("key_type", "version"),
    [(GROUP, version) for version in range(7)] + [(TRANSACTION, version) for version in range(1, 7)],
)
def test_this_broker_coordinates_everything(broker, raw, key_type, version):
    found = find(raw, "one", "two", key_type=key_type, version=version)

    assert found == [(key, ErrorCode.NONE, 1, broker.port) for key in ("one", "two")]


@pytest.mark.parametrize("version", range(1, 7))
def test_keys_of_an_unknown_type_are_refused(raw, version):
    for key_type in (SHARE, 3, -1):
        assert find(raw, "k", key_type=key_type, version=version) == [("k", ErrorCode.INVALID_REQUEST, -1, -1)]


@pytest.mark.parametrize("version", range(1, 7))
def test_an_empty_transactional_id_has_no_coordinator_in_old_versions_and_an_empty_group_has(broker, raw, version):
    here, nowhere = ("", ErrorCode.NONE, 1, broker.port), ("", ErrorCode.INVALID_REQUEST, -1, -1)
    assert find(raw, "", key_type=TRANSACTION, version=version) == [here if version >= 4 else nowhere]
    assert find(raw, "", key_type=GROUP, version=version) == [("", ErrorCode.NONE, 1, broker.port)]


def init(raw, transactional_id=None, *, version=5, **fields):
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000, **fields)
    response = raw.ask(request, version)
    return ErrorCode(response.error_code), response.producer_id, response.producer_epoch


@pytest.mark.parametrize("version", range(6))
def test_every_producer_gets_an_id_of_its_own_with_epoch_0(raw, version):
    results = [init(raw, version=version) for _ in range(3)]

    assert {(error, epoch) for error, _, epoch in results} == {(ErrorCode.NONE, 0)}
    assert len({producer_id for _, producer_id, _ in results}) == 3


def test_ids_are_never_given_twice_over_the_blocks_they_are_taken_from(raw):
    raw.send_all(*[(InitProducerIdRequest(transactional_id=None), 0)] * 1_100)

    ids = [raw.receive().producer_id for _ in range(1_100)]

    assert len(set(ids)) == 1_100
    assert min(ids) >= 0


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize("epoch", [0, 7, 32767])
def test_an_idempotent_producer_that_names_its_id_gets_a_new_one(raw, version, epoch):
    _, producer_id, _ = init(raw)

    error, new_id, new_epoch = init(raw, version=version, producer_id=producer_id, producer_epoch=epoch)

    assert (error, new_epoch) == (ErrorCode.NONE, 0)
    assert new_id != producer_id


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize(("producer_id", "epoch"), [(5, -1), (-1, 0), (-1, 7)])
@pytest.mark.parametrize("transactional_id", [None, "t"])
def test_an_id_without_an_epoch_or_an_epoch_without_an_id_is_refused(
    raw, version, producer_id, epoch, transactional_id
):
    refused = init(raw, transactional_id, version=version, producer_id=producer_id, producer_epoch=epoch)

    assert refused == (ErrorCode.INVALID_REQUEST, -1, -1)


@pytest.mark.parametrize("version", range(6))
def test_an_empty_transactional_id_is_refused(raw, version):
    assert init(raw, "", version=version) == (ErrorCode.INVALID_REQUEST, -1, -1)


def test_a_new_id_can_be_used_at_once(raw, topic):
    _, producer_id, epoch = init(raw)

    answers = [raw.produce(topic, sequenced(producer_id, sequence, b"v", epoch=epoch)) for sequence in range(3)]

    assert [answer.base_offset for answer in answers] == [0, 1, 2]
