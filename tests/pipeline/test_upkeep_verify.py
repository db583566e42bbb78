"""Verifying by tasks: a data directory as one process finds it, and a store as the log makes it."""

import asyncio
import shutil
import sqlite3
from contextlib import closing

import pytest

from exactlog.client.adapters import connect
from exactlog.core.model.errors import NotFoundError
from exactlog.core.model.ids import Offset, TopicPartition
from exactlog.core.record.batch_builder import NewRecord
from exactlog.journal.stores.errors import NewerSchemaError
from exactlog.pipeline import upkeep_verify
from exactlog.pipeline.export_plan import LogReplacedError
from exactlog.pipeline.upkeep_store_verify import verify_store
from exactlog.pipeline.upkeep_verify import verify_log
from exactlog.storage.data_directory_audit import audit_data_directory
from exactlog.storage.filesystem import OsFilesystem
from exactlog.testing import Broker
from tests.support.replicated_store import replicate, rows_in, write_journals
from tests.support.transactions import BrokerWriter

pytestmark = pytest.mark.peer

TOPIC = "flights"


def files_in(directory):
    """The bytes of all files."""
    return {path.relative_to(directory): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


# --- a log ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """The directory of a broker that has stopped: three topics, seven partitions, transactions of all kinds."""
    directory = tmp_path_factory.mktemp("log") / "data"
    with Broker(data_dir=directory, config={"segment.bytes": 4_000}) as broker:
        for topic, partitions in (("orders", 3), ("trains", 2), ("empty", 2)):
            broker.create_topic(topic, partitions=partitions)
        for partition in range(3):
            writer = BrokerWriter(broker, "orders", partition=partition)
            for number in range(40):
                writer.plain(b"%0100d" % number)
            writer.write(1, b"gone")
            writer.abort(1)
        BrokerWriter(broker, "trains").plain(b"a", b"b")
    return directory


@pytest.fixture
def directory(stopped, tmp_path):
    return shutil.copytree(stopped, tmp_path / "data")


def test_tasks_find_what_one_process_finds_and_change_nothing(spark, directory):
    before, told = files_in(directory), []

    report = verify_log(spark, path=directory, progress=told.append)

    assert report.audit == audit_data_directory(OsFilesystem(), str(directory))
    assert (report.damage, report.partitions_left, report.is_stopped) == (0, 0, False)
    assert report.partitions == len(list(directory.glob("topic=*")))
    assert report.records >= 122
    assert f"partition {report.partitions} of {report.partitions}" in told[-1]
    assert files_in(directory) == before


@pytest.mark.parametrize("is_deep", [False, True])
def test_damage_in_several_partitions_is_found_as_one_process_finds_it(spark, directory, is_deep):
    for partition, number in ((0, 0), (2, 1)):
        log = sorted((directory / f"topic=orders-part={partition}").glob("*.log"))[number]
        content = bytearray(log.read_bytes())
        content[100] ^= 0x40
        log.write_bytes(content)
    (directory / "topic=orders-part=1" / "_delta_log" / "00000000000000000007.json").write_text("{")
    shutil.rmtree(directory / "topic=trains-part=1")
    (directory / "notes.txt").write_text("not ours")

    report = verify_log(spark, path=directory, deep=is_deep)

    assert report.audit == audit_data_directory(OsFilesystem(), str(directory), is_deep=is_deep)
    kinds = {str(finding.kind) for finding in report.audit.findings}
    assert kinds == {"partition-missing", "foreign-file"}
    hurt = {table.partition for table in report.audit.tables if any(finding.is_damage for finding in table.findings)}
    assert (hurt, report.damage >= 4) == ({0, 1, 2}, True)


def test_one_partition_or_the_topics_that_are_named_are_verified(spark, directory):
    one = verify_log(spark, path=directory / "topic=orders-part=1")
    assert [(table.topic, table.partition) for table in one.audit.tables] == [("orders", 1)]

    some = verify_log(spark, path=directory, topics=["trains", "empty"])
    assert {table.topic for table in some.audit.tables} == {"trains", "empty"}
    assert some.damage == 0
    for topic in ("nosuch", "no/such"):
        with pytest.raises(NotFoundError, match=f"has no topic {topic}"):
            verify_log(spark, path=directory, topics=[topic])


def test_a_run_that_is_stopped_tells_what_it_has_found_and_how_much_is_left(spark, directory, monkeypatch):
    monkeypatch.setattr(upkeep_verify, "BYTES_PER_TASK", 1)
    told = []
    report = verify_log(spark, path=directory, progress=told.append, is_stopping=lambda: len(told) >= 1)

    assert (report.is_stopped, report.partitions, len(told)) == (True, 2, 1)
    assert report.partitions + report.partitions_left == len(list(directory.glob("topic=*")))
    assert report.damage == 0


def test_what_is_no_log_is_one_sentence(spark, tmp_path):
    for path in (tmp_path, tmp_path / "nosuch"):
        with pytest.raises(NotFoundError, match="is no partition and no data directory"):
            verify_log(spark, path=path)


def test_a_log_that_is_being_written_is_verified_beside_its_broker(spark, tmp_path):
    with Broker(data_dir=tmp_path / "data") as broker:
        broker.create_topic("orders", partitions=2)
        writer = BrokerWriter(broker, "orders")
        for number in range(30):
            writer.plain(b"%d" % number)
            if number % 10 == 5:
                assert verify_log(spark, path=tmp_path / "data").damage == 0


# --- a store beside its log -------------------------------------------------------------------------------------------


@pytest.fixture
def broker():
    with Broker() as running:
        running.create_topic(TOPIC, partitions=3)
        yield running


@pytest.fixture
def filled(broker, store):
    async def write(journals):
        for number in range(20):
            journal = journals[TOPIC, f"flight-{number}"]
            await journal.append([{"n": 1}, "two", b"three"], headers={"from": "test"}, metadata={"m": number})
            if number % 2:
                await journal.append(["four"], expire_after="30 days")
            if number % 3 == 0:
                await journal.delete(2)
            if number % 5 == 0:
                await journal.purge()
            if number % 10 == 0:
                await journal.append(["another life"])

    write_journals(broker, store, write)
    replicate(broker, store, TOPIC)


@pytest.fixture
def verify(spark, broker, store):
    return lambda **more: verify_store(spark, **{"store": store, "bootstrap": broker.bootstrap_servers} | more)


def change(path, *statements):
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            assert connection.execute(statement).rowcount == 1, statement


def found(report):
    return {(str(each.kind), each.id, each.seq_nr) for part in report.partitions for each in part.findings}


def test_a_store_is_what_the_log_makes_of_it(verify, filled, path):
    before, told = rows_in(path), []

    report = verify(progress=told.append)

    assert (report.journals, report.equal, report.moved_on, report.unjudged, report.damage) == (18, 18, 0, 0, 0)
    assert report.events == len(before["journal"])
    assert [(part.partition, part.from_offset) for part in report.partitions] == [(0, 0), (1, 0), (2, 0)]
    assert told[-1].startswith("partition 3 of 3: 18 journals so far, 18 of them equal")
    assert rows_in(path) == before


def test_everything_that_was_changed_in_a_store_is_found(verify, filled, path):
    change(
        path,
        "DELETE FROM metajournal WHERE id = 'flight-1'",
        "UPDATE metajournal SET seq_nr = 9 WHERE id = 'flight-2'",
        "DELETE FROM journal WHERE id = 'flight-4' AND seq_nr = 2",
        "UPDATE journal SET payload_txt = 'other' WHERE id = 'flight-7' AND seq_nr = 2",
        "INSERT INTO metajournal SELECT topic, 'flight-99', partition, offset, segment_size, seq_nr, delete_to, "
        "created, updated, expire_after, expire_on, record_id, origin, is_reset FROM metajournal WHERE id = 'flight-8'",
        "UPDATE journal SET payload_type = 'nonsense' WHERE id = 'flight-11' AND seq_nr = 1",
        "UPDATE metajournal SET expire_on = '2031-01-01' WHERE id = 'flight-13'",
    )

    report = verify()

    assert found(report) == {
        ("journal-missing", "flight-1", None),
        ("head-differs", "flight-2", None),
        ("event-missing", "flight-4", 2),
        ("event-differs", "flight-7", 2),
        ("journal-unexpected", "flight-99", None),
        ("event-unreadable", "flight-11", None),
        ("head-differs", "flight-13", None),
    }
    assert (report.damage, report.journals, report.equal) == (7, 18, 12)


def test_what_is_not_replicated_yet_is_not_missed(verify, filled, broker, store):
    async def write(journals):
        await journals[TOPIC, "flight-1"].append(["later"])
        await journals[TOPIC, "new"].append(["later"])

    write_journals(broker, store, write)

    assert verify().damage == 0


def test_a_record_that_was_passed_over_is_told_and_is_no_damage(verify, broker, store, path):
    async def write(journals):
        await journals[TOPIC, "a"].append(["1"])
        await journals[TOPIC, "b"].append(["1"])

    async def write_nonsense(key):
        async with connect(f"kafka://{broker.bootstrap_servers}") as client:
            record = NewRecord(key=key, value=b"{", headers=(("journal.action", b"{not json"),))
            (told,) = await client.produce(TOPIC, [record])
            return told.partition, told.offset

    write_journals(broker, store, write)
    replicate(broker, store, TOPIC)
    partition, offset = asyncio.run(write_nonsense(b"a"))
    change(
        path, f"UPDATE pointer2 SET offset = {offset} WHERE partition = {partition}"
    )  # as a replicator that passes over it

    report = verify()

    assert found(report) == {("record-skipped", "a", None)}
    assert (report.damage, report.equal) == (0, 2)


def test_journals_that_began_before_what_is_left_of_the_log_are_not_judged(verify, filled, broker, store):
    async def trim():
        async with connect(f"kafka://{broker.bootstrap_servers}") as client:
            for partition in range(3):
                place = TopicPartition(TOPIC, partition)
                await client.delete_records({place: Offset(6)})

    asyncio.run(trim())

    async def write(journals):
        await journals[TOPIC, "fresh"].append(["1"])

    write_journals(broker, store, write)
    replicate(broker, store, TOPIC)

    report = verify()

    assert report.damage == 0
    assert report.unjudged > 0
    assert 0 < report.equal < 19
    assert {part.from_offset for part in report.partitions} == {6}


def test_what_cannot_be_compared_is_one_sentence(verify, filled, broker, path, tmp_path):
    with pytest.raises(NotFoundError, match="there is no store"):
        verify(store=f"sqlite:{tmp_path / 'nosuch.db'}")
    with pytest.raises(NotFoundError, match="nosuch"):
        verify(topics=["nosuch"])
    change(path, "UPDATE pointer2 SET offset = 10000 WHERE partition = 1")
    with pytest.raises(LogReplacedError, match="is replicated up to offset 10000"):
        verify()
    change(path, "UPDATE setting SET value = '99' WHERE key = 'schema-version'")
    with pytest.raises(NewerSchemaError):
        verify()
