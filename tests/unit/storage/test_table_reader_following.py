"""A reader that stays open beside a writer: it goes on when told to, and is never told less than there is."""

import json

import pytest

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.deltalog.commit_format import decode_commit
from exactlog.core.deltalog.timestamps import parse_timestamp
from exactlog.core.model.errors import DamageError, OffsetOutOfRangeError, VersionExpiredError, VersionUnknownError
from exactlog.storage.delta_log_files import DeltaLogFiles
from exactlog.storage.filesystem import MemoryFilesystem
from exactlog.storage.packing import find_pack, pack
from exactlog.storage.settings import FlushMode
from exactlog.storage.table_reader import TableReader
from tests.support.counting_filesystem import CountingFilesystem
from tests.support.long_tables import checkpoint_path, commit_path, pack_all, write_table
from tests.support.partitions import DIRECTORY, DataDirectory, batch_of, copy_of, replace_file
from tests.unit.core.deltalog.histories import seal

CONFIG = TopicConfig(segment_bytes=700, index_interval_bytes=200, file_delete_delay_ms=0)


@pytest.fixture(params=FlushMode)
def disk(request):
    with DataDirectory(config=CONFIG, flush_mode=request.param, checkpoint_interval=4) as disk:
        yield disk


@pytest.fixture
def partition(disk):
    return disk.make()


def append(disk, partition, *numbers):
    """A version for each number, the record's value."""
    for number in numbers:
        disk.commit(partition, batch_of(b"%d" % number))
        disk.publish(partition)


def numbers_of(records):
    return [int(record.value) for record in records]


# --- following ---------------------------------------------------------------------------------------------------


def test_a_reader_follows_a_writer_as_often_as_it_is_told_to(disk, partition):
    table = TableReader(disk.filesystem, DIRECTORY)
    for end in range(40):
        assert numbers_of(table.read()) == list(range(end))
        assert numbers_of(table.read(max(0, end - 3))) == list(range(max(0, end - 3), end))
        assert table.snapshot().version == end
        append(disk, partition, end)
        with pytest.raises(VersionUnknownError):
            table.read(as_of_version=end + 1)

        table.refresh()

    fresh = TableReader(disk.filesystem, DIRECTORY)
    assert table.snapshot() == fresh.snapshot()
    assert [found.delta_version for found in table.read_stored()] == list(range(1, 41))
    assert len(partition.segments) > 3


def test_what_is_not_published_is_not_followed():
    with DataDirectory(flush_mode=FlushMode.NONE) as disk:
        partition = disk.make()
        table = TableReader(disk.filesystem, DIRECTORY)
        disk.commit(partition, batch_of(b"0"))
        table.refresh()
        assert list(table.read()) == []

        disk.publish(partition)
        table.refresh()
        assert numbers_of(table.read()) == [0]


def test_records_that_are_being_read_stay_those_of_the_version_they_are_read_as_of(disk, partition):
    append(disk, partition, *range(10))
    table = TableReader(disk.filesystem, DIRECTORY)
    reading = table.read()
    read = [next(reading)]

    append(disk, partition, *range(10, 30))
    table.refresh()
    read += reading

    assert numbers_of(read) == list(range(10))
    assert numbers_of(table.read()) == list(range(30))


def test_a_reader_that_goes_on_reads_the_new_versions_and_nothing_else():
    disk = DataDirectory(CountingFilesystem(MemoryFilesystem()), config=CONFIG, checkpoint_interval=4)
    partition = disk.make()
    append(disk, partition, *range(200))
    table = TableReader(disk.filesystem, DIRECTORY)
    disk.filesystem.clear()

    table.refresh()
    assert len(disk.filesystem.operations) <= 2, "nothing is new"

    append(disk, partition, *range(200, 207))
    disk.filesystem.clear()
    table.refresh()
    assert disk.filesystem.names() == ["read_file"] * 7 + ["exists"]
    disk.close()


