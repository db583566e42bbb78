"""The durability engine on plain files ("level 1").

For each partition, in this order: write the bytes, sync them (and the directory, when a segment is new), then for each
delta commit write its document aside, sync it, link it to its name and sync the directory. A crash between any two
steps leaves either bytes that no document names, which recovery cuts off, or a published version; never half of one.

A round that is not durable and yet publishes what it writes (appends on terms in `interval` and `none`) writes its
documents aside first, then the bytes, then gives the documents their names: there recovery adopts bytes without a name,
and the document aside tells it whose they are.

Partitions are independent of each other. In a round that is synced they are worked on side by side: file systems merge
syncs that run in parallel. In one that is not they are written one after the other, in their order; what is tied is not
written where a leading part before it could not be.
"""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from exactlog.storage.fault_points import (
    ROUND_AFTER_DIRECTORY_SYNC,
    ROUND_AFTER_SEGMENT_SYNC,
)
from exactlog.storage.filesystem import Filesystem
from exactlog.storage.open_files import OpenFiles
from exactlog.storage.round import (
    CommitWrite,
    PartitionWrite,
    StorageRefused,
    Stored,
    SyncFailed,
    WriteOutcome,
)
from exactlog.storage.round_files import RoundFiles, delta_log_of
from exactlog.storage.whole_files import SyncFailedError, publish_aside, write_aside

_THREADS = 8  # parallel syncs beyond this no longer merge into fewer device flushes


class FilesEngine:
    """Carries rounds out with writes, syncs and links."""

    is_atomic_across_partitions = False

    def __init__(self, filesystem: Filesystem, open_files: OpenFiles) -> None:
        self._filesystem = filesystem
        self._open_files = open_files
        self._files = RoundFiles(filesystem, open_files)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="exactlog-sync")
        self._sync_seconds: list[float] = []

    def close(self) -> None:
        """Waits for the threads to end."""
        self._threads.shutdown()

    def take_sync_seconds(self) -> list[float]:
        taken, self._sync_seconds = self._sync_seconds, []
        return taken

    def commit(self, writes: Sequence[PartitionWrite]) -> list[WriteOutcome]:
        if len(writes) > 1 and any(write.durable for write in writes):
            return list(self._threads.map(self._commit_partition, writes))
        return self._commit_in_order(writes)

    def _commit_in_order(self, writes: Sequence[PartitionWrite]) -> list[WriteOutcome]:
        outcomes: list[WriteOutcome] = []
        missing: PartitionWrite | None = None
        for write in writes:
            if missing is not None and write.is_tied and not write.is_leading:
                outcomes.append(StorageRefused(f"{write.name}: {missing.name}, on which it rests, was not stored", 0))
                continue
            outcome = self._commit_partition(write)
            if write.is_leading and not isinstance(outcome, Stored):
                missing = write
            outcomes.append(outcome)
        return outcomes

    def _commit_partition(self, write: PartitionWrite) -> WriteOutcome:
        delta_log = delta_log_of(write)
        is_aside = not write.durable and any(group.commit and group.segments for group in write.groups)
        try:
            for group in write.groups:
                if is_aside and group.commit is not None:
                    write_aside(self._filesystem, delta_log, group.commit.name, group.commit.content, durable=False)
            self._files.write_bytes(write)
        except OSError as error:
            return self._refuse(write, groups_stored=0, error=error)
        if write.durable:
            try:
                self._sync_bytes(write)
            except OSError as error:
                return SyncFailed(f"{write.name}: {error}")
        for position, group in enumerate(write.groups):
            if group.commit is not None:
                outcome = self._publish(write, group.commit, groups_before=position, is_aside=is_aside)
                if outcome is not None:
                    return outcome
        return Stored()

    def _sync_bytes(self, write: PartitionWrite) -> None:
        segments = [segment for group in write.groups for segment in group.segments]
        for path in {segment.path: None for segment in segments}:
            file = self._open_files.get(path)
            began = time.perf_counter()
            file.sync_data()
            self._sync_seconds.append(time.perf_counter() - began)
        ROUND_AFTER_SEGMENT_SYNC.reach()
        if any(segment.is_new for segment in segments):
            self._filesystem.sync_directory(write.directory)
            ROUND_AFTER_DIRECTORY_SYNC.reach()

    def _publish(
        self, write: PartitionWrite, commit: CommitWrite, *, groups_before: int, is_aside: bool
    ) -> WriteOutcome | None:
        directory = delta_log_of(write)
        try:
            if not is_aside:
                write_aside(self._filesystem, directory, commit.name, commit.content, durable=write.durable)
            publish_aside(self._filesystem, directory, commit.name, durable=write.durable)
        except FileExistsError:
            return self._files.judge_rival(write, commit)
        except SyncFailedError as error:
            return SyncFailed(f"{write.name}, version {commit.version}: {error}")
        except OSError as error:
            return self._refuse(write, groups_stored=groups_before, error=error)
        return None

    def _refuse(self, write: PartitionWrite, *, groups_stored: int, error: OSError) -> WriteOutcome:
        try:
            self._files.take_back(write, write.groups[groups_stored:])
        except OSError as second:
            return SyncFailed(f"{write.name}: cutting off a refused write failed: {second} (after {error})")
        return StorageRefused(f"{write.name}: {error}", groups_stored)
