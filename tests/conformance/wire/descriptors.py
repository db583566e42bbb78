"""Apache Kafka's own descriptions of its messages, out of a client jar, in the shape of our declarations.

A descriptor is JSON with comments. Here it becomes, for one version of a message, two lists: the fields that version
has, and the ones it lacks. The same lists are made of our declarations.
"""

import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Self
from uuid import UUID

from exactlog.core.codec.message_schema import ArrayOf, FieldSchema, Structure, StructureOf, WireType, fields_of
from exactlog.core.codec.wire_types import Versions, parse_versions
from exactlog.core.protocol.messages.produce import FIRST_TAG_OF_OUR_OWN


class Present(NamedTuple):
    """A field in a version that has it."""

    path: str
    type: str
    is_nullable: bool
    tag: int | None
    default: object


class Absent(NamedTuple):
    """A field in a version that lacks it."""

    path: str
    is_ignorable: bool


class Descriptor:
    """The description of one message; `renamed` holds the present names of fields that once had others.

    Attributes:
        api_key: of its API.
        versions: that are valid.
        stable: versions that are valid and not marked as unstable.
        flexible: versions that are flexible.
    """

    def __init__(self, text: str, *, renamed: Mapping[str, str] = MappingProxyType({})) -> None:
        self._renamed = renamed
        self._json = json.loads(re.sub(r"^\s*//.*$|(?<=[\s,{}\[\]])//.*$", "", text, flags=re.MULTILINE))
        self._structures = {common["name"]: common["fields"] for common in self._json.get("commonStructs", ())}
        self.api_key = self._json["apiKey"]
        self.versions = parse_versions(self._json["validVersions"])
        self.flexible = parse_versions(self._json["flexibleVersions"])
        unstable = 1 if self._json.get("latestVersionUnstable", False) else 0
        self.stable = Versions(self.versions.lowest, self.versions.highest - unstable)

    def present(self, version: int) -> list[Present]:
        """The fields of that version, in the order of the wire; those of a structure behind it."""
        return list(self._present(self._json["fields"], version, ""))

    def absent(self, version: int, declared: Versions) -> set[Absent]:
        """The fields that version lacks and some other declared version has, inside structures that it has."""
        return set(self._absent(self._json["fields"], version, declared, ""))

    def paths(self) -> set[str]:
        """All fields of any version."""
        return set(self._paths(self._json["fields"], ""))

    def _present(self, fields: list[Any], version: int, path: str) -> Iterator[Present]:
        for field in fields:
            if version in _versions(field, "versions"):
                is_tagged = version in _versions(field, "taggedVersions")
                is_nullable = version in _versions(field, "nullableVersions")
                kind = _kind(field["type"])
                inside = path + self._name(field)
                tag = field["tag"] if is_tagged else None
                yield Present(inside, kind, is_nullable, tag, _default(field, kind))
                yield from self._present(self._inner(field), version, f"{inside}.")

    def _absent(self, fields: list[Any], version: int, declared: Versions, path: str) -> Iterator[Absent]:
        for field in fields:
            inside = path + self._name(field)
            versions = _versions(field, "versions").within(declared)
            if version in versions:
                yield from self._absent(self._inner(field), version, versions, f"{inside}.")
            elif versions.lowest <= versions.highest:
                yield Absent(inside, field.get("ignorable", False))

    def _paths(self, fields: list[Any], path: str) -> Iterator[str]:
        for field in fields:
            inside = path + self._name(field)
            yield inside
            yield from self._paths(self._inner(field), f"{inside}.")

    def _name(self, field: Any) -> str:
        name = snake_case(field["name"])
        return self._renamed.get(name, name)

    def _inner(self, field: Any) -> list[Any]:
        return field.get("fields") or self._structures.get(field["type"].removeprefix("[]"), [])


class Jar:
    """The descriptors of a client jar."""

    def __init__(self, path: Path) -> None:
        self._zip = zipfile.ZipFile(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    def descriptor(self, name: str, *, renamed: Mapping[str, str] = MappingProxyType({})) -> Descriptor:
        """The description of the message of that name."""
        return Descriptor(self._zip.read(f"common/message/{name}.json").decode(), renamed=renamed)


def kafkas_fields(structure: type[Structure]) -> list[FieldSchema]:
    """The fields we declare, without those that are not Kafka's: these have tags that Kafka does not reach."""
    return [field for field in fields_of(structure) if field.tag is None or field.tag < FIRST_TAG_OF_OUR_OWN]


def declared_present(structure: type[Structure], version: int, path: str = "") -> Iterator[Present]:
    """The fields that our declaration has in that version, but for our own."""
    for field in kafkas_fields(structure):
        if version in field.versions:
            inside = path + field.name
            tag = field.tag if version in field.tagged else None
            default = "{}" if isinstance(field.default, Structure) else field.default
            yield Present(inside, _declared_kind(field.type), version in field.nullable, tag, default)
            if inner := _structure_in(field.type):
                yield from declared_present(inner, version, f"{inside}.")


def declared_absent(structure: type[Structure], version: int, declared: Versions, path: str = "") -> Iterator[Absent]:
    """The fields that our declaration lacks in that version, but for our own."""
    for field in kafkas_fields(structure):
        inside = path + field.name
        if version not in field.versions:
            yield Absent(inside, field.ignorable)
        elif inner := _structure_in(field.type):
            yield from declared_absent(inner, version, field.versions.within(declared), f"{inside}.")


def snake_case(name: str) -> str:
    """`NumPartitions` and `IsrNodes` as `num_partitions` and `isr_nodes`."""
    parted = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", parted).lower()


def _versions(field: Any, key: str) -> Versions:
    return parse_versions(field.get(key, "none"))


def _kind(name: str) -> str:
    base = name.removeprefix("[]")
    return name[: len(name) - len(base)] + (base if base[0].islower() else "structure")


def _default(field: Any, kind: str) -> object:
    text = field.get("default")
    if text == "null":
        return None
    if kind.startswith("[]"):
        return ()
    match kind:
        case "structure":
            return "{}"
        case "bool":
            return str(text).lower() == "true"
        case "uuid":
            return UUID(int=0)
        case "bytes" | "records":
            return b""
        case "string":
            return text or ""
        case "float64":
            return float(text or 0)
        case _:
            return int(str(text or 0), 0)


def _declared_kind(wire_type: WireType) -> str:
    match wire_type:
        case ArrayOf(element):
            return f"[]{_declared_kind(element)}"
        case StructureOf():
            return "structure"
        case _:
            return wire_type.name


def _structure_in(wire_type: WireType) -> type[Structure] | None:
    match wire_type:
        case ArrayOf(element):
            return _structure_in(element)
        case StructureOf(structure):
            return structure
        case _:
            return None
