"""Leader epochs on the wire (KIP-101, KIP-320): where one ends, and who is refused for knowing another one."""

import pytest

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from exactlog.core.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from exactlog.testing import Broker
from tests.support.raw_client import BY_NAME, RawClient, base_offsets, batch_of, fetch_request

BATCH = batch_of(b"v", b"w")
NONE, FENCED, UNKNOWN = ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH
EVERY_VERSION = range(5)


@pytest.fixture(scope="module")
def broker():
    """A broker at its third start: its leader epoch is 2."""
    with Broker() as running:
        yield running


@pytest.fixture(scope="module")
def topic(broker):
    """Four records of epoch 0, two of epoch 2; nothing was written in epoch 1."""
    with RawClient(broker.port) as raw:
        made = raw.create_topic()
        for _ in range(2):
            raw.produce(made, BATCH)
    broker.restart()
    broker.restart()
    with RawClient(broker.port) as raw:
        raw.produce(made, BATCH)
    return made


@pytest.fixture
def raw(broker, topic):
    with RawClient(broker.port) as client:
        yield client


def ends(raw, name, *asked, version=4, partition=0):
    """(error, epoch, end offset) for each (epoch, epoch the reader knows)."""
    parts = tuple(
        OffsetForLeaderPartition(partition=partition, leader_epoch=epoch, current_leader_epoch=known)
        for epoch, known in asked
    )
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=(OffsetForLeaderTopic(topic=name, partitions=parts),))
    (of_topic,) = raw.ask(request, version).topics
    assert (of_topic.topic, {part.partition for part in of_topic.partitions}) == (name, {partition})
    return [(part.error_code, part.leader_epoch, part.end_offset) for part in of_topic.partitions]


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_an_epoch_ends_where_the_next_one_that_wrote_begins_and_the_last_one_at_the_end(raw, topic, version):
    found = ends(raw, topic.name, *((epoch, -1) for epoch in (0, 1, 2)), version=version)

    tells_epoch = version >= 1
    assert found == [(NONE, epoch if tells_epoch else -1, end) for epoch, end in ((0, 4), (0, 4), (2, 6))]


def test_an_epoch_that_is_not_known_has_no_end(raw, topic):
    assert ends(raw, topic.name, (3, -1), (-1, -1), (2**31 - 1, 2)) == [(NONE, -1, -1)] * 3


def test_the_end_of_the_last_epoch_moves_with_the_log(raw):
    topic = raw.create_topic()
    at_first = ends(raw, topic.name, (2, -1))

    raw.produce(topic, BATCH)

    assert at_first + ends(raw, topic.name, (2, -1)) == [(NONE, 2, 0), (NONE, 2, 2)]


@pytest.mark.parametrize("version", [2, 3, 4])
def test_who_knows_another_leader_is_refused(raw, topic, version):
    found = ends(raw, topic.name, *((0, known) for known in (-1, 2, 1, 3, -5)), version=version)

    assert found == [(NONE, 0, 4), (NONE, 0, 4), (FENCED, -1, -1), (UNKNOWN, -1, -1), (FENCED, -1, -1)]


def test_unknown_topics_and_partitions_have_no_epochs(raw, topic):
    unknown = [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)]

    assert ends(raw, "no-such-topic", (0, -1)) == unknown
    assert [ends(raw, topic.name, (0, -1), partition=index) for index in (-1, 1)] == [unknown] * 2


# --- other requests of those who know a leader --------------------------------------------------------------------


@pytest.mark.parametrize("version", [9, 12, 15, 16, 18])
def test_a_fetch_of_who_knows_an_older_leader_is_refused_with_the_address_of_the_new_one(broker, raw, topic, version):
    response = raw.ask(fetch_request(topic, 0, leader_epoch=1, max_wait_ms=60_000), version)

    ((data,),) = (of_topic.partitions for of_topic in response.responses)
    assert ErrorCode(data.error_code) == FENCED
    leader = (data.current_leader.leader_id, data.current_leader.leader_epoch)
    assert leader == ((1, 2) if version >= 16 else (-1, -1))
    told = [(node.node_id, node.host, node.port) for node in response.node_endpoints]
    assert told == ([(1, "127.0.0.1", broker.port)] if version >= 16 else [])


def test_the_offsets_of_who_knows_another_leader_are_not_looked_up(raw, topic):
    errors = [raw.list_offset(topic, -1, leader_epoch=known).error_code for known in (-1, 2, 1, 3)]

    assert errors == [NONE, NONE, FENCED, UNKNOWN]


def fetch_after(raw, topic, offset, last_epoch):
    part = FetchPartition(partition=0, fetch_offset=offset, last_fetched_epoch=last_epoch, partition_max_bytes=1_000)
    request = FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=(FetchTopic(topic=topic.name, partitions=(part,)),))
    ((data,),) = (of_topic.partitions for of_topic in raw.ask(request, BY_NAME).responses)
    diverging = (data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
    return ErrorCode(data.error_code), diverging, base_offsets(data.records)


def test_a_reader_whose_last_records_are_not_those_of_the_log_is_told_where_they_part(raw, topic):
    assert fetch_after(raw, topic, 4, 0) == (NONE, (-1, -1), [4])
    assert fetch_after(raw, topic, 5, 0) == (NONE, (0, 4), [])
    assert fetch_after(raw, topic, 2, 1) == (NONE, (0, 4), [])
    assert fetch_after(raw, topic, 7, 2) == (NONE, (2, 6), [])
    assert fetch_after(raw, topic, 6, 3) == (ErrorCode.OFFSET_OUT_OF_RANGE, (-1, -1), [])
