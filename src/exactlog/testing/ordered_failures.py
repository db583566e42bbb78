"""What a test can order of a file system: that operations fail, that the machine stops, that syncs wait."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from threading import Condition, Lock
from types import TracebackType
from typing import Self

from exactlog.testing.operation_log import READS, STEPS, SYNCS, Operation, OperationLog

_FAILING = (READS | STEPS) - {"exists"}  # which answers False whatever is wrong, as `os.path.exists` does


class Crashed(BaseException):
    """The machine has stopped: this operation was not done, and none after it will be.

    It is no `Exception`: nothing behind the operation tidies up, as nothing does in a process that is gone.
    """


class Failure:
    """An order to fail. As a context manager it is lifted at the end of the block.

    Attributes:
        count: how many operations it has made fail.
    """

    def __init__(self, names: frozenset[str], path_pattern: str, error: int, *, times: int | None, after: int) -> None:
        self.count = 0
        self._names = names
        self._path_pattern = path_pattern
        self._error = error
        self._times = times
        self._after = after

    def lift(self) -> None:
        """From now on these operations succeed again."""
        self._times = 0

    def meet(self, operation: Operation) -> None:
        """Raises the ordered `OSError` if this operation is to fail."""
        if operation.name not in self._names or not fnmatchcase(operation.path, self._path_pattern):
            return
        if self._after > 0:
            self._after -= 1
        elif self._times is None or self.count < self._times:
            self.count += 1
            raise OSError(self._error, os.strerror(self._error), operation.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.lift()


class SyncGate:
    """Holds syncs back, on whatever threads they are, until it is opened again."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._is_closed = False
        self._waiting = 0

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Nothing passes before the block ends."""
        with self._changed:
            self._is_closed = True
        try:
            yield
        finally:
            with self._changed:
                self._is_closed = False
                self._changed.notify_all()

    def pass_through(self) -> None:
        """Waits until it is open."""
        with self._changed:
            self._waiting += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._is_closed)
            self._waiting -= 1

    def wait_for_arrival(self, timeout_s: float) -> bool:
        """Whether somebody waits before it, or does in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._waiting > 0, timeout_s)


def _nothing() -> None:
    """Most operations that fail just have not happened."""


class FailuresOnOrder(OperationLog):
    """What every operation of a failing file system goes through, and what a test orders of it."""

    def __init__(self) -> None:
        super().__init__()
        self._failures: list[Failure] = []
        self._gate = SyncGate()
        self._steps_left: int | None = None
        self._is_crashed = False
        self._lock = Lock()

    def fail(
        self,
        *operation_names: str,
        path_pattern: str = "*",
        error: int = errno.EIO,
        times: int | None = 1,
        after: int = 0,
    ) -> Failure:
        """Orders operations to fail; they do nothing but raise `OSError`.

        A sync that fails drops what it was to write, as Linux does: the pages count as written, so a later sync
        succeeds although they are not on the disk (fsync(2), "EIO"; the same of a directory's names).

        Args:
            operation_names: as in `Operation.name`.
            path_pattern: of the operation's path, as the shell's; `*` stands for `/` too.
            error: the `errno` they fail with.
            times: how many of them; None: all, until it is lifted.
            after: how many of them succeed first.

        Raises:
            ValueError: no operation of that name can fail.
        """
        if not operation_names or not _FAILING.issuperset(operation_names):
            raise ValueError(f"{operation_names}: what can fail is {', '.join(sorted(_FAILING))}")
        failure = Failure(frozenset(operation_names), path_pattern, error, times=times, after=after)
        with self._lock:
            self._failures.append(failure)
        return failure

    def crash_at(self, step: int) -> None:
        """Lets the machine stop at an operation that changes something (a step): `step` of them are still done.

        That operation and all after it, on whatever thread and whatever they do, raise `Crashed`. `steps` tells after
        a run without a crash how many there are.
        """
        with self._lock:
            self._steps_left = step

    @contextmanager
    def syncs_held(self) -> Iterator[None]:
        """No sync of a file or a directory ends before the block does."""
        with self._gate.closed():
            yield

    def wait_for_sync(self, *, timeout_s: float = 20) -> None:
        """Waits until a sync is held back; raises `TimeoutError` when none is in time."""
        if not self._gate.wait_for_arrival(timeout_s):
            raise TimeoutError(f"no sync began within {timeout_s} s")

    @contextmanager
    def carried_out(
        self, name: str, path: str, size: int = 0, *, when_refused: Callable[[], None] = _nothing
    ) -> Iterator[None]:
        """Around each operation: follows the orders for it, and lets one at a time through.

        Args:
            when_refused: what becomes of an operation that was made to fail.
        """
        operation = Operation(name, path, size)
        self._count_step(operation)
        try:
            self._follow_orders(operation)
        except OSError:
            with self._lock:
                when_refused()
            raise
        with self._lock:
            self._check_running(operation)  # the machine may have stopped while this one waited
            yield

    def _follow_orders(self, operation: Operation) -> None:
        self.note(operation)
        if operation.name in SYNCS:
            self._gate.pass_through()
        with self._lock:
            for failure in self._failures:
                failure.meet(operation)

    def _count_step(self, operation: Operation) -> None:
        with self._lock:
            if self._steps_left is not None and operation.name in STEPS:
                self._is_crashed = self._is_crashed or self._steps_left == 0
                self._steps_left -= 1
            self._check_running(operation)

    def _check_running(self, operation: Operation) -> None:
        if self._is_crashed:
            raise Crashed(operation)
