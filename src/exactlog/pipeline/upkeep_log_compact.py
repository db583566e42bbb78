"""Compacting the topics of a stopped data directory by key on Spark: each partition by one task.

What is done is what `exactlog log compact` does, by the same code. The driver holds the lock of the directory for as
long as the run lasts; each task holds its partition besides, and looks before it publishes whether the directory is
still the driver's. All machines need the directory mounted at the same path.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from exactlog.core.model.errors import ExactlogError
from exactlog.log.compaction import CompactionPlace, CompactionRun, compact_partition, partitions_at
from exactlog.pipeline.task_writer import check_attempt
from exactlog.pipeline.upkeep_tasks import Progress, carry_out

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class CompactedLogPartition(Struct, frozen=True):
    """What became of one partition; see `CompactedPartition`.

    Attributes:
        version: None where it was left as it was.
        error_code, error: why; None: it was done.
    """

    topic: str
    partition: int
    version: int | None = None
    segments_before: int = 0
    segments: int = 0
    bytes_before: int = 0
    bytes: int = 0
    records_removed: int = 0
    passes: int = 0
    error_code: str | None = None
    error: str | None = None


class CompactLogReport(Struct, frozen=True, kw_only=True):
    """What a run compacted.

    Attributes:
        partitions: how many were seen to.
        compacted: in how many of them records went, or would go.
        records_removed: how many in all.
        bytes_before, bytes: of the segments of those partitions, before and afterwards.
        failed: how many were left as they were, for something is wrong with them; the others were seen to.
        partitions_left: how many were not seen to, for the run was told to stop.
        is_stopped: whether it was told to stop before all was done.
        is_dry_run: whether nothing was to be changed.
        outcomes: partition for partition.
    """

    partitions: int
    compacted: int
    records_removed: int
    bytes_before: int
    bytes: int
    failed: int
    partitions_left: int
    is_stopped: bool
    is_dry_run: bool
    outcomes: tuple[CompactedLogPartition, ...]


def compact_log(
    spark: "SparkSession",
    *,
    path: str | Path,
    topics: Sequence[str] = (),
    dry_run: bool = False,
    progress: Progress = lambda _: None,
    is_stopping: Callable[[], bool] = lambda: False,
) -> CompactLogReport:
    """Compacts the topics of a data directory, or one partition, whose `cleanup.policy` has `compact`.

    Args:
        spark: a session; `exactlog.pipeline.session()` makes one.
        path: a data directory, or the directory of one partition; no broker may be running on it.
        topics: whose partitions are compacted; all that are to be compacted by default.
        dry_run: only say what would be done.
        progress: told of each round in a line.
        is_stopping: asked between rounds; what was compacted is.

    Raises:
        DirectoryLockedError: a broker, or another process, has it.
        NotFoundError: it is neither, or has no such topic.
        ConfigError: a topic that was named is not one to be compacted; or, with `spark.speculation`, two attempts could
            write side by side.
        ExactlogError: `explain` gives what Spark raises. What is wrong with one partition is in its outcome.
    """
    speculation = str(spark.conf.get("spark.speculation", "false"))
    check_attempt(attempt_number=0, is_speculative=speculation.lower() == "true")
    root, names = partitions_at(Path(str(path).removeprefix("file://")))
    outcomes: list[CompactedLogPartition] = []
    with CompactionRun(root, names, topics=topics, is_dry_run=dry_run) as run:
        places = sorted(run.places, key=_size_of, reverse=True)  # the last to end is a small one
        for told in carry_out(spark, places, _compact, CompactedLogPartition, is_stopping=is_stopping):
            outcomes += told
            removed = sum(each.records_removed for each in outcomes)
            progress(
                f"partition {len(outcomes)} of {len(places)}: {removed} records {'to remove' if dry_run else 'removed'}"
            )
    return CompactLogReport(
        partitions=len(outcomes),
        compacted=sum(each.records_removed > 0 for each in outcomes),
        records_removed=sum(each.records_removed for each in outcomes),
        bytes_before=sum(each.bytes_before for each in outcomes),
        bytes=sum(each.bytes for each in outcomes),
        failed=sum(each.error is not None for each in outcomes),
        partitions_left=len(places) - len(outcomes),
        is_stopped=len(outcomes) < len(places),
        is_dry_run=dry_run,
        outcomes=tuple(sorted(outcomes, key=_place_of)),
    )


def _size_of(place: CompactionPlace) -> int:
    directory = f"{place.root}/{place.name}"
    return sum(entry.stat().st_size for entry in os.scandir(directory) if entry.is_file())


def _place_of(outcome: CompactedLogPartition) -> tuple[str, int]:
    return outcome.topic, outcome.partition


# --- in a task --------------------------------------------------------------------------------------------------------


def _compact(place: CompactionPlace) -> CompactedLogPartition:
    try:
        done = compact_partition(place)
    except ExactlogError as error:
        return CompactedLogPartition(place.topic, place.partition, error_code=error.code, error=str(error))
    return CompactedLogPartition(
        done.topic,
        done.partition,
        version=done.version,
        segments_before=done.segments_before,
        segments=done.segments,
        bytes_before=done.bytes_before,
        bytes=done.bytes,
        records_removed=done.records_removed,
        passes=done.passes,
    )
