"""A bounded set of open files, so that a thousand partitions do not exhaust the process's descriptors.

The least recently used file is let go of first. Whoever still works with it keeps it open: a file closes when its last
user drops it, so a reader or a sync on another thread never meets a closed descriptor.
"""

import threading
from collections import OrderedDict

from exactlog.storage.filesystem import File, Filesystem


class OpenFiles:
    """Files by path, opened when first asked for; safe to call from several threads."""

    def __init__(self, filesystem: Filesystem, *, files_max: int, read_only: bool = False) -> None:
        self._filesystem = filesystem
        self._files_max = files_max
        self._is_read_only = read_only
        self._files: OrderedDict[str, File] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, path: str, *, create: bool = False) -> File:
        """The file at `path`, open; raises `OSError` when it cannot be opened."""
        with self._lock:
            file = self._files.get(path)
            if file is None:
                file = self._files[path] = self._filesystem.open(path, create=create, read_only=self._is_read_only)
                if len(self._files) > self._files_max:
                    self._files.popitem(last=False)
            else:
                self._files.move_to_end(path)
            return file

    def forget(self, path: str) -> None:
        """Lets go of a file that is about to be removed or renamed."""
        with self._lock:
            self._files.pop(path, None)

    def forget_directory(self, directory: str) -> None:
        """Lets go of every file below a directory that is about to be removed or renamed."""
        prefix = directory + "/"
        with self._lock:
            for path in [path for path in self._files if path.startswith(prefix)]:
                del self._files[path]

    def __len__(self) -> int:
        return len(self._files)
