"""Lets a transaction's writes into partitions that the coordinator knows to be part of it, in the order they came.

The first write into a partition asks the coordinator, which makes the partition part of the transaction or knows it to
be one already. While that is open, later writes of the same producer into the same partition queue behind it: none
overtakes another. Once there is data of the transaction in the partition nobody need be asked; but while it is not
committed that the partition is part of the transaction, whatever goes there waits for that.

Where that never will be committed the data is aborted, and until it is the partition takes nothing of this producer:
else a resend would be answered as if it were part of the transaction, which could commit without it.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from msgspec import Struct

from exactlog.broker.coordinator.transaction_fault_points import ADD_AFTER_DATA, ADD_BEFORE_DATA
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import ProducerEpoch, ProducerId, TopicPartition
from exactlog.storage.partition_log import PartitionLog

_logger = logging.getLogger(__name__)

_FAILED: Final = "a write of a transaction failed"


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

    def go(self) -> None:
        """Is called once to append it now; the coordinator knows that it is part of the transaction."""

    def is_joined(self, error: ErrorCode) -> None:
        """Is called once after `go`, when what makes it part of the transaction is committed, or never will be."""

    def refuse(self, error: ErrorCode) -> None:
        """Is called instead of `go`, with the coordinator's error as the newest versions tell it."""


class Coordinator(Protocol):
    """What is asked of the coordinator."""

    def add_for_write(
        self, writer: Writer, partitions: tuple[TopicPartition, ...], then: Callable[[ErrorCode], None]
    ) -> None:
        """Makes partitions part of the transaction, or verifies that they are, and tells `then` once."""

    def when_committed(self, transactional_id: str, callback: Callable[[ErrorCode], None]) -> None:
        """Calls back when all that is decided of an id by now is committed, or never will be."""

    def abort_orphans(self, writer: Writer, partitions: tuple[TopicPartition, ...], then: Callable[[], None]) -> None:
        """Is told of data whose transaction the coordinator does not know any more: its record was not committed.

        Args:
            then: called once nothing of it is left open that no transaction is going to end; never where all stops.
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
        self._lost: set[_Key] = set()
        """Where there may be data that is part of no transaction, and is being aborted."""

    def write(self, writer: Writer, writes: Sequence[Write]) -> None:
        """Carries writes out: each now, or when the coordinator has answered, or never."""
        asked: dict[_Key, Write] = {}
        for write in writes:
            key = (write.partition.topic_partition, writer.producer_id)
            queue = self._queues.get(key)
            if queue is not None:
                queue.append(partial(self.write, writer, (write,)))
            elif key in self._lost:
                write.refuse(ErrorCode.NOT_COORDINATOR)
            elif write.partition.has_open_transaction(writer.producer_id, writer.producer_epoch):
                write.go()
                joining = self._joining.get(key)
                if joining is None:
                    write.is_joined(ErrorCode.NONE)
                else:
                    joining.append(write)
            else:
                self._queues[key] = []
                asked[key] = write
        if asked:
            self._coordinator.add_for_write(writer, _partitions(asked), partial(self._answered, writer, asked))

    def _answered(self, writer: Writer, asked: Mapping[_Key, Write], error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            error = _pass_fault_point()
        if error is ErrorCode.NONE:
            joining = list(asked.values())
            for write in joining:
                try:
                    write.go()
                except Exception:  # as `_safely`, which would be one call more for each write
                    _logger.exception(_FAILED)
            _safely(ADD_AFTER_DATA.reach)
            for key in asked:
                self._joining[key] = joining
            then = partial(self._is_joined, writer, asked, joining)
            self._coordinator.when_committed(writer.transactional_id, then)
        else:
            for write in asked.values():
                _safely(partial(write.refuse, error))
        for key in asked:
            for queued in self._queues.pop(key):
                _safely(queued)

    def _is_joined(
        self, writer: Writer, asked: Mapping[_Key, Write], joining: Sequence[Write], error: ErrorCode
    ) -> None:
        for key in asked:
            # Else a later one has asked again, since what was there had not been stored.
            if self._joining.get(key) is joining:
                del self._joining[key]
        if error is not ErrorCode.NONE:
            self._lost.update(asked)
            self._coordinator.abort_orphans(writer, _partitions(asked), partial(self._lost.difference_update, asked))
        for write in joining:
            try:
                write.is_joined(error)
            except Exception:
                _logger.exception(_FAILED)


def _partitions(asked: Iterable[_Key]) -> tuple[TopicPartition, ...]:
    return tuple([partition for partition, _ in asked])


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
