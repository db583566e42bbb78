"""Reading a partition's directory as a versioned table, without a broker and without changing anything."""

import json
from pathlib import Path

import pytest
from msgspec import UNSET

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.deltalog.commit_format import DeltaCommit, Operation, decode_commit, encode_commit
from exactlog.core.model.errors import DamageError, OffsetOutOfRangeError, VersionExpiredError, VersionUnknownError
from exactlog.core.model.ids import TopicPartition
from exactlog.core.record.batch_builder import NewRecord, build_batch
from exactlog.storage.filesystem import MemoryFilesystem, OsFilesystem
from exactlog.storage.settings import FlushMode
from exactlog.storage.table_reader import TableReader, find_tables, open_table
from tests.support.counting_filesystem import CountingFilesystem
from tests.support.partitions import (
    DELTA_LOG,
    DIRECTORY,
    FIRST_MS,
    DataDirectory,
    batch_of,
    batches_of,
    copy_of,
    remove_checkpoints,
    replace_file,
    values_of,
)

VERSIONS = 27
CONFIG = TopicConfig(segment_bytes=700, index_interval_bytes=200)


def batch_of_version(version):
    return batch_of(*(b"%d/%d" % (version, index) for index in range(1 + version % 3)))


@pytest.fixture(scope="module")
def written():
    """A table of many versions over several segments; each version with its time and all values up to it."""
    with DataDirectory(config=CONFIG) as disk:
        partition = disk.make()
        model = [(FIRST_MS, [])]
        values = []
        for version in range(1, VERSIONS + 1):
            disk.clock.time_ms += 1_000 if version % 4 else 0  # every fourth has the time of the one before
            disk.commit(partition, batch_of_version(version))
            values = values_of(partition)
            model.append((disk.clock.time_ms, values))
        assert len(partition.segments) > 3
        return copy_of(disk.filesystem), model


@pytest.fixture
def filesystem(written):
    return copy_of(written[0])


@pytest.fixture
def model(written):
    return written[1]


def values(records):
    return [record.value for record in records]


# --- as of a version, as of a time -------------------------------------------------------------------------------


@pytest.mark.parametrize("checkpoints", [True, False])
def test_as_of_every_version_the_table_is_what_it_was_then(filesystem, model, checkpoints):
    if not checkpoints:
        remove_checkpoints(filesystem)
    table = TableReader(filesystem, DIRECTORY)

    for version, (_, expected) in enumerate(model):
        assert values(table.read(as_of_version=version)) == expected
    assert values(table.read()) == model[-1][1]


def test_as_of_any_time_it_is_the_newest_version_not_later(filesystem, model):
    table = TableReader(filesystem, DIRECTORY)

    for time_ms in sorted({at + delta for at, _ in model for delta in (0, 1, 999)}):
        version = max(number for number, (at, _) in enumerate(model) if at <= time_ms)
        assert table.version_at(time_ms) == version
        assert values(table.read(as_of_timestamp=time_ms)) == model[version][1]


def test_any_range_of_offsets_of_any_version_is_read_exactly(filesystem, model):
    table = TableReader(filesystem, DIRECTORY)
    for version in (0, 1, 13, VERSIONS):
        expected = model[version][1]
        end = len(expected)
        for start in range(0, end + 2, 3):
            for stop in (None, 0, start, start + 1, start + 7, end, end + 5):
                records = list(table.read(start, stop, as_of_version=version))
                assert values(records) == expected[start:stop]
                assert [record.offset for record in records] == list(range(len(expected)))[start:stop]


def test_a_time_before_the_table_was_made_and_a_version_that_was_never_made_are_typed_errors(filesystem):
    table = TableReader(filesystem, DIRECTORY)

    with pytest.raises(VersionExpiredError, match="the oldest one that can is 0"):
        table.read(as_of_timestamp=FIRST_MS - 1)
    with pytest.raises(VersionUnknownError, match=f"the newest one is {VERSIONS}") as caught:
        table.read(as_of_version=VERSIONS + 1)
    assert caught.value.newest == VERSIONS
    with pytest.raises(VersionExpiredError):
        table.read(as_of_version=-1)


def test_a_version_that_was_vacuumed_is_a_typed_error_that_names_the_oldest(filesystem, model):
    for version in range(8):
        filesystem.remove(f"{DELTA_LOG}/{version:020d}.json")
    table = TableReader(filesystem, DIRECTORY)

    assert table.oldest_version == 8
    with pytest.raises(VersionExpiredError, match="the oldest one that can is 8") as caught:
        table.read(as_of_version=7)
    assert caught.value.oldest == 8
    with pytest.raises(VersionExpiredError):
        table.version_at(model[7][0] - 1)
    assert values(table.read(as_of_version=8)) == model[8][1]
    assert [commit.version for commit in table.versions()] == list(range(8, VERSIONS + 1))


