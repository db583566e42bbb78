"""The store in a real Apache Cassandra: the contract, its schema, kafka-journal's rows, failures."""

import asyncio
import itertools
from contextlib import asynccontextmanager
from datetime import date
from uuid import UUID

import pytest
from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event
from eventsourcing.tests import persistence
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

pytest.register_assert_rewrite("exactlog.testing.journal_store_contract")

from exactlog.client.adapters import connect  # noqa: E402
from exactlog.client.ports import LATEST  # noqa: E402
from exactlog.core.journal.batch_optimizer import optimize_actions  # noqa: E402
from exactlog.core.journal.errors import Retriable  # noqa: E402
from exactlog.core.journal.expiry import ExpireAfter, Expiry  # noqa: E402
from exactlog.core.journal.keys import JournalKey, SeqRange  # noqa: E402
from exactlog.core.journal.payload import BinaryPayload, JsonPayload, TextPayload  # noqa: E402
from exactlog.core.journal.rows import DeleteRows, PutHead  # noqa: E402
from exactlog.core.model.ids import TopicPartition  # noqa: E402
from exactlog.journal.stores.cassandra_place import CassandraPlace  # noqa: E402
from exactlog.journal.stores.cassandra_schema import OURS, TRACKS, AddColumn, CassandraSchema  # noqa: E402
from exactlog.journal.stores.cassandra_session import CassandraSession, DriverException  # noqa: E402
from exactlog.journal.stores.cassandra_store import CassandraJournalStore  # noqa: E402
from exactlog.journal.stores.errors import NewerSchemaError  # noqa: E402
from exactlog.journal.stores.store_url import journal_store  # noqa: E402
from exactlog.testing import Broker  # noqa: E402
from exactlog.testing.journal_store_contract import JournalStoreContract  # noqa: E402
from exactlog.testing.journal_store_contract.action_script import (  # noqa: E402
    WHOLE,
    ActionScript,
    apply,
    head_of,
    rows_of,
    seq_nrs,
)
from tests.conformance.eventsourcing.places import Embedded  # noqa: E402
from tests.conformance.eventsourcing.test_recorders import (  # noqa: E402
    AnApplication,
    OfAFollower,
    OfAggregates,
    OfSnapshots,
    OfTheFactory,
    OfTracking,
)
from tests.support.journal_replication import LOGS, POLLS, CrashingCoroutine, replicate, written  # noqa: E402
from tests.unit.journal.replicating import pointer_at  # noqa: E402

pytestmark = [pytest.mark.peer, pytest.mark.slow]

topics = (f"crashes-{number}" for number in itertools.count(1))
keyspaces = (f"journal_{number}" for number in itertools.count(1))
NOBODY = CassandraPlace(contact_points=(("127.0.0.1", 1),), keyspace="journal")


def place_of(cassandra, keyspace=None, **options):
    return CassandraPlace(
        contact_points=(("127.0.0.1", cassandra.port),), keyspace=keyspace or next(keyspaces), **options
    )


class SharedSession:
    """A session that is closed by nobody but its owner: connecting takes half a second."""

    def __init__(self, session):
        self.session = session

    def __getattr__(self, name):
        return getattr(self.session, name)

    async def close(self):
        """It goes on."""


@pytest.fixture(scope="module")
def session(apache_cassandra):
    session = asyncio.run(CassandraSession.connect(place_of(apache_cassandra)))
    yield SharedSession(session)
    asyncio.run(session.close())


@pytest.fixture
def open_store(session):
    async def connect(_):
        return session

    @asynccontextmanager
    async def open_cassandra(segment_size):
        async with CassandraJournalStore(session.place, segment_size=segment_size, connect=connect) as store:
            yield OpenedCassandra(store, session)

    return open_cassandra


class OpenedCassandra:
    """A store in a keyspace."""

    def __init__(self, store, session):
        self.store = store
        self.session = session

    async def carry_out(self, key, steps):
        await self.store.carry_out(key, steps)

    async def stored_events(self, key):
        found = await self.session.execute_once(
            f"SELECT seq_nr, segment FROM {self.session.place.keyspace}.journal "
            "WHERE id = %s AND topic = %s ALLOW FILTERING",
            (key.id, key.topic),
        )
        return sorted(found)


