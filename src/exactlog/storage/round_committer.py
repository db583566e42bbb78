"""Runs rounds: gathers what partitions have waiting, hands it to the durability engine, takes the outcome back.

In flush mode `commit` one round is in flight at a time on a thread; what arrives meanwhile forms the next. In
`interval` and `none` a round only hands bytes to the operating system, which is quicker than a thread switch, so it
runs in place at the end of the loop's turn, and `interval` syncs on its own timer. There, and with a commit journal,
delta versions follow within `PUBLICATION_DELAY_MS` on the thread.
"""

import asyncio
import logging
import sys
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future
from operator import attrgetter
from typing import TypeVar

from exactlog.core.model.clock import Clock
from exactlog.core.model.metrics import Registry
from exactlog.storage.append_outcome import DELETED
from exactlog.storage.partition_log import PartitionLog
from exactlog.storage.round import (
    DurabilityEngine,
    NameRefused,
    PartitionWrite,
    StorageRefused,
    Stored,
    SyncFailed,
    WriteOutcome,
)
from exactlog.storage.round_thread import RoundThread
from exactlog.storage.settings import FlushMode

_logger = logging.getLogger(__name__)

T = TypeVar("T")

PUBLICATION_DELAY_MS = 80  # the promise is 100 ms; versions of many partitions cost more than their rounds do
_FLUSH_POLL_S = 0.001
_IS_LEADING = attrgetter("is_leading")
PATIENCE_MS = 10
"""So long what nobody waits for may wait for a round that is due anyway."""
_NOT_GIVEN = "%s could not be asked for its part of a round"
_NOT_TAKEN_IN = "%s could not take in how its round ended"
REFUSED_RETRY_DELAY_MS = 1_000  # a disk that is full stays so for a while
_ROUND_SIZE_BOUNDS = [4.0**exponent for exponent in range(5, 14)]  # 1 KiB to 64 MiB
_SYNC_SECONDS_BOUNDS = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0]


