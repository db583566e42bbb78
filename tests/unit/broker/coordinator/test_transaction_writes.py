"""Writes of transactions: who asks the coordinator, who waits behind whom, who is told what."""

import pytest

from exactlog.broker.coordinator.transaction_writes import TransactionWrites, Writer
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import ProducerEpoch, ProducerId, TopicPartition
from exactlog.testing.faults import armed

NONE = ErrorCode.NONE


class FakePartition:
    """Knows of open transactions what it is told."""

    def __init__(self, index):
        self.topic_partition = TopicPartition("t", index)
        self.open = set()

    def has_open_transaction(self, producer_id, producer_epoch):
        return (producer_id, producer_epoch) in self.open


class FakeCoordinator:
    """Answers when the test lets it."""

    def __init__(self):
        self.asked = []
        self.waiting = []
        self.orphans = []

    def add_for_write(self, writer, partitions, then):
        self.asked.append((writer, partitions, then))

    def when_committed(self, transactional_id, callback):
        self.waiting.append((transactional_id, callback))

    def abort_orphans(self, writer, partitions, then):
        self.orphans.append((writer.producer_id, partitions))
        self.is_over = then

    def answer(self, error=NONE):
        self.asked.pop(0)[2](error)

    def commit(self, error=NONE):
        self.waiting.pop(0)[1](error)


class LoggedWrite:
    """Notes what becomes of it; appended, the transaction is open in its partition."""

    def __init__(self, log, name, partition, writer):
        self.log, self.name, self.partition, self.writer = log, name, partition, writer

    def go(self):
        self.log.append(f"{self.name} goes")
        self.partition.open.add((self.writer.producer_id, self.writer.producer_epoch))

    def is_joined(self, error):
        self.log.append(f"{self.name} joined {error.name}")

    def refuse(self, error):
        self.log.append(f"{self.name} refused {error.name}")


class World:
    """The writes, two partitions, and what has happened."""

    def __init__(self):
        self.coordinator = FakeCoordinator()
        self.writes = TransactionWrites(self.coordinator)
        self.partitions = [FakePartition(0), FakePartition(1)]
        self.log = []

    def write(self, *names_and_partitions, producer_id=7, epoch=0):
        writer = Writer(
            transactional_id="mine",
            producer_id=ProducerId(producer_id),
            producer_epoch=ProducerEpoch(epoch),
            may_add=True,
        )
        self.writes.write(
            writer,
            [LoggedWrite(self.log, name, self.partitions[index], writer) for name, index in names_and_partitions],
        )


@pytest.fixture
def world():
    return World()


def test_the_partitions_of_one_request_are_asked_about_in_one_go(world):
    world.write(("a", 0), ("b", 1))

    ((writer, partitions, _),) = world.coordinator.asked
    assert (writer.transactional_id, partitions) == ("mine", (TopicPartition("t", 0), TopicPartition("t", 1)))
    assert world.log == []

    world.coordinator.answer()
    assert world.log == ["a goes", "b goes"]

    world.coordinator.commit()
    assert world.log[2:] == ["a joined NONE", "b joined NONE"]


def test_where_the_transaction_is_open_nobody_is_asked(world):
    world.write(("a", 0))
    world.coordinator.answer()
    world.coordinator.commit()

    world.write(("b", 0))

    assert world.log == ["a goes", "a joined NONE", "b goes", "b joined NONE"]
    assert world.coordinator.asked == []


def test_what_goes_before_its_partitions_part_in_the_transaction_is_committed_is_told_with_it(world):
    world.write(("a", 0))
    world.coordinator.answer()
    world.write(("b", 0))
    assert world.log == ["a goes", "b goes"]

    world.coordinator.commit(ErrorCode.NOT_COORDINATOR)

    assert world.log[2:] == ["a joined NOT_COORDINATOR", "b joined NOT_COORDINATOR"]


def test_later_writes_of_the_same_producer_into_the_partition_wait_behind_one_that_is_asked_about(world):
    world.write(("a", 0))
    world.write(("b", 0))
    world.write(("c", 0), ("d", 1))
    world.write(("e", 0), producer_id=8)
    assert [partitions for _, partitions, _ in world.coordinator.asked] == [
        (TopicPartition("t", 0),),
        (TopicPartition("t", 1),),
        (TopicPartition("t", 0),),
    ]

    world.coordinator.answer()

    assert world.log == ["a goes", "b goes", "c goes"]
    world.coordinator.commit()
    assert world.log[3:] == ["a joined NONE", "b joined NONE", "c joined NONE"]


def test_who_waits_behind_a_refusal_asks_for_itself(world):
    world.write(("a", 0))
    world.write(("b", 0))
    world.write(("c", 0))

    world.coordinator.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert world.log == ["a refused CONCURRENT_TRANSACTIONS"]
    assert len(world.coordinator.asked) == 1

    world.coordinator.answer()
    assert world.log[1:] == ["b goes", "c goes"]


def test_another_epoch_is_another_transaction(world):
    world.write(("a", 0))
    world.coordinator.answer()

    world.write(("b", 0), epoch=1)

    assert len(world.coordinator.asked) == 1


def test_data_whose_part_in_the_transaction_was_not_committed_is_an_orphan(world):
    world.write(("a", 0), ("b", 1))
    world.coordinator.answer()

    world.coordinator.commit(ErrorCode.NOT_COORDINATOR)

    assert world.coordinator.orphans == [(7, (TopicPartition("t", 0), TopicPartition("t", 1)))]
    assert world.log[2:] == ["a joined NOT_COORDINATOR", "b joined NOT_COORDINATOR"]


def test_where_an_orphan_is_being_aborted_nothing_of_its_producer_goes(world):
    world.write(("a", 0))
    world.coordinator.answer()
    world.coordinator.commit(ErrorCode.NOT_COORDINATOR)

    world.write(("a again", 0))
    world.write(("next", 0), epoch=1)
    world.write(("elsewhere", 1))
    world.write(("another's", 0), producer_id=8)
    assert world.log[2:] == ["a again refused NOT_COORDINATOR", "next refused NOT_COORDINATOR"]
    assert len(world.coordinator.asked) == 2

    world.coordinator.is_over()
    world.write(("next", 0), epoch=1)
    assert len(world.coordinator.asked) == 3


@pytest.mark.parametrize("broken", ["go", "is_joined"])
def test_a_write_that_breaks_hurts_no_other(world, monkeypatch, broken):
    def fail(*_):
        raise ValueError("broken")

    world.write(("a", 0), ("b", 1))
    ((_, _, then),) = world.coordinator.asked
    asked = list(then.args[1].values())
    monkeypatch.setattr(asked[0], broken, fail, raising=False)

    world.coordinator.answer()
    world.coordinator.commit()

    assert "b goes" in world.log
    assert "b joined NONE" in world.log


def test_what_fails_before_the_data_is_appended_is_refused_and_who_waits_behind_it_goes_on(world):
    world.write(("a", 0))
    world.write(("b", 0))

    with armed("txn.add.before_data", OSError("ordered")):
        world.coordinator.answer()
    assert world.log == ["a refused KAFKA_STORAGE_ERROR"]

    world.coordinator.answer()
    assert world.log[1:] == ["b goes"]


def test_what_fails_once_the_data_is_appended_changes_nothing(world):
    world.write(("a", 0))
    world.write(("b", 0))

    with armed("txn.add.after_data", OSError("ordered")):
        world.coordinator.answer()

    assert world.log == ["a goes", "b goes"]
