"""Frames and streams of real Spark written to a broker, exactly once: `df.write`, `writeStream` and `foreachBatch`."""

import os
import threading
import time
import uuid
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer
from confluent_kafka import TopicPartition as ConfluentPlace
from pyspark import cloudpickle
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from exactlog.client.ports import ClientSettings
from exactlog.client.wire.partitioner import partition_of_key
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import ConfigError, NotFoundError, UnavailableError
from exactlog.pipeline import exactly_once, exactly_once_sink, explain, write_exactly_once
from exactlog.pipeline.read_options import InvalidOptionError
from exactlog.pipeline.record_rows import InvalidRowError
from exactlog.pipeline.sink_transaction import (
    SharedPartitionError,
    TakenOverError,
    TransactionTimedOutError,
    TwoQueriesError,
)
from exactlog.pipeline.write_options import InvalidColumnsError
from exactlog.testing import Broker
from tests.peers.apache_kafka import ApacheKafka, kafka_jars
from tests.peers.gate import skip_without_peer
from tests.support.written_topics import committed_in, committed_values, is_ongoing, recorded_offsets

pytestmark = pytest.mark.peer

PARTITIONS = 4
PATIENCE_S = 60
SCHEMA = (
    "value binary, key binary, headers array<struct<name string, value binary>>, partition int, timestamp timestamp"
)


@pytest.fixture(scope="module")
def broker():
    with Broker(config={"check_interval_ms": 100, "num.partitions": PARTITIONS}) as running:
        yield running


@pytest.fixture(scope="module")
def kafka():
    with skip_without_peer():
        kafka_jars()
    with ApacheKafka(properties={"num.partitions": str(PARTITIONS)}) as running:
        yield running


@pytest.fixture(params=["exactlog", "apache kafka"])
def bootstrap(request):
    return request.getfixturevalue("broker" if request.param == "exactlog" else "kafka").bootstrap_servers


@pytest.fixture
def name():
    """Of a topic that is created when it is written to, and a txnAppId."""
    return f"sink-{uuid.uuid4().hex[:12]}"


def numbered(spark, count, *, start=0, tasks=2):
    """Values that are numbers, with one of ten keys each."""
    rows = spark.range(start, start + count, 1, tasks)
    return rows.select(F.col("id").cast("string").alias("value"), F.concat(F.lit("k"), F.col("id") % 10).alias("key"))


def numbers(count):
    return sorted(b"%d" % number for number in range(count))


def in_lines(path, spark):
    """Each file of a directory is a micro-batch of its lines."""
    return spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(path))


def write_files(path, count, *, lines=20, start=0):
    path.mkdir(exist_ok=True)
    for number in range(start, start + count):
        file = path / f"{number:05d}"
        file.write_text("".join(f"{number * lines + line}\n" for line in range(lines)))
        os.utime(file, (1_000 + number, 1_000 + number))  # the order in which Spark takes them


def run_available(query):
    """The query to its end; what ended it, as one sentence, if it was an error."""
    try:
        running = query.trigger(availableNow=True).start()
        running.awaitTermination()
    except Exception as error:
        raise explain(error) from error


