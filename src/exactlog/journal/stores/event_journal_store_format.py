"""What stands in the columns of a store's tables: kafka-journal's, and a few of ours.

    payload_type   "json", "text" or "binary"; null: the event carries nothing
    payload_txt    of json and text: the text
    payload_bin    of binary: the bytes
    metadata       of an event: JSON (event_journal_format.py); of a snapshot: JSON of its writer
    properties     of a head row: {"reset": "true"} where it began with a delete and has had no event since; else null
    record_id      the life of the journal; null, and in a key the zero UUID: from before there were such ids
    expire_after   in nanoseconds: a DURATION of nanoseconds, or an integer
    expire_on      a date, UTC

SQLite has no sets, maps, dates and UUIDs: there tags are a JSON array, headers a JSON object, and dates and UUIDs text.
The tables are on the page of the same name.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from exactlog.core.journal.payload import BinaryPayload, JsonPayload, Payload, TextPayload
from exactlog.core.model.errors import DecodeError
from exactlog.core.model.ids import ZERO_UUID

_RESET: Final = "reset"
_TRUE: Final = "true"

_encode: Final = msgspec.json.Encoder().encode
_decode_tags: Final = msgspec.json.Decoder(frozenset[str]).decode
_decode_headers: Final = msgspec.json.Decoder(dict[str, str]).decode


class PayloadColumns(NamedTuple):
    """A payload as `payload_type`, `payload_txt` and `payload_bin`."""

    kind: str | None = None
    text: str | None = None
    content: bytes | None = None


def payload_columns(payload: Payload | None) -> PayloadColumns:
    """The columns of a payload."""
    match payload:
        case None:
            return PayloadColumns()
        case TextPayload(content=text):
            return PayloadColumns("text", text)
        case JsonPayload(content=text):
            return PayloadColumns("json", text)
        case BinaryPayload(content=content):
            return PayloadColumns("binary", None, content)


def payload_of(columns: PayloadColumns) -> Payload | None:
    """The payload of the columns. A null beside a kind is an empty one: some programs write it so.

    Raises:
        DecodeError: the kind is none of the above.
    """
    match columns.kind:
        case None:
            return None
        case "text":
            return TextPayload(columns.text or "")
        case "json":
            return JsonPayload(columns.text or "")
        case "binary":
            return BinaryPayload(columns.content or b"")
        case kind:
            raise DecodeError(f'payload_type is "json", "text" or "binary", not {kind!r}')


def properties_column(*, is_reset: bool) -> Mapping[str, str] | None:
    """The column `properties` of a head row."""
    return {_RESET: _TRUE} if is_reset else None


def is_reset_by(properties: Mapping[str, str] | None) -> bool:
    """What the column says; what other programs keep there is passed over."""
    return properties is not None and properties.get(_RESET) == _TRUE


def life_in_key(record_id: UUID | None) -> UUID:
    """The id of a life where it is part of a key, which has no null."""
    return record_id or ZERO_UUID


def life_of_key(record_id: UUID) -> UUID | None:
    """The life that a part of a key names."""
    return None if record_id == ZERO_UUID else record_id


# --- what SQLite has no type for --------------------------------------------------------------------------------------


def tags_text(tags: frozenset[str]) -> str | None:
    """Tags as a JSON array, sorted; none of them: null."""
    return _encode(sorted(tags)).decode() if tags else None


def tags_of(text: str | None) -> frozenset[str]:
    """The tags that a text says.

    Raises:
        DecodeError: it is not an array of texts.
    """
    try:
        return frozenset() if text is None else _decode_tags(text)
    except msgspec.DecodeError as error:
        raise DecodeError(f"the tags of an event are not a JSON array of texts: {error}") from None


def headers_text(headers: Mapping[str, str]) -> str | None:
    """Headers as a JSON object; none of them: null."""
    return _encode(dict(headers)).decode() if headers else None


def headers_of(text: str | None) -> Mapping[str, str]:
    """The headers that a text says.

    Raises:
        DecodeError: it is not an object of texts.
    """
    try:
        return {} if text is None else _decode_headers(text)
    except msgspec.DecodeError as error:
        raise DecodeError(f"the headers of an event are not a JSON object of texts: {error}") from None


def uuid_text(value: UUID | None) -> str | None:
    """A UUID as text."""
    return None if value is None else str(value)


def uuid_of(text: str | None) -> UUID | None:
    """The UUID that a text says.

    Raises:
        DecodeError: it says none.
    """
    try:
        return None if text is None else UUID(text)
    except ValueError:
        raise DecodeError(f"{text!r} is not a UUID") from None
