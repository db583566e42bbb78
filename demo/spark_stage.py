"""Spark on the log: sums written back exactly once though the writer is killed, an earlier version, a Delta export."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from demo.delay_worker import delays_by_carrier
from demo.exactly_once import Sums, compare_sums, read_sums
from demo.exchange import TOPIC, create_topic
from demo.flight_table import Flight
from demo.group_reading import wait_until
from demo.served_broker import ServedBroker
from demo.story import DemoFailedError, Story
from demo.talking_program import TalkingProgram
from demo.versions import Version
from exactlog.core.model.errors import ExactlogError

SUMS_TOPIC: Final = "carrier-delays-of-spark"
SUMS_PARTITIONS: Final = 3
HOLD_AT: Final = 2
SPARK_SECONDS_MAX: Final = 240
"""Until Spark has started, or got on, on a machine that does other things too."""


class SparkStage(NamedTuple):
    """What the stage showed."""

    batches: int
    batches_replayed: int
    as_of_records: int
    exported_rows: int
    delta_version: int


class RunningSpark(TalkingProgram):
    """The Spark program, and what it has told.

    Attributes:
        batches: the micro-batches that it has written, by number.
        told: everything else.
    """

    def __init__(self, broker: ServedBroker, data: Path, folder: Path, *, options: Sequence[str]) -> None:
        self.batches: list[int] = []
        self.told: dict[str, Any] = {}
        places = [broker.address, str(data), TOPIC, SUMS_TOPIC, str(folder)]
        super().__init__("demo.spark_program", [*places, *options])

    def on_told(self, told: dict[str, Any]) -> None:
        """It has got on."""
        if "batch" in told:
            self.batches.append(told["batch"])
        self.told |= told


def why_without_spark() -> str | None:
    """Why the stage cannot run here; None where it can."""
    from exactlog.pipeline.spark_requirements import (  # noqa: PLC0415  looks for extras
        require_java,
        require_lakehouse,
        require_spark,
    )

    try:
        require_java()
        require_spark()
        require_lakehouse()
    except ExactlogError as error:
        return f"{error}. {error.hint}"
    return None


def run_spark(
    story: Story, broker: ServedBroker, data: Path, flights: Sequence[Flight], *, folder: Path, as_of: Version
) -> SparkStage:
    """Everything that Spark does here, against plain computations.

    Raises:
        DemoFailedError: something is not as promised.
    """
    create_topic(broker, SUMS_TOPIC, partitions=SUMS_PARTITIONS)
    work = folder / "spark"
    work.mkdir()
    killed = _stream_and_kill(story, broker, data, work)
    spark = RunningSpark(broker, data, work, options=["--as-of", str(as_of.number)])
    try:
        _wait(lambda: spark.has_ended, "Spark comes to its end")
    finally:
        spark.stop()
    if "exported" not in spark.told:
        raise DemoFailedError("the Spark program ended before it was done")
    replayed = len(set(spark.batches) & set(killed))
    story.tell(f"started again: micro-batch {killed[-1]} was replayed, and found written; then it went on to the end")
    sums, _ = read_sums(broker, SUMS_TOPIC, partitions=SUMS_PARTITIONS)
    expected = delays_by_carrier(flight.value for flight in flights)
    compare_sums(story, sums, expected)
    _check_as_of(story, spark.told, as_of)
    _check_export(story, work / "delta", spark.told, expected)
    batches = len({*killed, *spark.batches})
    return SparkStage(batches, replayed, spark.told["as_of"], spark.told["exported"], spark.told["delta_version"])


def _stream_and_kill(story: Story, broker: ServedBroker, data: Path, work: Path) -> list[int]:
    """The first writer, killed when a micro-batch is written and Spark does not know it yet; the batches it wrote."""
    began = time.monotonic()
    spark = RunningSpark(broker, data, work, options=["--hold-at", str(HOLD_AT)])
    try:
        _wait(lambda: len(spark.batches) >= HOLD_AT or spark.has_ended, "Spark writes its first micro-batches")
    finally:
        spark.kill()
    if len(spark.batches) < HOLD_AT:
        raise DemoFailedError("the Spark program ended by itself")
    story.tell(
        f"Spark {spark.told['session']} reads the directory as a stream; after {time.monotonic() - began:.0f} s "
        f"{len(spark.batches)} micro-batches of sums are written"
    )
    story.tell("kill -9 of the writer, with the last one committed to the log and unknown to Spark's own checkpoint")
    return spark.batches


def _check_as_of(story: Story, told: dict[str, Any], as_of: Version) -> None:
    if told["as_of"] != as_of.end_offset:
        raise DemoFailedError(f"version {as_of.number} has {as_of.end_offset:,} records, and Spark reads {told}")
    story.tell(
        f'spark.read.format("exactlog").option("versionAsOf", {as_of.number}): {told["as_of"]:,} records of partition '
        f"0 in place of {told['table']:,} today"
    )


def _check_export(story: Story, target: Path, told: dict[str, Any], expected: Sums) -> None:
    """The Delta table, opened without Spark."""
    from deltalake import DeltaTable  # noqa: PLC0415  an extra

    rows = DeltaTable(target).to_pyarrow_table(columns=["value"]).column("value")
    found: Sums = {}
    for chunk in rows.chunks:
        for carrier, delay in zip(
            chunk.field("carrier").to_pylist(), chunk.field("arr_delay").to_pylist(), strict=True
        ):
            sums = found.setdefault(carrier, {"flights": 0, "arrived": 0, "minutes": 0})
            sums["flights"] += 1
            if delay is not None:
                sums["arrived"] += 1
                sums["minutes"] += delay
    if found != expected or told["exported"] != len(rows):
        raise DemoFailedError("the Delta table does not hold what the log does")
    story.tell(f"exported to Delta Lake: {len(rows):,} rows, opened by deltalake without Spark, and the sums agree")


def _wait(is_so: Any, what: str) -> None:  # noqa: ANN401
    wait_until(is_so, what, seconds_max=SPARK_SECONDS_MAX)
