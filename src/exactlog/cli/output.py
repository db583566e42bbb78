"""What commands print: tables for people, JSON for programs; data on standard output, all else on standard error."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Literal, Self, TextIO

OutputFormat = Literal["table", "json", "jsonl"]
Row = Mapping[str, object]


class OutputClosed(Exception):  # noqa: N818  no error: the reader has what it wanted
    """Whoever read our output has gone (`exactlog consume orders | head`)."""


def encode_json(value: object) -> str:
    """The value as one line of JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def write_line(line: str) -> None:
    """Write one line to standard output.

    Raises:
        OutputClosed: nobody reads it any more.
    """
    try:
        sys.stdout.write(line + "\n")
    except BrokenPipeError as error:
        raise OutputClosed from error


def flush_output() -> None:
    """Hand on what was written so far.

    Raises:
        OutputClosed: nobody reads it any more.
    """
    try:
        sys.stdout.flush()
    except BrokenPipeError as error:
        raise OutputClosed from error


def discard_output() -> None:
    """Send what is still buffered nowhere, so that the interpreter does not trip over it at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def is_terminal(stream: TextIO) -> bool:
    """Whether a person is likely to look at `stream`."""
    return stream.isatty()


def write_rows(rows: Iterable[Row], *, columns: Sequence[str], output: OutputFormat) -> None:
    """Print rows: as a table of `columns`, as one JSON array, or as one JSON object a line."""
    match output:
        case "jsonl":
            for row in rows:
                write_line(encode_json(row))
        case "json":
            write_line(encode_json(list(rows)))
        case "table":
            for line in table_lines(rows, columns=columns):
                write_line(line)


class RowPrinter:
    """Prints rows as they come: on a line each under a heading, or as one JSON array. Use it as a context."""

    def __init__(self, output: OutputFormat, *, heading: str, line_of: Callable[[Row], str]) -> None:
        self._output = output
        self._heading = heading
        self._line_of = line_of
        self._separator = "["

    def __enter__(self) -> Self:
        if self._output == "table":
            write_line(self._heading)
        return self

    def write(self, row: Row) -> None:
        """Print one row."""
        match self._output:
            case "table":
                write_line(self._line_of(row))
            case "jsonl":
                write_line(encode_json(row))
            case "json":
                write_line(self._separator + encode_json(row))
                self._separator = ","

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._output == "json" and error is None:
            write_line("[]" if self._separator == "[" else "]")


def write_object(value: Row, *, output: OutputFormat) -> None:
    """Print one thing: as `name value` lines, or as one JSON object."""
    if output != "table":
        write_line(encode_json(value))
        return
    width = max((len(name) for name in value), default=0)
    for name, member in value.items():
        write_line(f"{name.ljust(width)}  {cell(member)}")


def table_lines(rows: Iterable[Row], *, columns: Sequence[str]) -> Iterable[str]:
    """The lines of an aligned table with a heading; numbers stand to the right."""
    values = [[row.get(column) for column in columns] for row in rows]
    cells = [[cell(value) for value in line] for line in values]
    headings = [column.replace("_", " ").upper() for column in columns]
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    is_right = [
        bool(values) and all(_is_number(line[index]) or line[index] is None for line in values)
        for index in range(len(columns))
    ]
    for line in [headings, *cells]:
        padded = (
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, is_right, strict=True)
        )
        yield "  ".join(padded).rstrip()


def cell(value: object) -> str:
    """A value as it stands in a table: on one line, without anything a terminal would act on."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case str():
            return "".join(character if character.isprintable() else _escaped(character) for character in value)
        case int() | float():
            return str(value)
        case list() | tuple():
            return ",".join(map(cell, value)) or "-"
        case _:
            return encode_json(value)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
