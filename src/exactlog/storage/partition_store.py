"""The partitions of one data directory: made, opened, taken away.

A partition is made under `.creating/` and renamed when it is whole, and renamed to `.deleted/` before its files go: a
name in the data directory is always a whole partition. Everything here blocks; call it from a thread.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.deltalog.commit_format import FORMAT_VERSION, TableMetadata
from exactlog.core.deltalog.log_path import (
    CREATING_DIRECTORY,
    DELETED_DIRECTORY,
    DELTA_LOG_DIRECTORY,
    print_partition_directory_name,
)
from exactlog.core.deltalog.table_state import TableState
from exactlog.core.deltalog.timestamps import format_timestamp
from exactlog.core.deltalog.version_cleanup import PACK_VERSIONS
from exactlog.core.model.clock import Clock
from exactlog.core.model.errors import DamageError
from exactlog.core.model.ids import LeaderEpoch, TimestampMs, TopicPartition
from exactlog.core.model.metrics import Registry
from exactlog.storage.background import Background
from exactlog.storage.checkpointer import Checkpointer
from exactlog.storage.committed_log import OpenedLog
from exactlog.storage.delta_head import NO_CHANGE, DeltaHead
from exactlog.storage.fault_points import (
    CREATE_AFTER_RENAME,
    CREATE_BEFORE_RENAME,
    DELETE_AFTER_RENAME,
    DELETE_BEFORE_FILES,
    DELETE_BEFORE_RENAME,
    RECOVERY_BEFORE_PUBLISH,
)
from exactlog.storage.filesystem import Filesystem
from exactlog.storage.group import Group
from exactlog.storage.journal_redo import JournaledTail, RedoneJournal
from exactlog.storage.log_recovery import RecoveredLog, recover
from exactlog.storage.open_files import OpenFiles
from exactlog.storage.packing import PackingProgress
from exactlog.storage.partition_log import PartitionLog
from exactlog.storage.pending_versions import TableChange
from exactlog.storage.segment import SegmentFiles
from exactlog.storage.settings import FLUSH_MODE_KEY, FlushMode, LogSettings, recorded_flush_mode
from exactlog.storage.table_owner import find_owner
from exactlog.storage.whole_files import publish_new, remove_tree

_logger = logging.getLogger(__name__)


class NodeSettings(Struct, frozen=True):
    """What all partitions of a node have in common."""

    node_id: int
    leader_epoch: int
    flush_mode: FlushMode
    checkpoint_interval: int
    checkpoint_min_interval_ms: int
    versions_keep: int = 1000
    pack_versions: int = PACK_VERSIONS
    is_journaled: bool = False
    """Whether rounds go through a commit journal (`commit.engine`)."""
    boot_epoch: LeaderEpoch | None = None
    """The leader epoch of the first start since the machine was started: what was written under it or a later one is
    there, synced or not. None if that is not known."""


class PartitionStore:
    """Makes, opens and removes the partition directories below `root`."""

    def __init__(
        self,
        filesystem: Filesystem,
        root: str,
        *,
        open_files: OpenFiles,
        clock: Clock,
        settings: NodeSettings,
        background: Background,
        mark_dirty: Callable[[PartitionLog, int], None],
        metrics: Registry,
        journal: RedoneJournal | None = None,
    ) -> None:
        self._journaled = {} if journal is None else journal.tails
        self._filesystem = filesystem
        self._root = root
        self._open_files = open_files
        self._clock = clock
        self._settings = settings
        self._background = background
        self._mark_dirty = mark_dirty
        self._replayed = metrics.counter(
            "exactlog_recovery_versions_replayed_total", "Delta commits replayed when partitions were opened."
        )
        self._conflicts = metrics.counter(
            "exactlog_delta_conflicts_total", "Appends refused since what they expected was no longer so."
        )

    def prepare(self) -> list[str]:
        """Makes the data directory and removes what a crash left half made.

        Returns:
            the directories of partitions that were taken away and still have their files, for `remove_deleted`.
        """
        for name in (CREATING_DIRECTORY, DELETED_DIRECTORY):
            self._filesystem.make_directories(f"{self._root}/{name}")
        self.sync_root()
        with suppress(PermissionError):  # what may not be read is not where a new name was just put
            self._filesystem.sync_directory(self._root.rpartition("/")[0] or "/")  # the root's own name
        creating, deleted = f"{self._root}/{CREATING_DIRECTORY}", f"{self._root}/{DELETED_DIRECTORY}"
        for leftover in self._filesystem.list_names(creating):
            remove_tree(self._filesystem, f"{creating}/{leftover}")
        return [f"{deleted}/{name}" for name in self._filesystem.list_names(deleted)]

    def create(self, topic_partition: TopicPartition, topic_id: UUID, *, config: TopicConfig, created_ms: int) -> None:
        """Makes a partition with version 0; durable once `sync_root` has returned."""
        name = print_partition_directory_name(topic_partition.topic, topic_partition.partition)
        made = f"{self._root}/{CREATING_DIRECTORY}/{name}"
        delta_log = f"{made}/{DELTA_LOG_DIRECTORY}"
        self._filesystem.make_directories(delta_log)
        settings = self._log_settings(config)
        created = format_timestamp(TimestampMs(created_ms))
        metadata = TableMetadata(
            topic=topic_partition.topic,
            partition=topic_partition.partition,
            topic_id=topic_id,
            created=created,
            format_version=FORMAT_VERSION,
            config={**settings.topic_config, FLUSH_MODE_KEY: settings.flush_mode},
        )
        head = DeltaHead(TableState(table=str(topic_partition)), settings)
        write, _ = head.close([], data_crc=0, now_ms=created_ms, change=TableChange(metadata=metadata))
        publish_new(self._filesystem, delta_log, write.name, write.content, durable=True)
        self._filesystem.sync_directory(made)
        CREATE_BEFORE_RENAME.reach()
        self._filesystem.rename(made, f"{self._root}/{name}")
        CREATE_AFTER_RENAME.reach()

    def sync_root(self) -> None:
        """Makes the names of the partitions durable."""
        self._filesystem.sync_directory(self._root)

    def remove(self, topic_partition: TopicPartition, topic_id: UUID) -> str | None:
        """Takes a partition away; one that is not there is fine, and one of another topic of that name stays.

        Returns:
            the directory that its files are in until `remove_deleted`; None when there are none.
        """
        name = print_partition_directory_name(topic_partition.topic, topic_partition.partition)
        directory = f"{self._root}/{name}"
        made = f"{self._root}/{CREATING_DIRECTORY}/{name}"
        if self._filesystem.exists(made):
            remove_tree(self._filesystem, made)
        if not self._filesystem.exists(directory):
            return None
        owner = find_owner(self._filesystem, directory)
        if owner is not None and owner != topic_id:
            _logger.warning("%s stays: it belongs to topic id %s, not to %s", directory, owner, topic_id)
            return None
        self._journaled.pop(name, None)
        self._open_files.forget_directory(directory)
        deleted = f"{self._root}/{DELETED_DIRECTORY}/{topic_id}-{topic_partition.partition}"
        DELETE_BEFORE_RENAME.reach()
        self._filesystem.rename(directory, deleted)
        DELETE_AFTER_RENAME.reach()
        self.sync_root()
        return deleted

    def remove_deleted(self, directory: str) -> None:
        """Lets the files of a partition go that was taken away; one that is gone is fine."""
        DELETE_BEFORE_FILES.reach()
        if self._filesystem.exists(directory):
            self._open_files.forget_directory(directory)
            remove_tree(self._filesystem, directory)

    def open(self, topic_partition: TopicPartition, topic_id: UUID, config: TopicConfig) -> PartitionLog:
        """Opens a partition, recovering it if it must be.

        Raises:
            DamageError: it cannot be opened without losing what was acknowledged, or it belongs to another topic.
            OSError: a file could not be read or written.
        """
        name = print_partition_directory_name(topic_partition.topic, topic_partition.partition)
        directory = f"{self._root}/{name}"
        settings = self._log_settings(config)
        tail = self._journaled.get(name, JournaledTail())
        if tail.damage is not None:
            raise DamageError(f"{topic_partition}: {tail.damage}", hint="restore the file from a copy")
        files = SegmentFiles(self._filesystem, self._open_files, index_interval_bytes=config.index_interval_bytes)
        boot_epoch = self._settings.boot_epoch
        log = recover(
            self._filesystem,
            files,
            directory,
            name=str(topic_partition),
            boot_epoch=boot_epoch,
            journaled=tail.ends,
        )
        metadata = _check_belongs(
            log, f"{topic_partition}: {directory}", topic_id=topic_id, leader_epoch=settings.leader_epoch
        )
        _settle(self._filesystem, directory, log, settings, metadata, now_ms=self._clock.now_ms())
        self._journaled.pop(name, None)
        self._replayed.inc(log.replayed_versions)
        background = self._background.lane()
        checkpointer = Checkpointer(
            self._filesystem,
            directory,
            settings,
            background,
            last=log.last_checkpoint,
            last_version=log.checkpoint_version,
            commit_bytes_since=log.commit_bytes_since_checkpoint,
            packing=PackingProgress.of(log.delta_log, pack_versions=self._settings.pack_versions),
        )
        return PartitionLog(
            topic_partition,
            directory,
            OpenedLog(log.table, log.producers, log.segments, self._clock.now_ms(), log.removed_files),
            settings,
            files=files,
            checkpointer=checkpointer,
            background=background,
            mark_dirty=self._mark_dirty,
            conflicts=self._conflicts,
        )

    def _log_settings(self, config: TopicConfig) -> LogSettings:
        return LogSettings(
            node_id=self._settings.node_id,
            leader_epoch=self._settings.leader_epoch,
            flush_mode=self._settings.flush_mode,
            is_journaled=self._settings.is_journaled,
            segment_bytes=config.segment_bytes,
            segment_ms=config.segment_ms,
            checkpoint_interval=self._settings.checkpoint_interval,
            checkpoint_min_interval_ms=self._settings.checkpoint_min_interval_ms,
            versions_keep=self._settings.versions_keep,
            file_delete_delay_ms=config.file_delete_delay_ms,
            log_append_time=config.message_timestamp_type == "LogAppendTime",
            index_interval_bytes=config.index_interval_bytes,
            topic_config=config.overrides,
        )

    def apply(self, partition: PartitionLog, config: TopicConfig) -> None:
        """Lets an open partition work under another configuration of its topic; does not block."""
        partition.apply(self._log_settings(config))


def _check_belongs(log: RecoveredLog, what: str, *, topic_id: UUID, leader_epoch: int) -> TableMetadata:
    """The metadata of a table that is this topic's, and not younger than the catalog.

    Raises:
        DamageError: it is another one's, or of a later start.
    """
    metadata = log.table.metadata
    if metadata is None or metadata.topic_id != topic_id:
        found_id = None if metadata is None else metadata.topic_id
        raise DamageError(
            f"{what} belongs to topic id {found_id}, not to {topic_id}",
            hint="put the directory of this topic back in its place",
        )
    written_epoch = max(log.table.leader_epoch, log.adopted_leader_epoch)
    if written_epoch > leader_epoch:
        raise DamageError(
            f"{what} was written at leader epoch {written_epoch}, this start has only {leader_epoch}: "
            "the catalog is older than the partition",
            hint="put the catalog back that belongs to this data directory",
        )
    return metadata


def _settle(
    filesystem: Filesystem,
    directory: str,
    log: RecoveredLog,
    settings: LogSettings,
    metadata: TableMetadata,
    *,
    now_ms: int,
) -> None:
    """Makes a version of what recovery adopted, and of settings that differ, before the first append under them."""
    mode_before = recorded_flush_mode(metadata)
    if not log.adopted and settings.are_recorded_in(metadata):
        return
    if mode_before is not FlushMode.COMMIT and settings.flush_mode is FlushMode.COMMIT:
        _sync_all(filesystem, directory, log)
    if log.adopted:
        for segment in {group.segment: None for group in log.adopted}:
            segment.sync()
        filesystem.sync_directory(directory)
        # Under the epoch of its batches: it was another start that wrote them.
        as_written = replace(settings, leader_epoch=max(log.adopted_leader_epoch, log.table.leader_epoch))
        head = DeltaHead(log.table, as_written)
        _publish(filesystem, directory, log, head, log.adopted, data_crc=log.adopted_crc, now_ms=now_ms)
    if not settings.are_recorded_in(metadata):
        head, change = DeltaHead(log.table, settings), TableChange(metadata=settings.record_in(metadata))
        _publish(filesystem, directory, log, head, [], data_crc=0, now_ms=now_ms, change=change)


def _publish(
    filesystem: Filesystem,
    directory: str,
    log: RecoveredLog,
    head: DeltaHead,
    groups: list[Group],
    *,
    data_crc: int,
    now_ms: int,
    change: TableChange = NO_CHANGE,
) -> None:
    write, decoded = head.close(groups, data_crc=data_crc, now_ms=now_ms, change=change)
    RECOVERY_BEFORE_PUBLISH.reach()
    publish_new(filesystem, f"{directory}/{DELTA_LOG_DIRECTORY}", write.name, write.content, durable=True)
    log.table.replay(decoded)
    log.commit_bytes_since_checkpoint += len(write.content)


def _sync_all(filesystem: Filesystem, directory: str, log: RecoveredLog) -> None:
    """Makes durable what was written without syncs: from here on it is promised."""
    delta_log = f"{directory}/{DELTA_LOG_DIRECTORY}"
    for segment in log.segments:
        segment.sync()
    for name in filesystem.list_names(delta_log):
        filesystem.open(f"{delta_log}/{name}").sync()
    filesystem.sync_directory(delta_log)
    filesystem.sync_directory(directory)
