"""Directories as a source, against a naive reader of the same files; without Spark."""

import random
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import astuple, replace

from exactlog.core.model.errors import (
    DamageError,
    NotFoundError,
    OffsetOutOfRangeError,
    VersionExpiredError,
    VersionUnknownError,
)
from exactlog.core.model.ids import TopicPartition
from exactlog.core.model.isolation_level import IsolationLevel
from exactlog.core.record.batch_format import (
    ATTRIBUTES_POSITION,
    BATCH_OVERHEAD,
    CRC_POSITION,
    HEADER,
    checksum,
    decode_header,
)
from exactlog.core.record.record_format import encode_record
from exactlog.pipeline.arrow_rows import read_rows
from exactlog.pipeline.path_source import PathSource
from exactlog.pipeline.planning import plan_tasks
from exactlog.pipeline.read_options import ReadOptions
from exactlog.pipeline.schema import COLUMN_NAMES, COLUMNS, arrow_schema
from exactlog.pipeline.source import Slice
from exactlog.storage.filesystem import OsFilesystem
from exactlog.storage.table_reader import open_table
from exactlog.storage.vacuum import vacuum
from tests.support.generated_logs import CONFIG, PLACES, write_log
from tests.support.naive_reader import NaiveTable, naive_rows
from tests.support.partitions import DataDirectory, batch_of
from tests.support.spark_schemas import schema_of

ORDERS = TopicPartition("orders", 0)
FULL = arrow_schema(schema_of())
SEEDS = range(4)


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """Some data directories, by seed."""
    made = {}
    for seed in SEEDS:
        made[seed] = tmp_path_factory.mktemp("log")
        write_log(made[seed], seed=seed, removes=seed % 2 == 0)
    return made


def slices_of(source, **more):
    return [
        Slice(place.topic, place.partition, extent.start_offset, extent.end_offset, extent.version, first_row=0)
        for place, extent in source.extents().items()
    ]


def read(path, names=COLUMN_NAMES, *, bytes_max=1 << 30, **options):
    """The rows that a query would have, as the naive reader writes them."""
    options = ReadOptions(path=str(path), **options)
    schema = arrow_schema(schema_of(*names))
    planned = PathSource(options, names)
    tasks = plan_tasks(planned, slices_of(planned), bytes_max=bytes_max)
    return [
        plain(row)
        for task in tasks
        for part in read_rows(PathSource(options, names), task, schema)
        for row in part.to_pylist()
    ]


def plain(row):
    if "headers" in row:
        row["headers"] = [(header["name"], header["value"]) for header in row["headers"]]
    if row.get("timestamp") is not None:
        row["timestamp"] = round(row["timestamp"].timestamp() * 1_000)
    return row


def readable_versions(table):
    """The versions of a partition whose records are all still there."""
    oldest = table.commits[table.newest]["log_start_offset"]
    return [version for version, commit in sorted(table.commits.items()) if commit["log_start_offset"] >= oldest]


# --- against the naive reader ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("control", [False, True])
@pytest.mark.parametrize("committed", [False, True])
def test_every_column_of_every_version_is_what_the_naive_reader_finds(logs, seed, committed, control):
    isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    for place in PLACES:
        directory = logs[seed] / f"topic={place.topic}-part={place.partition}"
        table = NaiveTable(directory)
        for version in readable_versions(table):
            found = read(directory, version_as_of=version, isolation=isolation, include_control=control)

            assert found == table.rows(version=version, committed=committed, control=control)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_data_directory_is_all_its_partitions_as_they_are_now(logs, seed):
    assert read(logs[seed]) == naive_rows(logs[seed])
    assert read(logs[seed], topics=("payments",)) == naive_rows(logs[seed], ["payments"])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_range_of_versions_has_what_these_added_and_sees_it_as_its_last_one_does(logs, seed):
    dice = random.Random(seed)
    table = NaiveTable(logs[seed] / "topic=orders-part=0")
    versions = readable_versions(table)
    for _ in range(30):
        first, last = sorted(dice.choices(versions, k=2))
        committed = dice.random() < 0.5
        isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED

        found = read(table.directory, starting_version=first, ending_version=last, isolation=isolation)
        assert found == table.rows(version=last, starting=first, committed=committed)

        found = read(table.directory, starting_version=first, isolation=isolation)
        assert found == table.rows(starting=first, committed=committed)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_rows_come_however_they_are_cut_and_whatever_columns_are_left_out(logs, seed):
    dice = random.Random(seed)
    whole = naive_rows(logs[seed], control=True)
    for bytes_max in (1, 100, 700, 5_000):
        names = dice.sample(COLUMN_NAMES, dice.randint(1, 5))
        found = read(logs[seed], names, bytes_max=bytes_max, include_control=True)

        assert found == [{name: row[name] for name in names} for row in whole]
    plain_names = [column.name for column in COLUMNS if not column.is_in_records]
    assert read(logs[seed], plain_names, bytes_max=400) == [
        {name: row[name] for name in plain_names} for row in naive_rows(logs[seed])
    ]


