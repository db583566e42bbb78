"""ListOffsets: offsets by time, the special times of each version, and the leader epochs that come with them."""

import pytest

from exactlog.core.codec.compression import Compression
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from exactlog.core.record.batch_builder import NewRecord, build_batch
from tests.support.raw_client import Topic, batch_of

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
SINCE = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
EVERY_VERSION = range(12)
WITH_TIMESTAMPS = range(1, 12)


def times(*timestamps, compression=Compression.NONE):
    """A batch with a record for each timestamp."""
    return build_batch([NewRecord(b"v", timestamp_ms=ms) for ms in timestamps], compression=compression)


@pytest.fixture
def timed(raw, topic):
    """Records at 100, 200 | 200, 300 | 300 milliseconds."""
    raw.produce(topic, times(100, 200))
    raw.produce(topic, times(200, 300, compression=Compression.ZSTD))
    raw.produce(topic, times(300))
    return topic


def found(answer):
    assert answer.error_code == 0, ErrorCode(answer.error_code)
    return answer.offset, answer.timestamp


def offset_in(version, answer):
    """The offset of an answer of any version; -1 for none."""
    assert answer.error_code == 0, ErrorCode(answer.error_code)
    if version == 0:
        return answer.old_style_offsets[0] if answer.old_style_offsets else -1
    return answer.offset


@pytest.mark.parametrize(
    ("asked_ms", "offset_and_ms"),
    [
        (0, (0, 100)),
        (99, (0, 100)),
        (100, (0, 100)),
        (101, (1, 200)),
        (200, (1, 200)),
        (201, (3, 300)),
        (300, (3, 300)),
        (301, (-1, -1)),
        (2**62, (-1, -1)),
    ],
)
@pytest.mark.parametrize("version", WITH_TIMESTAMPS)
def test_a_time_finds_the_first_record_that_is_not_older(raw, timed, version, asked_ms, offset_and_ms):
    """B053 (nisshi, compatibility findings): offsets by time were wrong."""
    assert found(raw.list_offset(timed, asked_ms, version=version)) == offset_and_ms


def test_records_out_of_order_in_time_are_found_in_the_order_of_the_log(raw, topic):
    raw.produce(topic, times(300, 100, 200))
    raw.produce(topic, times(50, 400))

    assert [found(raw.list_offset(topic, ms)) for ms in (60, 150, 300, 301)] == [(0, 300)] * 3 + [(4, 400)]


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_the_ends_of_a_log_are_told_in_every_version(raw, timed, version):
    ends = [offset_in(version, raw.list_offset(timed, time, version=version)) for time in (EARLIEST, LATEST)]

    assert ends == [0, 5]


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_both_ends_of_an_empty_log_are_0(raw, topic, version):
    ends = [offset_in(version, raw.list_offset(topic, time, version=version)) for time in (EARLIEST, LATEST)]

    assert ends == [0, 0]


def test_an_empty_log_has_no_record_of_any_time(raw, topic):
    assert [found(raw.list_offset(topic, time)) for time in (0, MAX_TIMESTAMP)] == [(-1, -1), (-1, -1)]


def test_the_greatest_timestamp_finds_the_first_record_that_has_it(raw, timed):
    assert found(raw.list_offset(timed, MAX_TIMESTAMP)) == (3, 300)


def test_the_greatest_timestamp_need_not_be_the_last_one(raw, topic):
    raw.produce(topic, times(5, 900, 7))
    raw.produce(topic, times(800))

    assert found(raw.list_offset(topic, MAX_TIMESTAMP)) == (1, 900)


def test_without_tiered_storage_the_local_log_is_all_there_is(raw, timed):
    local_start, tiered_end, pending = (
        found(raw.list_offset(timed, time)) for time in (EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD)
    )

    assert (local_start, tiered_end, pending) == ((0, -1), (-1, -1), (-1, -1))


@pytest.mark.parametrize("version", WITH_TIMESTAMPS)
@pytest.mark.parametrize("time", [*SINCE, -7, -(2**63)])
def test_a_special_time_is_known_from_its_version_on(raw, timed, version, time):
    error = raw.list_offset(timed, time, version=version).error_code

    is_known = time in SINCE and version >= SINCE[time]
    assert error == (ErrorCode.NONE if is_known else ErrorCode.UNSUPPORTED_VERSION)


