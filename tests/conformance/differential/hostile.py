"""Requests with one value each that is not as it should be, made from the declarations of the messages.

`HOSTILE_VALUES` has the values by the kind of a field; `mutations` puts each of them into each field of a valid
request, one at a time, at any depth. In an array the first element is changed, and the array itself is emptied, made
null where that can be, and given its first element twice.
"""

import uuid
import zlib

from msgspec.structs import replace

from exactlog.core.codec.message_schema import ArrayOf, StructureOf, fields_of
from exactlog.core.codec.wire_types import Fixed, Sized

NOBODY = uuid.UUID("00000000-0000-4000-8000-000000000bad")

HOSTILE_VALUES = {
    "bytes": {"empty": b"", "garbage": b"\x00\xff" * 10},
    "records": {"empty": b"", "garbage": b"\x00\xff" * 40},
    "uuid": {"zero": uuid.UUID(int=0), "unknown": NOBODY, "reserved": uuid.UUID(int=1)},
    "int8": {"-128": -128, "-1": -1, "0": 0, "1": 1, "2": 2, "3": 3, "127": 127},
    "int16": {"lowest": -(2**15), "-2": -2, "-1": -1, "0": 0, "1": 1, "2": 2, "highest": 2**15 - 1},
    "int32": {"lowest": -(2**31), "-2": -2, "-1": -1, "0": 0, "1": 1, "7": 7, "highest": 2**31 - 1},
    "int64": {
        "lowest": -(2**63),
        **{str(number): number for number in (-7, -6, -5, -4, -3, -2, -1, 0, 1, 7)},
        "highest": 2**63 - 1,
    },
}
"""By kind of field: what to call a value, and the value. (Those of texts are made for each request.)"""


def mutations(request, version, *, unknown):
    """Yields what was changed and the changed request; `unknown` is a text that names nothing."""
    return Mutator(version, unknown).of_structure(request, "")


def sampled(name, version, *, share):
    """Whether a scenario is among one of `share` that are chosen, always the same ones."""
    return zlib.crc32(f"{name} {version}".encode()) % share == 0


class Mutator:
    """Changes requests of one version."""

    def __init__(self, version, unknown):
        self._version = version
        self._unknown = unknown

    def of_structure(self, structure, path):
        """Yields each changed structure, and what was changed."""
        for field in fields_of(type(structure)):
            if self._version not in field.versions:
                continue
            value = getattr(structure, field.name)
            where = f"{path}.{field.name}" if path else field.name
            for label, changed in self._of_value(field.type, value, where):
                yield label, replace(structure, **{field.name: changed})
            if self._version in field.nullable and value is not None:
                yield f"{where} null", replace(structure, **{field.name: None})

    def _of_value(self, wire_type, value, where):
        match wire_type:
            case ArrayOf(element):
                yield from self._of_array(element, value, where)
            case StructureOf() if value is not None:
                yield from self.of_structure(value, where)
            case Fixed(name="bool"):
                yield f"{where} {not value}", not value
            case Fixed(name=name) | Sized(name=name):
                for label, changed in self._hostile_values(name, where).items():
                    if changed != value:
                        yield f"{where} {label}", changed

    def _hostile_values(self, name, where):
        if name == "string":
            # Each scenario has its own: what one leaves behind under such a name is nothing to the next.
            return {
                "empty": "",
                "unknown": self._unknown,
                "too long": self._unknown + "x" * 250,
                "forbidden": self._unknown + "/",
                "not ascii": self._unknown + "å",
            } | ({"dots": ".."} if "name" in where or "topic" in where else {})
        if where.endswith(("timeout_ms", "duration_filter")):  # whether a few milliseconds are enough is chance
            return {label: number for label, number in HOSTILE_VALUES[name].items() if number <= 0 or number > 7}
        if where.endswith("producer_id"):  # small ones are those of other scenarios, or the very one
            return {label: number for label, number in HOSTILE_VALUES[name].items() if number < 0 or number > 7}
        return HOSTILE_VALUES[name]

    def _of_array(self, element, items, where):
        if items != ():
            yield f"{where} empty", ()
        if not items:
            return
        yield f"{where} twice", (items[0], *items)
        for label, changed in self._of_value(element, items[0], f"{where}[0]"):
            yield label, (changed, *items[1:])
