import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.cli.output import OutputClosed, cell, flush_output, table_lines, write_line, write_object, write_rows

ROWS = [{"topic": "orders", "partitions": 3, "internal": False}, {"topic": "a", "partitions": 12, "internal": True}]
COLUMNS = ["topic", "partitions", "internal"]


def test_a_table_is_aligned_with_numbers_to_the_right(capsys):
    write_rows(ROWS, columns=COLUMNS, output="table")

    assert capsys.readouterr().out == (
        "TOPIC   PARTITIONS  INTERNAL\n"
        "orders           3  no\n"
        "a               12  yes\n"
    )  # fmt: skip


def test_json_is_one_array_and_jsonl_one_object_a_line(capsys):
    write_rows(ROWS, columns=COLUMNS, output="json")
    assert json.loads(capsys.readouterr().out) == ROWS

    write_rows(ROWS, columns=COLUMNS, output="jsonl")
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == ROWS


def test_no_rows_are_a_heading_or_an_empty_array(capsys):
    write_rows([], columns=COLUMNS, output="table")
    assert capsys.readouterr().out == "TOPIC  PARTITIONS  INTERNAL\n"

    write_rows([], columns=COLUMNS, output="json")
    assert capsys.readouterr().out == "[]\n"


def test_one_thing_is_a_list_of_its_members_or_an_object(capsys):
    write_object({"version": 3, "log_start_offset": 0}, output="table")
    assert capsys.readouterr().out == "version           3\nlog_start_offset  0\n"

    write_object({"version": 3}, output="json")
    assert capsys.readouterr().out == '{"version":3}\n'


def test_text_beyond_ascii_is_printed_as_it_is(capsys):
    write_rows([{"topic": "é"}], columns=["topic"], output="json")

    assert capsys.readouterr().out == '[{"topic":"é"}]\n'


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (True, "yes"),
        (1.5, "1.5"),
        ("a\tb\x1b[0m", "a\\tb\\x1b[0m"),
        ([1, "x"], "1,x"),
        ((), "-"),
        ({"a": 1}, '{"a":1}'),
    ],
)
def test_a_cell_says_its_value_on_one_line(value, shown):
    assert cell(value) == shown


@given(st.lists(st.text(), min_size=1))
def test_no_text_breaks_the_lines_of_a_table(texts):
    lines = list(table_lines([{"a": text} for text in texts], columns=["a"]))

    assert len(lines) == len(texts) + 1
    assert all(line.isprintable() for line in lines)


class ClosedStream:
    def write(self, text):
        raise BrokenPipeError

    flush = write


def test_output_nobody_reads_is_told_as_such(monkeypatch):
    monkeypatch.setattr(sys, "stdout", ClosedStream())
    with pytest.raises(OutputClosed):
        write_line("x")
    monkeypatch.setattr(ClosedStream, "flush", lambda self: self.write(""))
    with pytest.raises(OutputClosed):
        flush_output()
