"""Batches of the sink without Spark: begun, written by tasks and ended, against a real broker."""

import pickle
import threading
import time
import uuid

import pyarrow as pa
import pytest

from exactlog.client.adapters import connect
from exactlog.core.codec.compression import Compression
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import ConfigError, NotFoundError, UnavailableError
from exactlog.core.model.ids import TopicPartition
from exactlog.core.record.batch_builder import NewRecord, build_batch
from exactlog.pipeline import sink_transaction, task_writer
from exactlog.pipeline.record_rows import InvalidRowError
from exactlog.pipeline.sink_transaction import (
    BatchId,
    Recorded,
    SharedPartitionError,
    TakenOverError,
    TaskFailure,
    TaskOutcome,
    TransactionEndedError,
    TransactionTimedOutError,
    TwoQueriesError,
    UnlikeReportError,
    abort,
    begin,
    commit,
)
from exactlog.pipeline.task_writer import RetriedTaskError, check_attempt, run_task, write_rows
from exactlog.pipeline.write_options import WriteOptions
from exactlog.testing import Broker
from tests.support.written_topics import committed_in, committed_values, is_ongoing, recorded_offsets

HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))
TIMEOUT_MS = 1_000


@pytest.fixture(scope="module", params=[2, 1], ids=["level 2", "level 1"])
def broker(request):
    """At either level of `transaction.version`."""
    with Broker(config={"transaction.version": request.param, "check_interval_ms": 100}) as running:
        yield running


@pytest.fixture
def options(broker):
    name = f"sink-{uuid.uuid4().hex[:12]}"
    broker.create_topic(name, partitions=3)
    return WriteOptions(bootstrap=broker.bootstrap_servers, topic=name, txn_app_id=name, txn_version=0)


def changed(options, **fields):
    return WriteOptions(**({name: getattr(options, name) for name in options.__struct_fields__} | fields))


def rows(values, *, partition=0, **columns):
    given = {"value": pa.array(values, pa.binary()), "partition": pa.array([partition] * len(values), pa.int32())}
    given |= columns
    return pa.record_batch(list(given.values()), list(given))


def write(options, transaction, *batches, version=0, query=None, task=0):
    return write_rows(options, transaction, BatchId(version, query), batches, spread_from=task)


def write_batch(options, *batches, version=0, query=None):
    """A batch of one task, from beginning to end; whether it was written now."""
    outcome = write(options, begin(options, options.group_id), *batches, version=version, query=query)
    commit(options, [outcome])
    return bool(outcome.written)


def values_of(options, **how):
    return committed_values(options.bootstrap, options.topic, **how)


# --- what arrives ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", Compression)
def test_all_of_a_record_arrives(options, codec):
    batch = rows(
        [b"one", None, b""],
        key=pa.array([b"k", b"", None], pa.binary()),
        headers=pa.array([[{"name": "h", "value": b"1"}, {"name": "h", "value": None}], None, []], HEADERS),
        timestamp=pa.array([1_234_567, 2_000_000, 0], pa.timestamp("us", tz="UTC")),
    )
    assert write_batch(changed(options, compression=codec), batch)
    found = [consumed.record for consumed in committed_in(options.bootstrap, options.topic)[0]]
    assert [(record.key, record.value, record.headers, record.timestamp_ms) for record in found] == [
        (b"k", b"one", (("h", b"1"), ("h", None)), 1_234),
        (b"", None, (), 2_000),
        (None, b"", (), 0),
    ]


def test_nothing_is_seen_before_all_of_it_is(options):
    transaction = begin(options, options.group_id)
    outcomes = [write(options, transaction, rows([b"%d" % task] * 5, partition=task), task=task) for task in range(3)]
    assert values_of(options, while_open=True) == []
    assert recorded_offsets(options.bootstrap, options.txn_app_id) == {}
    commit(options, outcomes)
    assert values_of(options) == [b"0"] * 5 + [b"1"] * 5 + [b"2"] * 5
    assert recorded_offsets(options.bootstrap, options.txn_app_id) == {(options.topic, 0): (1, '{"query":null}')}


