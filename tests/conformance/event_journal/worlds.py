"""A journal of which more or less is replicated: the worlds in which the cases of JournalSpec are asked."""

from contextlib import asynccontextmanager
from itertools import combinations, count
from typing import NamedTuple

from exactlog.client.adapters import connect
from exactlog.client.ports import LATEST
from exactlog.core.journal.batch_optimizer import optimize_actions
from exactlog.core.journal.event_journal_format import decode_action, encode_action
from exactlog.core.journal.keys import JournalKey
from exactlog.core.journal.new_actions import NewEvent, new_append
from exactlog.core.journal.payload import TextPayload
from exactlog.core.model.ids import Offset, TopicPartition
from exactlog.journal import Journals, JournalSettings
from exactlog.journal.stores.memory_store import MemoryJournalStore

KEY_ID = "entity"
FOR_EVER = {"retention.ms": -1}
"""Of topics whose records are years old."""
_numbers = count()


class Replication(NamedTuple):
    """How far the store is: `actions` behind (None: it is empty), the pointer `offsets` further behind that."""

    name: str
    actions: int | None = 0
    offsets: int = 0
    marks: int = 0


REPLICATIONS = (
    Replication("empty", None),
    Replication("only-marks-ahead", marks=2),
    Replication("consistent"),
    *(Replication(f"pointer-{n}-behind", offsets=n) for n in (1, 2, 3)),
    *(Replication(f"{n}-actions-behind", n) for n in (1, 2, 3, 4)),
    *(Replication(f"{n}-actions-and-pointer-{n + 1}-behind", n, 1) for n in (1, 2, 3)),
)

SPLITS = tuple(
    tuple(
        tuple(range(first + 1, last + 1)) for first, last in zip((0, *cuts), (*cuts, size), strict=True) if last > first
    )
    for size in range(6)
    for at in range(max(1, size))
    for cuts in combinations(range(1, size), at)
)
"""All ways in which events 1 to n, for n from 0 to 5, can be appended in groups."""


class World(NamedTuple):
    """How a case is told apart from all others."""

    split: tuple[tuple[int, ...], ...]
    replication: Replication
    is_doubled: bool
    has_cache: bool

    @property
    def last(self):
        return sum(map(len, self.split))

    def __str__(self):
        appends = "+".join(str(len(group)) for group in self.split) or "none"
        flags = [name for name, is_so in (("doubled", self.is_doubled), ("cache", self.has_cache)) if is_so]
        return "-".join([appends, self.replication.name, *flags])


WORLDS = tuple(
    World(split, replication, is_doubled, has_cache)
    for split in SPLITS
    for replication in REPLICATIONS
    for is_doubled in (False, True)
    for has_cache in (False, True)
)


async def actions_in(client, place):
    """All actions that are in a partition, in order."""
    end = (await client.list_offsets({place: LATEST}))[place].offset
    if not end:
        return []
    found = client.consume({place: Offset(0)}, ends={place: end})
    return [decode_action(place, one.record) async for one in found]


class Topic:
    """A topic of one partition, the store, and how to replicate as much as a case wants."""

    def __init__(self, broker, store):
        self.name = f"spec-{next(_numbers)}"
        self.place = TopicPartition(self.name, 0)
        self.store = store
        broker.create_topic(self.name, partitions=1, config=FOR_EVER)

    async def write(self, client, key_id, seq_nrs):
        """One append, as kafka-journal writes it: it expects nothing."""
        events = [NewEvent(TextPayload(str(seq_nr)), seq_nr=seq_nr) for seq_nr in seq_nrs]
        record = encode_action(JournalKey(self.name, key_id), new_append(events, last_seq_nr=0), timestamp_ms=1_000)
        (produced,) = await client.produce(self.name, [record], partition=0)
        return produced.offset

    async def actions(self, client):
        """All that is in the log."""
        return await actions_in(client, self.place)

    async def replicate(self, client, *, behind=0, pointer_behind=0):
        """All actions but the last ones, and a pointer that is further back."""
        actions = await self.actions(client)
        done = actions[: max(0, len(actions) - behind)]
        partition = self.store.topic(self.name).partition(0)
        for key_id in {action.key.id for action in done}:
            batches = optimize_actions([action for action in done if action.key.id == key_id])
            await partition.key(key_id).apply(batches, now_ms=1_000)
        pointer = len(done) - 1 - pointer_behind
        if pointer >= 0:
            await partition.create_pointer(pointer, now_ms=1_000)


@asynccontextmanager
async def world_with(broker, log_url, world, *, store=None):
    """The journal of a world, its topic, and a client of the log."""
    topic = Topic(broker, store or MemoryJournalStore(segment_size=2))
    settings = JournalSettings(head_cache=world.has_cache, pointer_ms=50)
    async with (
        connect(log_url) as client,
        Journals.open(log_url, store=topic.store, settings=settings) as journals,
    ):
        for group in world.split:
            for _ in range(1 + world.is_doubled):
                await topic.write(client, KEY_ID, group)
        replication = world.replication
        if replication.actions is not None:
            await topic.replicate(client, behind=replication.actions, pointer_behind=replication.offsets)
        journal = journals[topic.name, KEY_ID]
        for n in range(replication.marks):
            await journal.mark(f"mark-{n}")
        yield journal, topic, client
