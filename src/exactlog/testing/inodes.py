"""Files and directories in memory that know what of them a power cut may take.

One rule for all of it: what was not synced since it changed (a sector of a file, its size, a name in a directory) is
found again in any of the states it went through since it was certain, each on its own. POSIX promises no order and no
atomicity before a sync; a disk writes sectors whole; file systems fill what was never written with zeros.
"""

from collections.abc import Callable, Hashable, Iterator
from random import Random
from typing import Generic, TypeVar

from exactlog.storage.filesystem import MemoryFilesystem

Key = TypeVar("Key", bound=Hashable)
State = TypeVar("State")

Luck = Callable[[], bool]
"""Asked change by change, oldest first: had that one reached the disk?"""


def no_luck() -> Luck:
    """Only what is certain is found."""
    return lambda: False


def all_luck() -> Luck:
    """All is found as it was left."""
    return lambda: True


def some_luck(chance: Random) -> Luck:
    """None, all, or some share of the changes had reached the disk."""
    share = chance.choice((0.0, chance.random(), 1.0))
    return lambda: chance.random() < share


class Unsynced(Generic[Key, State]):
    """What each of several things has been since it was last certain, oldest first."""

    def __init__(self) -> None:
        self._states: dict[Key, list[State]] = {}
        self._dirty: set[Key] = set()

    def change(self, key: Key, before: State, after: State) -> None:
        """One of them changes."""
        self._states.setdefault(key, [before]).append(after)
        self._dirty.add(key)

    def sync(self) -> None:
        """What has changed since the last sync, well or failed, becomes certain."""
        for key in self._dirty:
            del self._states[key]
        self._dirty.clear()

    def drop(self) -> None:
        """A sync failed: no later one will try these changes again, and whether they are on the disk is unknown."""
        self._dirty.clear()

    def states(self, key: Key) -> list[State]:
        """All states of one of them, the certain one first; none if the live one is certain."""
        return self._states.get(key, [])

    def find(self, luck: Luck) -> Iterator[tuple[Key, State]]:
        """The state in which each that is not certain is found."""
        for key, (found, *later) in self._states.items():
            for state in later:
                if not luck():
                    break
                found = state  # noqa: PLW2901  the next one, with luck
            yield key, found


