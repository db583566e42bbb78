"""Spark's own source for Kafka, and its own for Delta Lake, beside ours: the same rows, on exactlog.

The official source asks with the Java client. What is known to have gone wrong with it on other brokers is tried here:
ranges that end in markers, that have nothing else, with gaps, with a transaction that is open at the end.
"""

import json
import subprocess
import sys
import textwrap

import pytest
from deltalake import DeltaTable

from exactlog.testing import Broker
from tests.peers.gate import skip_without_peer
from tests.peers.spark_jars import spark_jars
from tests.support.naive_reader import naive_rows
from tests.support.transactions import BrokerWriter

pytestmark = pytest.mark.peer

PROGRAM_SECONDS = 300

PROGRAM = """
import json, sys
from pathlib import Path
from pyspark.sql import functions as F
from exactlog.pipeline import copy_topics, export_delta, session

bootstrap, data_dir, place, jars = sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4:]
spark = session("local[2]", jars=jars, config={
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
})
COLUMNS = ("topic", "partition", "offset", "key", "value", "timestamp", "headers")


def official(reader, isolation="read_committed"):
    options = {"kafka.bootstrap.servers": bootstrap, "kafka.isolation.level": isolation, "subscribe": "orders",
               "startingOffsets": "earliest", "failOnDataLoss": "true", "includeHeaders": "true"}
    rows = reader.format("kafka").options(**options).load()
    names = F.transform("headers", lambda each: F.struct(each["key"].alias("name"), each["value"].alias("value")))
    return rows.withColumn("headers", F.coalesce(names, F.array()))


def ours(reader, **options):
    return reader.format("exactlog").options(topics="orders", **options).load()


def told(rows):
    found = rows.select("topic", "partition", "offset", F.hex("key").alias("key"), F.hex("value").alias("value"),
                        F.unix_millis("timestamp").alias("timestamp"),
                        F.to_json(F.transform("headers", lambda each: F.struct(each["name"], F.hex(each["value"])))))
    return sorted(list(row) for row in found.collect())


def streamed(rows, name):
    query = (rows.writeStream.format("memory").queryName(name).trigger(availableNow=True)
             .option("checkpointLocation", str(place / name)).start())
    query.awaitTermination()
    return told(spark.table(name))


results = {
    "official": told(official(spark.read)),
    "official uncommitted": told(official(spark.read, "read_uncommitted")),
    "ours by path": told(ours(spark.read, path=data_dir)),
    "ours by broker": told(ours(spark.read, bootstrap=bootstrap)),
    "ours uncommitted": told(ours(spark.read, path=data_dir, isolation="read_uncommitted")),
    "official stream": streamed(official(spark.readStream), "official"),
    "our stream by path": streamed(ours(spark.readStream, path=data_dir), "by_path"),
    "our stream by broker": streamed(ours(spark.readStream, bootstrap=bootstrap), "by_broker"),
}
export_delta(spark, path=data_dir, topics=["orders"], target=place / "table")
export_delta(spark, path=data_dir, topics=["orders"], target=place / "parsed", schema="id INT")
export_delta(spark, bootstrap=bootstrap, topics=["orders"], target=place / "by_kafka", connector="kafka")
again = export_delta(spark, bootstrap=bootstrap, topics=["orders"], target=place / "by_kafka", connector="kafka")
copied = copy_topics(spark, bootstrap=bootstrap, topics=["orders"], connector="kafka", to=bootstrap,
                     target_topic="copied", txn_app_id="copy", checkpoint=place / "copy")
results["exported by kafka"] = told(spark.read.format("delta").load(str(place / "by_kafka")))
results["exported again"] = again.rows
results["copied"] = [copied.rows, copied.batches, copied.lag]
results["copy"] = told(spark.read.format("exactlog").options(bootstrap=bootstrap, topics="copied").load())
table = spark.read.format("delta").load(str(place / "table"))
results["delta"] = told(table)
results["delta pruned"] = table.where("partition = 1 AND offset < 3").count()
results["delta columns"] = table.schema.simpleString()
parsed = spark.read.format("delta").load(str(place / "parsed")).where("partition = 4").orderBy("offset")
results["parsed"] = [list(row) for row in parsed.select("value.id", F.col("_corrupt_record").cast("string")).collect()]
(place / "results.json").write_text(json.dumps(results))
spark.stop()
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What each way of reading finds, and what the naive reader does."""
    with skip_without_peer():
        jars = spark_jars()
    place = tmp_path_factory.mktemp("place")
    with Broker(config={"segment.bytes": 2_000}) as broker:
        for topic in ("orders", "copied"):
            broker.create_topic(topic, partitions=6)
        write(broker)
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(PROGRAM), broker.bootstrap_servers, broker.data_dir, place, *jars],
            capture_output=True,
            text=True,
            timeout=PROGRAM_SECONDS,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        results = json.loads((place / "results.json").read_text())
        results["naive"] = told(naive_rows(broker.data_dir, ["orders"]))
        results["naive uncommitted"] = told(naive_rows(broker.data_dir, ["orders"], committed=False))
        results["place"] = place
        yield results


