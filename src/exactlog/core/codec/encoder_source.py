"""Writes the encoder of one message in one version as Python source.

What it writes gathers pieces of bytes and joins them once. Numbers that follow each other are packed in one call; an
empty section of tagged fields is a padding byte of that call. Records are handed on as they are, in a part of their
own, unless they are so few that one more part costs more than a copy.
"""

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final

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
from exactlog.core.codec.varint import SINGLE_BYTES, encode_uvarint
from exactlog.core.codec.wire_types import STRING_BYTES_MAX, Fixed, Sized
from exactlog.core.model.errors import EncodeError, InvariantError

RECORDS_COPIED_BYTES_MAX: Final = 4_096
"""Records up to this size are copied into the part before them: sending a part of its own costs more."""

_RESERVED: Final = ("message", "parts", "out", "len")


def write_encoder(message: type[Message], version: int) -> tuple[str, dict[str, object]]:
    """The source of `encode(message) -> parts`, and the globals it needs."""
    writer = _EncoderWriter(message, version)
    writer.write(message)
    return writer.source, writer.namespace


def encode_string_size(size: int) -> bytes:
    """The varint before a compact string; `size` is its length and one more.

    Raises:
        EncodeError: the string is longer than the protocol allows.
    """
    if size > STRING_BYTES_MAX + 1:
        raise EncodeError(f"A string of {size - 1} bytes is longer than {STRING_BYTES_MAX}")
    return encode_uvarint(size)


