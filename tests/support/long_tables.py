"""A table of many versions, and what must stay true of it while its delta log is tidied up."""

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.deltalog.log_path import CheckpointName, CommitName, CompactedName, parse_delta_log_name
from exactlog.storage.delta_log_files import DeltaLogFiles
from exactlog.storage.packing import find_pack, pack
from exactlog.storage.settings import FlushMode
from exactlog.storage.table_reader import TableReader
from tests.support.partitions import DELTA_LOG, DIRECTORY, DataDirectory, batch_of, copy_of, state_of

CONFIG = TopicConfig(segment_bytes=700, index_interval_bytes=200)
PACK_VERSIONS = 10
VERSIONS_KEEP = 8


def write_table(*, versions, checkpoint_interval=4, flush_mode=FlushMode.COMMIT):
    """A file system with such a table: a record a version, its number; the state its broker had."""
    with DataDirectory(config=CONFIG, checkpoint_interval=checkpoint_interval, flush_mode=flush_mode) as disk:
        partition = disk.make()
        for number in range(versions):
            disk.clock.time_ms += 1_000
            disk.commit(partition, batch_of(b"%d" % number))
            disk.publish(partition)
        assert partition.table.version == versions
        return disk.filesystem, state_of(partition)


def reopened_state(filesystem, *, flush_mode=FlushMode.COMMIT):
    """The state of a broker that is started on a copy."""
    with DataDirectory(copy_of(filesystem), config=CONFIG, flush_mode=flush_mode) as disk:
        return state_of(disk.open())


def pack_all(filesystem, *, versions_keep=VERSIONS_KEEP, pack_versions=PACK_VERSIONS):
    """Packs all that may be packed; the plans."""
    plans = []
    while plan := find_pack(
        DeltaLogFiles(filesystem, DIRECTORY), versions_keep=versions_keep, pack_versions=pack_versions
    ):
        pack(filesystem, DIRECTORY, plan)
        plans.append((plan.first_version, plan.last_version))
    return plans


def loose(filesystem):
    """The versions that have a file of their own."""
    return [name.version for name in _names(filesystem) if isinstance(name, CommitName)]


def packs(filesystem):
    """The packed ranges."""
    return [(name.first_version, name.last_version) for name in _names(filesystem) if isinstance(name, CompactedName)]


def checkpoints(filesystem):
    """The versions that have a checkpoint."""
    return [name.version for name in _names(filesystem) if isinstance(name, CheckpointName)]


def listing(filesystem):
    """Every file of the delta log, with its bytes."""
    return {name: filesystem.read_file(f"{DELTA_LOG}/{name}") for name in filesystem.list_names(DELTA_LOG)}


def commit_path(version):
    return f"{DELTA_LOG}/{version:020d}.json"


def checkpoint_path(version):
    return f"{DELTA_LOG}/{version:020d}.checkpoint.json"


def pack_path(first, last):
    return f"{DELTA_LOG}/{first:020d}.{last:020d}.compacted.json"


def check_versions(filesystem, *, oldest, newest):
    """Every version from the oldest on reads as it did when it was the newest."""
    table = TableReader(filesystem, DIRECTORY)
    assert table.oldest_version == oldest
    listed = [commit.version for commit in table.versions()]
    without_commit = sorted({*range(oldest, newest + 1)} - {*listed})
    assert listed == sorted(set(listed))
    assert set(without_commit) <= set(checkpoints(filesystem)), "a power cut, perhaps: its checkpoint stands in for it"
    for version in range(oldest, newest + 1):
        assert [record.value for record in table.read(as_of_version=version)] == [b"%d" % n for n in range(version)]


def _names(filesystem):
    names = [parse_delta_log_name(name) for name in sorted(filesystem.list_names(DELTA_LOG))]
    return [name for name in names if name is not None]
