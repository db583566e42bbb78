"""One owner for a data directory: a lock the operating system drops when its holder dies, however it dies."""

import fcntl
import json
import os
import socket
from types import TracebackType
from typing import Self

from exactlog.core.model.errors import DirectoryLockedError

LOCK_NAME = "lock"


class DirectoryLock:
    """Holds the `lock` file of a directory from construction until `release`.

    Raises:
        DirectoryLockedError: somebody else holds it; says who.
    """

    def __init__(self, directory: str) -> None:
        os.makedirs(directory, exist_ok=True)
        path = f"{directory}/{LOCK_NAME}"
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = _read_owner(self._descriptor)
            os.close(self._descriptor)
            raise DirectoryLockedError(directory, owner_pid=owner.get("pid"), owner_host=owner.get("host")) from None
        os.ftruncate(self._descriptor, 0)
        owner_text = json.dumps({"pid": os.getpid(), "host": socket.gethostname()}) + "\n"
        os.pwrite(self._descriptor, owner_text.encode(), 0)

    def release(self) -> None:
        """Lets go; calling it again does nothing. The file stays: removing it would race with the next owner."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _read_owner(descriptor: int) -> dict[str, object]:
    """What the owner wrote about itself; nothing when it has not written yet."""
    try:
        owner = json.loads(os.pread(descriptor, 4096, 0) or b"{}")
    except ValueError:
        return {}
    return owner if isinstance(owner, dict) else {}
