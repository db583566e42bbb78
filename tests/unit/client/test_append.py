"""Appending on terms, against a toy cluster: one request, one batch, and nothing that is sent twice blindly."""

import pytest

from exactlog.client import Committed, Conflicted, PayloadDiffers, Unavailable
from exactlog.client.ports import ClientSettings
from exactlog.core.codec.compression import Compression
from exactlog.core.codec.wire_types import Versions
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import (
    DecodeError,
    EncodeError,
    KafkaError,
    NotFoundError,
    UnavailableError,
    UnsupportedError,
)
from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.messages.produce import ProduceRequest, ProduceTerms
from exactlog.core.record.batch_builder import NewRecord
from exactlog.core.record.batch_format import decode_header
from exactlog.core.record.payload_crc import payload_crc
from exactlog.core.record.record_format import decode_records
from tests.unit.client.toy_broker import HangUpError, ToyCluster, produced, running

ONE_ATTEMPT = ClientSettings(deadline_ms=300, backoff_ms=5_000, backoff_ms_max=5_000)
RECORDS = [NewRecord(b"a", key=b"k"), NewRecord(b"b", headers=(("h", None),), timestamp_ms=5)]


def cluster_with(*leaders: int, **options) -> ToyCluster:
    cluster = ToyCluster(broker_count=max(leaders, default=1), **options)
    cluster.add_topic("orders", leaders=leaders or (1,))
    return cluster


def sent_parts(cluster: ToyCluster) -> list:
    """What was sent to append, request by request."""
    return [request.topic_data[0].partition_data[0] for request in cluster.requests_of(ProduceRequest)]


def hang_up(*_):
    raise HangUpError


def carry_out_and_hang_up(broker, request, version):
    """The request is carried out and its answer is lost."""
    broker.cluster.answer_produce(broker, request, version)
    raise HangUpError


def refuse(error_code: ErrorCode, **fields):
    return lambda broker, request, version: produced(request, error_code=error_code, **fields)


def script(cluster: ToyCluster, *answers) -> ToyCluster:
    cluster.scripts[ApiKey.PRODUCE].extend(answers)
    return cluster


async def test_records_become_one_batch_and_one_version():
    cluster = cluster_with(1, 1)
    async with running(cluster) as client:
        assert await client.append("orders", 1, RECORDS) == Committed(1, 0, 1)
        assert await client.append("orders", 1, RECORDS, expected_version=1) == Committed(2, 2, 3)
        assert await client.append("orders", 1, RECORDS, txn_id="t") == Committed(3, 4, 5)
    batches = [part.records for part in sent_parts(cluster)]
    assert [decode_header(batch).record_count for batch in batches] == [2, 2, 2]
    assert [decode_header(batch).has_producer_id for batch in batches] == [False] * 3
    first, second = decode_records(batches[0])
    assert (first.key, first.value) == (b"k", b"a")
    assert first.timestamp_ms > 1_700_000_000_000
    assert (second.headers, second.timestamp_ms) == ((("h", None),), 5)


async def test_the_terms_travel_with_the_checksum_of_the_records_as_they_were_given():
    cluster = cluster_with(1)
    async with running(cluster) as client:
        await client.append("orders", 0, RECORDS)
        await client.append("orders", 0, RECORDS, expected_version=1, txn_id="t")
    crc = int(payload_crc(RECORDS), 16)
    assert [part.terms for part in sent_parts(cluster)] == [
        ProduceTerms(payload_crc=crc),
        ProduceTerms(expected_version=1, txn_id="t", payload_crc=crc),
    ]


async def test_what_is_produced_without_terms_carries_none():
    cluster = cluster_with(1)
    async with running(cluster) as client:
        await client.produce("orders", RECORDS)
    assert [part.terms for part in sent_parts(cluster)] == [None]


async def test_another_version_is_a_conflict_that_names_both():
    cluster = cluster_with(1)
    async with running(cluster) as client:
        await client.append("orders", 0, RECORDS)
        assert await client.append("orders", 0, RECORDS, expected_version=7) == Conflicted(expected=7, actual=1)
    assert cluster.topics["orders"].logs[0].log_end == 2


async def test_the_same_id_with_other_records_is_told_apart():
    cluster = cluster_with(1)
    async with running(cluster) as client:
        await client.append("orders", 0, RECORDS, txn_id="t")
        assert await client.append("orders", 0, RECORDS, txn_id="t") == Committed(1, 0, 1)
        assert await client.append("orders", 0, RECORDS[:1], txn_id="t") == PayloadDiffers("that id came before", 1)


