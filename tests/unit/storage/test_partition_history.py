"""Checkpoints and delta commits that are not of this partition, of its history, or for this exactlog."""

from uuid import UUID

import msgspec
import pytest

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.deltalog.checkpoint_format import decode_checkpoint, encode_checkpoint
from exactlog.core.deltalog.commit_format import decode_commit, encode_commit
from exactlog.core.model.errors import DamageError
from exactlog.core.model.ids import TopicPartition
from exactlog.storage.log_recovery import recover
from exactlog.storage.open_files import OpenFiles
from exactlog.storage.segment import SegmentFiles
from tests.support.partitions import (
    DELTA_LOG,
    DIRECTORY,
    DataDirectory,
    batches_of,
    copy_of,
    remove_checkpoints,
    replace_file,
    state_of,
)

CONFIG = TopicConfig(segment_bytes=500)
OTHER_PARTITION = TopicPartition("orders", 1)
OTHER_TOPIC = TopicPartition("payments", 0)


def commit_path(version):
    return f"{DELTA_LOG}/{version:020d}.json"


def checkpoint_path(version):
    return f"{DELTA_LOG}/{version:020d}.checkpoint.json"


def filled(versions, *, key=None, **settings):
    disk = DataDirectory(config=CONFIG, **settings)
    partition = disk.make() if key is None else disk.make(key)
    for batch in batches_of(versions):
        disk.commit(partition, batch)
        disk.publish(partition)
    return disk, partition


def chosen(filesystem):
    """The version of the checkpoint a start begins from."""
    files = SegmentFiles(filesystem, OpenFiles(filesystem, files_max=10))
    return recover(filesystem, files, DIRECTORY, name="orders-0", boot_epoch=None).checkpoint_version


def respell_checkpoint(filesystem, version, **changes):
    path = checkpoint_path(version)
    checkpoint = decode_checkpoint(filesystem.read_file(path), path_hint=path)
    replace_file(filesystem, path, encode_checkpoint(msgspec.structs.replace(checkpoint, **changes)))


def test_the_newest_one_is_taken():
    disk, _ = filled(25)
    assert chosen(disk.filesystem) == 20


def test_without_any_everything_is_replayed():
    disk, _ = filled(3)
    assert chosen(disk.filesystem) is None


# --- of another history --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [OTHER_PARTITION, OTHER_TOPIC])
@pytest.mark.parametrize("versions", [20, 25])
def test_that_of_another_partition_is_passed_over(versions, key, caplog):
    """At the end of the log and with commits behind it; its segments are called and sized as ours are."""
    disk, partition = filled(versions)
    other, _ = filled(versions, key=key)
    directory = f"/data/topic={key.topic}-part={key.partition}/_delta_log"
    foreign = other.filesystem.read_file(f"{directory}/{20:020d}.checkpoint.json")
    replace_file(disk.filesystem, checkpoint_path(20), foreign)
    disk.restart()

    assert state_of(disk.open()) == state_of(partition)
    assert f"checkpoint 20 is passed over: it is of partition {key}" in caplog.text


def test_where_its_commit_is_gone_it_stands_in_for_it():
    disk, _ = filled(20)
    disk.filesystem.remove(commit_path(20))
    assert chosen(disk.filesystem) == 20


def test_when_a_commit_behind_it_is_of_another_history_that_one_is_told():
    disk, _ = filled(25)
    other, _ = filled(25, node_id=2)
    replace_file(disk.filesystem, commit_path(21), other.filesystem.read_file(commit_path(21)))

    with pytest.raises(
        DamageError, match=rf"delta version 21 does not follow: its prev_crc.*{commit_path(21)}"
    ) as told:
        chosen(disk.filesystem)
    assert "restore the file" in told.value.hint


