"""A file system as it would be after some writes, which are kept beside it: what lies below is not touched.

They are kept in memory, and in a temporary file where they are many. So an audit sees a data directory as the next
start would leave it. Directories stay as they are.
"""

import errno
import os
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from exactlog.storage.filesystem import Buffer, File, Filesystem, MemoryFileTree

PAGE_BYTES: Final = 4_096
MEMORY_BYTES: Final = 16 * 1024 * 1024
"""What is changed beyond that lies in a temporary file, which has no name and goes with its file system."""


class Pages:
    """Changed pages of files, each in a place of its own."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=MEMORY_BYTES)  # noqa: SIM115  it goes with this object
        self._count = 0

    def __del__(self) -> None:
        self._file.close()

    def add(self, page: Buffer) -> int:
        """Keeps one; its place."""
        self._count += 1
        self.replace(self._count - 1, page)
        return self._count - 1

    def replace(self, place: int, page: Buffer) -> None:
        """Changes one."""
        self._file.seek(place * PAGE_BYTES)
        self._file.write(page)

    def read(self, place: int) -> bytes:
        """One of them."""
        self._file.seek(place * PAGE_BYTES)
        return self._file.read(PAGE_BYTES)


class OverlayFile:
    """A file of which some pages have been changed, and the rest lies below.

    Args:
        pages: where changed ones go.
        size_below: how many bytes of what lies below count.
        on_change: called when it is not any more what lies below.
    """

    def __init__(
        self,
        below: Filesystem,
        path: str,
        pages: Pages,
        *,
        size_below: int,
        on_change: "Callable[[OverlayFile], None]",
    ) -> None:
        self._below = below
        self._path = path
        self._pages = pages
        self._on_change = on_change
        self._size_below = size_below
        self._size = size_below
        self._places: dict[int, int] = {}
        """Where the changed pages are, by their number in this file."""

    def write_at(self, buffers: Sequence[Buffer], position: int) -> None:
        """Writes beside the file; what is there already is no change."""
        content = b"".join(buffers)
        if self.read_at(len(content), position) == content:
            return
        self._on_change(self)
        self._size = max(self._size, position + len(content))
        start = 0
        while start < len(content):
            number, first = divmod(position + start, PAGE_BYTES)
            part = content[start : start + PAGE_BYTES - first]
            self._put(number, first, part)
            start += len(part)

    def _put(self, number: int, first: int, part: bytes) -> None:
        """Changes a page from one of its bytes on."""
        place = self._places.get(number)
        page = (
            self._read_below(PAGE_BYTES, number * PAGE_BYTES) if place is None else bytearray(self._pages.read(place))
        )
        page[first : first + len(part)] = part
        if place is None:
            self._places[number] = self._pages.add(page)
        else:
            self._pages.replace(place, page)

    def read_at(self, size: int, position: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only at the end of the file."""
        end = min(position + size, self._size)
        if end <= position:
            return b""
        content = self._read_below(end - position, position)
        for number in range(position // PAGE_BYTES, (end - 1) // PAGE_BYTES + 1) if self._places else ():
            place, start = self._places.get(number), number * PAGE_BYTES
            if place is not None:
                first, last = max(start, position), min(start + PAGE_BYTES, end)
                content[first - position : last - position] = self._pages.read(place)[first - start : last - start]
        return bytes(content)

    def _read_below(self, size: int, position: int) -> bytearray:
        """So many bytes as they lie below, and zeros behind them."""
        content = bytearray(size)
        from_below = min(position + size, self._size_below) - position
        if from_below > 0:
            found = self._below.open(self._path, read_only=True).read_at(from_below, position)
            content[: len(found)] = found
        return content

    def truncate(self, size: int) -> None:
        """Cuts the file, or extends it with zeros, beside what lies below."""
        if size == self._size:
            return
        self._on_change(self)
        self._size_below = min(self._size_below, size)
        number, first = divmod(size, PAGE_BYTES)
        self._places = {page: place for page, place in self._places.items() if page <= number}
        if number in self._places:
            self._put(number, first, bytes(PAGE_BYTES - first))
        self._size = size

    def sync_data(self) -> None:
        """There is nothing to make durable."""

    def sync(self) -> None:
        """There is nothing to make durable."""

    def size(self) -> int:
        """The size of the file in bytes."""
        return self._size


_GONE: Final = None


class OverlayFilesystem:
    """Another file system with changes on top of it. One file is open at a time for being changed the first time."""

    def __init__(self, below: Filesystem) -> None:
        self._below = below
        self._pages = Pages()
        self._files: dict[str, OverlayFile | None] = {}
        """What is not as it lies below, by path; None where a file has been removed or renamed."""

    def changed_paths(self) -> list[str]:
        """The files that are not what lies below, or are not there; in order."""
        return sorted(path for path, file in self._files.items() if file is not _GONE)

    # --- the port -------------------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False, exclusive: bool = False, read_only: bool = False) -> File:
        """Opens a file; what is written to it stays in memory."""
        if path not in self._files and (read_only or self._below.exists(path)):
            if exclusive:
                raise _error(errno.EEXIST, path)
            return self._below.open(path, read_only=True) if read_only else self._unchanged(path)
        file = self._files.get(path)
        if file is _GONE:
            if not create:
                raise _error(errno.ENOENT, path)
            self._below.list_names(_parent(path))  # raises where there is no such directory
            return self._add(path, OverlayFile(self._below, path, self._pages, size_below=0, on_change=_nothing))
        if exclusive:
            raise _error(errno.EEXIST, path)
        return file

    def read_file(self, path: str) -> bytes:
        """All bytes of a file."""
        if path not in self._files:
            return self._below.read_file(path)
        file = self._changed(path)
        return file.read_at(file.size(), 0)

    def exists(self, path: str) -> bool:
        """Whether a file or directory of that name exists."""
        return self._files[path] is not _GONE if path in self._files else self._below.exists(path)

    def file_size(self, path: str) -> int:
        """The size of a file in bytes."""
        return self._changed(path).size() if path in self._files else self._below.file_size(path)

    def list_names(self, directory: str) -> list[str]:
        """The names in a directory, in no order."""
        names = dict.fromkeys(self._below.list_names(directory))
        for path, file in self._files.items():
            if _parent(path) == directory:
                name = path.rpartition("/")[2]
                if file is _GONE:
                    names.pop(name, None)
                else:
                    names[name] = None
        return list(names)

    def make_directories(self, path: str) -> None:
        """Refused, unless the directory is there."""
        if not self._below.exists(path):
            raise _error(errno.EROFS, path)

    def remove(self, path: str) -> None:
        """Removes a file, in memory."""
        if not self.exists(path):
            raise _error(errno.ENOENT, path)
        self._files[path] = _GONE

    def remove_directory(self, path: str) -> None:
        """Refused."""
        raise _error(errno.EROFS, path)

    def rename(self, source: str, target: str) -> None:
        """Gives a file another name, in memory, replacing a file of that name."""
        file = self._writable(source)
        if file is not self._files.get(target):  # two names of one file both stay (rename(2))
            self._files[source], self._files[target] = _GONE, file

    def link(self, source: str, target: str) -> None:
        """Gives a file a second name, in memory; `FileExistsError` when the name is taken."""
        file = self._writable(source)
        if self.exists(target):
            raise _error(errno.EEXIST, target)
        self._files[target] = file

    def sync_directory(self, path: str) -> None:
        """There is nothing to make durable."""

    def open_tree(self, path: str) -> MemoryFileTree:
        """There is nothing to make durable."""
        self._below.list_names(path)
        return MemoryFileTree()

    def _unchanged(self, path: str) -> OverlayFile:
        size, on_change = self._below.file_size(path), partial(self._note_change, path)
        return OverlayFile(self._below, path, self._pages, size_below=size, on_change=on_change)

    def _note_change(self, path: str, file: OverlayFile) -> None:
        self._files.setdefault(path, file)

    def _add(self, path: str, file: OverlayFile) -> OverlayFile:
        self._files[path] = file
        return file

    def _changed(self, path: str) -> OverlayFile:
        file = self._files[path]
        if file is _GONE:
            raise _error(errno.ENOENT, path)
        return file

    def _writable(self, path: str) -> OverlayFile:
        """A file that is to get another name."""
        if path not in self._files:
            self._add(path, self._unchanged(path))
        return self._changed(path)


def _nothing(file: OverlayFile) -> None:
    """It has been changed before."""
    del file


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