class RoundCommitter:
    """The one place where what is decided becomes committed.

    Args:
        publishes_in_round: whether rounds give what they commit its delta version; else that follows.
        on_sync_failed: called once with the reason when a sync failed; nothing is answered and no round runs after it.
    """

    def __init__(
        self,
        engine: DurabilityEngine,
        *,
        flush_mode: FlushMode,
        publishes_in_round: bool,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        metrics: Registry,
        on_sync_failed: Callable[[str], None],
    ) -> None:
        self._engine = engine
        self._flush_mode = flush_mode
        self._publishes_in_round = publishes_in_round
        self._loop = loop
        self._clock = clock
        self._on_sync_failed = on_sync_failed
        self._thread = RoundThread()
        self._dirty: dict[PartitionLog, None] = {}
        self._gathering: list[Callable[[], None]] = []
        self._patient: list[Callable[[], None]] = []
        self._is_gathering = False
        self._patience_ends: asyncio.TimerHandle | None = None
        self._unpublished: dict[PartitionLog, None] = {}
        self._behind: dict[PartitionLog, None] = {}
        """Those whose newest delta version may lie behind what is committed."""
        self._unsynced: dict[PartitionLog, None] = {}
        self._round_is_due = False
        self._is_held = False
        self._last_reader: Hashable = None
        self._round_is_running = False
        self._publication_is_due = False
        self._refused: set[PartitionLog] = set()  # by the disk, at publication; tried again later
        self._sync_is_running = False
        self._is_stopped = False
        self._uncommitted_bytes = 0
        self._uncommitted_max = sys.maxsize
        self._pause: Callable[[], None] = _nothing
        self._resume: Callable[[], None] = _nothing
        self._is_paused = False
        self._rounds = metrics.counter("exactlog_rounds_total", "Rounds carried out, whatever came of them.")
        self._refused_rounds = metrics.counter(
            "exactlog_rounds_refused_total", "Rounds that the disk refused to some partition: it is full, above all."
        )
        self._round_bytes = metrics.counter("exactlog_round_bytes_total", "Bytes of records written by rounds.")
        self._round_sizes = metrics.histogram(
            "exactlog_round_size_bytes", "Bytes of records that a round wrote.", bounds=_ROUND_SIZE_BOUNDS
        )
        self._sync_times = metrics.histogram(
            "exactlog_fsync_seconds",
            "How long a sync of record bytes took, or one of the commit journal.",
            bounds=_SYNC_SECONDS_BOUNDS,
        )
        self._versions = metrics.counter("exactlog_delta_commits_total", "Delta commits published.")

    @property
    def is_atomic(self) -> bool:
        """Whether a round is in place after a crash for all partitions that it touches, or for none."""
        return self._engine.is_atomic_across_partitions

    @property
    def is_ordered(self) -> bool:
        """Whether a round is written one partition after the other, what is leading first."""
        return self._flush_mode is not FlushMode.COMMIT

    def bound_uncommitted(self, bytes_max: int, *, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        """Calls `pause` when more bytes than that wait for their round, and `resume` when half of it does again."""
        self._uncommitted_max, self._pause, self._resume = bytes_max, pause, resume

    def mark_dirty(self, partition: PartitionLog, size_bytes: int) -> None:
        """Tells that a partition has so many bytes more for the next round."""
        self._dirty[partition] = None
        self._uncommitted_bytes += size_bytes
        if self._uncommitted_bytes > self._uncommitted_max and not self._is_paused:
            self._is_paused = True
            self._pause()
        if not self._round_is_due:
            self._need_round()

    def before_next_round(self, gather: Callable[[], None]) -> None:
        """Calls back once, when the next round is about to take what waits: what is appended then belongs to it.

        So who has many small things to append collects them, for as long as the round before it runs.
        """
        self._gathering.append(gather)
        self._need_round()

    def with_next_round(self, gather: Callable[[], None]) -> None:
        """As `before_next_round`, for what nobody waits for: it brings about no round, unless none comes for long."""
        self._patient.append(gather)
        if self._patience_ends is None:
            self._patience_ends = self._loop.call_later(PATIENCE_MS / 1000, self._end_patience)

    def hurry(self) -> None:
        """Somebody waits for what was to go along with the next round."""
        if self._patient and not self._is_gathering:  # else they are called in a moment
            self._gathering += self._patient
            self._patient = []
            self._need_round()

    def _end_patience(self) -> None:
        self._patience_ends = None
        self.hurry()

    def _need_round(self) -> None:
        if not self._round_is_due and not self._round_is_running:
            self._round_is_due = True
            if not self._is_held:
                self._loop.call_soon(self._start_round)

    def hold(self) -> None:
        """What is appended from here on waits for `release`, in the modes whose rounds run in place.

        So a read from a socket makes one round at most. Rounds that sync are started by the loop: they are the better,
        the more connections share one.
        """
        self._is_held = self._flush_mode is not FlushMode.COMMIT

    def release(self, reader: Hashable) -> None:
        """Carries out what has been appended since `hold`.

        At once for whoever is read alone; where another one was read before, those of this turn of the loop share a
        round, which costs more than what a small one brings.

        Args:
            reader: who was read.
        """
        self._is_held = False
        is_alone, self._last_reader = reader == self._last_reader, reader
        if not self._round_is_due or self._flush_mode is FlushMode.COMMIT:
            return
        if is_alone:
            self._start_round()
        else:
            self._loop.call_soon(self._start_round)

    async def flush(self) -> None:
        """Waits until all that was appended is committed and published, and synced unless the mode is `none`."""
        self.hurry()
        while not self._is_stopped and (self._is_busy or self._unpublished or self._publication_is_due):
            self.hurry()
            if self._unpublished and not self._is_busy and not self._publication_is_due:
                self._publish()
            await asyncio.sleep(_FLUSH_POLL_S)
        while not self._is_stopped and (self._unsynced or self._sync_is_running):
            self.sync()
            await asyncio.sleep(_FLUSH_POLL_S)

    @property
    def _has_work(self) -> bool:
        """Whether something waits for a round."""
        return bool(self._dirty or self._gathering)

    @property
    def _is_busy(self) -> bool:
        """Whether a round is due or runs."""
        return self._round_is_due or self._round_is_running

    async def between_rounds(self, work: Callable[[], T]) -> T:
        """Does something on the thread of the rounds, while none is being carried out; raises what that does.

        Raises:
            RuntimeError: the thread has ended.
        """
        done: Future[T] = Future()

        def carry_out() -> None:
            try:
                done.set_result(work())
            except BaseException as error:  # noqa: BLE001  it is his who waits
                done.set_exception(error)

        self._thread.submit(carry_out)
        return await asyncio.wrap_future(done, loop=self._loop)

    async def published(self) -> list[PartitionLog] | None:
        """Waits until all that is committed by now has its delta version.

        What was committed in a topic that is deleted needs none.

        Returns:
            the partitions that stand still: they have stopped before that, or the disk refuses their versions; None
            where the rounds have stopped meanwhile.
        """
        behind, self._behind = self._behind, {}
        ends = {partition: partition.committed.end_offset for partition in behind}
        still: dict[PartitionLog, None] = {}
        try:
            while ends and not self._is_stopped:
                for partition, end_offset in list(ends.items()):
                    if partition in self._refused or partition.failure not in (None, DELETED):
                        still[partition] = None
                        del ends[partition]
                    elif partition.table.next_offset >= end_offset or partition.failure == DELETED:
                        del ends[partition]
                if ends:
                    await asyncio.sleep(PUBLICATION_DELAY_MS / 1000)
            return None if self._is_stopped else list(still)
        finally:
            self._behind.update(dict.fromkeys((*ends, *still)))

    def sync(self) -> None:
        """Syncs what has been written since the last time (`interval`), unless the last time has not ended yet."""
        if self._is_stopped or self._sync_is_running:
            return
        due, self._unsynced = self._unsynced, {}
        taken = [(partition, partition.take_sync()) for partition in due]
        round_ = [(partition, write) for partition, write in taken if write is not None]
        if round_:
            self._sync_is_running = True
            partitions = [partition for partition, _ in round_]
            self._run([write for _, write in round_], lambda outcomes: self._finish_sync(partitions, outcomes))

    def stop(self) -> None:
        """Starts no further round; one that runs ends without anybody being told."""
        self._is_stopped = True
        self._thread.stop()

    def _start_round(self) -> None:
        if not self._round_is_due and not self._has_work:  # carried out meanwhile
            return
        if self._is_stopped or self._round_is_running:  # one that runs is followed by the next when it ends
            self._round_is_due = False
            return
        self._gather()
        dirty, self._dirty = self._dirty, {}
        now_ms = self._clock.now_ms()
        partitions: list[PartitionLog] = []
        writes: list[PartitionWrite] = []
        others: list[PartitionLog] = []
        for partition in sorted(dirty, key=_IS_LEADING, reverse=True):
            try:
                write = partition.take_write(now_ms=now_ms)
            except Exception as error:  # whoever waits for it is told, and the others go on
                _logger.exception(_NOT_GIVEN, partition.topic_partition)
                _stop_alone(partition, error)
                continue
            if write is None:
                others.append(partition)
            else:
                partitions.append(partition)
                writes.append(write)
        if others and not self._publishes_in_round:
            self._note_unpublished(others)
        if not writes:
            if self._has_work:  # who gathered for this round wants another one
                self._need_round()
            return
        if self._flush_mode is not FlushMode.COMMIT:
            self._finish_round(partitions, writes, self._carry_out(writes))
            return
        self._round_is_running = True
        self._run(writes, lambda outcomes: self._finish_round(partitions, writes, outcomes))

    def _gather(self) -> None:
        """Lets those append who have waited for a round to do so, and those who begin to wait because of that."""
        self._round_is_due = self._is_gathering = True  # what they append is in this round
        urgent, self._gathering = self._gathering, []
        _call_all(urgent)
        for _ in range(2):
            patient, self._patient = self._patient, []
            _call_all(patient)
        self._round_is_due = self._is_gathering = False

    def _run(self, writes: Sequence[PartitionWrite], then: Callable[[Sequence[WriteOutcome]], None]) -> None:
        """Carries a round out on the thread and comes back to the loop with its outcome."""

        def work() -> None:
            outcomes = self._carry_out(writes)
            try:
                self._loop.call_soon_threadsafe(then, outcomes)
            except RuntimeError:  # the loop was closed meanwhile (a kill): nobody is left to tell
                return

        self._thread.submit(work)

    def _carry_out(self, writes: Sequence[PartitionWrite]) -> Sequence[WriteOutcome]:
        try:
            return self._engine.commit(writes)
        except Exception as error:  # a defect of ours: what is on disk is as unknown as after a failed sync
            _logger.exception("a round could not be carried out")
            return [SyncFailed(f"a round could not be carried out: {error!r}")] * len(writes)

    def _finish_round(
        self, partitions: Sequence[PartitionLog], writes: Sequence[PartitionWrite], outcomes: Sequence[WriteOutcome]
    ) -> None:
        self._round_is_running = False
        if self._is_stopped or self._met_failed_sync(outcomes):
            return
        self._count_round(writes, outcomes)
        now_ms = self._clock.now_ms()
        for partition, write, outcome in zip(partitions, writes, outcomes, strict=True):
            self._uncommitted_bytes -= write.size_bytes
            try:
                partition.complete_write(outcome, now_ms=now_ms)
            except Exception as error:
                _logger.exception(_NOT_TAKEN_IN, partition.topic_partition)
                _stop_alone(partition, error)
            if isinstance(outcome, NameRefused):
                self._publish_later(partition)
            if self._flush_mode is FlushMode.INTERVAL:
                self._unsynced[partition] = None
            if not self._publishes_in_round:
                self._behind[partition] = None
        if not self._publishes_in_round:
            self._note_unpublished(partitions)
        if self._is_paused and self._uncommitted_bytes <= self._uncommitted_max // 2:
            self._is_paused = False
            self._resume()
        if self._has_work:
            self._start_round()

    def _count_round(self, writes: Sequence[PartitionWrite], outcomes: Sequence[WriteOutcome]) -> None:
        size_bytes = versions = refused = 0
        for write, outcome in zip(writes, outcomes, strict=True):
            size_bytes += write.size_bytes
            refused += isinstance(outcome, StorageRefused)
            versions += _versions_stored(write, outcome)
        self._rounds.inc()
        self._round_bytes.inc(size_bytes)
        self._round_sizes.observe(size_bytes)
        if versions:
            self._versions.inc(versions)
        if refused:
            self._refused_rounds.inc()
        self._observe_syncs()

    def _note_unpublished(self, partitions: Iterable[PartitionLog]) -> None:
        """Has what is committed published within a moment; what the disk refused is tried again later."""
        for partition in partitions:
            is_noted = partition in self._unpublished or partition in self._refused
            if not is_noted and partition.has_unpublished:
                self._unpublished[partition] = None
        if self._unpublished and not self._publication_is_due:
            self._schedule_publication()

    def _finish_sync(self, partitions: Sequence[PartitionLog], outcomes: Sequence[WriteOutcome]) -> None:
        self._sync_is_running = False
        if self._is_stopped or self._met_failed_sync(outcomes):
            return
        self._observe_syncs()
        for partition in partitions:
            partition.complete_sync()

    def _observe_syncs(self) -> None:
        for seconds in self._engine.take_sync_seconds():
            self._sync_times.observe(seconds)

    def _publish(self) -> None:
        """Publishes a version for each partition that committed something since the last time."""
        self._publication_is_due = True
        due, self._unpublished = self._unpublished, {}
        now_ms = self._clock.now_ms()
        round_: list[tuple[PartitionLog, PartitionWrite]] = []
        for partition in due:
            try:
                write = partition.take_publication(now_ms=now_ms)
            except Exception as error:  # else nobody would be published any more
                _logger.exception(_NOT_GIVEN, partition.topic_partition)
                _stop_alone(partition, error)
                continue
            if write is not None:
                round_.append((partition, write))
        if self._is_stopped or not round_:
            self._publication_is_due = False
            return
        self._run([write for _, write in round_], lambda outcomes: self._finish_publication(round_, outcomes))

    def _finish_publication(
        self, round_: Sequence[tuple[PartitionLog, PartitionWrite]], outcomes: Sequence[WriteOutcome]
    ) -> None:
        self._publication_is_due = False
        if self._is_stopped or self._met_failed_sync(outcomes):
            return
        self._observe_syncs()
        now_ms = self._clock.now_ms()
        for (partition, write), outcome in zip(round_, outcomes, strict=True):
            try:
                partition.complete_publication(outcome, now_ms=now_ms)
            except Exception as error:
                _logger.exception(_NOT_TAKEN_IN, partition.topic_partition)
                _stop_alone(partition, error)
            if isinstance(outcome, StorageRefused | NameRefused):
                self._publish_later(partition)
            self._versions.inc(_versions_stored(write, outcome))
        self._note_unpublished([partition for partition, _ in round_])

    def _publish_later(self, partition: PartitionLog) -> None:
        """The disk has refused a publication: it is tried again when there may be room."""
        self._refused.add(partition)
        self._unpublished.pop(partition, None)
        self._loop.call_later(REFUSED_RETRY_DELAY_MS / 1000, self._try_again, partition)

    def _try_again(self, partition: PartitionLog) -> None:
        """A publication was refused a while ago; what is committed is read all the same, and survives a crash."""
        self._refused.discard(partition)
        if not self._is_stopped:
            self._note_unpublished([partition])

    def _schedule_publication(self) -> None:
        self._publication_is_due = True
        self._loop.call_later(PUBLICATION_DELAY_MS / 1000, self._publish)

    def _met_failed_sync(self, outcomes: Sequence[WriteOutcome]) -> bool:
        for outcome in outcomes:
            if isinstance(outcome, SyncFailed):
                self._is_stopped = True
                self._on_sync_failed(outcome.reason)
                return True
        return False


def _versions_stored(write: PartitionWrite, outcome: WriteOutcome) -> int:
    match outcome:
        case Stored():
            stored = len(write.groups)
        case StorageRefused(groups_stored=stored) | NameRefused(groups_stored=stored):
            pass
        case _:
            stored = 0
    count = 0
    for group in write.groups[:stored]:
        count += group.commit is not None
    return count


def _call_all(gathering: Iterable[Callable[[], None]]) -> None:
    for gather in gathering:
        try:
            gather()
        except Exception:  # the round is one of others as well
            _logger.exception("what was to go into a round is not in it")


def _stop_alone(partition: PartitionLog, error: Exception) -> None:
    """A partition that breaks an invariant of its own stops, and stops alone."""
    partition.fail(f"{partition.topic_partition}: its part of a round could not be handled: {error!r}")


def _nothing() -> None:
    """What is called when nobody asked to be."""
