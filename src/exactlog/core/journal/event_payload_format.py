"""The value of an append: its events, in one of two forms. All integers are big-endian.

    JSON, when no event has bytes
    {"events": [{"seqNr": 1, "tags": ["a"], "payloadType"?: "json"|"text", "payload"?: ...}],
     "metadata": {"expireAfter"?: "30 days", "data"?: ...}}

    binary, when one has
    uint8   version        1; 0: without metadata
    int32   event_count
            then for each event:
    int32   length         of the rest of the event, in bytes
    int64   seq_nr
    int32   tags_length    of all tags, in bytes
            each tag: int32 length, UTF-8
    uint8   kind           0 none, 1 binary, 2 json, 3 text
    int32   payload_length
    bytes   payload
            then, in version 1:
    bytes   metadata       the JSON of `metadata` as above, to the end

The layout is kafka-journal's. A first byte of any other version is read as version 0, as it does; a payload without
`payloadType` is JSON; `metadata` may be missing.
"""

import struct
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from exactlog.core.journal.actions import PayloadType
from exactlog.core.journal.errors import JournalInputError
from exactlog.core.journal.events import Event
from exactlog.core.journal.expire_after_text import parse_expire_after, print_expire_after
from exactlog.core.journal.expiry import ExpireAfter
from exactlog.core.journal.json_text import data_of, raw_data, raw_json, text_of
from exactlog.core.journal.keys import SEQ_NR_MAX, SEQ_NR_MIN, SeqNr
from exactlog.core.journal.payload import BinaryPayload, JsonPayload, Payload, TextPayload
from exactlog.core.model.errors import DecodeError

VERSION: Final = 1
_LENGTH_MAX: Final = 2**31 - 1
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_START: Final = struct.Struct(">Bi")
_EVENT_BYTES_MIN: Final = 4 + 8 + 4 + 1 + 4

_NONE, _BINARY, _JSON, _TEXT = range(4)
_SeqNr = Annotated[int, msgspec.Meta(ge=SEQ_NR_MIN, le=SEQ_NR_MAX)]


class AppendPayload(Struct, frozen=True):
    """What the value of an append says.

    Attributes:
        events: in the order of their numbers.
        data: what the writer says of them, a JSON value as text.
        expire_after: the time to live that the append gives its journal.
    """

    events: tuple[Event, ...]
    data: str | None = None
    expire_after: ExpireAfter | None = None


