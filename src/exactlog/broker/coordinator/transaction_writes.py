"""Lets a transaction's writes into partitions that the coordinator knows to be part of it, in the order they came.

The first write into a partition asks the coordinator, which makes the partition part of the transaction or knows it to
be one already. While that is open, later writes of the same producer into the same partition queue behind it: none
overtakes another. Once there is data of the transaction in the partition nobody need be asked; but while it is not
committed that the partition is part of the transaction, whatever goes there waits for that.

Where the epoch stays the same over transactions, what comes while the one before is about to end cannot be told from
what belongs to that: the coordinator is asked, or it has to come again.

Where that never will be committed the data is aborted, and until it is the partition takes nothing of this producer:
else a resend would be answered as if it were part of the transaction, which could commit without it. So too where
nobody can tell yet whether what the producer has open there is part of a transaction.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol, TypeAlias

from msgspec import Struct

from exactlog.broker.coordinator.outstanding_verifications import OutstandingVerifications
from exactlog.broker.coordinator.transaction_fault_points import ADD_AFTER_DATA, ADD_BEFORE_DATA
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import ProducerEpoch, ProducerId, TopicPartition
from exactlog.storage.partition_log import PartitionLog

_logger = logging.getLogger(__name__)

_FAILED: Final = "a write of a transaction failed"

_COMES_AGAIN: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""What a client that is refused with it sends again."""


class Writer(Struct, frozen=True, kw_only=True, gc=False):
    """Who writes.

    Attributes:
        may_add: whether the write itself makes partitions part of the transaction (KIP-890); else they must be.
    """

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    may_add: bool


class Write(Protocol):
    """One write into a partition."""

    @property
    def partition(self) -> PartitionLog:
        """Where it goes."""

    @property
    def first_sequence(self) -> int:
        """The sequence of its first record; below 0 where it has none."""

    def go(self, *, lowest_sequence: int | None = None) -> None:
        """Is called once to append it now; the coordinator knows that it is part of the transaction.

        Args:
            lowest_sequence: the lowest first sequence that came of this producer while the coordinator was being
                asked; None where that does not matter.
        """

    def is_joined(self, error: ErrorCode) -> None:
        """Is called once after `go`, when what makes it part of the transaction is committed, or never will be."""

    def refuse(self, error: ErrorCode) -> None:
        """Is called instead of `go`, with the coordinator's error as the newest versions tell it."""


Held: TypeAlias = tuple[PartitionLog, ProducerId]
"""A partition that takes nothing of a producer for now."""


class Coordinator(Protocol):
    """What is asked of the coordinator."""

    def add_for_write(
        self, writer: Writer, partitions: tuple[TopicPartition, ...], then: Callable[[ErrorCode], None]
    ) -> None:
        """Makes partitions part of the transaction, or verifies that they are, and tells `then` once."""

    def when_committed(self, transactional_id: str, callback: Callable[[ErrorCode], None]) -> None:
        """Calls back when all that is decided of an id by now is committed, or never will be."""

    def is_ending(self, transactional_id: str) -> bool:
        """Whether the id's transaction is about to end, so that what comes now is no part of it."""

    def abort_orphans(self, held: Sequence[Held], then: Callable[[Held], None]) -> None:
        """Is told of data of which the coordinator may not know: it has lost the record of it, or cannot be asked.

        Args:
            then: called for each once nothing of it is left open that no transaction is going to end; never where all
                stops.
        """


_Key = tuple[TopicPartition, ProducerId]