def test_following_a_segment_that_grows_reads_each_batch_of_it_a_few_times_only(caplog):
    """Its index is in the writer's memory; the reader's own grows with what it has seen."""
    costs = []
    for versions in (300, 1_200):
        disk = DataDirectory(CountingFilesystem(MemoryFilesystem()), config=TopicConfig(index_interval_bytes=200))
        partition = disk.make()
        table = TableReader(disk.filesystem, DIRECTORY)
        bytes_read = 0
        for number in range(versions):
            append(disk, partition, number)
            disk.filesystem.clear()
            table.refresh()
            assert numbers_of(table.read(number)) == [number]
            bytes_read += disk.filesystem.bytes_read
        costs.append(bytes_read / versions)
        disk.close()

    assert "rebuilt" not in caplog.text
    assert costs[1] <= costs[0] * 1.2


# --- beside packing ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("behind", [0, 1, 9, 10, 11, 25])
def test_a_reader_goes_on_over_versions_that_were_packed_meanwhile(behind):
    with DataDirectory(config=CONFIG, checkpoint_interval=4) as disk:
        partition = disk.make()
        append(disk, partition, *range(10))
        table = TableReader(disk.filesystem, DIRECTORY)
        append(disk, partition, *range(10, 10 + behind))
        newest = 10 + behind
        append(disk, partition, *range(newest, 45))
        pack_all(disk.filesystem, versions_keep=1)

        table.refresh()

        assert table.snapshot() == TableReader(disk.filesystem, DIRECTORY).snapshot()
        assert numbers_of(table.read()) == list(range(45))


def test_a_reader_whose_newest_version_is_packed_finds_that_nothing_is_new():
    filesystem, _ = write_table(versions=19, checkpoint_interval=19)
    with DataDirectory(filesystem, config=CONFIG) as disk:
        disk.open()
        pack(filesystem, DIRECTORY, find_pack(DeltaLogFiles(filesystem, DIRECTORY), versions_keep=0, pack_versions=20))
        assert not filesystem.exists(commit_path(19))
        table = TableReader(filesystem, DIRECTORY)

        table.refresh()

        assert table.snapshot().version == 19


# --- beside removal ----------------------------------------------------------------------------------------------


def test_as_of_a_version_whose_records_were_removed_is_an_error_that_names_the_oldest_whole_one(disk, partition):
    append(disk, partition, *range(20))
    disk.move_log_start(partition, 7)
    append(disk, partition, 20)
    disk.move_log_start(partition, 13)
    first_whole = partition.table.version
    append(disk, partition, *range(21, 25))
    table = TableReader(disk.filesystem, DIRECTORY)

    for version in range(1, partition.table.version + 1):
        commit = next(found for found in table.versions() if found.version == version)
        expected = list(range(commit.log_start_offset, commit.end_offset))
        if version >= first_whole:
            assert numbers_of(table.read(as_of_version=version)) == expected
            continue
        with pytest.raises(OffsetOutOfRangeError, match="the first one left is 13") as removed:
            table.read(as_of_version=version)
        assert (removed.value.oldest, removed.value.oldest_version) == (13, first_whole)
        assert f"the oldest version that can be read is {first_whole}" in str(removed.value)
        assert numbers_of(table.read(13, as_of_version=version)) == [number for number in expected if number >= 13]
    assert numbers_of(table.read()) == list(range(13, 25))


def test_a_version_that_had_no_records_has_lost_none(disk, partition):
    append(disk, partition, *range(5))
    disk.move_log_start(partition, 3)
    table = TableReader(disk.filesystem, DIRECTORY)

    assert list(table.read(as_of_version=0)) == []
    assert list(table.read(1, 1, as_of_version=4)) == []
    with pytest.raises(OffsetOutOfRangeError):
        table.read(1, 2, as_of_version=4)


def test_a_time_whose_version_has_lost_records_is_the_same_error(disk, partition):
    for number in range(6):
        disk.clock.time_ms += 1_000
        append(disk, partition, number)
    disk.clock.time_ms += 1_000
    disk.move_log_start(partition, 4)
    disk.publish(partition)
    table = TableReader(disk.filesystem, DIRECTORY)
    times = {commit.version: parse_timestamp(commit.timestamp) for commit in table.versions()}

    with pytest.raises(OffsetOutOfRangeError) as removed:
        table.read(as_of_timestamp=times[3])
    oldest = removed.value.oldest_version
    assert numbers_of(table.read(as_of_timestamp=times[oldest])) == [4, 5]


