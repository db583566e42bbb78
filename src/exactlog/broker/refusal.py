"""The answer of any API to a request that is refused as a whole: the error in every place the answer has for one.

It is made from the declarations of the messages. An entry of the answer that has an error code belongs to the entry of
the request that is called by the same key, so that a client finds the error wherever it looks.
"""

from functools import cache
from typing import Any, Final

from msgspec import Struct

from exactlog.core.codec.message_schema import (
    ArrayOf,
    FieldSchema,
    Message,
    Structure,
    StructureOf,
    WireType,
    fields_of,
)
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.api_keys import APIS, ApiKey

_ERRORS: Final = frozenset({"error_code", "partition_error_code"})

# What an entry is called by; where its key has another name in the request, that one.
_KEYS: Final = {
    "group_id": "group_id",
    "group_instance_id": "group_instance_id",
    "index": "index",
    "key": "key",
    "member_id": "member_id",
    "name": "name",
    "partition": "partition",
    "partition_index": "partition",
    "producer_id": "producer_id",
    "resource_name": "resource_name",
    "resource_type": "resource_type",
    "topic": "topic",
    "topic_id": "topic_id",
    "transactional_id": "transactional_id",
}

# Where the declared default would be taken for a value.
_NOTHING: Final = dict.fromkeys(
    ("base_offset", "committed_offset", "high_watermark", "low_watermark", "node_id", "producer_epoch"), -1
)

_ERRORS_OF_FETCH_SESSIONS: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    }
)


class Refusal(Struct, frozen=True):
    """Why requests of a version are refused."""

    error_code: ErrorCode
    message: str
    version: int


def refuse(request: Message, refusal: Refusal) -> Message:
    """The answer that refuses a request: every error code in it says why, and every error message.

    Of a Fetch that names partitions these alone say it. The error at its top is one of its session, and a client that
    finds any there looks no further.
    """
    is_fetch_session_error = refusal.error_code in _ERRORS_OF_FETCH_SESSIONS
    values = _values(APIS[request.api_key].response, request, refusal)
    if request.api_key == ApiKey.FETCH and values["responses"] and not is_fetch_session_error:
        values.pop("error_code", None)
    return APIS[request.api_key].response(**values)


def _values(structure: type[Structure], asked: object, refusal: Refusal) -> dict[str, Any]:
    """The fields of a structure of the answer that are not as declared."""
    values: dict[str, Any] = {}
    for field in _fields(structure, refusal.version):
        if field.name in _ERRORS:
            values[field.name] = refusal.error_code
        elif field.name == "error_message":
            values[field.name] = refusal.message
        elif field.name in _NOTHING:
            values[field.name] = _NOTHING[field.name]
        elif isinstance(field.type, ArrayOf) and isinstance(field.type.element, StructureOf):
            values[field.name] = _entries(field.type.element.structure, asked, refusal)
    return values


def _entries(structure: type[Structure], asked: object, refusal: Refusal) -> tuple[Structure, ...]:
    """One entry for each that the request has; none where the answer tells no errors by entry, or nothing was named."""
    if not isinstance(asked, Structure) or not _tells_errors(structure, refusal.version):
        return ()
    for field in _fields(type(asked), refusal.version):
        if isinstance(field.type, ArrayOf):
            keys = _shared_keys(structure, field.type.element, refusal.version)
            if keys:
                named = getattr(asked, field.name) or ()
                return tuple(
                    structure(**_values(structure, one, refusal), **{key: _read(one, name) for key, name in keys})
                    for one in named
                )
    return ()


@cache
def _tells_errors(structure: type[Structure], version: int) -> bool:
    return any(
        field.name in _ERRORS
        or (
            isinstance(field.type, ArrayOf)
            and isinstance(field.type.element, StructureOf)
            and _tells_errors(field.type.element.structure, version)
        )
        for field in _fields(structure, version)
    )


@cache
def _shared_keys(answer: type[Structure], asked: WireType, version: int) -> tuple[tuple[str, str | None], ...]:
    """The key of an entry: the names of its fields in the answer and in the request; None: the plain entry itself."""
    keys = {field.name: field for field in _fields(answer, version) if field.name in _KEYS}
    if not isinstance(asked, StructureOf):
        return tuple((name, None) for name, field in keys.items() if field.type == asked)[:1]
    there = {field.name for field in _fields(asked.structure, version)}
    pairs = ((name, name if name in there else _KEYS[name]) for name in keys)
    return tuple((name, name_there) for name, name_there in pairs if name_there in there)


def _read(asked: object, name: str | None) -> Any:  # noqa: ANN401  the value of any field
    return asked if name is None else getattr(asked, name)


def _fields(structure: type[Structure], version: int) -> list[FieldSchema]:
    return [field for field in fields_of(structure) if version in field.versions]
