"""Purging journals whose time is over, by tasks: those and no others, whatever is appended meanwhile or breaks off."""

import asyncio
import sqlite3
import threading
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from tempfile import TemporaryDirectory

import pytest

from exactlog.client.adapters import connect
from exactlog.core.journal.errors import Repartitioned
from exactlog.core.model.errors import NotFoundError, UnavailableError
from exactlog.journal import Journals
from exactlog.journal.stores.errors import NewerSchemaError, StoreUrlError
from exactlog.pipeline import upkeep_purge
from exactlog.pipeline.export_plan import LogReplacedError
from exactlog.pipeline.upkeep_purge import purge_expired
from exactlog.testing import Broker
from tests.support.replicated_store import NO_CACHE, ids_in, log_ends, replicate, rows_in, write_journals

pytestmark = pytest.mark.peer

TOPIC = "flights"
SOON = datetime.now(UTC).date() + timedelta(days=2)
"""What was appended to expire within a minute is due by then."""


@pytest.fixture
def broker():
    with Broker() as running:
        running.create_topic(TOPIC, partitions=3)
        yield running


@pytest.fixture
def purge(spark, broker, store):
    def run(**more):
        given = {"store": store, "bootstrap": broker.bootstrap_servers, "through": SOON, "share_count": 6}
        return purge_expired(spark, **given | more)

    return run


@pytest.fixture
def filled(broker, store):
    """Twelve journals whose time is over soon, two that live for long, one for ever; all are replicated."""

    async def write(journals):
        for number in range(12):
            await journals[TOPIC, f"over-{number}"].append(["x", "y"], expire_after="1 minute")
        for number in range(2):
            await journals[TOPIC, f"long-{number}"].append(["x"], expire_after="30 days")
        await journals[TOPIC, "ever"].append(["x"])

    write_journals(broker, store, write)
    replicate(broker, store, TOPIC)


OVER = {f"over-{number}" for number in range(12)}
KEPT = {"long-0", "long-1", "ever"}


def test_what_is_due_is_purged_and_nothing_else(purge, filled, broker, store, path):
    told = []

    report = purge(progress=told.append)
    replicate(broker, store, TOPIC)

    assert (report.due, report.purges, report.shares, report.shares_left) == (12, 12, 6, 0)
    assert {journal.id for journal in report.shown} == OVER
    assert told[-1] == "share 6 of 6: 12 journals due so far, 12 purges asked for"
    assert ids_in(path) == KEPT
    assert {row[1] for row in rows_in(path)["journal"]} == KEPT
    assert purge().due == 0


def test_a_dry_run_says_what_is_due_and_changes_nothing(purge, filled, broker, path):
    before, ends = rows_in(path), log_ends(broker, TOPIC)

    report = purge(dry_run=True)

    assert (report.due, report.purges, report.is_dry_run) == (12, 0, True)
    assert {(journal.id, journal.seq_nr) for journal in report.shown} == {(key_id, 2) for key_id in OVER}
    assert (rows_in(path), log_ends(broker, TOPIC)) == (before, ends)


async def test_a_job_may_be_called_where_an_event_loop_runs(spark):
    """As in a notebook."""
    with Broker() as broker, TemporaryDirectory() as folder:
        broker.create_topic(TOPIC, partitions=1)
        store = f"sqlite:{folder}/journals.db"
        await asyncio.to_thread(replicate_one, broker, store)

        assert (
            purge_expired(spark, store=store, bootstrap=broker.bootstrap_servers, through=SOON, dry_run=True).due == 1
        )


def replicate_one(broker, store):
    async def write(journals):
        await journals[TOPIC, "over"].append(["x"], expire_after="1 minute")

    write_journals(broker, store, write)
    replicate(broker, store, TOPIC)


def test_a_journal_is_due_on_its_last_day_and_ever_after_and_not_before(purge, filled, path):
    days = [date.fromisoformat(row[10]) for row in rows_in(path)["metajournal"] if row[1] in OVER]

    found = [
        purge(through=day, dry_run=True).due
        for day in (min(days) - timedelta(days=1), max(days), max(days) + timedelta(days=1), max(days) + timedelta(20))
    ]

    assert found == [0, 12, 12, 12]


def test_an_append_that_is_not_replicated_yet_wins(purge, filled, broker, store, path):
    async def extend(journals):
        await journals[TOPIC, "over-3"].append(["z"], expire_after="30 days")
        await journals[TOPIC, "over-4"].purge()
        await journals[TOPIC, "over-4"].append(["new 1", "new 2"])  # another life, of as many events

    write_journals(broker, store, extend)

    report = purge()
    replicate(broker, store, TOPIC)

    assert report.purges == 12
    assert ids_in(path) == {*KEPT, "over-3", "over-4"}
    assert sorted(row[2] for row in rows_in(path)["journal"] if row[1] == "over-3") == [1, 2, 3]


