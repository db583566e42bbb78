"""An action of an event journal as a record of its topic, and what a store keeps of an append's metadata.

    topic         the key's topic
    key           the key's id                                          UTF-8
    timestamp     of the action, milliseconds since 1970
    headers       journal.action   the action header                    JSON
                  then, of an append, its own                           UTF-8
    value         of an append its payload (event_payload_format.py); else null

    the action header is an object with one field
    {"append": {"range": {"from": 1, "to": 3}, "origin"?, "version"?, "payloadType": "binary"|"json",
                "metadata": {"data"?}, "eventIds"?: [...], "expect"?}}
    {"mark":   {"id": "...", "origin"?, "version"?}}
    {"delete": {"to": 3, "origin"?, "version"?, "expect"?}}
    {"purge":  {"origin"?, "version"?, "expect"?}}
    "expect" is {"exists"?: bool, "seqNr"?: 3, "recordId"?: "uuid"}

    the metadata column of a store
    {"header": {"data"?}, "payload": {"expireAfter"?, "data"?}}         or, in older rows, {"data"?} of the header

The layout is kafka-journal's, but for `eventIds` and `expect`, which it does not know and passes over. What is absent
is left out, never null. A record that is no action is nothing to a journal: `decode_action` answers None.
"""

from collections.abc import Mapping
from typing import Annotated, Final
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from exactlog.core.journal.actions import Action, ActionRecord, Append, Delete, Mark, PayloadType, Purge
from exactlog.core.journal.events import RecordMetadata
from exactlog.core.journal.expectation import ANY, Expectation
from exactlog.core.journal.expire_after_text import parse_expire_after, print_expire_after
from exactlog.core.journal.json_text import data_of, raw_data
from exactlog.core.journal.keys import SEQ_NR_MAX, SEQ_NR_MIN, JournalKey, Place, SeqNr, SeqRange
from exactlog.core.model.errors import DecodeError
from exactlog.core.model.ids import NO_TIMESTAMP, TimestampMs, TopicPartition
from exactlog.core.record.batch_builder import NewRecord
from exactlog.core.record.record_format import Headers, Record

ACTION_HEADER: Final = "journal.action"

_SeqNr = Annotated[int, msgspec.Meta(ge=SEQ_NR_MIN, le=SEQ_NR_MAX)]


class _Range(msgspec.Struct, frozen=True):
    first: _SeqNr = msgspec.field(name="from")
    last: _SeqNr = msgspec.field(name="to")


class _Data(msgspec.Struct, frozen=True):
    data: msgspec.Raw | UnsetType = UNSET


class _Expect(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, rename="camel"):
    exists: bool | None = None
    seq_nr: _SeqNr | None = None
    record_id: UUID | None = None


class _Append(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, rename="camel"):
    range: _Range
    origin: str | None = None
    version: str | None = None
    payload_type: PayloadType
    metadata: _Data | None = None
    event_ids: tuple[str, ...] | None = None
    expect: _Expect | None = None


