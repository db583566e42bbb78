"""Logs in few words, written as kafka-journal writes them, and the ways in which a reader can come to them.

A script is actions of one journal in the order of the log: "a1-3" appends events 1 to 3, "d2" deletes up to 2, "p"
purges, "m" marks; "o1" appends event 1 to another journal. No action has an expectation.

An answer is the events that are read and the pointer: "2 3 | 3", "- | none". "2@1" is event 2 of the action in place 1.
"""

import re
from typing import NamedTuple

from exactlog.client.adapters import connect
from exactlog.core.journal.actions import Delete, Mark, Purge
from exactlog.core.journal.batch_optimizer import optimize_actions
from exactlog.core.journal.event_journal_format import decode_action, encode_action
from exactlog.core.journal.keys import SEQ_NR_MAX, JournalKey
from exactlog.core.journal.new_actions import NewEvent, new_append
from exactlog.core.journal.payload import TextPayload
from exactlog.core.model.ids import Offset, TopicPartition
from exactlog.journal import Journals, JournalSettings, ReadBarrier
from exactlog.journal.stores.memory_store import MemoryJournalStore
from exactlog.journal.stores.write_path import SEGMENT_SIZE_MAX

KEY_ID, OTHER_ID = "entity", "other"
TIMESTAMP_MS = 1_576_059_010_000  # 2019-12-11T10:10:10Z

PARITY = {"barrier": ReadBarrier.MARK, "pointer_ms": 50}
"""As kafka-journal reads: with a mark record."""


class Way(NamedTuple):
    """How much of a log is replicated, in which polls, and how the reader is set."""

    name: str
    share: float = 0
    is_one_poll: bool = True
    is_told_twice: bool = False
    segment_size: int = 2
    settings: JournalSettings = JournalSettings(head_cache=False, **PARITY)

    def polls(self, size):
        """The places of each poll."""
        done = int(size * self.share)
        cuts = [range(done)] if self.is_one_poll else [range(at, at + 1) for at in range(done)]
        return [poll for poll in cuts * (1 + self.is_told_twice) if poll]


CACHED = JournalSettings(**PARITY)
WAYS = (
    Way("log"),
    Way("log read twice", settings=JournalSettings(head_cache=False, buffer_actions_max=1, **PARITY)),
    Way("cache", settings=CACHED),
    Way("cache of two steps", settings=JournalSettings(cache_steps_max=2, **PARITY)),
    Way("cache that is never waited for", settings=JournalSettings(cache_wait_ms=0, **PARITY)),
    Way("half", 0.5),
    Way("half and cache", 0.5, settings=CACHED, segment_size=10_000),
    *(Way(f"one poll, {size} a segment", 1, segment_size=size) for size in (2, 10_000, SEGMENT_SIZE_MAX)),
    *(Way(f"a poll each, {size} a segment", 1, is_one_poll=False, segment_size=size) for size in (2, 10_000)),
    Way("a poll each, told twice", 1, is_one_poll=False, is_told_twice=True),
)


class Log:
    """A topic with one script in it."""

    def __init__(self, topic, log_url):
        self.topic, self.log_url = topic, log_url
        self.place = TopicPartition(topic, 0)
        self.offsets = []

    async def write(self, script):
        """Further actions."""
        async with connect(self.log_url) as client:
            for token in script.split():
                key_id, action = action_of(token, len(self.offsets))
                record = encode_action(JournalKey(self.topic, key_id), action, timestamp_ms=TIMESTAMP_MS)
                (produced,) = await client.produce(self.topic, [record], partition=0)
                self.offsets.append(produced.offset)

    async def store_after(self, way):
        """A store into which so much was replicated."""
        store = MemoryJournalStore(segment_size=way.segment_size)
        partition = store.topic(self.topic).partition(0)
        actions = await self.actions()
        for poll in way.polls(len(actions)):
            by_key = {}
            for at in poll:
                by_key.setdefault(actions[at].key.id, []).append(actions[at])
            for key_id, records in by_key.items():
                await partition.key(key_id).apply(optimize_actions(records), now_ms=TIMESTAMP_MS)
            await partition.create_pointer(self.offsets[poll[-1]], now_ms=TIMESTAMP_MS)
        return store

    async def actions(self):
        """Those of the script."""
        if not self.offsets:
            return []
        async with connect(self.log_url) as client:
            found = client.consume({self.place: Offset(0)}, ends={self.place: Offset(self.offsets[-1] + 1)})
            by_offset = {one.record.offset: decode_action(self.place, one.record) async for one in found}
        return [by_offset[offset] for offset in self.offsets]

    def journals(self, store, settings):
        """Journals on this log."""
        return Journals.open(self.log_url, store=store, settings=settings)


def action_of(token, at):
    """The journal and the action of one word of a script."""
    kind, first, last = re.fullmatch(r"([admpo])(\d+|max)?(?:-(\d+))?", token).groups()
    first = SEQ_NR_MAX if first == "max" else int(first or 0)
    match kind:
        case "a" | "o":
            events = [NewEvent(TextPayload(f"{n}@{at}"), seq_nr=n) for n in range(first, int(last or first) + 1)]
            return (KEY_ID if kind == "a" else OTHER_ID), new_append(events, last_seq_nr=0)
        case "d":
            return KEY_ID, Delete(to=first)
        case "p":
            return KEY_ID, Purge()
        case _:
            return KEY_ID, Mark(id=f"mark-{at}")


async def answer(journal, *, has_places=False):
    """What a journal answers, as a script's table says it."""
    records = [record async for record in journal.read()]
    assert all(record.event.partition("@")[0] == str(record.seq_nr) for record in records)
    told = [record.event if has_places else str(record.seq_nr) for record in records]
    pointer = await journal.pointer()
    return f"{' '.join(told) or '-'} | {pointer or 'none'}"


async def check_in_all_ways(log, script, expected, *, has_places=False):
    """Write a script; the answer is the expected one, and a store that has all of it keeps no row that is not read."""
    await log.write(script)
    for way in WAYS:
        store = await log.store_after(way)
        async with log.journals(store, way.settings) as journals:
            found = await answer(journals[log.topic, KEY_ID], has_places=has_places)
        assert found == expected, way.name
        if way.share == 1:
            rows = sum(map(len, store._rows.get(JournalKey(log.topic, KEY_ID), {}).values()))
            assert rows == len(expected.partition("|")[0].replace("-", "").split()), f"{way.name}: rows are left"
