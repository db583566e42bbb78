"""Opening a partition after whatever became of its files."""

import json

import pytest

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.model.errors import DamageError
from exactlog.core.model.ids import TopicPartition
from exactlog.core.record.batch_format import decode_header, place
from exactlog.storage.filesystem import MemoryFilesystem
from exactlog.storage.settings import FlushMode
from tests.support.by_hand import put_version_in_place
from tests.support.counting_filesystem import CountingFilesystem
from tests.support.partitions import (
    DELTA_LOG,
    DIRECTORY,
    FIRST_MS,
    ORDERS,
    DataDirectory,
    batch_of,
    batches_of,
    copy_of,
    remove_checkpoints,
    replace_file,
    sequenced,
    state_of,
    values_of,
)

SEGMENT = f"{DIRECTORY}/{0:020d}.log"
LOOSE_MODES = [FlushMode.INTERVAL, FlushMode.NONE]


def commit_path(version):
    return f"{DELTA_LOG}/{version:020d}.json"


def checkpoint_path(version):
    return f"{DELTA_LOG}/{version:020d}.checkpoint.json"


def names(disk, directory=DELTA_LOG):
    return sorted(disk.filesystem.list_names(directory))


def value(number):
    return b"%04d" % number


def values_up_to(count):
    return [value(number) for number in range(count)]


def filled(versions=25, *, config=None, **settings):
    """A data directory with one partition of so many versions, two producers taking turns."""
    disk = DataDirectory(config=config, **settings)
    partition = disk.make()
    for number in range(versions):
        producer_id, sequence = number % 2, number // 2
        disk.commit(partition, sequenced(producer_id, sequence, value(number), timestamp_ms=FIRST_MS + number))
        disk.publish(partition)
    return disk, partition


def damaged(document):
    """The document with one digit changed: it still parses, its checksum no longer holds."""
    text = document.replace(b'"end_offset":', b'"end_offset":1', 1).replace(b'"next_offset":', b'"next_offset":1', 1)
    assert text != document
    return text


# --- after a clean end and after a crash -------------------------------------------------------------------------


@pytest.mark.parametrize("flush_mode", FlushMode)
@pytest.mark.parametrize("versions", [0, 1, 9, 10, 11, 25])
def test_a_partition_opens_as_it_was_left(flush_mode, versions, caplog):
    disk, partition = filled(versions, flush_mode=flush_mode)
    before = state_of(partition)
    disk.restart()

    reopened = disk.open()

    assert state_of(reopened) == before
    assert values_of(reopened) == values_up_to(versions)
    assert caplog.text == ""


def test_a_partition_opens_the_same_from_a_checkpoint_and_from_a_full_replay():
    disk, _ = filled(25, config=TopicConfig(segment_bytes=400))
    other = DataDirectory(copy_of(disk.filesystem), config=disk.config)
    remove_checkpoints(other.filesystem)
    disk.restart()

    assert state_of(disk.open()) == state_of(other.open())


def test_opening_changes_nothing_on_disk(caplog):
    disk, _ = filled(25)
    before = copy_of(disk.filesystem)
    disk.restart()
    disk.open()

    for path, file in before._files.items():
        assert disk.filesystem.read_file(path) == file.read_at(file.size(), 0), path
    assert disk.filesystem._files.keys() == before._files.keys()
    assert caplog.text == ""


def test_a_producer_goes_on_where_it_was_and_its_resends_are_recognised():
    disk, _ = filled(25)
    disk.restart()
    partition = disk.open()

    again = disk.append(partition, sequenced(1, 11, value(23)))
    assert again.offset == 23
    assert disk.commit(partition, sequenced(1, 12, b"new")) == 25


# --- checkpoints -------------------------------------------------------------------------------------------------


def test_a_damaged_checkpoint_is_passed_over_for_an_older_one_and_at_last_for_a_full_replay(caplog):
    disk, partition = filled(25)
    before = state_of(partition)
    for version in (20, 10):
        caplog.clear()
        content = disk.filesystem.read_file(checkpoint_path(version))
        replace_file(disk.filesystem, checkpoint_path(version), damaged(content))
        disk.restart()
        assert state_of(disk.open()) == before
        assert f"checkpoint {version} is passed over" in caplog.text