class _EncoderWriter(SourceWriter):
    def __init__(self, message: type[Message], version: int) -> None:
        super().__init__(message, version, reserved=_RESERVED)
        self._parts = "parts"
        self._has_flushed = False
        # Expressions of bytes that wait to be put into the parts, and values that wait to be packed into one of those.
        self._pieces: list[str] = []
        self._run: list[tuple[str, str | None]] = []
        self.constant("_EncodeError", EncodeError)
        self.constant("_SINGLE_BYTES", SINGLE_BYTES)
        self.constant("_encode_uvarint", encode_uvarint)
        self.constant("_encode_string_size", encode_string_size)
        self.constant("_array_layout", array_layout)

    def write(self, message: type[Message]) -> None:
        self.constant("_StructError", struct.error)
        with self.block("def encode(message):"):
            with self.block("try:"):
                self.line("parts = []")
                if holds_records(message):
                    self.line("out = []")
                self._structure(message, "message", "")
                self._return_parts(has_records=holds_records(message))
            with self.block("except _StructError as error:"):
                self._raise(" has a number that is out of range", cause="error")
            with self.block("except UnicodeEncodeError as error:"):
                self._raise(" has a text that is not Unicode", cause="error")

    def _return_parts(self, *, has_records: bool) -> None:
        if has_records:
            self._flush()
            with self.block("if parts:"):
                self.line('out.append(b"".join(parts))')
            self.line("return out")
        elif self._has_flushed:
            self._flush()
            self.line('return [b"".join(parts)]')
        else:
            self._pack_run()
            joined = self._pieces[0] if len(self._pieces) == 1 else f'b"".join(({", ".join(self._pieces)}))'
            self.line(f"return [{joined}]")

    # --- structures -------------------------------------------------------------------------------------------

    def _structure(self, structure: type[Structure], owner: str, path: str) -> None:
        """Put all fields of the structure that the variable `owner` holds."""
        tagged = []
        for field in fields_of(structure):
            if self.version not in field.versions:
                if not field.ignorable:
                    with self.block(f"if {self._differs_from_default(field, owner)}:"):
                        self._raise(f": {path}{field.name} has a value, but that version lacks the field")
            elif self.is_tagged(field):
                tagged.append(field)
            else:
                self._field(field, owner, path)
        if tagged:
            self._tagged_fields(tagged, owner, path)
        elif self.is_flexible:
            self._run.append(("x", None))

    def _field(self, field: FieldSchema, owner: str, path: str) -> None:
        value = f"{owner}.{field.name}"
        is_nullable = self.version in field.nullable
        path = f"{path}{field.name}"
        if field.nullable.highest >= 0 and not is_nullable:
            with self.block(f"if {value} is None:"):
                self._raise(f": {path} is null")
        self._value(field.type, value, field.name, is_nullable=is_nullable, path=path)

    def _tagged_fields(self, fields: list[FieldSchema], owner: str, path: str) -> None:
        tagged = self.variable("tagged")
        self.line(f"{tagged} = ()")
        for field in sorted(fields, key=lambda field: field.tag or 0):
            with self.block(f"if {self._differs_from_default(field, owner)}:"), self._parts_of_its_own() as parts:
                self.line(f"{parts} = []")
                self._field(field, owner, path)
                self._flush()
                payload = self.variable("payload")
                self.line(f'{payload} = b"".join({parts})')
                self.line(
                    f"{tagged} += ({encode_uvarint(field.tag or 0)!r}, _encode_uvarint(len({payload})), {payload})"
                )
        self._piece(f"_SINGLE_BYTES[len({tagged}) // 3]")
        self._piece(f"*{tagged}")

    @contextmanager
    def _parts_of_its_own(self) -> Iterator[str]:
        outer = self._parts, self._pieces, self._run
        self._parts, self._pieces, self._run = self.variable("payload_parts"), [], []
        yield self._parts
        self._parts, self._pieces, self._run = outer

    def _differs_from_default(self, field: FieldSchema, owner: str) -> str:
        value = f"{owner}.{field.name}"
        match field.default:
            case None:
                return f"{value} is not None"
            case False:
                return value
            case bool() | int() | str() | ():
                return f"{value} != {field.default!r}"
            case _:
                return f"{value} != {self.constant(f'_{field.name}_default', field.default)}"

    # --- values -----------------------------------------------------------------------------------------------

    def _value(self, wire_type: WireType, value: str, name: str, *, is_nullable: bool, path: str) -> None:
        match wire_type:
            case Fixed("uuid"):
                self._run.append(("16s", f'{value}.int.to_bytes(16, "big")'))
            case Fixed():
                self._run.append((wire_type.code, value))
            case Sized("records"):
                self._records(value, name, is_nullable=is_nullable)
            case Sized():
                self._sized(wire_type, value, name, is_nullable=is_nullable)
            case ArrayOf(element):
                array = self._local(name, value)
                with self._unless_null(array, self._null("i"), is_nullable=is_nullable):
                    self._array(element, array, name, path)
            case StructureOf(structure):
                owner = self._local(name, value)
                with self._unless_null(owner, b"\xff", is_nullable=is_nullable):
                    if is_nullable:
                        self._run.append(("b", "1"))
                    self._structure(structure, owner, f"{path}.")

    def _sized(self, wire_type: Sized, value: str, name: str, *, is_nullable: bool) -> None:
        is_string = wire_type.name == "string"
        code = "h" if is_string else "i"
        content = f"{value}.encode()" if is_string else value
        if is_nullable:
            piece = self.variable(name)
            with self.block(f"if {value} is None:"):
                self.line(f"{piece} = {self._null(code)!r}")
            with self.block("else:"):
                self.line(f"{piece} = {content}")
                self.line(f"{piece} = {self._size_piece(piece, code, is_string=is_string)} + {piece}")
            self._piece(piece)
            return
        text = self._local(name, content)
        if self.is_flexible:
            self._piece(self._size_piece(text, code, is_string=is_string))
        else:
            self._run.append((code, f"len({text})"))
        self._piece(text)

    def _records(self, value: str, name: str, *, is_nullable: bool) -> None:
        if self._parts != "parts":
            raise InvariantError(f"{self.subject}: records inside a tagged field")
        records = self._local(name, value)
        with self._unless_null(records, self._null("i"), is_nullable=is_nullable):
            self._piece(self._size_piece(records, "i", is_string=False))
            self._flush()
            with self.block(f"if len({records}) > {RECORDS_COPIED_BYTES_MAX}:"):
                self.line(f'out += (b"".join(parts), {records})')
                self.line("parts.clear()")
            with self.block("else:"):
                self.line(f"parts.append({records})")

    def _array(self, element: WireType, array: str, name: str, path: str) -> None:
        if self.is_flexible:
            self._piece(self._size_piece(array, "i", is_string=False))
        else:
            self._run.append(("i", f"len({array})"))
        if isinstance(element, Fixed) and element.name != "uuid":
            self._piece(f"_array_layout({element.code!r}, len({array})).pack(*{array})")
            return
        self._flush()
        item = self.variable(f"{name}_item")
        with self.block(f"for {item} in {array}:"):
            if isinstance(element, StructureOf):
                self._structure(element.structure, item, f"{path}.")
            else:
                self._value(element, item, name, is_nullable=False, path=path)
            self._flush()

    def _size_piece(self, content: str, code: str, *, is_string: bool) -> str:
        """The expression of a length or count, of what the variable `content` holds."""
        if not self.is_flexible:
            return f"{self._packer(code)}(len({content}))"
        size = self.variable("size")
        self.line(f"{size} = len({content}) + 1")
        longer = "_encode_string_size" if is_string else "_encode_uvarint"
        return f"(_SINGLE_BYTES[{size}] if {size} < 128 else {longer}({size}))"

    def _null(self, code: str) -> bytes:
        return b"\x00" if self.is_flexible else b"\xff" * struct.calcsize(code)

    @contextmanager
    def _unless_null(self, value: str, null: bytes, *, is_nullable: bool) -> Iterator[None]:
        """What is put inside is put only where `value` is not null."""
        if not is_nullable:
            yield
            return
        self._flush()
        with self.block(f"if {value} is None:"):
            self.line(f"{self._parts}.append({null!r})")
        with self.block("else:"):
            yield
            self._flush()

    def _local(self, name: str, expression: str) -> str:
        variable = self.variable(name)
        self.line(f"{variable} = {expression}")
        return variable

    # --- pieces -----------------------------------------------------------------------------------------------

    def _piece(self, expression: str) -> None:
        self._pack_run()
        self._pieces.append(expression)

    def _pack_run(self) -> None:
        """Make one piece of the values that wait to be packed."""
        run, self._run = self._run, []
        if run:
            codes = "".join(code for code, _ in run)
            values = ", ".join(value for _, value in run if value is not None)
            self._pieces.append(f"{self._packer(codes)}({values})" if values else repr(bytes(len(codes))))

    def _flush(self) -> None:
        """Put all pieces that wait into the parts."""
        self._pack_run()
        pieces, self._pieces = self._pieces, []
        if len(pieces) == 1:
            self.line(f"{self._parts}.append({pieces[0]})")
        elif pieces:
            self.line(f"{self._parts} += ({', '.join(pieces)})")
        self._has_flushed = True

    def _packer(self, codes: str) -> str:
        return self.constant(f"_pack_{codes.replace('?', 'o')}", _packer(codes))

    # --- errors -----------------------------------------------------------------------------------------------

    def _raise(self, text: str, *, cause: str | None = None) -> None:
        self.line(f"raise _EncodeError({self.subject + text!r}){f' from {cause}' if cause else ''}")


@cache
def _packer(codes: str) -> Callable[..., bytes]:
    """Packs values of these types behind each other."""
    return struct.Struct(">" + codes).pack