def test_a_segment_that_goes_while_it_is_being_read_is_the_same_error_not_a_short_read(disk, partition):
    append(disk, partition, *range(40))
    table = TableReader(disk.filesystem, DIRECTORY)
    reading = table.read()
    assert int(next(reading).value) == 0

    disk.move_log_start(partition, 30)
    append(disk, partition, 40)
    for _ in range(6):
        partition.sweep_removed(now_ms=disk.clock.time_ms + 1)
        disk.run_round()
        disk.publish(partition)
    assert not disk.filesystem.exists(f"{DIRECTORY}/{0:020d}.log")
    rest = []
    with pytest.raises(OffsetOutOfRangeError) as removed:
        rest.extend(reading)

    assert numbers_of(rest) == list(range(1, len(rest) + 1)), "what its open file still holds"
    assert len(rest) < 29
    assert removed.value.oldest == 30
    table.refresh()
    assert numbers_of(table.read()) == list(range(30, 41))


def test_a_segment_that_is_missing_and_was_not_removed_is_damage(disk, partition):
    append(disk, partition, *range(20))
    table = TableReader(disk.filesystem, DIRECTORY)
    disk.filesystem.remove(f"{DIRECTORY}/{table.snapshot().segments[1].name}")

    with pytest.raises(DamageError, match=f"{table.snapshot().segments[1].name} is missing"):
        list(table.read())


# --- damage, and what is odd -------------------------------------------------------------------------------------


def test_a_new_version_that_is_damaged_is_named_and_the_table_stays_as_it_was(disk, partition):
    append(disk, partition, *range(10))
    table = TableReader(disk.filesystem, DIRECTORY)
    append(disk, partition, 10, 11, 12)
    document = disk.filesystem.read_file(commit_path(13))
    elsewhere = json.loads(document) | {"prev_crc": "0badcafe"}
    for content in (b"", document[:-20], document + b"x", seal(elsewhere)):
        replace_file(disk.filesystem, commit_path(13), content)
        for _ in range(2):
            with pytest.raises(DamageError, match=r"0013\.json|version 13 does not follow"):
                table.refresh()
            assert numbers_of(table.read()) == list(range(10))

    replace_file(disk.filesystem, commit_path(13), document)
    table.refresh()
    assert numbers_of(table.read()) == list(range(13))


def test_a_damaged_version_behind_which_there_is_a_checkpoint_holds_nobody_up(disk, partition):
    append(disk, partition, *range(10))
    table = TableReader(disk.filesystem, DIRECTORY)
    append(disk, partition, *range(10, 15))
    replace_file(disk.filesystem, commit_path(11), b"{")

    table.refresh()

    assert numbers_of(table.read()) == list(range(15))


def test_a_table_that_lost_its_newest_versions_is_followed_backwards(disk, partition):
    """Recovery may drop versions whose bytes were never synced."""
    append(disk, partition, *range(10))
    earlier = copy_of(disk.filesystem)
    append(disk, partition, *range(10, 15))
    table = TableReader(disk.filesystem, DIRECTORY)
    DeltaLogFiles(disk.filesystem, DIRECTORY).remove_from(11)

    table.refresh()

    assert table.snapshot() == TableReader(earlier, DIRECTORY).snapshot()
    assert numbers_of(table.read()) == list(range(10))


def test_a_version_whose_commit_is_gone_is_read_by_its_checkpoint():
    """delta #255: a table was refused as of a version although its checkpoint and all later commits were there."""
    filesystem, _ = write_table(versions=20)
    for version in range(13):
        filesystem.remove(commit_path(version))
    table = TableReader(filesystem, DIRECTORY)

    assert table.oldest_version == 12
    assert numbers_of(table.read(as_of_version=12)) == list(range(12))
    assert [commit.version for commit in table.versions()] == list(range(13, 21))
    assert [found.delta_version for found in table.read_stored(10, 15)] == [None, None, 13, 14, 15]
    assert table.version_of(11) is None
    times = [parse_timestamp(commit.timestamp) for commit in table.versions()]
    assert table.version_at(times[0] - 1) == 12


