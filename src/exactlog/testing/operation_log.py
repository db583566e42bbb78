"""A list of what is done to a file system."""

from collections.abc import Callable
from typing import NamedTuple

READS = frozenset({"open", "read_at", "read_file", "size", "file_size", "list_names", "exists"})
SYNCS = frozenset({"sync_data", "sync", "sync_directory", "sync_all"})
STEPS = SYNCS | {"create", "write_at", "truncate", "make_directories", "remove", "remove_directory", "rename", "link"}
"""What changes something, on the disk or of its being certain: a crash between two others finds the same."""


class Operation(NamedTuple):
    """One call of the file system port.

    Attributes:
        name: the method's; `open` that may make the file is `create`.
        path: what it is about; the new one of `link` and `rename`.
        size: bytes moved; 0 where none are.
    """

    name: str
    path: str
    size: int = 0


class OperationLog:
    """What a file system was asked to do.

    Attributes:
        operations: all of it, in order; also what failed.
        before: called with each operation before it is carried out. It may wait, look around in the file system, or
            raise what the operation is to raise, which is then neither carried out nor listed.
    """

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.before: Callable[[Operation], None] = _pass

    def note(self, operation: Operation) -> None:
        """An operation is about to be carried out."""
        self.before(operation)
        self.operations.append(operation)

    def names(self, *kinds: str) -> list[str]:
        """The names of the operations so far; only those of some kinds, where given."""
        return [operation.name for operation in self.operations if not kinds or operation.name in kinds]

    @property
    def steps(self) -> int:
        """How many of the operations so far change something: where a crash makes a difference."""
        return len(self.names(*STEPS))

    @property
    def bytes_read(self) -> int:
        """How many bytes were read so far."""
        return sum(operation.size for operation in self.operations if operation.name in {"read_at", "read_file"})

    def clear(self) -> None:
        """Forgets the operations so far."""
        self.operations.clear()


def _pass(operation: Operation) -> None:
    del operation
