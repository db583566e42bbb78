"""What becomes of transactions when a broker starts again, when their time is over, and when a test fences them."""

import asyncio
import json
from itertools import count
from pathlib import Path

import pytest
from msgspec.structs import replace

from exactlog.broker.coordinator import shards
from exactlog.broker.coordinator.transaction_orphans import Orphans
from exactlog.core.model.decisions import Answer, Decision
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import KafkaError
from exactlog.core.model.topic_name import CONSUMER_OFFSETS, TRANSACTION_STATE
from exactlog.core.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from exactlog.core.transaction.requests import ErrorAnswer
from exactlog.core.transaction.shard import TransactionShard
from exactlog.testing import Broker
from tests.support.forgotten_commits import forget
from tests.support.isolated_reader import COMMITTED, read_on, values
from tests.support.raw_client import RawClient
from tests.support.raw_transactions import (
    ABORT,
    COMMIT,
    TransactionalProducer,
    describe,
    list_transactions,
    write_marker,
)

NONE = ErrorCode.NONE
ID = "mine"


@pytest.fixture
def broker(request, tmp_path):
    """A broker; on files where versions are to be taken away: there each round of a partition is one.

    A round of a journal is there for all partitions or for none: it leaves no orphan, but may find one.
    """
    config = {"commit.engine": "files"} if "restart_on_either" in request.fixturenames else {}
    with Broker(data_dir=tmp_path, config=config) as running:
        yield running


@pytest.fixture(params=["files", "journal"])
def restart_on_either(request, broker):
    """Starts a broker again that ran on files, on either engine."""

    def restart():
        broker._config = replace(broker._config, commit_engine=request.param)
        broker.restart()

    return restart


@pytest.fixture
def ask(broker):
    """Does something over a connection of its own, and gives what came of it: the broker may be another one by now."""

    def do(work):
        with RawClient(broker.port) as raw:
            return work(raw)

    return do


def begin(raw, *, timeout_ms=60_000):
    """A topic, and a producer that has a value in it in an open transaction."""
    topic = raw.create_topic("topic", partitions=2)
    producer = TransactionalProducer(raw, ID, timeout_ms=timeout_ms)
    assert producer.init() is NONE
    assert producer.produce((topic, 0, b"value")) == [NONE]
    return topic, producer


def over(raw, producer):
    """The producer, over another connection."""
    producer.raw = raw
    return producer


def until_not_open(raw, transactional_id=ID):
    while (state := describe(raw, transactional_id).transaction_state) not in {"CompleteAbort", "CompleteCommit"}:
        assert state in {"Ongoing", "PrepareAbort", "PrepareCommit", ""}
    return state


# --- a start ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", [COMMIT, ABORT])
def test_an_open_transaction_outlives_a_crash_and_is_ended_by_its_producer(broker, ask, outcome):
    topic, producer = ask(begin)
    broker.kill()
    broker.restart()

    with RawClient(broker.port) as raw:
        assert over(raw, producer).produce((topic, 0, b"more")) == [NONE]
        assert read_on(raw, topic) == []
        assert producer.end(outcome) is NONE
        until_not_open(raw)

        assert values(read_on(raw, topic)) == ([b"value", b"more"] if outcome is COMMIT else [])


def test_a_transaction_that_its_coordinator_never_came_to_know_of_is_aborted_and_its_resend_is_fenced(
    broker, ask, restart_on_either
):
    topic, producer = ask(begin)
    broker.kill()
    forget(broker, TRANSACTION_STATE, versions=1)
    restart_on_either()

    with RawClient(broker.port) as raw:
        assert read_on(raw, topic) == []
        assert raw.list_offset(topic, -1, isolation_level=COMMITTED).offset == 2  # behind the marker
        over(raw, producer)
        producer.become(-1, -1).become(0, 0)
        assert producer.produce((topic, 0, b"value")) == [ErrorCode.INVALID_PRODUCER_EPOCH]
        assert producer.end(COMMIT) is ErrorCode.PRODUCER_FENCED
        assert producer.init() is NONE
        assert producer.epoch == 2
        assert producer.produce((topic, 0, b"again")) == [NONE]
        assert producer.end(COMMIT) is NONE
        until_not_open(raw)
        assert values(read_on(raw, topic)) == [b"again"]


def test_a_transaction_whose_producer_nobody_knows_is_aborted(broker, ask, restart_on_either):
    topic, producer = ask(begin)
    broker.kill()
    forget(broker, TRANSACTION_STATE, versions=2)
    restart_on_either()

    with RawClient(broker.port) as raw:
        assert list_transactions(raw).transaction_states == ()
        assert read_on(raw, topic) == []
        assert raw.list_offset(topic, -1, isolation_level=COMMITTED).offset == 2
        assert over(raw, producer).produce((topic, 0, b"more")) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]


