"""Actions of one journal in the order of a log, and what a replicator makes of them."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from exactlog.core.journal.actions import Action, ActionRecord, Append, Delete, Mark, Purge
from exactlog.core.journal.batch_optimizer import optimize_actions
from exactlog.core.journal.event_payload_format import AppendPayload, encode_payload
from exactlog.core.journal.events import NO_HEADERS, Event, EventRow
from exactlog.core.journal.expectation import ANY, Expectation
from exactlog.core.journal.expiry import ExpireAfter
from exactlog.core.journal.key_plan import KeyPlan
from exactlog.core.journal.keys import SEQ_NR_MAX, SEQ_NR_MIN, JournalKey, Place, SeqNr, SeqRange, record_id_of
from exactlog.core.journal.payload import JsonPayload
from exactlog.core.journal.rows import HeadRow
from exactlog.core.model.ids import Offset, TopicPartition
from exactlog.journal.store_ports import JournalStore

NOON_MS = 1_576_059_010_000
"""2019-12-11T10:10:10Z, when the actions are written."""
NOW_MS = NOON_MS + 500
"""When they are replicated."""
WHOLE = SeqRange(SEQ_NR_MIN, SEQ_NR_MAX)


class ActionScript:
    """Actions of one journal, each at the next offset of its partition.

    Args:
        key: the journal.
        partition: the one it is in.
        offset: of the first action.
    """

    def __init__(self, key: JournalKey, *, partition: int = 0, offset: int = 0) -> None:
        self.key = key
        self.partition = partition
        self.offset = offset

    def append(
        self,
        *seq_nrs: int,
        events: Sequence[Event] = (),
        expire_after: ExpireAfter | None = None,
        expect: Expectation = ANY,
        timestamp_ms: int = NOON_MS,
        origin: str | None = "writer",
        headers: Mapping[str, str] = NO_HEADERS,
        header_data: str | None = None,
        payload_data: str | None = None,
        event_ids: Sequence[str] = (),
    ) -> ActionRecord:
        """Events of these numbers, or these events."""
        written = tuple(events) or tuple(Event(SeqNr(seq_nr), JsonPayload.of({"n": seq_nr})) for seq_nr in seq_nrs)
        payload_type, payload = encode_payload(AppendPayload(written, payload_data, expire_after))
        append = Append(
            range=SeqRange(written[0].seq_nr, written[-1].seq_nr),
            payload_type=payload_type,
            payload=payload,
            origin=origin,
            version="1.0",
            header_data=header_data,
            headers=headers,
            event_ids=tuple(event_ids),
            expect=expect,
        )
        return self._record(append, timestamp_ms)

    def delete(self, to: int, *, expect: Expectation = ANY, origin: str | None = "deleter") -> ActionRecord:
        """The events up to this number are to go."""
        return self._record(Delete(to=to, origin=origin, expect=expect))

    def purge(self, *, expect: Expectation = ANY) -> ActionRecord:
        """All is to go."""
        return self._record(Purge(origin="purger", expect=expect))

    def mark(self) -> ActionRecord:
        """Nothing is to be done."""
        return self._record(Mark(id=f"mark-{self.offset}"))

    def _record(self, action: Action, timestamp_ms: int = NOON_MS) -> ActionRecord:
        place = Place(self.partition, Offset(self.offset))
        self.offset += 1
        return ActionRecord(self.key, place, timestamp_ms, action)


async def apply(
    store: JournalStore, *records: ActionRecord, now_ms: int = NOW_MS, at_once: bool = True
) -> Sequence[KeyPlan]:
    """Replicate actions of one journal: all that one poll gave, or each in a poll of its own."""
    first = records[0]
    journal = store.topic(first.key.topic).partition(first.place.partition).key(first.key.id)
    polls = [records] if at_once else [(record,) for record in records]
    return [await journal.apply(optimize_actions(poll), now_ms=now_ms) for poll in polls]


async def head_of(store: JournalStore, key: JournalKey) -> HeadRow:
    """The head row of a journal that there is."""
    head = await store.head(key)
    assert head is not None, f"no head row of {key}"
    return head


async def rows_of(store: JournalStore, key: JournalKey, seq_range: SeqRange = WHOLE) -> Sequence[EventRow]:
    """The events of a journal that there is, or none."""
    head = await store.head(key)
    return [] if head is None else [row async for row in store.rows(key, head, seq_range)]


async def seq_nrs(store: JournalStore, key: JournalKey, first: int = 1, last: int = SEQ_NR_MAX) -> Sequence[int]:
    """The numbers of a journal's events within a range."""
    return [row.seq_nr for row in await rows_of(store, key, SeqRange(SeqNr(first), SeqNr(last)))]


def life_from(key: JournalKey, *, offset: int, partition: int = 0) -> UUID:
    """The id of the life that the action at this offset begins."""
    return record_id_of(TopicPartition(key.topic, partition), offset)