def remove_oldest_segment(filesystem):
    """What retention will do: the next version takes the first segment out and moves the log start behind it."""
    last = decode_commit(filesystem.read_file(f"{DELTA_LOG}/{VERSIONS:020d}.json"), path_hint="x")
    table = TableReader(filesystem, DIRECTORY).snapshot()
    oldest = table.segments[0]
    commit = DeltaCommit(
        version=VERSIONS + 1,
        timestamp=last.commit.timestamp,
        txn_id="broker-1:1:1",
        operations=(
            Operation(
                type="remove",
                origin_id=1,
                origin_seq=0,
                offset_start=oldest.base,
                offset_end=oldest.next_offset - 1,
                segment=oldest.name,
                position=0,
                size=oldest.size,
            ),
        ),
        checkpoint_hint=False,
        end_offset=last.commit.end_offset,
        last_stable_offset=last.commit.last_stable_offset,
        log_start_offset=oldest.next_offset,
        leader_epoch=last.commit.leader_epoch,
        data_crc="00000000",
        prev_crc=last.chain_crc,
        metadata=UNSET,
    )
    replace_file(filesystem, f"{DELTA_LOG}/{VERSIONS + 1:020d}.json", encode_commit(commit).document)
    filesystem.remove(f"{DIRECTORY}/{oldest.name}")
    return oldest.next_offset


def test_records_that_retention_took_are_a_typed_error_never_a_short_read(filesystem, model):
    log_start = remove_oldest_segment(filesystem)
    table = TableReader(filesystem, DIRECTORY)
    everything = model[-1][1]

    with pytest.raises(OffsetOutOfRangeError, match=f"the first one left is {log_start}"):
        table.read(as_of_version=VERSIONS)
    assert values(table.read(log_start, as_of_version=VERSIONS)) == everything[log_start:]
    assert values(table.read()) == everything[log_start:]
    assert table.snapshot().log_start_offset == log_start


# --- what there is -----------------------------------------------------------------------------------------------


def test_the_versions_are_listed_in_either_order_and_the_newest_so_many(filesystem):
    table = TableReader(filesystem, DIRECTORY)

    assert [commit.version for commit in table.versions()] == list(range(VERSIONS + 1))
    assert [commit.version for commit in table.versions(limit=3)] == [25, 26, 27]
    assert [commit.version for commit in table.versions(limit=3, newest_first=True)] == [27, 26, 25]
    assert len(list(table.versions(limit=1_000))) == VERSIONS + 1


def test_the_table_says_what_it_is(filesystem):
    table = TableReader(filesystem, f"{DIRECTORY}/")

    assert table.name == "topic=orders-part=0"
    assert (table.metadata.topic, table.metadata.partition) == ("orders", 0)
    assert table.snapshot().version == VERSIONS
    assert table.snapshot().next_offset == len(list(table.read()))


def test_a_table_of_no_records_is_read_as_such():
    with DataDirectory() as disk:
        disk.make()
        table = TableReader(disk.filesystem, DIRECTORY)

        assert list(table.read()) == []
        assert table.snapshot().version == 0


def test_only_partitions_are_found_in_a_data_directory(tmp_path):
    with DataDirectory(OsFilesystem(), root=str(tmp_path)) as disk:
        for key in (TopicPartition("b", 1), TopicPartition("b", 0), TopicPartition("a", 0)):
            disk.create(key)
    (tmp_path / "notes").mkdir()
    (tmp_path / "topic=x-part=0").write_text("a file")

    assert [path.name for path in find_tables(tmp_path)] == [
        "topic=a-part=0",
        "topic=b-part=0",
        "topic=b-part=1",
    ]


def test_a_table_of_the_operating_systems_files_opens_by_path(tmp_path):
    with DataDirectory(OsFilesystem(), root=str(tmp_path), config=CONFIG) as disk:
        partition = disk.make()
        disk.commit(partition, *batches_of(15))

        table = open_table(Path(tmp_path) / "topic=orders-part=0")

        assert len(list(table.read())) == 15


# --- beside a writer ---------------------------------------------------------------------------------------------


