"""Loading an entity to change it: what is decided from its state is appended only if that is still its state."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from exactlog.core.journal.events import NO_HEADERS
from exactlog.core.journal.expectation import NO_STREAM, Expectation
from exactlog.core.journal.judgement import Appended
from exactlog.core.journal.keys import SEQ_NR_MAX, SEQ_NR_MIN, JournalKey, SeqNr, SeqRange
from exactlog.journal.event_record import event_record_of
from exactlog.journal.parts import Parts

State = TypeVar("State")


class Entity(Generic[State]):
    """An entity that was loaded.

    Attributes:
        state: folded from its snapshot and events.
        seq_nr: of the last event; None: there is no journal.
        appended: the answer to the append; None until then, and where nothing was appended.
    """

    def __init__(self, state: State, seq_nr: int | None) -> None:
        self.state = state
        self.seq_nr = seq_nr
        self.appended: Appended | None = None
        self.metadata: object = None
        self.headers: Mapping[str, str] = NO_HEADERS
        self._events: list[object] = []

    @property
    def events(self) -> tuple[object, ...]:
        """Those that are to be appended."""
        return tuple(self._events)

    def append(self, *events: object) -> None:
        """Append events when the block ends, if it ends well."""
        self._events.extend(events)


@asynccontextmanager
async def load_entity(
    key: JournalKey, parts: Parts, initial: Callable[[], State], evolve: Callable[[State, object], State]
) -> AsyncIterator[tuple[Entity[State], Expectation]]:
    """An entity as it is now, and what has to be expected of its journal when something is appended to it."""
    sight = await parts.looker.look(key)
    state, found = initial(), sight.state
    first: int = SEQ_NR_MIN
    if found is None:
        yield Entity(state, None), NO_STREAM
        return
    row = await parts.store.latest_snapshot(key, record_id=found.record_id, to_seq_nr=found.seq_nr)
    if row is not None:
        snapshot = parts.codec.decode(row.payload)
        if isinstance(snapshot, type(state)):
            state, first = snapshot, row.seq_nr + 1
    if first <= found.seq_nr:
        async for event in parts.reader.read_sight(key, sight, SeqRange(SeqNr(first), SEQ_NR_MAX)):
            state = evolve(state, event_record_of(event, parts.codec).event)
    yield Entity(state, found.seq_nr), Expectation(seq_nr=SeqNr(found.seq_nr), record_id=found.record_id)
