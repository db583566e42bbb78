"""Events as Python objects: what of them goes into the log, and what comes back.

| object | in the log | comes back as |
|---|---|---|
| `None` | nothing | `None` |
| `str` | text | `str` |
| `bytes` | bytes | `bytes` |
| a `msgspec.Struct` with a tag, where its type is known | JSON, with the tag | the type |
| another `msgspec.Struct`, a dataclass, a model of pydantic | JSON with its type's name as `type` | the type |
| `dict`, `list`, numbers, `bool` | JSON | the same |

JSON of a type that the reader was not told of comes back as a `dict`.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol, TypeGuard

import msgspec

from exactlog.core.journal.errors import JournalInputError
from exactlog.core.journal.payload import BinaryPayload, JsonPayload, Payload, TextPayload
from exactlog.core.model.errors import DecodeError

TYPE_FIELD: Final = "type"
"""The member of JSON that names the type."""


class EventCodec(Protocol):
    """How events become payloads, and payloads events again."""

    def encode(self, event: object) -> Payload | None:
        """The payload of an event. Raises `JournalInputError` where it has none."""

    def decode(self, payload: Payload | None) -> object:
        """The event of a payload. Raises `DecodeError` where it is not what it says."""


class _Model(Protocol):
    """What pydantic's models have, as far as it is needed here."""

    def model_dump(self, *, mode: str) -> dict[str, Any]: ...
    @classmethod
    def model_validate(cls, value: object) -> object: ...


class TypedEvents:
    """The `EventCodec` of the table above, for some types.

    Args:
        types: that are to come back as they went in: structs, dataclasses, models.

    Raises:
        JournalInputError: two of them have the same name.
    """

    def __init__(self, types: Iterable[type] = ()) -> None:
        self._types: dict[tuple[str, str], type] = {}
        for kind in types:
            name = _name_of(kind)
            if self._types.setdefault(name, kind) is not kind:
                raise JournalInputError(f"two types of events are called {name[1]!r}", hint="give one another tag")

    def encode(self, event: object) -> Payload | None:
        """See `EventCodec`."""
        match event:
            case None:
                return None
            case BinaryPayload() | TextPayload() | JsonPayload():
                return event
            case str():
                return TextPayload(event)
            case bytes() | bytearray() | memoryview():
                return BinaryPayload(bytes(event))
            case _:
                return JsonPayload.of(_with_type(event))

    def decode(self, payload: Payload | None) -> object:
        """See `EventCodec`."""
        match payload:
            case None:
                return None
            case JsonPayload():
                return self._typed(payload.value())
            case _:
                return payload.content

    def _typed(self, value: object) -> object:
        if not isinstance(value, dict):
            return value
        for (field, name), kind in self._types.items():
            if value.get(field) == name:
                return _object_of(kind, value, field)
        return value


def _name_of(kind: type) -> tuple[str, str]:
    """The member of JSON that says it is of this type, and what it says."""
    if issubclass(kind, msgspec.Struct):
        config = kind.__struct_config__
        if config.tag is not None:
            return config.tag_field or TYPE_FIELD, str(config.tag)
    elif not dataclasses.is_dataclass(kind) and not hasattr(kind, "model_validate"):
        raise JournalInputError(
            f"{kind.__name__} is no type of events", hint="pass msgspec structs, dataclasses or pydantic models"
        )
    return TYPE_FIELD, kind.__name__


def _with_type(event: object) -> object:
    """What JSON is to say of an event."""
    if isinstance(event, msgspec.Struct) and type(event).__struct_config__.tag is not None:
        return event
    if isinstance(event, msgspec.Struct) or (dataclasses.is_dataclass(event) and not isinstance(event, type)):
        try:
            members = msgspec.to_builtins(event)
        except (TypeError, ValueError) as error:
            raise JournalInputError(f"this {type(event).__name__} has no JSON form: {error}") from error
    elif _is_model(event):
        members = event.model_dump(mode="json")
    else:
        return event
    if not isinstance(members, Mapping) or TYPE_FIELD in members:
        raise JournalInputError(
            f"{type(event).__name__} cannot be told apart in JSON: {TYPE_FIELD!r} is for the name of the type",
            hint="give the struct a tag of its own, or the member another name",
        )
    return {TYPE_FIELD: type(event).__name__, **members}


def _object_of(kind: type, value: dict[str, object], field: str) -> object:
    is_tagged = issubclass(kind, msgspec.Struct) and kind.__struct_config__.tag is not None
    members = value if is_tagged else {name: member for name, member in value.items() if name != field}
    try:
        if hasattr(kind, "model_validate"):
            return kind.model_validate(members)
        return msgspec.convert(members, kind)
    except (msgspec.ValidationError, ValueError) as error:
        raise DecodeError(f"an event is not what {kind.__name__} says: {error}") from error


def _is_model(event: object) -> TypeGuard[_Model]:
    return hasattr(event, "model_dump") and hasattr(type(event), "model_validate")
