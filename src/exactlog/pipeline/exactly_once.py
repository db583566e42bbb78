"""A frame written exactly once, whatever its partitions are: rows go to the task that owns their target partition.

    write_exactly_once(df, bootstrap="127.0.0.1:9092", topic="orders", txn_app_id="nightly", txn_version=17)

    sink = exactly_once_sink(bootstrap="127.0.0.1:9092", topic="orders", txn_app_id="orders-copy")
    query = df.writeStream.foreachBatch(sink).option("checkpointLocation", ...).start()

Where a row goes is decided by what is in it, and by nothing else: a row that names no partition goes to that of its
key, as with Kafka's clients; one without a key to that of its value's hash. So it goes there again when a stage of
Spark is run again.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from exactlog.client.ports import Client
from exactlog.pipeline.client_thread import ClientThread
from exactlog.pipeline.errors import explain
from exactlog.pipeline.partition_rows import partitions_of_keys
from exactlog.pipeline.sink_transaction import (
    CONTACT_SETTINGS,
    QUERY_PROPERTY,
    BatchId,
    Recorded,
    is_recorded,
    newest_recorded,
)
from exactlog.pipeline.task_writer import check_attempt
from exactlog.pipeline.write_options import (
    TRANSACTION_TIMEOUT_MS_DEFAULT,
    WriteOptions,
    check_columns,
    parse_write_options,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_OWNER: Final = "__exactlog_owner"
_FORMAT: Final = "exactlog"
_HASHES: Final = 2**31
"""How many there are of the hashes that Kafka's clients find the partition of a key by."""


def write_exactly_once(
    df: "DataFrame",
    *,
    bootstrap: str,
    topic: str | None = None,
    txn_app_id: str,
    txn_version: int,
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS_DEFAULT,
    compression: str = "none",
    order_by: Sequence[str] = (),
    tasks_max: int | None = None,
) -> bool:
    """Write the rows of a frame in one transaction, once for each version, however often this is called.

    Args:
        df: the columns are those of `write_options.COLUMN_TYPES`.
        bootstrap: `host:port`s of a broker, exactlog or Apache Kafka, separated by commas.
        topic: where the rows go; None: the column `topic` says it.
        txn_app_id: under which the batch is recorded.
        txn_version: its number; it grows from batch to batch.
        transaction_timeout_ms: how long the write may take, at most what the broker allows.
        compression: none, gzip, snappy, lz4 or zstd.
        order_by: columns by which the rows of each partition are put in order. Without them the rows that one task
            read keep their order, and those of different tasks mix.
        tasks_max: how many tasks write, at most; None: one for each core that Spark has, or each partition.

    Returns:
        Whether it was written now; False: it had been recorded before.

    Raises:
        ExactlogError: what `BatchWriter` raises, and whatever else ended the job, as one sentence (`explain`).
    """
    named = {"topic": topic, "txnAppId": txn_app_id, "txnVersion": str(txn_version), "compression": compression}
    given = {"bootstrap": bootstrap, "transactionTimeoutMs": str(transaction_timeout_ms), **named}
    texts = {name: text for name, text in given.items() if text is not None}
    options = parse_write_options(texts)
    check_columns(((field.name, field.dataType.simpleString()) for field in df.schema.fields), options)
    spark = df.sparkSession
    speculation = str(spark.conf.get("spark.speculation", "false"))
    check_attempt(attempt_number=0, is_speculative=speculation.lower() == "true")
    counts, recorded = _look_up(options)
    if is_recorded(options, BatchId(txn_version, _query_of(spark)), recorded):
        return False
    _make_known(spark)
    try:
        owned = _routed(df, options, counts, tasks_max or spark.sparkContext.defaultParallelism)
        if order_by:
            owned = owned.sortWithinPartitions(*order_by)
        owned.write.format(_FORMAT).mode("append").options(**texts).save()
    except Exception as error:
        raise explain(error) from error
    return True


def exactly_once_sink(
    *,
    bootstrap: str,
    topic: str | None = None,
    txn_app_id: str,
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS_DEFAULT,
    compression: str = "none",
    order_by: Sequence[str] = (),
    tasks_max: int | None = None,
) -> "Callable[[DataFrame, int], None]":
    """The function for `writeStream.foreachBatch` that writes each micro-batch exactly once (`write_exactly_once`).

    Raises:
        InvalidOptionError: an argument is wrong; the columns are looked at with the first micro-batch.
    """
    sink = partial(
        _write_micro_batch,
        bootstrap=bootstrap,
        topic=topic,
        txn_app_id=txn_app_id,
        transaction_timeout_ms=transaction_timeout_ms,
        compression=compression,
        order_by=tuple(order_by),
        tasks_max=tasks_max,
    )
    first = {"bootstrap": bootstrap, "topic": topic, "txnAppId": txn_app_id, "compression": compression}
    texts = {name: text for name, text in first.items() if text is not None}
    parse_write_options({**texts, "txnVersion": "0", "transactionTimeoutMs": str(transaction_timeout_ms)})
    return sink


