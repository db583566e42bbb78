"""What tasks write: every row once, in a file of its day; nothing is left of an attempt that failed."""

import datetime as dt
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.pipeline import export_files
from exactlog.pipeline.export_files import NO_DATE, decode_written, write_rows

UTC = dt.UTC
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("delta_version", pa.int64()),
        ("value", pa.binary()),
    ]
)


def rows(*found):
    names = SCHEMA.names
    return pa.RecordBatch.from_pylist([dict(zip(names, row, strict=True)) for row in found], schema=SCHEMA)


def row(offset, *, day=1, partition=0, version=1):
    timestamp = None if day is None else dt.datetime(2026, 11, day, 12, tzinfo=UTC)
    return ("orders", partition, offset, timestamp, version, b"v%d" % offset)


def written(batches, root, *, is_by_date=True):
    told = list(write_rows(batches, root=str(root), is_by_date=is_by_date))
    return [decode_written(text) for batch in told for text in batch.column("written").to_pylist()]


def test_each_day_has_a_file_and_days_are_those_of_utc(tmp_path):
    late = ("orders", 0, 3, dt.datetime(2026, 11, 2, 0, 30, tzinfo=dt.timezone(dt.timedelta(hours=2))), 1, b"")

    files = written([rows(row(1), row(2, day=2), late)], tmp_path)

    assert {file.date: file.row_count for file in files} == {"2026-11-01": 2, "2026-11-02": 1}
    assert {file.path.split("/")[0] for file in files} == {"date=2026-11-01", "date=2026-11-02"}


def test_times_in_another_zone_are_written_in_utc(tmp_path):
    elsewhere = rows(row(1)).set_column(
        3,
        pa.field("timestamp", pa.timestamp("us", "America/New_York")),
        rows(row(1)).column(3).cast(pa.timestamp("us", "America/New_York")),
    )

    (file,) = written([elsewhere], tmp_path)

    assert file.date == "2026-11-01"
    assert pq.read_schema(tmp_path / file.path).field("timestamp").type == pa.timestamp("us", "UTC")


def test_rows_without_a_time_have_a_file_of_their_own(tmp_path):
    files = written([rows(row(1), row(2, day=None))], tmp_path)

    found = {file.date: file for file in files}
    assert found[None].path.startswith(f"date={NO_DATE}/")
    assert pq.read_table(tmp_path / found[None].path, partitioning=None)["offset"].to_pylist() == [2]


def test_without_parting_all_rows_are_in_one_file(tmp_path):
    (file,) = written([rows(row(1)), rows(row(2, day=2))], tmp_path, is_by_date=False)

    assert (file.date, file.row_count, "/" in file.path) == (None, 2, False)
    assert pq.read_schema(tmp_path / file.path).equals(SCHEMA)


def test_a_task_without_rows_tells_of_no_file(tmp_path):
    assert written([], tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_a_file_tells_its_size_its_partitions_and_the_bounds_that_queries_skip_by(tmp_path):
    (file,) = written([rows(row(7), row(9, partition=2, version=4)), rows(row(8, version=None))], tmp_path)

    assert file.size_bytes == (tmp_path / file.path).stat().st_size
    assert file.row_counts == {"orders/0": 2, "orders/2": 1}
    assert file.stats == {
        "numRecords": 3,
        "minValues": {"topic": "orders", "partition": 0, "offset": 7, "timestamp": "2026-11-01T12:00:00.000Z"}
        | {"delta_version": 1},
        "maxValues": {"topic": "orders", "partition": 2, "offset": 9, "timestamp": "2026-11-01T12:00:00.000Z"}
        | {"delta_version": 4},
        "nullCount": {"topic": 0, "partition": 0, "offset": 0, "timestamp": 0, "delta_version": 1},
    }
    json.dumps(file.stats)


def test_two_attempts_of_a_task_never_write_to_the_same_file(tmp_path):
    first, second = written([rows(row(1))], tmp_path), written([rows(row(1))], tmp_path)

    assert first[0].path != second[0].path


def test_an_attempt_that_fails_leaves_nothing(tmp_path):
    def failing():
        yield rows(row(1), row(2, day=2))
        raise OSError("the log cannot be read")

    with pytest.raises(OSError, match="cannot be read"):
        written(failing(), tmp_path)

    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_an_attempt_that_is_given_up_leaves_nothing(tmp_path):
    told = write_rows(iter([rows(row(1))]), root=str(tmp_path), is_by_date=True)
    next(told)
    assert len(list(tmp_path.rglob("*.parquet"))) == 1  # it was told of: the driver decides


@given(
    offsets=st.lists(st.tuples(st.integers(1, 28) | st.none(), st.integers(0, 3)), min_size=1, max_size=60),
    per_batch=st.integers(1, 20),
)
def test_every_row_is_in_exactly_one_file_of_its_day(tmp_path_factory, offsets, per_batch):
    root = tmp_path_factory.mktemp("rows")
    found = [row(offset, day=day, partition=number) for offset, (day, number) in enumerate(offsets)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export_files, "ROW_GROUP_BYTES", 200)  # several row groups
        patch.setattr(export_files, "OPEN_FILES_MAX", 3)  # and several files a day
        batches = [rows(*found[at : at + per_batch]) for at in range(0, len(found), per_batch)]
        files = written(batches, root)

    read = []
    for file in files:
        table = pq.ParquetFile(root / file.path).read()
        assert table.num_rows == file.row_count == sum(file.row_counts.values())
        days = {time and time.date().isoformat() for time in table["timestamp"].to_pylist()}
        assert days == {file.date}
        offsets_read = table["offset"].to_pylist()
        assert file.stats["minValues"]["offset"] == min(offsets_read)
        assert file.stats["maxValues"]["offset"] == max(offsets_read)
        read += table.to_pylist()
    assert sorted(read, key=lambda each: each["offset"]) == rows(*found).to_pylist()
