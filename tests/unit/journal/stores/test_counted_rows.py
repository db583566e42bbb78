"""Which rows of a store count."""

import pytest
from msgspec.structs import replace

from exactlog.core.journal.keys import Place, SeqRange
from exactlog.core.journal.rows import HeadRow
from exactlog.journal.stores.counted_rows import range_within

HEAD = HeadRow(place=Place(0, 0), segment_size=2, seq_nr=7, delete_to=2, created_ms=0, updated_ms=0)


@pytest.mark.parametrize(
    ("asked", "within"),
    [
        ((1, 2**63 - 1), (3, 7)),
        ((1, 3), (3, 3)),
        ((7, 7), (7, 7)),
        ((4, 5), (4, 5)),
        ((1, 2), None),
        ((8, 9), None),
    ],
)
def test_a_range_is_cut_to_what_is_not_deleted_and_what_the_head_row_counts(asked, within):
    assert range_within(HEAD, SeqRange(*asked)) == (within and SeqRange(*within))


def test_a_head_row_that_is_deleted_to_its_end_or_beyond_has_no_range():
    for delete_to in (7, 9):
        assert range_within(replace(HEAD, delete_to=delete_to), SeqRange(1, 100)) is None


def test_a_journal_of_which_nothing_is_deleted_is_read_from_its_first_number():
    assert range_within(replace(HEAD, delete_to=None), SeqRange(1, 100)) == SeqRange(1, 7)