class FileInode:
    """The bytes of a file.

    Attributes:
        content: as they are read now.
        links: how many names the file has.
    """

    def __init__(self, sector_bytes: int) -> None:
        self.content = bytearray()
        self.links = 0
        self._sector_bytes = sector_bytes
        self._sectors = Unsynced[int, bytes]()
        self._size = Unsynced[None, int]()

    def write(self, content: bytes | bytearray | memoryview, position: int) -> None:
        """Writes sector by sector: so the size, too, goes through every bound of a sector on its way."""
        for sector, start, end in self._spans(position, position + len(content)):
            before, size = self._sector(sector), len(self.content)
            self.content.extend(bytes(max(0, start - size)))
            self.content[start:end] = content[start - position : end - position]
            self._sectors.change(sector, before, self._sector(sector))
            self._size.change(None, size, len(self.content))

    def truncate(self, size: int) -> None:
        before = [(sector, self._sector(sector)) for sector, _, _ in self._spans(size, len(self.content))]
        self._size.change(None, len(self.content), size)
        del self.content[size:]
        self.content.extend(bytes(size - len(self.content)))
        for sector, content in before:
            self._sectors.change(sector, content, self._sector(sector))

    def sync(self) -> None:
        self._sectors.sync()
        self._size.sync()

    def fail_sync(self) -> None:
        self._sectors.drop()
        self._size.drop()

    def flip(self, byte: int, bit: int) -> None:
        """Turns a bit over, in memory and on the disk."""
        sector, position = divmod(byte, self._sector_bytes)
        states = self._sectors.states(sector)
        states[:] = [_flipped(state, position, bit) for state in states]
        self.content[byte] ^= 1 << bit

    def find(self, make_luck: Callable[[], Luck]) -> bytes:
        """The bytes that are there after a power cut."""
        found = bytearray(self.content)
        for sector, content in self._sectors.find(make_luck()):
            start = sector * self._sector_bytes
            found.extend(bytes(max(0, start + self._sector_bytes - len(found))))
            found[start : start + self._sector_bytes] = content.ljust(self._sector_bytes, b"\0")
        size = len(self.content)
        for _, size in self._size.find(make_luck()):
            found.extend(bytes(max(0, size - len(found))))
        return bytes(found[:size])

    def _sector(self, sector: int) -> bytes:
        return bytes(self.content[sector * self._sector_bytes : (sector + 1) * self._sector_bytes])

    def _spans(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Each sector between two positions, and from where to where it is meant."""
        while start < end:
            sector = start // self._sector_bytes
            bound = min(end, (sector + 1) * self._sector_bytes)
            yield sector, start, bound
            start = bound


class DirectoryInode:
    """The names in a directory.

    Attributes:
        entries: as they are listed now.
        links: 1; 0 once it is removed.
    """

    def __init__(self) -> None:
        self.entries: dict[str, Inode] = {}
        self.links = 0
        self._names = Unsynced[str, Inode | None]()

    def enter(self, name: str, inode: "Inode | None") -> None:
        """Gives a name to an inode, whatever had it before; takes it away with None."""
        before = self.entries.pop(name, None)
        self._names.change(name, before, inode)
        if before is not None:
            before.links -= 1
        if inode is not None:
            inode.links += 1
            self.entries[name] = inode

    def sync(self) -> None:
        self._names.sync()

    def fail_sync(self) -> None:
        self._names.drop()

    def find(self, luck: Luck) -> "dict[str, Inode]":
        """The names that are there after a power cut, looking at this directory alone."""
        found: dict[str, Inode | None] = {**self.entries, **dict(self._names.find(luck))}
        return {name: inode for name, inode in found.items() if inode is not None}


Inode = FileInode | DirectoryInode


Place = tuple[DirectoryInode, str]


class FoundTree:
    """What is found below a directory when the power is back.

    Directories lose and keep names independently of each other, but for what every file system in use sees to: a
    rename may leave both names (UFS writes the new one first) but not none of them (ext4 and XFS do both in one
    transaction), and never leaves a directory two. Only where the directory of the old name was synced since, and
    that of the new one was not, is the old name certain to be gone and the new one not certain to be there.
    """

    def __init__(self, root: DirectoryInode, make_luck: Callable[[], Luck]) -> None:
        self._root = root
        self._make_luck = make_luck
        self._entries: dict[DirectoryInode, dict[str, Inode]] = {}
        self._put_aside: dict[DirectoryInode, dict[str, DirectoryInode]] = {}
        self._bring_back_what_has_no_name()

    def copy(self) -> MemoryFilesystem:
        """The tree as files in memory of their own."""
        copy = MemoryFilesystem()
        paths: dict[FileInode, str] = {}
        todo = [(self._root, "")]
        while todo:
            directory, parent = todo.pop()
            for name, inode in self._names(directory).items():
                path = f"{parent}/{name}"
                if isinstance(inode, DirectoryInode):
                    copy.make_directories(path)
                    todo.append((inode, path))
                elif inode in paths:
                    copy.link(paths[inode], path)
                else:
                    paths[inode] = path
                    copy.open(path, create=True).write_at((inode.find(self._make_luck),), 0)
        return copy

    def _names(self, directory: DirectoryInode) -> dict[str, Inode]:
        """The names found in a directory; old names of directories are put aside, as there may be newer ones."""
        if directory not in self._entries:
            found = directory.find(self._make_luck())
            self._put_aside[directory] = {
                name: inode
                for name, inode in found.items()
                if isinstance(inode, DirectoryInode) and directory.entries.get(name) is not inode
            }
            for name in self._put_aside[directory]:
                del found[name]
            self._entries[directory] = found
        return self._entries[directory]

    def _reached(self, start: Inode) -> dict[Inode, None]:
        """All that is found by going from name to name."""
        reached = {start: None}
        todo = [start]
        while todo:
            inode = todo.pop()
            if isinstance(inode, DirectoryInode):
                new = [found for found in self._names(inode).values() if found not in reached]
                reached.update(dict.fromkeys(new))
                todo += new
        return reached

    def _bring_back_what_has_no_name(self) -> None:
        """Gives an old name back to each that was only renamed and is found under none of its names."""
        certain = _certain_places(self._root)
        while lost := self._lost(certain):
            inode = max(lost, key=lambda inode: len(self._reached(inode)))  # first what others are found in
            directory, name = lost[inode]
            reached = self._reached(self._root)
            self._names(directory)[name] = inode
            while directory not in reached:  # renamed out of one that was removed since
                above, name = certain[directory]
                self._names(above)[name] = directory
                directory = above

    def _lost(self, certain: dict[Inode, Place]) -> dict[Inode, Place]:
        """What is found nowhere, though an old name of it was found, or was certain and not removed since."""
        reached = self._reached(self._root)
        lost: dict[Inode, Place] = {}
        for directory, old_names in self._put_aside.items():
            for name, moved in old_names.items():
                if directory in reached and moved not in reached and name not in self._entries[directory]:
                    lost[moved] = (directory, name)
        for inode, place in certain.items():
            if inode.links and inode not in reached:
                lost.setdefault(inode, place)
        return lost


def _certain_places(root: DirectoryInode) -> dict[Inode, Place]:
    """Where everything is that is certain to be somewhere."""
    places: dict[Inode, Place] = {}
    todo = [root]
    while todo:
        directory = todo.pop()
        for name, inode in directory.find(no_luck()).items():
            if inode not in places:
                places[inode] = (directory, name)
                if isinstance(inode, DirectoryInode):
                    todo.append(inode)
    return places


def _flipped(content: bytes, position: int, bit: int) -> bytes:
    """`content` with a bit turned over, if it reaches that far."""
    if position >= len(content):
        return content
    return content[:position] + bytes((content[position] ^ 1 << bit,)) + content[position + 1 :]
