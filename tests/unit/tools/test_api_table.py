"""The table of what works, made from docstrings."""

import pytest

from tools.api_table import BEGIN, END, not_done, table_lines, with_table

DOC = """EndTxn (key 26), versions 0 to 4.

Does: commits or aborts.
Not done: version 5, and
the bump of the epoch.
Versions: 3 flexible.
"""


def test_what_is_not_done_is_one_line_without_its_full_stop() -> None:
    assert not_done(DOC) == "version 5, and the bump of the epoch"


def test_a_handler_that_leaves_nothing_out_has_an_empty_cell() -> None:
    assert not_done("Metadata (key 3), versions 0 to 13.\n\nDoes: all of it.\n") == ""


def test_the_table_takes_the_place_of_the_old_one() -> None:
    page = with_table(f"# Title\n\n{BEGIN}\nthe table of last week\n{END}\n\nafter\n")

    assert page.startswith(f"# Title\n\n{BEGIN}\n| API | key |")
    assert page.endswith(f"|\n{END}\n\nafter\n")
    assert "last week" not in page


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="has no"):
        with_table("# Title\n")


def test_every_row_has_a_cell_for_every_heading() -> None:
    assert len({line.replace(r"\|", "").count("|") for line in table_lines()}) == 1
