"""`spark.readStream.format("exactlog")` in real Spark: from a directory and from a running broker."""

import asyncio
import json
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from exactlog.client.adapters import connect
from exactlog.core.codec.compression import Compression
from exactlog.core.model.ids import TopicPartition
from exactlog.pipeline import explain
from exactlog.testing import Broker
from tests.support.generated_logs import write_log
from tests.support.transactions import BrokerWriter

pytestmark = pytest.mark.peer

SCHEMA = "topic string, partition int, offset bigint, value binary, row_seq bigint"
SOURCES = ("path", "bootstrap")


class Written:
    """A broker, and its partitions as they are written to: each with the values that come to count, by offset."""

    def __init__(self, broker, data_dir):
        self.broker = broker
        self.data_dir = data_dir
        self._writers = {}
        self.seen = {}

    def create_topic(self, name, partitions=1):
        self.broker.create_topic(name, partitions)
        self.add_partitions(name, range(partitions))

    def add_partitions(self, topic, numbers):
        for number in numbers:
            self._writers[topic, number] = BrokerWriter(self.broker, topic, partition=number)
            self.seen[topic, number] = {}

    def plain(self, topic, *values, partition=0, **fields):
        start = self._writers[topic, partition].plain(*values, **fields)
        self.seen[topic, partition] |= dict(enumerate(values, start))

    def write(self, topic, producer_id, *values, partition=0):
        """Part of a transaction; what it comes to is for whoever ends it to say."""
        start = self._writers[topic, partition].write(producer_id, *values)
        return dict(enumerate(values, start))

    def commit(self, topic, producer_id, written, partition=0):
        self._writers[topic, partition].commit(producer_id)
        self.seen[topic, partition] |= written

    def abort(self, topic, producer_id, partition=0):
        self._writers[topic, partition].abort(producer_id)

    def rows(self, *topics):
        """All that a stream of these topics has in the end, in order."""
        return sorted(
            (topic, partition, offset, value, number)
            for (topic, partition), seen in self.seen.items()
            if topic in topics
            for number, (offset, value) in enumerate(sorted(seen.items()))
        )


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    data_dir = tmp_path_factory.mktemp("data")
    with Broker(data_dir) as broker:
        yield Written(broker, data_dir)


@pytest.fixture
def topic(log, request):
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    log.create_topic(name, partitions=2)
    return name


