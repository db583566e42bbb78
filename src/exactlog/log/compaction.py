"""Compacting the partitions of a data directory that no broker runs on.

Whoever compacts holds the lock of the directory, for as long as a `CompactionRun` lasts; a partition of it may then be
compacted here or in any other process. Each partition is done by itself: a crash leaves it as it was, or compacted.
"""

import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import UUID

from msgspec import Struct

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.deltalog.append_terms import Unavailable
from exactlog.core.deltalog.log_path import DELTA_LOG_DIRECTORY, parse_partition_directory_name
from exactlog.core.deltalog.table_state import TableSnapshot
from exactlog.core.model.clock import Clock
from exactlog.core.model.errors import ConfigError, ExactlogError, NotFoundError, UnavailableError
from exactlog.core.model.ids import LeaderEpoch, TopicPartition
from exactlog.core.model.limits import COMPACTION_KEYS_MAX, OPEN_FILES_MAX
from exactlog.core.model.metrics import Registry
from exactlog.core.model.topic_name import is_internal
from exactlog.log.inline_background import InlineBackground
from exactlog.log.partition_hold import DirectoryHolder, PartitionHold, holder_of
from exactlog.log.table_place import DEFAULTS, TablePlace, place_of_table, read_catalog
from exactlog.log.table_writer import Ownership, TableWriter
from exactlog.node.clock import SystemClock
from exactlog.storage.compaction import Compaction, CompactionRules
from exactlog.storage.directory_lock import DirectoryLock
from exactlog.storage.files_engine import FilesEngine
from exactlog.storage.filesystem import Filesystem, OsFilesystem
from exactlog.storage.journal_redo import JournaledTail, RedoneJournal, redo_journal
from exactlog.storage.open_files import OpenFiles
from exactlog.storage.overlay_filesystem import OverlayFilesystem
from exactlog.storage.partition_log import PartitionLog
from exactlog.storage.partition_store import NodeSettings, PartitionStore
from exactlog.storage.segment import SegmentFiles
from exactlog.storage.settings import FlushMode
from exactlog.storage.table_reader import TableReader, find_tables

_COMPACT = "compact"


class CompactionPlace(Struct, frozen=True):
    """One partition to be compacted, and all that another process needs to open it.

    Attributes:
        root: the data directory.
        name: of the partition's directory.
        topic, partition, topic_id, config: as the catalog says, or the table itself.
        leader_epoch: of this run.
        node_id: whose the versions are.
        boot_epoch: see `note_boot`.
        tail: what a commit journal has of it.
        is_trial: whether nothing is to be changed.
        holder: who has the lock of the data directory; None where there is no lock.
    """

    root: str
    name: str
    topic: str
    partition: int
    topic_id: UUID
    config: TopicConfig
    leader_epoch: int
    node_id: int
    boot_epoch: LeaderEpoch | None
    tail: JournaledTail
    is_trial: bool
    holder: DirectoryHolder | None = None


class CompactedPartition(Struct, frozen=True, kw_only=True):
    """What became of one partition, or would.

    Attributes:
        version: the newest delta version afterwards.
        segments_before, segments, bytes_before, bytes: how many there were, and are in the table now.
        records_removed: how many records went, transaction markers among them.
        passes: how often the log was gone through; see `KeyOffsets`.
        is_dry_run: whether nothing was changed.
    """

    topic: str
    partition: int
    version: int
    segments_before: int
    segments: int
    bytes_before: int
    bytes: int
    records_removed: int
    passes: int
    is_dry_run: bool