def consumed(bootstrap, topic):
    """What librdkafka's consumer of committed records finds, by partition: key, value, headers, timestamp."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    found = {}
    try:
        for partition, expected in committed_in(bootstrap, topic).items():
            reader.assign([ConfluentPlace(topic, partition, 0)])
            found[partition] = []
            deadline = time.monotonic() + PATIENCE_S
            while len(found[partition]) < len(expected):
                assert time.monotonic() < deadline
                for message in reader.consume(1_000, timeout=0.2):
                    assert message.error() is None
                    kind, at_ms = message.timestamp()
                    assert kind != TIMESTAMP_NOT_AVAILABLE
                    found[partition].append((message.key(), message.value(), message.headers() or [], at_ms))
    finally:
        reader.close()
    return found


# --- what arrives ---------------------------------------------------------------------------------------------


def test_what_is_written_is_what_was_there_and_lies_where_kafkas_clients_put_it(spark, bootstrap, name):
    start = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    rows = [
        (
            None if number % 11 == 0 else b"v%d" % number,
            None if number % 5 == 0 else b"key-%d" % (number % 37),
            None if number % 3 == 0 else [("h", b"%d" % number), ("h", None), ("é", b"")][: number % 4],
            number % PARTITIONS if number % 7 == 0 else None,
            None if number % 13 == 0 else start + timedelta(milliseconds=number),
        )
        for number in range(500)
    ]
    before_ms = time.time_ns() // 1_000_000
    df = spark.createDataFrame(rows, SCHEMA).repartition(3)
    for codec, version in (("none", 0), ("zstd", 1)):
        assert write_exactly_once(
            df, bootstrap=bootstrap, topic=name, txn_app_id=name, txn_version=version, compression=codec
        )
    found = consumed(bootstrap, name)
    after_ms = time.time_ns() // 1_000_000

    expected = Counter()
    for value, key, headers, partition, at in rows:
        place = partition
        if place is None and key is not None:
            place = partition_of_key(key, partition_count=PARTITIONS)
        at_ms = None if at is None else round(at.timestamp() * 1_000)
        expected[place, key, value, tuple(headers or ()), at_ms] += 2
    seen = Counter()
    for partition, records in found.items():
        for key, value, headers, at_ms in records:
            is_given = at_ms < before_ms or at_ms > after_ms
            seen[partition, key, value, tuple(headers), at_ms if is_given else None] += 1
    spread = {entry: count for entry, count in expected.items() if entry[0] is None}
    assert {entry: count for entry, count in seen.items() if entry in expected} == {
        entry: count for entry, count in expected.items() if entry[0] is not None
    }
    anywhere = Counter()
    for entry, count in seen.items():
        if entry not in expected:
            anywhere[(None, *entry[1:])] += count
    assert anywhere == spread
    assert {entry[0] for entry in seen if entry not in expected} == set(range(PARTITIONS))


def test_rows_for_several_topics_count_together_and_a_new_topic_is_created(spark, bootstrap, name):
    df = numbered(spark, 100).withColumn("topic", F.concat(F.lit(f"{name}-"), F.col("value").cast("int") % 3))
    for _ in range(2):
        write_exactly_once(df, bootstrap=bootstrap, txn_app_id=name, txn_version=0)
    found = [committed_values(bootstrap, f"{name}-{number}") for number in range(3)]
    assert found == [sorted(b"%d" % value for value in range(number, 100, 3)) for number in range(3)]
    assert set(recorded_offsets(bootstrap, name)) == {(f"{name}-{number}", 0) for number in range(3)}
    keyed = {record.record.key: at for at, found in committed_in(bootstrap, f"{name}-0").items() for record in found}
    assert keyed == {key: partition_of_key(key, partition_count=PARTITIONS) for key in keyed}


def test_rows_are_put_in_order_where_it_is_asked_for(spark, broker, name):
    df = numbered(spark, 5_000, tasks=5).withColumn("timestamp", F.timestamp_millis(F.col("value").cast("long")))
    write_exactly_once(
        df,
        bootstrap=broker.bootstrap_servers,
        topic=name,
        txn_app_id=name,
        txn_version=0,
        order_by=["timestamp"],
        tasks_max=3,
    )
    for found in committed_in(broker.bootstrap_servers, name).values():
        values = [int(each.record.value) for each in found]
        assert values == sorted(values)


# --- once -----------------------------------------------------------------------------------------------------


def test_a_version_that_is_written_again_adds_nothing(spark, bootstrap, name):
    write = {"bootstrap": bootstrap, "topic": name, "txn_app_id": name}
    assert write_exactly_once(numbered(spark, 50), **write, txn_version=3)
    assert not write_exactly_once(numbered(spark, 50), **write, txn_version=3)
    assert not write_exactly_once(numbered(spark, 50), **write, txn_version=2)
    assert write_exactly_once(numbered(spark, 50, start=50), **write, txn_version=4)
    assert committed_values(bootstrap, name) == numbers(100)
    assert recorded_offsets(bootstrap, name) == {(name, 0): (5, '{"query":null}')}


def test_the_writer_itself_skips_what_was_written(spark, bootstrap, name):
    one_task = numbered(spark, 50).coalesce(1)
    options = {"bootstrap": bootstrap, "topic": name, "txnAppId": name, "txnVersion": 0}
    for _ in range(2):
        one_task.write.format("exactlog").mode("append").options(**options).save()
    assert committed_values(bootstrap, name) == numbers(50)


def test_without_a_name_a_frame_is_written_each_time(spark, broker, name):
    for _ in range(2):
        numbered(spark, 3).coalesce(1).write.format("exactlog").mode("append").options(
            bootstrap=broker.bootstrap_servers, topic=name
        ).save()
    assert committed_values(broker.bootstrap_servers, name) == sorted(numbers(3) * 2)


def test_of_a_batch_whose_task_has_failed_nothing_is_there_and_it_can_be_written_again(
    spark, bootstrap, name, tmp_path
):
    flag = tmp_path / "fails"
    flag.touch()

    @F.udf("string")
    def fails_late(value):
        if value == "39999" and flag.exists():
            raise ValueError("a row that cannot be read")
        return value

    df = numbered(spark, 40_000).withColumn("value", fails_late("value"))
    write = {"bootstrap": bootstrap, "topic": name, "txn_app_id": name, "txn_version": 0}
    with pytest.raises(Exception, match="a row that cannot be read"):
        write_exactly_once(df, **write)
    by_task = df.withColumn("partition", F.spark_partition_id())
    with pytest.raises(Exception, match="a row that cannot be read"):
        by_task.write.format("exactlog").mode("append").options(
            bootstrap=bootstrap, topic=name, txnAppId=name, txnVersion=0
        ).save()
    assert not is_ongoing(bootstrap, name)
    assert committed_values(bootstrap, name) == []
    assert recorded_offsets(bootstrap, name) == {}
    flag.unlink()
    assert write_exactly_once(df, **write)
    assert committed_values(bootstrap, name) == numbers(40_000)


# --- streams --------------------------------------------------------------------------------------------------


def by_for_each_batch(stream, bootstrap, name, checkpoint):
    sink = exactly_once_sink(bootstrap=bootstrap, topic=name, txn_app_id=name)
    return stream.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))


def by_format(stream, bootstrap, name, checkpoint):
    """Each file is one task, so that there is one owner."""
    options = {"bootstrap": bootstrap, "topic": name, "txnAppId": name, "checkpointLocation": str(checkpoint)}
    return stream.writeStream.format("exactlog").options(**options)


both_ways = pytest.mark.parametrize("way", [by_for_each_batch, by_format])


def forget_last_commit(checkpoint):
    """As if the driver had died between the end of the transaction and Spark's own record of the batch."""
    newest = max(
        (path for path in (checkpoint / "commits").iterdir() if path.name.isdigit()), key=lambda p: int(p.name)
    )
    newest.unlink()
    (checkpoint / "commits" / f".{newest.name}.crc").unlink(missing_ok=True)
    return int(newest.name)