@pytest.mark.parametrize("seed", [1, 3])
def test_as_of_a_time_each_partition_is_at_the_version_of_that_time(logs, seed):
    tables = [NaiveTable(logs[seed] / f"topic={place.topic}-part={place.partition}") for place in PLACES]
    moments = {table.time_of(version) + more for table in tables for version in table.commits for more in (0, 1)}
    for moment in sorted(moments)[::7]:
        there = [table for table in tables if table.time_of(0) <= moment]

        found = read(logs[seed], timestamp_as_of_ms=moment)

        assert found == [row for table in there for row in table.rows(version=table.version_at(moment))]


@pytest.mark.parametrize("seed", SEEDS)
def test_an_offset_and_a_version_tell_where_the_other_is(logs, seed):
    table = NaiveTable(logs[seed] / "topic=orders-part=0")
    source = PathSource(ReadOptions(path=str(logs[seed])))

    for version, commit in table.commits.items():
        added = [operation["offset_start"] for operation in commit["operations"] if operation["type"] == "add"]
        assert source.first_added(ORDERS, version) == min(added, default=commit["end_offset"])


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_older_than_a_time_is_skipped_up_to_the_first_batch_that_is_not(logs, seed):
    dice = random.Random(seed)
    source = PathSource(ReadOptions(path=str(logs[seed]), isolation=IsolationLevel.READ_UNCOMMITTED))
    piece = slices_of(source)[0]
    rows = NaiveTable(logs[seed] / "topic=orders-part=0").rows(committed=False)
    times = sorted(row["timestamp"] or 0 for row in rows)
    for moment in (0, *dice.sample(times, 20), times[-1] + 1):
        start = source.skip_older(piece, moment)

        first = next((row["offset"] for row in rows if (row["timestamp"] or 0) >= moment), piece.end_offset)
        assert piece.start_offset <= start <= first


def test_what_a_checkpoint_says_of_a_segment_is_not_said_of_what_came_later(tmp_path):
    with DataDirectory(OsFilesystem(), root=str(tmp_path), checkpoint_interval=3) as disk:
        partition = disk.make()
        disk.commit(partition, *(batch_of(b"old", timestamp_ms=1_000) for _ in range(3)))
        disk.commit(partition, batch_of(b"young", timestamp_ms=5_000))
    source = PathSource(ReadOptions(path=str(tmp_path)))
    (piece,) = slices_of(source)

    assert [source.skip_older(piece, moment) for moment in (500, 1_000, 3_000, 5_000, 6_000)] == [0, 0, 3, 3, 4]


def test_a_batch_with_gaps_has_as_many_rows_as_records_whatever_is_asked_for(tmp_path):
    content = b"".join(
        encode_record(offset_delta=delta, timestamp_delta=0, key=None, value=b"x", headers=()) for delta in (1, 4)
    )
    gapped = batch_of(b"")[:BATCH_OVERHEAD] + content
    header = replace(decode_header(gapped), batch_length=len(gapped) - 12, last_offset_delta=5, record_count=2)
    HEADER.pack_into(gapped, 0, *astuple(header))
    gapped[CRC_POSITION:ATTRIBUTES_POSITION] = checksum(gapped, 0, len(gapped)).to_bytes(4)
    with DataDirectory(OsFilesystem(), root=str(tmp_path)) as disk:
        disk.commit(disk.make(), batch_of(b"a"), gapped, batch_of(b"b"))

    rows = read(tmp_path)

    assert [row["offset"] for row in rows] == [0, 2, 5, 7]
    assert rows == naive_rows(tmp_path)
    assert read(tmp_path, ("row_seq", "offset")) == [
        {"row_seq": row["row_seq"], "offset": row["offset"]} for row in rows
    ]
    source = PathSource(ReadOptions(path=str(tmp_path)))
    (piece,) = slices_of(source)
    assert source.count_rows(piece) == 4
    assert source.count_rows(replace(piece, start_offset=3, end_offset=7)) == 1


