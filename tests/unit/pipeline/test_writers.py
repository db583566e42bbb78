"""The writers as Spark uses them, without Spark: made, pickled, run and ended in what would be several processes."""

import uuid

import pyarrow as pa
import pytest
from pyspark import SparkFiles, TaskContext, cloudpickle
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

from exactlog.core.model.errors import ConfigError
from exactlog.pipeline.batch_writer import BatchWriter
from exactlog.pipeline.read_options import InvalidOptionError
from exactlog.pipeline.sink_transaction import TaskFailure, TwoQueriesError
from exactlog.pipeline.stream_writer import StreamWriter
from exactlog.pipeline.task_writer import RetriedTaskError, TaskContextMissingError
from exactlog.pipeline.write_options import InvalidColumnsError
from exactlog.testing import Broker
from tests.support.written_topics import committed_values, is_ongoing, recorded_offsets

SCHEMA = StructType([StructField("value", BinaryType()), StructField("partition", IntegerType())])
QUERY = "5e0b4bb2-3a3b-44d2-93a1-0dd9d0b2a7c9"


@pytest.fixture(scope="module")
def broker():
    with Broker() as running:
        yield running


@pytest.fixture
def options(broker):
    name = f"sink-{uuid.uuid4().hex[:12]}"
    broker.create_topic(name, partitions=2)
    return {"bootstrap": broker.bootstrap_servers, "topic": name, "txnappid": name}


@pytest.fixture(autouse=True)
def driver_files(tmp_path, monkeypatch):
    """What Spark tells each of its Pythons: where the files of the application are."""
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path))
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", True)
    return tmp_path


@pytest.fixture
def task(monkeypatch):
    """Lets a task run here."""

    def run(*, batch=0, query=QUERY, attempt=0, number=0, **properties):
        context = object.__new__(TaskContext)
        context._attemptNumber, context._partitionId = attempt, number
        local = {"streaming.sql.batchId": batch, "sql.streaming.queryId": query, **properties}
        context._localProperties = {key: str(value) for key, value in local.items() if value is not None}
        monkeypatch.setattr(TaskContext, "_taskContext", context)

    yield run
    monkeypatch.setattr(TaskContext, "_taskContext", None)


def rows(*values, partition=0):
    return [
        pa.record_batch(
            [pa.array(values, pa.binary()), pa.array([partition] * len(values), pa.int32())], ["value", "partition"]
        )
    ]


def sent(writer):
    """The writer as it arrives in another process."""
    return cloudpickle.loads(cloudpickle.dumps(writer))


def stream_writer(options):
    return StreamWriter(SCHEMA, options, False)


def values_of(options, **how):
    return committed_values(options["bootstrap"], options["topic"], **how)


def test_a_micro_batch_is_begun_where_it_is_sent_from_and_committed_where_nothing_is_known_of_it(options, task):
    copies = [sent(stream_writer(options))] * 2
    messages = []
    for number, copy in enumerate(copies):
        task(batch=7, number=number)
        messages.append(sent(copy.write(iter(rows(b"%d" % number, partition=number)))))
    assert values_of(options, while_open=True) == []
    stream_writer(options).commit(messages, 7)
    assert values_of(options) == [b"0", b"1"]
    assert recorded_offsets(options["bootstrap"], options["topic"]) == {
        (options["topic"], 0): (8, f'{{"query":"{QUERY}"}}')
    }


def test_to_make_a_writer_disturbs_nobody_and_to_send_it_twice_begins_once(options, task):
    writer = stream_writer(options)
    first, second = sent(writer), sent(writer)
    assert first._transaction == second._transaction
    task()
    message = first.write(iter(rows(b"x")))
    stream_writer(options)
    stream_writer(options).commit([message], 0)
    assert values_of(options) == [b"x"]


def test_where_no_task_can_tell_what_is_to_be_aborted_a_note_does(options, task):
    task()
    sent(stream_writer(options)).write(iter(rows(b"x")))
    assert is_ongoing(options["bootstrap"], options["topic"])
    stream_writer(options | {"checkpointlocation": "of another query"}).abort([None], 0)
    assert is_ongoing(options["bootstrap"], options["topic"])
    stream_writer(options).abort([None], 0)
    assert not is_ongoing(options["bootstrap"], options["topic"])
    assert values_of(options) == []


def test_a_stale_note_ends_nothing_of_who_has_taken_over(options, task):
    task()
    sent(stream_writer(options)).write(iter(rows(b"x")))
    other = sent(stream_writer(options | {"compression": "zstd"}))
    message = other.write(iter(rows(b"y")))
    stream_writer(options).abort([None], 0)
    assert is_ongoing(options["bootstrap"], options["topic"])
    other.commit([message], 0)
    assert values_of(options) == [b"y"]


def test_a_micro_batch_that_was_recorded_reads_no_row(options, task):
    task(batch=3)
    stream_writer(options).commit([sent(stream_writer(options)).write(iter(rows(b"x")))], 3)

    def never():
        raise AssertionError("a row is read")
        yield

    message = sent(stream_writer(options)).write(never())
    stream_writer(options).commit([message], 3)
    assert values_of(options) == [b"x"]


def test_another_query_of_that_name_is_told_on_the_driver(options, task):
    task(batch=3)
    stream_writer(options).commit([sent(stream_writer(options)).write(iter(rows(b"x")))], 3)
    task(batch=2, query="another")
    message = sent(stream_writer(options)).write(iter(rows(b"x")))
    assert isinstance(message.outcome, TaskFailure)
    with pytest.raises(TwoQueriesError) as caught:
        stream_writer(options).commit([sent(message)], 2)
    assert "hint: give each query a txnAppId of its own" in caught.value.__notes__[0]


def test_only_a_task_of_a_micro_batch_writes_and_only_its_first_attempt(options, task):
    copy = sent(stream_writer(options))
    with pytest.raises(TaskContextMissingError, match="outside of a task of Spark"):
        copy.write(iter(rows(b"x")))
    task(batch=None)
    with pytest.raises(TaskContextMissingError, match="does not know which micro-batch it is of"):
        copy.write(iter(rows(b"x")))
    task(attempt=1)
    with pytest.raises(RetriedTaskError):
        copy.write(iter(rows(b"x")))
    task(**{"spark.speculation": "TRUE"})
    with pytest.raises(ConfigError, match=r"spark\.speculation is true"):
        copy.write(iter(rows(b"x")))


def test_a_batch_travels_with_its_transaction(options, task):
    named = options | {"txnversion": "4"}
    copy = sent(BatchWriter(SCHEMA, named, False))
    task(batch=None, query=None)
    copy.commit([sent(copy.write(iter(rows(b"x"))))])
    failed = sent(BatchWriter(SCHEMA, options | {"txnversion": "5"}, False))
    failed.write(iter(rows(b"y")))
    failed.abort([None])
    assert values_of(options) == [b"x"]
    assert recorded_offsets(options["bootstrap"], options["topic"]) == {(options["topic"], 0): (5, '{"query":null}')}


def test_a_wrong_write_is_refused_where_the_writer_is_made(options):
    with pytest.raises(InvalidOptionError, match="a log cannot be overwritten"):
        StreamWriter(SCHEMA, options, True)
    with pytest.raises(InvalidOptionError, match="txnAppId is given without txnVersion"):
        BatchWriter(SCHEMA, options, False)
    with pytest.raises(InvalidColumnsError, match="there is no column value"):
        StreamWriter(StructType(SCHEMA.fields[1:]), options, False)