def test_with_the_first_versions_gone_all_others_are_read_and_those_are_said_to_be_expired():
    """deltalake 1.6.6, live: versions 0 to 2 gone, a checkpoint at 5; the error was "No table metadata"."""
    filesystem, _ = write_table(versions=8, checkpoint_interval=5)
    for version in range(3):
        filesystem.remove(commit_path(version))
    table = TableReader(filesystem, DIRECTORY)

    assert numbers_of(table.read()) == list(range(8))
    for version in range(3, 9):
        assert numbers_of(table.read(as_of_version=version)) == list(range(version))
    for version in range(3):
        with pytest.raises(VersionExpiredError, match="the oldest one that can is 3"):
            table.read(as_of_version=version)


def test_a_checkpoint_alone_is_a_table_of_one_version():
    filesystem, _ = write_table(versions=20)
    for version in range(21):
        filesystem.remove(commit_path(version))
    table = TableReader(filesystem, DIRECTORY)

    assert (table.oldest_version, table.snapshot().version) == (20, 20)
    assert numbers_of(table.read(as_of_version=20)) == list(range(20))
    assert {found.delta_version for found in table.read_stored()} == {None}
    assert list(table.versions()) == []


def test_a_young_table_without_any_checkpoint_opens():
    """DeltaLakeReader #41: a table of fewer than ten commits was refused for want of a hint to its checkpoint."""
    filesystem, _ = write_table(versions=3, checkpoint_interval=10)

    table = TableReader(filesystem, DIRECTORY)

    assert numbers_of(table.read()) == [0, 1, 2]
    assert table.oldest_version == 0


def test_as_of_the_version_of_a_checkpoint_it_is_that_version():
    """delta-rs #1403: the version of a checkpoint was loaded as another one."""
    filesystem, _ = write_table(versions=20)
    assert filesystem.exists(checkpoint_path(12))

    assert numbers_of(TableReader(filesystem, DIRECTORY).read(as_of_version=12)) == list(range(12))


def test_a_segment_that_was_rewritten_is_read_by_its_name():
    filesystem, _ = write_table(versions=20)
    table = TableReader(filesystem, DIRECTORY)
    rewritten = rename_segments(filesystem, table)

    again = TableReader(filesystem, DIRECTORY)

    assert [segment.name for segment in again.snapshot().segments] == rewritten
    assert numbers_of(again.read()) == list(range(20))
    assert numbers_of(again.read(7, 15)) == list(range(7, 15))


def rename_segments(filesystem, table):
    """What a rewriting of every segment leaves: other names, with a generation; no index files. The names."""
    names = {}
    for segment in table.snapshot().segments:
        names[segment.name] = segment.name.replace(".log", ".g2.log")
        filesystem.rename(f"{DIRECTORY}/{segment.name}", f"{DIRECTORY}/{names[segment.name]}")
    for version in range(0, 21, 4):
        if filesystem.exists(checkpoint_path(version)):
            filesystem.remove(checkpoint_path(version))
    chain_crc = "00000000"
    for version in range(21):
        document = filesystem.read_file(commit_path(version))
        for name, new in names.items():
            document = document.replace(name.encode(), new.encode())
        # Where bytes lie is not part of the chain; the document's own checksum is made anew.
        replace_file(filesystem, commit_path(version), seal(json.loads(document)))
        decoded = decode_commit(filesystem.read_file(commit_path(version)), path_hint="x")
        assert decoded.commit.prev_crc == chain_crc
        chain_crc = decoded.chain_crc
    return list(names.values())


def test_batches_of_any_number_of_records_are_told_their_versions():
    with DataDirectory(config=CONFIG) as disk:
        partition = disk.make()
        for version in range(1, 20):
            disk.commit(partition, batch_of(*(b"%d" % version for _ in range(1 + version % 3))))
        stored = list(TableReader(disk.filesystem, DIRECTORY).read_stored())

    assert [found.delta_version for found in stored] == [int(found.record.value) for found in stored]


def test_reading_records_needs_no_old_commit(disk, partition):
    append(disk, partition, *range(30))
    damaged = copy_of(disk.filesystem)
    replace_file(damaged, commit_path(9), b"{")
    table = TableReader(damaged, DIRECTORY)

    assert numbers_of(table.read()) == list(range(30))
    with pytest.raises(DamageError, match=f"{9:020d}.json"):
        list(table.read_stored())
