"""One owner for a data directory: a lock the operating system drops when its holder dies, however it dies."""

import fcntl
import json
import os
import socket
from types import TracebackType
from typing import Self
from weakref import WeakSet

from exactlog.core.model.errors import DirectoryLockedError

LOCK_NAME = "lock"


class DirectoryLock:
    """Holds the `lock` file of a directory from construction until `release`, or until nobody holds this object.

    A fork of this process does not hold it: its copy is let go of at once, so that the lock ends with its owner.

    Raises:
        DirectoryLockedError: somebody else holds it; says who.
    """

    def __init__(self, directory: str) -> None:
        self._descriptor = -1
        os.makedirs(directory, exist_ok=True)
        path = f"{directory}/{LOCK_NAME}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = _read_owner(descriptor)
            os.close(descriptor)
            raise DirectoryLockedError(directory, owner_pid=owner.get("pid"), owner_host=owner.get("host")) from None
        self._descriptor = descriptor
        _held.add(self)
        os.ftruncate(descriptor, 0)
        owner_text = json.dumps({"pid": os.getpid(), "host": socket.gethostname()}) + "\n"
        os.pwrite(descriptor, owner_text.encode(), 0)

    def release(self) -> None:
        """Lets go; calling it again does nothing. The file stays: removing it would race with the next owner."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


_held: WeakSet[DirectoryLock] = WeakSet()


def _let_go_in_fork() -> None:
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_let_go_in_fork)


def read_owner(directory: str) -> dict[str, object]:
    """What the last owner of a directory wrote about itself: its `pid` and `host`; nothing where there was none."""
    try:
        descriptor = os.open(f"{directory}/{LOCK_NAME}", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return {}
    try:
        return _read_owner(descriptor)
    finally:
        os.close(descriptor)


def _read_owner(descriptor: int) -> dict[str, object]:
    """What the owner wrote about itself; nothing when it has not written yet."""
    try:
        owner = json.loads(os.pread(descriptor, 4096, 0) or b"{}")
    except ValueError:
        return {}
    return owner if isinstance(owner, dict) else {}