# --- cutting --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_a_piece_is_cut_between_batches_until_each_part_is_small_or_one_batch(logs, seed):
    source = PathSource(ReadOptions(path=str(logs[seed]), isolation=IsolationLevel.READ_UNCOMMITTED))
    for piece in slices_of(source):
        table = NaiveTable(logs[seed] / f"topic={piece.topic}-part={piece.partition}")
        sizes = {batch["base_offset"]: len(batch["bytes"]) for batch in table.batches}
        for bytes_max in (1, 300, 1_000, 100_000):
            parts = source.split(piece, bytes_max=bytes_max)

            assert [part.end_offset for part in parts[:-1]] == [part.start_offset for part in parts[1:]]
            assert (parts[0].start_offset, parts[-1].end_offset) == (piece.start_offset, piece.end_offset)
            assert all(part.start_offset in sizes for part in parts[1:])
            for part in parts:
                inside = [size for offset, size in sizes.items() if part.start_offset <= offset < part.end_offset]
                assert part.size_bytes <= bytes_max or len(inside) <= 1
            for one, two in pairwise(parts):
                assert one.version == two.version == piece.version


# --- which partitions -----------------------------------------------------------------------------------------------


def make_log(root, *places, count=3, config=CONFIG):
    """Partitions with one record a version."""
    with DataDirectory(OsFilesystem(), root=str(root), config=config, checkpoint_interval=3) as disk:
        for place in places:
            partition = disk.make(place)
            disk.commit(partition, *(batch_of(b"%d" % number) for number in range(count)))


def test_internal_topics_are_read_only_when_they_are_named(tmp_path):
    make_log(tmp_path, ORDERS, TopicPartition("__consumer_offsets", 0), TopicPartition("__transaction_state", 0))

    assert {row["topic"] for row in read(tmp_path)} == {"orders"}
    assert {row["topic"] for row in read(tmp_path, topics=("__consumer_offsets",))} == {"__consumer_offsets"}
    assert len(read(tmp_path / "topic=__transaction_state-part=0")) == 3


def test_a_topic_whose_name_is_too_long_for_a_directory_is_read(tmp_path):
    name = "n" * 249
    make_log(tmp_path, ORDERS, TopicPartition(name, 0))

    assert {row["topic"] for row in read(tmp_path)} == {"orders", name}
    assert {row["topic"] for row in read(tmp_path, topics=(name,))} == {name}


def test_a_copy_of_a_partition_is_read_whatever_its_directory_is_called(tmp_path):
    make_log(tmp_path / "data", ORDERS)
    shutil.copytree(tmp_path / "data" / "topic=orders-part=0", tmp_path / "copy")

    assert [row["topic"] for row in read(tmp_path / "copy")] == ["orders"] * 3


def test_what_is_published_or_made_later_is_found_when_it_is_looked_for_again(tmp_path):
    make_log(tmp_path, ORDERS)
    source = PathSource(ReadOptions(path=str(tmp_path)))
    assert [extent.end_offset for extent in source.extents().values()] == [3]

    with DataDirectory(OsFilesystem(), root=str(tmp_path), config=CONFIG) as disk:
        disk.commit(disk.open(ORDERS), batch_of(b"more"))
        disk.make(TopicPartition("payments", 0))

    extents = source.extents()
    assert {place: (extent.end_offset, extent.version) for place, extent in extents.items()} == {
        ORDERS: (4, 4),
        TopicPartition("payments", 0): (0, 0),
    }
    assert set(source.topic_ids) == {"orders", "payments"}
    shutil.rmtree(tmp_path / "topic=orders-part=0")
    assert list(source.extents()) == [TopicPartition("payments", 0)]


# --- what cannot be read --------------------------------------------------------------------------------------------