def test_of_an_aborted_batch_nothing_is_seen_and_nothing_recorded(options):
    transaction = begin(options, options.group_id)
    write(options, transaction, rows([b"lost"]))
    abort(options, transaction)
    abort(options, transaction)  # again: nothing happens
    assert not is_ongoing(options.bootstrap, options.txn_app_id)
    assert values_of(options) == []
    assert write_batch(options, rows([b"kept"]))
    assert values_of(options) == [b"kept"]


def test_many_rows_go_in_batches_of_bounded_size_and_in_order(options):
    count, per_batch = 150_000, 10_000
    numbers = [b"%0100d" % number for number in range(count)]
    assert write_batch(options, *(rows(numbers[start : start + per_batch]) for start in range(0, count, per_batch)))
    found = committed_in(options.bootstrap, options.topic)[0]
    assert [consumed.record.value for consumed in found] == numbers
    headers = {consumed.batch.base_offset: consumed.batch for consumed in found}.values()
    assert len(headers) > count * 132 // task_writer.BATCH_BYTES_MAX
    assert max(header.size_bytes for header in headers) <= task_writer.BATCH_BYTES_MAX
    assert max(header.record_count for header in headers) <= task_writer.BATCH_ROWS_MAX


def test_what_waits_in_many_partitions_is_bounded(broker, options, monkeypatch):
    monkeypatch.setattr(task_writer, "PENDING_BYTES_MAX", 20_000)
    monkeypatch.setattr(task_writer, "IN_FLIGHT_BYTES_MAX", 5_000)
    batches = [rows([b"%0100d" % number] * 3, partition=number % 3) for number in range(200)]
    assert write_batch(options, *batches)
    found = committed_in(options.bootstrap, options.topic)
    assert [len(consumed) for consumed in found.values()] == [201, 201, 198]
    assert [len({each.batch.base_offset for each in consumed}) > 2 for consumed in found.values()] == [True] * 3


def test_a_batch_that_is_too_large_for_the_topic_goes_in_parts(broker, options):
    small = changed(options, topic=f"{options.topic}-small")
    broker.create_topic(small.topic, partitions=1, config={"max.message.bytes": 5_000})
    numbers = [b"%0100d" % number for number in range(1_000)]
    assert write_batch(small, rows(numbers))
    found = committed_in(small.bootstrap, small.topic)[0]
    assert [consumed.record.value for consumed in found] == numbers
    assert max(consumed.batch.size_bytes for consumed in found) <= 5_000

    failure = run_task(small, begin(small, small.group_id), BatchId(1, None), [rows([b"x" * 5_000])], spread_from=0)
    with pytest.raises(InvalidRowError, match=f"a row is too large for topic {small.topic}: its record takes 5"):
        commit(small, [failure])
    assert len(values_of(small)) == 1_000


def test_a_batch_without_rows_is_recorded(options):
    assert not write_batch(options)
    assert recorded_offsets(options.bootstrap, options.txn_app_id) == {(options.topic, 0): (1, '{"query":null}')}


def test_a_batch_without_a_name_is_written_whenever_it_is_asked_for_and_recorded_nowhere(options):
    nameless = changed(options, txn_app_id=None, txn_version=None)
    for _ in range(2):
        outcome = write(nameless, begin(nameless, options.topic), rows([b"again"]), version=None)
        commit(nameless, [outcome])
    commit(nameless, [write(nameless, begin(nameless, options.topic), version=None)])
    assert values_of(options) == [b"again"] * 2
    assert recorded_offsets(options.bootstrap, options.topic) == {}


def test_rows_for_several_topics_count_together_and_each_topic_records_the_batch(broker, options):
    others = [f"{options.topic}-{number}" for number in range(2)]
    for name in others:
        broker.create_topic(name, partitions=2)
    spread = changed(options, topic=None)
    batch = rows([b"a", b"b"], partition=1, topic=pa.array(others))
    assert write_batch(spread, batch)
    assert not write_batch(spread, batch)
    assert [committed_values(options.bootstrap, name) for name in others] == [[b"a"], [b"b"]]
    assert recorded_offsets(options.bootstrap, options.txn_app_id) == {
        (name, 0): (1, '{"query":null}') for name in others
    }
    assert write_batch(spread, rows([b"c"], partition=1, topic=pa.array(others[:1])), version=1)
    assert begin(spread, spread.group_id).recorded == Recorded(1, None)


