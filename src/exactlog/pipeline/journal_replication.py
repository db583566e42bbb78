"""Replicating journals by Spark: a stream of actions goes into a store, as the replicator in one process would do it.

    replicate_journals(spark, bootstrap="127.0.0.1:9092", topic_prefixes=["orders"],
                       store="cassandra://127.0.0.1:9042/journal", checkpoint="checkpoints/orders", follow=True)

Each partition of a micro-batch is one task's, which writes it to the store in the order of the log and moves the
pointer last. Spark may do a micro-batch again; what of it is in the store is passed over, by offset.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from exactlog.core.model.errors import ExactlogError
from exactlog.core.model.ids import TopicPartition
from exactlog.journal.parking import ParkedRecord, SkippedRecord
from exactlog.journal.replication_metrics import ReplicationMetrics
from exactlog.pipeline.errors import explain
from exactlog.pipeline.journal_checkpoint import KAFKA_SOURCE, JournalCheckpoint
from exactlog.pipeline.journal_driver import JournalDriver, NotBegun, ReplicationSettings
from exactlog.pipeline.journal_topics import JournalTopics, columns_ddl
from exactlog.pipeline.journal_worker import OpenedStore, StoreAddress
from exactlog.pipeline.official_connector import KAFKA, Connector, require_broker, stream_of
from exactlog.pipeline.read_options import (
    ReadOptions,
    options_of_log,
    options_of_ordered_batches,
    parse_read_options,
)
from exactlog.pipeline.task_writer import check_attempt
from exactlog.pipeline.upkeep_stores import reachable_url

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

DISCOVERY_S: Final = 3.0
"""Between two looks for new topics."""

_LOOK_S: Final = 0.2
_TRIGGER: Final = "100 milliseconds"  # between two looks for new records


class ReplicationReport(Struct, frozen=True, kw_only=True):
    """What a run has replicated.

    Attributes:
        rows: records that were seen to.
        batches: how many micro-batches had any.
        actions: that were carried out.
        refused: actions whose expectation failed.
        forks: appends with numbers that were given already.
        parked: what cannot be replicated; its journals wait.
        pointers: how far each partition is replicated, as `topic/number`.
        lag: how many offsets have come meanwhile.
        is_stopped: whether it was told to stop.
    """

    rows: int
    batches: int
    actions: int
    refused: int
    forks: int
    parked: tuple[ParkedRecord, ...]
    pointers: Mapping[str, int]
    lag: int
    is_stopped: bool


def replicate_journals(
    spark: "SparkSession",
    *,
    store: str,
    checkpoint: str | Path,
    path: str | Path | None = None,
    bootstrap: str | None = None,
    topics: Sequence[str] = (),
    topic_prefixes: Collection[str] = (),
    connector: Connector = "exactlog",
    skipped: Collection[SkippedRecord] = (),
    follow: bool = False,
    settings: ReplicationSettings | None = None,
    progress: Callable[[str], None] = lambda _: None,
    is_stopping: Callable[[], bool] = lambda: False,
) -> ReplicationReport:
    """Replicate the journals of topics into a store.

    The same log leaves the same store as `Replicator` does. One replicator writes to a store at a time.

    Args:
        spark: a session; `exactlog.pipeline.session()` makes one.
        store: the URL of a store, `sqlite:FILE` on one machine, or `cassandra://HOST:PORT/KEYSPACE`.
        checkpoint: the directory in which Spark keeps how far it is; the same when it goes on. A new one goes on where
            the store is, and reads the log from its start to find out.
        path: a data directory of the log that is read; or else:
        bootstrap: `host:port` of a broker that is read, of any make.
        topics: what is replicated; or else:
        topic_prefixes: topics with names that begin so are; all but internal ones by default.
        connector: `kafka`: Spark's own source reads the broker, with its jars.
        skipped: records that an operator has decided to pass over.
        follow: whether to go on with what comes, new topics too; else the run ends with what is there when it begins.
        settings: how it behaves.
        progress: told of what is done in a line.
        is_stopping: asked all the time; a micro-batch that has begun is brought to its end.

    Raises:
        HeadLost: retention took what was not replicated yet.
        OtherLogError: a topic was deleted and made again, or is of another log.
        Repartitioned: a topic has another number of partitions.
        OtherQueryError: the checkpoint is of another query.
        OtherReplicatorError: somebody else replicates into the store.
        Retriable: the store cannot be written to; the next run goes on.
        ExactlogError: what else cannot be read or written; `explain` gives what Spark raises.
    """
    settings = settings or ReplicationSettings()
    options = parse_read_options(options_of_log(path, bootstrap, topics))
    url = _checked(spark, options, connector, store)
    source = KAFKA_SOURCE if connector == KAFKA else "broker" if options.path is None else "path"
    kept = JournalCheckpoint(spark, checkpoint, source=source)
    address = StoreAddress(url=url, segment_size=settings.segment_size, run_id="driver")
    with closing(OpenedStore(address)) as opened, closing(JournalTopics(options, topic_prefixes)) as found:
        kept.open()
        driver = JournalDriver(
            checkpoint=kept, topics=found, options=options, store=opened, skipped=skipped, settings=settings
        )
        stream = _Stream(spark, options, connector, settings, location=kept.location, is_endless=follow)
        run = _Run(driver, found, stream, progress=progress, is_stopping=is_stopping)
        is_stopped = run.to_the_end()
        return _report(driver, settings.metrics, lag=run.lag(), is_stopped=is_stopped)


class _Stream:
    """The stream of some topics, and how it is started."""

    def __init__(
        self,
        spark: "SparkSession",
        options: ReadOptions,
        connector: Connector,
        settings: ReplicationSettings,
        *,
        location: str,
        is_endless: bool,
    ) -> None:
        self.is_endless = is_endless
        self._spark = spark
        self._options = options
        self._connector = connector
        self._bytes_per_batch = settings.bytes_per_batch
        self._location = location

    def start(self, names: Sequence[str], write: "Callable[[DataFrame, int], None]") -> "StreamingQuery":
        writer = self._rows(names).writeStream.foreachBatch(write).option("checkpointLocation", self._location)
        if self.is_endless:
            return writer.trigger(processingTime=_TRIGGER).start()
        return writer.trigger(availableNow=True).start()

    def _rows(self, names: Sequence[str]) -> "DataFrame":
        if self._connector == KAFKA:
            return stream_of(self._spark.readStream, self._options, names)
        log = options_of_log(self._options.path, self._options.bootstrap, names)
        bounds = options_of_ordered_batches(self._bytes_per_batch)
        return self._spark.readStream.format("exactlog").schema(columns_ddl()).options(**log, **bounds).load()


class _Run:
    """Query after query, until all is done or the job is to stop: a new topic is a query of its own."""

    def __init__(
        self,
        driver: JournalDriver,
        topics: JournalTopics,
        stream: _Stream,
        *,
        progress: Callable[[str], None],
        is_stopping: Callable[[], bool],
    ) -> None:
        self._driver = driver
        self._topics = topics
        self._stream = stream
        self._progress = progress
        self._is_stopping = is_stopping
        self._names: list[str] = []

    def to_the_end(self) -> bool:
        """Whether it was told to stop."""
        while not self._is_stopping():
            self._names = self._topics.found()
            if self._names:
                self._driver.begin(self._names)
                self._progress(f"replicating {len(self._names)} topics: {', '.join(self._names)}")
                self._one_query()
            else:
                self._progress("there is no topic to replicate")
                if self._stream.is_endless:
                    self._wait(DISCOVERY_S)
            if not self._stream.is_endless:
                break
        return self._is_stopping()

    def lag(self) -> int:
        """How many offsets are left."""
        return self._driver.lag() if self._names else 0

    def _one_query(self) -> None:
        """One query, until it ends, the job is to stop, or there are other topics."""
        driver = self._driver
        driver.is_held = False
        query = None
        try:
            query = self._stream.start(self._names, self._write)
            discovery_at = time.monotonic() + DISCOVERY_S
            while not query.awaitTermination(_LOOK_S):  # type: ignore[arg-type]  # seconds, with a fraction
                if self._stream.is_endless and time.monotonic() >= discovery_at:
                    discovery_at = time.monotonic() + DISCOVERY_S
                    driver.is_held = driver.is_held or self._has_other_topics()
                driver.is_held = driver.is_held or self._is_stopping()
                if driver.is_held and not query.status["isTriggerActive"]:
                    break
        except Exception as error:
            if NotBegun.__name__ not in str(error):
                raise self._told(error) from error
        finally:
            if query is not None:
                _end(query)

    def _has_other_topics(self) -> bool:
        """For now it has not, where the brokers cannot be asked."""
        try:
            return self._topics.found() != self._names
        except ExactlogError as error:
            if not error.retryable:
                raise
            self._progress(f"the topics cannot be listed: {error}")
            return False

    def _write(self, batch: "DataFrame", batch_id: int) -> None:
        driver = self._driver
        driver.is_held = driver.is_held or self._is_stopping()
        driver.write(batch, batch_id)
        parked = f", {len(driver.parked)} parked" if driver.parked else ""
        self._progress(f"batch {batch_id}: {driver.rows} rows so far, {driver.lag_then()} offsets to go{parked}")

    def _told(self, error: Exception) -> ExactlogError:
        """What is wrong with the log, where that is why; else what Spark says."""
        explained = explain(error)
        try:
            self._driver.check_again()
        except ExactlogError as found:
            return explained if found.retryable else found
        return explained

    def _wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self._is_stopping():
            time.sleep(_LOOK_S)


def _end(query: "StreamingQuery") -> None:
    """Stop a query, unless it has ended. Raises `SparkGoneError`."""
    try:
        query.stop()
    except Exception as error:
        raise explain(error) from error


def _report(driver: JournalDriver, metrics: ReplicationMetrics, *, lag: int, is_stopped: bool) -> ReplicationReport:
    return ReplicationReport(
        rows=driver.rows,
        batches=driver.batches,
        actions=int(metrics.actions.value),
        refused=int(metrics.refused.value),
        forks=int(metrics.forks.value),
        parked=driver.parked,
        pointers={_named(place): pointer for place, pointer in driver.pointers.items()},
        lag=lag,
        is_stopped=is_stopped,
    )


def _checked(spark: "SparkSession", options: ReadOptions, connector: Connector, store: str) -> str:
    """The URL of the store, where nothing is wrong with what was asked for. Raises what is."""
    require_broker(options, connector)
    speculation = str(spark.conf.get("spark.speculation", "false"))
    check_attempt(attempt_number=0, is_speculative=speculation.lower() == "true")
    return reachable_url(store, master=spark.sparkContext.master, must_exist=False)


def _named(place: TopicPartition) -> str:
    return f"{place.topic}/{place.partition}"
