"""Event journals for tests: actions in few words, a journal so plain that it cannot be wrong, a store of dicts."""

from dataclasses import dataclass, field, replace

from hypothesis import strategies as st

from exactlog.core.journal.actions import ActionRecord, Append, Delete, Mark, Purge
from exactlog.core.journal.event_payload_format import AppendPayload, encode_payload
from exactlog.core.journal.events import Event
from exactlog.core.journal.expectation import ANY, EXISTS, NO_STREAM, Expectation
from exactlog.core.journal.keys import JournalKey, Place, SeqRange, record_id_of
from exactlog.core.journal.payload import TextPayload
from exactlog.core.journal.rows import DeleteRows, DropHead, DropSnapshots, PutHead, WriteRows
from exactlog.core.journal.segments import event_segment, event_segments
from exactlog.core.model.ids import TopicPartition

TOPIC_PARTITION = TopicPartition("orders", 0)
KEY = JournalKey("orders", "order-7")
TIMESTAMP_MS = 1_700_000_000_000


# --- actions in few words ---------------------------------------------------------------------------------------------


def record(offset, action, *, key=KEY, timestamp_ms=TIMESTAMP_MS, partition=0):
    return ActionRecord(key, Place(partition, offset), timestamp_ms, action)


def append(offset, first, last=None, *, numbers=(), expire_after=None, event_ids=(), expect=ANY, origin=None, **where):
    """Events `first` to `last`, or just these numbers; each says where it comes from."""
    numbers = numbers or range(first, (last or first) + 1)
    events = tuple(Event(number, TextPayload(f"{number}@{offset}")) for number in numbers)
    payload_type, payload = encode_payload(AppendPayload(events, expire_after=expire_after))
    action = Append(
        range=SeqRange(numbers[0], numbers[-1]),
        payload_type=payload_type,
        payload=payload,
        event_ids=event_ids,
        expect=expect,
        origin=origin,
    )
    return record(offset, action, **where)


def delete(offset, to, *, expect=ANY, origin=None, **where):
    return record(offset, Delete(to=to, expect=expect, origin=origin), **where)


def purge(offset, *, expect=ANY, origin=None, **where):
    return record(offset, Purge(expect=expect, origin=origin), **where)


def mark(offset, mark_id="mark", **where):
    return record(offset, Mark(id=mark_id), **where)


def seq(number):
    """The last event is this one."""
    return Expectation(seq_nr=number)


def life_at(offset):
    """The id of a life that the action at this offset began."""
    return record_id_of(TOPIC_PARTITION, offset)


# --- the plainest journal ---------------------------------------------------------------------------------------------


@dataclass
class NaiveJournal:
    """A journal as a dict of its events. It knows nothing of `delete_to`: what is deleted is not there any more."""

    exists: bool = False
    last: int | None = None
    life: int | None = None  # offset of the action that began it
    is_reset: bool = False
    events: dict = field(default_factory=dict)  # number -> text

    def copy(self):
        return replace(self, events=dict(self.events))

    def apply(self, action_record):
        """Whether the action was as expected."""
        action, offset = action_record.action, action_record.offset
        if not isinstance(action, Mark) and not self._is_as(action.expect):
            return False
        match action:
            case Append():
                self._append(action.range, numbers_of(action_record), offset)
            case Delete(to=to) if not self.exists or self.is_reset:
                self._begin(offset)
                self.last, self.is_reset = max(to, self.last or 0), True
            case Delete(to=to):
                self.events = {number: text for number, text in self.events.items() if number > to}
            case Purge():
                self.__init__()
        return True

    def _is_as(self, expect):
        if expect.exists is not None and expect.exists != self.exists:
            return False
        if expect.seq_nr is not None and expect.seq_nr != self.last:
            return False
        return expect.record_id is None or (self.exists and expect.record_id == life_at(self.life))

    def _append(self, numbers, events, offset):
        self._begin(offset)
        is_first = self.is_reset or self.last is None
        for number in events:
            if is_first or number > self.last:
                self.events[number] = f"{number}@{offset}"
        self.last = numbers.last if is_first else max(self.last, numbers.last)
        self.is_reset = False

    def _begin(self, offset):
        if not self.exists:
            self.exists, self.life = True, offset


def numbers_of(action_record):
    from exactlog.core.journal.event_rows import payload_of

    return [event.seq_nr for event in payload_of(action_record).events]


def naive(records):
    journal = NaiveJournal()
    for each in records:
        journal.apply(each)
    return journal


# --- a store of dicts -------------------------------------------------------------------------------------------------


