"""A file system that fails: it loses, reorders, fills up, breaks, and stops where a test wants it to."""

import errno
import os
from collections.abc import Iterator, Sequence
from random import Random

from exactlog.storage.filesystem import Buffer, MemoryFilesystem
from exactlog.testing.inodes import (
    DirectoryInode,
    FileInode,
    FoundTree,
    Inode,
    all_luck,
    no_luck,
    some_luck,
)
from exactlog.testing.ordered_failures import FailuresOnOrder

SECTOR_BYTES = 512


class FailingFile:
    """An open file of a `FailingFilesystem`."""

    def __init__(self, path: str, inode: FileInode, filesystem: "FailingFilesystem", *, read_only: bool) -> None:
        self._path = path
        self._inode = inode
        self._filesystem = filesystem
        self._is_read_only = read_only

    def write_at(self, buffers: Sequence[Buffer], position: int) -> None:
        content = b"".join(buffers)
        with self._filesystem.carried_out("write_at", self._path, len(content)):
            self._refuse_if_read_only(errno.EBADF)
            growth = position + len(content) - len(self._inode.content) if content else 0
            excess = max(0, growth - self._filesystem.room_for(growth))
            self._inode.write(content[: max(0, len(content) - excess)], position)
            if excess:
                raise _error(errno.ENOSPC, self._path)

    def read_at(self, size: int, position: int) -> bytes:
        available = max(0, len(self._inode.content) - position)
        with self._filesystem.carried_out("read_at", self._path, min(size, available)):
            return bytes(self._inode.content[position : position + size])

    def truncate(self, size: int) -> None:
        with self._filesystem.carried_out("truncate", self._path):
            self._refuse_if_read_only(errno.EINVAL)
            growth = size - len(self._inode.content)
            if growth > self._filesystem.room_for(growth):
                raise _error(errno.ENOSPC, self._path)
            self._inode.truncate(size)

    def sync_data(self) -> None:
        self._sync("sync_data")

    def sync(self) -> None:
        self._sync("sync")

    def size(self) -> int:
        with self._filesystem.carried_out("size", self._path):
            return len(self._inode.content)

    def _sync(self, name: str) -> None:
        with self._filesystem.carried_out(name, self._path, when_refused=self._inode.fail_sync):
            self._inode.sync()

    def _refuse_if_read_only(self, error: int) -> None:
        if self._is_read_only:
            raise _error(error, self._path)


class FailingFileTree:
    """All that is below a directory of a `FailingFilesystem`."""

    def __init__(self, path: str, filesystem: "FailingFilesystem") -> None:
        self._path = path
        self._filesystem = filesystem

    def sync_all(self) -> None:
        self._filesystem.sync_all(self._path)


