"""A fetch that waits for enough bytes, or for its time to be over."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from exactlog.broker.request_context import RequestContext
from exactlog.core.model.errors import DamageError
from exactlog.storage.partition_log import PartitionLog


class Watched(Struct, frozen=True):
    """A partition that a fetch waits for, and the offset behind what it has found there."""

    partition: PartitionLog
    end_offset: int


class DelayedFetch:
    """Watches partitions and goes off once: when they have grown by enough, one fails, or the time is over.

    What it reads then is read at that moment; it only counts how much was committed since it began to wait. A reader
    of what is stable counts what the last stable offset has passed since: records behind it are nothing to wake up for,
    a marker that moves it over them is. When its client goes away it is gone too, however long it was to wait.
    """

    def __init__(
        self,
        watched: Sequence[Watched],
        *,
        bytes_wanted: int,
        wait_ms: int,
        is_committed_only: bool,
        then: Callable[[], None],
        context: RequestContext,
    ) -> None:
        self._watched = watched
        self._bytes_wanted = bytes_wanted
        self._bytes_before = sum(each.partition.committed.size_bytes for each in watched)
        self._count = self._count_stable if is_committed_only else self._count_committed
        self._then = then
        self._context = context
        context.broker.timers.set(self, wait_ms, self._go_off)
        for each in watched:
            each.partition.committed.watch(self._look)
        context.when_abandoned(self._stop_waiting)

    def _look(self) -> None:
        if any(each.partition.failure for each in self._watched) or self._count() >= self._bytes_wanted:
            self._go_off()

    def _count_committed(self) -> int:
        return sum(each.partition.committed.size_bytes for each in self._watched) - self._bytes_before

    def _count_stable(self) -> int:
        """How many bytes have become stable; as many as are wanted where they cannot be counted, so that it is told."""
        size = 0
        for partition, end_offset in ((each.partition, each.end_offset) for each in self._watched):
            stable_offset = partition.committed.last_stable_offset
            if stable_offset <= end_offset:
                continue
            if self._bytes_wanted <= 1:
                return 1
            try:
                size += partition.committed.bytes_between(end_offset, stable_offset)
            except (DamageError, OSError):
                return self._bytes_wanted
        return size

    def _go_off(self) -> None:
        self._stop_waiting()
        self._context.finish(self._then)

    def _stop_waiting(self) -> None:
        self._context.broker.timers.cancel(self)
        for each in self._watched:
            each.partition.committed.unwatch(self._look)
        self._context.forget_abandoned(self._stop_waiting)