class StepStore:
    """One journal in a store: carries out steps, each whole. Rows lie where a store of segments would have them."""

    def __init__(self):
        self.head = None
        self.rows = {}  # (segment, number) -> row
        self.dropped_snapshots = []

    def do(self, step):
        match step:
            case WriteRows(rows=rows, segment_size=size):
                numbers = [row.seq_nr for row in rows]
                assert numbers == sorted(set(numbers))
                self.rows |= {(event_segment(row.seq_nr, size), row.seq_nr): row for row in rows}
            case DeleteRows(range=numbers, segment_size=size):
                segments = event_segments(numbers, size)
                for place in list(self.rows):
                    if place[0] in segments and place[1] in numbers:
                        del self.rows[place]
            case PutHead(head=head):
                self.head = head
            case DropHead():
                self.head = None
            case DropSnapshots(place=place):
                self.dropped_snapshots.append(place.offset)

    def do_all(self, plan):
        for step in plan.steps:
            self.do(step)

    def read(self, numbers):
        """The rows of these numbers that count, ascending."""
        if self.head is None:
            return []
        segments = event_segments(numbers, self.head.segment_size)
        return [
            row
            for (segment, number), row in sorted(self.rows.items())
            if segment in segments and number in numbers and row.record_id == self.head.record_id
        ]

    def visible(self):
        """Number and text of every event that a reader of the store alone sees."""
        if self.head is None:
            return {}
        state = self.head.state
        rows = self.read(SeqRange(state.delete_to + 1, max(state.seq_nr, state.delete_to + 1)))
        return {row.seq_nr: row.event.payload.content for row in rows if row.seq_nr <= state.seq_nr}


# --- any actions ------------------------------------------------------------------------------------------------------


@st.composite
def actions(draw, offset, *, numbers_max=12, key=KEY):
    """Any action at this offset: by writers that know the journal, that are behind, that make no sense."""
    kind = draw(st.sampled_from(["append"] * 6 + ["delete"] * 3 + ["purge", "mark"]))
    expect = draw(st.one_of(st.just(ANY), st.just(ANY), expectations(offset, numbers_max=numbers_max)))
    match kind:
        case "append":
            numbers = draw(st.lists(st.integers(1, numbers_max), min_size=1, max_size=4, unique=True).map(sorted))
            return append(offset, None, numbers=numbers, expect=expect, key=key)
        case "delete":
            return delete(offset, draw(st.integers(1, numbers_max + 1)), expect=expect, key=key)
        case "purge":
            return purge(offset, expect=expect, key=key)
        case _:
            return mark(offset, key=key)


def expectations(offset, *, numbers_max=12):
    lives = st.integers(0, max(offset - 1, 0)).map(life_at)
    return st.one_of(
        st.sampled_from([NO_STREAM, EXISTS]),
        st.integers(1, numbers_max).map(seq),
        lives.map(lambda life: Expectation(record_id=life)),
        st.builds(lambda number, life: Expectation(seq_nr=number, record_id=life), st.integers(1, numbers_max), lives),
    )


@st.composite
def histories(draw, *, size_max=14, numbers_max=12):
    """Actions of one journal at growing offsets, with gaps where those of other journals would be."""
    offsets = sorted(draw(st.sets(st.integers(0, 3 * size_max), max_size=size_max)))
    return [draw(actions(offset, numbers_max=numbers_max)) for offset in offsets]


@st.composite
def plausible_histories(draw, *, size_max=20):
    """As writers do it that read before they write, mostly; so that journals grow long."""
    journal, records, offset = NaiveJournal(), [], draw(st.integers(0, 2))
    for _ in range(draw(st.integers(0, size_max))):
        choice = draw(st.sampled_from(["append"] * 6 + ["delete"] * 2 + ["purge", "any", "mark"]))
        last = journal.last or 0
        match choice:
            case "append":
                first = last + draw(st.sampled_from([1, 1, 1, 3]))
                expect = draw(st.sampled_from([ANY, seq(last) if last else NO_STREAM]))
                made = append(offset, first, first + draw(st.integers(0, 2)), expect=expect)
            case "delete":
                made = delete(offset, draw(st.integers(1, max(last, 1))))
            case "purge":
                expect = ANY
                if journal.exists:
                    on_terms = Expectation(exists=True, seq_nr=last, record_id=life_at(journal.life))
                    expect = draw(st.sampled_from([ANY, on_terms]))
                made = purge(offset, expect=expect)
            case "any":
                made = draw(actions(offset))
            case _:
                made = mark(offset)
        journal.apply(made)
        records.append(made)
        offset += draw(st.integers(1, 3))
    return records
