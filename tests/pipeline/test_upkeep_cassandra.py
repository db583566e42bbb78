"""Jobs of upkeep on stores in a real Apache Cassandra: each task asks for its segments, all leave none out."""

import asyncio
import itertools
from datetime import UTC, datetime, timedelta

import pytest

from exactlog.core.journal.errors import Retriable
from exactlog.core.journal.keys import JournalKey
from exactlog.core.model.errors import NotFoundError
from exactlog.journal.stores.cassandra_place import CassandraPlace
from exactlog.journal.stores.cassandra_session import CassandraSession
from exactlog.journal.stores.cassandra_store import CassandraJournalStore
from exactlog.journal.stores.errors import NewerSchemaError
from exactlog.journal.stores.store_url import cassandra_place, journal_store
from exactlog.pipeline.upkeep_export import export_journals
from exactlog.pipeline.upkeep_purge import purge_expired
from exactlog.pipeline.upkeep_store_verify import verify_store
from exactlog.pipeline.upkeep_stores import open_share, shares_of
from exactlog.testing import Broker
from exactlog.testing.journal_store_contract.action_script import ActionScript, apply
from tests.support.journal_zones import Zone, check_two_zones, create_topic
from tests.support.replicated_store import replicate, write_journals

pytestmark = [pytest.mark.peer, pytest.mark.slow]

TOPIC = "flights"
SOON = datetime.now(UTC).date() + timedelta(days=2)
OVER = {f"over-{number}" for number in range(12)}
KEPT = {"long", "ever"}
keyspaces = (f"upkeep_{number}" for number in itertools.count(1))


@pytest.fixture
def new_store(apache_cassandra):
    return lambda: f"cassandra://127.0.0.1:{apache_cassandra.port}/{next(keyspaces)}"


@pytest.fixture
def store(new_store):
    return new_store()


@pytest.fixture
def broker():
    with Broker() as running:
        running.create_topic(TOPIC, partitions=3)
        yield running


@pytest.fixture
def filled(broker, store):
    async def write(journals):
        for key_id in sorted(OVER):
            await journals[TOPIC, key_id].append(["x", b"y"], expire_after="1 minute")
        await journals[TOPIC, "long"].append(["x"], expire_after="30 days")
        await journals[TOPIC, "ever"].append(["x"])

    write_journals(broker, store, write)
    replicate(broker, store, TOPIC)


@pytest.fixture
def purge(spark, broker, store):
    given = {"store": store, "bootstrap": broker.bootstrap_servers, "through": SOON, "share_count": 4}
    return lambda **more: purge_expired(spark, **given | more)


def ids_in(url):
    async def read():
        async with journal_store(url) as store:
            return {key_id async for key_id in store.ids(TOPIC)}

    return asyncio.run(read())


def test_what_is_due_is_purged_and_an_append_that_comes_first_wins(purge, filled, spark, broker, store):
    assert purge(dry_run=True).due == 12
    assert ids_in(store) == OVER | KEPT

    async def extend(journals):
        await journals[TOPIC, "over-3"].append(["z"], expire_after="30 days")

    write_journals(broker, store, extend)
    told = []
    first = purge(progress=told.append, is_stopping=lambda: len(told) >= 1)
    second = purge()
    replicate(broker, store, TOPIC)

    assert (first.is_stopped, first.shares) == (True, 2)
    assert second.purges == 12
    assert ids_in(store) == {*KEPT, "over-3"}
    assert purge().due == 0
    report = verify_store(spark, store=store, bootstrap=broker.bootstrap_servers)
    assert (report.journals, report.equal, report.damage) == (3, 3, 0)


def test_jobs_of_two_zones_harm_no_journal_that_lives_and_leave_none_that_is_expired(spark, new_store):
    with Broker() as broker:
        create_topic(broker)
        check_two_zones(broker, *(Zone(spark, broker, store=new_store()) for _ in range(2)))


def test_what_was_changed_in_a_store_is_found_and_all_of_it_is_exported(filled, spark, broker, store, tmp_path):
    assert verify_store(spark, store=store, bootstrap=broker.bootstrap_servers).equal == 14
    exported = export_journals(spark, store=store, target=tmp_path / "t", share_count=4)
    assert exported.rows == 26

    async def damage():
        place = cassandra_place(store)
        session = await CassandraSession.connect(place)
        try:
            await session.execute_once(
                f"DELETE FROM {place.keyspace}.journal "
                "WHERE id = 'over-5' AND topic = %s AND segment = 0 AND seq_nr = 2",
                (TOPIC,),
            )
        finally:
            await session.close()

    asyncio.run(damage())

    report = verify_store(spark, store=store, bootstrap=broker.bootstrap_servers)
    (finding,) = [finding for part in report.partitions for finding in part.findings]
    assert (str(finding.kind), finding.id, finding.seq_nr) == ("event-missing", "over-5", 2)


async def test_shares_have_every_journal_once_in_the_older_segments_too(apache_cassandra):
    keyspace = next(keyspaces)
    points = (("127.0.0.1", apache_cassandra.port),)
    expected = set()
    for segments in ((100, 100), (10_000, 100)):  # first as kafka-journal had them before
        place = CassandraPlace(contact_points=points, keyspace=keyspace, segments=segments)
        async with CassandraJournalStore(place) as store:
            for number in range(40):
                key_id = f"{segments[0]}-{number}"
                await apply(store, ActionScript(JournalKey(TOPIC, key_id), offset=number).append(1))
                expected.add(key_id)

    found = []
    for share in shares_of(7):
        async with open_share(f"cassandra://127.0.0.1:{apache_cassandra.port}/{keyspace}", share) as store:
            found += [key_id async for key_id in store.ids(TOPIC)]

    assert sorted(found) == sorted(expected)


def test_a_store_that_is_down_or_newer_is_one_sentence(purge, filled, store):
    with pytest.raises(Retriable, match=r"cassandra://127\.0\.0\.1:1/journal"):
        purge(store="cassandra://127.0.0.1:1/journal")

    nowhere = store.replace("upkeep_", "nosuch_")
    for _ in range(2):  # the first has not made it
        with pytest.raises(NotFoundError, match="there is no store of journals cassandra://"):
            purge(store=nowhere)

    async def make_newer():
        place = cassandra_place(store)
        session = await CassandraSession.connect(place)
        try:
            await session.execute_once(
                f"INSERT INTO {place.keyspace}.setting (key, value) VALUES ('schema-version', '99')", ()
            )
        finally:
            await session.close()

    asyncio.run(make_newer())
    with pytest.raises(NewerSchemaError, match="has schema version 99"):
        purge()
