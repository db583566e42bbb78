"""What an engine does with the files of a partition: bytes into segments, documents under their names, and back."""

from collections.abc import Sequence

from exactlog.core.deltalog.commit_format import decode_commit
from exactlog.core.deltalog.log_path import DELTA_LOG_DIRECTORY
from exactlog.core.model.errors import DamageError
from exactlog.storage.fault_points import ROUND_AFTER_SEGMENT_WRITE, ROUND_BEFORE_WRITE
from exactlog.storage.filesystem import Buffer, Filesystem
from exactlog.storage.open_files import OpenFiles
from exactlog.storage.round import CommitWrite, ForeignVersion, GroupWrite, PartitionWrite, SegmentWrite
from exactlog.storage.whole_files import remove_aside


class RoundFiles:
    """The files that rounds write to; blocking."""

    def __init__(self, filesystem: Filesystem, open_files: OpenFiles) -> None:
        self._filesystem = filesystem
        self._open_files = open_files

    def write_bytes(self, write: PartitionWrite) -> None:
        """Writes the bytes of all groups: one system call for each run of contiguous bytes.

        Raises:
            OSError: they were not written, or not all of them.
        """
        ROUND_BEFORE_WRITE.reach()
        path, position, end = "", 0, 0
        buffers: list[Buffer] = []
        for group in write.groups:
            for segment in group.segments:
                if not segment.buffers:  # only to be synced
                    continue
                if segment.path != path or segment.position != end:
                    if buffers:
                        self._open_files.get(path).write_at(buffers, position)
                    path, position, end, buffers = segment.path, segment.position, segment.position, []
                    if segment.is_new:
                        self._open_files.get(path, create=True)
                buffers = buffers + segment.buffers if buffers else segment.buffers
                end += sum(map(len, segment.buffers))
        if buffers:
            self._open_files.get(path).write_at(buffers, position)
        ROUND_AFTER_SEGMENT_WRITE.reach()

    def take_back(self, write: PartitionWrite, groups: Sequence[GroupWrite]) -> None:
        """Cuts the bytes of groups off again, and removes their documents that have no name yet.

        Raises:
            OSError: something of it may still be there.
        """
        self._cut_off(groups)
        for group in groups:
            if group.commit is not None:
                remove_aside(self._filesystem, delta_log_of(write), group.commit.name)

    def judge_rival(self, write: PartitionWrite, commit: CommitWrite) -> ForeignVersion | None:
        """The name of a document is taken: by our own earlier success (None), or by a stranger."""
        path = f"{delta_log_of(write)}/{commit.name}"
        try:
            rival = decode_commit(self._filesystem.read_file(path), path_hint=path).commit
        except (DamageError, OSError) as error:
            return ForeignVersion(commit.version, commit.txn_id, "unreadable", str(error))
        if rival.txn_id == commit.txn_id:
            return None
        return ForeignVersion(commit.version, commit.txn_id, rival.txn_id, f"{path} exists")

    def _cut_off(self, groups: Sequence[GroupWrite]) -> None:
        firsts: dict[str, SegmentWrite] = {}
        for group in groups:
            for segment in group.segments:
                firsts.setdefault(segment.path, segment)
        for path, first in firsts.items():
            if not self._filesystem.exists(path):
                continue
            if first.is_new:
                self._open_files.forget(path)
                self._filesystem.remove(path)
            else:
                self._open_files.get(path).truncate(first.position)


def delta_log_of(write: PartitionWrite) -> str:
    """Where the documents of a partition go."""
    return f"{write.directory}/{DELTA_LOG_DIRECTORY}"
