"""Writes the source text of a function: lines, blocks, and names that do not clash."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from exactlog.core.codec.message_schema import FieldSchema, Message, is_flexible
from exactlog.core.model.errors import InvariantError
from exactlog.core.model.limits import ARRAY_LAYOUTS_CACHED_MAX

_INDENT = "    "


@lru_cache(maxsize=ARRAY_LAYOUTS_CACHED_MAX)
def array_layout(code: str, count: int) -> struct.Struct:
    """How `count` numbers of one type lie behind each other. The functions that are written call it."""
    return struct.Struct(f">{count}{code}")


class SourceWriter:
    """A function being written, for one version of one message.

    Attributes:
        subject: what its errors are about: `ProduceRequest v9`.
        version: of the message.
        is_flexible: whether that version has compact types and tagged fields.
        namespace: what the function refers to by a global name.
    """

    def __init__(self, message: type[Message], version: int, *, reserved: tuple[str, ...]) -> None:
        self.subject = f"{message.__name__} v{version}"
        self.version = version
        self.is_flexible = is_flexible(message, version)
        self.namespace: dict[str, object] = {}
        self._lines: list[str] = []
        self._depth = 0
        self._taken = set(reserved)

    def is_tagged(self, field: FieldSchema) -> bool:
        """Whether a field is a tagged one in that version."""
        if self.version in field.tagged and not self.is_flexible:
            raise InvariantError(f"{self.subject}: {field.name} is tagged in a version that is not flexible")
        return self.version in field.tagged

    def line(self, text: str) -> None:
        """Add one line at the present depth."""
        self._lines.append(_INDENT * self._depth + text)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """Add a line that opens a block, and put what follows inside it."""
        self.line(header)
        self._depth += 1
        yield
        self._depth -= 1

    def variable(self, wish: str) -> str:
        """A name nobody has yet: the one wished for, or that with a number."""
        name, number = wish, 1
        while name in self._taken:
            number += 1
            name = f"{wish}_{number}"
        self._taken.add(name)
        return name

    def constant(self, wish: str, value: object) -> str:
        """Make `value` known to the function by a name, which begins with a capital or an underscore."""
        name, number = wish, 1
        while self.namespace.get(name, value) is not value:
            number += 1
            name = f"{wish}_{number}"
        self.namespace[name] = value
        return name

    @property
    def source(self) -> str:
        """All lines so far."""
        return "\n".join(self._lines) + "\n"