@both_ways
def test_a_batch_that_spark_does_not_know_of_is_not_written_again(spark, bootstrap, name, tmp_path, way):
    checkpoint = tmp_path / "checkpoint"
    write_files(tmp_path / "in", 3)
    query = way(in_lines(tmp_path / "in", spark), bootstrap, name, checkpoint)
    run_available(query)
    assert committed_values(bootstrap, name) == numbers(60)
    assert forget_last_commit(checkpoint) == 2
    run_available(query)
    assert committed_values(bootstrap, name) == numbers(60)
    write_files(tmp_path / "in", 2, start=3)
    run_available(query)
    assert committed_values(bootstrap, name) == numbers(100)
    (offset, metadata) = recorded_offsets(bootstrap, name)[name, 0]
    assert offset == 5
    assert metadata.startswith('{"query":"')


@both_ways
def test_a_micro_batch_that_has_failed_is_aborted_and_written_by_the_next_attempt(
    spark, bootstrap, name, tmp_path, way
):
    flag = tmp_path / "fails"

    @F.udf("string")
    def fails(value):
        if value == "70" and flag.exists():
            raise ValueError("a row that cannot be read")
        return value

    write_files(tmp_path / "in", 5)
    stream = in_lines(tmp_path / "in", spark).withColumn("value", fails("value"))
    query = way(stream, bootstrap, name, tmp_path / "checkpoint")
    flag.touch()
    with pytest.raises(Exception, match="a row that cannot be read"):
        run_available(query)
    assert not is_ongoing(bootstrap, name)
    assert committed_values(bootstrap, name) == numbers(60)
    flag.unlink()
    run_available(query)
    assert committed_values(bootstrap, name) == numbers(100)


