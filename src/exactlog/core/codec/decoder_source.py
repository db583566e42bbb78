"""Writes the decoder of one message in one version as Python source.

What it writes reads like a decoder written by hand for that version. Numbers that follow each other are unpacked in one
call, together with the length or count behind them; structures are read in line. Every length is checked against the
bytes that are left before anything is made of it. A varint is first taken for the single byte it nearly always is.
"""

import struct
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, Final
from uuid import UUID

from exactlog.core.codec.message_schema import (
    ArrayOf,
    FieldSchema,
    Message,
    Structure,
    StructureOf,
    WireType,
    fields_of,
    holds_records,
)
from exactlog.core.codec.source_writer import SourceWriter, array_layout
from exactlog.core.codec.varint import continue_uvarint, skip_tagged_fields
from exactlog.core.codec.wire_types import STRING_BYTES_MAX, Buffer, Fixed, Sized
from exactlog.core.model.errors import DecodeError
from exactlog.core.model.limits import UUIDS_CACHED_MAX

_RESERVED: Final = ("buffer", "offset", "limit", "view", "end", "len", "range", "tuple", "bytes", "memoryview", "type")


def write_decoder(message: type[Message], version: int, *, from_view: bool) -> tuple[str, dict[str, object]]:
    """The source of `decode(buffer, offset) -> (message, end offset)`, and the globals it needs.

    Args:
        message: what to decode.
        version: of the API.
        from_view: whether the buffer is a memoryview, whose slices are texts only after a copy.
    """
    writer = _DecoderWriter(message, version, from_view=from_view)
    writer.write(message)
    return writer.source, writer.namespace


def bad_size(where: str, size: int, left: int) -> DecodeError:
    """The error for a length or count that cannot be true: null where it may not be, negative, or more than is left."""
    if size == -1:
        return DecodeError(f"{where} is null")
    if size < 0:
        return DecodeError(f"{where} has the size {size}")
    return DecodeError(f"{where} claims a size of {size}, with {left} bytes left")


@lru_cache(maxsize=UUIDS_CACHED_MAX)
def decode_uuid(encoded: bytes) -> UUID:
    """The UUID of 16 bytes. Making one takes longer than the rest of a message, and topic ids come again and again."""
    return UUID(bytes=encoded)