def test_offsets_of_a_transaction_that_its_coordinator_never_came_to_know_of_are_dropped(
    broker, ask, restart_on_either
):
    with RawClient(broker.port) as raw:
        topic = raw.create_topic("topic")
        producer = TransactionalProducer(raw, ID)
        producer.init()
        assert producer.commit_offsets("group", topic, 7) is NONE
    broker.kill()
    forget(broker, TRANSACTION_STATE, versions=1)
    restart_on_either()

    with RawClient(broker.port) as raw:
        asked = OffsetFetchRequestTopic(name=topic.name, partition_indexes=(0,))
        answer = raw.ask(OffsetFetchRequest(group_id="group", topics=(asked,), require_stable=True), 7)
        assert (answer.error_code, answer.topics[0].partitions[0].error_code) == (0, 0)
        assert answer.topics[0].partitions[0].committed_offset == -1
        over(raw, producer)
        assert producer.commit_offsets("group", topic, 7) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_orphan_is_aborted_in_every_partition_that_it_is_open_in(broker, ask, restart_on_either):
    with RawClient(broker.port) as raw:
        topic, producer = begin(raw)
        assert producer.produce((topic, 1, b"value")) == [NONE]
    broker.kill()
    forget(broker, TRANSACTION_STATE, versions=2)
    restart_on_either()

    with RawClient(broker.port) as raw:
        for partition in range(2):
            assert raw.list_offset(topic, -1, partition=partition, isolation_level=COMMITTED).offset == 2


def test_orphans_in_many_partitions_that_are_opened_at_once_are_all_aborted(
    broker, ask, restart_on_either, monkeypatch
):
    with RawClient(broker.port) as raw:
        topic = raw.create_topic("topic", partitions=5)
        producer = TransactionalProducer(raw, ID)
        producer.init()
        assert producer.produce(*[(topic, index, b"value") for index in range(5)]) == [NONE] * 5
    broker.kill()
    forget(broker, TRANSACTION_STATE, versions=1)
    load_shard, are_awaited = shards.load_shard, asyncio.Event()

    async def load_when_all_wait(*args, **fields):
        await are_awaited.wait()
        return await load_shard(*args, **fields)

    monkeypatch.setattr(shards, "load_shard", load_when_all_wait)
    waiting = count(1)
    end_in = Orphans.end_in

    async def end_when_all_wait(orphans, partition):
        if partition.open_transactions() and next(waiting) == 5:
            are_awaited.set()
        await end_in(orphans, partition)

    monkeypatch.setattr(Orphans, "end_in", end_when_all_wait)
    restart_on_either()

    with RawClient(broker.port) as raw:
        over(raw, producer).become(-1, -1).become(0, 0)
        resent = producer.produce(*[(topic, index, b"value") for index in range(5)])
        assert resent == [ErrorCode.INVALID_PRODUCER_EPOCH] * 5
        for index in range(5):
            assert raw.list_offset(topic, -1, partition=index, isolation_level=COMMITTED).offset == 2


def test_a_partition_is_not_used_before_its_orphans_are_aborted(broker, ask, restart_on_either, monkeypatch):
    """Its coordinator refuses that at first. A resend would be taken for a duplicate of what is part of nothing."""
    topic, producer = ask(begin)
    broker.kill()
    forget(broker, TRANSACTION_STATE, versions=1)
    abort_orphan, times = TransactionShard.abort_orphan, count(1)

    def refuse_twice(shard, producer_id, epoch, partition, waiter, *, now_ms):
        if next(times) <= 2:
            return Decision(answers=(Answer(waiter, ErrorAnswer(ErrorCode.NOT_COORDINATOR)),))
        return abort_orphan(shard, producer_id, epoch, partition, waiter, now_ms=now_ms)

    monkeypatch.setattr(TransactionShard, "abort_orphan", refuse_twice)
    restart_on_either()

    with RawClient(broker.port) as raw:
        over(raw, producer).become(-1, -1).become(0, 0)
        assert producer.produce((topic, 0, b"value")) == [ErrorCode.INVALID_PRODUCER_EPOCH]
        assert raw.list_offset(topic, -1, isolation_level=COMMITTED).offset == 2


def test_an_orphan_that_its_partition_lets_nobody_abort_keeps_it_from_nobody_else(broker, ask, restart_on_either):
    """Somebody has written a marker there by hand, of a coordinator that is yet to come."""
    with RawClient(broker.port) as raw:
        topic, producer = begin(raw)
        assert write_marker(raw, topic, *producer.identity, ABORT, coordinator_epoch=2**31 - 1) is NONE
        assert producer.produce((topic, 0, b"orphan")) == [NONE]
    broker.kill()
    forget(broker, TRANSACTION_STATE, versions=1)
    restart_on_either()

    with RawClient(broker.port) as raw:
        other = TransactionalProducer(raw, "other")
        assert other.init() is NONE
        assert other.produce((topic, 0, b"value")) == [NONE]
        assert raw.list_offset(topic, -1, isolation_level=COMMITTED).offset == 2, "only by hand is it ended"
        assert write_marker(raw, topic, *producer.identity, ABORT, coordinator_epoch=2**31 - 1) is NONE
        assert other.end(COMMIT) is NONE
        until_not_open(raw, "other")
        assert values(read_on(raw, topic)) == [b"value"]


