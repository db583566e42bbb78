"""Exports against a naive reader of the log: each committed record once, whatever happens between and during runs."""

import json
import threading

import confluent_kafka
import pyarrow.dataset as ds
import pytest
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable

from exactlog.core.model.errors import DamageError, DirectoryLockedError, NotFoundError, UnavailableError
from exactlog.core.model.ids import TopicPartition
from exactlog.pipeline import delta_export, export_delta, export_parquet, parquet_export
from exactlog.pipeline.export_columns import ValueSchemaError
from exactlog.pipeline.export_plan import RecordsLostError
from exactlog.pipeline.export_run import ExportConflictError, SchemaDiffersError
from exactlog.pipeline.read_options import InvalidOptionError
from exactlog.testing import Broker
from tests.support.generated_logs import write_log
from tests.support.naive_reader import NaiveTable, naive_rows
from tests.support.transactions import BrokerWriter

pytestmark = pytest.mark.peer

PLACES = (TopicPartition("orders", 0), TopicPartition("orders", 1))
LEFT_OUT = {"control", "row_seq"}


class Delta:
    """Exports into a Delta table, which delta-rs reads."""

    run = staticmethod(export_delta)
    target_class = delta_export._Table
    in_steps_of = "bytes_per_commit"

    @staticmethod
    def table(target):
        return DeltaTable(target).to_pyarrow_table()


class Parquet:
    """Exports into a directory of files, which Arrow reads as any of its kind."""

    run = staticmethod(export_parquet)
    target_class = parquet_export._Directory
    in_steps_of = "bytes_per_batch"

    @staticmethod
    def table(target):
        return ds.dataset(target, format="parquet", partitioning="hive").to_table()


@pytest.fixture(params=[Delta, Parquet], ids=["delta", "parquet"])
def kind(request):
    return request.param


