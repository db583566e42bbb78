"""The types of the Kafka protocol, as annotations for the fields of messages.

Source: the protocol guide of Apache Kafka ("Protocol Primitive Types"), KIP-482 for compact types and tagged fields.
All integers are big-endian.

    type        bytes                                   flexible versions
    bool        1, zero is false                        same
    int8..64    1, 2, 4, 8                              same
    uint16, 32  2, 4                                    same
    float64     8                                       same
    uuid        16                                      same
    string      int16 length, UTF-8                     unsigned varint of length + 1, UTF-8
    bytes       int32 length, bytes                     unsigned varint of length + 1, bytes
    records     as bytes, decoded without a copy        same
    array       int32 count, elements                   unsigned varint of count + 1, elements
    structure   its fields; where nullable, an int8     its fields, then its tagged fields; the same int8
                of 1 before, or of -1 alone for null

Null is a length or count of -1, which is a varint of 0 in flexible versions.
"""

from __future__ import annotations

from struct import calcsize
from typing import Annotated, Final, TypeAlias
from uuid import UUID

from msgspec import Struct

API_VERSION_MAX: Final = 32_767  # versions travel as int16
STRING_BYTES_MAX: Final = 32_767  # Kafka's bound, in compact strings too

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes to read from or to send; a memoryview must be one of bytes, in one piece."""


class Versions(Struct, frozen=True):
    """A range of versions, both ends inclusive; empty when the lowest is above the highest."""

    lowest: int
    highest: int

    def __contains__(self, version: int) -> bool:
        return self.lowest <= version <= self.highest

    def within(self, other: Versions) -> Versions:
        """The versions that are in both ranges."""
        return Versions(max(self.lowest, other.lowest), min(self.highest, other.highest))


NO_VERSIONS: Final = Versions(0, -1)


def parse_versions(text: str) -> Versions:
    """The range written as Kafka writes it: `"3"`, `"0-5"`, `"3+"` or `"none"`."""
    if text == "none":
        return NO_VERSIONS
    if text.endswith("+"):
        return Versions(int(text[:-1]), API_VERSION_MAX)
    lowest, _, highest = text.partition("-")
    return Versions(int(lowest), int(highest or lowest))


class Fixed(Struct, frozen=True):
    """A type that always takes the same number of bytes.

    Attributes:
        name: Kafka's name of the type.
        code: how the `struct` module writes it.
    """

    name: str
    code: str

    @property
    def size(self) -> int:
        """The bytes it takes."""
        return calcsize(">" + self.code)


class Sized(Struct, frozen=True):
    """A type written as its length in bytes, then the bytes: `string`, `bytes` or `records`."""

    name: str


class Field(Struct, frozen=True):
    """What one field of a message adds to its type; a field without one is there in all versions, and plain.

    Attributes:
        versions: the versions of the message that have the field.
        nullable: the versions in which a field typed `... | None` may be null; all of its versions when left out.
        tag: the number of a tagged field.
        tagged: the versions in which it is a tagged field; all of its versions when left out.
        ignorable: whether a value is left out silently in a version that lacks the field. Where it is not, only the
            default can be encoded there.
    """

    versions: str = "0+"
    nullable: str | None = None
    tag: int | None = None
    tagged: str | None = None
    ignorable: bool = False


Bool: TypeAlias = Annotated[bool, Fixed("bool", "?")]
Int8: TypeAlias = Annotated[int, Fixed("int8", "b")]
Int16: TypeAlias = Annotated[int, Fixed("int16", "h")]
Int32: TypeAlias = Annotated[int, Fixed("int32", "i")]
Int64: TypeAlias = Annotated[int, Fixed("int64", "q")]
Uint16: TypeAlias = Annotated[int, Fixed("uint16", "H")]
Uint32: TypeAlias = Annotated[int, Fixed("uint32", "I")]
Float64: TypeAlias = Annotated[float, Fixed("float64", "d")]
Uuid: TypeAlias = Annotated[UUID, Fixed("uuid", "16s")]
String: TypeAlias = Annotated[str, Sized("string")]
Bytes: TypeAlias = Annotated[bytes, Sized("bytes")]
Records: TypeAlias = Annotated[Buffer, Sized("records")]
