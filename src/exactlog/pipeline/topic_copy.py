"""Copying topics exactly once: a stream from a log into a broker, in which each record comes once and in its order."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from exactlog.core.model.errors import ExactlogError
from exactlog.pipeline.errors import explain, hints_kept
from exactlog.pipeline.exactly_once import exactly_once_sink
from exactlog.pipeline.official_connector import KAFKA, Connector, require_broker, stream_of
from exactlog.pipeline.open_source import open_source
from exactlog.pipeline.read_options import (
    InvalidOptionError,
    options_of_log,
    options_of_ordered_batches,
    parse_read_options,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

BYTES_PER_BATCH_DEFAULT: Final = 64 * 1024 * 1024
"""Of the log, for one micro-batch, which is one transaction: 64 MiB."""

_COPIED: Final = ("key", "value", "headers", "timestamp")
_LOOK_S: Final = 0.2


class CopyLoopError(ExactlogError):
    """A topic would be copied into itself, for ever."""

    code = "copy-loop"


class _Stopped(Exception):  # noqa: N818  no error: nothing of the batch has begun
    """Told to stop before a micro-batch began."""


class CopyReport(Struct, frozen=True):
    """What a run copied.

    Attributes:
        rows: how many records were read; what an earlier run had written already counts too.
        batches: how many micro-batches, each of them one transaction.
        lag: how many offsets are left to copy, as far as the last look at the source tells.
        versions: the delta version up to which each partition is copied, as `topic/number`; empty for a broker.
        is_stopped: whether it was told to stop.
    """

    rows: int
    batches: int
    lag: int
    versions: dict[str, int]
    is_stopped: bool


def copy_topics(
    spark: "SparkSession",
    *,
    to: str,
    txn_app_id: str,
    checkpoint: str | Path,
    path: str | Path | None = None,
    bootstrap: str | None = None,
    topics: Sequence[str] = (),
    connector: Connector = "exactlog",
    target_topic: str | None = None,
    keep_partitions: bool = True,
    follow: bool = False,
    bytes_per_batch: int = BYTES_PER_BATCH_DEFAULT,
    progress: Callable[[str], None] = lambda _: None,
    is_stopping: Callable[[], bool] = lambda: False,
) -> CopyReport:
    """Copies the committed records of topics: keys, values, headers, timestamps; each once, in its partition's order.

    Args:
        spark: a session; `exactlog.pipeline.session()` makes one.
        to: `host:port` of the broker that is written to, exactlog or Apache Kafka.
        txn_app_id: the name under which its batches are recorded there; the same when it goes on.
        checkpoint: the directory in which Spark keeps how far it is; the same when it goes on.
        path: a data directory of the log that is read, or the directory of one partition; or else:
        bootstrap: `host:port` of a broker that is read, of any make.
        topics: what is copied; all but internal ones by default.
        connector: `kafka`: Spark's own source reads the broker, with its jars.
        target_topic: where all goes; topics keep their names by default.
        keep_partitions: whether records keep the numbers of their partitions; else their keys decide.
        follow: whether to go on with what comes; else the run ends with what is there when it begins.
        bytes_per_batch: how much of the log one transaction takes, about.
        progress: told of each micro-batch in a line.
        is_stopping: asked all the time; a micro-batch that has begun is brought to its end.

    Raises:
        CopyLoopError: a topic would be copied into itself.
        ExactlogError: what cannot be read or written; `explain` gives what Spark raises.
    """
    read = options_of_log(path, bootstrap, topics)
    require_broker(parse_read_options(read), connector)
    found = _refuse_loop(read, to, target_topic)
    sink = exactly_once_sink(bootstrap=to, topic=target_topic, txn_app_id=txn_app_id)

    def write(batch: "DataFrame", batch_id: int) -> None:
        if is_stopping():
            raise _Stopped
        with hints_kept():
            sink(batch, batch_id)

    try:
        rows = _stream(spark, read, found, connector, bytes_per_batch)
        columns = [*_COPIED, *(["partition"] if keep_partitions else []), *(["topic"] if target_topic is None else [])]
        writer = rows.select(*columns).writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
        trigger = {"processingTime": "0 seconds"} if follow else {"availableNow": True}
        return _Run(writer.trigger(**trigger).start(), progress).wait(is_stopping)
    except ExactlogError:
        raise
    except Exception as error:
        raise explain(error) from error


def _stream(
    spark: "SparkSession", read: Mapping[str, str], topics: Sequence[str], connector: Connector, bytes_per_batch: int
) -> "DataFrame":
    if connector == KAFKA:
        return stream_of(spark.readStream, parse_read_options(read), topics)
    return spark.readStream.format("exactlog").options(**read, **options_of_ordered_batches(bytes_per_batch)).load()


class _Run:
    """A query that runs, and what it has told."""

    def __init__(self, query: "StreamingQuery", progress: Callable[[str], None]) -> None:
        self._query = query
        self._progress = progress
        self._seen = -1
        self._rows = self._batches = 0
        self._last: Mapping[str, Any] = {}

    def wait(self, is_stopping: Callable[[], bool]) -> CopyReport:
        is_stopped = False
        try:
            while not self._query.awaitTermination(_LOOK_S):  # type: ignore[arg-type]  # seconds, with a fraction
                self._look()
                if is_stopping():
                    is_stopped = True
                    if not self._query.status["isTriggerActive"]:
                        break
        except Exception as error:
            if _Stopped.__name__ not in str(error):
                raise
            is_stopped = True
        finally:
            self._query.stop()
        self._look()
        return CopyReport(self._rows, self._batches, self._lag(), self._versions(), is_stopped)

    def _look(self) -> None:
        """Takes in what has been told of micro-batches since."""
        for told in self._query.recentProgress:
            if told["batchId"] <= self._seen or not told["sources"]:
                continue
            self._last = json.loads(told.json) if hasattr(told, "json") else dict(told)
            if not told["numInputRows"]:
                continue
            self._seen = told["batchId"]
            self._rows += told["numInputRows"]
            self._batches += 1
            self._progress(f"batch {self._seen}: {self._rows} rows so far, {self._lag()} offsets to go")

    def _lag(self) -> int:
        reached, there = self._offsets("endOffset"), self._offsets("latestOffset")
        return sum(max(0, end - reached.get(place, 0)) for place, end in there.items())

    def _versions(self) -> dict[str, int]:
        return {
            place: position["version"]
            for place, position in self._positions("endOffset").items()
            if position.get("version") is not None
        }

    def _offsets(self, name: str) -> dict[str, int]:
        return {place: position["offset"] for place, position in self._positions(name).items()}

    def _positions(self, name: str) -> dict[str, dict[str, Any]]:
        """What the last progress says of each partition, as `topic/number`."""
        sources = self._last.get("sources") or [{}]
        found = sources[0].get(name)
        found = json.loads(found) if isinstance(found, str) else found
        partitions = (found or {}).get("partitions", {})
        return {
            f"{topic}/{number}": each for topic, by_number in partitions.items() for number, each in by_number.items()
        }


def _refuse_loop(read: Mapping[str, str], to: str, target_topic: str | None) -> list[str]:
    """The topics that are read. Raises if one is also written to: names may be alike, ids are not."""
    if not to:
        raise InvalidOptionError("no broker says where to copy to", hint="to=HOST:PORT names it")
    with closing(open_source(parse_read_options(read))) as source:
        found = sorted({place.topic for place in source.extents()})
        read_ids = dict(source.topic_ids)
    with closing(open_source(parse_read_options({"bootstrap": to}))) as target:
        target.extents()
        written_ids = dict(target.topic_ids)
    for topic, topic_id in read_ids.items():
        target_name = topic if target_topic is None else target_topic
        if written_ids.get(target_name) == topic_id:
            raise CopyLoopError(
                f"topic {topic} would be copied into itself",
                hint="Name another topic to write to, or another broker.",
            )
    return found
