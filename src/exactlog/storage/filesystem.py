"""The file system as a port, with the real one and one that lives in memory.

Everything the storage layer does to files goes through here, so that a test can hand in a file system that counts,
fails or forgets. Paths are plain strings with `/`; errors are the operating system's own (`OSError` and its children),
whatever the implementation.

What the port promises of durability is what POSIX promises: bytes are safe after `File.sync` or `File.sync_data`, a
name is safe after `Filesystem.sync_directory` of its directory, and nothing else is.
"""

import ctypes
import errno
import os
import threading
from collections.abc import Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview

_BUFFERS_PER_WRITE_MAX = 1024  # Linux's IOV_MAX
_syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)  # Linux's; Python has no name for it


class File(Protocol):
    """An open file, read and written at explicit positions; it closes itself when the last user lets go of it."""

    def write_at(self, buffers: Sequence[Buffer], position: int) -> None:
        """Writes all bytes of all buffers from `position` on, or raises `OSError`."""

    def read_at(self, size: int, position: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only at the end of the file."""

    def truncate(self, size: int) -> None:
        """Cuts the file, or extends it with zeros, to `size` bytes."""

    def sync_data(self) -> None:
        """Makes the bytes (and the size) durable: fdatasync."""

    def sync(self) -> None:
        """Makes the bytes and all metadata durable: fsync."""

    def size(self) -> int:
        """The size of the file in bytes."""


class FileTree(Protocol):
    """All that is below a directory, as it is whenever it is asked."""

    def sync_all(self) -> None:
        """Makes all files and names below it durable; perhaps others too. One flush, however many they are.

        Raises:
            OSError: whether they are is not known: a write since this was opened may not have reached the disk.
        """


class Filesystem(Protocol):
    """Files and directories by name."""

    def open(self, path: str, *, create: bool = False, exclusive: bool = False, read_only: bool = False) -> File:
        """Opens a file; with `create` makes it when missing, with `exclusive` too only when missing."""

    def read_file(self, path: str) -> bytes:
        """All bytes of a file."""

    def exists(self, path: str) -> bool:
        """Whether a file or directory of that name exists."""

    def file_size(self, path: str) -> int:
        """The size of a file in bytes."""

    def list_names(self, directory: str) -> list[str]:
        """The names in a directory, in no order."""

    def make_directories(self, path: str) -> None:
        """Makes a directory and its parents; one that exists is fine."""

    def remove(self, path: str) -> None:
        """Removes a file."""

    def remove_directory(self, path: str) -> None:
        """Removes an empty directory."""

    def rename(self, source: str, target: str) -> None:
        """Gives a file or directory another name, replacing a file of that name."""

    def link(self, source: str, target: str) -> None:
        """Gives a file a second name; `FileExistsError` when the name is taken."""

    def sync_directory(self, path: str) -> None:
        """Makes the names in a directory durable."""

    def open_tree(self, path: str) -> FileTree:
        """Opens all that is below a directory, to be made durable.

        To be done before the first write that matters: a descriptor is told of what has failed since it was opened.
        """


class OsFile:
    """A file of the operating system."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def __del__(self) -> None:
        os.close(self._descriptor)

    def write_at(self, buffers: Sequence[Buffer], position: int) -> None:
        if len(buffers) > _BUFFERS_PER_WRITE_MAX:
            for first in range(0, len(buffers), _BUFFERS_PER_WRITE_MAX):
                part = buffers[first : first + _BUFFERS_PER_WRITE_MAX]
                self.write_at(part, position)
                position += sum(map(len, part))
            return
        size = sum(map(len, buffers))
        written = os.pwritev(self._descriptor, buffers, position)
        if written < size:  # a signal, a full disk or 2 GiB at once: the kernel may stop half-way
            rest = memoryview(b"".join(buffers))
            while written < size:
                written += os.pwrite(self._descriptor, rest[written:], position + written)

    def read_at(self, size: int, position: int) -> bytes:
        found = os.pread(self._descriptor, size, position)
        if len(found) == size or not found:
            return found
        parts = [found]
        got = len(found)
        while got < size and (found := os.pread(self._descriptor, size - got, position + got)):
            parts.append(found)
            got += len(found)
        return b"".join(parts)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def sync_data(self) -> None:
        os.fdatasync(self._descriptor)

    def sync(self) -> None:
        os.fsync(self._descriptor)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size


class OsFilesystem:
    """The operating system's own files."""

    def open(self, path: str, *, create: bool = False, exclusive: bool = False, read_only: bool = False) -> OsFile:
        flags = os.O_RDONLY if read_only else os.O_RDWR
        if create:
            flags |= os.O_CREAT
        if exclusive:
            flags |= os.O_EXCL
        return OsFile(path, os.open(path, flags | os.O_CLOEXEC, 0o644))

    def read_file(self, path: str) -> bytes:
        file = self.open(path, read_only=True)
        return file.read_at(file.size(), 0)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def file_size(self, path: str) -> int:
        return os.stat(path).st_size

    def list_names(self, directory: str) -> list[str]:
        return os.listdir(directory)

    def make_directories(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def link(self, source: str, target: str) -> None:
        os.link(source, target)

    def sync_directory(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def open_tree(self, path: str) -> "OsFileTree":
        return OsFileTree(path, os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))


class OsFileTree:
    """A directory of the operating system, and the file system that it is in."""

    __slots__ = ("_descriptor", "_path")

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    def __del__(self) -> None:
        os.close(self._descriptor)

    def sync_all(self) -> None:
        if _syncfs is None:
            os.sync()
        elif _syncfs(self._descriptor):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), self._path)