def write(broker):
    """A partition for each thing that a range can have."""
    ends_in_markers, only_markers, begins_with_them, has_gaps, json_values, empty = (
        BrokerWriter(broker, "orders", partition=number) for number in range(6)
    )
    for number in range(30):
        ends_in_markers.write(1, b"a%d" % number, b"b%d" % number)
        ends_in_markers.end(1, is_commit=number % 3 != 0)
    for producer_id in (1, 2, 3):
        only_markers.write(producer_id, b"gone")
        only_markers.abort(producer_id)
    begins_with_them.write(1, b"gone")
    begins_with_them.abort(1)
    begins_with_them.plain(b"first", b"second")
    has_gaps.plain(b"x")
    has_gaps.write(1, *(b"gone" for _ in range(50)))
    has_gaps.abort(1)
    has_gaps.write(2, b"y")
    has_gaps.commit(2)
    has_gaps.write(3, b"open")
    has_gaps.plain(b"behind it")
    json_values.plain(b'{"id": 1}', b"no json", b'{"id": 2}')
    assert empty


def told(rows):
    """The rows as the program tells of them."""

    def in_hex(value):
        return None if value is None else value.hex().upper()

    return sorted(
        [row["topic"], row["partition"], row["offset"], in_hex(row["key"]), in_hex(row["value"]), row["timestamp"]]
        for row in rows
    )


def without_headers(rows):
    return [row[:6] for row in rows]


def test_a_committed_record_is_read_once_and_no_other_is(found):
    assert without_headers(found["official"]) == found["naive"]
    assert without_headers(found["ours by path"]) == found["naive"]
    assert without_headers(found["ours by broker"]) == found["naive"]
    assert len(found["naive"]) == 40 + 2 + 2 + 3


def test_headers_and_all_are_the_same_either_way(found):
    assert found["official"] == found["ours by path"] == found["ours by broker"]


def test_with_every_record_asked_for_both_find_every_record(found):
    assert without_headers(found["official uncommitted"]) == found["naive uncommitted"]
    assert found["official uncommitted"] == found["ours uncommitted"]
    assert len(found["naive uncommitted"]) > len(found["naive"])


def test_streams_end_at_the_last_stable_offset_with_the_same_rows(found):
    for name in ("official stream", "our stream by path", "our stream by broker"):
        assert found[name] == found["official"], name


def test_jobs_that_read_by_the_official_source_do_the_same(found):
    assert found["exported by kafka"] == found["official"]
    assert found["exported again"] == 0
    assert found["copied"] == [len(found["naive"]), 1, 0]
    keys_and_values = (slice(1, 2), slice(3, 7))  # offsets are those of the copy
    assert [[row[part] for part in keys_and_values] for row in found["copy"]] == [
        [row[part] for part in keys_and_values] for row in found["official"]
    ]


def test_spark_and_delta_rs_read_the_same_rows_of_an_exported_table(found):
    table = DeltaTable(found["place"] / "table").to_pyarrow_table()
    by_library = sorted(zip(*(table[name].to_pylist() for name in ("topic", "partition", "offset")), strict=True))

    assert found["delta"] == found["official"]
    assert by_library == sorted(tuple(row[:3]) for row in found["delta"])
    assert found["delta pruned"] == 0
    assert "timestamp:timestamp" in found["delta columns"]
    assert found["delta columns"].endswith("date:date>")
    assert found["parsed"] == [[1, None], [None, "no json"], [2, None]]
