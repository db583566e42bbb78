"""Fetch: which bytes come back for which offset, within which limits, and which errors."""

import uuid

import pytest

from exactlog.core.codec.compression import Compression
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from exactlog.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.raw_client import BY_ID, BY_NAME, Topic, base_offsets, batch_of, offsets_and_values

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
EVERY_VERSION = range(4, 19)
BATCH = batch_of(b"0123456789", b"0123456789")


@pytest.fixture
def filled(raw, topic):
    """A topic with three batches of two records, all of one size."""
    for _ in range(3):
        raw.produce(topic, BATCH)
    return topic


def error_of(data):
    return ErrorCode(data.error_code)


# --- which batches ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", range(6))
def test_a_fetch_begins_with_the_whole_batch_that_holds_the_offset(raw, filled, offset):
    assert base_offsets(raw.fetch(filled, offset).records) == [0, 2, 4][offset // 2 :]


@pytest.mark.parametrize("codec", list(Compression), ids=[codec.name.lower() for codec in Compression])
def test_a_compressed_batch_comes_back_whole_from_its_middle(raw, topic, codec):
    values = [b"value %d" % index for index in range(10)]
    raw.produce(topic, batch_of(*values, compression=codec))

    fetched = raw.fetch(topic, 5)

    assert offsets_and_values(fetched.records) == list(enumerate(values))


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_every_version_tells_the_same(raw, filled, version):
    data = raw.fetch(filled, 3, version=version)

    assert base_offsets(data.records) == [2, 4]
    assert (data.error_code, data.high_watermark, data.last_stable_offset) == (0, 6, 6)
    assert data.log_start_offset == (0 if version >= 5 else -1)
    assert data.preferred_read_replica == -1


def test_at_the_end_of_the_log_there_is_nothing_and_no_error(raw, filled):
    data = raw.fetch(filled, 6)

    assert (error_of(data), bytes(data.records), data.high_watermark) == (ErrorCode.NONE, b"", 6)


@pytest.mark.parametrize("offset", [7, 2**62, -1, -5])
def test_beyond_either_end_of_the_log_the_offset_is_out_of_range(raw, filled, offset):
    data = raw.fetch(filled, offset, max_wait_ms=60_000)

    assert (error_of(data), bytes(data.records)) == (ErrorCode.OFFSET_OUT_OF_RANGE, b"")
    assert (data.high_watermark, data.last_stable_offset, data.log_start_offset) == (-1, -1, -1)


def test_an_empty_log_has_nothing_at_0_and_nothing_behind_it(raw, topic):
    assert error_of(raw.fetch(topic, 0)) == ErrorCode.NONE
    assert error_of(raw.fetch(topic, 1)) == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_log_of_many_segments_is_read_over_its_seams(raw):
    topic = raw.create_topic(segment_bytes=len(BATCH))
    for _ in range(4):
        raw.produce(topic, BATCH)
    found, offset = [], 1

    while offset < 8:
        records = raw.fetch(topic, offset).records
        found += base_offsets(records)
        offset = offsets_and_values(records)[-1][0] + 1

    assert found == [0, 2, 4, 6]


# --- limits -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", ["max_bytes", "partition_max_bytes"])
@pytest.mark.parametrize(
    ("bytes_max", "batches"),
    [
        (0, 1),
        (1, 1),
        (len(BATCH) - 1, 1),
        (len(BATCH), 1),
        (len(BATCH) + 1, 1),
        (2 * len(BATCH) - 1, 1),
        (2 * len(BATCH), 2),
        (3 * len(BATCH) - 1, 2),
        (3 * len(BATCH), 3),
        (3 * len(BATCH) + 1, 3),
    ],
)
def test_the_first_batch_comes_whole_and_further_ones_while_they_fit(raw, filled, limit, bytes_max, batches):
    data = raw.fetch(filled, 0, **{limit: bytes_max})

    assert base_offsets(data.records) == [0, 2, 4][:batches]


def fetch_partitions(raw, topic, partitions, *, max_bytes, partition_max_bytes=2**31 - 1):
    parts = tuple(
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=partition_max_bytes) for index in partitions
    )
    request = FetchRequest(
        min_bytes=1,
        max_bytes=max_bytes,
        topics=(FetchTopic(topic=topic.name, topic_id=topic.topic_id, partitions=parts),),
    )
    (of_topic,) = raw.ask(request, BY_NAME).responses
    return {data.partition_index: base_offsets(data.records) for data in of_topic.partitions}


