"""Appends on terms: expected delta versions and transaction ids in tagged fields of Produce (`exactlog.append`)."""

import zlib

import pytest

from exactlog.core.deltalog.log_path import DELTA_LOG_DIRECTORY, print_commit_name
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.produce import ProduceTerms
from exactlog.testing import Broker
from tests.support.faulty_broker import FaultyBroker
from tests.support.raw_client import (
    BY_ID,
    BY_NAME,
    RawClient,
    batch_of,
    encode_request,
    frame,
    offsets_and_values,
    produce_request,
    sequenced,
)
from tests.support.watching import RequestCount

CREATION = 0
"""The delta version of a partition that nothing was appended to."""


def terms_of(*values, expected_version=-1, txn_id=None):
    """Terms for these values: the checksum is the client's affair, a broker only compares it."""
    return ProduceTerms(expected_version=expected_version, txn_id=txn_id, payload_crc=zlib.crc32(repr(values).encode()))


def append(client, topic, *values, **terms):
    """What a client is told: the error, the offset, the delta version."""
    return told(client.produce(topic, batch_of(*values), terms=terms_of(*values, **terms)))


def told(answer):
    return ErrorCode(answer.error_code), answer.base_offset, answer.delta_version


def receive(client):
    return told(client.receive().responses[0].partition_responses[0])


def request_of(topic, *values, **terms):
    return produce_request(topic, batch_of(*values), terms=terms_of(*values, **terms)), BY_NAME


def values_of(client, topic):
    return [value for _, value in offsets_and_values(client.fetch(topic, 0).records)]


@pytest.mark.parametrize("version", range(9, 14))
def test_each_append_that_expects_the_newest_version_becomes_the_next_one(raw, topic, version):
    answers = [
        raw.produce(topic, batch_of(value), terms=terms_of(value, expected_version=expected), version=version)
        for expected, value in enumerate([b"a", b"b", b"c"])
    ]

    assert [told(answer) for answer in answers] == [(ErrorCode.NONE, n, n + 1) for n in range(3)]
    assert [answer.log_start_offset for answer in answers] == [0, 0, 0]
    assert values_of(raw, topic) == [b"a", b"b", b"c"]


def test_another_version_than_the_expected_one_is_a_conflict_that_names_both(raw, topic):
    append(raw, topic, b"a", expected_version=CREATION)

    answers = [
        raw.produce(topic, batch_of(b"b"), terms=terms_of(b"b", expected_version=expected)) for expected in (0, 2, 99)
    ]

    assert [told(answer) for answer in answers] == [(ErrorCode.INVALID_UPDATE_VERSION, -1, 1)] * 3
    assert answers[2].error_message == "The append expects delta version 99; the newest one is 1."
    assert values_of(raw, topic) == [b"a"]
    assert append(raw, topic, b"b", expected_version=1) == (ErrorCode.NONE, 1, 2)


def test_of_two_with_the_same_expectation_one_wins_and_the_other_may_expect_what_it_is_told(raw, topic):
    raw.send_all(*(request_of(topic, value, expected_version=CREATION) for value in (b"first", b"second")))

    assert [receive(raw), receive(raw)] == [(ErrorCode.NONE, 0, 1), (ErrorCode.INVALID_UPDATE_VERSION, -1, 1)]
    assert append(raw, topic, b"second", expected_version=1) == (ErrorCode.NONE, 1, 2)
    assert values_of(raw, topic) == [b"first", b"second"]


def test_an_expectation_beside_appends_without_terms_conflicts_with_the_version_they_form(raw, topic):
    blind = (produce_request(topic, batch_of(b"blind")), BY_NAME)

    raw.send_all(blind, request_of(topic, b"late", expected_version=CREATION), blind)

    assert [receive(raw) for _ in range(3)] == [
        (ErrorCode.NONE, 0, -1),
        (ErrorCode.INVALID_UPDATE_VERSION, -1, 1),
        (ErrorCode.NONE, 1, -1),
    ]
    assert append(raw, topic, b"next", expected_version=2) == (ErrorCode.NONE, 2, 3)