@both_ways
def test_a_query_that_has_lost_its_checkpoint_is_another_query(spark, broker, name, tmp_path, way):
    write_files(tmp_path / "in", 2)
    stream = in_lines(tmp_path / "in", spark)
    run_available(way(stream, broker.bootstrap_servers, name, tmp_path / "first"))
    with pytest.raises(TwoQueriesError, match=f"two queries write under txnAppId {name}"):
        run_available(way(stream, broker.bootstrap_servers, name, tmp_path / "second"))
    assert committed_values(broker.bootstrap_servers, name) == numbers(40)


def test_a_sink_can_be_pickled():
    sink = exactly_once_sink(bootstrap="127.0.0.1:9092", topic="t", txn_app_id="a", order_by=["timestamp"])
    assert cloudpickle.loads(cloudpickle.dumps(sink)).keywords == sink.keywords


# --- one owner, one writer ------------------------------------------------------------------------------------


def test_two_tasks_that_write_to_one_partition_are_refused(spark, bootstrap, name):
    with pytest.raises(SharedPartitionError, match=f"of topic {name}") as caught:
        save(numbered(spark, 1_000), bootstrap, name)
    assert "exactlog.pipeline.write_exactly_once" in caught.value.hint
    assert not is_ongoing(bootstrap, name)
    assert committed_values(bootstrap, name) == []


def save(df, bootstrap, name, options=()):
    """With these options in place of, or beside, the usual ones; None leaves one out."""
    usual = {"bootstrap": bootstrap, "topic": name, "txnAppId": name, "txnVersion": 0} | dict(options)
    given = {key: value for key, value in usual.items() if value is not None}
    try:
        df.write.format("exactlog").mode("append").options(**given).save()
    except Exception as error:
        raise explain(error) from error


def test_another_job_of_that_name_takes_over_and_the_first_is_told(spark, bootstrap, name, tmp_path):
    started, may_go_on = tmp_path / "started", tmp_path / "go"

    @F.udf("string")
    def waits(value):
        if value == "1":
            started.touch()
            deadline = time.monotonic() + PATIENCE_S
            while not may_go_on.exists() and time.monotonic() < deadline:
                time.sleep(0.01)
        return value

    def second():
        try:
            while not started.exists():
                time.sleep(0.01)
            write_exactly_once(numbered(spark, 5), bootstrap=bootstrap, topic=name, txn_app_id=name, txn_version=0)
        finally:
            may_go_on.touch()

    thread = threading.Thread(target=second)
    thread.start()
    try:
        with pytest.raises(TakenOverError, match=f"another query or job with txnAppId {name} has taken over"):
            save(numbered(spark, 2, tasks=1).withColumn("value", waits("value")), bootstrap, name)
    finally:
        started.touch()
        thread.join()
    assert committed_values(bootstrap, name) == numbers(5)


def test_a_batch_that_takes_longer_than_its_transaction_may_is_told_what_to_change(spark, broker, name):
    @F.udf("binary")
    def slow(number):
        time.sleep(4 if number == 7 else 0)
        return b"x" * 400_000

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1")
    try:
        with pytest.raises(TransactionTimedOutError, match=r"longer than transactionTimeoutMs \(1000\)"):
            save(
                spark.range(0, 8, 1, 1).select(slow("id").alias("value"), F.lit(0).alias("partition")),
                broker.bootstrap_servers,
                name,
                {"transactionTimeoutMs": 1_000},
            )
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert committed_values(broker.bootstrap_servers, name) == []


def test_speculation_is_refused(spark, broker, name):
    spark.sparkContext.setLocalProperty("spark.speculation", "true")
    try:
        with pytest.raises(ConfigError, match=r"spark\.speculation is true"):
            save(numbered(spark, 5).coalesce(1), broker.bootstrap_servers, name)
    finally:
        spark.sparkContext.setLocalProperty("spark.speculation", None)
    assert committed_values(broker.bootstrap_servers, name) == []


# --- bad input: one sentence each -----------------------------------------------------------------------------


