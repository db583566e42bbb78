"""Journals that Spark replicates: the same store as the replicator in one process leaves, whatever is killed."""

import sqlite3
from contextlib import closing

import pytest

from exactlog.core.journal.errors import HeadLost, Repartitioned, Retriable
from exactlog.core.model.ids import TopicPartition
from exactlog.journal.parking import SkippedRecord
from exactlog.journal.replication_metrics import ReplicationMetrics
from exactlog.journal.stores.errors import NewerSchemaError, StoreUrlError
from exactlog.pipeline import ReplicationSettings, replicate_journals
from exactlog.pipeline.journal_checkpoint import OtherQueryError
from exactlog.pipeline.journal_tasks import OtherReplicatorError
from exactlog.pipeline.stream_offsets import OtherLogError
from exactlog.testing import Broker
from tests.support.journal_streams import (
    SEGMENT_SIZE,
    RandomWriters,
    StandingClock,
    poison,
    replicate_embedded,
    write_actions,
)
from tests.support.replicated_store import rows_in

pytestmark = pytest.mark.peer

TOPIC = "orders"
PARTITIONS = 2


@pytest.fixture
def broker():
    with Broker() as running:
        running.create_topic(TOPIC, partitions=PARTITIONS)
        yield running


@pytest.fixture
def writers(request):
    return RandomWriters(request.node.name, TOPIC, PARTITIONS)


@pytest.fixture
def replicate(spark, broker, tmp_path):
    """Replicates by one checkpoint, on and on, into one file."""

    def run(**more):
        given = {"store": f"sqlite:{tmp_path}/spark.db", "checkpoint": tmp_path / "checkpoint"}
        if "path" not in more:
            given["bootstrap"] = broker.bootstrap_servers
        own = {name: more.pop(name) for name in ("bytes_per_batch", "clock", "metrics", "notify") if name in more}
        settings = ReplicationSettings(**{"clock": StandingClock(), "segment_size": SEGMENT_SIZE} | own)
        return replicate_journals(spark, settings=settings, **given | more)

    return run


@pytest.fixture
def check(broker, tmp_path):
    """Whether the store is as the replicator in one process leaves it; what that has parked."""

    def compare(name="spark.db", **more):
        (tmp_path / "embedded.db").unlink(missing_ok=True)
        parked = replicate_embedded(broker, tmp_path / "embedded.db", TOPIC, **more)
        assert rows_in(tmp_path / name) == rows_in(tmp_path / "embedded.db")
        return parked

    return compare


# --- the same store ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bootstrap", "path"])
def test_the_store_is_the_one_that_the_replicator_in_one_process_leaves(broker, writers, replicate, check, kind):
    where = {"path": broker.data_dir} if kind == "path" else {}
    write_actions(broker, writers, 400)
    told = []

    first = replicate(**where, notify=lambda place, offset: told.append((place, offset)))

    check()
    assert (first.batches, first.lag, first.parked, first.is_stopped) == (1, 0, (), False)
    assert 0 < first.refused + first.forks < first.actions <= first.rows
    assert {f"{place.topic}/{place.partition}": offset for place, offset in told} == first.pointers

    write_actions(broker, writers, 100)
    second = replicate(**where)
    check()
    assert 0 < second.rows < first.rows
    assert replicate(**where).rows == 0


def test_many_small_micro_batches_leave_the_same_store(broker, writers, replicate, check):
    write_actions(broker, writers, 300)

    assert replicate(path=broker.data_dir, bytes_per_batch=4_000).batches > 5

    check()


def test_a_new_checkpoint_goes_on_where_the_store_is(broker, writers, replicate, check, tmp_path):
    write_actions(broker, writers, 100)
    replicate()
    write_actions(broker, writers, 50)

    again = replicate(checkpoint=tmp_path / "new")

    check()
    assert 0 < again.rows < 60
    assert again.lag == 0