class _DecoderWriter(SourceWriter):
    def __init__(self, message: type[Message], version: int, *, from_view: bool) -> None:
        super().__init__(message, version, reserved=_RESERVED)
        self._from_view = from_view
        # Values of fixed size that follow each other: read together, as soon as one of them is needed.
        self._run: list[tuple[Fixed, str]] = []
        self.constant("_DecodeError", DecodeError)
        self.constant("_bad_size", bad_size)
        self.constant("_continue_uvarint", continue_uvarint)

    def write(self, message: type[Message]) -> None:
        self.constant("_StructError", struct.error)
        with self.block("def decode(buffer, offset=0):"):
            if not self._from_view:
                with self.block("if type(buffer) is memoryview:"):
                    self.line("return _decode_view(buffer, offset)")
            with self.block("try:"):
                self.line("limit = len(buffer)")
                if holds_records(message):
                    self.line("view = buffer" if self._from_view else "view = memoryview(buffer)")
                self.line(f"return {self._structure(message, '')}, offset")
            with self.block("except (_StructError, IndexError) as error:"):
                self._raise(" is cut short", cause="error")
            with self.block("except OverflowError as error:"):
                self._raise(" has a varint longer than 32 bits", cause="error")
            with self.block("except UnicodeDecodeError as error:"):
                self._raise(" holds text that is not UTF-8", cause="error")

    # --- structures -------------------------------------------------------------------------------------------

    def _structure(self, structure: type[Structure], path: str) -> str:
        """Read all fields; the answer is the expression that makes the structure of them."""
        arguments = []
        tagged: dict[str, FieldSchema] = {}
        for field in fields_of(structure):
            if self.version not in field.versions:
                continue
            variable = self.variable(field.name)
            arguments.append(f"{field.name}={variable}")
            if self.is_tagged(field):
                tagged[variable] = field
            else:
                self._field(field, variable, path)
        if self.is_flexible:
            self._tagged_fields(tagged, path)
        self._flush()
        return f"{self.constant(structure.__name__, structure)}({', '.join(arguments)})"

    def _field(self, field: FieldSchema, variable: str, path: str) -> None:
        self._value(field.type, variable, is_nullable=self.version in field.nullable, path=f"{path}{field.name}")

    def _tagged_fields(self, fields: dict[str, FieldSchema], path: str) -> None:
        for variable, field in fields.items():
            self.line(f"{variable} = {self._default(field)}")
        count = self._fixed("B", "tag_count")
        self._flush()
        with self.block(f"if {count}:"):
            if not fields:
                self.constant("_skip_tagged_fields", skip_tagged_fields)
                self.line(f"offset = _skip_tagged_fields(buffer, offset, {count})")
                return
            self._continue_uvarint(count)
            with self.block(f"for _ in range({count}):"):
                self._known_tagged_fields(fields, path)

    def _known_tagged_fields(self, fields: dict[str, FieldSchema], path: str) -> None:
        tag = self._uvarint("tag")
        size = self._uvarint("size")
        end = self.variable("tag_end")
        self.line(f"{end} = offset + {size}")
        with self.block(f"if {end} > limit:"):
            self._raise_bad_size(f"{path}(tagged field)", size)
        keyword = "if"
        for variable, field in fields.items():
            with self.block(f"{keyword} {tag} == {field.tag}:"):
                self._field(field, variable, path)
                self._flush()
                with self.block(f"if offset != {end}:"):
                    self._raise(f": {path}{field.name} does not fill the {{{size}}} bytes of its tagged field")
            keyword = "elif"
        with self.block("else:"):
            self.line(f"offset = {end}")

    def _default(self, field: FieldSchema) -> str:
        if field.default is None or isinstance(field.default, bool | int | str):
            return repr(field.default)
        return self.constant(f"_{field.name}_default", field.default)

    # --- values -----------------------------------------------------------------------------------------------

    def _value(self, wire_type: WireType, variable: str, *, is_nullable: bool, path: str) -> None:
        match wire_type:
            case Fixed():
                self._run.append((wire_type, variable))
            case Sized():
                size = self._size(wire_type)
                if is_nullable:
                    self._or_null(size, variable)
                    with self.block("else:"):
                        self._sized(wire_type, variable, size, path)
                else:
                    self._sized(wire_type, variable, size, path)
            case ArrayOf(element):
                count = self._size(wire_type)
                if is_nullable:
                    self._or_null(count, variable)
                    with self.block("else:"):
                        self._array(element, variable, count, path)
                else:
                    self._array(element, variable, count, path)
            case StructureOf(structure):
                if is_nullable:
                    self._nullable_structure(structure, variable, path)
                else:
                    self.line(f"{variable} = {self._structure(structure, f'{path}.')}")

    def _size(self, wire_type: Sized | ArrayOf) -> str:
        """Read a length or count as it is written, which in flexible versions is one too many."""
        is_array = isinstance(wire_type, ArrayOf)
        name = "count" if is_array else "size"
        if self.is_flexible:
            size = self._uvarint(name)
        else:
            size = self._fixed("h" if wire_type == Sized("string") else "i", name)
            self._flush()
        return size

    def _or_null(self, size: str, variable: str) -> None:
        with self.block(f"if {size} == {0 if self.is_flexible else -1}:"):
            self.line(f"{variable} = None")

    def _sized(self, wire_type: Sized, variable: str, size: str, path: str) -> None:
        self.line(f"end = offset + {size}{' - 1' if self.is_flexible else ''}")
        is_string = wire_type.name == "string"
        too_long = f" or {size} > {STRING_BYTES_MAX + 1}" if is_string and self.is_flexible else ""
        with self.block(f"if not offset <= end <= limit{too_long}:"):
            self._raise_bad_size(path, "end - offset")
        if is_string:
            text = "tobytes().decode()" if self._from_view else "decode()"
            self.line(f"{variable} = buffer[offset:end].{text}")
        elif wire_type.name == "bytes":
            self.line(f"{variable} = bytes(buffer[offset:end])")
        else:
            self.line(f"{variable} = view[offset:end]")
        self.line("offset = end")

    def _array(self, element: WireType, variable: str, count: str, path: str) -> None:
        if self.is_flexible:
            self.line(f"{count} -= 1")
        smallest = max(1, _size_min(element, self.version, is_flexible=self.is_flexible))
        times = f" * {smallest}" if smallest > 1 else ""
        with self.block(f"if not 0 <= {count}{times} <= limit - offset:"):
            self._raise_bad_size(path, count)
        if isinstance(element, Fixed) and element.name != "uuid":
            self.constant("_array_layout", array_layout)
            self.line(f"{variable} = _array_layout({element.code!r}, {count}).unpack_from(buffer, offset)")
            self.line(f"offset += {count}{times}")
            return
        elements = self.variable(f"{variable}_list")
        self.line(f"{elements} = []")
        with self.block(f"for _ in range({count}):"):
            if isinstance(element, StructureOf):
                item = self._structure(element.structure, f"{path}.")
            else:
                item = self.variable(f"{variable}_item")
                self._value(element, item, is_nullable=False, path=path)
                self._flush()
            self.line(f"{elements}.append({item})")
        self.line(f"{variable} = tuple({elements})")

    def _nullable_structure(self, structure: type[Structure], variable: str, path: str) -> None:
        presence = self._fixed("b", "presence")
        self._flush()
        with self.block(f"if {presence} == -1:"):
            self.line(f"{variable} = None")
        with self.block(f"elif {presence} == 1:"):
            self.line(f"{variable} = {self._structure(structure, f'{path}.')}")
        with self.block("else:"):
            self._raise(f": {path} is neither there nor null, but {{{presence}}}")

    # --- numbers ----------------------------------------------------------------------------------------------

    def _fixed(self, code: str, name: str) -> str:
        """Put a number that is not a field into the run."""
        variable = self.variable(name)
        self._run.append((Fixed(name, code), variable))
        return variable

    def _uvarint(self, name: str) -> str:
        variable = self._fixed("B", name)
        self._flush()
        self._continue_uvarint(variable)
        return variable

    def _continue_uvarint(self, variable: str) -> None:
        with self.block(f"if {variable} > 127:"):
            self.line(f"{variable}, offset = _continue_uvarint(buffer, offset, {variable})")

    def _flush(self) -> None:
        """Read the run."""
        run, self._run = self._run, []
        if not run:
            return
        if len(run) == 1 and run[0][0].code == "B":
            self.line(f"{run[0][1]} = buffer[offset]")
        else:
            codes = "".join(wire_type.code for wire_type, _ in run)
            unpack = self.constant(f"_unpack_{codes.replace('?', 'o')}", _unpacker(codes))
            targets = ", ".join(variable for _, variable in run)
            self.line(f"{targets}{',' if len(run) == 1 else ''} = {unpack}(buffer, offset)")
        self.line(f"offset += {sum(wire_type.size for wire_type, _ in run)}")
        for wire_type, variable in run:
            if wire_type.name == "uuid":
                self.constant("_decode_uuid", decode_uuid)
                self.line(f"{variable} = _decode_uuid({variable})")

    # --- errors -----------------------------------------------------------------------------------------------

    def _raise(self, text: str, *, cause: str | None = None) -> None:
        self.line(f"raise _DecodeError(f{self.subject + text!r}){f' from {cause}' if cause else ''}")

    def _raise_bad_size(self, path: str, size: str) -> None:
        self.line(f"raise _bad_size({f'{self.subject}: {path}'!r}, {size}, limit - offset)")


@cache
def _unpacker(codes: str) -> Callable[[Buffer, int], tuple[Any, ...]]:
    """Reads values of these types that lie behind each other."""
    return struct.Struct(">" + codes).unpack_from


def _size_min(wire_type: WireType, version: int, *, is_flexible: bool) -> int:
    """The fewest bytes a value can take: what a count is checked against."""
    match wire_type:
        case Fixed():
            return wire_type.size
        case StructureOf(structure):
            fields = (_field_size_min(field, version, is_flexible=is_flexible) for field in fields_of(structure))
            return sum(fields) + (1 if is_flexible else 0)
        case Sized("string"):
            return 1 if is_flexible else 2
        case _:
            return 1 if is_flexible else 4


def _field_size_min(field: FieldSchema, version: int, *, is_flexible: bool) -> int:
    if version not in field.versions or version in field.tagged:
        return 0
    if version in field.nullable and isinstance(field.type, StructureOf):
        return 1
    return _size_min(field.type, version, is_flexible=is_flexible)
