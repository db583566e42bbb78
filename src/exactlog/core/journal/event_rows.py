"""From an append in the log to the rows of its events."""

from itertools import pairwise

from msgspec.structs import replace

from exactlog.core.journal.actions import ActionRecord, Append
from exactlog.core.journal.event_payload_format import AppendPayload, decode_payload
from exactlog.core.journal.events import EventRow, RecordMetadata
from exactlog.core.model.errors import DecodeError


def payload_of(record: ActionRecord) -> AppendPayload:
    """What an append carries.

    Raises:
        DecodeError: it cannot be read, or is not what its header says; the place is named.
    """
    append = record.action
    assert isinstance(append, Append)
    try:
        payload = decode_payload(append.payload_type, append.payload)
        _check(append, payload)
    except DecodeError as error:
        place = f"{record.key.topic}-{record.place.partition} offset {record.offset}"
        raise DecodeError(
            f"{place}, journal {record.key.id}: {error}",
            hint="the record is not as a journal writes it; whoever replicates the topic can be told to skip it",
        ) from None
    return payload


def rows_of(record: ActionRecord, payload: AppendPayload | None = None) -> tuple[EventRow, ...]:
    """The rows of an append's events, of no life yet. `payload` is what it carries, where that is known already.

    Raises:
        DecodeError: as `payload_of`.
    """
    append = record.action
    assert isinstance(append, Append)
    payload = payload or payload_of(record)
    of_append = EventRow(
        event=payload.events[0],
        timestamp_ms=record.timestamp_ms,
        place=record.place,
        origin=append.origin,
        version=append.version,
        metadata=RecordMetadata(append.header_data, payload.data, payload.expire_after),
        headers=append.headers,
    )
    event_ids = append.event_ids or (None,) * len(payload.events)
    return tuple(
        replace(of_append, event=event, event_id=event_id)
        for event, event_id in zip(payload.events, event_ids, strict=True)
    )


def _check(append: Append, payload: AppendPayload) -> None:
    numbers = [event.seq_nr for event in payload.events]
    if not numbers or (numbers[0], numbers[-1]) != (append.range.first, append.range.last):
        found = f"from {numbers[0]} to {numbers[-1]}" if numbers else "none"
        raise DecodeError(f"the header says events {append.range.first} to {append.range.last}, there are {found}")
    if any(later <= earlier for earlier, later in pairwise(numbers)):
        raise DecodeError(f"the numbers of its events do not grow: {numbers[:20]}")
    if append.event_ids and len(append.event_ids) != len(numbers):
        raise DecodeError(f"{len(numbers)} events have {len(append.event_ids)} ids")