def test_a_new_store_behind_an_old_checkpoint_gets_all_there_is(broker, writers, replicate, check, tmp_path):
    write_actions(broker, writers, 100)
    replicate()
    write_actions(broker, writers, 20)

    for where in ({}, {"path": broker.data_dir, "checkpoint": tmp_path / "by path"}):
        replicate(**where, store=f"sqlite:{tmp_path}/first.db")
        (tmp_path / "new.db").unlink(missing_ok=True)
        replicate(**where, store=f"sqlite:{tmp_path}/new.db")
        check("new.db")


def test_topics_are_found_by_prefix(broker, replicate):
    for name in ("orders-2", "payments"):
        broker.create_topic(name, partitions=1)
    for name in (TOPIC, "orders-2", "payments"):
        write_actions(broker, RandomWriters(1, name, 1), 20)

    by_prefix = replicate(topic_prefixes=["orders", "nosuch"])

    assert {name.partition("/")[0] for name in by_prefix.pointers} == {TOPIC, "orders-2"}
    assert replicate(topic_prefixes=["nosuch"]).rows == 0
    assert "payments/0" in replicate(topics=["payments"]).pointers


def test_a_topic_that_comes_while_a_job_follows_is_replicated_too(broker, writers, replicate):
    write_actions(broker, writers, 10)
    seen = []

    def note(place, _):
        if not seen:
            broker.create_topic("orders-new", partitions=1)
            write_actions(broker, RandomWriters(1, "orders-new", 1), 10)
        seen.append(place)

    report = replicate(follow=True, notify=note, is_stopping=lambda: TopicPartition("orders-new", 0) in seen)

    assert report.is_stopped
    assert report.lag == 0


def test_a_job_that_is_stopped_between_batches_ends_well_and_goes_on(broker, writers, replicate, check, capfd):
    write_actions(broker, writers, 300)
    told = []

    first = replicate(
        path=broker.data_dir, bytes_per_batch=4_000, progress=told.append, is_stopping=lambda: len(told) > 2
    )

    assert first.is_stopped
    assert first.lag > 0
    assert first.batches == 2
    said = capfd.readouterr()
    assert "Exception" not in said.err + said.out
    assert replicate(path=broker.data_dir).lag == 0
    check()


# --- what comes again -------------------------------------------------------------------------------------------------


def test_a_micro_batch_that_comes_again_writes_nothing_twice(broker, writers, replicate, check, tmp_path):
    """As when the driver dies between the store and the commit of the micro-batch."""
    write_actions(broker, writers, 200)
    replicate()
    before = rows_in(tmp_path / "spark.db")
    commit = tmp_path / "checkpoint" / "commits" / "0"
    commit.unlink()
    commit.with_name(".0.crc").unlink(missing_ok=True)

    class LaterClock(StandingClock):
        def now_ms(self):
            return super().now_ms() + 1

    again = replicate(clock=LaterClock())

    assert (again.batches, again.rows) == (1, 0)
    assert rows_in(tmp_path / "spark.db") == before
    check()


# --- poison -----------------------------------------------------------------------------------------------------------


def pointers_of(report):
    return {int(name.partition("/")[2]): offset for name, offset in report.pointers.items()}


def test_poison_is_parked_until_an_operator_skips_it(broker, writers, replicate, check, tmp_path):
    write_actions(broker, writers, 60, extra=[poison(writers, "journal-1")])
    write_actions(broker, writers, 60)
    metrics = ReplicationMetrics()

    first = replicate(metrics=metrics)

    parked = first.parked[0]  # behind it wait purges on terms, of other journals
    assert (parked.key_id, parked.place) == ("journal-1", TopicPartition(TOPIC, writers.place("journal-1")))
    assert first.pointers[f"{TOPIC}/{parked.place.partition}"] == parked.offset - 1
    assert metrics.snapshot()["exactlog_replicator_actions_total"] == first.actions
    assert check(pointers=pointers_of(first)) == first.parked

    write_actions(broker, writers, 60)  # a job that goes on finds it again, and what comes behind waits too
    second = replicate()
    assert second.parked[0] == parked
    assert check(pointers=pointers_of(second)) == second.parked

    skipped = [SkippedRecord(parked.place, parked.offset)]
    assert replicate(skipped=skipped).parked == ()
    check(skipped=skipped)


