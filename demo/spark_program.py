"""The flights as a table of Spark: a process of its own that may be killed at any moment.

Run by `demo.spark_stage`. It reads the topic as a stream, adds up the delays of each carrier, and writes the sums of
every micro-batch back exactly once. With --hold-at N it stops when the Nth micro-batch is written, and Spark has not
noted that yet, and waits to be killed. Without, it goes on to the end, reads the table as of an earlier version, and
exports it to Delta Lake. It tells of all that on its standard output.
"""

import argparse
import json
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from exactlog.pipeline import exactly_once_sink, export_delta, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_PER_BATCH: Final = 60_000
NO_HOLD: Final = -1
COLUMNS: Final = "carrier STRING, arr_delay INT"
SINK: Final = "delays-of-carriers"


def main() -> int:
    """Work until told to stop, or to the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("data", type=Path)
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hold-at", type=int, default=NO_HOLD)
    parser.add_argument("--as-of", type=int, default=0)
    arguments = parser.parse_args()
    spark = session(app_name="flights")
    tell(session=spark.version)
    stream_sums(spark, arguments)
    tell(table=read_table(spark, arguments, as_of=None))
    tell(as_of=read_table(spark, arguments, as_of=arguments.as_of))
    report = export_delta(
        spark, target=arguments.folder / "delta", path=arguments.data, topics=[arguments.source], schema=COLUMNS
    )
    tell(exported=report.rows, delta_version=report.target_version)
    spark.stop()
    return 0


def stream_sums(spark: "SparkSession", arguments: argparse.Namespace) -> None:
    """From the log into sums, a micro-batch after the other, until all that is there is summed up."""
    sink = exactly_once_sink(bootstrap=arguments.address, topic=arguments.target, txn_app_id=SINK)
    batches_before_hold = arguments.hold_at

    def write(flights: "DataFrame", batch_id: int) -> None:
        nonlocal batches_before_hold
        sink(sums_of(flights), batch_id)
        batches_before_hold -= 1
        tell(batch=batch_id)
        if not batches_before_hold:
            threading.Event().wait()

    flights = (
        spark.readStream.format("exactlog")
        .option("path", str(arguments.data))
        .option("topics", arguments.source)
        .option("maxRowsPerTrigger", ROWS_PER_BATCH)
        .schema("value BINARY")
        .load()
    )
    query = flights.writeStream.foreachBatch(write).option("checkpointLocation", str(arguments.folder / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()


def sums_of(flights: "DataFrame") -> "DataFrame":
    """By carrier: how many flights, how many of them with a known delay at arrival, and its sum in minutes, as JSON."""
    from pyspark.sql import functions as sf  # noqa: PLC0415  an extra

    flight = sf.from_json(sf.col("value").cast("string"), COLUMNS)
    delay = sf.col("flight.arr_delay")
    sums = (
        flights.select(flight.alias("flight"))
        .groupBy(sf.col("flight.carrier").alias("key"))
        .agg(
            sf.count("*").alias("flights"),
            sf.count(delay).alias("arrived"),
            sf.coalesce(sf.sum(delay), sf.lit(0)).alias("minutes"),
        )
    )
    return sums.select("key", sf.to_json(sf.struct("flights", "arrived", "minutes")).alias("value"))


def read_table(spark: "SparkSession", arguments: argparse.Namespace, *, as_of: int | None) -> int:
    """How many records the first partition has, now or as of a version."""
    directory = arguments.data / f"topic={arguments.source}-part=0"
    table = spark.read.format("exactlog").option("path", str(directory)).schema("offset BIGINT")
    return (table if as_of is None else table.option("versionAsOf", as_of)).load().count()


def tell(**told: Any) -> None:  # noqa: ANN401
    """A line for who has started this."""
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    sys.exit(main())
