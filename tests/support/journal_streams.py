"""Random actions of many journals in a log, and what the replicator in one process makes of them in a SQLite file."""

import asyncio
import random
import sqlite3
from contextlib import closing
from uuid import UUID

from exactlog.client.adapters import connect
from exactlog.client.ports import ClientSettings
from exactlog.client.wire.partitioner import partition_of_key
from exactlog.core.journal.event_journal_format import ACTION_HEADER, decode_action, encode_action
from exactlog.core.journal.expectation import ANY, EXISTS, NO_STREAM, Expectation
from exactlog.core.journal.expiry import ExpireAfter
from exactlog.core.journal.keys import SEQ_NR_MAX, JournalKey, SeqRange
from exactlog.core.journal.read_plan import Stretch
from exactlog.core.model.ids import TopicPartition
from exactlog.core.record.batch_builder import NewRecord
from exactlog.journal.action_log import ActionLog
from exactlog.journal.brokers import open_brokers
from exactlog.journal.metrics import JournalMetrics
from exactlog.journal.replicator import Replicator
from exactlog.journal.stores.store_url import journal_store
from exactlog.testing.journal_store_contract.action_script import ActionScript
from tests.support.naive_journal import journal_after
from tests.support.replicated_store import ends_of
from tests.unit.journal.replicating import QUICK, pointer_at, until

JOURNALS = tuple(f"journal-{number}" for number in range(9))
SEGMENT_SIZE = 3
NOON_MS = 1_700_000_000_000


class StandingClock:
    """All that is written has the same time."""

    def now_ms(self):
        return NOON_MS

    def monotonic_ms(self):
        return 0