def test_a_flush_mode_that_does_not_exist_is_damage_and_no_defect(caplog):
    disk, partition = filled(25)
    metadata = partition.table.metadata
    changed = msgspec.structs.replace(metadata, config={"flush.mode": "sometimes"})
    respell_checkpoint(disk.filesystem, 20, metadata=changed)
    assert chosen(copy_of(disk.filesystem)) == 10
    assert "flush mode 'sometimes'" in caplog.text

    respell_commit(disk.filesystem, 0, metadata=changed)
    remove_checkpoints(disk.filesystem)
    with pytest.raises(DamageError, match=f"version 0: {commit_path(0)}.*flush mode 'sometimes'"):
        chosen(disk.filesystem)


def respell_commit(filesystem, version, **changes):
    path = commit_path(version)
    commit = decode_commit(filesystem.read_file(path), path_hint=path).commit
    replace_file(filesystem, path, encode_commit(msgspec.structs.replace(commit, **changes)).document)


@pytest.mark.parametrize("changes", [{"topic": "payments"}, {"partition": 1}])
def test_a_version_0_of_another_partition_is_refused(changes):
    disk, partition = filled(0)
    respell_commit(disk.filesystem, 0, metadata=msgspec.structs.replace(partition.table.metadata, **changes))

    with pytest.raises(DamageError, match=rf"orders-0: delta version 0: {commit_path(0)}: it is of partition"):
        chosen(disk.filesystem)


def test_a_topic_of_a_long_name_is_known_by_its_metadata():
    key = TopicPartition("o" * 240, 0)
    disk, partition = filled(12, key=key)
    disk.restart()
    assert state_of(disk.open(key)) == state_of(partition)


def test_another_topic_of_the_same_name_is_for_the_catalog_to_tell():
    disk, partition = filled(0)
    metadata = msgspec.structs.replace(partition.table.metadata, topic_id=UUID(int=7))
    respell_commit(disk.filesystem, 0, metadata=metadata)

    with pytest.raises(DamageError, match="belongs to topic id"):
        disk.open()


# --- without its bytes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("segment", [0, 1, -1])
@pytest.mark.parametrize("what", ["missing", "cut"])
def test_in_commit_mode_bytes_that_it_counts_are_acknowledged(segment, what):
    disk, partition = filled(25)
    path = partition.segments[segment].path
    if what == "missing":
        disk.filesystem.remove(path)
    else:
        disk.filesystem.open(path).truncate(10)
    disk.restart()

    with pytest.raises(DamageError) as told:
        disk.open()

    assert "orders-0: " in str(told.value)
    assert path in str(told.value)
    assert "version 2" in str(told.value)
    assert "restore the file from a copy" in told.value.hint


# --- what lies below it --------------------------------------------------------------------------------------------


def test_a_version_that_is_missing_below_it_is_told_and_nothing_depends_on_it(caplog):
    """A gap that is only seen when somebody reads the past, if ever (delta #7052, https://github.com/delta-io/delta)."""
    disk, partition = filled(25)
    disk.filesystem.remove(commit_path(7))
    disk.restart()

    assert state_of(disk.open()) == state_of(partition)
    assert (
        f"delta version 7 is missing, the versions before it cannot be read any more: {commit_path(7)}" in caplog.text
    )


def test_versions_that_have_expired_are_not_missed(caplog):
    disk, partition = filled(25)
    for version in range(12):
        disk.filesystem.remove(commit_path(version))
    disk.restart()

    assert state_of(disk.open()) == state_of(partition)
    assert caplog.text == ""


def test_where_there_is_nothing_to_begin_from_the_newest_checkpoint_is_told_of():
    disk, _ = filled(25)
    disk.filesystem.remove(commit_path(0))
    for version in (10, 20):
        replace_file(disk.filesystem, checkpoint_path(version), b"")

    with pytest.raises(DamageError) as told:
        chosen(disk.filesystem)

    assert str(told.value) == (
        f"orders-0: delta version 0: {commit_path(0)} is not there to replay from, and no checkpoint can be used "
        f"instead ({checkpoint_path(20)}: the file is empty)"
    )
    assert told.value.hint == f"restore a checkpoint of {DELTA_LOG} from a copy"