def test_a_reader_sees_what_was_published_when_it_was_opened():
    with DataDirectory(config=CONFIG) as disk:
        partition = disk.make()
        disk.commit(partition, *batches_of(12))
        table = TableReader(disk.filesystem, DIRECTORY)
        disk.commit(partition, *batches_of(40))

        assert len(list(table.read())) == 12
        assert table.snapshot().version == 12
        assert len(list(TableReader(disk.filesystem, DIRECTORY).read())) == 52


def test_what_has_no_version_yet_is_not_seen():
    with DataDirectory(flush_mode=FlushMode.NONE) as disk:
        partition = disk.make()
        disk.commit(partition, *batches_of(3))
        disk.publish(partition)
        disk.commit(partition, *batches_of(2))

        assert len(list(TableReader(disk.filesystem, DIRECTORY).read())) == 3


def test_reading_changes_nothing_and_opens_nothing_for_writing(filesystem):
    watched = CountingFilesystem(filesystem)
    table = TableReader(watched, DIRECTORY)
    for version in range(VERSIONS + 1):
        list(table.read(as_of_version=version))
        list(table.read(5, as_of_version=version))

    assert set(watched.names()) <= {"list_names", "read_file", "open", "read_at", "size", "exists", "file_size"}


def test_opening_reads_the_newest_checkpoint_and_what_is_behind_it_only(filesystem):
    watched = CountingFilesystem(filesystem)
    TableReader(watched, DIRECTORY)

    documents = [op.path.rpartition("/")[2].lstrip("0") for op in watched.operations if op.name == "read_file"]
    assert documents == ["20.checkpoint.json", *(f"{version}.json" for version in range(21, 28))]


# --- damage ------------------------------------------------------------------------------------------------------


def test_index_rows_that_only_the_broker_has_yet_are_no_cause_for_alarm(caplog):
    with DataDirectory() as disk:
        partition = disk.make()
        for _ in range(9):  # more bytes than a look-up walks over before it makes an index of its own
            disk.commit(partition, batch_of(bytes(8_000)))

        records = list(TableReader(disk.filesystem, DIRECTORY).read(8))

    assert [record.offset for record in records] == [8]
    assert caplog.text == ""


def test_a_damaged_checkpoint_is_passed_over(filesystem, model):
    replace_file(filesystem, f"{DELTA_LOG}/{20:020d}.checkpoint.json", b"{")

    assert values(TableReader(filesystem, DIRECTORY).read()) == model[-1][1]


def test_a_damaged_commit_is_named(filesystem):
    replace_file(filesystem, f"{DELTA_LOG}/{24:020d}.json", b"")

    with pytest.raises(DamageError, match=f"{24:020d}.json"):
        TableReader(filesystem, DIRECTORY)


def test_a_directory_that_holds_no_table_is_told_so():
    filesystem = MemoryFilesystem()
    filesystem.make_directories("/x")

    with pytest.raises(DamageError, match="/x/_delta_log is missing"):
        TableReader(filesystem, "/x")


@pytest.mark.parametrize("position", [20, -3])
def test_bytes_that_are_not_what_was_committed_are_damage_that_names_the_place(filesystem, position):
    table = TableReader(filesystem, DIRECTORY)
    segment = table.snapshot().segments[1]
    path = f"{DIRECTORY}/{segment.name}"
    content = bytearray(filesystem.read_file(path))
    content[position] ^= 0x10
    replace_file(filesystem, path, bytes(content))

    with pytest.raises(DamageError, match=segment.name):
        list(table.read())
    assert len(list(table.read(0, segment.base))) == segment.base


def test_a_segment_that_is_too_short_is_damage(filesystem):
    table = TableReader(filesystem, DIRECTORY)
    segment = table.snapshot().segments[-1]
    filesystem.open(f"{DIRECTORY}/{segment.name}").truncate(segment.size - 1)

    with pytest.raises(DamageError, match=segment.name):
        list(table.read())


def test_records_of_every_kind_come_back_as_they_were_sent():
    records = [
        NewRecord(None, key=b"k", headers=(("h", b"v"), ("n", None)), timestamp_ms=FIRST_MS),
        NewRecord(b"", key=None, timestamp_ms=FIRST_MS + 1),
        NewRecord(json.dumps({"a": 1}).encode(), key=b"", timestamp_ms=FIRST_MS + 2),
    ]
    with DataDirectory() as disk:
        disk.commit(disk.make(), build_batch(records))
        read = list(TableReader(disk.filesystem, DIRECTORY).read())

    assert [(r.value, r.key, r.headers, r.timestamp_ms) for r in read] == [
        (r.value, r.key, tuple(r.headers), r.timestamp_ms) for r in records
    ]