def test_appends_beside_the_job_lose_nothing(purge, filled, broker, store, path):
    is_over, appended = threading.Event(), {}

    async def append_on():
        async with Journals.open(f"kafka://{broker.bootstrap_servers}", store=store, settings=NO_CACHE) as journals:
            number = 0
            while not is_over.is_set() or number < 12:
                key_id = f"over-{number % 12}"
                told = await journals[TOPIC, key_id].append([f"beside {number}"], expire_after="30 days")
                appended.setdefault(key_id, []).append((told.seq_nr, told.offset))
                number += 1

    writer = threading.Thread(target=lambda: asyncio.run(append_on()))
    writer.start()
    try:
        purge()
    finally:
        is_over.set()
        writer.join()
    replicate(broker, store, TOPIC)

    assert ids_in(path) == OVER | KEPT
    stored = {(row[1], row[2], row[6]) for row in rows_in(path)["journal"]}  # id, number, offset
    missing = {
        (key_id, *event) for key_id, events in appended.items() for event in events if (key_id, *event) not in stored
    }
    assert missing == set()


def test_a_run_that_is_stopped_goes_on_where_it_was(purge, filled, broker, store, path):
    told = []

    first = purge(progress=told.append, is_stopping=lambda: len(told) >= 1)
    replicate(broker, store, TOPIC)

    assert (first.is_stopped, first.shares, first.shares_left) == (True, 2, 4)
    assert ids_in(path) > KEPT
    second = purge()
    replicate(broker, store, TOPIC)
    assert first.purges + second.purges == 12
    assert ids_in(path) == KEPT


def test_a_run_that_breaks_off_half_way_is_run_again_and_nothing_is_purged_twice(purge, filled, broker, store, path):
    told = []

    def break_off(line):
        told.append(line)
        if len(told) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        purge(progress=break_off)

    async def live_again(journals):
        for key_id in sorted(OVER):
            await journals[TOPIC, key_id].append(["again"])

    purge()  # asks once more for what was asked for: the store does not know yet
    replicate(broker, store, TOPIC)
    assert ids_in(path) == KEPT

    write_journals(broker, store, live_again)
    replicate(broker, store, TOPIC)
    assert ids_in(path) == OVER | KEPT
    assert {row[2] for row in rows_in(path)["journal"] if row[1] in OVER} == {1}


def test_topics_are_looked_through_that_are_named(purge, filled, broker, store):
    broker.create_topic("trains", partitions=1)

    async def write(journals):
        await journals["trains", "over"].append(["x"], expire_after="1 minute")

    write_journals(broker, store, write)
    replicate(broker, store, "trains")

    assert purge(topics=["trains"], dry_run=True).due == 1
    assert {(each.topic, each.due) for each in purge(dry_run=True).topics} == {("flights", 12), ("trains", 1)}
    with pytest.raises(NotFoundError, match="nosuch"):
        purge(topics=["nosuch"])


# --- what cannot be ---------------------------------------------------------------------------------------------------


def test_a_store_that_cannot_be_used_is_one_sentence_and_is_left_alone(purge, filled, path, tmp_path):
    with pytest.raises(NotFoundError, match=r"there is no store of journals .*nosuch\.db"):
        purge(store=f"sqlite:{tmp_path / 'nosuch.db'}")
    assert not (tmp_path / "nosuch.db").exists()
    for url in ("memory:", "postgres://host/journals"):
        with pytest.raises(StoreUrlError):
            purge(store=url)
    newer(path)
    before = rows_in(path)
    with pytest.raises(NewerSchemaError, match="has schema version 99"):
        purge()
    assert rows_in(path) == before


def newer(path):
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE setting SET value = '99' WHERE key = 'schema-version'")


def test_a_broker_that_does_not_answer_is_one_sentence(purge, filled, monkeypatch):
    monkeypatch.setattr(upkeep_purge, "CLIENT", upkeep_purge.ClientSettings(deadline_ms=300))
    with pytest.raises(UnavailableError):
        purge(bootstrap="127.0.0.1:1")


def test_a_topic_that_was_made_anew_is_refused(purge, filled, broker):
    asyncio.run(make_anew(broker, partitions=3))
    with pytest.raises(LogReplacedError, match="is replicated up to offset"):
        purge()
    asyncio.run(make_anew(broker, partitions=1))
    with pytest.raises(Repartitioned, match="has 1 partitions, and partition 2 of it was replicated"):
        purge()


async def make_anew(broker, *, partitions):
    async with connect(f"kafka://{broker.bootstrap_servers}") as client:
        await client.delete_topic(TOPIC)
        await client.create_topic(TOPIC, partition_count=partitions)


def test_a_topic_with_more_partitions_than_its_journals_were_written_in_is_refused(purge, filled, broker, path):
    async def grow():
        async with connect(f"kafka://{broker.bootstrap_servers}") as client:
            await client.create_partitions(TOPIC, 7)

    asyncio.run(grow())
    before = rows_in(path), log_ends(broker, TOPIC)

    with pytest.raises(Repartitioned, match="of the 7 that the topic has now"):
        purge(share_count=1)

    assert (rows_in(path), log_ends(broker, TOPIC)) == before