class MemoryFile:
    """The bytes of a file of `MemoryFilesystem`."""

    __slots__ = ("_bytes",)

    def __init__(self, content: bytearray) -> None:
        self._bytes = content

    def read_only(self) -> "ReadOnlyMemoryFile":
        """The same bytes, for one who may not change them."""
        return ReadOnlyMemoryFile(self._bytes)

    def write_at(self, buffers: Sequence[Buffer], position: int) -> None:
        content = self._bytes
        if position > len(content) and any(buffers):
            content.extend(bytes(position - len(content)))
        for buffer in buffers:
            content[position : position + len(buffer)] = buffer
            position += len(buffer)

    def read_at(self, size: int, position: int) -> bytes:
        # A slice is a copy made in one step; a view would keep the thread that writes from making the file longer.
        return bytes(self._bytes[position : position + size])

    def truncate(self, size: int) -> None:
        if size < len(self._bytes):
            del self._bytes[size:]
        else:
            self._bytes.extend(bytes(size - len(self._bytes)))

    def sync_data(self) -> None:
        """Memory has nothing to sync."""

    def sync(self) -> None:
        """Memory has nothing to sync."""

    def size(self) -> int:
        return len(self._bytes)


class ReadOnlyMemoryFile(MemoryFile):
    """A file of `MemoryFilesystem` that was opened to be read."""

    __slots__ = ()

    def write_at(self, buffers: Sequence[Buffer], position: int) -> None:
        del buffers, position
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    def truncate(self, size: int) -> None:
        del size
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


class MemoryFileTree:
    """All that is below a directory of `MemoryFilesystem`."""

    __slots__ = ()

    def sync_all(self) -> None:
        """Memory has nothing to sync."""