def test_the_limit_is_for_all_partitions_together_and_only_the_first_may_exceed_it(raw):
    topic = raw.create_topic(partitions=3)
    for index in range(3):
        raw.produce(topic, BATCH, partition=index)
    size = len(BATCH)

    assert fetch_partitions(raw, topic, (2, 0, 1), max_bytes=1) == {2: [0], 0: [], 1: []}
    assert fetch_partitions(raw, topic, (1, 2, 0), max_bytes=2 * size - 1) == {1: [0], 2: [], 0: []}
    assert fetch_partitions(raw, topic, (0, 1, 2), max_bytes=2 * size) == {0: [0], 1: [0], 2: []}
    assert fetch_partitions(raw, topic, (0, 1, 2), max_bytes=3 * size) == {0: [0], 1: [0], 2: [0]}


def test_an_empty_partition_in_front_does_not_use_up_the_batch_that_may_exceed(raw):
    topic = raw.create_topic(partitions=2)
    raw.produce(topic, BATCH, partition=1)

    assert fetch_partitions(raw, topic, (0, 1), max_bytes=1) == {0: [], 1: [0]}


# --- isolation ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_aborted_transactions_are_null_for_a_reader_of_everything(raw, filled, version):
    assert raw.fetch(filled, 0, version=version).aborted_transactions is None


def test_a_reader_of_what_is_committed_is_given_a_list(raw, filled):
    data = raw.fetch(filled, 0, isolation_level=READ_COMMITTED)

    assert data.aborted_transactions == ()
    assert base_offsets(data.records) == [0, 2, 4]


# --- errors -------------------------------------------------------------------------------------------------------


def test_unknown_topics_and_partitions_are_refused_one_by_one_behind_what_was_read(raw, filled):
    wanted = (
        FetchTopic(topic="no-such-topic", partitions=(FetchPartition(partition=0, partition_max_bytes=1_000),)),
        FetchTopic(
            topic=filled.name,
            partitions=tuple(FetchPartition(partition=index, partition_max_bytes=1_000) for index in (-1, 0, 1)),
        ),
    )

    response = raw.ask(FetchRequest(max_wait_ms=0, min_bytes=1, topics=wanted), BY_NAME)

    assert [
        (of_topic.topic, data.partition_index, error_of(data), len(base_offsets(data.records)))
        for of_topic in response.responses
        for data in of_topic.partitions
    ] == [
        (filled.name, 0, ErrorCode.NONE, 3),
        ("no-such-topic", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0),
        (filled.name, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0),
        (filled.name, 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0),
    ]


@pytest.mark.parametrize("version", [version for version in EVERY_VERSION if version >= BY_ID])
def test_a_topic_is_found_by_its_id_and_an_unknown_id_is_refused_as_such(raw, filled, version):
    known = raw.fetch(Topic("", filled.topic_id), 0, version=version)
    unknown = raw.fetch(Topic(filled.name, uuid.uuid4()), 0, version=version)

    assert base_offsets(known.records) == [0, 2, 4]
    assert (error_of(unknown), bytes(unknown.records)) == (ErrorCode.UNKNOWN_TOPIC_ID, b"")


def leader_epoch(raw, topic):
    (described,) = raw.ask(MetadataRequest(topics=(MetadataRequestTopic(name=topic.name),)), 12).topics
    return described.partitions[0].leader_epoch


def test_a_reader_that_knows_a_later_leader_must_wait_for_us_to_know_it_too(raw, filled):
    epoch = leader_epoch(raw, filled)

    errors = [error_of(raw.fetch(filled, 0, leader_epoch=known)) for known in (-1, epoch, epoch + 1)]

    assert errors == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.UNKNOWN_LEADER_EPOCH]


def test_of_a_partition_that_is_named_twice_the_last_counts(raw, filled):
    parts = tuple(FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1_000) for offset in (0, 4))
    request = FetchRequest(min_bytes=1, topics=(FetchTopic(topic=filled.name, partitions=parts),))

    ((data,),) = (of_topic.partitions for of_topic in raw.ask(request, BY_NAME).responses)

    assert base_offsets(data.records) == [4]


# --- replicas -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "replica"), [(14, {"replica_id": 5}), (15, {"replica_state": ReplicaState(replica_id=5)})]
)
def test_no_other_broker_is_a_replica(raw, filled, version, replica):
    epoch = leader_epoch(raw, filled)
    errors = []
    for known in (-1, epoch):
        part = FetchPartition(partition=0, current_leader_epoch=known, partition_max_bytes=1_000)
        topic = FetchTopic(topic_id=filled.topic_id, partitions=(part,))
        response = raw.ask(FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=(topic,), **replica), version)
        errors.append(error_of(response.responses[0].partitions[0]))

    assert errors == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH]