class CompactionRun:
    """Holds a data directory while partitions of it are compacted; a context.

    Args:
        root: the data directory, or the one that the partition is in.
        names: the directories of partitions to look at.
        topics: whose partitions are compacted; all whose `cleanup.policy` has `compact` by default.
        is_dry_run: whether nothing is to be changed.
        filesystem: None for the operating system's. On any other one no lock is taken, and no catalog looked for.

    Attributes:
        places: the partitions to compact.

    Raises:
        DirectoryLockedError: a broker, or another process, has it.
        NotFoundError: there is no such topic.
        ConfigError: a topic that was named is not one to be compacted.
        DamageError: the catalog cannot be read, or a broker's commit journal.
    """

    def __init__(
        self,
        root: str,
        names: Sequence[str],
        *,
        topics: Collection[str] = (),
        is_dry_run: bool = False,
        filesystem: Filesystem | None = None,
    ) -> None:
        self._filesystem = OsFilesystem() if filesystem is None else filesystem
        self._lock = DirectoryLock(root) if filesystem is None else None
        try:
            self._catalog = read_catalog(root, is_trial=is_dry_run) if filesystem is None else None
            journal = RedoneJournal() if is_dry_run else redo_journal(self._filesystem, root)
            found = {name: self._place_of(root, name) for name in names if self._is_known(name)}
            _refuse_others(found.values(), topics)
            self.places = [
                self._to_compact(root, name, place, journal, is_dry_run=is_dry_run)
                for name, place in found.items()
                if _is_compacted(place) and (not topics or place.topic_partition.topic in topics)
            ]
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of the directory."""
        if self._lock is not None:
            self._lock.release()

    def _is_known(self, name: str) -> bool:
        """Whether a broker would serve it; others are left alone."""
        parsed = parse_partition_directory_name(name)
        if parsed is None or self._catalog is None:
            return parsed is not None
        try:
            self._catalog.place_of(name)
        except NotFoundError:
            return False
        return True

    def _place_of(self, root: str, name: str) -> TablePlace:
        if self._catalog is not None:
            return self._catalog.place_of(name)
        return place_of_table(name, TableReader(self._filesystem, f"{root}/{name}").snapshot())

    def _to_compact(
        self, root: str, name: str, place: TablePlace, journal: RedoneJournal, *, is_dry_run: bool
    ) -> CompactionPlace:
        catalog = self._catalog
        return CompactionPlace(
            root=root,
            name=name,
            topic=place.topic_partition.topic,
            partition=place.topic_partition.partition,
            topic_id=place.topic_id,
            config=place.config,
            leader_epoch=place.leader_epoch,
            node_id=DEFAULTS.node_id if catalog is None else catalog.node_id,
            boot_epoch=None if catalog is None else catalog.boot_epoch,
            tail=journal.tails.get(name, JournaledTail()),
            is_trial=is_dry_run,
            holder=None if self._lock is None else holder_of(root),
        )


def compact_partition(
    place: CompactionPlace,
    *,
    keys_max: int = COMPACTION_KEYS_MAX,
    filesystem: Filesystem | None = None,
    clock: Clock | None = None,
) -> CompactedPartition:
    """Compacts one partition while somebody holds its directory; blocks.

    Args:
        place: of a `CompactionRun` that lasts.
        keys_max: how many keys are known at a time.
        filesystem: None for the operating system's.
        clock: None for the operating system's.

    Raises:
        DamageError: it cannot be opened, or its bytes are not what was written; it is as it was.
        UnavailableError: the disk refuses, somebody else compacts it, or the directory is held by somebody else by now;
            it is as it was, or as an earlier pass left it.
        PartitionStoppedError: a sync failed.
    """
    disk = OsFilesystem() if filesystem is None else filesystem
    clock = SystemClock() if clock is None else clock
    if place.is_trial:
        disk = OverlayFilesystem(disk)
        return _Opened(disk, place, redo_journal(disk, place.root), clock).compact(keys_max)
    journal = RedoneJournal(tails={place.name: place.tail})
    if place.holder is None:
        return _Opened(disk, place, journal, clock).compact(keys_max)
    try:
        with PartitionHold(place.root, place.name, place.holder) as hold:
            hold.check()
            return _Opened(disk, place, journal, clock).compact(keys_max, check=hold.check)
    except FileNotFoundError as error:
        raise NotFoundError(
            f"{error.filename} is not there", hint="all machines of a cluster must have the data directory mounted"
        ) from error


def compact_topics(
    path: str | Path, *, topics: Collection[str] = (), dry_run: bool = False
) -> tuple[CompactedPartition, ...]:
    """Compacts topics by key whose `cleanup.policy` has `compact`: of a data directory, or one partition of it.

    Args:
        path: no broker may be running on it.
        topics: whose partitions; all that are to be compacted by default.
        dry_run: only say what would be done.

    Raises:
        NotFoundError, DirectoryLockedError, ConfigError: as `CompactionRun`; nothing was done.
        DamageError, UnavailableError, PartitionStoppedError: the first partition that could not be compacted; the
            others were.
    """
    root, names = partitions_at(Path(path))
    done, failure = list[CompactedPartition](), None
    with CompactionRun(root, names, topics=topics, is_dry_run=dry_run) as run:
        for place in run.places:
            try:
                done.append(compact_partition(place))
            except ExactlogError as error:
                failure = failure or error
    if failure is not None:
        raise failure
    return tuple(done)


def partitions_at(path: Path) -> tuple[str, list[str]]:
    """The data directory that is meant, and the names of the partitions to look at: all, or the one at the path.

    Raises:
        NotFoundError: there is none.
    """
    place = path.resolve()
    is_partition = (place / DELTA_LOG_DIRECTORY).is_dir() or parse_partition_directory_name(place.name) is not None
    names = [place.name] if is_partition else [table.name for table in find_tables(place)] if place.is_dir() else []
    if not names or not place.is_dir():
        raise NotFoundError(
            f"{path} is no partition and no data directory",
            hint="A partition directory is named topic=NAME-part=N; a data directory holds some of them.",
        )
    return os.fspath(place.parent if is_partition else place), names


class _Opened:
    """One partition, opened by itself."""

    def __init__(self, filesystem: Filesystem, place: CompactionPlace, journal: RedoneJournal, clock: Clock) -> None:
        self._filesystem = filesystem
        self._place = place
        self._ownership = Ownership(place.root)
        self._clock = clock
        self._open_files = OpenFiles(filesystem, files_max=OPEN_FILES_MAX)
        self._engine = FilesEngine(filesystem, self._open_files)
        store = PartitionStore(
            filesystem,
            place.root,
            open_files=self._open_files,
            clock=self._clock,
            settings=NodeSettings(
                node_id=place.node_id,
                leader_epoch=place.leader_epoch,
                flush_mode=FlushMode.COMMIT,
                checkpoint_interval=DEFAULTS.delta_checkpoint_interval,
                checkpoint_min_interval_ms=DEFAULTS.delta_checkpoint_min_interval_ms,
                versions_keep=DEFAULTS.delta_versions_keep,
                boot_epoch=place.boot_epoch,
            ),
            background=InlineBackground(on_sync_failed=self._ownership.fail),
            mark_dirty=_note_nothing,
            metrics=Registry(),
            journal=journal,
        )
        try:
            log = store.open(TopicPartition(place.topic, place.partition), place.topic_id, place.config)
        except BaseException:
            self._engine.close()
            raise
        self._writer = TableWriter(
            log,
            place.config,
            ownership=self._ownership,
            engine=self._engine,
            open_files=self._open_files,
            clock=self._clock,
        )

    def compact(self, keys_max: int, *, check: Callable[[], None] = lambda: None) -> CompactedPartition:
        """Compacts it; `check` raises where nothing may be published any more."""
        place, config = self._place, self._place.config
        files = SegmentFiles(self._filesystem, self._open_files, index_interval_bytes=config.index_interval_bytes)
        rules = CompactionRules(
            now_ms=self._clock.now_ms(),
            delete_retention_ms=config.delete_retention_ms,
            min_lag_ms=config.min_compaction_lag_ms,
            segment_bytes=config.segment_bytes,
            keys_max=keys_max,
        )
        try:
            before = self._writer.snapshot()
            compaction = Compaction(self._filesystem, files, f"{place.root}/{place.name}", rules)
            outcome = self._writer.compact(compaction, check=check)
        finally:
            self._writer.close()
            self._engine.close()
        if isinstance(outcome, Unavailable):
            raise UnavailableError(outcome.reason, hint="it is as it was: see to the disk, then run it again")
        after = outcome.table
        return CompactedPartition(
            topic=place.topic,
            partition=place.partition,
            version=before.version if place.is_trial else after.version,
            segments_before=len(before.segments),
            segments=len(after.segments),
            bytes_before=_size_of(before),
            bytes=_size_of(after),
            records_removed=outcome.records_removed,
            passes=outcome.passes,
            is_dry_run=place.is_trial,
        )


def _is_compacted(place: TablePlace) -> bool:
    """Whether it is compacted by key: what coordinators keep is kept small by themselves."""
    return _COMPACT in place.config.cleanup_policy and not is_internal(place.topic_partition.topic)


def _refuse_others(places: Collection[TablePlace], topics: Collection[str]) -> None:
    by_topic = {place.topic_partition.topic: place for place in places}
    for topic in sorted(topics):
        place = by_topic.get(topic)
        if place is None:
            raise NotFoundError(f"there is no topic {topic} here")
        if not _is_compacted(place):
            policy = ",".join(place.config.cleanup_policy)
            raise ConfigError(
                f"topic {topic} is not compacted: its cleanup.policy is {policy}",
                hint=f"`exactlog topic alter {topic} -c cleanup.policy=compact`, while its broker runs",
            )


def _size_of(table: TableSnapshot) -> int:
    return sum(segment.size for segment in table.segments)


def _note_nothing(partition: PartitionLog, size_bytes: int) -> None:
    """Nobody collects partitions for a round: whoever compacts carries it out."""
