"""How a message of the Kafka protocol is declared: once, as a class whose fields say in which versions they exist.

    class EndTxnResponse(Message):
        api_key = 26
        versions = "0-5"
        flexible = "3+"

        throttle_time_ms: Annotated[Int32, Field(ignorable=True)] = 0
        error_code: Int16 = 0
        producer_id: Annotated[Int64, Field("5+", ignorable=True)] = -1
        producer_epoch: Annotated[Int16, Field("5+", ignorable=True)] = -1

The order of the fields is their order on the wire, and the default of a field is the protocol's. Arrays are tuples
(`tuple[Int32, ...]`), structures are classes of their own (`Structure`), `... | None` may be null.

Here the declarations are read. `message_codec` turns them into functions.
"""

from __future__ import annotations

from functools import cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    TypeAlias,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from exactlog.core.codec.wire_types import NO_VERSIONS, Field, Fixed, Sized, Versions, parse_versions
from exactlog.core.model.errors import InvariantError

_PLAIN = Field()


class _StructureMeta(msgspec.StructMeta):
    """Makes every structure frozen and keyword-only, and spares it the garbage collector.

    A structure holds numbers, texts, buffers and tuples of structures: it cannot be part of a cycle.
    """

    def __new__(  # noqa: PYI034  Self cannot be used in a metaclass
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], *, frozen: bool = True
    ) -> _StructureMeta:
        return super().__new__(cls, name, bases, namespace, frozen=frozen, kw_only=True, gc=False)


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Structure(msgspec.Struct, metaclass=_StructureMeta, frozen=True):
    """A group of fields inside a message."""


class Message(Structure):
    """A request or a response.

    Attributes:
        api_key: the number of the API.
        versions: the versions that are declared, as a range.
        flexible: the versions with compact types and tagged fields (KIP-482).
    """

    api_key: ClassVar[int]
    versions: ClassVar[str]
    flexible: ClassVar[str]


class ArrayOf(msgspec.Struct, frozen=True):
    """An array of elements of one type; its Python value is a tuple."""

    element: WireType


class StructureOf(msgspec.Struct, frozen=True):
    """A structure in a field, or the element of an array."""

    structure: type[Structure]


WireType: TypeAlias = Fixed | Sized | ArrayOf | StructureOf


class FieldSchema(msgspec.Struct, frozen=True):
    """One field of a structure, its annotation read.

    Attributes:
        name: of the attribute: Kafka's name in snake case.
        type: on the wire.
        versions: that have the field.
        nullable: versions, among those, in which it may be null.
        tag: its number where it is a tagged field.
        tagged: versions, among those, in which it is one.
        ignorable: whether a value may be dropped silently where the field is lacking.
        default: the value where the field is lacking or, tagged, not sent.
    """

    name: str
    type: WireType
    versions: Versions
    nullable: Versions
    tag: int | None
    tagged: Versions
    ignorable: bool
    default: object


@cache
def fields_of(structure: type[Structure]) -> tuple[FieldSchema, ...]:
    """The fields of a structure, in the order of the wire."""
    hints = get_type_hints(structure, include_extras=True)
    return tuple(
        _read_field(structure, field.name, hints[field.name], field.default)
        for field in msgspec.structs.fields(structure)
    )


def versions_of(message: type[Message]) -> Versions:
    """The versions of a message that are declared."""
    return parse_versions(message.versions)


def is_flexible(message: type[Message], version: int) -> bool:
    """Whether that version has compact types and tagged fields."""
    return version in parse_versions(message.flexible)


def holds_records(structure: type[Structure]) -> bool:
    """Whether a structure, or one inside it, has a field of records."""
    return any(_is_records(field.type) for field in fields_of(structure))


def _is_records(wire_type: WireType) -> bool:
    match wire_type:
        case ArrayOf(element):
            return _is_records(element)
        case StructureOf(structure):
            return holds_records(structure)
        case _:
            return wire_type == Sized("records")


def _read_field(structure: type[Structure], name: str, hint: object, default: object) -> FieldSchema:
    where = f"{structure.__name__}.{name}"
    if default is msgspec.NODEFAULT:
        raise InvariantError(f"{where} has no default")
    wire_type, is_optional = _read_type(hint, where)
    _, _, field = _split_annotation(hint)
    versions = parse_versions(field.versions)
    return FieldSchema(
        name=name,
        type=wire_type,
        versions=versions,
        nullable=_read_nullable(field, versions, is_optional=is_optional, where=where),
        tag=field.tag,
        tagged=_read_tagged(field, versions, where),
        ignorable=field.ignorable,
        default=default,
    )


def _split_annotation(hint: object) -> tuple[Any, Fixed | Sized | None, Field]:
    """What stands inside an annotation, the type of the protocol it names, and its `Field`."""
    inner, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    wire_type = next((mark for mark in marks if isinstance(mark, Fixed | Sized)), None)
    field = next((mark for mark in marks if isinstance(mark, Field)), _PLAIN)
    return inner, wire_type, field


def _read_type(hint: object, where: str) -> tuple[WireType, bool]:
    """The wire type of an annotation, and whether it may be null."""
    inner, wire_type, _ = _split_annotation(hint)
    if wire_type is not None:
        return wire_type, False
    if isinstance(inner, type) and issubclass(inner, Structure):
        return StructureOf(inner), False
    match get_origin(inner), get_args(inner):
        case origin, (element, last) if origin is tuple and last is ...:
            return ArrayOf(_read_type(element, where)[0]), False
        case origin, (first, second) if origin in {Union, UnionType} and second is NoneType:
            return _read_type(first, where)[0], True
        case _:
            raise InvariantError(f"{where} has no type of the protocol: {hint}")


def _read_nullable(field: Field, versions: Versions, *, is_optional: bool, where: str) -> Versions:
    if field.nullable is not None and not is_optional:
        raise InvariantError(f"{where} may be null in versions {field.nullable}, but not in Python")
    if not is_optional:
        return NO_VERSIONS
    return versions if field.nullable is None else parse_versions(field.nullable).within(versions)


def _read_tagged(field: Field, versions: Versions, where: str) -> Versions:
    if field.tag is None:
        if field.tagged is not None:
            raise InvariantError(f"{where} is tagged in versions {field.tagged}, but has no tag")
        return NO_VERSIONS
    return versions if field.tagged is None else parse_versions(field.tagged).within(versions)