# --- once -----------------------------------------------------------------------------------------------------


def test_a_batch_that_was_recorded_is_not_written_again(options):
    assert write_batch(options, rows([b"x"]), version=4, query="q")
    for version in (4, 3, 0):
        assert not write_batch(options, rows([b"again"]), version=version, query="q")
        assert recorded_offsets(options.bootstrap, options.txn_app_id)[options.topic, 0][0] == 5
    assert write_batch(options, rows([b"y"]), version=5, query="q")
    assert values_of(options) == [b"x", b"y"]
    assert begin(options, options.group_id).recorded == Recorded(5, "q")


def test_another_query_may_go_on_where_the_first_has_come_to_but_not_before(options):
    assert write_batch(options, rows([b"x"]), version=4, query="first")
    with pytest.raises(TwoQueriesError, match="query first has written up to batch 4, this is batch 4 of query second"):
        write_batch(options, rows([b"again"]), version=4, query="second")
    assert not write_batch(options, rows([b"again"]), version=4)  # a job of no query may be the same one again
    assert write_batch(options, rows([b"y"]), version=5, query="second")
    assert values_of(options) == [b"x", b"y"]


def test_to_begin_aborts_what_an_earlier_driver_has_left_and_fences_it(options):
    left = begin(options, options.group_id)
    outcome = write(options, left, rows([b"left"]))
    assert write_batch(options, rows([b"x"]))
    with pytest.raises(TakenOverError, match=f"with txnAppId {options.txn_app_id} has taken over"):
        commit(options, [outcome])
    failure = run_task(options, left, BatchId(0, None), [rows([b"late"])], spread_from=0)
    assert failure.kind is TakenOverError
    assert values_of(options) == [b"x"]


def test_a_commit_that_came_through_unheard_is_found_by_the_next_attempt(options):
    outcome = write(options, begin(options, options.group_id), rows([b"x"]))
    commit(options, [outcome])
    abort(options, outcome.transaction)  # as Spark does when a commit has failed
    assert not write_batch(options, rows([b"x"]))
    assert values_of(options) == [b"x"]


def test_a_broker_that_is_restarted_in_the_middle_of_a_batch_loses_and_doubles_nothing(broker, options):
    def slowly():
        yield rows([b"%d" % number for number in range(100)])
        broker.restart()
        yield rows([b"%d" % number for number in range(100, 200)])

    expected = sorted(b"%d" % number for number in range(200))
    end = run_task(options, begin(options, options.group_id), BatchId(0, None), slowly(), spread_from=0)
    if isinstance(end, TaskOutcome):
        commit(options, [end])
    else:
        assert write_batch(options, *slowly())
    assert values_of(options) == expected


# --- one owner for each partition -----------------------------------------------------------------------------


def test_a_task_does_not_write_where_another_one_has(options):
    transaction = begin(options, options.group_id)
    first = write(options, transaction, rows([b"x"]))
    second = run_task(options, transaction, BatchId(0, None), [rows([b"y"])], spread_from=1)
    with pytest.raises(
        SharedPartitionError, match=f"two tasks write to partition 0 of topic {options.topic}"
    ) as caught:
        commit(options, [first, second])
    assert "exactlog.pipeline.write_exactly_once" in caught.value.hint
    abort(options, transaction)
    assert values_of(options) == []


def test_what_an_attempt_that_is_gone_has_written_is_not_taken_for_that_of_the_next(options):
    """As when a stage is run again: the attempt is called the first, and writes as much."""
    transaction = begin(options, options.group_id)
    write(options, transaction, rows([b"x"]))
    with pytest.raises(SharedPartitionError):
        write(options, transaction, rows([b"y"]))


