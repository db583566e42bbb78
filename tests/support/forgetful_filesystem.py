"""A file system in memory whose power can be cut: what was not synced may be gone.

It keeps, beside what is there, what is certain to be there after a power cut: a file's bytes as of its last sync, a
directory's names as of its last `sync_directory`. Nothing else is certain, as POSIX has it.
"""

import errno
import os

from exactlog.storage.filesystem import MemoryFilesystem


class _File:
    def __init__(self):
        self.content = bytearray()
        self.synced = b""

    def write_at(self, buffers, position):
        self.content.extend(bytes(max(0, position - len(self.content))))
        for buffer in buffers:
            self.content[position : position + len(buffer)] = buffer
            position += len(buffer)

    def read_at(self, size, position):
        return bytes(self.content[position : position + size])

    def truncate(self, size):
        del self.content[size:]
        self.content.extend(bytes(size - len(self.content)))

    def sync_data(self):
        self.synced = bytes(self.content)

    sync = sync_data

    def size(self):
        return len(self.content)

    def after_power_cut(self, random):
        """Pessimistic without `random`; else the synced bytes, the written ones, or the written ones cut short."""
        if random is None:
            return self.synced
        longer = len(self.content) - len(self.synced)
        cut_short = bytes(self.content[: len(self.synced) + random.randint(0, max(0, longer))])
        return random.choice([self.synced, bytes(self.content), cut_short])


class _Directory:
    def __init__(self):
        self.entries = {}
        self.synced = {}

    def after_power_cut(self, random):
        if random is None:
            return self.synced
        kept = {}
        for name in sorted(self.synced.keys() | self.entries.keys()):
            node = random.choice([self.synced.get(name), self.entries.get(name)])
            if node is not None:
                kept[name] = node
        return kept


class ForgetfulFilesystem:
    """The port, on nodes that know what of them is durable."""

    def __init__(self):
        self._root = _Directory()

    def after_power_cut(self, random=None):
        """A file system with what is there when the power is back: only what is certain, or by `random` more of it."""
        survivors = MemoryFilesystem()
        _copy(self._root, "", survivors, random)
        return survivors

    # --- the port ---------------------------------------------------------------------------------------------

    def open(self, path, *, create=False, exclusive=False, read_only=False):
        del read_only
        directory, name = self._parent(path)
        found = directory.entries.get(name)
        if isinstance(found, _Directory):
            raise _error(errno.EISDIR, path)
        if found is None:
            if not create:
                raise _error(errno.ENOENT, path)
            found = directory.entries[name] = _File()
        elif exclusive:
            raise _error(errno.EEXIST, path)
        return found

    def read_file(self, path):
        return bytes(self.open(path).content)

    def exists(self, path):
        return self._find(path) is not None

    def file_size(self, path):
        return self.open(path).size()

    def list_names(self, directory):
        return list(self._directory(directory).entries)

    def make_directories(self, path):
        directory = self._root
        for name in path.strip("/").split("/"):
            directory = directory.entries.setdefault(name, _Directory())
            if isinstance(directory, _File):
                raise _error(errno.EEXIST, path)

    def remove(self, path):
        self.open(path)
        directory, name = self._parent(path)
        del directory.entries[name]

    def remove_directory(self, path):
        if self._directory(path).entries:
            raise _error(errno.ENOTEMPTY, path)
        directory, name = self._parent(path)
        del directory.entries[name]

    def rename(self, source, target):
        node = self._find(source)
        if node is None:
            raise _error(errno.ENOENT, source)
        replaced = self._find(target)
        if replaced is node:
            return
        if isinstance(replaced, _Directory) and (replaced.entries or isinstance(node, _File)):
            raise _error(errno.ENOTEMPTY if replaced.entries else errno.EISDIR, target)
        directory, name = self._parent(target)
        directory.entries[name] = node
        directory, name = self._parent(source)
        del directory.entries[name]

    def link(self, source, target):
        file = self.open(source)
        directory, name = self._parent(target)
        if name in directory.entries:
            raise _error(errno.EEXIST, target)
        directory.entries[name] = file

    def sync_directory(self, path):
        directory = self._directory(path)
        directory.synced = dict(directory.entries)

    # --- inside -----------------------------------------------------------------------------------------------

    def _find(self, path):
        node = self._root
        for name in path.strip("/").split("/"):
            if not isinstance(node, _Directory):
                return None
            node = node.entries.get(name)
        return node

    def _directory(self, path):
        found = self._find(path) if path.strip("/") else self._root
        if not isinstance(found, _Directory):
            raise _error(errno.ENOENT if found is None else errno.ENOTDIR, path)
        return found

    def _parent(self, path):
        directory, _, name = path.rpartition("/")
        return self._directory(directory), name


def _copy(directory, path, survivors, random):
    for name, node in directory.after_power_cut(random).items():
        here = f"{path}/{name}"
        if isinstance(node, _Directory):
            survivors.make_directories(here)
            _copy(node, here, survivors, random)
        else:
            survivors.open(here, create=True).write_at((node.after_power_cut(random),), 0)


def _error(number, path):
    return OSError(number, os.strerror(number), path)