def test_an_append_without_terms_is_answered_without_a_version(raw, topic):
    raw.send(produce_request(topic, batch_of(b"a")), BY_NAME)

    answer = raw.receive_frame()

    assert b"\x90\x4e" not in answer  # our tag as it travels
    assert answer[-7:] == bytes(7)  # no tags of the partition, none of the topic, no throttling, none of the answer


def test_terms_that_ask_for_nothing_still_ask_for_the_version(raw, topic):
    assert [append(raw, topic, b"a") for _ in range(2)] == [(ErrorCode.NONE, 0, 1), (ErrorCode.NONE, 1, 2)]


def test_a_transaction_id_that_comes_again_gets_the_first_result(raw, topic):
    first = append(raw, topic, b"a", b"b", txn_id="t", expected_version=CREATION)
    append(raw, topic, b"c", txn_id="u")

    assert append(raw, topic, b"a", b"b", txn_id="t", expected_version=CREATION) == first == (ErrorCode.NONE, 0, 1)
    assert append(raw, topic, b"a", b"b", txn_id="t") == first
    assert values_of(raw, topic) == [b"a", b"b", b"c"]


def test_a_transaction_id_that_comes_again_with_another_payload_is_refused_with_the_first_version(raw, topic):
    append(raw, topic, b"a", txn_id="t")
    append(raw, topic, b"b")

    answer = raw.produce(topic, batch_of(b"other"), terms=terms_of(b"other", txn_id="t"))

    assert told(answer) == (ErrorCode.INVALID_REQUEST, -1, 1)
    assert "txn_id 't' came before with another payload" in answer.error_message
    assert values_of(raw, topic) == [b"a", b"b"]


def test_a_transaction_id_that_is_sent_twice_in_one_piece_is_appended_once(raw, topic):
    raw.send_all(*[request_of(topic, b"a", txn_id="t")] * 3)

    assert [receive(raw) for _ in range(3)] == [(ErrorCode.NONE, 0, 1)] * 3
    assert values_of(raw, topic) == [b"a"]


def test_the_same_id_in_two_partitions_is_two_ids(raw):
    topic = raw.create_topic(partitions=2)

    answers = [
        raw.produce(topic, batch_of(b"a"), partition=index, terms=terms_of(b"a", txn_id="t")) for index in (0, 1)
    ]

    assert [told(answer) for answer in answers] == [(ErrorCode.NONE, 0, 1)] * 2


@pytest.mark.parametrize("txn_id", ["", "x" * 257])
def test_an_id_that_cannot_be_remembered_is_refused(raw, topic, txn_id):
    answer = raw.produce(topic, batch_of(b"a"), terms=terms_of(b"a", txn_id=txn_id))

    assert told(answer) == (ErrorCode.INVALID_REQUEST, -1, -1)
    assert "256 characters" in answer.error_message


def test_a_batch_of_an_idempotent_producer_takes_no_terms(raw, topic):
    answer = raw.produce(topic, sequenced(1, 0, b"a"), terms=terms_of(b"a", txn_id="t"))

    assert told(answer) == (ErrorCode.INVALID_REQUEST, -1, -1)
    assert raw.fetch(topic, 0).high_watermark == 0


def test_a_batch_that_is_refused_anyhow_is_refused_first_and_its_id_is_free(raw, topic):
    corrupt = batch_of(b"a")
    corrupt[-1] ^= 1

    assert raw.produce(topic, corrupt, terms=terms_of(b"a", txn_id="t")).error_code == ErrorCode.CORRUPT_MESSAGE
    assert append(raw, topic, b"other", txn_id="t") == (ErrorCode.NONE, 0, 1)


def test_acks_1_is_answered_alike(raw, topic):
    answer = raw.produce(topic, batch_of(b"a"), acks=1, terms=terms_of(b"a", expected_version=CREATION))

    assert told(answer) == (ErrorCode.NONE, 0, 1)


def test_acks_0_closes_the_connection_since_nobody_would_be_told(connect, raw, topic):
    lost = connect()
    request = produce_request(topic, batch_of(b"a"), acks=0, terms=terms_of(b"a", expected_version=CREATION))
    lost.send(request, BY_NAME, is_answered=False)

    assert lost.is_closed()
    assert raw.fetch(topic, 0).high_watermark == 0