@pytest.fixture
def stream(spark, log, tmp_path):
    """Runs a stream over all that there is now, from where it stood; gives the rows of each batch that was done."""

    def run(source, topics, *, schema=SCHEMA, dies_in=None, checkpoint=tmp_path / "checkpoint", **options):
        batches = []

        def keep(frame, batch_id):
            rows = [tuple(row) for row in frame.collect()]
            if batch_id == dies_in:
                raise InterruptedError(f"batch {batch_id} is not to be")
            batches.append(rows)

        reader = spark.readStream.format("exactlog").schema(schema).option("topics", topics)
        place = {"path": str(log.data_dir), "bootstrap": log.broker.bootstrap_servers}
        for name, value in ({source: place[source]} | options).items():
            reader = reader.option(name, value)
        query = (
            reader.load()
            .writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        except PySparkException:
            if dies_in is None:
                raise
        return batches

    return run


def asked(broker, operation):
    """What an operation of our client comes to."""

    async def run():
        async with connect(f"kafka://{broker.bootstrap_servers}") as client:
            return await operation(client)

    return asyncio.run(run())


def flat(*runs):
    return sorted((*row[:3], bytes(row[3]), *row[4:]) for run in runs for batch in run for row in batch)


def kept_offset(checkpoint):
    """What the newest batch of a checkpoint ends with."""
    newest = max(
        (path for path in Path(checkpoint, "offsets").iterdir() if path.name.isdigit()), key=lambda p: int(p.name)
    )
    return json.loads(newest.read_text().splitlines()[-1])


@pytest.mark.parametrize("source", SOURCES)
def test_limits_make_several_batches_and_every_row_comes_once(stream, log, topic, source):
    for partition in range(2):
        for number, compression in enumerate(Compression):
            log.plain(topic, *(b"%d-%d" % (number, n) for n in range(7)), partition=partition, compression=compression)
    run = stream(source, topic, maxRowsPerTrigger="20")
    assert [len(batch) for batch in run] == [20, 20, 20, 10]
    assert all({row[1] for row in batch} == {0, 1} for batch in run)
    assert flat(run) == log.rows(topic)


@pytest.mark.parametrize("source", SOURCES)
def test_rows_that_come_between_runs_come_once_with_their_numbers_counted_on(stream, log, topic, source):
    runs = []
    for number in range(3):
        log.plain(topic, b"%d" % number, b"more", partition=number % 2)
        runs.append(stream(source, topic))
    assert [sum(map(len, run)) for run in runs] == [2, 2, 2]
    assert flat(*runs) == log.rows(topic)
    assert sum(map(len, stream(source, topic))) == 0


@pytest.mark.parametrize("source", SOURCES)
def test_a_query_that_dies_in_a_batch_goes_on_with_just_that_batch(stream, log, topic, source):
    log.plain(topic, *(b"%d" % n for n in range(30)))
    first = stream(source, topic, maxRowsPerTrigger="7", dies_in=2)
    assert [len(batch) for batch in first] == [7, 7]
    log.plain(topic, *(b"%d" % n for n in range(30, 40)))
    second = stream(source, topic, maxRowsPerTrigger="7")
    assert [row[2] for row in second[0]] == list(range(14, 21))
    assert flat(first, second) == log.rows(topic)


@pytest.mark.parametrize("source", SOURCES)
def test_a_query_that_dies_in_its_first_batch_begins_where_it_began(stream, log, topic, source):
    """`latest` is later when it is asked again."""
    start = {"startingVersion" if source == "path" else "startingOffsets": "latest"}
    log.plain(topic, b"before")
    assert stream(source, topic, **start) == [[]]
    log.seen[topic, 0].clear()
    log.plain(topic, b"0", b"1")
    assert stream(source, topic, dies_in=1, **start) == []
    log.plain(topic, b"2")
    second = stream(source, topic, **start)
    assert flat(second) == log.rows(topic)


@pytest.mark.parametrize("source", SOURCES)
def test_new_partitions_and_topics_join_at_their_start(log, stream, source, topic):
    other = f"{topic}-other"
    log.create_topic(other)
    log.plain(topic, b"0")
    first = stream(source, f"{topic},{other}")
    asked(log.broker, lambda client: client.create_partitions(topic, 3))
    log.add_partitions(topic, [2])
    log.plain(topic, b"joined", b"too", partition=2)
    log.plain(other, b"of the other")
    second = stream(source, f"{topic},{other}")
    assert flat(first, second) == log.rows(topic, other)


# --- transactions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", SOURCES)
def test_b107_a_run_ends_at_the_last_stable_offset(stream, log, topic, source):
    """B107, SPARK-24720: the end came from the high watermark, and the job waited for records that cannot be read."""
    log.plain(topic, b"before")
    written = log.write(topic, 7, b"open", b"still")
    log.plain(topic, b"behind it")
    del log.seen[topic, 0][3]  # not to be seen yet
    first = stream(source, topic)
    assert flat(first) == log.rows(topic)
    assert sum(map(len, stream(source, topic))) == 0
    log.seen[topic, 0][3] = b"behind it"
    log.commit(topic, 7, written)
    assert flat(first, stream(source, topic)) == log.rows(topic)


@pytest.mark.parametrize("source", SOURCES)
def test_b106_ranges_with_markers_and_aborted_records_are_neither_loss_nor_read_for_ever(stream, log, topic, source):
    """B106, SPARK-25005: a batch that ends in a marker, has nothing else, has one in its middle, or begins with one."""
    log.write(topic, 7, b"aborted", b"too")
    log.abort(topic, 7)
    runs = [stream(source, topic)]  # nothing but what is not seen
    log.commit(topic, 7, log.write(topic, 7, b"0"))
    runs.append(stream(source, topic))  # ends in a marker
    log.commit(topic, 7, log.write(topic, 7, b"1"))
    log.plain(topic, b"2")
    runs.append(stream(source, topic))  # one in the middle
    written = log.write(topic, 7, b"3")
    log.seen[topic, 0] |= written
    runs.append(stream(source, topic, isolation="read_uncommitted"))
    log.commit(topic, 7, {})
    log.plain(topic, b"4")
    runs.append(stream(source, topic))  # begins with one
    assert flat(*runs) == log.rows(topic)
    assert [sum(map(len, run)) for run in runs] == [0, 1, 2, 1, 1]


@pytest.mark.parametrize("source", SOURCES)
def test_a_transaction_that_straddles_batches_is_seen_whole_once_and_an_aborted_one_never(stream, log, topic, source):
    for number in range(3):
        written = log.write(topic, 7, *(b"%d" % n for n in range(8)))
        never = log.write(topic, 8, *(b"never" for _ in range(5)))
        assert never
        written |= log.write(topic, 7, *(b"%d" % n for n in range(8)))
        if number < 2:
            log.commit(topic, 7, written)
            log.abort(topic, 8)
    first = stream(source, topic, maxRowsPerTrigger="5")
    assert len(first) > 6
    assert flat(first) == log.rows(topic)
    log.abort(topic, 8)
    log.commit(topic, 7, written)
    assert flat(first, stream(source, topic, maxRowsPerTrigger="5")) == log.rows(topic)


# --- directories -------------------------------------------------------------------------------------------------


def test_every_column_is_what_a_read_of_the_same_directory_gives(spark, stream, tmp_path):
    for seed in range(3):
        root = tmp_path / f"log-{seed}"
        write_log(root, seed=seed)
        whole = spark.read.format("exactlog").option("path", str(root)).load()
        schema = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in whole.schema)
        run = stream(
            "path",
            "orders,payments",
            schema=schema,
            path=str(root),
            maxRowsPerTrigger="25",
            checkpoint=tmp_path / f"checkpoint-{seed}",
        )
        assert len(run) > 1
        order = ["topic", "partition", "offset"]
        expected = [tuple(row) for row in whole.orderBy(*order).collect()]
        places = [whole.columns.index(name) for name in order]
        assert sorted((row for batch in run for row in batch), key=lambda row: [row[at] for at in places]) == expected
        assert expected


