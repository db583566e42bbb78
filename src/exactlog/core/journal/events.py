"""Events, and the rows that they become in a store."""

from collections.abc import Mapping
from uuid import UUID

from msgspec import Struct

from exactlog.core.journal.expiry import ExpireAfter
from exactlog.core.journal.keys import Place, SeqNr
from exactlog.core.journal.payload import Payload

NO_HEADERS: Mapping[str, str] = {}


class Event(Struct, frozen=True):
    """One event, as a writer gives it.

    Attributes:
        seq_nr: its number in the journal.
        payload: what it carries; None: nothing.
        tags: what it can be found by.
    """

    seq_nr: SeqNr
    payload: Payload | None = None
    tags: frozenset[str] = frozenset()


class RecordMetadata(Struct, frozen=True):
    """What an append says about all its events. Both are JSON values as text.

    Attributes:
        header_data: from the action header: readable without the payload.
        payload_data: from the payload.
        expire_after: the time to live that the append gives its journal.
    """

    header_data: str | None = None
    payload_data: str | None = None
    expire_after: ExpireAfter | None = None


class EventRow(Struct, frozen=True, kw_only=True):
    """An event as a store keeps it, and as readers get it.

    Attributes:
        event: number, payload and tags.
        timestamp_ms: of the append, milliseconds since 1970.
        place: of the append in the log.
        origin: who wrote it, as it calls itself.
        version: of the library that wrote it.
        metadata: of the append.
        headers: of the append's record, without its action header.
        event_id: the writer's own id of the event, by which it knows it again.
        record_id: the life of the journal that it belongs to; None in rows from before there were such ids.
    """

    event: Event
    timestamp_ms: int
    place: Place
    origin: str | None = None
    version: str | None = None
    metadata: RecordMetadata = RecordMetadata()
    headers: Mapping[str, str] = NO_HEADERS
    event_id: str | None = None
    record_id: UUID | None = None

    @property
    def seq_nr(self) -> SeqNr:
        """The event's number."""
        return self.event.seq_nr