def test_two_tasks_that_do_not_see_each_other_are_found_by_their_sequences(options, monkeypatch):
    monkeypatch.setattr(task_writer, "is_written_to", unseen)
    transaction = begin(options, options.group_id)
    write(options, transaction, rows([b"x"] * 3))
    with pytest.raises(SharedPartitionError):
        write(options, transaction, rows([b"y"] * 2), task=1)


def test_two_tasks_that_write_just_as_much_are_found_by_what_they_tell(options, monkeypatch):
    monkeypatch.setattr(task_writer, "is_written_to", unseen)
    transaction = begin(options, options.group_id)
    outcomes = [write(options, transaction, rows([b"x"]), task=task) for task in range(2)]
    with pytest.raises(SharedPartitionError):
        commit(options, outcomes)


async def unseen(*_):
    return False


@pytest.mark.parametrize("sequence", [1, 0])
def test_what_no_task_has_told_of_is_not_committed(options, sequence):
    """An attempt that goes on unseen has added to a partition, or written where no task has."""
    transaction = begin(options, options.group_id)
    outcome = write(options, transaction, rows([b"x"]))
    client_thread = sink_transaction.ClientThread(options.bootstrap, sink_transaction.SINK_SETTINGS)
    stray = build_batch(
        [NewRecord(b"stray")],
        producer_id=transaction.shared.producer_id,
        producer_epoch=transaction.shared.producer_epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
    place = TopicPartition(options.topic, 0)
    with client_thread as thread:
        thread.run(lambda client: client.join_transaction(transaction.shared).send_batch(place, stray))
    if sequence == 0:  # the broker has taken it for the same batch, sent again
        commit(options, [outcome])
        assert values_of(options) == [b"x"]
        return
    with pytest.raises(UnlikeReportError, match="does not hold the 1 records of the transaction that a task has"):
        commit(options, [outcome])
    abort(options, transaction)
    assert values_of(options) == []


# --- the transaction is over ----------------------------------------------------------------------------------


def test_a_batch_that_takes_longer_than_its_transaction_may_is_told_what_to_change(options):
    hasty = changed(options, transaction_timeout_ms=TIMEOUT_MS)
    outcome = write(hasty, begin(hasty, hasty.group_id), rows([b"x"]))
    wait_until_ended(hasty)
    with pytest.raises(TransactionTimedOutError, match=r"open for longer than transactionTimeoutMs \(1000\)") as caught:
        commit(hasty, [outcome])
    assert "transaction.max.timeout.ms" in caught.value.hint
    assert values_of(options) == []


def test_a_task_that_comes_after_the_timeout_is_told_the_same(options):
    hasty = changed(options, transaction_timeout_ms=TIMEOUT_MS)

    def slowly():
        yield rows([b"x"] * 20_000)
        wait_until_ended(hasty)
        yield rows([b"y"] * 20_000, partition=1)

    transaction = begin(hasty, hasty.group_id)
    write(hasty, transaction, rows([b"first"], partition=2), task=1)
    failure = run_task(hasty, transaction, BatchId(0, None), slowly(), spread_from=0)
    with pytest.raises(TransactionTimedOutError):
        commit(hasty, [failure])
    assert values_of(options) == []


def wait_until_ended(options):
    deadline = time.monotonic() + 30
    time.sleep(TIMEOUT_MS / 1000)
    while is_ongoing(options.bootstrap, options.txn_app_id):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_an_end_from_outside_is_told_as_one(broker, options):
    outcome = write(options, begin(options, options.group_id), rows([b"x"]))
    broker.clock.advance_ms(options.transaction_timeout_ms + 1)  # by the broker's clock alone
    while is_ongoing(options.bootstrap, options.txn_app_id):
        time.sleep(0.05)
    with pytest.raises(TransactionEndedError, match="was aborted from outside"):
        commit(options, [outcome])
    assert values_of(options) == []


def test_the_failure_that_came_by_itself_is_told_before_those_that_followed_from_it(options):
    transaction = begin(options, options.group_id)
    followed = TaskFailure.of(TransactionEndedError("it was aborted"), transaction)
    cause = TaskFailure.of(InvalidRowError("a row is wrong", hint="mend it"), transaction)
    with pytest.raises(InvalidRowError, match="a row is wrong") as caught:
        commit(options, pickle.loads(pickle.dumps([followed, cause])))
    assert caught.value.hint == "mend it"


def test_a_task_that_fails_lets_the_others_stop(options):
    transaction = begin(options, options.group_id)
    write(options, transaction, rows([b"x"]))
    failure = run_task(options, transaction, BatchId(0, None), [rows([b"y"], partition=7)], spread_from=1)
    assert isinstance(failure.error(), InvalidRowError)
    assert not is_ongoing(options.bootstrap, options.txn_app_id)


# --- what a batch cannot begin with ---------------------------------------------------------------------------


def test_a_timeout_that_the_broker_does_not_allow_is_named(options):
    long = changed(options, transaction_timeout_ms=900_001)
    with pytest.raises(ConfigError, match="the broker allows no transaction of transactionTimeoutMs 900001") as caught:
        begin(long, long.group_id)
    assert caught.value.kafka_error is ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_a_topic_that_does_not_exist_is_named_unless_the_broker_creates_it(options):
    new = changed(options, topic=f"{options.topic}-new")
    assert write_batch(new, rows([b"x"]))
    assert values_of(new) == [b"x"]
    with Broker(config={"auto.create.topics.enable": False}) as strict:
        nowhere = changed(options, bootstrap=strict.bootstrap_servers, topic="nowhere")
        with pytest.raises(NotFoundError, match="topic nowhere does not exist"):
            begin(nowhere, nowhere.group_id)
        failure = run_task(
            changed(nowhere, topic=None),
            begin(changed(nowhere, topic=None), nowhere.group_id),
            BatchId(0, None),
            [rows([b"x"], topic=pa.array(["nowhere"]))],
            spread_from=0,
        )
        assert str(failure.error()) == "topic nowhere does not exist"


def test_a_broker_that_is_not_there_is_named(options, monkeypatch):
    hasty = sink_transaction.ClientSettings(deadline_ms=300)
    monkeypatch.setattr(sink_transaction, "CONTACT_SETTINGS", hasty)
    away = changed(options, bootstrap="127.0.0.1:1")
    with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:1: "):
        begin(away, away.group_id)


def test_an_abort_that_no_broker_hears_is_no_failure_of_its_own(options, monkeypatch, caplog):
    transaction = begin(options, options.group_id)
    monkeypatch.setattr(sink_transaction, "CONTACT_SETTINGS", sink_transaction.ClientSettings(deadline_ms=300))
    abort(changed(options, bootstrap="127.0.0.1:1"), transaction)
    assert f"transaction exactlog-sink-{options.txn_app_id} was not aborted" in caplog.text


def test_only_the_first_attempt_of_a_task_writes_and_only_one_at_a_time():
    check_attempt(attempt_number=0, is_speculative=False)
    with pytest.raises(RetriedTaskError, match=r"was attempted again \(attempt 3\)"):
        check_attempt(attempt_number=2, is_speculative=False)
    with pytest.raises(ConfigError, match=r"spark\.speculation is true"):
        check_attempt(attempt_number=0, is_speculative=True)


def test_what_the_rows_fail_with_comes_through_and_no_thread_is_left(options):
    def broken():
        yield rows([b"x"])
        raise OSError("the shuffle is gone")

    with pytest.raises(OSError, match="the shuffle is gone"):
        write_rows(options, begin(options, options.group_id), BatchId(0, None), broken(), spread_from=0)
    assert [thread.name for thread in threading.enumerate() if thread.name == "exactlog-client"] == []


def test_all_that_travels_can_be_pickled(options):
    outcome = write(options, begin(options, options.group_id), rows([b"x"]))
    assert pickle.loads(pickle.dumps(outcome)) == outcome
    assert connect(f"kafka://{options.bootstrap}")  # and nothing of it holds a connection