def refusal(kind, path, **options):
    with pytest.raises(kind) as caught:
        read(path, **options)
    return str(caught.value), caught.value.hint


def test_a_path_that_is_no_log_is_refused(tmp_path):
    assert refusal(NotFoundError, tmp_path) == (
        f"{tmp_path} is no partition and no data directory",
        "a partition's directory is named topic=NAME-part=N; a data directory holds some of them",
    )
    missing = tmp_path / "nowhere"
    assert refusal(NotFoundError, missing)[0] == f"{missing} cannot be read: No such file or directory"


def test_a_topic_that_is_not_there_is_named_with_the_nearest(tmp_path):
    make_log(tmp_path, ORDERS)

    assert refusal(NotFoundError, tmp_path, topics=("oders",)) == (
        f"{tmp_path} holds no topic oders",
        "Did you mean orders?",
    )


def test_a_version_of_the_future_is_refused_by_the_partition_that_lacks_it(tmp_path):
    make_log(tmp_path, ORDERS)
    make_log(tmp_path, TopicPartition("payments", 0), count=1)

    message, hint = refusal(VersionUnknownError, tmp_path, version_as_of=2)

    assert message == "topic payments, partition 0, version 2: there is no such version; the newest one is 1"
    assert hint == "each partition counts its versions alone: timestampAsOf goes for all"
    for option in ("starting_version", "ending_version"):
        assert refusal(VersionUnknownError, tmp_path, **{option: 9})[0].startswith(
            "topic orders, partition 0, version 9"
        )


def test_a_version_that_has_been_vacuumed_is_refused(tmp_path):
    make_log(tmp_path, ORDERS, count=20)
    vacuum(OsFilesystem(), str(tmp_path / "topic=orders-part=0"), versions_keep=2)
    oldest = open_table(tmp_path / "topic=orders-part=0").oldest_version
    assert oldest > 3

    for option in ("version_as_of", "starting_version", "ending_version"):
        message, hint = refusal(VersionExpiredError, tmp_path, **{option: 3})
        assert message.startswith("topic orders, partition 0, version 3: so old a version cannot be read; ")
        assert hint == f"ask for version {oldest} or a later one"
    assert refusal(VersionExpiredError, tmp_path, timestamp_as_of_ms=5)[0].startswith(
        "topic orders, partition 0 at the time of timestampAsOf: so old a version cannot be read"
    )


def test_a_range_begins_with_the_first_version_whose_adds_are_known(tmp_path):
    make_log(tmp_path, ORDERS, count=20)
    vacuum(OsFilesystem(), str(tmp_path / "topic=orders-part=0"), versions_keep=2)
    table = open_table(tmp_path / "topic=orders-part=0")
    oldest = table.oldest_version
    (
        tmp_path / "topic=orders-part=0" / "_delta_log" / f"{oldest:020d}.json"
    ).unlink()  # its checkpoint stands in for it
    assert open_table(tmp_path / "topic=orders-part=0").oldest_version == oldest

    message, hint = refusal(VersionExpiredError, tmp_path, starting_version=oldest)

    assert message.endswith(f"the oldest one that can is {oldest + 1}")
    assert hint == f"ask for version {oldest + 1} or a later one"
    assert [row["offset"] for row in read(tmp_path, starting_version=oldest + 1)] == list(range(oldest, 20))
    assert [row["offset"] for row in read(tmp_path, version_as_of=oldest)] == list(range(oldest))


def test_versions_that_are_not_known_any_more_are_null(tmp_path):
    make_log(tmp_path, ORDERS, count=20)
    vacuum(OsFilesystem(), str(tmp_path / "topic=orders-part=0"), versions_keep=2)
    oldest = open_table(tmp_path / "topic=orders-part=0").oldest_version

    rows = read(tmp_path, ("offset", "delta_version", "origin_id"))

    assert [row["offset"] for row in rows] == list(range(20))
    known = [row for row in rows if row["delta_version"] is not None]
    assert [row["delta_version"] for row in known] == [row["offset"] + 1 for row in known]
    assert len(known) in {20 - oldest, 21 - oldest}
    assert {row["origin_id"] for row in known} == {"1"}


