"""Compacting by tasks: rows of a store that no reader is given, entries of a write-ahead log that no table needs."""

import asyncio
import sqlite3
from contextlib import closing

import pytest

from exactlog.client.adapters import connect
from exactlog.core.model.errors import NotFoundError, UnsupportedError
from exactlog.core.model.ids import TopicPartition
from exactlog.journal.stores.errors import NewerSchemaError
from exactlog.pipeline import upkeep_regions
from exactlog.pipeline.upkeep_compact import CompactedTopic, compact_store
from exactlog.pipeline.upkeep_regions import clean_regions
from exactlog.pipeline.upkeep_store_verify import verify_store
from exactlog.testing import Broker
from exactlog.wal import RegionFenced, Wal
from tests.support.replicated_store import log_ends, replicate, rows_in, write_journals

pytestmark = pytest.mark.peer

TOPIC = "flights"


@pytest.fixture
def broker():
    with Broker() as running:
        running.create_topic(TOPIC, partitions=2)
        yield running


# --- rows of a store --------------------------------------------------------------------------------------------------


@pytest.fixture
def filled(broker, store):
    async def write(journals):
        for number in range(12):
            await journals[TOPIC, f"flight-{number}"].append(["1", "2", "3"])
        await journals[TOPIC, "flight-0"].delete(2)
        await journals[TOPIC, "flight-1"].purge()
        await journals[TOPIC, "flight-1"].append(["another life"])

    write_journals(broker, store, write)
    replicate(broker, store, TOPIC)


COLUMNS = (
    "topic, id, seq_nr, timestamp, segment, partition, offset, origin, version, meta_record_id, event_id, tags, "
    "metadata, payload_type, payload_txt, payload_bin, headers"
)


@pytest.fixture
def littered(filled, path):
    """Rows that another program has left: deleted ones, one of another life, all of a journal that is not there."""
    copied = f"INSERT INTO journal SELECT {COLUMNS} FROM journal WHERE id = 'flight-5' AND seq_nr = 1"
    with closing(sqlite3.connect(path)) as connection, connection:
        life = "(SELECT record_id FROM metajournal WHERE id = 'flight-0')"
        for changed in (
            {"id": "'flight-0'", "seq_nr": "2", "meta_record_id": life},
            {"id": "'flight-0'", "seq_nr": "1"},
            {"id": "'flight-1'", "seq_nr": "7"},
            {"id": "'gone'", "seq_nr": "1"},
            {"id": "'gone'", "seq_nr": "2"},
            {"id": "'gone'", "seq_nr": "3"},
        ):
            statement = copied
            for column, value in changed.items():
                statement = statement.replace(f" {column},", f" {value},", 1)
            assert connection.execute(statement).rowcount == 1, statement


@pytest.fixture
def compact(spark, store):
    return lambda **more: compact_store(spark, **{"store": store, "share_count": 4} | more)


def test_rows_that_nobody_reads_go_and_all_others_stay(compact, filled, request, path):
    clean, told = rows_in(path), []
    request.getfixturevalue("littered")

    report = compact(progress=told.append)

    assert report.topics == (CompactedTopic(TOPIC, journals=13, of_no_journal=3, deleted=2, of_other_lives=1),)
    assert (report.rows, report.shares_left, report.is_dry_run) == (6, 0, False)
    assert told[-1] == "share 4 of 4: 6 rows removed so far"
    assert rows_in(path) == clean
    assert compact().rows == 0


def test_a_dry_run_says_how_many_and_changes_nothing(compact, littered, path):
    before = rows_in(path)

    report = compact(dry_run=True)

    assert (report.rows, report.is_dry_run) == (6, True)
    assert rows_in(path) == before


def test_a_run_that_is_stopped_goes_on(compact, filled, request, path):
    clean, told = rows_in(path), []
    request.getfixturevalue("littered")

    first = compact(progress=told.append, is_stopping=lambda: len(told) >= 1)

    assert (first.is_stopped, first.shares, first.shares_left) == (True, 2, 2)
    assert first.rows + compact().rows == 6
    assert rows_in(path) == clean


def test_a_store_that_is_compacted_beside_its_replicator_is_what_the_log_makes_of_it(
    spark, compact, littered, broker, store
):
    async def write(journals):
        for number in range(12):
            await journals[TOPIC, f"flight-{number}"].purge()
            await journals[TOPIC, f"flight-{number}"].append(["again", "and again"])
        await journals[TOPIC, "gone"].append(["here"])

    write_journals(broker, store, write)
    told = []

    def replicate_beside(line):
        told.append(line)
        if len(told) == 1:
            replicate(broker, store, TOPIC)

    compact(progress=replicate_beside)
    compact()

    report = verify_store(spark, store=store, bootstrap=broker.bootstrap_servers)
    assert (report.damage, report.journals, report.equal) == (0, 13, 13)


def test_what_cannot_be_compacted_is_one_sentence(compact, filled, path, tmp_path):
    with pytest.raises(NotFoundError, match="there is no store"):
        compact(store=f"sqlite:{tmp_path / 'nosuch.db'}")
    with pytest.raises(NotFoundError, match="nothing of topic nosuch"):
        compact(topics=["nosuch"])
    with pytest.raises(UnsupportedError, match="Apache Cassandra"):
        compact(store="cassandra://127.0.0.1:1/journal")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE setting SET value = '99' WHERE key = 'schema-version'")
    with pytest.raises(NewerSchemaError):
        compact()