class MemoryFilesystem:
    """Files that live and die with this object: `--in-memory`, and tests.

    Names change under a lock; bytes, under the interpreter's own.
    """

    def __init__(self) -> None:
        self._files: dict[str, MemoryFile] = {}
        self._directories: dict[str, set[str]] = {"/": set()}
        self._changing = threading.RLock()

    def open(self, path: str, *, create: bool = False, exclusive: bool = False, read_only: bool = False) -> MemoryFile:
        with self._changing:
            if create and exclusive and self.exists(path):
                raise _error(errno.EEXIST, path)
            self._refuse_directory(path)
            found = self._files.get(path)
            if found is None:
                if not create:
                    raise self._missing(path)
                self._enter(path)
                found = self._files[path] = MemoryFile(bytearray())
        return found.read_only() if read_only else found

    def read_file(self, path: str) -> bytes:
        file = self.open(path)
        return file.read_at(file.size(), 0)

    def exists(self, path: str) -> bool:
        return path in self._files or path in self._directories

    def file_size(self, path: str) -> int:
        return self.open(path).size()

    def list_names(self, directory: str) -> list[str]:
        return list(self._names(directory))

    def make_directories(self, path: str) -> None:
        with self._changing:
            if path in self._directories:
                return
            if path in self._files:
                raise _error(errno.EEXIST, path)
            parent = _parent(path)
            if parent in self._files:
                raise _error(errno.ENOTDIR, path)
            self.make_directories(parent)
            self._directories[parent].add(_name(path))
            self._directories[path] = set()

    def remove(self, path: str) -> None:
        with self._changing:
            self._refuse_directory(path)
            if path not in self._files:
                raise self._missing(path)
            del self._files[path]
            self._directories[_parent(path)].discard(_name(path))

    def remove_directory(self, path: str) -> None:
        with self._changing:
            if self._names(path):
                raise _error(errno.ENOTEMPTY, path)
            del self._directories[path]
            self._directories[_parent(path)].discard(_name(path))

    def rename(self, source: str, target: str) -> None:
        with self._changing:
            for path in (source, target):
                self._names(_parent(path))
            if not self.exists(source):
                raise self._missing(source)
            if source == target or self._is_one_file(source, target):
                return
            self._refuse_to_replace(source, target)
            self._enter(target)
            if source in self._files:
                self._files[target] = self._files.pop(source)
            else:
                self._move_directory(source, target)
            self._directories[_parent(source)].discard(_name(source))

    def link(self, source: str, target: str) -> None:
        with self._changing:
            if not self.exists(source):
                raise self._missing(source)
            self._names(_parent(target))
            if self.exists(target):
                raise _error(errno.EEXIST, target)
            self._files[target] = self.open(source)
            self._enter(target)

    def sync_directory(self, path: str) -> None:
        self._names(path)

    def open_tree(self, path: str) -> "MemoryFileTree":
        self._names(path)
        return MemoryFileTree()

    def _names(self, directory: str) -> set[str]:
        names = self._directories.get(directory)
        if names is None:
            raise _error(errno.ENOTDIR, directory) if directory in self._files else self._missing(directory)
        return names

    def _missing(self, path: str) -> OSError:
        """Why nothing is found at a path: something on the way to it is missing, or is a file."""
        above = _parent(path)
        while above not in self._files and above != "/":
            above = _parent(above)
        return _error(errno.ENOTDIR if above in self._files else errno.ENOENT, path)

    def _is_one_file(self, path: str, other: str) -> bool:
        return path in self._files and self._files[path] is self._files.get(other)

    def _refuse_directory(self, path: str) -> None:
        if path in self._directories:
            raise _error(errno.EISDIR, path)

    def _refuse_to_replace(self, source: str, target: str) -> None:
        if target.startswith(f"{source}/"):
            raise _error(errno.EINVAL, target)
        if source.startswith(f"{target}/"):
            raise _error(errno.ENOTEMPTY, target)
        if source in self._files:
            self._refuse_directory(target)
        elif target in self._files:
            raise _error(errno.ENOTDIR, target)
        elif self._directories.get(target):
            raise _error(errno.ENOTEMPTY, target)

    def _enter(self, path: str) -> None:
        self._names(_parent(path)).add(_name(path))

    def _move_directory(self, source: str, target: str) -> None:
        self._directories[target] = self._directories.pop(source)
        for name in self._directories[target]:
            old, new = f"{source}/{name}", f"{target}/{name}"
            if old in self._files:
                self._files[new] = self._files.pop(old)
            else:
                self._move_directory(old, new)


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
