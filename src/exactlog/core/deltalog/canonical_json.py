"""The one spelling of a document of the delta log, and the checksum over it.

A document is a JSON object in UTF-8 that ends with a newline and carries `crc`, the CRC-32C of its canonical form with
`crc` absent. The canonical form: known keys in the order of their format's page, unknown ones after them in the order
of the file, no spaces, integers as digits, strings escaped only where JSON asks for it, one trailing newline (which the
CRC counts). It is what we write. A document written by hand may differ from it in spacing and in the order of its known
keys, and in nothing else.

An object of a document is a `JsonObject`: its fields are the known keys, `unknown` holds the others, so that what a
newer version wrote survives in what an older one writes. Most documents have no unknown key; they are encoded and
decoded without ever becoming a dict.
"""

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, TypeVar

import msgspec
from crc32c import crc32c
from msgspec import UNSET, UnsetType

from exactlog.core.model.errors import DamageError

# A key that stands for "the unknown ones" while a Struct is on its way to its canonical form; never on disk.
_UNKNOWN_KEY: Final = "*unknown*"
_UNKNOWN_MARK: Final = b'"*unknown*":'
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}:,]|[^\s"\[\]{}:,]+')

Crc = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{8}\Z")]
"""A CRC-32C as text: 8 lower-case hexadecimal digits."""
NO_CRC: Final = "00000000"
"""The CRC-32C of nothing."""


class JsonObject(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An object within a document: known keys as fields, all others in `unknown`.

    `nested` names the fields that hold such objects in turn, one or an array of them.
    """

    nested: ClassVar[Mapping[str, "type[JsonObject]"]] = {}

    unknown: dict[str, object] | UnsetType = msgspec.field(default=UNSET, name=_UNKNOWN_KEY)


_Document = TypeVar("_Document", bound=JsonObject)
_encode: Final = msgspec.json.Encoder().encode
_decode_untyped: Final = msgspec.json.Decoder().decode


def print_crc(crc: int) -> str:
    """A CRC-32C as the delta log writes it: 8 lower-case hexadecimal digits."""
    return f"{crc:08x}"


def compute_crc(value: JsonObject) -> int:
    """The CRC-32C of an object's canonical form, its trailing newline included."""
    return _crc_of_line(_encode_body(value))


def encode_document(value: JsonObject) -> bytes:
    """The canonical document of an object, `crc` included."""
    body = _encode_body(value)
    crc = _crc_of_line(body)
    if value.unknown is UNSET:
        return b'%s,"crc":"%08x"}\n' % (body[:-1], crc)
    # The document's own unknown keys stand behind `crc`.
    flat = _inline_unknown(msgspec.to_builtins(value), type(value), crc=print_crc(crc))
    return _encode(flat) + b"\n"


def decode_document(
    document: bytes, decoder: msgspec.json.Decoder[_Document], layout: type[_Document], *, path_hint: str
) -> _Document:
    """The object that a document holds, its checksum verified.

    Args:
        document: the whole file.
        decoder: a typed decoder of `layout`, made once by the format.
        layout: the type of the document.
        path_hint: what to call the document in an error.

    Raises:
        DamageError: the document is empty, torn, not JSON, of wrong types, or not what its `crc` was computed over.
    """
    try:
        value = decoder.decode(document)
        if encode_document(value) == document:
            return value
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # the slow way says what is wrong
    try:
        return _decode_freely_spelled(document, layout, path_hint=path_hint)
    except RecursionError as error:
        raise DamageError(f"{path_hint}: nested too deeply") from error


def _decode_freely_spelled(document: bytes, layout: type[_Document], *, path_hint: str) -> _Document:
    if not document:
        raise DamageError(f"{path_hint}: the file is empty")
    try:
        found = _decode_untyped(document)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DamageError(f"{path_hint}: not a JSON document ({error})") from error
    if not isinstance(found, dict):
        raise DamageError(f"{path_hint}: not a JSON object")
    if not document.endswith(b"\n"):
        raise DamageError(f"{path_hint}: cut short, the newline at the end is missing")
    if "crc" not in found:
        raise DamageError(f"{path_hint}: no crc")
    stated_crc = found.pop("crc")
    try:
        value = msgspec.convert(_set_unknown_apart(found, layout), layout)
    except msgspec.ValidationError as error:
        raise DamageError(f"{path_hint}: {error}") from error
    crc = print_crc(compute_crc(value))
    if stated_crc != crc:
        raise DamageError(f"{path_hint}: the document says crc {stated_crc!r}, its content has {crc!r}")
    if sorted(_TOKEN.findall(document)) != sorted(_TOKEN.findall(encode_document(value))):
        raise DamageError(f"{path_hint}: a key stands twice, or a value is not spelled as in the canonical form")
    return value


def _encode_body(value: JsonObject) -> bytes:
    body = _encode(value)
    # A text that happens to hold the mark only costs time: the slow way is right for every object.
    return _encode(_inline_unknown(msgspec.to_builtins(value), type(value))) if _UNKNOWN_MARK in body else body


def _crc_of_line(body: bytes) -> int:
    return crc32c(b"\n", crc32c(body))


def _inline_unknown(found: object, layout: type[JsonObject], *, crc: str | None = None) -> object:
    """Puts unknown keys where they belong: behind the known ones of their object, and behind `crc`."""
    if isinstance(found, list | tuple):
        return [_inline_unknown(item, layout) for item in found]
    assert isinstance(found, dict)
    nested = layout.nested
    flat = {
        key: _inline_unknown(value, nested[key]) if key in nested else value
        for key, value in found.items()
        if key != _UNKNOWN_KEY
    }
    if crc is not None:
        flat["crc"] = crc
    return flat | found.get(_UNKNOWN_KEY, {})


def _set_unknown_apart(found: object, layout: type[JsonObject]) -> object:
    """The inverse: moves what the layout does not know under one key, at every level. What has a wrong type, stays."""
    if isinstance(found, list):
        return [_set_unknown_apart(item, layout) for item in found]
    if not isinstance(found, dict):
        return found
    nested = layout.nested
    known = [name for name in layout.__struct_encode_fields__ if name != _UNKNOWN_KEY]
    apart: dict[str, object] = {
        name: _set_unknown_apart(found[name], nested[name]) if name in nested else found[name]
        for name in known
        if name in found
    }
    unknown = {key: value for key, value in found.items() if key not in apart}
    if unknown:
        apart[_UNKNOWN_KEY] = unknown
    return apart
