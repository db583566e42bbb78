"""Nothing is told before what it promises is durable, also what was decided long ago and is only asked again."""

import itertools

import pytest

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.describe_groups import DescribeGroupsRequest
from exactlog.core.protocol.messages.list_groups import ListGroupsRequest
from exactlog.core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.support.faulty_broker import FaultyBroker
from tests.support.raw_client import (
    BY_NAME,
    base_offsets,
    batch_of,
    fetch_request,
    offsets_and_values,
    produce_request,
    sequenced,
)
from tests.support.raw_groups import commit
from tests.support.watching import RequestCount

_producer_ids = itertools.count(1)


@pytest.fixture(scope="module")
def shared():
    with FaultyBroker() as faulty:
        yield faulty


def topic_in_use(client):
    """A topic whose partition is open already: opening one waits for a sync of its own."""
    topic = client.create_topic()
    assert client.list_offset(topic, -1).offset == 0
    return topic


def produced(client):
    answer = client.receive().responses[0].partition_responses[0]
    return ErrorCode(answer.error_code), answer.base_offset


def test_a_batch_is_not_told_and_not_shown_before_it_is_synced(shared):
    writer, reader = shared.connect(), shared.connect()
    topic = topic_in_use(writer)
    produce_count = RequestCount(shared.broker, "Produce")

    with shared.files.syncs_held():
        writer.send(produce_request(topic, batch_of(b"v")), BY_NAME)
        shared.files.wait_for_sync()
        produce_count.wait_for(1)

        fetched = reader.fetch(topic, 0)
        assert (fetched.high_watermark, bytes(fetched.records)) == (0, b"")
        assert reader.list_offset(topic, -1).offset == 0
        assert not writer.has_answer()

    assert produced(writer) == (ErrorCode.NONE, 0)
    assert offsets_and_values(reader.fetch(topic, 0).records) == [(0, b"v")]


def test_a_resend_of_what_is_decided_and_not_yet_durable_is_not_acknowledged_early(shared):
    first, again = shared.connect(), shared.connect()
    topic = topic_in_use(first)
    request = (produce_request(topic, sequenced(next(_producer_ids), 0, b"v")), BY_NAME)
    produce_count = RequestCount(shared.broker, "Produce")

    with shared.files.syncs_held():
        first.send(*request)
        shared.files.wait_for_sync()
        again.send(*request)
        produce_count.wait_for(2)

        assert not first.has_answer()
        assert not again.has_answer()

    assert produced(first) == produced(again) == (ErrorCode.NONE, 0)
    assert base_offsets(first.fetch(topic, 0).records) == [0]


def test_a_refusal_that_rests_on_what_is_not_yet_durable_waits_for_it(shared):
    first, gap = shared.connect(), shared.connect()
    topic = topic_in_use(first)
    producer_id = next(_producer_ids)
    produce_count = RequestCount(shared.broker, "Produce")

    with shared.files.syncs_held():
        first.send(produce_request(topic, sequenced(producer_id, 0, b"v")), BY_NAME)
        shared.files.wait_for_sync()
        gap.send(produce_request(topic, sequenced(producer_id, 2, b"v")), BY_NAME)
        produce_count.wait_for(2)
        assert not gap.has_answer()

    assert produced(first) == (ErrorCode.NONE, 0)
    assert produced(gap) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)


def test_five_batches_that_come_while_a_sync_runs_are_answered_in_order_after_their_own(shared):
    client = shared.connect()
    topic = topic_in_use(client)
    producer_id = next(_producer_ids)
    batches = [(produce_request(topic, sequenced(producer_id, n, b"%d" % n)), BY_NAME) for n in range(5)]
    produce_count = RequestCount(shared.broker, "Produce")

    with shared.files.syncs_held():
        client.send(*batches[0])
        shared.files.wait_for_sync()
        client.send_all(*batches[1:], *batches)
        produce_count.wait_for(10)
        assert not client.has_answer()

    assert [produced(client) for _ in range(10)] == [(ErrorCode.NONE, n) for n in (0, 1, 2, 3, 4) * 2]
    assert offsets_and_values(client.fetch(topic, 0).records) == [(n, b"%d" % n) for n in range(5)]


def test_a_waiting_fetch_is_woken_by_the_sync_not_by_the_append(shared):
    writer, reader = shared.connect(), shared.connect()
    topic = topic_in_use(writer)
    produce_count, fetch_count = RequestCount(shared.broker, "Produce"), RequestCount(shared.broker, "Fetch")

    with shared.files.syncs_held():
        reader.send(fetch_request(topic, 0, max_wait_ms=60_000), BY_NAME)
        fetch_count.wait_for(1)
        writer.send(produce_request(topic, batch_of(b"v")), BY_NAME)
        shared.files.wait_for_sync()
        produce_count.wait_for(1)
        assert not reader.has_answer()

    (of_topic,) = reader.receive().responses
    assert offsets_and_values(of_topic.partitions[0].records) == [(0, b"v")]
    assert produced(writer) == (ErrorCode.NONE, 0)


def commit_request(topic, group_id):
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    asked = OffsetCommitRequestTopic(name=topic.name, partitions=(part,))
    return OffsetCommitRequest(group_id=group_id, topics=(asked,)), 9


def test_a_group_is_not_shown_before_it_is_synced(shared):
    writer, lister, describer = shared.connect(), shared.connect(), shared.connect()
    topic = topic_in_use(writer)
    assert commit(writer, "before", topic, 1) is ErrorCode.NONE
    counts = {api: RequestCount(shared.broker, api) for api in ("OffsetCommit", "ListGroups", "DescribeGroups")}

    with shared.files.syncs_held():
        writer.send(*commit_request(topic, "durable-later"))
        shared.files.wait_for_sync()
        counts["OffsetCommit"].wait_for(1)
        lister.send(ListGroupsRequest(), 5)
        describer.send(DescribeGroupsRequest(groups=("durable-later",)), 6)
        counts["ListGroups"].wait_for(1)
        counts["DescribeGroups"].wait_for(1)
        assert not lister.has_answer()
        assert not describer.has_answer()

    assert "durable-later" in {group.group_id for group in lister.receive().groups}
    assert describer.receive().groups[0].error_code == ErrorCode.NONE
    writer.receive()


def test_who_asks_for_a_group_is_not_told_what_was_decided_after_that_and_is_not_durable_yet(shared):
    first, later, describer = shared.connect(), shared.connect(), shared.connect()
    topic = topic_in_use(first)
    assert commit(first, "before", topic, 1) is ErrorCode.NONE
    commit_count = RequestCount(shared.broker, "OffsetCommit")
    describe_count = RequestCount(shared.broker, "DescribeGroups")

    with shared.files.syncs_held():
        first.send(*commit_request(topic, "before"))
        shared.files.wait_for_sync()
        describer.send(DescribeGroupsRequest(groups=("decided-later",)), 6)
        describe_count.wait_for(1)
        later.send(*commit_request(topic, "decided-later"))
        commit_count.wait_for(2)

    assert describer.receive().groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    first.receive()
    later.receive()