class TestCassandraJournalStore(JournalStoreContract):
    """The contract. (`open_store` is the fixture above.)"""

    @pytest.fixture
    def open_store(self, open_store):
        return open_store

    @pytest.fixture(params=[2, 3, 10_000])
    def segment_size(self, request):
        return request.param


# --- rows that kafka-journal has written ------------------------------------------------------------------------------

ITS_HEAD = """
INSERT INTO {keyspace}.metajournal (topic, segment, id, partition, offset, segment_size, seq_nr, delete_to, created,
  created_date, updated, expire_after, expire_on, record_id, origin)
VALUES ('its', {segment}, 'user-42', 3, 77, 2, 4, 1, '2019-12-11T10:10:10Z', '2019-12-11', '2019-12-11T10:10:11Z',
  {expiry}, '2019-12-12', {record_id}, 'host-1')
"""
ITS_EVENT = """
INSERT INTO {keyspace}.journal (id, topic, segment, seq_nr, partition, offset, timestamp, origin, version,
  meta_record_id, tags, metadata, payload_type, payload_txt, payload_bin, headers)
VALUES ('user-42', 'its', %s, %s, 3, %s, '2019-12-11T10:10:10.123Z', 'host-1', '4.1.2', {record_id}, {{'a', 'b'}},
  '{{"header":{{"data":{{"k":1}}}},"payload":{{"expireAfter":"1 day"}}}}', %s, %s, %s, {{'h': 'v'}})
"""
LIFE = UUID(int=42)


@pytest.mark.parametrize("segment", [2656, 56], ids=["of 10,000", "of 100"])
async def test_a_journal_that_kafka_journal_wrote_is_read_and_gone_on_with(apache_cassandra, segment):
    key = JournalKey("its", "user-42")
    async with CassandraJournalStore(place_of(apache_cassandra)) as store:
        names = {"keyspace": store._place.keyspace, "segment": segment, "record_id": LIFE, "expiry": "1d"}
        await store._session.execute_once(ITS_HEAD.format(**names))
        for row in (
            (0, 2, 75, "json", '{"n":1.0}', None),
            (1, 3, 76, "text", "hi", None),
            (1, 4, 77, "binary", None, b"\x00"),
        ):
            await store._session.execute_once(ITS_EVENT.format(**names), row)

        head = await head_of(store, key)
        assert (head.seq_nr, head.delete_to, head.place, head.segment_size) == (4, 1, (3, 77), 2)
        assert (head.created_ms, head.updated_ms) == (1_576_059_010_000, 1_576_059_011_000)
        assert (head.record_id, head.origin, head.is_reset) == (LIFE, "host-1", False)
        assert head.expiry == Expiry(ExpireAfter.of_ms(86_400_000), date(2019, 12, 12))
        rows = await rows_of(store, key)
        assert [row.event.payload for row in rows] == [
            JsonPayload('{"n":1.0}'),
            TextPayload("hi"),
            BinaryPayload(b"\x00"),
        ]
        assert {(row.timestamp_ms, row.version, row.record_id, row.event.tags) for row in rows} == {
            (1_576_059_010_123, "4.1.2", LIFE, frozenset({"a", "b"}))
        }
        assert rows[0].metadata.header_data == '{"k":1}'
        assert rows[0].metadata.expire_after == ExpireAfter.of_ms(86_400_000)
        assert dict(rows[0].headers) == {"h": "v"}
        assert [key_id async for key_id in store.ids("its")] == ["user-42"]
        assert [found.key async for found in store.due("its", through=date(2019, 12, 12))] == [key]

        await apply(store, ActionScript(key, partition=3, offset=78).append(5))

        assert (await store.located_head(key))[0] == segment  # it stays where it was
        assert await seq_nrs(store, key) == [2, 3, 4, 5]


