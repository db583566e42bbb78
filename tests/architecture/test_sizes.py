"""A reader can hold a module and a function in mind: about 500 lines, about 60."""

import ast
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tests.architecture.tree import python_files, shown, syntax_tree

MODULE_LINES_MAX = 500
SUITE_LINES_MAX = 750  # a suite is read one test at a time
FUNCTION_LINES_MAX = 60

# What may be longer, and why. "path" names a module, "path::function" a function.
EXEMPT: Mapping[str, str] = {}


class Piece(NamedTuple):
    """A module or a function, and how long it is."""

    name: str
    lines: int
    lines_max: int


def pieces() -> Iterator[Piece]:
    for path in python_files():
        tree = syntax_tree(path)
        lines_max = SUITE_LINES_MAX if path.name.startswith("test_") else MODULE_LINES_MAX
        yield Piece(shown(path), len(path.read_text(encoding="utf-8").splitlines()), lines_max)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                yield Piece(f"{shown(path)}::{node.name}", lines, FUNCTION_LINES_MAX)


def test_modules_and_functions_are_short_enough_to_read() -> None:
    too_long = [piece for piece in pieces() if piece.lines > piece.lines_max and piece.name not in EXEMPT]

    assert too_long == [], "cut them along a phase, a record type or an API"


def test_every_exemption_is_needed_and_says_why() -> None:
    needed = {piece.name for piece in pieces() if piece.lines > piece.lines_max}

    assert set(EXEMPT) <= needed
    assert all(len(reason.split()) >= 5 for reason in EXEMPT.values())
