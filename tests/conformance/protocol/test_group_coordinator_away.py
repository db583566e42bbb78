"""A coordinator that is about to stop, or that cannot write, says so at once: clients look for it again."""

import threading

import pytest

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.metadata import MetadataRequest
from exactlog.testing import Broker, faults
from tests.support.raw_client import RawClient
from tests.support.raw_groups import Member, commit, describe, fetch_offset, form_group
from tests.support.watching import wait_published

AWAY = ErrorCode.NOT_COORDINATOR


@pytest.fixture
def broker(tmp_path):
    with Broker(tmp_path) as broker:
        yield broker


@pytest.fixture
def clients(broker):
    with RawClient(broker.port) as first, RawClient(broker.port) as second:
        yield first, second


def resign(broker):
    async def work():
        broker._node.services.groups.resign()

    broker._call(work)


def test_every_request_to_a_coordinator_that_has_resigned_is_told_at_once(broker, clients):
    """B094 (aiokafka #1135, #1151): the coordinator was not looked up again. B090: silence where it was away."""
    raw, other = clients
    topic = raw.create_topic()
    member = Member(raw, "readers")
    form_group(member)
    resign(broker)
    assert member.heartbeat() is AWAY
    assert member.commit(topic, 1) is AWAY
    assert member.sync().error_code == AWAY
    assert member.leave() is AWAY
    assert member.join().error_code == AWAY
    assert fetch_offset(other, "readers", topic).error_code == AWAY
    assert describe(other, "readers").error_code == AWAY


@pytest.mark.parametrize("ends", ["resign", "stop"])
def test_who_waits_for_a_group_is_told_when_the_coordinator_goes(broker, clients, ends):
    """B090 (librdkafka #5511, #3013, #3348, #4420): calls hung while the coordinator was away."""
    raw, other = clients
    first, second = Member(raw, "readers"), Member(other, "readers")
    form_group(first)
    second.ask_to_join()
    while describe(first.raw, "readers").group_state != "PreparingRebalance":
        pass
    going = threading.Thread(target=(lambda: resign(broker)) if ends == "resign" else broker.stop)
    going.start()
    assert second.receive_join().error_code == AWAY
    going.join()


def test_a_commit_that_the_disk_refuses_is_not_answered_as_done_and_the_group_goes_on(tmp_path):
    with Broker(tmp_path) as broker, RawClient(broker.port) as raw:
        topic = raw.create_topic()
        member = Member(raw, "readers")
        form_group(member)
        assert member.commit(topic, 1) is ErrorCode.NONE
        wait_published(broker)  # else the refusal may be that of its version, which nobody waits for
        with faults.armed("storage.round.before_write", OSError(28, "No space left on device")):
            assert member.commit(topic, 2) is AWAY
        assert fetch_offset(raw, "readers", topic).committed_offset == 1
        assert member.heartbeat() is ErrorCode.NONE, "it is in the last generation that was written"
        assert member.commit(topic, 3) is ErrorCode.NONE
        assert fetch_offset(raw, "readers", topic).committed_offset == 3


def test_topics_and_groups_are_all_there_with_the_first_answer_after_a_start(tmp_path):
    """B082 (librdkafka 1.8 to 2.3, #4438): a topic that was missing from one Metadata answer lost records."""
    with Broker(tmp_path) as broker:
        with RawClient(broker.port) as raw:
            topics = [raw.create_topic(partitions=3) for _ in range(5)]
            assert commit(raw, "readers", topics[0], 7) is ErrorCode.NONE
        broker.kill()
        broker.restart()
        with RawClient(broker.port) as raw:
            told = {topic.name: topic for topic in raw.ask(MetadataRequest(topics=None), 12).topics}
            for topic in topics:
                assert [part.error_code for part in told[topic.name].partitions] == [ErrorCode.NONE] * 3
            assert fetch_offset(raw, "readers", topics[0]).committed_offset == 7
