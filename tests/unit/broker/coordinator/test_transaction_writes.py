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
        self.ending = set()

    def add_for_write(self, writer, partitions, then):
        self.asked.append((writer, partitions, then))

    def when_committed(self, transactional_id, callback):
        self.waiting.append((transactional_id, callback))

    def is_ending(self, transactional_id):
        return transactional_id in self.ending

    def abort_orphans(self, held, then):
        self.orphans.append([(partition.topic_partition, producer_id) for partition, producer_id in held])
        self.is_over = lambda: [then(each) for each in held]

    def answer(self, error=NONE):
        self.asked.pop(0)[2](error)

    def commit(self, error=NONE):
        self.waiting.pop(0)[1](error)


class LoggedWrite:
    """Notes what becomes of it; appended, the transaction is open in its partition."""

    def __init__(self, log, name, partition, writer):
        self.log, self.name, self.partition, self.writer = log, name, partition, writer
        self.first_sequence = int(name) if name.isdigit() else -1

    def go(self, *, lowest_sequence=None):
        if lowest_sequence is not None and self.first_sequence > lowest_sequence:
            self.log.append(f"{self.name} is out of order")
            return
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

    def write(self, *names_and_partitions, producer_id=7, epoch=0, may_add=True):
        writer = Writer(
            transactional_id="mine",
            producer_id=ProducerId(producer_id),
            producer_epoch=ProducerEpoch(epoch),
            may_add=may_add,
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


def verify(world, *names, epoch=0):
    """Each of them comes by itself, of who has named its partitions beforehand; a number is its sequence."""
    for name in names:
        world.write((name, 0), may_add=False, epoch=epoch)


def test_a_batch_that_overtook_another_is_out_of_order_once_they_are_verified(world):
    verify(world, "5", "0", "9")
    world.coordinator.answer()
    assert world.log == ["5 is out of order"]

    world.coordinator.answer()
    assert world.log[1:] == ["0 goes", "9 goes"], "the partition says what is next"


@pytest.mark.parametrize("error", [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR])
def test_a_batch_that_is_refused_for_now_is_not_overtaken(world, error):
    verify(world, "0")
    world.coordinator.answer(error)
    verify(world, "5")
    world.coordinator.answer()
    assert world.log[1:] == ["5 is out of order"]

    verify(world, "0")
    world.coordinator.answer()
    assert world.log[2:] == ["0 goes"]


@pytest.mark.parametrize("end", ["it goes", "it is refused for good", "its epoch is over"])
def test_once_a_first_batch_is_over_the_next_one_may_begin_anywhere(world, end):
    verify(world, "0")
    world.coordinator.answer(ErrorCode.TRANSACTION_ABORTABLE if end == "it is refused for good" else NONE)
    if end == "it goes":
        world.partitions[0].open.clear()
    if end == "its epoch is over":
        verify(world, "0")
    verify(world, "5", epoch=end == "its epoch is over")
    world.coordinator.answer()

    assert world.log[-1] == "5 goes"


@pytest.mark.parametrize("may_add", [True, False])
def test_while_its_transaction_is_about_to_end_nothing_joins_it_unless_its_epoch_tells(world, may_add):
    world.partitions[0].open.add((7, 0))
    world.coordinator.ending.add("mine")

    world.write(("joins", 0), ("asks", 1), may_add=may_add)
    world.write(("queues", 1), may_add=may_add)
    assert [partitions for _, partitions, _ in world.coordinator.asked] == [(TopicPartition("t", 1),)]
    world.coordinator.answer()

    assert world.log == (
        ["joins goes", "joins joined NONE", "asks goes", "queues goes"]
        if may_add
        else ["joins refused CONCURRENT_TRANSACTIONS", "queues refused CONCURRENT_TRANSACTIONS", "asks goes"]
    )


def test_who_has_an_epoch_for_each_transaction_begins_where_the_partition_says(world):
    world.write(("5", 0))
    world.write(("0", 0))
    world.coordinator.answer()

    assert world.log == ["5 goes", "0 goes"]


def test_another_epoch_is_another_transaction(world):
    world.write(("a", 0))
    world.coordinator.answer()

    world.write(("b", 0), epoch=1)

    assert len(world.coordinator.asked) == 1


def test_data_whose_part_in_the_transaction_was_not_committed_is_an_orphan(world):
    world.write(("a", 0), ("b", 1))
    world.coordinator.answer()

    world.coordinator.commit(ErrorCode.NOT_COORDINATOR)

    assert world.coordinator.orphans == [[(TopicPartition("t", 0), 7), (TopicPartition("t", 1), 7)]]
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


def test_a_partition_that_is_held_off_takes_nothing_of_that_producer_though_its_transaction_is_open_there(world):
    world.partitions[0].open.add((7, 0))
    world.writes.hold_off([(world.partitions[0], ProducerId(7))])

    world.write(("resent", 0))
    world.write(("elsewhere", 1))
    assert world.log == ["resent refused NOT_COORDINATOR"]
    assert world.coordinator.orphans == [[(TopicPartition("t", 0), 7)]]

    world.coordinator.is_over()
    world.write(("resent", 0))
    assert world.log[1:] == ["resent goes", "resent joined NONE"]


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