@pytest.mark.parametrize("content", [b"", b"{", b"null\n", b"[]\n", b"\0" * 50])
def test_whatever_a_damaged_checkpoint_holds_it_is_passed_over(content):
    disk, partition = filled(25)
    before = state_of(partition)
    replace_file(disk.filesystem, checkpoint_path(20), content)
    disk.restart()

    assert state_of(disk.open()) == before


def test_a_checkpoint_of_another_version_under_the_name_is_passed_over(caplog):
    disk, partition = filled(25)
    before = state_of(partition)
    replace_file(disk.filesystem, checkpoint_path(20), disk.filesystem.read_file(checkpoint_path(10)))
    disk.restart()

    assert state_of(disk.open()) == before
    assert "checkpoint 20 is passed over" in caplog.text


def test_behind_a_checkpoint_the_older_commits_are_not_needed():
    disk, partition = filled(25)
    before = state_of(partition)
    for version in range(20):
        disk.filesystem.remove(commit_path(version))
    disk.restart()

    assert state_of(disk.open()) == before


def test_without_any_checkpoint_that_holds_and_without_version_0_nothing_can_be_opened():
    disk, _ = filled(25)
    disk.filesystem.remove(commit_path(0))
    for version in (10, 20):
        replace_file(disk.filesystem, checkpoint_path(version), b"")
    disk.restart()

    with pytest.raises(DamageError, match="version 0") as caught:
        disk.open()
    assert DELTA_LOG in caught.value.hint


# --- commits, in commit mode -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: None,
        lambda content: b"",
        lambda content: content[: len(content) // 2],
        lambda content: content[:-1],
        damaged,
        lambda content: b"\xff" + content,
        lambda content: content + content,
    ],
    ids=["missing", "empty", "torn", "without its newline", "CRC broken", "not UTF-8", "twice"],
)
@pytest.mark.parametrize("version", [22, 24])
def test_a_commit_that_is_not_whole_is_damage_that_names_version_and_file(version, damage):
    disk, _ = filled(25)
    content = damage(disk.filesystem.read_file(commit_path(version)))
    if content is None:
        disk.filesystem.remove(commit_path(version))
    else:
        replace_file(disk.filesystem, commit_path(version), content)
    before = copy_of(disk.filesystem)
    disk.restart()

    with pytest.raises(DamageError) as caught:
        disk.open()

    assert f"{version:020d}.json" in str(caught.value)
    assert disk.filesystem._files.keys() == before._files.keys(), "nothing is removed"
    assert disk.filesystem.read_file(SEGMENT) == before.read_file(SEGMENT)


def test_a_gap_behind_the_newest_checkpoint_names_the_version_that_is_missing():
    disk, _ = filled(25)
    disk.filesystem.remove(commit_path(23))
    disk.restart()

    with pytest.raises(DamageError, match="version 23 is missing") as caught:
        disk.open()
    assert caught.value.hint


def test_a_version_of_another_history_does_not_follow():
    disk, _ = filled(25)
    other, _ = filled(25, node_id=2)
    replace_file(disk.filesystem, commit_path(24), other.filesystem.read_file(commit_path(24)))
    disk.restart()

    with pytest.raises(DamageError, match=r"version 24 does not follow.*prev_crc"):
        disk.open()


@pytest.mark.parametrize("checkpoints", [True, False])
def test_missing_bytes_are_damage_that_names_the_segment(checkpoints):
    disk, partition = filled(20)
    if not checkpoints:
        remove_checkpoints(disk.filesystem)
    disk.filesystem.open(SEGMENT).truncate(partition.segments[0].size - 1)
    disk.restart()

    with pytest.raises(DamageError, match=f"{0:020d}.log") as caught:
        disk.open()
    assert "version 20" in str(caught.value)
    assert "copy" in caught.value.hint


@pytest.mark.parametrize("checkpoints", [True, False])
def test_a_missing_segment_is_damage_that_names_it(checkpoints):
    disk, _ = filled(20)
    if not checkpoints:
        remove_checkpoints(disk.filesystem)
    disk.filesystem.remove(SEGMENT)
    disk.restart()

    with pytest.raises(DamageError, match=f"{0:020d}.log"):
        disk.open()


def test_a_changed_byte_behind_the_checkpoint_is_damage_that_names_the_version():
    disk, partition = filled(25)
    disk.filesystem.open(SEGMENT).write_at((b"\xff",), partition.segments[0].size - 5)
    disk.restart()

    with pytest.raises(DamageError, match=r"version 25.*CRC"):
        disk.open()


