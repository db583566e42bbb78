"""Bounds of a read."""

import pytest

from exactlog.core.wal.bounds import Excluded, Included, Max, Min, SequenceRange, resolve_bounds
from exactlog.core.wal.errors import InvalidBoundsError

HIGHEST = 2**64 - 1


@pytest.mark.parametrize(
    ("start", "end", "first", "last"),
    [
        (Min, Max, 0, HIGHEST),
        (Min(), Max(), 0, HIGHEST),
        (Included(3), Included(7), 3, 7),
        (Excluded(3), Included(7), 4, 7),
        (Included(3), Excluded(7), 3, 6),
        (Excluded(3), Excluded(7), 4, 6),
        (Included(3), Included(3), 3, 3),
        (Excluded(3), Excluded(4), 4, 3),
        (Min, Excluded(1), 0, 0),
    ],
)
def test_bounds_say_which_sequences(start, end, first, last):
    assert resolve_bounds(start, end, region=1, table=2) == SequenceRange(first, last)


@pytest.mark.parametrize(
    ("start", "end", "told"),
    [
        (Included(8), Included(7), "above the end"),
        (Max, Min, "above the end"),
        (Excluded(HIGHEST), Max, "nothing lies above"),
        (Min, Excluded(0), "nothing lies below"),
        (Included(-1), Max, "no sequence -1"),
        (Min, Included(2**64), "no sequence"),
    ],
)
def test_bounds_that_are_wrong_are_refused_by_name(start, end, told):
    with pytest.raises(InvalidBoundsError, match=f"region 1, table 2.*{told}") as refused:
        resolve_bounds(start, end, region=1, table=2)
    assert (refused.value.region, refused.value.table) == (1, 2)
