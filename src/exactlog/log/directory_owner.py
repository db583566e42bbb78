"""Who owns a data directory: one process at a time, and within it everybody who has opened one of its partitions.

The lock is taken with the first partition that a process opens for writing, and let go of with the last that it closes.
Handles on one partition share its log: each has a claim on it. A handle that is dropped takes its claim with it.

What a broker has left in a commit journal is put back in its place first; the journal stays for its next start.
"""

import os
import threading
import uuid
from typing import Final
from weakref import WeakSet, WeakValueDictionary

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.model.ids import TopicPartition
from exactlog.core.model.limits import OPEN_FILES_MAX
from exactlog.core.model.metrics import Registry
from exactlog.core.model.topic_name import reason_name_is_invalid
from exactlog.log.errors import InvalidArgumentError
from exactlog.log.inline_background import InlineBackground
from exactlog.log.table_place import DEFAULTS, parse_directory_name, place_of_table, read_catalog
from exactlog.log.table_writer import Ownership, TableWriter
from exactlog.node.clock import SystemClock
from exactlog.storage.directory_lock import DirectoryLock
from exactlog.storage.files_engine import FilesEngine
from exactlog.storage.filesystem import Filesystem, OsFilesystem
from exactlog.storage.journal_redo import redo_journal
from exactlog.storage.open_files import OpenFiles
from exactlog.storage.partition_log import PartitionLog
from exactlog.storage.partition_store import NodeSettings, PartitionStore
from exactlog.storage.settings import FlushMode
from exactlog.storage.table_reader import TableReader

_FIRST_EPOCH: Final = 0


class Claim:
    """One handle's hold on a partition, and through it on the data directory, until `let_go`, or until it is dropped.

    Attributes:
        writer: of the partition.
    """

    def __init__(self, owner: "DirectoryOwner", name: str, writer: TableWriter) -> None:
        self.writer = writer
        self._owner = owner
        self._name = name

    def let_go(self) -> None:
        """Ends it. The last one of a partition closes that, the last one of a data directory unlocks it."""
        with _owned.lock:
            if self._owner.ownership.is_ours:
                self._owner.drop(self._name, self)


