"""A file system that notes what is done to another one, and lets a test step in before each operation."""

from collections.abc import Callable
from typing import NamedTuple


class Operation(NamedTuple):
    """One call of the port: its name, the path it is about (the new one of `link` and `rename`), bytes moved."""

    name: str
    path: str
    size: int = 0


class CountingFilesystem:
    """Passes everything on and keeps a list of it.

    Attributes:
        operations: all that was done, in order.
        before: called with each operation before it is carried out; raises what the operation is to raise.
    """

    def __init__(self, filesystem) -> None:
        self._filesystem = filesystem
        self.operations: list[Operation] = []
        self.before: Callable[[Operation], None] = _pass

    @property
    def bytes_read(self) -> int:
        return sum(operation.size for operation in self.operations if operation.name in {"read_at", "read_file"})

    def names(self, *kinds: str) -> list[str]:
        """The names of the operations so far; only those of some kinds, where given."""
        return [operation.name for operation in self.operations if not kinds or operation.name in kinds]

    def clear(self) -> None:
        self.operations.clear()

    def note(self, name: str, path: str, size: int = 0) -> None:
        operation = Operation(name, path, size)
        self.before(operation)
        self.operations.append(operation)

    # --- the port ---------------------------------------------------------------------------------------------

    def open(self, path, *, create=False, exclusive=False, read_only=False):
        self.note("create" if create else "open", path)
        file = self._filesystem.open(path, create=create, exclusive=exclusive, read_only=read_only)
        return _CountingFile(file, path, self)

    def read_file(self, path):
        content = self._filesystem.read_file(path)
        self.note("read_file", path, len(content))
        return content

    def exists(self, path):
        self.note("exists", path)
        return self._filesystem.exists(path)

    def file_size(self, path):
        self.note("file_size", path)
        return self._filesystem.file_size(path)

    def list_names(self, directory):
        self.note("list_names", directory)
        return self._filesystem.list_names(directory)

    def make_directories(self, path):
        self.note("make_directories", path)
        self._filesystem.make_directories(path)

    def remove(self, path):
        self.note("remove", path)
        self._filesystem.remove(path)

    def remove_directory(self, path):
        self.note("remove_directory", path)
        self._filesystem.remove_directory(path)

    def rename(self, source, target):
        self.note("rename", target)
        self._filesystem.rename(source, target)

    def link(self, source, target):
        self.note("link", target)
        self._filesystem.link(source, target)

    def sync_directory(self, path):
        self.note("sync_directory", path)
        self._filesystem.sync_directory(path)


class _CountingFile:
    def __init__(self, file, path, filesystem) -> None:
        self._file = file
        self._path = path
        self._filesystem = filesystem

    def write_at(self, buffers, position):
        self._filesystem.note("write_at", self._path, sum(map(len, buffers)))
        self._file.write_at(buffers, position)

    def read_at(self, size, position):
        content = self._file.read_at(size, position)
        self._filesystem.note("read_at", self._path, len(content))
        return content

    def truncate(self, size):
        self._filesystem.note("truncate", self._path)
        self._file.truncate(size)

    def sync_data(self):
        self._filesystem.note("sync_data", self._path)
        self._file.sync_data()

    def sync(self):
        self._filesystem.note("sync", self._path)
        self._file.sync()

    def size(self):
        self._filesystem.note("size", self._path)
        return self._file.size()


def _pass(operation: Operation) -> None:
    del operation