async def test_a_head_row_that_another_hides_does_not_come_to_light_by_a_purge(apache_cassandra):
    key = JournalKey("topic", "user-42")
    async with CassandraJournalStore(place_of(apache_cassandra)) as store:
        script = ActionScript(key)
        await apply(store, script.append(1))
        hidden = store._tables.put_head(key, 56, await head_of(store, key), at_us=store.now_us())
        await store._session.execute(hidden)
        assert [key_id async for key_id in store.ids("topic")] == ["user-42"]

        await apply(store, script.purge())

        assert await store.head(key) is None
        assert [key_id async for key_id in store.ids("topic")] == []


async def test_what_kafka_journal_asks_for_is_in_its_columns(apache_cassandra):
    key = JournalKey("topic", "user-42")
    async with CassandraJournalStore(place_of(apache_cassandra), segment_size=2) as store:
        await apply(store, ActionScript(key, partition=1).append(1, 2, 3, expire_after=ExpireAfter.of_ms(86_400_000)))

        head = await store._session.execute_once(
            "SELECT partition, offset, segment_size, seq_nr, delete_to, expire_on, record_id, created_date, properties "
            f"FROM {store._place.keyspace}.metajournal WHERE topic = 'topic' AND segment = 2656 AND id = 'user-42'"
        )
        (partition, offset, size, seq_nr, delete_to, expire_on, record_id, created, properties) = head[0]
        assert (partition, offset, size, seq_nr, delete_to, properties) == (1, 0, 2, 3, None, None)
        assert (expire_on.date(), created.date()) == (date(2019, 12, 12), date(2019, 12, 11))
        rows = await store._session.execute_once(
            f"SELECT segment, seq_nr, meta_record_id, payload_type, payload_txt FROM {store._place.keyspace}.journal"
        )
        assert sorted(rows) == [(number // 3, number, record_id, "json", f'{{"n":{number}}}') for number in (1, 2, 3)]


# --- the schema -------------------------------------------------------------------------------------------------------


async def versions(store):
    rows = await store._session.execute_once(f"SELECT key, value FROM {store._place.keyspace}.setting")
    return dict(rows)


async def test_a_fresh_keyspace_has_the_newest_version_and_a_free_lock(apache_cassandra):
    async with CassandraJournalStore(place_of(apache_cassandra)) as store:
        assert await versions(store) == {"schema-version": "8", "exactlog-schema-version": "1"}
        assert await store._session.execute_once(f"SELECT id FROM {store._place.keyspace}.locks") == []


async def test_stores_that_are_opened_at_once_set_up_one_schema(apache_cassandra):
    place = place_of(apache_cassandra)
    stores = [CassandraJournalStore(place) for _ in range(3)]
    await asyncio.gather(*(store.__aenter__() for store in stores))
    try:
        await apply(stores[0], ActionScript(JournalKey("topic", "a")).append(1))
        assert await seq_nrs(stores[2], JournalKey("topic", "a")) == [1]
    finally:
        for store in stores:
            await store.close()


OLD_TABLES = {
    "journal": """
        id TEXT, topic TEXT, segment BIGINT, seq_nr BIGINT, partition INT, offset BIGINT, timestamp TIMESTAMP,
        origin TEXT, tags SET<TEXT>, metadata TEXT, payload_type TEXT, payload_txt TEXT, payload_bin BLOB,
        PRIMARY KEY ((id, topic, segment), seq_nr, timestamp)""",
    "metajournal": """
        id TEXT, topic TEXT, segment BIGINT, partition INT, offset BIGINT, segment_size INT, seq_nr BIGINT,
        delete_to BIGINT, created TIMESTAMP, created_date DATE, updated TIMESTAMP, expire_after DURATION,
        expire_on DATE, origin TEXT, properties MAP<TEXT, TEXT>, metadata TEXT, PRIMARY KEY ((topic, segment), id)""",
    "metadata": "id TEXT PRIMARY KEY",
    "pointer": "topic TEXT PRIMARY KEY",
    "setting": "key TEXT PRIMARY KEY, value TEXT, timestamp TIMESTAMP, origin TEXT, metadata TEXT",
}


async def test_the_tables_of_an_old_kafka_journal_are_brought_up_to_date(apache_cassandra, session):
    place = place_of(apache_cassandra)
    create = (
        f"CREATE KEYSPACE {place.keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
    )
    await session.execute_once(create)
    for table, columns in OLD_TABLES.items():
        await session.execute_once(f"CREATE TABLE {place.keyspace}.{table} ({columns})")
    await session.execute_once(
        f"INSERT INTO {place.keyspace}.journal (id, topic, segment, seq_nr, timestamp, partition, offset) "
        "VALUES ('a', 'topic', 0, 1, 0, 0, 0)"
    )

    async with CassandraJournalStore(place) as store:
        tables = await CassandraSchema(store._session)._tables()
        assert set(tables) == {"journal", "metajournal", "pointer2", "setting", "locks", "snapshot"}
        assert {"headers", "version", "meta_record_id", "event_id"} <= tables["journal"]
        assert "record_id" in tables["metajournal"]
        assert await versions(store) == {"schema-version": "8", "exactlog-schema-version": "1"}
        script = ActionScript(JournalKey("topic", "a"), offset=5)
        await apply(store, script.append(1))
        assert await seq_nrs(store, script.key) == [1]


@pytest.mark.parametrize("version", ["6", "0", "no number", None])
async def test_steps_that_are_missing_are_carried_out_and_those_that_were_done_are_seen_to_be(
    apache_cassandra, version
):
    place = place_of(apache_cassandra)
    async with CassandraJournalStore(place) as store:
        settings, session = f"{place.keyspace}.setting", store._session
        await apply(store, ActionScript(JournalKey("topic", "a")).append(1))
        await session.execute_once(f"CREATE TABLE {place.keyspace}.pointer (topic TEXT PRIMARY KEY)")  # step 8 drops it
        if version is None:
            await session.execute_once(f"DELETE FROM {settings} WHERE key = 'schema-version'")
        else:
            await session.execute_once(f"UPDATE {settings} SET value = '{version}' WHERE key = 'schema-version'")

        await CassandraSchema(session).set_up()

        assert "pointer" not in await CassandraSchema(session)._tables()
        assert await versions(store) == {"schema-version": "8", "exactlog-schema-version": "1"}
        assert await seq_nrs(store, JournalKey("topic", "a")) == [1]


async def test_where_all_is_up_to_date_it_is_a_look_and_no_more(apache_cassandra):
    async with CassandraJournalStore(place_of(apache_cassandra)) as store:
        watched = Watched(store._session)

        await CassandraSchema(watched).set_up()

        assert watched.asked
        assert all(cql.startswith("SELECT") for cql in watched.asked)


class Watched(SharedSession):
    """Remembers what it was asked."""

    def __init__(self, session):
        super().__init__(session)
        self.asked = []

    async def execute_once(self, cql, parameters=()):
        self.asked.append(cql)
        return await self.session.execute_once(cql, parameters)


async def test_keyspaces_know_nothing_of_each_other(apache_cassandra):
    async with (
        CassandraJournalStore(place_of(apache_cassandra)) as one,
        CassandraJournalStore(place_of(apache_cassandra)) as other,
    ):
        script = ActionScript(JournalKey("topic", "a"))
        await apply(one, script.append(1))
        await one.topic("topic").partition(0).create_pointer(0, now_ms=1)

        assert await other.head(script.key) is None
        assert (await one.topics(), await other.topics()) == ({"topic"}, frozenset())


@pytest.mark.parametrize("key", ["schema-version", "exactlog-schema-version"])
async def test_a_newer_schema_is_refused_and_left_as_it_is(apache_cassandra, key):
    place = place_of(apache_cassandra)
    async with CassandraJournalStore(place) as store:
        await store._session.execute_once(
            f"UPDATE {place.keyspace}.setting SET value = '987654321' WHERE key = '{key}'"
        )

        with pytest.raises(NewerSchemaError) as refused:
            await CassandraJournalStore(place).__aenter__()

        assert refused.value.version == 987_654_321
        assert (await versions(store))[key] == "987654321"


async def test_a_step_that_fails_is_not_counted(apache_cassandra, session):
    async with CassandraJournalStore(place_of(apache_cassandra)) as store:
        broken = replace(OURS, steps=(*OURS.steps, AddColumn("journal", "more", "NO_SUCH_TYPE"), *OURS.steps))
        with pytest.raises(DriverException):
            await CassandraSchema(store._session, tracks=(TRACKS[0], broken)).set_up()

        assert await versions(store) == {"schema-version": "8", "exactlog-schema-version": "1"}
        assert await store._session.execute_once(f"SELECT id FROM {store._place.keyspace}.locks") == []


# --- crashes --------------------------------------------------------------------------------------------------------


@settings(max_examples=15)
@given(log=LOGS, polls=POLLS, segment_size=st.sampled_from([2, 5, 10_000]))
def test_the_store_is_as_the_log_whatever_crashes_between_two_steps_or_within_one(session, log, polls, segment_size):
    async def in_the_keyspace():
        async with CassandraJournalStore(session.place, segment_size=segment_size, connect=connect) as store:
            crashing = store.carry_out_step = CrashingCoroutine(store.carry_out_step)
            topic = next(topics)
            opened = OpenedCassandra(store, session)
            await replicate(opened, written(log, topic), polls, crashing.at, topic=topic)

    async def connect(_):
        return session

    asyncio.run(in_the_keyspace())


# --- what is large, what is far apart, what is not there --------------------------------------------------------------


async def test_a_journal_with_a_huge_gap_is_read_and_deleted_without_a_walk(open_store):
    async with open_store(2) as opened:
        script = ActionScript(JournalKey("far-apart", "a"))
        await apply(opened.store, script.append(1, 2), script.append(2**50), script.append(2**62, 2**62 + 1))

        assert await seq_nrs(opened.store, script.key) == [1, 2, 2**50, 2**62, 2**62 + 1]
        await apply(opened.store, script.delete(2**62))
        assert await seq_nrs(opened.store, script.key) == [2**62 + 1]
        await apply(opened.store, script.purge())
        assert await opened.stored_events(script.key) == []


async def test_segments_without_rows_are_passed_over(open_store):
    async with open_store(2) as opened:
        script = ActionScript(JournalKey("gaps", "a"))
        await apply(opened.store, script.append(1), script.append(400, 401), script.append(403))

        assert await seq_nrs(opened.store, script.key) == [1, 400, 401, 403]


async def test_a_range_is_deleted_to_the_row(open_store):
    for first, last in itertools.combinations(range(1, 12), 2):
        async with open_store(3) as opened:
            script = ActionScript(JournalKey(f"ranges-{first}-{last}", "a"))
            await apply(opened.store, script.append(*range(1, 12)))
            await opened.carry_out(script.key, [DeleteRows(SeqRange(first, last), 3)])

            left = [number for number in range(1, 12) if not first <= number <= last]
            assert [number for number, _ in await opened.stored_events(script.key)] == left


async def test_large_events_go_into_batches_of_their_own(open_store):
    async with open_store(10_000) as opened:
        script = ActionScript(JournalKey("large", "a"))
        await apply(
            opened.store, script.append(1, payload_data='"' + "x" * 300_000 + '"'), script.append(*range(2, 400))
        )

        assert await seq_nrs(opened.store, script.key) == list(range(1, 400))


async def test_a_written_journal_remembers_its_head_row_until_something_fails(open_store):
    async with open_store(10_000) as opened:
        script = ActionScript(JournalKey("remembered", "a"))
        journal = opened.store.topic("remembered").partition(0).key("a")
        await apply(opened.store, script.append(1))
        assert journal._located is None
        await journal.apply(optimize_actions([script.append(2)]), now_ms=5)
        assert journal._located[1] == await opened.store.head(script.key)
        await journal.apply(optimize_actions([script.append(3)]), now_ms=6)
        await journal.apply(optimize_actions([script.purge()]), now_ms=7)
        assert journal._located is None
        await journal.apply(optimize_actions([script.append(1)]), now_ms=8)

        assert await seq_nrs(opened.store, script.key) == [1]
        assert (await head_of(opened.store, script.key)).created_ms == 8


async def test_a_node_that_is_not_there_is_told():
    with pytest.raises(Retriable, match=r"cassandra://127\.0\.0\.1:1/journal"):
        await CassandraJournalStore(NOBODY).__aenter__()


async def test_a_store_that_was_left_says_so(apache_cassandra):
    async with CassandraJournalStore(place_of(apache_cassandra)) as store:
        head = replace(await _some_head(store), seq_nr=9)
    with pytest.raises(Retriable, match="is not open"):
        await store.carry_out(JournalKey("topic", "a"), [PutHead(head)])
    with pytest.raises(Retriable, match="is not open"):
        await anext(store.rows(JournalKey("topic", "a"), head, WHOLE))


async def _some_head(store):
    key = JournalKey("topic", "a")
    await apply(store, ActionScript(key).append(1))
    return await head_of(store, key)


# --- recorders of the library eventsourcing ---------------------------------------------------------------------------


class OnCassandra(Embedded):
    """A log of a test's own, and a keyspace that all of them share: each test has a topic of its own in it."""

    def store_url(self, request, tmp_path):
        self.env_of_class = {"EXACTLOG_TOPIC": next(topics)}
        port = request.getfixturevalue("apache_cassandra").port
        return f"cassandra://127.0.0.1:{port}/recorders"


class TestAggregatesOnCassandra(OnCassandra, OfAggregates, persistence.AggregateRecorderTestCase): ...


class TestSnapshotsOnCassandra(OnCassandra, OfSnapshots, persistence.AggregateRecorderTestCase): ...


class TestApplicationOnCassandra(OnCassandra, AnApplication, persistence.ApplicationRecorderTestCase): ...


class TestTrackingOnCassandra(OnCassandra, OfTracking, persistence.TrackingRecorderTestCase): ...


class TestFollowerOnCassandra(OnCassandra, OfAFollower, persistence.ProcessRecorderTestCase): ...


class TestFactoryOnCassandra(OnCassandra, OfTheFactory, persistence.InfrastructureFactoryTestCase): ...


class Dog(Aggregate):
    @event("Registered")
    def __init__(self, name):
        self.name, self.tricks = name, []

    @event("TrickAdded")
    def add_trick(self, trick):
        self.tricks.append(trick)


async def test_an_application_is_replicated_into_cassandra_and_read_from_there(apache_cassandra, tmp_path):
    """Where the log has lost its tail, what the application was is in the store alone."""
    store_url, topic = f"cassandra://127.0.0.1:{apache_cassandra.port}/{next(keyspaces)}", "dogs"
    with Broker(tmp_path / "log") as broker:
        log_url = f"kafka://{broker.bootstrap_servers}"
        env = {
            "PERSISTENCE_MODULE": "exactlog.journal.eventsourcing",
            "EXACTLOG_URL": log_url,
            "EXACTLOG_STORE_URL": store_url,
            "EXACTLOG_TOPIC": topic,
        }

        def record(dogs):
            dog = Dog("Fido")
            for trick in ("roll over", "play dead"):
                dog.add_trick(trick)
            dogs.save(dog)
            return dog.id

        dogs = await asyncio.to_thread(Application, env)
        dog_id = await asyncio.to_thread(record, dogs)
        async with journal_store(store_url) as store, connect(log_url) as client:
            place = TopicPartition(topic, 0)
            end = (await client.list_offsets({place: LATEST}))[place].offset
            await pointer_at(store, topic, end - 1)
            await asyncio.to_thread(dogs.close)
            assert {key_id async for key_id in store.ids(topic)} == {str(dog_id), "$notifications"}
            assert await seq_nrs(store, JournalKey(topic, str(dog_id))) == [2, 3, 4]  # version N is event N + 1
            await client.delete_records({place: end})

        def read():
            with Application(env) as dogs:
                numbers = [notification.id for notification in dogs.notification_log["1,10"].items]
                return dogs.repository.get(dog_id).tricks, numbers

        assert await asyncio.to_thread(read) == (["roll over", "play dead"], [1, 2, 3])
