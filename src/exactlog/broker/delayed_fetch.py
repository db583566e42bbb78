"""A fetch that waits for enough bytes, or for its time to be over."""

from collections.abc import Callable, Sequence

from exactlog.broker.request_context import RequestContext
from exactlog.storage.partition_log import PartitionLog


class DelayedFetch:
    """Watches partitions and goes off once: when they have grown by enough, one fails, or the time is over.

    What it reads then is read at that moment; it only counts how much was committed since it began to wait. When its
    client goes away it is gone too, however long it was to wait.
    """

    def __init__(
        self,
        partitions: Sequence[PartitionLog],
        *,
        bytes_wanted: int,
        wait_ms: int,
        then: Callable[[], None],
        context: RequestContext,
    ) -> None:
        self._partitions = partitions
        self._bytes_at_end = bytes_wanted + sum(partition.committed.size_bytes for partition in partitions)
        self._then = then
        self._context = context
        context.broker.timers.set(self, wait_ms, self._go_off)
        for partition in partitions:
            partition.committed.watch(self._look)
        context.when_abandoned(self._stop_waiting)

    def _look(self) -> None:
        grown = sum(partition.committed.size_bytes for partition in self._partitions)
        if grown >= self._bytes_at_end or any(partition.failure for partition in self._partitions):
            self._go_off()

    def _go_off(self) -> None:
        self._stop_waiting()
        self._context.finish(self._then)

    def _stop_waiting(self) -> None:
        self._context.broker.timers.cancel(self)
        for partition in self._partitions:
            partition.committed.unwatch(self._look)
        self._context.forget_abandoned(self._stop_waiting)