class FailingFilesystem(FailuresOnOrder):
    """Files in memory that know what of them is durable, and whatever a test wants to go wrong with them.

    Without an order it is a file system like the others, of any number of threads, for any function that takes one.
    Only a test's own calls (`after_power_cut`, `flip_bit`, ...) are no operations: they are not listed and work after
    a crash too.

    Args:
        content: what is there at first, all of it durable: what an earlier one left, say.
        capacity_bytes: see below.
        sector_bytes: what the disk writes whole or not at all: 512 or 4096 bytes on real ones. Smaller ones tear
            small writes, too.

    Attributes:
        capacity_bytes: how many bytes all files together may have; None: any number. What goes beyond raises
            `OSError(ENOSPC)`: a write is done as far as there is room, and nothing new gets a name when there is none.
            May be set at any time.
    """

    def __init__(
        self,
        content: MemoryFilesystem | None = None,
        *,
        capacity_bytes: int | None = None,
        sector_bytes: int = SECTOR_BYTES,
    ) -> None:
        super().__init__()
        self.capacity_bytes = capacity_bytes
        self._sector_bytes = sector_bytes
        self._root = DirectoryInode()
        if content is not None:
            self._take_over(content, "", self._root, {})

    # --- what is left -----------------------------------------------------------------------------------------

    def after_power_cut(self, chance: Random | None = None) -> MemoryFilesystem:
        """What is found when the power is back, if it fails now; it does not, here.

        Without `chance` that is only what is certain: bytes and sizes as of the last sync of each file, names as of
        the last sync of each directory. With it, it is that and any part of the rest that POSIX and a disk allow:
        each 512-byte sector of a file, its size and each name in any state it went through since, so that later
        writes are found where earlier ones are not, lost ones read as zeros, and names come without their bytes.
        """
        with self._lock:
            return FoundTree(self._root, no_luck if chance is None else lambda: some_luck(chance)).copy()

    def after_kill(self) -> MemoryFilesystem:
        """What is found when the process was killed: all that was handed to the operating system."""
        with self._lock:
            return FoundTree(self._root, all_luck).copy()

    # --- room -------------------------------------------------------------------------------------------------

    @property
    def used_bytes(self) -> int:
        """The bytes of all files that have a name."""
        files: dict[FileInode, None] = {}
        todo = [self._root]
        while todo:
            for inode in list(todo.pop().entries.values()):
                if isinstance(inode, DirectoryInode):
                    todo.append(inode)
                else:
                    files[inode] = None
        return sum(len(file.content) for file in files)

    def room_for(self, growth: int) -> int:
        """How many of so many more bytes there is room for."""
        if self.capacity_bytes is None or growth <= 0:
            return growth
        return min(growth, max(0, self.capacity_bytes - self.used_bytes))

    # --- bits -------------------------------------------------------------------------------------------------

    def flip_bit(self, path: str, byte: int, bit: int) -> None:
        """Turns one bit (0 the lowest) of a file over, in memory and on the disk: nobody is told.

        Raises:
            OSError: there is no such file.
            ValueError: it has no such byte.
        """
        with self._lock:
            inode = self._file(path)
            if not 0 <= byte < len(inode.content):
                raise ValueError(f"{path} has {len(inode.content)} bytes, none at {byte}")
            inode.flip(byte, bit)

    def flip_random_bit(self, path: str, chance: Random) -> tuple[int, int]:
        """Turns a bit over that `chance` chooses; the byte and the bit. Raises as `flip_bit` does."""
        size = len(self._file(path).content)
        if size == 0:
            raise ValueError(f"{path} has no bytes")
        byte, bit = chance.randrange(size), chance.randrange(8)
        self.flip_bit(path, byte, bit)
        return byte, bit

    # --- the port ---------------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False, exclusive: bool = False, read_only: bool = False) -> FailingFile:
        with self.carried_out("create" if create else "open", path):
            directory, name = self._place(path)
            found = directory.entries.get(name)
            if found is None and create:
                self._refuse_if_full(path)
                found = FileInode(self._sector_bytes)
                directory.enter(name, found)
            elif found is not None and create and exclusive:
                raise _error(errno.EEXIST, path)
            return FailingFile(path, self._file(path), self, read_only=read_only)

    def read_file(self, path: str) -> bytes:
        found = self._find(path)
        size = len(found.content) if isinstance(found, FileInode) else 0
        with self.carried_out("read_file", path, size):
            return bytes(self._file(path).content)

    def exists(self, path: str) -> bool:
        with self.carried_out("exists", path):
            return self._find(path) is not None

    def file_size(self, path: str) -> int:
        with self.carried_out("file_size", path):
            return len(self._file(path).content)

    def list_names(self, directory: str) -> list[str]:
        with self.carried_out("list_names", directory):
            return list(self._directory(directory).entries)

    def make_directories(self, path: str) -> None:
        with self.carried_out("make_directories", path):
            directory = self._root
            names = _names(path)
            for depth, name in enumerate(names, start=1):
                found = directory.entries.get(name)
                if found is None:
                    self._refuse_if_full(path)
                    found = DirectoryInode()
                    directory.enter(name, found)
                if isinstance(found, FileInode):
                    raise _error(errno.EEXIST if depth == len(names) else errno.ENOTDIR, path)
                directory = found

    def remove(self, path: str) -> None:
        with self.carried_out("remove", path):
            self._file(path)
            directory, name = self._place(path)
            directory.enter(name, None)

    def remove_directory(self, path: str) -> None:
        with self.carried_out("remove_directory", path):
            if self._directory(path).entries:
                raise _error(errno.ENOTEMPTY, path)
            directory, name = self._place(path)
            directory.enter(name, None)

    def rename(self, source: str, target: str) -> None:
        with self.carried_out("rename", target):
            old_directory, old_name = self._place(source)
            new_directory, new_name = self._place(target)
            inode = self._existing(source)
            replaced = new_directory.entries.get(new_name)
            if replaced is inode:
                return  # two names of one file both stay (rename(2))
            if f"{target}/".startswith(f"{source}/"):
                raise _error(errno.EINVAL, target)
            if f"{source}/".startswith(f"{target}/"):
                raise _error(errno.ENOTEMPTY, target)
            _refuse_to_replace(replaced, by=inode, path=target)
            new_directory.enter(new_name, inode)
            old_directory.enter(old_name, None)

    def link(self, source: str, target: str) -> None:
        with self.carried_out("link", target):
            inode = self._existing(source)
            directory, name = self._place(target)
            if name in directory.entries:
                raise _error(errno.EEXIST, target)
            if isinstance(inode, DirectoryInode):
                raise _error(errno.EPERM, source)
            self._refuse_if_full(target)
            directory.enter(name, inode)

    def sync_directory(self, path: str) -> None:
        with self.carried_out("sync_directory", path, when_refused=lambda: self._directory(path).fail_sync()):
            self._directory(path).sync()

    def open_tree(self, path: str) -> "FailingFileTree":
        self._directory(path)
        return FailingFileTree(path, self)

    def sync_all(self, path: str) -> None:
        """Makes all files and names below a directory durable, as `open_tree(path).sync_all()` does."""

        def fail() -> None:
            for inode in _below(self._directory(path)):
                inode.fail_sync()

        with self.carried_out("sync_all", path, when_refused=fail):
            for inode in _below(self._directory(path)):
                inode.sync()

    # --- inside -----------------------------------------------------------------------------------------------

    def _find(self, path: str) -> Inode | None:
        found: Inode | None = self._root
        for name in _names(path):
            found = found.entries.get(name) if isinstance(found, DirectoryInode) else None
        return found

    def _existing(self, path: str) -> Inode:
        directory, name = self._place(path)
        found = directory.entries.get(name)
        if found is None:
            raise _error(errno.ENOENT, path)
        return found

    def _file(self, path: str) -> FileInode:
        found = self._existing(path)
        if isinstance(found, DirectoryInode):
            raise _error(errno.EISDIR, path)
        return found

    def _directory(self, path: str) -> DirectoryInode:
        found: Inode | None = self._root
        for name in _names(path):
            if not isinstance(found, DirectoryInode):
                break
            found = found.entries.get(name)
        if not isinstance(found, DirectoryInode):
            raise _error(errno.ENOENT if found is None else errno.ENOTDIR, path)
        return found

    def _place(self, path: str) -> tuple[DirectoryInode, str]:
        """The directory that a path names something in, and the name."""
        names = _names(path)
        if not names:
            raise _error(errno.EISDIR, path)
        return self._directory("/".join(names[:-1])), names[-1]

    def _refuse_if_full(self, path: str) -> None:
        if not self.room_for(1):
            raise _error(errno.ENOSPC, path)

    def _take_over(
        self, content: MemoryFilesystem, path: str, directory: DirectoryInode, files: dict[int, FileInode]
    ) -> None:
        for name in content.list_names(path or "/"):
            child = f"{path}/{name}"
            try:
                file = content.open(child)
            except IsADirectoryError:
                new = DirectoryInode()
                directory.enter(name, new)
                self._take_over(content, child, new, files)
                continue
            if id(file) not in files:
                inode = files[id(file)] = FileInode(self._sector_bytes)
                inode.write(file.read_at(file.size(), 0), 0)
                inode.sync()
            directory.enter(name, files[id(file)])
        directory.sync()


def _refuse_to_replace(replaced: Inode | None, *, by: Inode, path: str) -> None:
    match replaced, by:
        case DirectoryInode(), FileInode():
            raise _error(errno.EISDIR, path)
        case FileInode(), DirectoryInode():
            raise _error(errno.ENOTDIR, path)
        case DirectoryInode(entries=entries), _ if entries:
            raise _error(errno.ENOTEMPTY, path)


def _below(directory: DirectoryInode) -> Iterator[Inode]:
    """The directory, and all that is in it and below."""
    yield directory
    for inode in directory.entries.values():
        if isinstance(inode, DirectoryInode):
            yield from _below(inode)
        else:
            yield inode


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name]


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