# --- time ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(broker, ask, is_restarted):
    topic, producer = ask(lambda raw: begin(raw, timeout_ms=5_000))
    if is_restarted:
        broker.kill()
        broker.restart()
        while broker.metrics()["exactlog_transactional_ids"] == 0:  # nobody asks: its time is watched all the same
            pass
    broker.clock.advance_ms(4_000)
    with RawClient(broker.port) as raw:
        assert describe(raw, ID).transaction_state == "Ongoing"

    broker.clock.advance_ms(15_000)

    with RawClient(broker.port) as raw:
        assert until_not_open(raw) == "CompleteAbort"
        assert read_on(raw, topic) == []
        assert over(raw, producer).produce((topic, 0, b"late")) == [ErrorCode.INVALID_PRODUCER_EPOCH]
        assert producer.end(COMMIT) is ErrorCode.PRODUCER_FENCED
    assert broker.metrics()["exactlog_transactions_timed_out_total"] == 1


def test_a_transactional_id_that_is_not_used_is_forgotten(broker, ask):
    topic, producer = ask(begin)
    ask(lambda raw: over(raw, producer).end(COMMIT))
    ask(until_not_open)

    broker.clock.advance_ms(8 * 24 * 3_600_000)

    with RawClient(broker.port) as raw:
        assert list_transactions(raw).transaction_states == ()
        assert over(raw, producer).produce((topic, 0, b"value")) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]


# --- faults and what can be seen -------------------------------------------------------------------------------------


def test_a_producer_can_be_fenced(broker, ask):
    topic, producer = ask(begin)

    broker.faults.fence(ID)

    with RawClient(broker.port) as raw:
        assert until_not_open(raw) == "CompleteAbort"
        assert over(raw, producer).produce((topic, 0, b"late")) == [ErrorCode.INVALID_PRODUCER_EPOCH]
        assert read_on(raw, topic) == []


def test_a_transactional_id_that_is_not_there_cannot_be_fenced(broker):
    with pytest.raises(KafkaError) as refused:
        broker.faults.fence("nobody")

    assert refused.value.error_code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def exported(broker):
    path = Path(broker.data_dir) / "transactions" / "transactions.json"
    return {found["transactional_id"]: found for found in json.loads(path.read_text())["transactions"]}


def test_a_readable_copy_is_written_within_a_second_and_at_the_end(broker, ask):
    _, producer = ask(begin)
    broker.clock.advance_ms(1_000)
    path = Path(broker.data_dir) / "transactions" / "transactions.json"
    while not path.exists() or exported(broker)[ID]["state"] != "Ongoing":
        broker.clock.advance_ms(1_000)
    assert exported(broker)[ID]["partitions"] == [{"topic": "topic", "partition": 0}]

    ask(lambda raw: over(raw, producer).end(COMMIT))
    ask(until_not_open)
    broker.restart()

    found = exported(broker)[ID]
    assert (found["state"], found["producer_epoch"], found["partitions"]) == ("CompleteCommit", 1, [])
    assert [child.name for child in path.parent.iterdir()] == ["transactions.json"]


def test_metrics_count_transactions(broker, ask):
    topic, producer = ask(begin)
    assert broker.metrics()["exactlog_transactions_open"] == 1
    with RawClient(broker.port) as raw:
        assert over(raw, producer).end(COMMIT) is NONE
        until_not_open(raw)
        producer.produce((topic, 0, b"value"))
        assert producer.end(ABORT) is NONE
        until_not_open(raw)
        while describe(raw, ID).transaction_state != "CompleteAbort":
            pass

    metrics = broker.metrics()

    assert metrics["exactlog_transactions_open"] == 0
    assert metrics["exactlog_transactional_ids"] == 1
    assert metrics["exactlog_transactions_committed_total"] == 1
    assert metrics["exactlog_transactions_aborted_total"] == 1


def test_topics_of_the_coordinators_are_made_when_they_are_needed(broker, ask):
    assert not (Path(broker.data_dir) / f"topic={TRANSACTION_STATE}-part=0").exists()

    ask(begin)

    assert (Path(broker.data_dir) / f"topic={TRANSACTION_STATE}-part=0").exists()
    assert not (Path(broker.data_dir) / f"topic={CONSUMER_OFFSETS}-part=0").exists()