# --- regions of a write-ahead log -------------------------------------------------------------------------------------


def on_wal(broker, work):
    async def run():
        async with Wal.open(f"kafka://{broker.bootstrap_servers}", namespace="ts", clean_interval_s=None) as wal:
            return await work(wal)

    return asyncio.run(run())


@pytest.fixture
def regions(broker):
    """Five regions of two tables with ten entries each; of the first three some entries may go."""

    async def fill(wal):
        for number in range(5):
            region = await wal.open_region(number, create=True)
            for entry in range(10):
                await region.write_batch({1: [b"a%d" % entry], 2: [b"b%d" % entry]})
            if number < 3:
                await region.mark_deleted(1, 8)
                await region.mark_deleted(2, 5, durable=True)

    on_wal(broker, fill)


@pytest.fixture
def clean(spark, broker, regions, monkeypatch):
    monkeypatch.setattr(upkeep_regions, "REGIONS_PER_TASK", 1)
    return lambda **more: clean_regions(spark, **{"bootstrap": broker.bootstrap_servers, "namespace": "ts"} | more)


def entries(broker):
    """What every region gives whoever replays it."""

    async def scan(wal):
        found = {}
        for number in await wal.regions():
            region = await wal.open_region(number, read_only=True)
            found[number] = [(entry.table, entry.sequence, entry.payload) async for entry in region.scan()]
        return found

    return on_wal(broker, scan)


def starts(broker):
    """Where the data topic of each region begins."""

    async def ask():
        async with connect(f"kafka://{broker.bootstrap_servers}") as client:
            topics = [topic.name for topic in await client.list_topics() if "data" in topic.name]
            found = await client.list_offsets({TopicPartition(topic, 0): -2 for topic in topics})
            return {place.topic: int(each.offset or 0) for place, each in found.items()}

    return asyncio.run(ask())


def test_what_no_table_needs_goes_and_what_is_replayed_stays(clean, broker):
    before, told = entries(broker), []

    report = clean(progress=told.append)

    assert (report.regions, report.cleaned, report.failed, report.regions_left) == (5, 3, 0, 0)
    assert [outcome.deleted_offsets > 0 for outcome in report.outcomes] == [True] * 3 + [False] * 2
    assert {outcome.pinned_by_table for outcome in report.outcomes[:3]} == {2}
    assert entries(broker) == before
    assert sorted(starts(broker).values()) == [0, 0, *[outcome.log_start for outcome in report.outcomes[:3]]]
    assert told[-1] == f"region 5 of 5: {report.deleted_offsets} offsets deleted"
    assert clean().deleted_offsets == 0


def test_a_dry_run_deletes_nothing_and_leaves_regions_with_their_owners(clean, broker):
    async def look(wal):
        owned = await wal.open_region(0)
        report = await asyncio.to_thread(clean, dry_run=True)
        assert (report.cleaned, report.is_dry_run) == (3, True)
        return await owned.write(1, [b"still mine"])

    before = starts(broker)

    assert on_wal(broker, look) == 11
    assert starts(broker) == before


def test_only_regions_are_taken_of_which_something_can_go(clean, broker):
    async def look(wal):
        taken, left = await wal.open_region(0), await wal.open_region(4)
        report = await asyncio.to_thread(clean)
        assert report.cleaned == 3
        assert await left.write(1, [b"still mine"]) == 11
        with pytest.raises(RegionFenced):
            await taken.write(1, [b"mine no more"])

    on_wal(broker, look)


def test_a_run_over_regions_that_is_stopped_goes_on(clean):
    told = []
    first = clean(progress=told.append, is_stopping=lambda: len(told) >= 1)

    assert (first.is_stopped, first.regions, first.regions_left, first.cleaned) == (True, 2, 3, 2)
    assert clean().cleaned == 1


def test_what_is_wrong_with_one_region_keeps_none_of_the_others(clean, broker):
    async def break_region():
        async with connect(f"kafka://{broker.bootstrap_servers}") as client:
            (topic,) = [each.name for each in await client.list_topics() if "meta" in each.name and "1" in each.name]
            await client.delete_topic(topic)

    asyncio.run(break_region())
    ends = log_ends(broker, TOPIC)

    report = clean()

    assert (report.failed, report.cleaned) == (1, 2)
    (failed,) = [outcome for outcome in report.outcomes if outcome.error is not None]
    assert (failed.region, failed.deleted_offsets, failed.error_code != "") == (1, 0, True)
    assert log_ends(broker, TOPIC) == ends


def test_regions_that_are_not_there_are_one_sentence(clean):
    with pytest.raises(NotFoundError, match="namespace ts has not region 7, 9"):
        clean(regions=[1, 9, 7])
    with pytest.raises(NotFoundError, match="namespace nosuch has not any region"):
        clean(namespace="nosuch")
    assert clean(regions=[1]).regions == 1