async def test_a_batch_may_be_compressed():
    cluster = cluster_with(1)
    async with running(cluster) as client:
        await client.append("orders", 0, RECORDS, compression=Compression.ZSTD)
    assert decode_header(sent_parts(cluster)[0].records).compression is Compression.ZSTD


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({}, r"^127\.0\.0\.1:\d+ does not have the feature exactlog\.append$"),
        ({"transaction.version": Versions(0, 2)}, "does not have the feature exactlog.append"),
        ({"exactlog.append": Versions(2, 3)}, "has the feature exactlog.append at level 2 to 3; needed is 1"),
    ],
)
async def test_a_broker_without_the_feature_is_sent_nothing(features, message):
    cluster = cluster_with(1)
    cluster.features = features
    async with running(cluster) as client:
        with pytest.raises(UnsupportedError, match=message) as error:
            await client.append("orders", 0, RECORDS, expected_version=0)
    assert (error.value.code, error.value.retryable) == ("unsupported", False)
    assert cluster.requests_of(ProduceRequest) == []


async def test_a_broker_without_tagged_fields_in_produce_is_sent_nothing():
    cluster = cluster_with(1, versions={ApiKey.PRODUCE: Versions(3, 8)})
    async with running(cluster) as client:
        with pytest.raises(UnsupportedError, match="serves Produce 3 to 8; needed is 9 to 13"):
            await client.append("orders", 0, RECORDS, expected_version=0)
    assert cluster.requests_of(ProduceRequest) == []


@pytest.mark.parametrize(("has_topic_ids", "version"), [(True, 13), (False, 12)])
async def test_topics_are_named_by_id_where_they_have_one(has_topic_ids, version):
    cluster = ToyCluster()
    cluster.has_topic_ids = has_topic_ids
    cluster.add_topic("orders")
    async with running(cluster) as client:
        await client.append("orders", 0, RECORDS)
    assert cluster.versions_of(ProduceRequest) == [version]


async def test_a_topic_is_not_created_on_the_way():
    cluster = ToyCluster()
    async with running(cluster) as client:
        with pytest.raises(NotFoundError, match="topic orders does not exist"):
            await client.append("orders", 0, RECORDS)
    assert cluster.topics == {}


async def test_what_cannot_be_sent_is_said_at_once():
    async with running(cluster_with(1)) as client:
        with pytest.raises(ValueError, match="at least one record"):
            await client.append("orders", 0, [])
        with pytest.raises(ValueError, match="expected_version is -1; the first delta version is 0"):
            await client.append("orders", 0, RECORDS, expected_version=-1)
        with pytest.raises(EncodeError, match="longer than 32767"):
            await client.append("orders", 0, RECORDS, txn_id="x" * 40_000)


# --- answers that are lost --------------------------------------------------------------------------------------


@pytest.mark.parametrize("lose", [hang_up, carry_out_and_hang_up])
@pytest.mark.parametrize("expected_version", [None, 0])
async def test_with_an_id_it_is_sent_again_and_appended_once(lose, expected_version):
    cluster = script(cluster_with(1), lose, lose)
    async with running(cluster) as client:
        appended = await client.append("orders", 0, RECORDS, expected_version=expected_version, txn_id="t")
    assert appended == Committed(1, 0, 1)
    assert cluster.topics["orders"].logs[0].log_end == 2
    first, second, third = sent_parts(cluster)
    assert first == second == third


@pytest.mark.parametrize("lose", [hang_up, carry_out_and_hang_up])
@pytest.mark.parametrize("expected_version", [None, 0])
async def test_without_an_id_it_is_sent_once_and_the_outcome_is_unknown(lose, expected_version):
    cluster = script(cluster_with(1), lose)
    async with running(cluster) as client:
        with pytest.raises(UnavailableError, match=r"append to orders-0: outcome unknown: .*connection lost") as error:
            await client.append("orders", 0, RECORDS, expected_version=expected_version)
    assert not error.value.retryable
    assert "look before appending them again" in error.value.hint
    assert len(cluster.requests_of(ProduceRequest)) == 1


