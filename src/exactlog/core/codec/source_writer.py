"""Writes the source text of a function: lines, blocks, and names that do not clash."""

from collections.abc import Iterator
from contextlib import contextmanager

_INDENT = "    "


class SourceWriter:
    """A function being written.

    Attributes:
        namespace: what the function refers to by a global name.
    """

    def __init__(self, *reserved: str) -> None:
        self.namespace: dict[str, object] = {}
        self._lines: list[str] = []
        self._depth = 0
        self._taken = set(reserved)

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
