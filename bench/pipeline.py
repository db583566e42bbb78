"""Spark on the log beside Spark's own sources, in one session: rows a second, micro-batches, memory.

One broker, one topic of two partitions; each reading is done anew in every repetition, after one that warms up. Results
go, with --markdown, into the last table of docs/performance.md.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.report import Table, describe_machine, put_table
from bench.run import PAGE
from demo.served_broker import ServedBroker
from exactlog.pipeline import session, write_exactly_once
from tests.peers import PROJECT, PeerMissingError
from tests.peers.go_programs import build_go_program

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC: Final = "bench"
PARTITIONS: Final = 2
RECORDS: Final = 1_000_000
RECORDS_WRITTEN: Final = 200_000
VALUE_BYTES: Final = 100
STREAM_SECONDS: Final = 30
RECORDS_BETWEEN: Final = 0.02  # seconds: fifty a second
COUNTED: Final = "count(value) AS records, sum(length(value)) AS bytes"

Rows = dict[str, list[float]]


def main() -> int:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="repetitions (3)")
    parser.add_argument("--records", type=int, default=RECORDS, metavar="N", help=f"to read ({RECORDS:,})")
    parser.add_argument("--markdown", action="store_true", help=f"write the table into {PAGE.relative_to(PROJECT)}")
    arguments = parser.parse_args()
    jars = sorted((PROJECT / ".cache" / "spark-jars").glob("*.jar"))
    try:
        loadgen = build_go_program(PROJECT / "bench" / "loadgen")
    except PeerMissingError as missing:
        print(f"bench: {missing}", file=sys.stderr)
        return 1
    if not jars:
        print("bench: Spark's connector of Kafka is not there: make spark-jars", file=sys.stderr)
        return 1
    measured: Rows = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="exactlog-bench-") as folder:
        measure(Path(folder), loadgen, jars, measured, arguments)
    machine = describe_machine()
    table = markdown(measured)
    print(table)
    if arguments.markdown:
        put_table(PAGE, table, table=Table.PIPELINE, machine=machine, repetitions=arguments.repeat)
    return 0


def measure(folder: Path, loadgen: Path, jars: list[Path], measured: Rows, arguments: argparse.Namespace) -> None:
    """Everything, in one session of Spark and with one broker."""
    options = ["--flush-mode", "none"]
    with ServedBroker(folder / "data", log=folder / "broker.log", options=options) as broker:
        load = [
            "-topic",
            TOPIC,
            "-partitions",
            str(PARTITIONS),
            "-n",
            str(arguments.records),
            "-size",
            str(VALUE_BYTES),
        ]
        subprocess.run([loadgen, "produce", "-broker", broker.address, *load], check=True, capture_output=True)
        spark = session(f"local[{os.cpu_count()}]", app_name="bench", jars=jars)
        parquet = str(folder / "parquet")
        read_path(spark, folder).write.parquet(parquet)
        ways: dict[str, Callable[[], DataFrame]] = {
            "data source, from the directory": lambda: read_path(spark, folder),
            "data source, from the directory, all columns": lambda: read_path(spark, folder, schema=None),
            "data source, from the broker": lambda: read_broker(spark, broker.address),
            "Spark's Kafka source, from the broker": lambda: read_kafka(spark, broker.address),
            "Parquet": lambda: spark.read.parquet(parquet),
        }
        for repetition in range(arguments.repeat + 1):
            for name, read in ways.items():
                seconds = time_reading(read, expected=arguments.records)
                if repetition:
                    measured[f"{name}, rows/s"].append(arguments.records / seconds)
            rows = spark.read.parquet(parquet).limit(RECORDS_WRITTEN).cache()
            rows.count()
            began = time.monotonic()
            write_exactly_once(
                rows, bootstrap=broker.address, topic="written", txn_app_id="bench", txn_version=repetition
            )
            if repetition:
                measured["exactly-once sink, rows/s"].append(RECORDS_WRITTEN / (time.monotonic() - began))
        delays = time_stream(spark, broker, folder)
        measured["record to micro-batch, P50, ms"].append(statistics.median(delays))
        measured["record to micro-batch, P95, ms"].append(statistics.quantiles(delays, n=20)[-1])
        measured["resident, Spark and its workers, MB"].append(resident_of_family(os.getpid()))
        spark.stop()


def read_path(spark: "SparkSession", folder: Path, *, schema: str | None = "value BINARY") -> "DataFrame":
    """The data source on the directory, beside its broker."""
    reader = spark.read.format("exactlog").option("path", str(folder / "data")).option("topics", TOPIC)
    return (reader if schema is None else reader.schema(schema)).load()


def read_broker(spark: "SparkSession", address: str) -> "DataFrame":
    """The data source, by Kafka's protocol."""
    reader = spark.read.format("exactlog").option("bootstrap", address).option("topics", TOPIC)
    return reader.schema("value BINARY").load()


def read_kafka(spark: "SparkSession", address: str) -> "DataFrame":
    """Spark's own source."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", address).option("subscribe", TOPIC)
    return reader.option("kafka.isolation.level", "read_committed").load()


def time_reading(read: "Callable[[], DataFrame]", *, expected: int) -> float:
    """How long it takes to count records and bytes, in seconds.

    Raises:
        RuntimeError: they are not all there.
    """
    began = time.monotonic()
    (counted,) = read().selectExpr(*COUNTED.split(", ")).collect()
    seconds = time.monotonic() - began
    if (counted.records, counted.bytes) != (expected, expected * VALUE_BYTES):
        raise RuntimeError(f"{counted} in place of {expected:,} records")
    return seconds


def time_stream(spark: "SparkSession", broker: ServedBroker, folder: Path) -> list[float]:
    """How long each of fifty records a second took from its producer to a micro-batch, in ms."""
    topic = "stream"
    delays: list[float] = []
    is_over = threading.Event()
    writer = threading.Thread(target=write_times, args=(broker.address, topic, is_over))
    writer.start()
    time.sleep(1)

    def note(rows: "DataFrame", _batch: int) -> None:
        written = [float(row.value) for row in rows.selectExpr("cast(value AS STRING) AS value").collect()]
        now_ms = time.time() * 1000
        delays.extend(now_ms - each for each in written)

    source = spark.readStream.format("exactlog").option("path", str(folder / "data")).option("topics", topic)
    stream = source.option("startingVersion", "latest").schema("value BINARY").load().writeStream.foreachBatch(note)
    query = stream.option("checkpointLocation", str(folder / "checkpoint")).start()
    time.sleep(STREAM_SECONDS)
    is_over.set()
    writer.join()
    time.sleep(1)
    query.stop()
    return delays[len(delays) // 5 :]


def write_times(address: str, topic: str, is_over: threading.Event) -> None:
    """Fifty records a second that say when they were written."""
    from confluent_kafka import Producer  # noqa: PLC0415  of this alone

    producer = Producer({"bootstrap.servers": address, "linger.ms": 0})
    while not is_over.wait(RECORDS_BETWEEN):
        producer.produce(topic, str(time.time() * 1000).encode())
        producer.poll(0)
    producer.flush()


def resident_of_family(pid: int) -> float:
    """The memory of a process and all that it has started, in MB; what they share is counted once for each."""
    children = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout.split()
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:  # it has ended
        pages = 0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6 + sum(resident_of_family(int(child)) for child in children)


def markdown(measured: Rows) -> str:
    """The table."""
    lines: list[Any] = [f"| {name} | {statistics.median(numbers):,.0f} |" for name, numbers in measured.items()]
    return "\n".join(["|  |  |", "| --- | ---: |", *lines])


if __name__ == "__main__":
    sys.exit(main())