async def test_an_answer_that_never_comes_leaves_it_open_too():
    cluster = script(cluster_with(1), lambda *_: None)
    async with running(cluster, ClientSettings(request_timeout_ms=20)) as client:
        with pytest.raises(UnavailableError, match=r"outcome unknown: .*no answer to Produce within 20 ms"):
            await client.append("orders", 0, RECORDS, expected_version=0)


async def test_an_id_whose_answer_is_lost_until_the_deadline_may_be_tried_again():
    cluster = script(cluster_with(1), carry_out_and_hang_up)
    async with running(cluster, ONE_ATTEMPT) as client:
        with pytest.raises(UnavailableError, match="outcome unknown: append to orders-0: gave up") as error:
            await client.append("orders", 0, RECORDS, txn_id="t")
        assert error.value.retryable
        assert "the same txn_id again" in error.value.hint
        assert await client.append("orders", 0, RECORDS, txn_id="t") == Committed(1, 0, 1)


@pytest.mark.parametrize("code", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND])
async def test_a_broker_that_does_not_know_itself_leaves_it_open(code):
    cluster = script(cluster_with(1), refuse(code), refuse(code))
    async with running(cluster) as client:
        with pytest.raises(UnavailableError, match=f"outcome unknown: append to orders-0: {code.name}"):
            await client.append("orders", 0, RECORDS, expected_version=0)
        assert await client.append("orders", 0, RECORDS, txn_id="t") == Committed(1, 0, 1)


async def test_an_answer_without_a_version_is_malformed_and_leaves_it_open():
    cluster = script(cluster_with(1), lambda broker, request, version: produced(request, base_offset=0))
    async with running(cluster) as client:
        with pytest.raises(UnavailableError, match=r"outcome unknown: .*did not say in which delta version") as error:
            await client.append("orders", 0, RECORDS)
    assert isinstance(error.value.__cause__, DecodeError)


# --- refusals ---------------------------------------------------------------------------------------------------


async def test_a_refusal_for_now_is_tried_again_without_an_id_too():
    cluster = script(cluster_with(1), refuse(ErrorCode.KAFKA_STORAGE_ERROR), refuse(ErrorCode.LEADER_NOT_AVAILABLE))
    async with running(cluster) as client:
        assert await client.append("orders", 0, RECORDS, expected_version=0) == Committed(1, 0, 1)


async def test_a_disk_that_refuses_until_the_deadline_is_an_ending_of_its_own():
    refusal = refuse(ErrorCode.KAFKA_STORAGE_ERROR, error_message="no space left")
    cluster = script(cluster_with(1), refusal)
    async with running(cluster, ONE_ATTEMPT) as client:
        ending = await client.append("orders", 0, RECORDS, expected_version=0)
    assert isinstance(ending, Unavailable)
    assert "KAFKA_STORAGE_ERROR (no space left)" in ending.reason


async def test_after_a_disk_that_refuses_a_lost_answer_leaves_it_open():
    cluster = script(cluster_with(1), refuse(ErrorCode.KAFKA_STORAGE_ERROR), carry_out_and_hang_up)
    async with running(cluster) as client:
        with pytest.raises(UnavailableError, match="outcome unknown"):
            await client.append("orders", 0, RECORDS, expected_version=0)


async def test_terms_that_cannot_be_met_are_refused_in_the_brokers_words():
    refusal = refuse(ErrorCode.INVALID_REQUEST, error_message="a txn_id has 1 to 256 characters")
    cluster = script(cluster_with(1), refusal)
    async with running(cluster) as client:
        with pytest.raises(KafkaError, match=r"append to orders-0: INVALID_REQUEST \(a txn_id has") as error:
            await client.append("orders", 0, RECORDS, txn_id="")
    assert not error.value.retryable


async def test_a_batch_that_is_too_large_is_not_cut():
    cluster = script(cluster_with(1), refuse(ErrorCode.MESSAGE_TOO_LARGE))
    async with running(cluster) as client:
        with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
            await client.append("orders", 0, RECORDS)
    assert len(cluster.requests_of(ProduceRequest)) == 1


async def test_a_partition_whose_leader_has_moved_is_followed():
    cluster = ToyCluster(broker_count=2)
    cluster.add_topic("orders", leaders=(1,))
    async with running(cluster) as client:
        await client.append("orders", 0, RECORDS)
        cluster.topics["orders"].logs[0].leader_id = 2
        assert await client.append("orders", 0, RECORDS, expected_version=1) == Committed(2, 2, 3)
