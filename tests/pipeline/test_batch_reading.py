"""`spark.read.format("exactlog")` against a naive reader: real Spark, real directories, a real broker."""

from contextlib import contextmanager
from datetime import UTC, datetime

import confluent_kafka
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from exactlog.core.codec.compression import Compression
from exactlog.core.model.ids import TopicPartition
from exactlog.pipeline import explain
from exactlog.pipeline.schema import COLUMN_NAMES
from exactlog.storage.filesystem import OsFilesystem
from exactlog.storage.vacuum import vacuum
from exactlog.testing import Broker
from tests.support.generated_logs import CONFIG, PLACES, write_log
from tests.support.naive_reader import NaiveTable, naive_rows
from tests.support.partitions import DataDirectory, batch_of
from tests.support.transactions import BrokerWriter

pytestmark = pytest.mark.peer

ORDERS = TopicPartition("orders", 0)


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Three partitions with everything a log can hold, all of it still there."""
    root = tmp_path_factory.mktemp("log")
    write_log(root, seed=1, removes=False)
    return root


@pytest.fixture(scope="module")
def trimmed(tmp_path_factory):
    """The same, with records removed from the front, and files too."""
    root = tmp_path_factory.mktemp("trimmed")
    write_log(root, seed=0, removes=True)
    return root


def read(spark, path, *, schema=None, **options):
    reader = spark.read.format("exactlog").option("path", str(path))
    for name, value in options.items():
        reader = reader.option(name, value)
    return (reader.schema(schema) if schema else reader).load()


def rows_of(frame):
    """The rows as the naive reader writes them, by topic, partition and offset."""
    if "timestamp" in frame.columns:
        frame = frame.withColumn("timestamp", F.unix_millis("timestamp"))
    rows = [row.asDict() for row in frame.collect()]
    for row in rows:
        for name in ("key", "value"):
            if row.get(name) is not None:
                row[name] = bytes(row[name])
        if "headers" in row:
            row["headers"] = [
                (header["name"], None if header["value"] is None else bytes(header["value"]))
                for header in row["headers"]
            ]
    return sorted(rows, key=lambda row: (row.get("topic", ""), row.get("partition", 0), row.get("offset", 0)))


def directory_of(root, place):
    return root / f"topic={place.topic}-part={place.partition}"


# --- every column, every version ------------------------------------------------------------------------------------


def test_every_column_of_every_partition_is_what_the_naive_reader_finds(spark, log, trimmed):
    for root in (log, trimmed):
        assert rows_of(read(spark, root)) == naive_rows(root)
        assert rows_of(read(spark, root, isolation="read_uncommitted", includeControl="true")) == naive_rows(
            root, committed=False, control=True
        )


def test_the_log_has_all_that_it_should_have(log):
    tables = [NaiveTable(directory_of(log, place)) for place in PLACES]
    rows = naive_rows(log, committed=False, control=True)

    assert {batch["attributes"] & 7 for table in tables for batch in table.batches} == set(Compression)
    assert all(table.commits[table.newest]["last_stable_offset"] < table.batches[-1]["base_offset"] for table in tables)
    assert len(naive_rows(log)) < len(naive_rows(log, control=True)) < len(rows)
    assert {row["timestamp_type"] for row in rows} == {"CreateTime", "LogAppendTime"}
    assert {row["origin_id"] for row in rows} == {"1", "77"}
    for name in ("key", "value", "timestamp", "producer_id", "sequence"):
        assert None in {row[name] for row in rows}
    assert any(value is None for row in rows for _, value in row["headers"])


def test_every_version_of_a_partition_is_what_the_naive_reader_finds(spark, log, trimmed):
    for root in (log, trimmed):
        table = NaiveTable(directory_of(root, ORDERS))
        oldest = table.commits[table.newest]["log_start_offset"]
        for version, commit in table.commits.items():
            if commit["log_start_offset"] >= oldest:
                assert rows_of(read(spark, table.directory, versionAsOf=version)) == table.rows(version=version)


def test_a_range_of_versions_has_what_they_added(spark, log):
    table = NaiveTable(directory_of(log, ORDERS))

    for first, last in ((0, 9), (7, 7), (12, table.newest)):
        found = read(spark, table.directory, startingVersion=first, endingVersion=last, isolation="read_uncommitted")
        assert rows_of(found) == table.rows(version=last, starting=first, committed=False)
    assert rows_of(read(spark, log, topics="orders", startingVersion=20)) == naive_rows(log, ["orders"], starting=20)


def test_a_time_is_the_version_of_that_time_in_each_partition(spark, log):
    tables = [NaiveTable(directory_of(log, place)) for place in PLACES]
    moment = tables[0].time_of(tables[0].newest - 5)
    text = datetime.fromtimestamp(moment / 1_000, UTC).isoformat(timespec="milliseconds")

    expected = [
        row for table in tables if table.time_of(0) <= moment for row in table.rows(version=table.version_at(moment))
    ]

    assert rows_of(read(spark, log, timestampAsOf=text)) == expected
    assert rows_of(read(spark, log, timestampAsOf=moment)) == expected


# --- columns and predicates -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "schema",
    [
        "offset bigint",
        "value binary, offset bigint NOT NULL",
        "row_seq bigint, topic string, partition int",
        "headers array<struct<name: string, value: binary>>, offset bigint, topic string, partition int",
        "timestamp timestamp, timestamp_type string, sequence int, offset bigint",
        "delta_version bigint, origin_id string, control boolean, offset bigint",
    ],
)
def test_a_schema_leaves_all_other_columns_out(spark, log, schema):
    frame = read(spark, log, schema=schema, includeControl="true")
    names = [part.split()[0] for part in schema.replace("<name: string, value: binary>", "").split(", ")]
    names = [name for name in names if name in COLUMN_NAMES]

    assert frame.columns == names
    expected = [{name: row[name] for name in names} for row in naive_rows(log, control=True)]
    assert sorted(map(repr, rows_of(frame))) == sorted(map(repr, expected))


PREDICATES = [
    ("topic = 'orders' AND partition = 1", lambda row: row["topic"] == "orders" and row["partition"] == 1),
    ("topic IN ('payments', 'nothing')", lambda row: row["topic"] == "payments"),
    ("partition IN (1, 7)", lambda row: row["partition"] == 1),
    ("offset >= 20 AND offset < 61", lambda row: 20 <= row["offset"] < 61),
    ("offset = 33", lambda row: row["offset"] == 33),
    ("offset IN (3, 33, 66)", lambda row: row["offset"] in {3, 33, 66}),
    ("offset > 20 OR partition = 1", lambda row: row["offset"] > 20 or row["partition"] == 1),
    ("NOT (offset = 33)", lambda row: row["offset"] != 33),
    ("offset > 1000000", lambda _: False),
    ("delta_version BETWEEN 5 AND 15", lambda row: 5 <= row["delta_version"] <= 15),
    ("delta_version = 12", lambda row: row["delta_version"] == 12),
    ("delta_version < 0", lambda _: False),
    ("row_seq = 4", lambda row: row["row_seq"] == 4),
    ("offset > 40 AND row_seq % 2 = 0", lambda row: row["offset"] > 40 and row["row_seq"] % 2 == 0),
    ("key IS NULL AND offset > 10", lambda row: row["key"] is None and row["offset"] > 10),
    ("transactional AND partition > 0", lambda row: row["transactional"] and row["partition"] > 0),
]


@pytest.mark.parametrize(("condition", "holds"), PREDICATES, ids=[condition for condition, _ in PREDICATES])
def test_a_predicate_leaves_the_rows_it_should_as_they_are(spark, log, condition, holds):
    expected = [row for row in naive_rows(log) if holds(row)]

    assert rows_of(read(spark, log, pushDown=True).where(condition)) == expected
    assert rows_of(read(spark, log, pushDown=True, maxBytesPerPartition="1k").where(condition)) == expected
    assert rows_of(read(spark, log).where(condition)) == expected


@pytest.mark.parametrize("compare", ["=", "<", "<=", ">", ">="])
def test_a_predicate_on_the_time_leaves_the_rows_it_should(spark, log, compare):
    rows = naive_rows(log)
    moment = sorted(row["timestamp"] for row in rows if row["timestamp"])[len(rows) // 2]
    holds = {"=": "__eq__", "<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__"}[compare]

    found = rows_of(read(spark, log, pushDown=True).where(f"timestamp {compare} timestamp_millis({moment})"))

    assert found == [row for row in rows if row["timestamp"] is not None and getattr(row["timestamp"], holds)(moment)]
    assert found


def test_what_is_read_of_a_predicate_is_only_what_meets_it(spark, log):
    schema = "topic string, partition int, offset bigint"
    condition = "topic = 'payments' AND partition = 0 AND offset BETWEEN 20 AND 22"
    one = read(spark, log, schema=schema, pushDown=True).where(condition)

    plan = one._jdf.queryExecution().executedPlan().toString()
    assert "Filter (" not in plan, plan
    assert one.rdd.getNumPartitions() == 1
    assert read(spark, log, schema=schema, pushDown=True).where("topic = 'nothing'").count() == 0


def test_a_frame_that_was_narrowed_by_one_query_is_whole_in_the_next_and_beside_it(spark, log):
    frame = read(spark, log, schema="topic string, partition int, offset bigint")
    whole = naive_rows(log)
    orders, low = frame.where("topic = 'orders'"), frame.where("offset < 30")
    low.explain()

    assert orders.count() == sum(row["topic"] == "orders" for row in whole)
    assert frame.count() == len(whole)
    assert low.count() == sum(row["offset"] < 30 for row in whole)
    both = sum(row["topic"] == "orders" for row in whole) + sum(row["offset"] < 30 for row in whole)
    assert orders.union(low).count() == both


def test_it_is_a_table_of_sql(spark, log):
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW log_in_sql USING exactlog OPTIONS (path '{log}', topics 'orders')")
    rows = naive_rows(log, ["orders"])

    found = spark.sql(
        "SELECT partition, count(*) AS rows, max(row_seq) + 1 AS counted FROM log_in_sql GROUP BY partition ORDER BY 1"
    ).collect()

    counts = [sum(row["partition"] == partition for row in rows) for partition in (0, 1)]
    assert [tuple(row) for row in found] == [(0, counts[0], counts[0]), (1, counts[1], counts[1])]


# --- tasks ----------------------------------------------------------------------------------------------------------


def test_each_partition_has_a_task_of_its_own_however_many_segments_it_has(spark, log):
    assert len(list(directory_of(log, ORDERS).glob("*.log"))) > 5

    assert read(spark, directory_of(log, ORDERS)).rdd.getNumPartitions() == 1
    assert read(spark, log).rdd.getNumPartitions() == 3


def test_a_large_partition_has_several_tasks_and_counts_on_from_one_to_the_next(spark, log):
    frame = read(spark, log, maxBytesPerPartition="2k", isolation="read_uncommitted")

    assert frame.rdd.getNumPartitions() > 12
    assert rows_of(frame) == naive_rows(log, committed=False)


def test_a_partition_without_rows_has_no_task(spark, tmp_path):
    with DataDirectory(OsFilesystem(), root=str(tmp_path)) as disk:
        disk.make(ORDERS)

    assert read(spark, tmp_path).count() == 0


# --- beside a broker, and when it has stopped -----------------------------------------------------------------------


@contextmanager
def producing(broker, **config):
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0} | config)
    yield producer
    producer.flush()


def test_a_running_broker_is_read_and_a_killed_one_and_one_that_was_started_again(spark, tmp_path):
    config = {"segment.bytes": 20_000}
    with Broker(data_dir=tmp_path, config={"num.partitions": 2}) as broker:
        broker.create_topic("orders", partitions=2, config=config)
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            transactional_id = f"writer-{codec}"
            with producing(broker, **{"transactional.id": transactional_id, "compression.type": codec}) as producer:
                producer.init_transactions()
                for number in range(4):
                    producer.begin_transaction()
                    for index in range(20):
                        producer.produce("orders", b"%s %d" % (codec.encode(), index) * 9, partition=index % 2)
                    producer.flush()
                    producer.abort_transaction() if number % 2 else producer.commit_transaction()
        left_open = producing(broker, **{"transactional.id": "left-open"})
        with left_open as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.produce("orders", b"never decided", partition=0)
            producer.flush()
            with producing(broker) as other:
                other.produce("orders", b"behind it", partition=0, headers=[("h", None)])

            beside = rows_of(read(spark, tmp_path))
            everything = rows_of(read(spark, tmp_path, isolation="read_uncommitted", includeControl="true"))
            assert beside == naive_rows(tmp_path)
            assert everything == naive_rows(tmp_path, committed=False, control=True)
            from_broker = spark.read.format("exactlog").option("bootstrap", broker.bootstrap_servers).load()
            unversioned = {"delta_version": None, "origin_id": None}
            assert rows_of(from_broker) == [row | unversioned for row in beside]
            broker.kill()
            assert rows_of(read(spark, tmp_path)) == beside

            broker.restart()
            assert naive_rows(tmp_path) == rows_of(read(spark, tmp_path))
    assert len(beside) == 5 * 2 * 20
    assert naive_rows(tmp_path)[-1]["value"] is not None


def test_rows_from_a_broker_are_counted_from_the_first_whatever_is_left_out(spark, tmp_path):
    with Broker(data_dir=tmp_path) as broker:
        broker.create_topic("orders", partitions=2)
        for partition in (0, 1):
            writer = BrokerWriter(broker, "orders", partition=partition)
            for number in range(10):
                writer.write(1, b"%d" % number, b"more")
                writer.abort(1) if number == 3 else writer.commit(1)
        whole = naive_rows(tmp_path)
        unversioned = {"delta_version": None, "origin_id": None}
        reader = spark.read.format("exactlog").option("bootstrap", broker.bootstrap_servers)
        reader = reader.option("maxBytesPerPartition", "1").option("pushDown", "true")

        found = rows_of(reader.load().where("offset >= 9 AND offset < 22 AND partition = 1"))

        expected = [row | unversioned for row in whole if row["partition"] == 1 and 9 <= row["offset"] < 22]
        assert found == expected
        assert reader.load().rdd.getNumPartitions() == 2, "to count rows all must be fetched: by one task, once"
        uncounted = reader.schema("value binary, offset bigint").load().where("offset >= 9")
        assert len(rows_of(uncounted)) == sum(row["offset"] >= 9 for row in whole)


def test_b108_rows_are_records_whatever_offsets_markers_and_aborted_records_take(spark, tmp_path):
    with Broker(data_dir=tmp_path) as broker:
        broker.create_topic("orders")
        writer = BrokerWriter(broker, "orders")
        committed = 0
        for number in range(30):
            writer.write(number % 3 + 1, b"a", b"b")
            if number % 4:
                writer.commit(number % 3 + 1)
                committed += 2
            else:
                writer.abort(number % 3 + 1)
        frame = read(spark, tmp_path)

        ends = frame.agg(F.count("*"), F.max("row_seq"), F.max("offset")).first()

        assert tuple(ends)[:2] == (committed, committed - 1)
        assert ends[2] > committed + 30, "else no offset is left out"
        assert read(spark, tmp_path, includeControl="true").where("control").count() == 30


def test_records_that_retention_has_taken_are_not_there_and_their_versions_are_refused(spark, tmp_path):
    with Broker(data_dir=tmp_path) as broker:
        broker.create_topic("orders", config={"segment.bytes": 2_000})
        writer = BrokerWriter(broker, "orders")
        for number in range(40):
            writer.plain(b"%d" % number * 50)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        removed = admin.delete_records([confluent_kafka.TopicPartition("orders", 0, 25)])
        assert [future.result().low_watermark for future in removed.values()] == [25]

        assert [row["offset"] for row in rows_of(read(spark, tmp_path))] == list(range(25, 40))
        assert rows_of(read(spark, tmp_path)) == naive_rows(tmp_path)
        told = refusal(read(spark, tmp_path, versionAsOf=10))
        assert told.code == "offset-out-of-range"
        assert str(told).startswith(
            "topic orders, partition 0, offset 0 as of version 10: those offsets have been removed"
        )
        behind = read(spark, tmp_path, schema="offset bigint", versionAsOf=30, pushDown=True).where("offset >= 25")
        assert [row["offset"] for row in rows_of(behind)] == list(range(25, 30))


# --- what cannot be read --------------------------------------------------------------------------------------------


def refusal(frame):
    """What a query ends with, in one sentence."""
    with pytest.raises(PySparkException) as caught:
        frame.collect()
    return explain(caught.value)


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ({"versionAsOff": "1"}, "invalid-option", "versionasoff is no option of reading an exactlog"),
        ({"bootstrap": "a:1"}, "invalid-option", "path and bootstrap are both given"),
        ({"versionAsOf": "x"}, "invalid-option", "versionAsOf must be a number from 0 on, not 'x'"),
        ({"isolation": "dirty"}, "invalid-option", "isolation must be read_uncommitted or read_committed, not 'dirty'"),
        (
            {"startingVersion": "5", "endingVersion": "4"},
            "invalid-option",
            "endingVersion 4 lies before startingVersion 5",
        ),
        ({"versionAsOf": "7"}, "version-unknown", "topic orders, partition 0, version 7: there is no such version; "),
        (
            {"timestampAsOf": "1970-01-02"},
            "version-expired",
            "topic orders, partition 0 at the time of timestampAsOf: ",
        ),
        ({"topics": "oders"}, "not-found", "{root} holds no topic oders"),
    ],
)
def test_what_cannot_be_asked_for_is_told_in_one_sentence(spark, tmp_path, options, code, message):
    make_log(tmp_path)

    told = refusal(read(spark, tmp_path, **options))

    assert told.code == code
    assert str(told).startswith(message.format(root=tmp_path))
    assert "\n" not in str(told)
    assert "Traceback" not in str(told)


def test_a_hint_comes_along(spark, tmp_path):
    make_log(tmp_path)

    assert refusal(read(spark, tmp_path, versionAsOff=1)).hint.startswith("did you mean versionAsOf? There are path, ")


def test_a_path_that_is_no_log_is_told(spark, tmp_path):
    assert str(refusal(read(spark, tmp_path))) == f"{tmp_path} is no partition and no data directory"


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("ofset bigint", "a log has no column ofset; there are key, value, headers, topic, "),
        ("value string", "column value of a log is binary, not string"),
        ("key binary NOT NULL", "column key of a log may be NULL, the schema says it is not"),
    ],
)
def test_a_schema_that_does_not_fit_is_told(spark, tmp_path, schema, message):
    make_log(tmp_path)

    told = refusal(read(spark, tmp_path, schema=schema))

    assert told.code == "invalid-schema"
    assert str(told).startswith(message)


@pytest.mark.parametrize("schema", [None, "offset bigint"])
def test_damage_is_told_by_topic_partition_offset_and_version(spark, tmp_path, schema):
    make_log(tmp_path)
    (segment,) = directory_of(tmp_path, ORDERS).glob("*.log")
    content = bytearray(segment.read_bytes())
    content[-1] ^= 1
    segment.write_bytes(content)

    told = refusal(read(spark, tmp_path, schema=schema))

    assert told.code == "damage"
    assert str(told).startswith(f"topic orders, partition 0, offset 2 as of version 3 cannot be read: {segment}: ")
    assert read(spark, tmp_path, schema="offset bigint", versionAsOf=2).count() == 2


def test_a_version_that_has_expired_is_told(spark, tmp_path):
    make_log(tmp_path, count=20)
    vacuum(OsFilesystem(), str(directory_of(tmp_path, ORDERS)), versions_keep=2)

    told = refusal(read(spark, tmp_path, versionAsOf=3))

    assert told.code == "version-expired"
    assert str(told).startswith("topic orders, partition 0, version 3: so old a version cannot be read")
    assert read(spark, tmp_path).count() == 20


def make_log(root, *, count=3):
    with DataDirectory(OsFilesystem(), root=str(root), config=CONFIG, checkpoint_interval=3) as disk:
        partition = disk.make(ORDERS)
        disk.commit(partition, *(batch_of(b"%d" % number) for number in range(count)))
