"""One partition in the hands of one process, while another one holds the lock of the data directory.

Tasks of a job compact partitions while its driver has the lock. A driver may die and its tasks go on for a moment; a
task may be begun a second time while the first still runs. So each holds its partition, by a lock that goes with the
process, and looks before it publishes whether the data directory is still its driver's.
"""

import fcntl
import os
from types import TracebackType
from typing import Self

from msgspec import Struct

from exactlog.core.model.errors import UnavailableError
from exactlog.storage.directory_lock import read_owner


class DirectoryHolder(Struct, frozen=True):
    """Who holds the lock of a data directory, as that says of itself."""

    pid: int
    host: str


def holder_of(root: str) -> DirectoryHolder | None:
    """Who took the lock of a data directory last; None where nobody ever did."""
    owner = read_owner(root)
    pid, host = owner.get("pid"), owner.get("host")
    return DirectoryHolder(pid, host) if isinstance(pid, int) and isinstance(host, str) else None


class PartitionHold:
    """Holds a partition's directory; a context.

    Args:
        root: the data directory.
        name: of the partition's directory.
        holder: who must have the lock of the data directory.

    Raises:
        UnavailableError: another process holds the partition.
        OSError: there is no such directory here.
    """

    def __init__(self, root: str, name: str, holder: DirectoryHolder) -> None:
        self._root = root
        self._holder = holder
        self._descriptor = os.open(f"{root}/{name}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._descriptor)
            raise UnavailableError(
                f"{root}/{name} is in the hands of another process", hint="run it again when that has ended"
            ) from None

    def check(self) -> None:
        """Sees to it that the data directory is still held by whom it was.

        Raises:
            UnavailableError: it is not.
        """
        if holder_of(self._root) != self._holder:
            raise UnavailableError(
                f"{self._root} is not held by process {self._holder.pid} on {self._holder.host} any more",
                hint="run it again when nobody else uses the directory",
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)