def test_a_time_before_all_partitions_is_refused(tmp_path):
    make_log(tmp_path, ORDERS)

    message, hint = refusal(VersionExpiredError, tmp_path, timestamp_as_of_ms=5)

    assert message == (
        "topic orders, partition 0 at the time of timestampAsOf: so old a version cannot be read; the oldest one that "
        "can is 0"
    )
    assert hint == "ask for 2025-11-07T18:15:02.883Z, when it was made, or a later time"


def test_a_version_whose_records_have_been_removed_is_refused_whole_and_read_behind_them(tmp_path):
    with DataDirectory(OsFilesystem(), root=str(tmp_path), config=CONFIG) as disk:
        partition = disk.make()
        disk.commit(partition, *(batch_of(b"%d" % number) for number in range(9)))
        disk.move_log_start(partition, 4)

    message, hint = refusal(OffsetOutOfRangeError, tmp_path, version_as_of=6)
    assert message == (
        "topic orders, partition 0, offset 0 as of version 6: those offsets have been removed; the first one left is "
        "4, the oldest version that can be read is 10"
    )
    assert hint == "ask for version 10 or a later one"
    source = PathSource(ReadOptions(path=str(tmp_path), version_as_of=6))
    piece = replace(slices_of(source)[0], start_offset=4)
    assert [batch.header.base_offset for batch in source.batches(piece)] == [4, 5]


def test_damage_names_the_first_offset_that_cannot_be_read(tmp_path):
    make_log(tmp_path, ORDERS)
    (segment,) = (tmp_path / "topic=orders-part=0").glob("*.log")
    content = bytearray(segment.read_bytes())
    content[-1] ^= 1
    segment.write_bytes(content)

    message, hint = refusal(DamageError, tmp_path)

    assert message == (
        f"topic orders, partition 0, offset 2 as of version 3 cannot be read: {segment}: "
        f"the batch at byte {len(content) // 3 * 2} does not match its checksum"
    )
    assert hint == "look what is wrong with `exactlog log verify`"


@pytest.mark.parametrize("names", [COLUMN_NAMES, ("offset",)])
def test_a_checksum_is_checked_even_when_no_record_is_wanted(tmp_path, names):
    make_log(tmp_path, ORDERS)
    (segment,) = (tmp_path / "topic=orders-part=0").glob("*.log")
    content = bytearray(segment.read_bytes())
    content[65] ^= 1
    segment.write_bytes(content)

    with pytest.raises(DamageError, match="offset 0 as of version 3 cannot be read"):
        read(tmp_path, names)


def test_a_file_that_is_gone_is_damage(tmp_path):
    make_log(tmp_path, ORDERS)
    source = PathSource(ReadOptions(path=str(tmp_path)))
    pieces = slices_of(source)
    for segment in (tmp_path / "topic=orders-part=0").glob("*.log"):
        segment.unlink()

    with pytest.raises(
        DamageError, match=r"topic orders, partition 0, offset 0 as of version 3 cannot be read: .*missing"
    ):
        list(PathSource(ReadOptions(path=str(tmp_path))).batches(pieces[0]))


def test_a_delta_log_that_is_damaged_names_the_version(tmp_path):
    make_log(tmp_path, ORDERS)
    path = tmp_path / "topic=orders-part=0" / "_delta_log" / f"{2:020d}.json"
    path.write_bytes(path.read_bytes()[:-5])
    for checkpoint in path.parent.glob("*.checkpoint.json"):
        checkpoint.unlink()

    assert str(path) in refusal(DamageError, tmp_path)[0]


def test_a_directory_that_a_worker_does_not_see_is_named(tmp_path):
    source = PathSource(ReadOptions(path=str(tmp_path)))

    with pytest.raises(NotFoundError) as caught:
        list(source.batches(Slice("orders", 0, 0, 3, version=3)))

    assert str(caught.value).startswith("topic orders, partition 0 is not to be read: there is no directory")
    assert "all machines of a cluster must have the data directory mounted" in caught.value.hint


def test_nothing_is_changed_and_no_lock_is_taken(tmp_path):
    make_log(tmp_path, ORDERS)
    before = {path: path.stat().st_mtime_ns for path in Path(tmp_path).rglob("*")}

    read(tmp_path)

    assert {path: path.stat().st_mtime_ns for path in Path(tmp_path).rglob("*")} == before