def test_bytes_that_are_no_batches_are_damage_that_names_the_place():
    disk, partition = filled(25)
    size = partition.segments[0].size
    disk.filesystem.open(SEGMENT).write_at((bytes(size // 25),), size - size // 25)
    disk.restart()

    with pytest.raises(DamageError, match=rf"version 25.*{0:020d}\.log, bytes"):
        disk.open()


def test_a_directory_without_a_delta_log_is_damage():
    disk, _ = filled(3)
    for name in names(disk):
        disk.filesystem.remove(f"{DELTA_LOG}/{name}")
    disk.restart()
    with pytest.raises(
        DamageError, match=f"orders-0: {DELTA_LOG} holds neither a delta commit nor a checkpoint"
    ) as told:
        disk.open()
    assert told.value.hint

    disk.filesystem.remove_directory(DELTA_LOG)
    with pytest.raises(DamageError, match=f"orders-0: {DELTA_LOG} is missing") as told:
        disk.open()
    assert told.value.hint


# --- what is behind the end --------------------------------------------------------------------------------------


@pytest.mark.parametrize("surplus", [b"x", bytes(1_000), bytes(batch_of(b"never acknowledged"))])
def test_in_commit_mode_bytes_of_no_version_are_cut_off(surplus, caplog):
    disk, partition = filled(7)
    before, size = state_of(partition), partition.segments[0].size
    disk.filesystem.open(SEGMENT).write_at((surplus,), size)
    disk.restart()

    reopened = disk.open()

    assert state_of(reopened) == before
    assert disk.filesystem.file_size(SEGMENT) == size
    assert f"{len(surplus)} bytes" in caplog.text
    assert disk.commit(reopened, batch_of(b"next")) == 7
    assert values_of(reopened)[-1] == b"next"


def test_a_round_that_never_got_its_version_is_not_there():
    """A crash between the bytes and the delta commit."""
    disk, partition = filled(7)
    before = state_of(partition)
    disk.append(partition, batch_of(b"never acknowledged"))
    ((_, write),) = disk.take_round()
    disk.engine._files.write_bytes(write)
    disk.restart()

    assert state_of(disk.open()) == before


def test_segments_of_no_version_and_their_indexes_are_removed():
    disk, partition = filled(7)
    before = state_of(partition)
    for name in (f"{7:020d}.log", f"{7:020d}.index", f"{9:020d}.timeindex", f"{12:020d}.g1.log", ".x.tmp"):
        replace_file(disk.filesystem, f"{DIRECTORY}/{name}", b"?")
    replace_file(disk.filesystem, f"{DELTA_LOG}/.{8:020d}.json.tmp", b"{")
    replace_file(disk.filesystem, f"{DIRECTORY}/notes.txt", b"foreign, not ours to judge")
    disk.restart()

    assert state_of(disk.open()) == before
    assert [name for name in names(disk, DIRECTORY) if not name.endswith("index")] == [
        f"{0:020d}.log",
        "_delta_log",
        "notes.txt",
    ]
    assert not any(name.startswith(".") for name in names(disk))


# --- interval and none: what a power cut may have taken ----------------------------------------------------------


@pytest.mark.parametrize("flush_mode", LOOSE_MODES)
def test_a_valid_tail_without_a_version_is_adopted_as_one(flush_mode, caplog):
    disk, partition = filled(12, flush_mode=flush_mode)
    disk.commit(partition, sequenced(0, 6, value(12)), sequenced(1, 6, value(13)))
    disk.restart()

    reopened = disk.open()

    assert values_of(reopened) == values_up_to(14)
    assert reopened.table.version == 13
    assert "offsets 12 to 13" in caplog.text
    assert disk.append(reopened, sequenced(1, 6, value(13))).offset == 13
    state = state_of(reopened)
    remove_checkpoints(disk.filesystem)
    disk.restart()
    assert state_of(disk.open()) == state


@pytest.mark.parametrize("flush_mode", LOOSE_MODES)
def test_of_a_torn_tail_the_whole_batches_are_adopted_and_the_rest_is_cut_off(flush_mode):
    disk, partition = filled(3, flush_mode=flush_mode)
    disk.commit(partition, batch_of(b"whole"))
    size = partition.segments[0].size
    torn = batch_of(b"torn", b"in", b"the middle")
    place(torn, decode_header(torn), base_offset=4, leader_epoch=0)
    for length in (1, 20, 61, len(torn) - 1):
        disk.filesystem.open(SEGMENT).write_at((torn[:length],), size)
        disk.restart()
        reopened = disk.open()
        assert values_of(reopened)[-1] == b"whole"
        assert disk.filesystem.file_size(SEGMENT) == size


@pytest.mark.parametrize(
    "make_tail",
    [
        lambda batch: _with_byte_changed(batch, -2),
        lambda batch: _at_offset(batch, 7),
        lambda batch: bytes(200),
        lambda batch: bytes(61) + batch,
    ],
    ids=["CRC broken", "of another offset", "zeros", "behind a gap"],
)
def test_a_tail_that_is_not_valid_is_not_adopted(make_tail):
    disk, partition = filled(3, flush_mode=FlushMode.NONE)
    before = state_of(partition)
    tail = make_tail(_at_offset(batch_of(b"x"), 3))
    disk.filesystem.open(SEGMENT).write_at((tail,), partition.segments[0].size)
    disk.restart()

    assert state_of(disk.open()) == before
    assert disk.filesystem.file_size(SEGMENT) == partition.segments[0].size


def _at_offset(batch, offset):
    place(batch, decode_header(batch), base_offset=offset, leader_epoch=0)
    return batch


def _with_byte_changed(batch, position):
    batch[position] ^= 1
    return batch


def test_a_tail_over_several_segments_is_adopted_whole():
    disk, partition = filled(2, flush_mode=FlushMode.NONE, config=TopicConfig(segment_bytes=200))
    disk.commit(partition, *batches_of(9, size=40))
    assert len(partition.segments) > 4
    before = values_of(partition)
    disk.restart()

    reopened = disk.open()

    assert values_of(reopened) == before
    document = json.loads(disk.filesystem.read_file(commit_path(reopened.table.version)))
    assert len(document["operations"]) == len(reopened.segments) - 1
    assert disk.commit(reopened, batch_of(b"next")) == 11


def test_a_tail_with_nothing_before_it_is_adopted():
    disk = DataDirectory(flush_mode=FlushMode.NONE)
    disk.commit(disk.make(), *batches_of(3))
    disk.restart()

    assert len(values_of(disk.open())) == 3


@pytest.mark.parametrize("flush_mode", LOOSE_MODES)
@pytest.mark.parametrize("lost_bytes", ["half a batch", "seven batches", "everything"])
def test_trailing_versions_without_their_bytes_are_dropped_with_a_warning(flush_mode, lost_bytes, caplog):
    disk, partition = filled(25, flush_mode=flush_mode)
    size = partition.segments[0].size // 25
    kept, kept_bytes = {
        "half a batch": (24, size * 24 + size // 2),
        "seven batches": (18, size * 18),
        "everything": (0, 0),
    }[lost_bytes]
    disk.filesystem.open(SEGMENT).truncate(kept_bytes)
    disk.restart()

    reopened = disk.open()

    assert values_of(reopened) == values_up_to(kept)
    assert reopened.table.version == kept
    assert f"versions {kept + 1} to 25 are dropped" in caplog.text
    assert not any(int(name[:20]) > kept for name in names(disk) if not name.startswith("."))
    assert disk.commit(reopened, batch_of(b"next")) == kept
    disk.publish(reopened)
    before = state_of(reopened)
    disk.restart()
    assert state_of(disk.open()) == before


@pytest.mark.parametrize("flush_mode", LOOSE_MODES)
def test_zeros_where_the_bytes_of_trailing_versions_were_are_missing_bytes_too(flush_mode):
    disk, partition = filled(14, flush_mode=flush_mode)
    size = partition.segments[0].size // 14
    disk.filesystem.open(SEGMENT).write_at((bytes(3 * size),), 11 * size)
    disk.restart()

    reopened = disk.open()

    assert values_of(reopened) == values_up_to(11)
    assert disk.filesystem.file_size(SEGMENT) == 11 * size


@pytest.mark.parametrize("flush_mode", LOOSE_MODES)
def test_a_torn_trailing_version_is_dropped_and_its_bytes_get_a_new_one(flush_mode, caplog):
    disk, _ = filled(14, flush_mode=flush_mode)
    replace_file(disk.filesystem, commit_path(14), b"")
    disk.restart()

    reopened = disk.open()

    assert values_of(reopened) == values_up_to(14)
    assert reopened.table.version == 14
    assert "versions 14 to 14 are dropped" in caplog.text
    assert "offsets 13 to 13" in caplog.text


HALF_WRITTEN = {
    "empty": lambda content: b"",
    "torn": lambda content: content[: len(content) // 2],
    "without its newline": lambda content: content[:-1],
    "with a hole": lambda content: content[:100] + bytes(50) + content[150:],
    "zeros": lambda content: bytes(len(content)),
}
CHANGED = {
    "CRC broken": damaged,
    "not UTF-8": lambda content: b"\xff" + content,
    "twice": lambda content: content + content,
    "another JSON": lambda content: b"[]\n",
}


@pytest.mark.parametrize("flush_mode", LOOSE_MODES)
@pytest.mark.parametrize("damage", HALF_WRITTEN)
@pytest.mark.parametrize("version", [3, 14])
def test_half_a_document_is_what_a_power_cut_leaves(flush_mode, damage, version):
    disk, _ = filled(14, flush_mode=flush_mode)
    remove_checkpoints(disk.filesystem)
    content = disk.filesystem.read_file(commit_path(version))
    replace_file(disk.filesystem, commit_path(version), HALF_WRITTEN[damage](content))
    disk.restart()

    reopened = disk.open()

    assert values_of(reopened) == values_up_to(14)
    assert reopened.table.version == version


@pytest.mark.parametrize("flush_mode", LOOSE_MODES)
@pytest.mark.parametrize("damage", CHANGED)
@pytest.mark.parametrize("version", [3, 14])
def test_what_no_power_cut_leaves_is_damage_in_every_flush_mode(flush_mode, damage, version):
    disk, _ = filled(14, flush_mode=flush_mode)
    remove_checkpoints(disk.filesystem)
    content = disk.filesystem.read_file(commit_path(version))
    replace_file(disk.filesystem, commit_path(version), CHANGED[damage](content))
    before = copy_of(disk.filesystem)
    disk.restart()

    with pytest.raises(DamageError, match=f"orders-0: delta version {version}: {commit_path(version)}: ") as told:
        disk.open()
    assert told.value.hint
    assert disk.filesystem._files.keys() == before._files.keys(), "nothing is dropped"


@pytest.mark.parametrize("flush_mode", LOOSE_MODES)
@pytest.mark.parametrize(("pack", "content"), [(1, None), (1, b""), (2, b"")])
def test_what_is_packed_was_synced_and_so_was_all_before_it(flush_mode, pack, content):
    disk, _ = filled(22, flush_mode=flush_mode, checkpoint_interval=5, versions_keep=4, pack_versions=5)
    packs = sorted(name for name in names(disk) if "compacted" in name)
    assert [name[:20] for name in packs] == [f"{first:020d}" for first in (0, 5, 10)]
    remove_checkpoints(disk.filesystem)
    disk.filesystem.remove(f"{DELTA_LOG}/{packs[pack]}")
    if content is not None:
        replace_file(disk.filesystem, f"{DELTA_LOG}/{packs[pack]}", content)
    disk.restart()

    with pytest.raises(
        DamageError, match=f"orders-0: delta version {5 * pack}: {DELTA_LOG}/{5 * pack:020d}.*json"
    ) as told:
        disk.open()
    assert "restore the file" in told.value.hint


@pytest.mark.parametrize("flush_mode", LOOSE_MODES)
def test_a_document_aside_that_does_not_follow_is_dropped_and_leaves_no_trace(flush_mode, caplog):
    disk, partition = filled(7, flush_mode=flush_mode)
    before = state_of(partition)
    other, _ = filled(8, flush_mode=flush_mode, node_id=2)
    document = other.filesystem.read_file(commit_path(8))
    replace_file(disk.filesystem, f"{DELTA_LOG}/.{8:020d}.json.tmp", document)
    disk.restart()

    assert state_of(disk.open()) == before
    assert "version 8 had no name yet and is dropped" in caplog.text
    assert not any(name.startswith(".") for name in names(disk))


def test_versions_that_were_synced_are_never_dropped():
    """Those from before the mode was changed to one without syncs."""
    disk, partition = filled(8)
    disk.restart(flush_mode=FlushMode.NONE)
    partition = disk.open()
    disk.commit(partition, batch_of(b"loose"))
    disk.publish(partition)
    disk.filesystem.open(SEGMENT).truncate(10)
    disk.restart()

    with pytest.raises(DamageError, match="version 1"):
        disk.open()


# --- the flush mode ----------------------------------------------------------------------------------------------


def recorded_modes(disk):
    commits = [name for name in names(disk) if len(name) == len(f"{0:020d}.json")]
    documents = [json.loads(disk.filesystem.read_file(f"{DELTA_LOG}/{name}")) for name in commits]
    return {doc["version"]: doc["metadata"]["config"]["flush.mode"] for doc in documents if "metadata" in doc}


@pytest.mark.parametrize("after", FlushMode)
@pytest.mark.parametrize("before", FlushMode)
def test_a_new_flush_mode_is_recorded_before_the_first_append_under_it(before, after):
    disk, _ = filled(3, flush_mode=before)
    disk.restart(flush_mode=after)
    reopened = disk.open()

    assert recorded_modes(disk) == {0: before} | ({4: after} if after != before else {})
    assert disk.commit(reopened, batch_of(b"x")) == 3
    disk.publish(reopened)
    disk.restart()
    assert values_of(disk.open())[-1] == b"x"
    assert len(recorded_modes(disk)) <= 2, "recorded once"


def test_the_new_mode_is_durable_before_an_append_and_so_is_everything_when_it_promises_that():
    filesystem = CountingFilesystem(MemoryFilesystem())
    disk = DataDirectory(filesystem, flush_mode=FlushMode.NONE, config=TopicConfig(segment_bytes=200))
    partition = disk.make()
    for batch in batches_of(6, size=40):
        disk.commit(partition, batch)
        disk.publish(partition)
    disk.restart(flush_mode=FlushMode.COMMIT)
    filesystem.clear()
    disk.open()

    done = [(operation.name, operation.path) for operation in filesystem.operations]
    recorded = done.index(("link", commit_path(7)))
    for segment in partition.segments:
        assert ("sync", segment.path) in done[:recorded]
    for version in range(7):
        assert ("sync", commit_path(version)) in done[:recorded]
    assert ("sync_directory", DIRECTORY) in done[:recorded]
    assert done[recorded - 1] == ("sync", f"{DELTA_LOG}/.{7:020d}.json.tmp")
    assert ("sync_directory", DELTA_LOG) in done[recorded:]


def test_a_restart_without_syncs_costs_no_sync_of_the_whole_history():
    """Only what is adopted is synced: its version is."""
    filesystem = CountingFilesystem(MemoryFilesystem())
    disk = DataDirectory(filesystem, flush_mode=FlushMode.NONE)
    partition = disk.make()
    for batch in batches_of(30):
        disk.commit(partition, batch)
        disk.publish(partition)
    disk.commit(partition, batch_of(b"not published"))
    disk.restart()
    filesystem.clear()
    disk.open()

    assert filesystem.names("sync", "sync_data", "sync_directory").count("sync") == 2
    assert values_of(disk.open())[-1] == b"not published"


# --- a version put in place by hand ------------------------------------------------------------------------------


def test_a_valid_version_put_in_place_by_hand_is_served_after_reopening():
    disk, _ = filled(7)
    put_version_in_place(disk.filesystem, DIRECTORY, b"by", b"hand")
    disk.restart()

    reopened = disk.open()

    assert values_of(reopened)[-2:] == [b"by", b"hand"]
    assert reopened.table.version == 8
    assert disk.commit(reopened, batch_of(b"and on")) == 9
    before = state_of(reopened)
    disk.restart()
    assert state_of(disk.open()) == before


def test_a_version_put_in_the_way_of_an_open_partition_stops_that_one_alone():
    disk, partition = filled(7)
    other = disk.make(TopicPartition("others", 0))
    put_version_in_place(disk.filesystem, DIRECTORY, b"by", b"hand", txn_id="by-hand:77")

    ours = disk.append(partition, batch_of(b"ours"))
    theirs = disk.append(other, batch_of(b"x"))
    disk.run_round()

    assert "by-hand:77" in partition.failure
    assert "broker-1:" in partition.failure
    assert ours.error is not None
    assert theirs.offset == 0
    assert disk.commit(other, batch_of(b"y")) == 1


def test_a_damaged_partition_stays_closed_alone():
    disk, _ = filled(7)
    others = TopicPartition("others", 0)
    disk.commit(disk.make(others), batch_of(b"x"))
    replace_file(disk.filesystem, commit_path(3), b"")
    disk.restart()

    with pytest.raises(DamageError, match="orders-part=0"):
        disk.open(ORDERS)
    assert values_of(disk.open(others)) == [b"x"]