class _Mark(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    origin: str | None = None
    version: str | None = None


class _Delete(msgspec.Struct, frozen=True, omit_defaults=True):
    to: _SeqNr
    origin: str | None = None
    version: str | None = None
    expect: _Expect | None = None


class _Purge(msgspec.Struct, frozen=True, omit_defaults=True):
    origin: str | None = None
    version: str | None = None
    expect: _Expect | None = None


class _ActionHeader(msgspec.Struct, frozen=True, omit_defaults=True):
    append: _Append | None = None
    mark: _Mark | None = None
    delete: _Delete | None = None
    purge: _Purge | None = None


class _PayloadMetadata(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    expire_after: str | int | None = None
    data: msgspec.Raw | UnsetType = UNSET


class _RowMetadata(msgspec.Struct, frozen=True, omit_defaults=True):
    header: _Data | None = None
    payload: _PayloadMetadata | None = None
    data: msgspec.Raw | UnsetType = UNSET


_encode: Final = msgspec.json.Encoder().encode
_decode_header: Final = msgspec.json.Decoder(_ActionHeader).decode
_decode_row_metadata: Final = msgspec.json.Decoder(_RowMetadata).decode


# --- records ----------------------------------------------------------------------------------------------------------


def encode_action(key: JournalKey, action: Action, *, timestamp_ms: int) -> NewRecord:
    """The record that says it, for the key's topic.

    Raises:
        JournalInputError: the metadata of an append is not JSON.
    """
    headers: list[tuple[str, bytes | None]] = [(ACTION_HEADER, encode_action_header(action))]
    value = None
    if isinstance(action, Append):
        headers += ((name, text.encode()) for name, text in action.headers.items())
        value = action.payload
    return NewRecord(value, key=key.id.encode(), headers=tuple(headers), timestamp_ms=TimestampMs(timestamp_ms))


def decode_action(topic_partition: TopicPartition, record: Record) -> ActionRecord | None:
    """The action that a record says; None, where it says none that is known.

    Nothing to a journal, as for kafka-journal, are records without a key, a timestamp or an action header, actions of a
    kind that is not known, and appends without a value.

    Raises:
        DecodeError: the record has an action header, and it or the key cannot be read; the place is named.
    """
    if record.key is None or record.timestamp_ms == NO_TIMESTAMP:
        return None
    header = next((value for name, value in record.headers if name == ACTION_HEADER), None)
    if header is None:
        return None
    try:
        key = JournalKey(topic_partition.topic, record.key.decode())
        action = decode_action_header(header, payload=record.value, headers=record.headers)
    except (DecodeError, UnicodeDecodeError) as error:
        raise DecodeError(
            f"{topic_partition} offset {record.offset}: {error}",
            hint="the record is not as a journal writes it; whoever replicates the topic can be told to skip it",
        ) from None
    if action is None:
        return None
    return ActionRecord(key, Place(topic_partition.partition, record.offset), record.timestamp_ms, action)


# --- the action header ------------------------------------------------------------------------------------------------


def encode_action_header(action: Action) -> bytes:
    """The JSON of an action header."""
    origin, version = action.origin, action.version
    match action:
        case Append():
            append = _Append(
                range=_Range(action.range.first, action.range.last),
                origin=origin,
                version=version,
                payload_type=action.payload_type,
                metadata=_Data(raw_data(action.header_data)),
                event_ids=action.event_ids or None,
                expect=_encoded(action.expect),
            )
            return _encode(_ActionHeader(append=append))
        case Mark():
            return _encode(_ActionHeader(mark=_Mark(action.id, origin, version)))
        case Delete():
            return _encode(_ActionHeader(delete=_Delete(action.to, origin, version, _encoded(action.expect))))
        case Purge():
            return _encode(_ActionHeader(purge=_Purge(origin, version, _encoded(action.expect))))


def decode_action_header(header: bytes, *, payload: bytes | None, headers: Headers = ()) -> Action | None:
    """The action of a header, of a record with this value and these headers; None: it is none that is known.

    Raises:
        DecodeError: it is not JSON, or not what an action of its name has to be.
    """
    try:
        decoded = _decode_header(header)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DecodeError(f"{ACTION_HEADER} is not an action: {error}") from None
    if decoded.append:
        return None if payload is None else _append(decoded.append, payload, headers)
    if mark := decoded.mark:
        return Mark(id=mark.id, origin=mark.origin, version=mark.version)
    if delete := decoded.delete:
        expect = _decoded(delete.expect)
        return Delete(to=delete.to, origin=delete.origin, version=delete.version, expect=expect)
    if purge := decoded.purge:
        return Purge(origin=purge.origin, version=purge.version, expect=_decoded(purge.expect))
    return None


def _append(append: _Append, payload: bytes, headers: Headers) -> Append:
    if append.range.first > append.range.last:
        raise DecodeError(f"the range {append.range.first} to {append.range.last} ends before it begins")
    return Append(
        range=SeqRange(SeqNr(append.range.first), SeqNr(append.range.last)),
        payload_type=append.payload_type,
        payload=payload,
        origin=append.origin,
        version=append.version,
        header_data=None if append.metadata is None else data_of(append.metadata.data),
        headers=_own_headers(headers),
        event_ids=append.event_ids or (),
        expect=_decoded(append.expect),
    )


def _own_headers(headers: Headers) -> Mapping[str, str]:
    """Those of the writer, as text: bytes that are no UTF-8 become U+FFFD, as for kafka-journal's readers."""
    return {name: (value or b"").decode(errors="replace") for name, value in headers if name != ACTION_HEADER}


def _encoded(expect: Expectation) -> _Expect | None:
    return None if expect.is_any else _Expect(expect.exists, expect.seq_nr, expect.record_id)


def _decoded(expect: _Expect | None) -> Expectation:
    if expect is None:
        return ANY
    seq_nr = None if expect.seq_nr is None else SeqNr(expect.seq_nr)
    return Expectation(exists=expect.exists, seq_nr=seq_nr, record_id=expect.record_id)


# --- the metadata column of a store -----------------------------------------------------------------------------------


def encode_row_metadata(metadata: RecordMetadata) -> str:
    """The text of the column.

    Raises:
        JournalInputError: one of the parts is not JSON.
    """
    expire_after = None if metadata.expire_after is None else print_expire_after(metadata.expire_after)
    payload = _PayloadMetadata(expire_after, raw_data(metadata.payload_data))
    return _encode(_RowMetadata(_Data(raw_data(metadata.header_data)), payload)).decode()


def decode_row_metadata(column: str | None) -> RecordMetadata:
    """What the column says; an older row has the metadata of the header alone.

    Raises:
        DecodeError: it is not as above.
    """
    if not column:
        return RecordMetadata()
    try:
        row = _decode_row_metadata(column)
    except msgspec.DecodeError as error:
        raise DecodeError(f"the metadata of an event is not as a journal writes it: {error}") from None
    payload = row.payload or _PayloadMetadata()
    return RecordMetadata(
        header_data=data_of(row.header.data if row.header else row.data),
        payload_data=data_of(payload.data),
        expire_after=None if payload.expire_after is None else parse_expire_after(payload.expire_after),
    )
