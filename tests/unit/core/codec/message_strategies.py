"""Hypothesis strategies for messages: any value that one version of a message can carry."""

from collections.abc import Callable
from functools import cache
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from exactlog.core.codec.message_schema import (
    ArrayOf,
    FieldSchema,
    Message,
    Structure,
    StructureOf,
    WireType,
    fields_of,
    versions_of,
)
from exactlog.core.codec.wire_types import Fixed, Sized
from exactlog.core.protocol.api_keys import APIS

MESSAGES = [message for api in APIS.values() for message in (api.request, api.response)]
MESSAGES_AND_VERSIONS = [
    (message, version)
    for message in MESSAGES
    for version in range(versions_of(message).lowest, versions_of(message).highest + 1)
]

# A property of all messages in all versions has several hundred cases: a twentieth of the examples each.
FEW_EXAMPLES = settings(max_examples=max(5, settings().max_examples // 20))

# What to draw for a number, where not all values will do: asked with the name of the field.
Numbers = Callable[[str], SearchStrategy | None]

# Surrogates have no UTF-8; 40 characters are enough to pass one-byte varints (four bytes each).
_TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
_BLOBS = st.binary(max_size=40) | st.sampled_from([b"", b"\x00" * 200, b"\x01" * 5_000])
_BITS = {"b": 8, "h": 16, "i": 32, "q": 64}


def name_of(case):
    """The name of a test case: `FetchRequest-v12`."""
    message, version = case
    return f"{message.__name__}-v{version}"


def any_number(name: str) -> None:
    """No restriction."""


def messages(message: type[Message], version: int, numbers: Numbers = any_number) -> SearchStrategy:
    """Messages whose every field of that version is drawn; fields the version lacks keep their defaults."""
    return _structures(message, version, numbers)


def messages_of_any_kind() -> SearchStrategy:
    """A message together with a version that can carry it."""
    return st.sampled_from(MESSAGES_AND_VERSIONS).flatmap(lambda case: st.tuples(messages(*case), st.just(case[1])))


@cache
def _structures(structure: type[Structure], version: int, numbers: Numbers) -> SearchStrategy:
    fields = [field for field in fields_of(structure) if version in field.versions]
    return st.builds(structure, **{field.name: _field(field, version, numbers) for field in fields})


def _field(field: FieldSchema, version: int, numbers: Numbers) -> SearchStrategy:
    values = _values(field.type, field.name, version, numbers)
    if version in field.nullable:
        values = st.none() | values
    return values if field.tag is None else st.just(field.default) | values


def _values(wire_type: WireType, name: str, version: int, numbers: Numbers) -> SearchStrategy:
    match wire_type:
        case Fixed("uuid"):
            return st.integers(0, 2**128 - 1).map(lambda number: UUID(int=number))
        case Fixed("bool"):
            return st.booleans()
        case Fixed("float64"):
            return st.floats(allow_nan=False)
        case Fixed("uint16" | "uint32" as kind):
            return st.integers(0, 2 ** int(kind.removeprefix("uint")) - 1)
        case Fixed(code=code):
            bits = _BITS[code]
            some = numbers(name)
            return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if some is None else some
        case Sized("string"):
            return _TEXTS
        case Sized():
            return _BLOBS
        case ArrayOf(element):
            return st.lists(_values(element, name, version, numbers), max_size=3).map(tuple)
        case StructureOf(structure):
            return _structures(structure, version, numbers)
