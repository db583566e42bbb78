"""What is handed in with an event, and what a reader is given."""

from collections.abc import Mapping
from datetime import timedelta

import msgspec
from msgspec import Struct

from exactlog.core.journal.events import NO_HEADERS, EventRow
from exactlog.core.journal.expire_after_text import parse_expire_after
from exactlog.core.journal.expiry import ExpireAfter
from exactlog.core.journal.payload import JsonPayload
from exactlog.journal.typed_events import EventCodec


class Envelope(Struct, frozen=True):
    """An event with more than itself; `Journal.append` takes it in place of the event.

    Attributes:
        event: the event.
        tags: what it can be found by.
        seq_nr: its number, to leave a gap before it; None: the next one.
        event_id: an id of the writer's own, by which it is known again when the append is repeated.
    """

    event: object
    tags: frozenset[str] = frozenset()
    seq_nr: int | None = None
    event_id: str | None = None


class EventRecord(Struct, frozen=True, kw_only=True):
    """An event as it was read.

    Attributes:
        seq_nr: its number in the journal.
        event: the object.
        tags: what it can be found by.
        timestamp: of its append, milliseconds since 1970.
        partition: of the append in the log.
        offset: of the append in its partition.
        origin: who wrote it, as it calls itself.
        version: of the library that wrote it.
        metadata: of the append, any JSON value.
        headers: of the append.
        event_id: the writer's own id of it.
    """

    seq_nr: int
    event: object
    tags: frozenset[str] = frozenset()
    timestamp: int
    partition: int
    offset: int
    origin: str | None = None
    version: str | None = None
    metadata: object = None
    headers: Mapping[str, str] = NO_HEADERS
    event_id: str | None = None


class Snapshot(Struct, frozen=True, kw_only=True):
    """The state of an entity after one of its events.

    Attributes:
        seq_nr: of the last event that went into it.
        state: the state.
        timestamp: when it was taken, milliseconds since 1970.
        metadata: what was said of it, any JSON value.
    """

    seq_nr: int
    state: object
    timestamp: int
    metadata: object = None


def event_record_of(row: EventRow, codec: EventCodec) -> EventRecord:
    """The event of a row.

    Raises:
        DecodeError: the payload is not what its type says.
    """
    header_data = row.metadata.header_data
    return EventRecord(
        seq_nr=row.seq_nr,
        event=codec.decode(row.event.payload),
        tags=row.event.tags,
        timestamp=row.timestamp_ms,
        partition=row.place.partition,
        offset=row.place.offset,
        origin=row.origin,
        version=row.version,
        metadata=None if header_data is None else msgspec.json.decode(header_data),
        headers=row.headers,
        event_id=row.event_id,
    )


def json_text_of(value: object) -> str | None:
    """A JSON value as text; None: it says nothing. Raises `JournalInputError` where it has no JSON form."""
    return None if value is None else JsonPayload.of(value).content


def expire_after_of(written: ExpireAfter | timedelta | str | int | None) -> ExpireAfter | None:
    """A time to live: a text such as "30 days" or "12 h", a number of milliseconds, or a `timedelta`.

    Raises:
        DecodeError: it is none.
    """
    match written:
        case None | ExpireAfter():
            return written
        case timedelta():
            return ExpireAfter(written // timedelta(microseconds=1) * 1_000)
        case _:
            return parse_expire_after(written)