WRONG_OPTIONS = {
    "no bootstrap says which broker to write to": ({"bootstrap": None}, InvalidOptionError),
    "txnAppId is given without txnVersion": ({"txnVersion": None}, InvalidOptionError),
    "txnappid2 is no option of writing to an exactlog": ({"txnappid2": "x"}, InvalidOptionError),
    "compression must be one of none, gzip": ({"compression": "brotli"}, InvalidOptionError),
    "neither the option topic nor a column topic says": ({"topic": None}, InvalidColumnsError),
    "the broker allows no transaction of transactionTimeoutMs 900001": (
        {"transactionTimeoutMs": 900_001},
        ConfigError,
    ),
}
WRONG_ROWS = {
    "there is no column value": (lambda df: df.drop("value"), InvalidColumnsError),
    "column value must be binary or string, not int": (
        lambda df: df.withColumn("value", F.lit(1)),
        InvalidColumnsError,
    ),
    "column price cannot be written": (lambda df: df.withColumn("price", F.lit(1)), InvalidColumnsError),
    "a row names partition 99 of topic": (lambda df: df.withColumn("partition", F.lit(99)), InvalidRowError),
    "a row has a timestamp 1000 ms before 1970": (
        lambda df: df.withColumn("timestamp", F.timestamp_seconds(F.lit(-1))),
        InvalidRowError,
    ),
}


@pytest.mark.parametrize("told", WRONG_OPTIONS)
def test_a_wrong_option_is_refused_in_a_sentence(spark, broker, name, told):
    options, kind = WRONG_OPTIONS[told]
    with pytest.raises(kind) as caught:
        save(numbered(spark, 5).coalesce(1), broker.bootstrap_servers, name, options)
    assert str(caught.value).startswith(told)
    assert caught.value.hint or "must be" in told


@pytest.mark.parametrize("told", WRONG_ROWS)
def test_wrong_rows_are_refused_in_a_sentence_and_none_is_written(spark, broker, name, told):
    change, kind = WRONG_ROWS[told]
    with pytest.raises(kind) as caught:
        save(change(numbered(spark, 5).coalesce(1)), broker.bootstrap_servers, name)
    assert str(caught.value).startswith(told)
    assert caught.value.hint
    assert committed_values(broker.bootstrap_servers, name) == []


def test_nothing_is_overwritten(spark, broker, name, tmp_path):
    with pytest.raises(InvalidOptionError, match="a log cannot be overwritten"):
        overwrite(numbered(spark, 5), broker.bootstrap_servers, name)
    write_files(tmp_path / "in", 1)
    counted = in_lines(tmp_path / "in", spark).groupBy("value").count().select("value")
    query = by_format(counted, broker.bootstrap_servers, name, tmp_path / "checkpoint").outputMode("complete")
    with pytest.raises(InvalidOptionError, match="a log cannot be overwritten"):
        run_available(query)


def overwrite(df, bootstrap, name):
    try:
        df.write.format("exactlog").mode("overwrite").options(bootstrap=bootstrap, topic=name).save()
    except Exception as error:
        raise explain(error) from error


def test_a_stream_without_a_name_is_refused(spark, broker, name, tmp_path):
    write_files(tmp_path / "in", 1)
    query = in_lines(tmp_path / "in", spark).writeStream.format("exactlog")
    with pytest.raises(InvalidOptionError, match="no txnAppId: under it the micro-batches of a stream are recorded"):
        run_available(
            query.options(
                bootstrap=broker.bootstrap_servers, topic=name, checkpointLocation=str(tmp_path / "checkpoint")
            )
        )


def test_a_topic_that_is_not_there_is_named(spark, name):
    with Broker(config={"auto.create.topics.enable": False}) as strict:
        with pytest.raises(NotFoundError, match=f"topic {name} does not exist") as caught:
            save(numbered(spark, 5).coalesce(1), strict.bootstrap_servers, name)
        assert "exactlog topic create" in caught.value.hint
        with pytest.raises(NotFoundError, match=f"topic {name} does not exist"):
            write_exactly_once(
                numbered(spark, 5), bootstrap=strict.bootstrap_servers, topic=name, txn_app_id=name, txn_version=0
            )


def test_a_broker_that_is_not_there_is_named(spark, name, monkeypatch):
    monkeypatch.setattr(exactly_once, "CONTACT_SETTINGS", ClientSettings(deadline_ms=300))
    with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:1: "):
        write_exactly_once(numbered(spark, 5), bootstrap="127.0.0.1:1", topic=name, txn_app_id=name, txn_version=0)


def test_an_error_of_the_broker_keeps_its_number(spark, broker, name):
    with pytest.raises(ConfigError) as caught:
        write_exactly_once(
            numbered(spark, 5),
            bootstrap=broker.bootstrap_servers,
            topic=name,
            txn_app_id=name,
            txn_version=0,
            transaction_timeout_ms=900_001,
        )
    assert caught.value.kafka_error in {ErrorCode.INVALID_TRANSACTION_TIMEOUT, None}