def test_what_is_parked_is_kept_in_mind_from_one_micro_batch_to_the_next(broker, writers, replicate, check):
    write_actions(broker, writers, 30, extra=[poison(writers, "journal-1")])
    write_actions(broker, writers, 200)

    report = replicate(path=broker.data_dir, bytes_per_batch=3_000)

    assert report.batches > 4
    assert report.parked[0].key_id == "journal-1"
    assert check(pointers=pointers_of(report)) == report.parked


# --- what cannot go on ------------------------------------------------------------------------------------------------


def trim(broker, offset, *, partition=0):
    import confluent_kafka
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.delete_records([confluent_kafka.TopicPartition(TOPIC, partition, offset)]).values():
        future.result(30)


def remake(broker, partitions=PARTITIONS):
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics([TOPIC])[TOPIC].result(30)
    broker.create_topic(TOPIC, partitions=partitions)


def one_sentence(raised):
    assert "\n" not in str(raised.value)
    assert raised.value.hint
    return str(raised.value)


def test_a_head_that_is_lost_is_a_typed_error(broker, writers, replicate, tmp_path):
    write_actions(broker, writers, 100)
    pointers = replicate().pointers
    write_actions(broker, writers, 100)
    before = rows_in(tmp_path / "spark.db")
    lost_to = pointers[f"{TOPIC}/0"] + 5
    trim(broker, lost_to + 1)

    for where in ({}, {"checkpoint": tmp_path / "new"}, {"path": broker.data_dir, "checkpoint": tmp_path / "by path"}):
        with pytest.raises(HeadLost) as raised:
            replicate(**where)
        wanted = f"orders-0: offsets {pointers[f'{TOPIC}/0'] + 1} to {lost_to} are neither replicated nor in the log"
        assert one_sentence(raised).startswith(wanted)
    assert rows_in(tmp_path / "spark.db") == before


def test_a_head_that_is_lost_while_a_job_runs_is_the_same_error(broker, writers, replicate):
    write_actions(broker, writers, 100)

    def lose_some(place, offset):
        write_actions(broker, writers, 100)
        trim(broker, offset + 10, partition=place.partition)

    with pytest.raises(HeadLost) as raised:
        replicate(path=broker.data_dir, follow=True, notify=lose_some)
    assert "are neither replicated nor in the log any more" in one_sentence(raised)


@pytest.mark.parametrize("count", [10, 300], ids=["shorter", "longer"])
def test_a_topic_that_was_made_again_is_refused(broker, writers, replicate, tmp_path, count):
    write_actions(broker, writers, 100)
    replicate()
    before = rows_in(tmp_path / "spark.db")
    remake(broker)
    write_actions(broker, RandomWriters(7, TOPIC, PARTITIONS), count)

    with pytest.raises(OtherLogError) as raised:
        replicate()
    assert "topic orders is not the one that was replicated" in one_sentence(raised)
    if count == 10:  # without its checkpoint it can be told by its length alone
        with pytest.raises(OtherLogError, match="was deleted and made again, or belongs to another log"):
            replicate(checkpoint=tmp_path / "new")
    assert rows_in(tmp_path / "spark.db") == before


def test_a_topic_with_another_number_of_partitions_is_refused(broker, writers, replicate):
    from confluent_kafka.admin import AdminClient, NewPartitions

    write_actions(broker, writers, 30)
    replicate()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_partitions([NewPartitions(TOPIC, 5)])[TOPIC].result(30)
    write_actions(broker, RandomWriters(2, TOPIC, 5), 30)

    with pytest.raises(Repartitioned) as raised:
        replicate()
    assert one_sentence(raised) == "topic orders had 2 partitions and now has 5"


