"""A log as tables of Spark SQL: a temporary view for each topic, and a profile of what is in them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from exactlog.core.model.errors import ExactlogError
from exactlog.core.model.isolation_level import IsolationLevel
from exactlog.pipeline.errors import explain
from exactlog.pipeline.open_source import open_source
from exactlog.pipeline.partition_profile import COUNTS, COUNTS_DDL, CountedSlice, count_slices
from exactlog.pipeline.read_options import ReadOptions, options_of_log, parse_read_options
from exactlog.pipeline.source import Slice

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_UNFIT: Final = re.compile(r"[^A-Za-z0-9_]")
_EXTENTS_DDL: Final = (
    "topic string, partition int, version bigint, log_start_offset bigint, last_stable_offset bigint, "
    "end_offset bigint, bytes bigint"
)


def register_tables(
    spark: "SparkSession",
    *,
    path: str | Path | None = None,
    bootstrap: str | None = None,
    topics: Sequence[str] = (),
    prefix: str = "",
    options: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Registers a temporary view for each topic, and returns the names of the views by topic.

    A view shows what could be read of the topic when it was registered, so that queries agree with each other, or the
    version or time that the options say; registered again, it shows what has come since. It is named as the topic, with
    `_` for what is not a letter, a digit or `_` (`order.events` becomes `order_events`), and
    `t_` before a name that would begin with a digit; where two would have one name (Spark's names know no case), those
    behind the first get `_2`, `_3` and so on, in the order of the topics' names.

    Args:
        spark: a session; `exactlog.pipeline.session()` makes one.
        path: a data directory of the log, or the directory of one partition; or else:
        bootstrap: `host:port` of a broker, of any make.
        topics: which; all but internal ones by default.
        prefix: put before every name.
        options: more options of the data source, as `{"timestampAsOf": "2026-11-27T10:00:00Z"}`.

    Raises:
        InvalidOptionError: what was asked for does not go together.
        ExactlogError: the log cannot be read.
    """
    given = _options(path, bootstrap, topics, options)
    with closing(open_source(parse_read_options(given))) as source:
        extents = source.extents()
    names = view_names({place.topic for place in extents} | set(topics), prefix=prefix)
    try:
        for topic, name in names.items():
            ends = {place.partition: extent.end_offset for place, extent in extents.items() if place.topic == topic}
            rows = spark.read.format("exactlog").options(**given | {"topics": topic}).load()
            rows.where(_is_below(ends)).createOrReplaceTempView(name)
    except Exception as error:
        raise explain(error) from error
    return names


def view_names(topics: Iterable[str], *, prefix: str = "") -> dict[str, str]:
    """The names of the views for these topics, as `register_tables` documents them."""
    taken: set[str] = set()
    names = {}
    for topic in sorted(topics):
        plain = prefix + _UNFIT.sub("_", topic)
        plain = f"t_{plain}" if plain[:1].isdigit() else plain
        name, count = plain, 1
        while name.lower() in taken:
            count += 1
            name = f"{plain}_{count}"
        taken.add(name.lower())
        names[topic] = name
    return names


def profile(
    spark: "SparkSession",
    *,
    path: str | Path | None = None,
    bootstrap: str | None = None,
    topics: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
) -> "DataFrame":
    """What is in each partition, a row each; counted in the workers, and with `path` from the headers of batches.

        topic, partition
        version             the delta version that was looked at; NULL where a broker was asked
        log_start_offset, last_stable_offset, end_offset
        records             committed + aborted + open
        committed           what readers of committed records see now, and what waits
        waiting             committed, but behind a transaction that is open
        aborted, open       of transactions that were aborted, and of those that are not decided
        markers             of transactions
        bytes               about how large it is; 0 where it is not known

    Args:
        spark: a session.
        path, bootstrap, topics, options: as `register_tables` takes them; `isolation` and `includeControl` do nothing.

    Raises:
        InvalidOptionError: what was asked for does not go together.
        ExactlogError: the log cannot be read.
    """
    parsed = parse_read_options(_options(path, bootstrap, topics, options))
    try:
        extents, counted = _plan(parsed)
        rows = spark.createDataFrame(extents, _EXTENTS_DDL)
        indexes = spark.range(0, len(counted), 1, max(1, len(counted)))
        counts = indexes.mapInArrow(partial(count_slices, counted=counted, options=parsed), COUNTS_DDL)
        return _joined(rows, counts)
    except ExactlogError:
        raise
    except Exception as error:
        raise explain(error) from error


def _options(
    path: str | Path | None, bootstrap: str | None, topics: Sequence[str], options: Mapping[str, str] | None
) -> dict[str, str]:
    return {**(options or {}), **options_of_log(path, bootstrap, topics)}


def _plan(options: ReadOptions) -> tuple[list[tuple[object, ...]], list[CountedSlice]]:
    """A row for each partition, and what is to be counted."""
    committed = replace(options, isolation=IsolationLevel.READ_COMMITTED)
    everything = replace(options, isolation=IsolationLevel.READ_UNCOMMITTED)
    rows: list[tuple[object, ...]] = []
    counted: list[CountedSlice] = []
    with closing(open_source(committed)) as stable, closing(open_source(everything)) as source:
        stable_ends = {place: extent.end_offset for place, extent in stable.extents().items()}
        for place, extent in source.extents().items():
            stable_end = min(stable_ends.get(place, extent.start_offset), extent.end_offset)
            stable_end = max(stable_end, extent.start_offset)
            rows.append((*place, extent.version, extent.start_offset, stable_end, extent.end_offset, extent.size_bytes))
            decided = Slice(*place, extent.start_offset, stable_end, version=extent.version)
            open_end = replace(decided, start_offset=stable_end, end_offset=extent.end_offset)
            if decided.start_offset < decided.end_offset:
                pieces = source.split(decided, bytes_max=options.bytes_per_partition_max)
                counted += [CountedSlice(piece, is_decided=True) for piece in pieces]
            if open_end.start_offset < open_end.end_offset:
                counted.append(CountedSlice(open_end, is_decided=False))
    return rows, counted


def _is_below(ends: Mapping[int, int]) -> str:
    """Whether a row is of one of these partitions, and below its end: SQL. Spark plans a frame again now and then."""
    cases = " ".join(f"WHEN {partition} THEN `offset` < {end}" for partition, end in sorted(ends.items()))
    return f"CASE `partition` {cases} ELSE false END" if cases else "false"


def _joined(rows: "DataFrame", counts: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as f  # noqa: PLC0415  an extra

    totals = counts.groupBy("topic", "partition").agg(*(f.sum(name).alias(name) for name in COUNTS))
    joined = rows.join(totals, ["topic", "partition"], "left").fillna(0, list(COUNTS))
    records = (f.col("committed") + f.col("aborted") + f.col("open")).alias("records")
    names = ("version", "log_start_offset", "last_stable_offset", "end_offset")
    return joined.select("topic", "partition", *names, records, *COUNTS, "bytes").orderBy("topic", "partition")
