"""Spark's own source for Kafka in the place of ours: the same rows, with NULL for what it does not tell.

It needs its jars (`make spark-jars`, `session(jars=...)`), and asks a broker with the Java client. What it is asked for
lies below the last stable offset, so that it never waits for records that cannot be read (SPARK-24720).
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, Literal

from exactlog.pipeline.read_options import InvalidOptionError, ReadOptions
from exactlog.pipeline.schema import COLUMNS
from exactlog.pipeline.source import Slice

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

Connector = Literal["exactlog", "kafka"]
"""Which source reads: ours, or Spark's own for Kafka."""

KAFKA: Final = "kafka"
OFFSETS_PER_BATCH: Final = 1_000_000
"""Of a stream, for one micro-batch; this source does not know bytes."""

_LOG_APPEND_TIME: Final = 1


def require_broker(options: ReadOptions, connector: Connector) -> None:
    """Raises `InvalidOptionError` where the source for Kafka is to read directories, or is none of the two."""
    if connector not in {"exactlog", KAFKA}:
        raise InvalidOptionError(f"connector must be exactlog or kafka, not {connector!r}")
    if connector == KAFKA and options.bootstrap is None:
        raise InvalidOptionError(
            "Spark's source for Kafka reads from a broker, not from a path", hint="Name a broker with bootstrap."
        )


def rows_between(spark: "SparkSession", options: ReadOptions, slices: Iterable[Slice]) -> "DataFrame":
    """The committed records of some ranges, in the columns of the log."""
    starts: dict[str, dict[str, int]] = defaultdict(dict)
    ends: dict[str, dict[str, int]] = defaultdict(dict)
    for piece in slices:
        number = str(piece.partition)
        starts[piece.topic][number] = min(piece.start_offset, starts[piece.topic].get(number, piece.start_offset))
        ends[piece.topic][number] = max(piece.end_offset, ends[piece.topic].get(number, 0))
    places = {topic: [int(number) for number in numbers] for topic, numbers in starts.items()}
    asked = {"assign": places, "startingOffsets": starts, "endingOffsets": ends}
    named = {name: json.dumps(value) for name, value in asked.items()}
    return in_our_columns(spark.read.format(KAFKA).options(**_options(options), **named).load())


def stream_of(reader: "DataStreamReader", options: ReadOptions, topics: Iterable[str]) -> "DataFrame":
    """The committed records of topics from their start on, in the columns of the log."""
    named = {
        "subscribe": ",".join(topics),
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(OFFSETS_PER_BATCH),
    }
    return in_our_columns(reader.format(KAFKA).options(**_options(options), **named).load())


def in_our_columns(rows: "DataFrame") -> "DataFrame":
    """The rows of Spark's source for Kafka as ours would give them."""
    from pyspark.sql import functions as f  # noqa: PLC0415  an extra

    pairs = f.transform("headers", lambda each: f.struct(each["key"].alias("name"), each["value"].alias("value")))
    told: Mapping[str, Column] = {
        **{name: f.col(name) for name in ("key", "value", "topic", "partition", "offset", "timestamp")},
        "headers": f.coalesce(pairs, f.array()),
        "timestamp_type": f.when(f.col("timestampType") == _LOG_APPEND_TIME, "LogAppendTime").otherwise("CreateTime"),
        "control": f.lit(False),  # noqa: FBT003  a value of the column
    }
    return rows.select(
        *(told.get(column.name, f.lit(None)).cast(column.spark_type).alias(column.name) for column in COLUMNS)
    )


def _options(options: ReadOptions) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": (options.bootstrap or "").removeprefix("kafka://"),
        "kafka.isolation.level": options.isolation.name.lower(),
        "includeHeaders": "true",
        "failOnDataLoss": "true",
    }
