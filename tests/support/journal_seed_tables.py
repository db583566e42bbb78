"""The tables of seed 003, for a replicator: how records can be stored, and what each action makes of a store.

Each line is a journal. It is replicated in two runs, so that the later actions meet what the earlier ones have left,
and once more, under another id, in one.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from exactlog.client.adapters import connect
from exactlog.core.journal.event_journal_format import encode_action
from exactlog.core.journal.keys import JournalKey, Place
from exactlog.core.journal.payload import TextPayload
from exactlog.core.journal.rows import SnapshotRow
from exactlog.journal.stores.store_url import journal_store
from exactlog.testing.journal_store_contract.action_script import NOON_MS, ActionScript
from tests.support.replicated_store import rows_of_table

TOPIC = "aggregates"
PARTITIONS = 2
SIZE_OF_FIRST, SIZE = 5, 3
"""Of segments, in the first run and in all others: a journal keeps the one it began with."""

Action = tuple
"""Its name, as of `ActionScript`, and its numbers."""


class Line(NamedTuple):
    """One line of a table.

    Attributes:
        before: what is replicated first.
        snapshots: then taken, at these numbers.
        then: what comes after.
        head: its number, what is deleted, the size of its segments; None: there is no such row.
        events: (number, segment) of each row.
        snapshots_left: those that are there in the end.
    """

    name: str
    before: Sequence[Action] = ()
    snapshots: Sequence[int] = ()
    then: Sequence[Action] = ()
    head: tuple[int, int | None, int] | None = None
    events: Sequence[tuple[int, int]] = ()
    snapshots_left: Sequence[int] = ()


FIVE = tuple(("append", number) for number in range(1, 6))
FIVE_STORED = ((1, 0), (2, 0), (3, 0), (4, 1), (5, 1))

FIRST = Line(
    "A(3, none, 5)", before=[("append", 1, 2, 3)], head=(3, None, SIZE_OF_FIRST), events=((1, 0), (2, 0), (3, 0))
)
STORED = (
    Line("A(5, none, 3)", FIVE, head=(5, None, 3), events=FIVE_STORED),
    Line("A(5, 2, 3)", FIVE, then=[("delete", 2)], head=(5, 2, 3), events=FIVE_STORED[2:]),
    Line("A(5, none, 3) S(5)", FIVE, [5], head=(5, None, 3), events=FIVE_STORED, snapshots_left=[5]),
    Line("A(5, 5, 3)", FIVE, then=[("delete", 5)], head=(5, 5, 3)),
    Line("A(5, 5, 3) S(5)", FIVE, [5], then=[("delete", 5)], head=(5, 5, 3), snapshots_left=[5]),
    Line("A(5, 5, 3) S(2) S(5)", FIVE, [2, 5], then=[("delete", 5)], head=(5, 5, 3), snapshots_left=[2, 5]),
)
"""Cases on how records can be stored."""

EXPECTED = (
    Line("mark without an entry", then=[("mark",)]),
    Line("mark", [("append", 1)], then=[("mark",)], head=(1, None, 3), events=[(1, 0)]),
    Line("append without an entry", then=[("append", 1, 2, 3)], head=(3, None, 3), events=FIVE_STORED[:3]),
    Line("append", [("append", 1)], then=[("append", 2, 3)], head=(3, None, 3), events=FIVE_STORED[:3]),
    Line("delete without an entry", then=[("delete", 7)], head=(7, 7, 3)),
    Line("reset", [("delete", 7)], then=[("append", 8)], head=(8, 7, 3), events=[(8, 2)]),
    Line("delete", FIVE, then=[("delete", 2), ("delete", 4)], head=(5, 4, 3), events=[(5, 1)]),
    Line("no future", FIVE, then=[("delete", 9), ("append", 6)], head=(6, 5, 3), events=[(6, 1)]),
    Line("purge without an entry", then=[("purge",)]),
    Line("purge", [*FIVE, ("delete", 2)], [3], then=[("purge",)]),
    Line("from the beginning", FIVE, then=[("purge",), ("append", 1)], head=(1, None, 3), events=[(1, 0)]),
)
"""Expected action behaviour."""

LINES = (*STORED, *EXPECTED)


class SeedTables:
    """The journals of all lines, in a log and a store.

    Args:
        broker: it has the topic.
        store: the URL of the store.
        replicate: called with a size of segments: replicates all there is.
    """

    def __init__(self, broker, store, replicate):
        self._broker = broker
        self._store = store
        self._replicate = replicate
        self._changed_at = {}

    def fill(self):
        """Replicate all lines."""
        self._write([(FIRST.name, FIRST.before)])
        self._replicate(SIZE_OF_FIRST)
        self._write([(line.name, line.before) for line in LINES])
        self._replicate(SIZE)
        asyncio.run(self._take_snapshots())
        self._write([(line.name, line.then) for line in LINES])
        self._write([(at_once(line), [*line.before, *line.then]) for line in LINES])
        self._replicate(SIZE)

    def check(self):
        """Whether the store is as the tables say, line for line."""
        heads, events, snapshots = asyncio.run(self._read())
        for line in (FIRST, *LINES):
            for key_id in (line.name, at_once(line)) if line is not FIRST else (line.name,):
                head = heads.pop(key_id, None)
                assert (head and (head.seq_nr, head.delete_to, head.segment_size)) == line.head, key_id
                assert events.pop(key_id, []) == [*line.events], key_id
                if head is not None:
                    assert head.place == self._changed_at[key_id], key_id
            assert snapshots.pop(line.name, []) == [*line.snapshots_left], line.name
        assert (heads, events, snapshots) == ({}, {}, {})

    def _write(self, journals):
        async def write():
            async with connect(f"kafka://{self._broker.bootstrap_servers}") as client:
                for key_id, actions in journals:
                    script = ActionScript(JournalKey(TOPIC, key_id))
                    for name, *numbers in actions:
                        record = getattr(script, name)(*numbers)
                        made = encode_action(record.key, record.action, timestamp_ms=record.timestamp_ms)
                        (produced,) = await client.produce(TOPIC, [made])
                        if name != "mark":
                            self._changed_at[key_id] = Place(produced.partition, produced.offset)

        asyncio.run(write())

    async def _take_snapshots(self):
        async with journal_store(self._store) as store:
            for line in LINES:
                key = JournalKey(TOPIC, line.name)
                head = await store.head(key)
                for number in line.snapshots:
                    row = SnapshotRow(
                        seq_nr=number,
                        record_id=head.record_id,
                        place=head.place,
                        timestamp_ms=NOON_MS,
                        payload=TextPayload(f"state {number}"),
                    )
                    await store.save_snapshot(key, row)

    async def _read(self):
        """Head rows, and what is in the tables beside them, whether a reader is given it or not; by id."""
        async with journal_store(self._store) as store:
            heads = {key_id: await store.head(JournalKey(TOPIC, key_id)) async for key_id in store.ids(TOPIC)}
        events, snapshots = {}, {}
        for key_id, *stored in await rows_of_table(self._store, "journal", "seq_nr, segment"):
            events.setdefault(key_id, []).append(tuple(stored))
        for key_id, number in await rows_of_table(self._store, "snapshot", "seq_nr"):
            snapshots.setdefault(key_id, []).append(number)
        return heads, events, snapshots


def at_once(line):
    """The id of a line's other journal."""
    return f"{line.name}, at once"