@pytest.mark.parametrize(
    "damaged",
    [b"", b"\x01", b"\x02" + bytes(14), b"\x01" + bytes(8) + b"\x09t" + bytes(5), b"\x01" + bytes(15)],
    ids=["empty", "cut short", "neither there nor null", "a length that lies", "too long"],
)
def test_terms_that_are_none_close_the_connection(connect, raw, topic, damaged):
    whole = encode_request(produce_request(topic, batch_of(b"a"), terms=ProduceTerms()), BY_ID)
    value = b"\x01" + b"\xff" * 8 + b"\x00" + bytes(4) + b"\x00"
    tagged = b"\x90\x4e" + bytes([len(value)]) + value
    assert whole.count(tagged) == 1
    lost = connect()

    lost.send_bytes(frame(whole.replace(tagged, b"\x90\x4e" + bytes([len(damaged)]) + damaged)))

    assert lost.is_closed()
    assert raw.fetch(topic, 0).high_watermark == 0


@pytest.mark.parametrize("mode", ["commit", "interval", "none"])
@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_what_was_told_is_published_and_known_after_a_restart(mode, ending):
    with Broker(config={"flush.mode": mode}) as broker:
        with RawClient(broker.port) as raw:
            topic = raw.create_topic()
            first = append(raw, topic, b"a", expected_version=CREATION)
            raw.produce(topic, batch_of(b"blind"))
            second = append(raw, topic, b"b", txn_id="t")
            table = broker.data_dir / f"topic={topic.name}-part=0" / DELTA_LOG_DIRECTORY
            assert (table / print_commit_name(second[2])).exists()
        if ending == "kill":
            broker.kill()
        broker.restart()

        with RawClient(broker.port) as raw:
            assert first == (ErrorCode.NONE, 0, 1)
            assert append(raw, topic, b"b", txn_id="t") == second
            assert append(raw, topic, b"c", txn_id="t")[0] == ErrorCode.INVALID_REQUEST
            conflict = append(raw, topic, b"c", expected_version=CREATION)
            assert conflict == (ErrorCode.INVALID_UPDATE_VERSION, -1, second[2])
            assert append(raw, topic, b"c", expected_version=second[2]) == (ErrorCode.NONE, 3, second[2] + 1)
            assert values_of(raw, topic) == [b"a", b"blind", b"b", b"c"]


@pytest.fixture
def faulty():
    with FaultyBroker() as faulty:
        yield faulty


def test_neither_a_version_nor_a_conflict_is_told_before_it_is_durable(faulty):
    winner, loser, again = faulty.connect(), faulty.connect(), faulty.connect()
    topic = winner.create_topic()
    count = RequestCount(faulty.broker, "Produce")

    with faulty.files.syncs_held():
        winner.send(*request_of(topic, b"a", txn_id="t", expected_version=CREATION))
        faulty.files.wait_for_sync()
        loser.send(*request_of(topic, b"b", expected_version=CREATION))
        again.send(*request_of(topic, b"a", txn_id="t", expected_version=CREATION))
        count.wait_for(3)
        assert not any(client.has_answer() for client in (winner, loser, again))

    assert receive(winner) == receive(again) == (ErrorCode.NONE, 0, 1)
    assert receive(loser) == (ErrorCode.INVALID_UPDATE_VERSION, -1, 1)


def test_a_full_disk_refuses_the_append_and_its_terms_hold_again_when_there_is_room(faulty):
    client = faulty.connect()
    topic = client.create_topic()

    faulty.files.capacity_bytes = faulty.files.used_bytes
    refused = append(client, topic, b"a", expected_version=CREATION, txn_id="t")
    faulty.files.capacity_bytes = None

    assert refused == (ErrorCode.KAFKA_STORAGE_ERROR, -1, -1)
    assert append(client, topic, b"other", expected_version=CREATION, txn_id="t") == (ErrorCode.NONE, 0, 1)
    assert values_of(client, topic) == [b"other"]