def _write_micro_batch(
    df: "DataFrame",
    batch_id: int,
    *,
    bootstrap: str,
    topic: str | None,
    txn_app_id: str,
    transaction_timeout_ms: int,
    compression: str,
    order_by: Sequence[str],
    tasks_max: int | None,
) -> None:
    write_exactly_once(
        df,
        bootstrap=bootstrap,
        topic=topic,
        txn_app_id=txn_app_id,
        txn_version=batch_id,
        transaction_timeout_ms=transaction_timeout_ms,
        compression=compression,
        order_by=order_by,
        tasks_max=tasks_max,
    )


def _look_up(options: WriteOptions) -> tuple[dict[str, int], Recorded | None]:
    """How many partitions each topic has that rows may go to, and the newest batch that is recorded."""

    async def work(client: Client) -> tuple[dict[str, int], Recorded | None]:
        if options.topic is not None:
            counts = {options.topic: await client.partition_count(options.topic)}
        else:
            counts = {listed.name: listed.partition_count for listed in await client.list_topics()}
        assert options.group_id is not None, "there is no version without a name"
        return counts, newest_recorded(await client.list_committed_offsets(options.group_id))

    with ClientThread(options.bootstrap, CONTACT_SETTINGS) as thread:
        return thread.run(work)


def _routed(df: "DataFrame", options: WriteOptions, counts: Mapping[str, int], tasks_max: int) -> "DataFrame":
    """The rows, each with its target partition, in as many partitions of Spark as there are tasks to write.

    Partitions of all topics are numbered through; a row whose topic is not there yet goes with all others of it to one
    task, which lets the broker create it and chooses partitions itself.
    """
    from pyspark.sql import functions as sf  # noqa: PLC0415  an extra

    columns = set(df.columns)
    if options.topic is not None:
        topic, count, first = sf.lit(options.topic), sf.lit(counts[options.topic]), sf.lit(0)
    else:
        topic = sf.col("topic")
        count, first = _of_topic(topic, counts), _of_topic(topic, _first_numbers(counts))
    target = sf.pmod(sf.xxhash64("value"), count).cast("int")
    if "key" in columns:
        by_key = (_hash_of_key()(sf.col("key").cast("binary")) % count).cast("int")
        target = sf.when(sf.col("key").isNull(), target).otherwise(by_key)
    if "partition" in columns:
        target = sf.coalesce(sf.col("partition"), target)
    owner = sf.coalesce(first + target, sf.pmod(sf.xxhash64(topic), sf.lit(2**31 - 1)).cast("int"))
    placed = df.withColumn("partition", target).withColumn(_OWNER, owner)
    tasks = max(1, min(tasks_max, sum(counts.values())))
    return placed.repartitionById(tasks, _OWNER).drop(_OWNER)


def _of_topic(topic: "Column", numbers: Mapping[str, int]) -> "Column":
    """The number of each row's topic; NULL where there is none."""
    from pyspark.sql import functions as sf  # noqa: PLC0415  an extra

    if not numbers:
        return sf.lit(None).cast("int")
    entries = [sf.lit(part) for name, number in numbers.items() for part in (name, number)]
    return sf.try_element_at(sf.create_map(*entries), topic)


def _first_numbers(counts: Mapping[str, int]) -> dict[str, int]:
    """The number of the first partition of each topic, where those of all topics are numbered through."""
    numbers: dict[str, int] = {}
    taken = 0
    for topic, count in counts.items():
        numbers[topic] = taken
        taken += count
    return numbers


def _hash_of_key() -> "Callable[[Column], Column]":
    """A function of Spark's: the hash by which Kafka's clients find the partition of a key."""
    import pyarrow as pa  # noqa: PLC0415  an extra
    from pyspark.sql.pandas.functions import arrow_udf  # noqa: PLC0415

    def hashes(keys: pa.Array) -> pa.Array:
        return pa.array(partitions_of_keys(keys, partition_count=_HASHES), pa.int32())

    found: Callable[[Column], Column] = arrow_udf(hashes, "int")  # type: ignore[call-overload]  # hints say which
    return found


def _query_of(spark: "SparkSession") -> str | None:
    """The streaming query that this runs for, as a function of `foreachBatch`."""
    query: str | None = spark.sparkContext.getLocalProperty(QUERY_PROPERTY)
    return query


def _make_known(spark: "SparkSession") -> None:
    """Let this thread find the data source: it looks in the session that is active in it, a new one has none."""
    from exactlog.pipeline.data_source import ExactlogDataSource  # noqa: PLC0415  needs pyspark

    session, jvm = spark._jsparkSession, spark._jvm  # noqa: SLF001  nothing public makes a session the active one
    assert jvm is not None, "a session that has not been stopped has a JVM"
    jvm.SparkSession.setActiveSession(session)
    if not session.sessionState().dataSourceManager().dataSourceExists(_FORMAT):
        spark.dataSource.register(ExactlogDataSource)
