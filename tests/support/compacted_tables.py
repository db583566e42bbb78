"""Partitions that are compacted without a broker, and what is in them before and after."""

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.deltalog.log_path import print_partition_directory_name
from exactlog.core.model.isolation_level import IsolationLevel
from exactlog.log.compaction import CompactionPlace, compact_partition
from exactlog.node.clock import SystemClock
from exactlog.storage.filesystem import OsFilesystem
from exactlog.storage.journal_redo import JournaledTail
from exactlog.storage.table_audit import audit_table
from exactlog.storage.table_reader import TableReader

COMPACT = TopicConfig(
    overrides={"cleanup.policy": "compact"}, cleanup_policy=("compact",), segment_bytes=1_500, index_interval_bytes=300
)
NOW_MS = SystemClock().now_ms()


class ClockAt:
    """A clock that stands."""

    def __init__(self, time_ms):
        self.time_ms = time_ms

    def now_ms(self):
        return self.time_ms

    def monotonic_ms(self):
        return self.time_ms


def place_of(root, table, *, config=COMPACT, is_trial=False):
    """A partition that is to be compacted, by what its table says."""
    metadata = table.metadata
    return CompactionPlace(
        root=str(root),
        name=print_partition_directory_name(metadata.topic, metadata.partition),
        topic=metadata.topic,
        partition=metadata.partition,
        topic_id=metadata.topic_id,
        config=config,
        leader_epoch=table.snapshot().leader_epoch + 1,
        node_id=1,
        boot_epoch=None,
        tail=JournaledTail(),
        is_trial=is_trial,
    )


def compact_at(root, name, *, filesystem=None, now_ms=NOW_MS, keys_max=1_000, config=COMPACT, is_trial=False):
    """Compacts a partition by the name of its directory, and says what became of it."""
    disk = OsFilesystem() if filesystem is None else filesystem
    place = place_of(root, TableReader(disk, f"{root}/{name}"), config=config, is_trial=is_trial)
    return compact_partition(place, keys_max=keys_max, filesystem=disk, clock=ClockAt(now_ms))


def committed(root, name, *, filesystem=None, **as_of):
    """The records that a reader of committed ones gets."""
    return list(TableReader(filesystem or OsFilesystem(), f"{root}/{name}").read(**as_of))


def everything(root, name, *, filesystem=None, **as_of):
    """The records that a reader gets who asks for all of them, markers too."""
    table = TableReader(filesystem or OsFilesystem(), f"{root}/{name}")
    return list(table.read(isolation=IsolationLevel.READ_UNCOMMITTED, include_control=True, **as_of))


def newest_by_key(records):
    """The newest record of each key; of one whose newest is a tombstone, none."""
    newest = {record.key: record for record in records if record.key is not None}
    return {key: record for key, record in newest.items() if record.value is not None}


def findings_of(root, name, *, filesystem=None):
    """What an audit finds, but for what it only notes of files that are on their way out."""
    report = audit_table(filesystem or OsFilesystem(), f"{root}/{name}", is_deep=True)
    return [finding for finding in report.findings if str(finding.kind) != "segment-removed"]
