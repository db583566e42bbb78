"""One partition's log, driven by whoever appends: no event loop, a round for each append on the caller's own thread."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from msgspec import Struct

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.deltalog.append_terms import (
    AppendTerms,
    Committed,
    Conflicted,
    PayloadDiffers,
    Superseded,
    Unavailable,
)
from exactlog.core.deltalog.table_state import TableSnapshot
from exactlog.core.log.compaction import last_of_producers
from exactlog.core.model.clock import Clock
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import ExactlogError
from exactlog.core.model.ids import DeltaVersion, TimestampMs
from exactlog.core.record.batch_format import BatchHeader
from exactlog.log.errors import InvalidArgumentError, PartitionClosedError, PartitionStoppedError
from exactlog.storage.compaction import Compaction, CompactionSource
from exactlog.storage.open_files import OpenFiles
from exactlog.storage.partition_log import AppendRefused, PartitionLog
from exactlog.storage.pending_versions import TableChange
from exactlog.storage.round import DurabilityEngine, StorageRefused, SyncFailed

Outcome = Committed | Conflicted | Superseded | PayloadDiffers | Unavailable
"""What may come of an append."""

_REOPEN: Final = "close it and open it again: recovery finds what is good"


class CompactedTable(Struct, frozen=True):
    """What compaction did: in how many passes, how many records went, and the table then."""

    passes: int
    records_removed: int
    table: TableSnapshot


class Ownership:
    """Whether this process may still write to a data directory.

    Attributes:
        failure: the sync that failed, after which nobody may go on; None while all is well.
    """

    def __init__(self, root: str) -> None:
        self.failure: str | None = None
        self._root = root
        self._pid = os.getpid()

    def fail(self, reason: str) -> None:
        """A sync failed: what is on disk is not known any more. The first reason stays."""
        if self.failure is None:
            self.failure = reason

    @property
    def is_ours(self) -> bool:
        """Whether this is the process that has the lock, not a fork of it."""
        return os.getpid() == self._pid

    def check(self) -> None:
        """Sees to it that writing may go on.

        Raises:
            PartitionStoppedError: a sync failed.
            PartitionClosedError: this process is a fork of the one that has the lock.
        """
        if not self.is_ours:
            raise PartitionClosedError(
                f"{self._root} is owned by process {self._pid}, of which this one is a fork",
                hint="open the partition in one process only; others may read it with read_only=True",
            )
        if self.failure is not None:
            raise PartitionStoppedError(
                f"{self._root}: a sync failed, so nothing can be promised any more: {self.failure}",
                hint="check the disk, then close all partitions of the directory and open them again: recovery finds "
                "what is good",
            )


class TableWriter:
    """The one writer of a partition in this process. Any thread may call it; they take turns.

    Attributes:
        config: the topic's configuration.
    """

    def __init__(
        self,
        log: PartitionLog,
        config: TopicConfig,
        *,
        ownership: Ownership,
        engine: DurabilityEngine,
        open_files: OpenFiles,
        clock: Clock,
    ) -> None:
        self.config = config
        self._log = log
        self._ownership = ownership
        self._engine = engine
        self._open_files = open_files
        self._clock = clock
        self._is_closed = False
        self._turn = threading.Lock()

    def now_ms(self) -> TimestampMs:
        """The time, in milliseconds since 1970."""
        return self._clock.now_ms()

    def check(self) -> None:
        """Sees to it that it is in order.

        Raises:
            PartitionStoppedError, PartitionClosedError: it is not.
        """
        with self._taking_turns():
            pass

    def snapshot(self) -> TableSnapshot:
        """The table as of the newest version."""
        with self._taking_turns():
            return self._log.table.freeze()

    def append(self, header: BatchHeader, batch: bytearray, terms: AppendTerms) -> Outcome:
        """Appends a valid batch if the terms hold; what came of it is on disk when this returns.

        Raises:
            InvalidArgumentError: terms that cannot hold.
            PartitionStoppedError: this failed in a way that leaves the disk unknown, or it had stopped before.
        """
        with self._taking_turns():
            outcome = self._log.append_on_terms(header, memoryview(batch), terms, now_ms=self._clock.now_ms())
            refusal = self._carry_out()
            match outcome:
                case AppendRefused(message=message):
                    raise InvalidArgumentError(message)
                case Committed() if refusal is not None:
                    return Unavailable(refusal)
                case _:
                    return outcome

    def move_log_start(self, offset: int) -> TableSnapshot | Unavailable:
        """Takes all records below an offset away; the table then.

        Raises:
            InvalidArgumentError: the offset lies above the end.
            PartitionStoppedError: as `append`.
        """
        with self._taking_turns():
            self._log.sweep_removed(now_ms=self._clock.now_ms())
            code = self._log.move_log_start(offset)
            refusal = self._carry_out()
            if code is ErrorCode.OFFSET_OUT_OF_RANGE:
                raise InvalidArgumentError(f"offset {offset} is not from 0 to {self._log.high_watermark}, the end")
            return self._log.table.freeze() if refusal is None else Unavailable(refusal)

    def compact(
        self, compaction: Compaction, *, check: Callable[[], None] = lambda: None
    ) -> CompactedTable | Unavailable:
        """Compacts it by key, pass by pass: a version for each that changes something. Blocks.

        Args:
            compaction: how.
            check: called before each version; raises an ExactlogError where none may be published any more.

        Raises:
            DamageError: stored bytes are not what was written; what earlier passes did stays.
            PartitionStoppedError: as `append`.
        """
        passes, removed, start = 0, 0, int(self._log.log_start_offset)
        while True:
            with self._taking_turns():
                try:
                    part = compaction.run_pass(self._compaction_source(), start)
                except OSError as error:
                    return Unavailable(f"{self._log.topic_partition} cannot be compacted: {error}")
                if part is None:
                    break
                if part.change is not None:
                    refusal = self._publish_compacted(part.change, compaction, check)
                    if refusal is not None:
                        return Unavailable(refusal)
                passes, removed, start = passes + 1, removed + part.records_removed, part.end_offset
        with self._taking_turns():
            self._log.committed.make_up_for_checkpoint(self._log.table.version, now_ms=self._clock.now_ms())
            self._ownership.check()
            return CompactedTable(passes, removed, self._log.table.freeze())

    def _publish_compacted(self, change: TableChange, compaction: Compaction, check: Callable[[], None]) -> str | None:
        """Publishes what a pass has made, or removes it again and says why."""
        try:
            check()
        except ExactlogError:
            compaction.discard()
            raise
        self._log.change(change)
        refusal = self._carry_out()
        if refusal is not None:
            compaction.discard()
        return refusal

    def _compaction_source(self) -> CompactionSource:
        committed = self._log.committed
        return CompactionSource(
            segments=committed.segments,
            last_stable_offset=committed.last_stable_offset,
            find_aborted=committed.aborted_transactions,
            last_batches=last_of_producers(committed.producers.snapshot()),
        )

    def checkpoint_if_due(self) -> bool:
        """Writes a checkpoint of the newest version if one is due that has not been written yet; whether it did."""
        with self._taking_turns():
            version = self._log.table.version
            due = DeltaVersion(version - version % self._log.settings.checkpoint_interval)
            is_written = self._log.committed.make_up_for_checkpoint(due, now_ms=self._clock.now_ms())
            self._ownership.check()
            return is_written

    def close(self) -> None:
        """Ends it; whoever is at it finishes first."""
        with self._turn:
            self._is_closed = True
            self._open_files.forget_directory(self._log.directory)

    @contextmanager
    def _taking_turns(self) -> Iterator[None]:
        """One caller at a time, as long as the log is in order; one that breaks off leaves it stopped."""
        self._ownership.check()  # in a fork, whoever has the turn is gone and never ends it
        with self._turn:
            self._ownership.check()
            if self._is_closed:
                raise PartitionClosedError(f"{self._log.topic_partition} is closed")
            self._check_log()
            try:
                yield
            except ExactlogError:
                raise
            except BaseException as error:
                self._log.fail(f"{self._log.topic_partition}: an operation was broken off: {error!r}")
                raise

    def _check_log(self) -> None:
        if self._log.failure is not None:
            raise PartitionStoppedError(self._log.failure, hint=_REOPEN)

    def _carry_out(self) -> str | None:
        """Publishes all that is decided; why the disk refused it, or None.

        Raises:
            PartitionStoppedError: what is on disk is not known any more.
        """
        told: list[ErrorCode] = []
        refusal = ""
        self._log.when_published(told.append)
        while (write := self._log.take_write(now_ms=self._clock.now_ms())) is not None:
            (outcome,) = self._engine.commit([write])
            match outcome:
                case SyncFailed(reason=reason):
                    self._ownership.fail(reason)
                    self._ownership.check()
                case StorageRefused(reason=reason):
                    refusal = reason
                case _:
                    pass
            self._log.complete_write(outcome, now_ms=self._clock.now_ms())
        self._ownership.check()  # of what was carried out along with it, a checkpoint perhaps
        self._check_log()
        (error,) = told
        return None if error is ErrorCode.NONE else refusal