class TransactionWrites:
    """The writes of transactions on their way into partitions. It belongs to the event loop."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._queues: dict[_Key, list[Callable[[], None]]] = {}
        """What waits behind a write that the coordinator has been asked about."""
        self._joining: dict[_Key, list[Write]] = {}
        """What has gone, while it is not committed that its partition is part of the transaction."""
        self._outstanding = OutstandingVerifications()
        self._lost: set[_Key] = set()
        """Where there may be data that is part of no transaction, until that is settled."""

    def write(self, writer: Writer, writes: Sequence[Write]) -> None:
        """Carries writes out: each now, or when the coordinator has answered, or never."""
        asked: dict[_Key, Write] = {}
        for write in writes:
            key = (write.partition.topic_partition, writer.producer_id)
            queue = self._queues.get(key)
            if queue is not None:
                if not writer.may_add:
                    if self._coordinator.is_ending(writer.transactional_id):
                        write.refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
                        continue
                    self._outstanding.note(
                        key, producer_epoch=writer.producer_epoch, first_sequence=write.first_sequence
                    )
                queue.append(partial(self.write, writer, (write,)))
            elif key in self._lost:
                write.refuse(ErrorCode.NOT_COORDINATOR)
            elif write.partition.has_open_transaction(writer.producer_id, writer.producer_epoch):
                self._go_along(writer, key, write)
            else:
                if not writer.may_add:
                    self._outstanding.note(
                        key, producer_epoch=writer.producer_epoch, first_sequence=write.first_sequence
                    )
                self._queues[key] = []
                asked[key] = write
        if asked:
            partitions = tuple([partition for partition, _ in asked])
            self._coordinator.add_for_write(writer, partitions, partial(self._answered, writer, asked))

    def _go_along(self, writer: Writer, key: _Key, write: Write) -> None:
        """The transaction is open in the partition."""
        if not writer.may_add and self._coordinator.is_ending(writer.transactional_id):
            write.refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
            return
        write.go()
        joining = self._joining.get(key)
        if joining is None:
            write.is_joined(ErrorCode.NONE)
        else:
            joining.append(write)

    def hold_off(self, held: Sequence[Held]) -> None:
        """Partitions may have data of producers that is part of no transaction: they take no more until it is settled.

        What comes is refused, and may be tried again.
        """
        self._lost.update([(partition.topic_partition, producer_id) for partition, producer_id in held])
        self._coordinator.abort_orphans(held, self._take_again)

    def _take_again(self, held: Held) -> None:
        partition, producer_id = held
        self._lost.discard((partition.topic_partition, producer_id))

    def _answered(self, writer: Writer, asked: Mapping[_Key, Write], error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            error = _pass_fault_point()
        if error is ErrorCode.NONE:
            joining = list(asked.values())
            for key, write in asked.items():
                try:
                    if writer.may_add:
                        write.go()
                    else:
                        first_sequence = write.first_sequence
                        write.go(lowest_sequence=self._outstanding.let_in(key, first_sequence=first_sequence))
                except Exception:  # as `_safely`, which would be one call more for each write
                    _logger.exception(_FAILED)
            try:
                ADD_AFTER_DATA.reach()
            except Exception:
                _logger.exception(_FAILED)
            for key in asked:
                self._joining[key] = joining
            then = partial(self._is_joined, writer, asked, joining)
            self._coordinator.when_committed(writer.transactional_id, then)
        else:
            self._refuse(asked, error)
        for key in asked:
            for queued in self._queues.pop(key):
                _safely(queued)

    def _refuse(self, asked: Mapping[_Key, Write], error: ErrorCode) -> None:
        for key, write in asked.items():
            if error not in _COMES_AGAIN:
                self._outstanding.end(key)
            _safely(partial(write.refuse, error))

    def _is_joined(
        self, writer: Writer, asked: Mapping[_Key, Write], joining: Sequence[Write], error: ErrorCode
    ) -> None:
        for key in asked:
            # Else a later one has asked again, since what was there had not been stored.
            if self._joining.get(key) is joining:
                del self._joining[key]
        if error is not ErrorCode.NONE:
            self.hold_off([(write.partition, writer.producer_id) for write in asked.values()])
        for write in joining:
            try:
                write.is_joined(error)
            except Exception:
                _logger.exception(_FAILED)


def _pass_fault_point() -> ErrorCode:
    """What a test has ordered to happen before the data is appended."""
    try:
        ADD_BEFORE_DATA.reach()
    except OSError as error:
        _logger.error("a write of a transaction is not appended: %s", error)
        return ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.NONE


def _safely(work: Callable[[], None]) -> None:
    try:
        work()
    except Exception:  # the others of the same answer, and those behind them, must go on
        _logger.exception(_FAILED)
