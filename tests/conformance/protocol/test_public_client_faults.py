"""Faults of other brokers that clients met and reported in public, as inputs; one test a row.

The numbers are those of our list of public faults. Rows about groups, transactions and the log stand in the suites of
those; here is what a reader or a writer of plain records would meet.
"""

import uuid

import pytest

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import ZERO_UUID
from exactlog.core.protocol.messages.delete_topics import DeleteTopicsRequest
from exactlog.core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from exactlog.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.raw_client import (
    BY_ID,
    BY_NAME,
    Topic,
    base_offsets,
    batch_of,
    fetch_request,
    offsets_and_values,
    produce_request,
)

TEN = batch_of(*(b"v%d" % index for index in range(10)))
READ_UNCOMMITTED, READ_COMMITTED = 0, 1


def test_a_fetch_from_the_middle_of_a_batch_gets_the_whole_batch(raw, topic):
    """B051 (nisshi, compatibility findings): a fetch from the middle of a batch skipped the batch."""
    raw.produce(topic, TEN)

    assert [offset for offset, _ in offsets_and_values(raw.fetch(topic, 5).records)] == list(range(10))


@pytest.mark.parametrize("version", [11, 12, 18])
def test_nobody_is_sent_to_another_replica(raw, topic, version):
    """B055 (nisshi #62): garbage as preferred read replica sent clients to a broker that does not exist."""
    raw.produce(topic, TEN)

    assert raw.fetch(topic, 0, version=version).preferred_read_replica == -1


def fetch_in_session(raw, topic, *, session_id, session_epoch, leader_epoch=-1, **fields):
    part = FetchPartition(partition=0, partition_max_bytes=1_000_000, current_leader_epoch=leader_epoch)
    topics = () if topic is None else (FetchTopic(topic_id=topic.topic_id, partitions=(part,)),)
    request = FetchRequest(min_bytes=1, session_id=session_id, session_epoch=session_epoch, topics=topics, **fields)
    answer = raw.ask(request, BY_ID)
    errors = [ErrorCode(data.error_code) for of_topic in answer.responses for data in of_topic.partitions]
    return answer.session_id, errors


def test_a_session_does_not_take_a_new_topic_for_the_old_one_of_its_name(raw, topic):
    """B065 (franz-go 1ef0614b): a fetch session that went by names survived the topic's re-creation."""
    raw.produce(topic, TEN)
    session_id, _ = fetch_in_session(raw, topic, session_id=0, session_epoch=0)
    raw.ask(DeleteTopicsRequest(topic_names=(topic.name,)), 5)
    created_anew = raw.create_topic(topic.name)
    raw.produce(created_anew, TEN)

    later = [fetch_in_session(raw, None, session_id=session_id, session_epoch=epoch) for epoch in (1, 2)]
    without_session = raw.fetch(topic, 0, version=BY_ID)

    assert later == [(session_id, [ErrorCode.INCONSISTENT_TOPIC_ID])] * 2
    assert without_session.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_session_goes_on_with_the_new_topic_once_it_is_asked_for(raw, topic):
    """B065 (franz-go 1ef0614b), the way out: the old id is forgotten or not, the new one is read."""
    session_id, _ = fetch_in_session(raw, topic, session_id=0, session_epoch=0)
    raw.ask(DeleteTopicsRequest(topic_names=(topic.name,)), 5)
    created_anew = raw.create_topic(topic.name)
    raw.produce(created_anew, TEN)

    _, errors = fetch_in_session(raw, created_anew, session_id=session_id, session_epoch=1)

    assert sorted(errors) == [ErrorCode.NONE, ErrorCode.INCONSISTENT_TOPIC_ID]


def test_a_request_behind_one_that_gets_no_answer_is_answered(raw, topic):
    """B067 (franz-go d990b5f8): acks=0 wedged the connection."""
    raw.send(produce_request(topic, TEN, acks=0), BY_NAME, is_answered=False)

    assert raw.ask(MetadataRequest(topics=()), 12).brokers
    assert len(offsets_and_values(raw.fetch(topic, 0, max_wait_ms=10_000).records)) == 10  # once it is committed


def test_an_error_of_a_request_that_gets_no_answer_ends_the_connection(raw, connect, topic):
    """B067 (franz-go d990b5f8): on an error of acks=0 the connection is all there is to tell it by."""
    raw.send(produce_request(topic._replace(name="no-such-topic"), TEN, acks=0), BY_NAME, is_answered=False)

    assert raw.is_closed()
    assert offsets_and_values(connect().fetch(topic, 0).records) == []