@pytest.fixture
def target(tmp_path):
    return tmp_path / "exported"


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Two partitions with everything a log can hold, open transactions at the end among it."""
    root = tmp_path_factory.mktemp("log")
    write_log(root, seed=5, places=PLACES, removes=False)
    return root


@pytest.fixture
def broker():
    with Broker() as running:
        running.create_topic("orders", partitions=2)
        yield running


@pytest.fixture
def writers(broker):
    return [BrokerWriter(broker, "orders", partition=number) for number in (0, 1)]


def exported(kind, target):
    """The exported rows as the naive reader writes them, by topic, partition and offset."""
    found = kind.table(target).to_pylist()
    for row in found:
        row.pop("date", None)
        row.pop("batch", None)
        row["timestamp"] = None if row["timestamp"] is None else round(row["timestamp"].timestamp() * 1_000)
        row["headers"] = [(header["name"], header["value"]) for header in row["headers"]]
    return sorted(found, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def expected(rows):
    return [{name: value for name, value in row.items() if name not in LEFT_OUT} for row in rows]


def values(kind, target):
    """The exported values, by partition and offset."""
    found = kind.table(target).to_pylist()
    return [row["value"] for row in sorted(found, key=lambda row: (row["partition"], row["offset"]))]


# --- what is exported -------------------------------------------------------------------------------------------------


def test_every_column_of_every_committed_record_is_what_the_naive_reader_finds(spark, kind, log, target):
    report = kind.run(spark, target=target, path=log)

    assert exported(kind, target) == expected(naive_rows(log))
    assert report.rows == len(naive_rows(log)) == sum(part.rows for part in report.partitions)
    assert (report.lag, report.is_stopped, report.batches) == (0, False, 1)
    assert {part.version for part in report.partitions} == {
        NaiveTable(log / f"topic=orders-part={number}").newest for number in (0, 1)
    }


def test_as_of_any_version_an_export_goes_on_to_what_that_version_shows(spark, kind, log, target):
    """Records that were open at one version come with the first run that reads a version at which they are decided."""
    table = NaiveTable(log / "topic=orders-part=0")
    steps = range(1, table.newest + 1, max(1, table.newest // 7))
    reached = 0
    for version in steps:
        report = kind.run(spark, target=target, path=table.directory, version_as_of=version)
        rows = table.rows(version=version)
        assert exported(kind, target) == expected(rows)
        assert report.rows == len(rows) - reached
        reached = len(rows)

    assert kind.run(spark, target=target, path=table.directory, version_as_of=1).rows == 0  # it is there already
    kind.run(spark, target=target, path=table.directory)
    assert exported(kind, target) == expected(table.rows())


def test_a_time_stands_for_the_version_of_that_time(spark, kind, log, target):
    table = NaiveTable(log / "topic=orders-part=1")  # the other one is older
    moment = table.time_of(table.newest // 2)

    kind.run(spark, target=target, path=log, timestamp_as_of=moment)

    tables = [NaiveTable(log / f"topic=orders-part={number}") for number in (0, 1)]
    rows = [row for each in tables for row in each.rows(version=each.version_at(moment))]
    assert exported(kind, target) == expected(rows)


def test_a_second_run_adds_nothing_and_makes_no_version(spark, kind, log, target):
    first = kind.run(spark, target=target, path=log)
    second = kind.run(spark, target=target, path=log)

    assert (second.rows, second.batches, second.files, second.partitions) == (0, 0, 0, ())
    assert second.target_version == first.target_version


def test_what_was_open_at_the_end_comes_when_it_is_decided(spark, kind, broker, writers, target):
    zero, one = writers
    zero.write(1, b"a")
    zero.plain(b"b")
    one.plain(b"c")
    kind.run(spark, target=target, path=broker.data_dir)
    assert values(kind, target) == [b"c"]

    zero.commit(1)
    zero.write(2, b"never")
    zero.abort(2)
    zero.plain(b"d")
    kind.run(spark, target=target, path=broker.data_dir)
    assert values(kind, target) == [b"a", b"b", b"d", b"c"]


def test_a_broker_is_exported_as_its_directory_is_but_for_versions(spark, kind, broker, writers, target):
    zero, one = writers
    zero.write(1, b"a")
    zero.commit(1)
    one.plain(b"b", b"c")
    one.write(2, b"open")

    kind.run(spark, target=target, bootstrap=broker.bootstrap_servers)
    rows = expected(naive_rows(broker.data_dir, ["orders"]))
    assert exported(kind, target) == [row | {"delta_version": None, "origin_id": None} for row in rows]

    one.commit(2)
    report = kind.run(spark, target=target, path=broker.data_dir)  # ids of topics are the same either way
    assert (report.rows, values(kind, target)) == (1, [b"a", b"b", b"c", b"open"])


def test_a_topic_that_is_made_again_is_exported_from_its_start(spark, kind, broker, writers, target):
    writers[0].plain(b"old", b"older")
    kind.run(spark, target=target, path=broker.data_dir)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics(["orders"])["orders"].result(30)
    broker.create_topic("orders", partitions=1)
    BrokerWriter(broker, "orders").plain(b"new")

    kind.run(spark, target=target, path=broker.data_dir)

    assert sorted(values(kind, target)) == [b"new", b"old", b"older"]


def test_only_the_topics_that_were_asked_for_are_exported(spark, kind, broker, writers, target):
    broker.create_topic("payments")
    writers[0].plain(b"a")
    BrokerWriter(broker, "payments").plain(b"b")

    kind.run(spark, target=target, path=broker.data_dir, topics=["payments"])
    assert values(kind, target) == [b"b"]
    kind.run(spark, target=target, path=broker.data_dir)
    assert sorted(values(kind, target)) == [b"a", b"b"]


def test_spark_reads_the_same_rows_from_the_files(spark, log, target):
    export_parquet(spark, target=target, path=log)

    found = spark.read.parquet(str(target))
    assert found.count() == len(naive_rows(log))
    assert dict(found.dtypes) | {"batch": "int", "date": "date", "timestamp": "timestamp"} == dict(found.dtypes)
    assert "control" not in found.columns


# --- JSON -------------------------------------------------------------------------------------------------------------


def test_json_values_become_columns_and_what_is_none_is_kept(spark, kind, broker, writers, target):
    good = json.dumps({"id": 7, "name": "é", "tags": ["x"], "more": 1}).encode()
    odd = [b"not json", b"", b"\xff\xfe", b"[1]", b'{"id": "seven"}', b"null"]
    writers[0].plain(good, None, b"{}", *odd)

    kind.run(spark, target=target, path=broker.data_dir, schema="id BIGINT, name STRING NOT NULL, tags ARRAY<STRING>")

    found = sorted(kind.table(target).to_pylist(), key=lambda row: row["offset"])
    nothing = {"id": None, "name": None, "tags": None}
    assert [row["value"] for row in found[:3]] == [{"id": 7, "name": "é", "tags": ["x"]}, None, nothing]
    assert [row["_corrupt_record"] for row in found] == [None, None, None, *odd]
    assert all(row["value"] in (None, nothing) for row in found[3:])
    with pytest.raises(SchemaDiffersError):
        kind.run(spark, target=target, path=broker.data_dir, schema="id STRING")


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("id NOPE", "is no DDL of Spark"),
        ("", "names no field"),
        ("_corrupt_record STRING", "names _corrupt_record"),
        ("a STRUCT<b: ARRAY<VARCHAR(3)>>", r"is varchar\(3\)"),
    ],
)
def test_a_schema_that_will_not_do_is_refused_in_a_sentence(spark, kind, log, target, *, schema, told):
    with pytest.raises(ValueSchemaError, match=told):
        kind.run(spark, target=target, path=log, schema=schema)
    assert not target.exists()


# --- in steps, killed, and twice at once ------------------------------------------------------------------------------


def test_in_small_steps_the_rows_are_the_same(spark, kind, log, target):
    told = []
    report = kind.run(
        spark, target=target, path=log, bytes_per_task=500, progress=told.append, **{kind.in_steps_of: 2_000}
    )

    assert exported(kind, target) == expected(naive_rows(log))
    assert report.batches > 2
    assert len(told) == report.batches + 1
    assert f"{report.rows} rows" in told[-1]


def test_a_run_that_is_stopped_keeps_its_steps_and_the_next_goes_on(spark, kind, log, target):
    steps = []

    def is_stopping():
        steps.append(1)
        return len(steps) > 2

    small = {kind.in_steps_of: 2_000, "bytes_per_task": 500}
    first = kind.run(spark, target=target, path=log, is_stopping=is_stopping, **small)
    found = exported(kind, target)
    assert first.is_stopped
    assert first.batches == 2
    assert first.lag > 0
    assert 0 < len(found) == first.rows < len(naive_rows(log))

    second = kind.run(spark, target=target, path=log)
    assert first.rows + second.rows == len(naive_rows(log))
    assert exported(kind, target) == expected(naive_rows(log))


def test_a_run_that_dies_between_its_files_and_the_commit_doubles_nothing(spark, kind, log, target, monkeypatch):
    class Died(BaseException):
        pass

    def die(*_, before):
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(kind.target_class, "commit", die)
        patch.setattr(kind.target_class, "close", lambda self: getattr(self, "_lock", None) and self._lock.release())
        with pytest.raises(Died):
            kind.run(spark, target=target, path=log)
    assert list(target.rglob("*.parquet")) != []

    kind.run(spark, target=target, path=log)
    assert exported(kind, target) == expected(naive_rows(log))


def test_of_two_exports_at_once_one_may_fail_and_nothing_is_doubled(spark, kind, log, target, *, monkeypatch):
    kind.run(spark, target=target, path=log, version_as_of=1)
    both_have_written = threading.Barrier(2, timeout=60)
    commit = kind.target_class.commit
    outcomes = []

    def commit_together(self, files, reached, *, before):
        both_have_written.wait()
        commit(self, files, reached, before=before)

    def export():
        try:
            outcomes.append(kind.run(spark, target=target, path=log).rows)
        except (ExportConflictError, DirectoryLockedError) as error:
            outcomes.append(error)
            both_have_written.abort()
        except threading.BrokenBarrierError as error:
            outcomes.append(error)

    with monkeypatch.context() as patch:
        if kind is Delta:  # the other one has a lock
            patch.setattr(kind.target_class, "commit", commit_together)
        programs = [threading.Thread(target=export) for _ in range(2)]
        for each in programs:
            each.start()
        for each in programs:
            each.join()

    assert sum(isinstance(outcome, int) for outcome in outcomes) >= 1, outcomes
    if kind is Delta:
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["ExportConflictError", "int"]
    assert exported(kind, target) == expected(naive_rows(log))


# --- bad input --------------------------------------------------------------------------------------------------------


def test_records_that_went_before_they_were_exported_are_named(spark, kind, broker, writers, target):
    writers[0].plain(b"a", b"b")
    kind.run(spark, target=target, path=broker.data_dir)
    writers[0].plain(b"c", b"d")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.delete_records([confluent_kafka.TopicPartition("orders", 0, 3)]).values():
        future.result(30)

    with pytest.raises(RecordsLostError, match="topic orders, partition 0: offsets 2 to 2 were removed"):
        kind.run(spark, target=target, path=broker.data_dir)
    kind.run(spark, target=target, path=broker.data_dir, fail_on_data_loss=False)
    assert values(kind, target) == [b"a", b"b", b"d"]


def test_a_damaged_segment_fails_the_run_and_names_the_place(spark, kind, tmp_path, target):
    write_log(tmp_path / "log", seed=6, places=PLACES[:1], removes=False)
    table = NaiveTable(tmp_path / "log" / "topic=orders-part=0")
    kind.run(spark, target=target, path=tmp_path / "log", version_as_of=5)
    before = exported(kind, target)
    for segment in sorted(table.directory.glob("*.log"))[1:]:
        content = bytearray(segment.read_bytes())
        content[-20] ^= 1
        segment.write_bytes(content)

    with pytest.raises(DamageError, match=r"orders.*0.*offset.*version"):
        kind.run(spark, target=target, path=tmp_path / "log")
    assert exported(kind, target) == before


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({}, InvalidOptionError),
        ({"path": "/no/such/log"}, NotFoundError),
        ({"path": "/no/such/log", "bootstrap": "127.0.0.1:1"}, InvalidOptionError),
        ({"bootstrap": "127.0.0.1:1", "version_as_of": 3}, InvalidOptionError),
        ({"bootstrap": "127.0.0.1:1"}, UnavailableError),
    ],
)
def test_what_cannot_be_read_leaves_no_target(spark, kind, target, given, error):
    with pytest.raises(error):
        kind.run(spark, target=target, **given)
    assert not target.exists()
