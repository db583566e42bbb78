"""A file system whose syncs can be held back or fail, whose disk can be full, and whose reads can fail."""

import errno
import threading
from contextlib import contextmanager

from exactlog.storage.filesystem import MemoryFilesystem

PATIENCE_S = 20


class FaultyFile:
    """A file that asks its file system before it writes or syncs."""

    def __init__(self, file, filesystem):
        self._file = file
        self._filesystem = filesystem

    def __getattr__(self, name):
        return getattr(self._file, name)

    def write_at(self, buffers, position):
        if self._filesystem.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self._file.write_at(buffers, position)

    def read_at(self, size, position):
        if self._filesystem.reads_fail:
            raise OSError(errno.EIO, "Input/output error")
        return self._file.read_at(size, position)

    def sync_data(self):
        self._filesystem.pass_sync()
        self._file.sync_data()

    def sync(self):
        self._filesystem.pass_sync()
        self._file.sync()


class FaultyFilesystem:
    """Files in memory, and what a test wants to go wrong with them."""

    def __init__(self):
        self.is_full = False
        self.reads_fail = False
        self.syncs_fail = False
        self._files = MemoryFilesystem()
        self._may_sync = threading.Event()
        self._may_sync.set()
        self._is_syncing = threading.Event()

    def __getattr__(self, name):
        return getattr(self._files, name)

    def open(self, path, *, create=False, exclusive=False, read_only=False):
        return FaultyFile(self._files.open(path, create=create, exclusive=exclusive, read_only=read_only), self)

    @contextmanager
    def syncs_held(self):
        """No sync ends before the block does."""
        self._is_syncing.clear()
        self._may_sync.clear()
        try:
            yield
        finally:
            self._may_sync.set()

    def wait_for_sync(self):
        """Waits until a sync has begun since syncs are held."""
        assert self._is_syncing.wait(PATIENCE_S)

    def pass_sync(self):
        """What every sync goes through."""
        self._is_syncing.set()
        assert self._may_sync.wait(PATIENCE_S)
        if self.syncs_fail:
            raise OSError(errno.EIO, "Input/output error")