class _Event(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    seq_nr: _SeqNr
    tags: tuple[str, ...]
    payload_type: str | None = None
    payload: msgspec.Raw | UnsetType = UNSET


class _ReadEvent(_Event, frozen=True, rename="camel"):
    tags: tuple[str, ...] = ()


class _Metadata(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    expire_after: str | int | None = None
    data: msgspec.Raw | UnsetType = UNSET


class _Payload(msgspec.Struct, frozen=True):
    events: tuple[_Event, ...]
    metadata: _Metadata


class _ReadPayload(msgspec.Struct, frozen=True):
    events: tuple[_ReadEvent, ...]
    metadata: _Metadata | None = None


_encode: Final = msgspec.json.Encoder().encode
_decode_payload: Final = msgspec.json.Decoder(_ReadPayload).decode
_decode_metadata: Final = msgspec.json.Decoder(_Metadata).decode
_decode_text: Final = msgspec.json.Decoder(str).decode


def encode_payload(payload: AppendPayload) -> tuple[PayloadType, bytes]:
    """The value of an append, and which form it has.

    Raises:
        JournalInputError: JSON of an event or of the metadata is none, or an event is longer than 2 GiB.
    """
    if any(isinstance(event.payload, BinaryPayload) for event in payload.events):
        return PayloadType.BINARY, _encode_binary(payload)
    events = tuple(_json_event(event) for event in payload.events)
    return PayloadType.JSON, _encode(_Payload(events, _metadata(payload)))


def decode_payload(payload_type: PayloadType, value: bytes) -> AppendPayload:
    """What the value of an append says.

    Raises:
        DecodeError: it is not as above.
    """
    if payload_type is PayloadType.BINARY:
        return _decode_binary(value)
    try:
        decoded = _decode_payload(value)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DecodeError(f"the events of an append cannot be read: {error}") from None
    return _payload_of(tuple(_event_of(event) for event in decoded.events), decoded.metadata)


def _payload_of(events: tuple[Event, ...], metadata: _Metadata | None) -> AppendPayload:
    if metadata is None:
        return AppendPayload(events)
    written = metadata.expire_after
    return AppendPayload(
        events,
        data=data_of(metadata.data),
        expire_after=None if written is None else parse_expire_after(written),
    )


def _metadata(payload: AppendPayload) -> _Metadata:
    return _Metadata(
        None if payload.expire_after is None else print_expire_after(payload.expire_after),
        raw_data(payload.data),
    )


# --- JSON -------------------------------------------------------------------------------------------------------------


def _json_event(event: Event) -> _Event:
    tags = tuple(sorted(event.tags))
    match event.payload:
        case JsonPayload(content):
            return _Event(event.seq_nr, tags, "json", raw_json(content, what=f"event {event.seq_nr}"))
        case TextPayload(content):
            return _Event(event.seq_nr, tags, "text", msgspec.Raw(_encode(content)))
        case _:
            return _Event(event.seq_nr, tags)


def _event_of(event: _Event) -> Event:
    payload: Payload | None = None
    text = None if event.payload is UNSET else text_of(event.payload)
    if text is not None:
        match event.payload_type:
            case "text":
                payload = TextPayload(_text_payload(event.seq_nr, text))
            case "json":
                payload = JsonPayload(text)
            case None:
                payload = None if text == "null" else JsonPayload(text)
            case other:
                raise DecodeError(f"event {event.seq_nr}: a payload cannot be of type {other!r}")
    return Event(SeqNr(event.seq_nr), payload, frozenset(event.tags))


def _text_payload(seq_nr: int, text: str) -> str:
    try:
        return _decode_text(text)
    except msgspec.DecodeError as error:
        raise DecodeError(f"event {seq_nr}: its payload is not text: {error}") from None


# --- binary -----------------------------------------------------------------------------------------------------------


def _encode_binary(payload: AppendPayload) -> bytes:
    parts = [_START.pack(VERSION, len(payload.events))]
    for event in payload.events:
        encoded = _encode_binary_event(event)
        if len(encoded) > _LENGTH_MAX:
            raise JournalInputError(f"event {event.seq_nr} takes {len(encoded)} bytes, more than can be written")
        parts += (_INT32.pack(len(encoded)), encoded)
    parts.append(_encode(_metadata(payload)))
    return b"".join(parts)


def _encode_binary_event(event: Event) -> bytes:
    tags = b"".join(_INT32.pack(len(tag)) + tag for tag in sorted(tag.encode() for tag in event.tags))
    kind, content = _kind_and_content(event)
    return b"".join(
        (_INT64.pack(event.seq_nr), _INT32.pack(len(tags)), tags, bytes([kind]), _INT32.pack(len(content)), content)
    )


def _kind_and_content(event: Event) -> tuple[int, bytes]:
    match event.payload:
        case BinaryPayload(content):
            return _BINARY, content
        case JsonPayload(text):
            return _JSON, bytes(raw_json(text, what=f"event {event.seq_nr}"))
        case TextPayload(text):
            return _TEXT, text.encode()
        case None:
            return _NONE, b""


def _decode_binary(value: bytes) -> AppendPayload:
    try:
        version, count = _START.unpack_from(value)
        if not 0 <= count <= (len(value) - _START.size) // _EVENT_BYTES_MIN:
            raise DecodeError(f"an append of {len(value)} bytes claims {count} events")
        at = _START.size
        events = []
        for _ in range(count):
            content, at = _sized(value, at)
            events.append(_decode_binary_event(content))
        metadata = _decode_metadata(value[at:]) if version == VERSION else None
    except (struct.error, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise DecodeError(f"the events of an append cannot be read: {error}") from None
    return _payload_of(tuple(events), metadata)


def _decode_binary_event(content: bytes) -> Event:
    (seq_nr,) = _INT64.unpack_from(content)
    if seq_nr < SEQ_NR_MIN:
        raise DecodeError(f"an event has number {seq_nr}")
    tag_block, at = _sized(content, _INT64.size)
    tags = []
    tag_at = 0
    while tag_at < len(tag_block):
        tag, tag_at = _sized(tag_block, tag_at)
        tags.append(tag.decode())
    kind = content[at : at + 1]
    body, _ = _sized(content, at + 1)
    payload: Payload | None
    match kind:
        case b"\x00":
            payload = None
        case b"\x01":
            payload = BinaryPayload(body)
        case b"\x02":
            payload = JsonPayload(body.decode())
        case b"\x03":
            payload = TextPayload(body.decode())
        case _:
            raise DecodeError(f"event {seq_nr}: its payload is of kind {kind[0]}, which is none")
    return Event(SeqNr(seq_nr), payload, frozenset(tags))


def _sized(content: bytes, at: int) -> tuple[bytes, int]:
    """The bytes behind their length, and where what follows them begins."""
    (length,) = _INT32.unpack_from(content, at)
    start = at + _INT32.size
    end = start + length
    if not start <= end <= len(content):
        raise DecodeError(f"{length} bytes are claimed, {len(content) - start} are left")
    return content[start:end], end