class RandomWriters:
    """Several writers of the same journals: some know them, some are behind, some expect what is not so."""

    def __init__(self, seed, topic, partitions):
        self.random = random.Random(seed)
        self.topic = topic
        self.partitions = partitions
        self.last = {}
        self.clock_ms = NOON_MS

    def record(self):
        """The next action, and the partition it goes to."""
        key_id = self.random.choice(JOURNALS)
        self.clock_ms += self.random.randint(0, 3_600_000)
        script = ActionScript(JournalKey(self.topic, key_id))
        action = self._made(script, key_id).action
        record = encode_action(script.key, action, timestamp_ms=self.clock_ms)
        return self.place(key_id), record

    def place(self, key_id):
        return partition_of_key(key_id.encode(), partition_count=self.partitions)

    def _made(self, script, key_id):
        choose, last = self.random, self.last.get(key_id, 0)
        expect = choose.choice([ANY] * 6 + [NO_STREAM, EXISTS, Expectation(seq_nr=max(last, 1))])
        match choose.choice(["append"] * 8 + ["delete", "delete", "purge", "purge on terms", "mark"]):
            case "append":
                first = max(1, last + 1 + choose.choice([0, 0, 0, 0, 2, -1, -3]))
                self.last[key_id] = max(last, end := first + choose.randint(0, 3))
                expire = choose.choice([None, None, ExpireAfter.of_ms(choose.randint(1, 10**9))])
                headers = {"h": choose.choice(["", "ü"])} if choose.random() < 0.2 else {}
                return script.append(*range(first, end + 1), expect=expect, expire_after=expire, headers=headers)
            case "delete":
                return script.delete(choose.choice([1, max(last // 2, 1), last + 1, 2**63 - 1]), expect=expect)
            case "purge":
                self.last[key_id] = 0
                return script.purge()
            case "purge on terms":
                return script.purge(expect=Expectation(exists=True, seq_nr=max(last, 1)))
            case _:
                return script.mark()


def poison(writers, key_id):
    """A record of a journal that cannot be read, and where it goes."""
    header = (ACTION_HEADER, b"not json")
    return writers.place(key_id), NewRecord(b"x", key=key_id.encode(), headers=[header])


def write_actions(broker, writers, count, *, extra=()):
    """Writes so many actions: alone, several at once, in transactions of which some are aborted; then `extra`.

    Args:
        broker: of any make, with `bootstrap_servers`.
        writers: whose actions.
        count: of actions.
        extra: partitions and records that are not actions of theirs.
    """

    async def run():
        async with connect(f"kafka://{broker.bootstrap_servers}") as client:
            left, topic = count, writers.topic
            while left:
                some = [writers.record() for _ in range(min(left, writers.random.randint(1, 20)))]
                left -= len(some)
                if writers.random.random() < 0.6:
                    await _produce(client, topic, some)
                    continue
                id_ = f"writer-{UUID(int=writers.random.getrandbits(128))}"
                async with client.transactional_producer(id_) as producer:
                    await producer.begin()
                    await _produce(producer, topic, some)
                    await (producer.abort() if writers.random.random() < 0.3 else producer.commit())
            await _produce(client, topic, extra)

    asyncio.run(run())


async def _produce(client, topic, records):
    for partition in sorted({partition for partition, _ in records}):
        some = [record for at, record in records if at == partition]
        await client.produce(topic, some, partition=partition)


def replicate_embedded(broker, path, topic, *, skipped=(), pointers=None, segment_size=SEGMENT_SIZE):
    """What the embedded replicator leaves in a new SQLite file, up to the end of the log or to these pointers."""

    async def run():
        url = f"kafka://{broker.bootstrap_servers}"
        store = journal_store(f"sqlite:{path}", segment_size=segment_size)
        async with connect(url) as client, store, open_brokers(url, ClientSettings(fetch_wait_ms_max=50)) as brokers:
            replicator = Replicator(
                brokers, store, StandingClock(), topic_prefixes=[topic], settings=QUICK, skipped=skipped
            )
            running = asyncio.create_task(replicator.run())
            ends = await _ends(client, topic)
            for partition, offset in (ends if pointers is None else pointers).items():
                await pointer_at(store, topic, offset, partition=partition)
            await until(lambda: _has_seen(replicator, topic, ends))  # behind what is parked, too
            running.cancel()
            await asyncio.wait([running])
            return replicator.parked

    return asyncio.run(run())


async def _has_seen(replicator, topic, ends):
    seen = {place.partition: each._applier.position for place, each in replicator._topics[topic]._partitions.items()}
    return all(seen.get(partition, 0) > offset for partition, offset in ends.items())


async def _ends(client, topic):
    return {partition: end - 1 for partition, end in enumerate(await ends_of(client, topic)) if end}


def create_topic(broker, topic, partitions):
    """Create a topic at a broker of any make."""

    async def run():
        async with connect(f"kafka://{broker.bootstrap_servers}") as client:
            await client.create_topic(topic, partition_count=partitions)

    asyncio.run(run())


def log_ends(broker, topic):
    """The last offset of each partition that has any."""

    async def run():
        async with connect(f"kafka://{broker.bootstrap_servers}") as client:
            return await _ends(client, topic)

    return asyncio.run(run())


def actions_in(broker, topic):
    """The committed actions of a topic, partition after partition."""

    async def run():
        found = []
        async with connect(f"kafka://{broker.bootstrap_servers}") as client:
            log = ActionLog(client, StandingClock(), no_progress_ms=10_000, metrics=JournalMetrics())
            for partition, end in enumerate(await ends_of(client, topic)):
                place = TopicPartition(topic, partition)
                found += [decode_action(place, record) async for record in log.records(place, Stretch(0, end))]
        return [action for action in found if action is not None]

    return asyncio.run(run())


def check_model(found, actions):
    """Whether a store has (`contents_of`) what its log's actions come to, one by one, each once."""
    by_id = _by_id(actions)
    assert found["heads"].keys() <= by_id.keys()
    assert {key_id: _stored(found, key_id) for key_id in by_id} == {
        key_id: _made(of_journal) for key_id, of_journal in by_id.items()
    }


def check_whole(found, actions):
    """Whether each journal of a store is as the log had made it at some moment, where its pointer is or behind that."""
    by_id = _by_id(actions)
    assert found["heads"].keys() <= by_id.keys()
    for key_id, of_journal in by_id.items():
        pointer = found["pointers"].get(of_journal[0].place.partition)
        seen_to = sum(pointer is not None and action.offset <= pointer.offset for action in of_journal)
        moments = [_made(of_journal[:count]) for count in range(seen_to, len(of_journal) + 1)]
        assert _stored(found, key_id) in moments, key_id


def _by_id(actions):
    by_id = {}
    for action in actions:
        by_id.setdefault(action.key.id, []).append(action)
    return by_id


def _stored(found, key_id):
    head = found["heads"].get(key_id)
    if head is None:
        return None, []
    seen = head.seq_nr, head.delete_to, head.is_reset, head.record_id, head.offset, head.expiry
    return seen, [(row.seq_nr, row.place.offset) for row in found["rows"][key_id]]


def _made(actions):
    journal = journal_after(actions)
    return journal.seen, sorted(journal.events.items())


def contents_at(url, topic):
    """What the store at a URL has of a topic; see `contents_of`."""
    return asyncio.run(contents_of(journal_store(url), topic))


async def contents_of(store, topic):
    """All that a store of any kind has of a topic, as its readers are told it."""
    async with store:
        heads, rows = {}, {}
        async for key_id in store.ids(topic):
            key = JournalKey(topic, key_id)
            heads[key_id] = head = await store.head(key)
            rows[key_id] = [row async for row in store.rows(key, head, SeqRange(1, SEQ_NR_MAX))]
        return {"heads": heads, "rows": rows, "pointers": dict(await store.pointers(topic))}


def pointers_in(path):
    """How far each partition is replicated into a SQLite file, by its number; it may not be there yet."""
    if not path.exists():
        return {}
    with closing(sqlite3.connect(path)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'pointer2'").fetchone():
            return {}
        return dict(connection.execute("SELECT partition, offset FROM pointer2"))
