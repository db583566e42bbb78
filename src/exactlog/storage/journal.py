"""The files of the commit journal, written to by one thread: rounds one behind the other, each synced before the next.

A file that has grown long enough is followed by another one. It goes as soon as all that is in it stands in its
place, synced; the directory of the journal is then synced before the next file goes, so that none in between can be
missing.
"""

import secrets

from exactlog.core.deltalog.journal_format import (
    HEADER_BYTES,
    JOURNAL_DIRECTORY,
    FileHeader,
    JournaledRound,
    encode_file_header,
    encode_round,
    print_journal_name,
)
from exactlog.storage.fault_points import (
    JOURNAL_AFTER_CREATE,
    JOURNAL_AFTER_SYNC,
    JOURNAL_AFTER_WRITE,
    JOURNAL_BEFORE_WRITE,
)
from exactlog.storage.filesystem import Buffer, File, Filesystem
from exactlog.storage.whole_files import SyncFailedError, sync_data, sync_file, sync_names


class Journal:
    """Appends rounds to a data directory's journal.

    Args:
        number: of the next file.
        sequence: of the next round.
    """

    def __init__(self, filesystem: Filesystem, root: str, *, number: int, sequence: int) -> None:
        self._filesystem = filesystem
        self._tree = filesystem.open_tree(root)  # before the first write, so that it is told of every one that fails
        self._directory = f"{root}/{JOURNAL_DIRECTORY}"
        self._number = number
        self._sequence = sequence
        self._file: File | None = None
        self._salt = 0
        self._size_bytes = 0

    @property
    def size_bytes(self) -> int:
        """How long the present file is; 0 where there is none."""
        return self._size_bytes

    def append(self, journaled: JournaledRound, content: list[Buffer]) -> None:
        """Makes a round durable.

        Raises:
            SyncFailedError: whether it is durable is not known.
            OSError: it was not written, and nothing of it is left.
        """
        if self._file is None:
            self._begin_file()
        file = self._file
        assert file is not None
        parts = encode_round(self._sequence, journaled, content, salt=self._salt)
        JOURNAL_BEFORE_WRITE.reach()
        try:
            file.write_at(parts, self._size_bytes)
        except OSError:
            self._cut_off(file)
            raise
        JOURNAL_AFTER_WRITE.reach()
        sync_data(file)
        JOURNAL_AFTER_SYNC.reach()
        self._size_bytes += sum(map(len, parts))
        self._sequence += 1

    def end_file(self) -> int | None:
        """What comes next goes to another file; the number of the one that has ended, None where nothing was in it."""
        if self._file is None:
            return None
        ended, self._number = self._number, self._number + 1
        self._file, self._size_bytes = None, 0
        return ended

    def sync_all(self) -> None:
        """Makes everything durable that is in the data directory.

        Raises:
            SyncFailedError: what is durable is not known.
        """
        try:
            self._tree.sync_all()
        except OSError as error:
            raise SyncFailedError(*error.args) from error

    def remove_file(self, number: int) -> None:
        """Lets a file go whose rounds all stand in their places; those before it must have gone.

        Raises:
            SyncFailedError: whether it is gone is not known.
        """
        self._filesystem.remove(f"{self._directory}/{print_journal_name(number)}")
        sync_names(self._filesystem, self._directory)

    def _begin_file(self) -> None:
        path = f"{self._directory}/{print_journal_name(self._number)}"
        header = FileHeader(self._number, self._sequence, salt=secrets.randbits(32))
        file = self._filesystem.open(path, create=True, exclusive=True)
        try:
            file.write_at((encode_file_header(header),), 0)
        except OSError:
            self._number += 1  # should this file stay, its name is taken; nobody misses it
            self._filesystem.remove(path)
            raise
        JOURNAL_AFTER_CREATE.reach()
        sync_file(file)
        sync_names(self._filesystem, self._directory)
        self._file, self._salt, self._size_bytes = file, header.salt, HEADER_BYTES

    def _cut_off(self, file: File) -> None:
        try:
            file.truncate(self._size_bytes)
        except OSError as error:
            raise SyncFailedError(*error.args) from error