class DirectoryOwner:
    """This process's hold on one data directory, and the partitions of it that are open for writing.

    Args:
        root: the data directory; made if it is missing.
        filesystem: None for the operating system's. Nobody else is on any other one: no lock is taken there, and no
            catalog looked for.

    Raises:
        DirectoryLockedError: another process owns it.
        DamageError: its catalog cannot be read, or a broker's commit journal.
    """

    def __init__(self, root: str, filesystem: Filesystem | None) -> None:
        self.ownership = Ownership(root)
        self._root = root
        self._filesystem = OsFilesystem() if filesystem is None else filesystem
        self._clock = SystemClock()
        self._writers: dict[str, tuple[TableWriter, WeakSet[Claim]]] = {}
        _make_directories_durably(self._filesystem, root)
        self._lock = DirectoryLock(root) if filesystem is None else None
        try:
            self._catalog = read_catalog(root) if filesystem is None else None
            self._journal = redo_journal(self._filesystem, root)
        except BaseException:
            self._unlock()  # now: whoever keeps the error keeps this object too
            raise
        self._open_files = OpenFiles(self._filesystem, files_max=OPEN_FILES_MAX)
        self._engine = FilesEngine(self._filesystem, self._open_files)

    def claim(self, name: str) -> Claim:
        """A hold on the partition in the directory of that name, which is opened, or made, if it must be.

        Raises:
            InvalidArgumentError, NotFoundError: no partition can have that name here.
            DamageError: it cannot be opened without losing what was acknowledged.
            PartitionStoppedError: a sync failed in this data directory.
        """
        try:
            self.ownership.check()
            self._close_dropped()
            if name not in self._writers:
                self._writers[name] = self._open(name), WeakSet()
            writer, claims = self._writers[name]
            claim = Claim(self, name, writer)
            claims.add(claim)
            return claim
        finally:
            self._close_if_unused()

    def drop(self, name: str, claim: Claim) -> None:
        """Ends a claim."""
        self._writers[name][1].discard(claim)
        self._close_dropped()
        self._close_if_unused()

    def _close_dropped(self) -> None:
        for name, (writer, claims) in list(self._writers.items()):
            if not claims:
                writer.close()
                del self._writers[name]

    def _close_if_unused(self) -> None:
        if not self._writers:
            self._engine.close()
            self._unlock()
            _owned.forget(self)

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def _open(self, name: str) -> TableWriter:
        if self._catalog is not None:
            place = self._catalog.place_of(name)
        else:
            directory = f"{self._root}/{name}"
            if not (self._filesystem.exists(directory) and self._filesystem.list_names(directory)):
                self._create(name)
            place = place_of_table(name, TableReader(self._filesystem, directory).snapshot())
        log = self._store(place.leader_epoch).open(place.topic_partition, place.topic_id, place.config)
        return TableWriter(
            log,
            place.config,
            ownership=self.ownership,
            engine=self._engine,
            open_files=self._open_files,
            clock=self._clock,
        )

    def _create(self, name: str) -> None:
        parsed = parse_directory_name(name)
        if parsed.topic is None:
            raise InvalidArgumentError(
                f"{name} cannot be made: it holds only a part of the topic's name",
                hint="use a topic name of at most 200 characters",
            )
        fault = reason_name_is_invalid(parsed.topic)
        if fault is not None:
            raise InvalidArgumentError(f"{name} cannot be made: the topic name is invalid: {fault}")
        store = self._store(_FIRST_EPOCH)
        store.prepare()
        topic_partition = TopicPartition(parsed.topic, parsed.partition)
        store.create(topic_partition, uuid.uuid4(), config=TopicConfig(), created_ms=self._clock.now_ms())
        store.sync_root()

    def _store(self, leader_epoch: int) -> PartitionStore:
        return PartitionStore(
            self._filesystem,
            self._root,
            open_files=self._open_files,
            clock=self._clock,
            settings=NodeSettings(
                node_id=DEFAULTS.node_id if self._catalog is None else self._catalog.node_id,
                leader_epoch=leader_epoch,
                flush_mode=FlushMode.COMMIT,
                checkpoint_interval=DEFAULTS.delta_checkpoint_interval,
                checkpoint_min_interval_ms=DEFAULTS.delta_checkpoint_min_interval_ms,
                versions_keep=DEFAULTS.delta_versions_keep,
                boot_epoch=None if self._catalog is None else self._catalog.boot_epoch,
            ),
            background=InlineBackground(on_sync_failed=self.ownership.fail),
            mark_dirty=_note_nothing,
            metrics=Registry(),
            journal=self._journal,
        )


class _Owned:
    """The data directories that this process owns."""

    def __init__(self) -> None:
        self.forget_all()

    def forget_all(self) -> None:
        """Owns nothing: as a fork does, whatever its parent owns."""
        self.lock = threading.Lock()
        self._owners: WeakValueDictionary[tuple[int, str], DirectoryOwner] = WeakValueDictionary()

    def owner_of(self, root: str, filesystem: Filesystem | None) -> DirectoryOwner:
        """The owner of a data directory, which is from now on this process."""
        key = (id(filesystem), root)
        owner = self._owners.get(key)
        if owner is None:
            owner = self._owners[key] = DirectoryOwner(root, filesystem)
        return owner

    def forget(self, owner: DirectoryOwner) -> None:
        """A data directory is not owned any more."""
        for key in [key for key, known in self._owners.items() if known is owner]:
            del self._owners[key]


_owned = _Owned()
os.register_at_fork(after_in_child=_owned.forget_all)


def claim_partition(root: str, name: str, filesystem: Filesystem | None) -> Claim:
    """A hold on a partition of a data directory; raises as `DirectoryOwner` and its `claim` do."""
    with _owned.lock:
        return _owned.owner_of(root, filesystem).claim(name)


def _note_nothing(partition: PartitionLog, size_bytes: int) -> None:
    """Nobody collects partitions for a round: whoever appends carries it out."""


def _make_directories_durably(filesystem: Filesystem, path: str) -> None:
    """Makes a directory and its parents, so that none of their names can be lost."""
    missing = []
    while not filesystem.exists(path):
        missing.append(path)
        path = path.rpartition("/")[0] or "/"
    for directory in reversed(missing):
        filesystem.make_directories(directory)
        filesystem.sync_directory(directory.rpartition("/")[0] or "/")