def test_a_stopped_directory_is_read_and_its_versions_stand_in_the_checkpoint(spark, stream, tmp_path):
    root = tmp_path / "data"
    with Broker(root) as broker:
        broker.create_topic("orders")
        writer = BrokerWriter(broker, "orders")
        for number in range(6):
            writer.plain(b"%d" % number, b"more")
    run = stream("path", "orders", path=str(root), maxRowsPerTrigger="5")
    assert [len(batch) for batch in run] == [5, 5, 2]
    position = kept_offset(tmp_path / "checkpoint")["partitions"]["orders"]["0"]
    newest = spark.read.format("exactlog").option("path", str(root)).load().agg(F.max("delta_version")).first()[0]
    assert position == {"version": newest, "offset": 12, "rows": 12}
    later = stream("path", "orders", path=str(root), startingVersion=str(newest), checkpoint=tmp_path / "later")
    assert [row[2] for batch in later for row in batch] == [10, 11]


def test_many_small_segments_are_read_by_one_task(spark, tmp_path):
    root = tmp_path / "log"
    write_log(root, seed=5, places=[TopicPartition("orders", 0)], steps=80, removes=False)
    tasks = []
    query = (
        spark.readStream.format("exactlog")
        .option("path", str(root))
        .load()
        .writeStream.foreachBatch(lambda frame, _: tasks.append(frame.rdd.getNumPartitions()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert len(list(Path(root, "topic=orders-part=0").glob("*.log"))) > 5
    assert tasks == [1]


# --- what ends a stream ------------------------------------------------------------------------------------------


def refusal_of(stream, *arguments, **options):
    """The one sentence of a run that fails, with its hint."""
    with pytest.raises(PySparkException) as raised:
        stream(*arguments, **options)
    error = explain(raised.value)
    assert "\n" not in str(error)
    assert "Traceback" not in str(error)
    return error


@pytest.mark.parametrize("source", SOURCES)
def test_records_that_were_removed_unread_end_it_with_one_sentence(stream, log, topic, source):
    log.plain(topic, b"0", b"1")
    stream(source, topic)
    log.plain(topic, b"2", b"3")
    asked(log.broker, lambda client: client.delete_records({TopicPartition(topic, 0): 3}))
    error = refusal_of(stream, source, topic)
    assert error.code == "offset-out-of-range"
    assert f"offset 2{' of version 1' if source == 'path' else ''} in topic {topic}, partition 0" in str(error)
    assert "new checkpoint location" in error.hint


@pytest.mark.parametrize("source", SOURCES)
def test_a_topic_that_was_made_again_ends_it_with_one_sentence(stream, log, topic, source):
    log.plain(topic, b"0", b"1")
    stream(source, topic)
    asked(log.broker, lambda client: client.delete_topic(topic))
    log.create_topic(topic, partitions=2)
    log.plain(topic, b"another")
    error = refusal_of(stream, source, topic)
    assert error.code == "other-log"
    assert f"topic {topic} is not the one that the stream was reading" in str(error)
    assert "new checkpoint location" in error.hint


def test_a_checkpoint_of_a_directory_is_not_gone_on_with_from_a_broker(stream, log, topic):
    log.plain(topic, b"0")
    stream("path", topic)
    error = refusal_of(stream, "bootstrap", topic)
    assert "is of a stream from a directory, and this one reads a broker" in str(error)


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ({"path": "/nowhere/at/all"}, ("not-found", "/nowhere/at/all")),
        ({"startingVersion": "99"}, ("version-unknown", "version 99")),
        ({"versionAsOf": "1"}, ("invalid-option", "versionAsOf is an option of spark.read")),
    ],
)
def test_wrong_options_end_it_with_one_sentence(stream, log, topic, options, refused):
    log.plain(topic, b"0")
    code, words = refused
    error = refusal_of(stream, "path", **({"topics": topic} | options))
    assert error.code == code
    assert words in str(error)


def test_a_damaged_segment_ends_it_with_its_place(stream, tmp_path):
    root = tmp_path / "log"
    with Broker(root) as broker:
        broker.create_topic("orders")
        writer = BrokerWriter(broker, "orders")
        writer.plain(b"whole")
        writer.plain(b"to be damaged")
    segment = next(Path(root, "topic=orders-part=0").glob("*.log"))
    content = bytearray(segment.read_bytes())
    content[-3] ^= 1
    segment.write_bytes(content)
    error = refusal_of(stream, "path", "orders", path=str(root))
    assert "topic orders, partition 0, offset 1 as of version 2 cannot be read" in str(error)