@pytest.mark.parametrize(("more", "batches"), [(-1, 1), (0, 1), (1, 1), (len(TEN) - 1, 1), (len(TEN), 2)])
@pytest.mark.parametrize("limit", ["max_bytes", "partition_max_bytes"])
def test_the_first_batch_is_whole_and_no_other_exceeds_the_limit(raw, topic, limit, more, batches):
    """B070 (franz-go 89151441, #1139): MaxBytes was off by one, or its counter was reset between partitions."""
    for _ in range(3):
        raw.produce(topic, TEN)

    assert len(base_offsets(raw.fetch(topic, 0, **{limit: len(TEN) + more}).records)) == batches


def test_the_limit_is_not_counted_anew_for_each_partition(raw):
    """B070 (franz-go 89151441, #1139): MaxBytes was off by one, or its counter was reset between partitions."""
    topics = [raw.create_topic() for _ in range(3)]
    for topic in topics:
        raw.produce(topic, TEN)
    part = FetchPartition(partition=0, partition_max_bytes=1_000_000)
    asked = tuple(FetchTopic(topic=topic.name, partitions=(part,)) for topic in topics)

    answer = raw.ask(FetchRequest(min_bytes=1, max_bytes=2 * len(TEN) + 1, topics=asked), BY_NAME)

    found = [len(base_offsets(data.records)) for of_topic in answer.responses for data in of_topic.partitions]
    assert found == [1, 1, 0]


def test_topic_ids_are_real_where_fetch_goes_by_them(raw, topic):
    """B073 (franz-go #1312): a broker that serves Fetch 13 told zero as topic ids."""
    asked = tuple(MetadataRequestTopic(name=name) for name in (topic.name, f"auto-{uuid.uuid4().hex}"))

    ids = [found.topic_id for found in raw.ask(MetadataRequest(topics=asked), 12).topics]

    assert ZERO_UUID not in ids
    assert [raw.fetch(Topic("", topic_id), 0, version=BY_ID).error_code for topic_id in ids] == [0, 0]


@pytest.mark.parametrize("isolation_level", [READ_UNCOMMITTED, READ_COMMITTED])
def test_who_goes_on_behind_the_last_record_reads_everything_and_never_an_empty_answer(raw, isolation_level):
    """B098 (kafka-go #807, #653, #781): readers got stuck at a batch that yields no records."""
    topic = raw.create_topic(segment_bytes=2 * len(TEN))
    for _ in range(7):
        raw.produce(topic, TEN)
    offset, reads = 0, 0

    while offset < 70:
        records = raw.fetch(topic, offset, max_bytes=1, isolation_level=isolation_level).records
        assert len(records) > 0
        offset = offsets_and_values(records)[-1][0] + 1
        reads += 1

    assert (offset, reads) == (70, 7)


@pytest.mark.parametrize("removed", range(1, 30, 4))
def test_there_is_no_empty_answer_below_the_last_stable_offset(raw, removed):
    """B099 (sarama #2053; brod #659; kafkajs #403): readers stalled at answers without records, though there were."""
    topic = raw.create_topic(segment_bytes=2 * len(TEN))
    for _ in range(3):
        raw.produce(topic, TEN)
    raw.delete_records(topic, removed)

    for offset in range(removed, 30):
        data = raw.fetch(topic, offset, isolation_level=READ_COMMITTED, max_bytes=1)
        assert offsets_and_values(data.records)[-1][0] >= offset
    assert raw.fetch(topic, removed - 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_an_empty_answer_keeps_the_session(raw, topic):
    """B120 (KAFKA-6946): an empty answer carried session id 0, and so dropped the session."""
    session_id, _ = fetch_in_session(raw, topic, session_id=0, session_epoch=0)

    answers = [fetch_in_session(raw, None, session_id=session_id, session_epoch=epoch) for epoch in (1, 2, 3)]

    assert answers == [(session_id, [])] * 3


def test_the_leader_epoch_is_validated_on_every_fetch_of_a_session(raw, topic):
    """B120 (KAFKA-9338): the leader epoch was checked only on the first, full fetch of a session."""
    (described,) = raw.ask(MetadataRequest(topics=(MetadataRequestTopic(name=topic.name),)), 12).topics
    epoch = described.partitions[0].leader_epoch
    session_id, at_first = fetch_in_session(raw, topic, session_id=0, session_epoch=0, leader_epoch=epoch)

    changed = fetch_in_session(raw, topic, session_id=session_id, session_epoch=1, leader_epoch=epoch + 1)
    unchanged = fetch_in_session(raw, None, session_id=session_id, session_epoch=2)

    assert at_first == [ErrorCode.NONE]
    assert changed == unchanged == (session_id, [ErrorCode.UNKNOWN_LEADER_EPOCH])


def test_a_reader_of_everything_is_not_told_what_was_aborted(raw, topic):
    """B032 (franz-go PR#758): a list of aborted transactions made readers of everything drop their data."""
    raw.produce(topic, TEN)

    answers = [raw.ask(fetch_request(topic, 0), version) for version in (4, BY_NAME, 18)]

    assert [answer.responses[0].partitions[0].aborted_transactions for answer in answers] == [None] * 3
