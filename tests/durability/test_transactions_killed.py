"""A broker dies by SIGKILL between the steps of transactions. After a restart each of them counts whole or not at all.

A producer writes one value into two partitions and commits one offset of a group, in transactions that it commits and
aborts by turns. What it was told stands; what it was not told about may have happened or not, but never in part.
"""

import pytest

from demo.served_broker import ServedBroker
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from exactlog.core.record.batch_format import iter_headers
from exactlog.testing.faults import points
from tests.support.isolated_reader import COMMITTED, seen_in, values
from tests.support.raw_client import ConnectionClosed, RawClient, Topic
from tests.support.raw_transactions import ABORT, COMMIT, TransactionalProducer

GROUP = "readers"
PARTITIONS = 2
TRANSACTIONS_MAX = 2_000
"""Versions of a journal follow by time: many transactions go by before there are twenty of them."""
NONE = ErrorCode.NONE

FILES, JOURNAL, ANY = "files", "journal", "any"
"""Some steps are those of one engine."""

STEPS = [point.name for point in points() if point.name.startswith("txn.")]
STORAGE_STEPS = [
    ("storage.round.after_segment_write", 14, ANY),
    ("storage.round.after_segment_write", 15, ANY),
    ("storage.round.after_segment_sync", 16, FILES),
    ("storage.publish.before_link", 17, ANY),
    ("storage.publish.after_link", 18, ANY),
    ("storage.publish.after_link", 19, ANY),
    ("storage.publish.after_link", 20, ANY),
    ("storage.publish.after_directory_sync", 21, FILES),
    ("storage.journal.before_write", 14, JOURNAL),
    ("storage.journal.after_write", 15, JOURNAL),
    ("storage.journal.after_sync", 16, JOURNAL),
]
DEATHS = [(name, at, ANY) for name in STEPS for at in (1, 4)] + STORAGE_STEPS


class Life:
    """What a producer did and was told, over one life of the broker.

    Attributes:
        told: by transaction, the outcome it was told.
        begun: how many transactions there were, the last one perhaps in part.
    """

    def __init__(self):
        self.told = {}
        self.begun = 0

    def go_on(self, raw, topic, transaction_version):
        """Transactions until the broker is gone."""
        try:
            producer = TransactionalProducer(raw, "mover")
            while producer.init() is ErrorCode.CONCURRENT_TRANSACTIONS:
                pass
            for number in range(TRANSACTIONS_MAX):
                self.begun = number + 1
                self._transact(producer, topic, number, transaction_version)
        except (ConnectionClosed, OSError):
            return
        raise AssertionError("the broker never came by the place where it was to die")

    def _transact(self, producer, topic, number, transaction_version):
        outcome = COMMIT if number % 3 else ABORT
        writes = [(topic, index, b"%d" % number) for index in range(PARTITIONS)]
        if transaction_version == 2:
            assert producer.produce(*writes) == [NONE] * PARTITIONS
            assert producer.commit_offsets(GROUP, topic, number + 1) is NONE
            assert producer.end(outcome) is NONE
        else:
            while (errors := producer.add(*[(topic, index) for index in range(PARTITIONS)])) != [NONE] * PARTITIONS:
                assert errors == [ErrorCode.CONCURRENT_TRANSACTIONS] * PARTITIONS
            assert producer.produce(*writes, version=11) == [NONE] * PARTITIONS
            assert producer.add_offsets(GROUP) is NONE
            assert producer.commit_offsets(GROUP, topic, number + 1, version=3) is NONE
            assert producer.end(outcome, version=3) is NONE
        self.told[number] = outcome


def seen(raw, topic, partition):
    """What a reader of committed records sees of a partition, which has no transaction open."""
    found, offset, end = [], 0, 1
    while offset < end:
        data = raw.fetch(topic, offset, partition=partition, isolation_level=COMMITTED)
        assert data.error_code == 0
        assert data.last_stable_offset == data.high_watermark
        found += values(seen_in(data, offset))
        offset = [header for _, header in iter_headers(data.records)][-1].next_offset
        end = data.last_stable_offset
    return [int(value) for value in found]


def committed_offset(raw, topic):
    asked = OffsetFetchRequestTopic(name=topic.name, partition_indexes=(0,))
    answer = raw.ask(OffsetFetchRequest(group_id=GROUP, topics=(asked,), require_stable=True), 7)
    assert answer.error_code == 0
    (part,) = answer.topics[0].partitions
    assert part.error_code == 0
    return part.committed_offset


@pytest.mark.slow
@pytest.mark.parametrize("transaction_version", [1, 2])
@pytest.mark.parametrize(("step", "at", "engine"), DEATHS)
def test_after_a_death_every_transaction_counts_whole_or_not_at_all(tmp_path, step, at, engine, transaction_version):
    broker = ServedBroker(
        tmp_path / "data",
        log=tmp_path / "broker.log",
        options=() if engine == ANY else ("--set", f"commit.engine={engine}"),
    )
    life = Life()
    try:
        broker.start(kill_at=f"{step}:{at}" if step.startswith("txn.") else None)
        with RawClient(broker.port) as raw:
            topic = raw.create_topic("moved", partitions=PARTITIONS)
            if not step.startswith("txn."):  # it is the second life that dies: the first makes the topics
                broker.kill()
        if not step.startswith("txn."):
            broker.start(kill_at=f"{step}:{at}")
        with RawClient(broker.port) as raw:
            life.go_on(raw, topic, transaction_version)
        broker.wait_killed()
        broker.kill()
        broker.start()
        with RawClient(broker.port) as raw:
            check(raw, Topic("moved", topic.topic_id), life)
    finally:
        broker.stop()


def check(raw, topic, life):
    """The next producer finishes what was under way; then all is decided, the same way in all places."""
    producer = TransactionalProducer(raw, "mover")
    while (error := producer.init()) is not NONE:
        assert error in {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    last = life.begun + 1_000
    assert producer.produce(*[(topic, index, b"%d" % last) for index in range(PARTITIONS)]) == [NONE] * PARTITIONS
    assert producer.end(COMMIT) is NONE
    assert producer.produce((topic, 0, b"0")) == [NONE]  # comes in behind the markers
    assert producer.end(ABORT) is NONE
    while producer.init() is not NONE:
        pass

    found = [seen(raw, topic, index) for index in range(PARTITIONS)]

    assert found[0] == found[1]
    committed = found[0]
    assert committed[-1] == last
    assert committed == sorted(set(committed))
    for number, outcome in life.told.items():
        assert (number in committed) == (outcome is COMMIT)
    assert set(committed[:-1]) <= set(life.told) | {life.begun - 1}
    assert committed_offset(raw, topic) == max([number + 1 for number in committed[:-1]], default=-1)