@pytest.mark.parametrize("isolation_level", [0, 1])
def test_without_transactions_both_kinds_of_reader_see_the_same_end(raw, timed, isolation_level):
    assert found(raw.list_offset(timed, LATEST, isolation_level=isolation_level)) == (5, -1)


def test_append_time_is_what_counts_where_the_topic_says_so(raw):
    topic = raw.create_topic(message_timestamp_type="LogAppendTime")
    appended_ms = raw.produce(topic, times(100, 200)).log_append_time_ms

    assert found(raw.list_offset(topic, 101)) == (0, appended_ms)
    assert found(raw.list_offset(topic, appended_ms)) == (0, appended_ms)
    assert found(raw.list_offset(topic, appended_ms + 1)) == (-1, -1)


def test_times_are_found_over_many_segments(raw):
    topic = raw.create_topic(segment_bytes=100)
    for ms in (100, 200, 300, 400):
        raw.produce(topic, times(ms, ms + 1))

    assert [found(raw.list_offset(topic, ms))[0] for ms in (0, 101, 102, 301, 400, 402)] == [0, 1, 2, 5, 6, -1]
    assert found(raw.list_offset(topic, MAX_TIMESTAMP)) == (7, 401)


def test_unknown_partitions_are_refused_one_by_one(raw, timed):
    asked = (
        ListOffsetsTopic(
            name=timed.name,
            partitions=tuple(ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in (1, 0, -1)),
        ),
        ListOffsetsTopic(name="no-such-topic", partitions=(ListOffsetsPartition(partition_index=0, timestamp=LATEST),)),
    )

    response = raw.ask(ListOffsetsRequest(replica_id=-1, topics=asked), 11)

    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [
        (of_topic.name, answer.partition_index, answer.error_code, answer.offset)
        for of_topic in response.topics
        for answer in of_topic.partitions
    ] == [
        (timed.name, 1, unknown, -1),
        (timed.name, 0, 0, 5),
        (timed.name, -1, unknown, -1),
        ("no-such-topic", 0, unknown, -1),
    ]


def test_a_reader_that_knows_a_later_leader_must_wait(raw, timed):
    epoch = raw.list_offset(timed, LATEST).leader_epoch

    errors = [raw.list_offset(timed, LATEST, leader_epoch=known).error_code for known in (-1, epoch, epoch + 1)]

    assert errors == [0, 0, ErrorCode.UNKNOWN_LEADER_EPOCH]


def test_asking_about_a_topic_nobody_made_does_not_make_it(raw, topic):
    answer = raw.list_offset(Topic("nobody-made-it", topic.topic_id), LATEST)

    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert raw.produce(Topic("nobody-made-it", topic.topic_id), batch_of(b"v")).error_code == answer.error_code


def test_a_partition_that_is_asked_twice_is_refused_once(raw, timed):
    other = raw.create_topic()
    parts = tuple(ListOffsetsPartition(partition_index=0, timestamp=time) for time in (LATEST, EARLIEST))
    topics = (
        ListOffsetsTopic(name=timed.name, partitions=parts),
        ListOffsetsTopic(name=other.name, partitions=parts[:1]),
    )

    answer = raw.ask(ListOffsetsRequest(replica_id=-1, topics=topics), 7)

    assert [[part.error_code for part in of_topic.partitions] for of_topic in answer.topics] == [
        [ErrorCode.INVALID_REQUEST],
        [ErrorCode.NONE],
    ]


def test_a_time_the_version_lacks_is_refused_before_the_topic_is_looked_for(raw):
    nowhere = Topic("no-such-topic", None)

    errors = [raw.list_offset(nowhere, MAX_TIMESTAMP, version=version).error_code for version in (6, 7)]

    assert errors == [ErrorCode.UNSUPPORTED_VERSION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize(("wanted", "told"), [(-1, ()), (0, ()), (1, (5,)), (10, (5,))])
def test_version_0_tells_a_list_of_at_most_one_offset(raw, timed, wanted, told):
    part = ListOffsetsPartition(partition_index=0, timestamp=LATEST, max_num_offsets=wanted)
    request = ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name=timed.name, partitions=(part,)),))

    (of_topic,) = raw.ask(request, 0).topics

    assert of_topic.partitions[0].old_style_offsets == told