def test_a_checkpoint_of_another_query_is_refused(spark, broker, writers, replicate, tmp_path):
    write_actions(broker, writers, 10)
    other = spark.readStream.format("exactlog").option("path", str(broker.data_dir)).load()
    query = other.writeStream.format("memory").queryName("other").option("checkpointLocation", str(tmp_path / "other"))
    query.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(OtherQueryError) as raised:
        replicate(checkpoint=tmp_path / "other")
    assert "is the checkpoint of another query" in one_sentence(raised)

    replicate()
    with pytest.raises(OtherQueryError) as raised:
        replicate(path=broker.data_dir)
    assert "is the checkpoint of replicate-journal from a broker, not of replicate-journal from a dir" in one_sentence(
        raised
    )
    page = tmp_path / "checkpoint" / "exactlog-journal.json"
    page.write_text(page.read_text().replace('"v":1', '"v":2'))
    page.with_name(".exactlog-journal.json.crc").unlink()
    with pytest.raises(OtherQueryError, match="was written by a later version of exactlog"):
        replicate()


def test_another_replicator_of_the_same_store_is_seen(broker, writers, replicate, tmp_path):
    write_actions(broker, writers, 200)
    told = []

    def interfere(line):
        if line.startswith("batch") and not told:
            told.append(line)
            replicate(checkpoint=tmp_path / "second", path=broker.data_dir)

    with pytest.raises(OtherReplicatorError) as raised:
        replicate(path=broker.data_dir, bytes_per_batch=4_000, progress=interfere)
    assert "another replicator writes to the same store" in one_sentence(raised)


def test_the_replicator_in_one_process_and_the_one_on_spark_go_on_with_each_others_store(
    broker, writers, replicate, check, tmp_path
):
    write_actions(broker, writers, 60)
    replicate_embedded(broker, tmp_path / "spark.db", TOPIC)
    write_actions(broker, writers, 60)
    first = replicate()
    assert 0 < first.rows < 80
    check()

    write_actions(broker, writers, 60)
    replicate_embedded(broker, tmp_path / "spark.db", TOPIC)
    trim(broker, first.pointers[f"{TOPIC}/0"] + 5)  # the checkpoint has fallen behind, the store has not
    before = rows_in(tmp_path / "spark.db")
    with pytest.raises(OtherQueryError) as raised:
        replicate()
    assert "which is gone from the log; the store has it" in one_sentence(raised)
    assert replicate(checkpoint=tmp_path / "new").rows == 0
    assert rows_in(tmp_path / "spark.db") == before


def test_a_store_that_a_later_version_made_is_left_as_it_is(broker, writers, replicate, tmp_path):
    write_actions(broker, writers, 10)
    replicate()
    with closing(sqlite3.connect(tmp_path / "spark.db")) as connection, connection:
        connection.execute("UPDATE setting SET value = '999'")
    before = rows_in(tmp_path / "spark.db")
    write_actions(broker, writers, 10)

    with pytest.raises(NewerSchemaError) as raised:
        replicate()
    assert "has schema version 999" in one_sentence(raised)
    assert rows_in(tmp_path / "spark.db") == before


def test_a_store_that_is_down_is_a_sentence_and_the_next_run_goes_on(broker, writers, replicate, check, tmp_path):
    write_actions(broker, writers, 100)
    with pytest.raises(Retriable) as raised:
        replicate(store=f"sqlite:{tmp_path}/nosuch/j.db")
    assert "unable to open database file" in one_sentence(raised)

    with closing(sqlite3.connect(tmp_path / "spark.db", isolation_level=None, check_same_thread=False)) as other:

        def take_the_store(line):
            if line.startswith("batch 1"):
                other.execute("BEGIN IMMEDIATE")

        with pytest.raises(Retriable) as raised:
            replicate(path=broker.data_dir, bytes_per_batch=4_000, progress=take_the_store)
    assert "database is locked" in one_sentence(raised)
    assert replicate(path=broker.data_dir).lag == 0
    check()


def test_a_store_that_no_task_reaches_is_refused(replicate):
    with pytest.raises(StoreUrlError, match="in the memory of one program"):
        replicate(store="memory:")
    with pytest.raises(StoreUrlError, match="names a host"):
        replicate(store="sqlite://host/file")
