"""Rows of events by number and timestamp, in order: what a store in memory keeps of a segment."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Final

from exactlog.core.journal.events import EventRow
from exactlog.core.journal.keys import SeqRange

_ROWS_AT_A_TIME: Final = 256
"""That a reader has in hand while others may write."""

RowPlace = tuple[int, int]
"""Number and timestamp: what makes a row in kafka-journal's tables."""


class SortedRows(dict[RowPlace, EventRow]):
    """Rows by their places. They are written with `put` and taken away with `drop`, which keep them in order."""

    def __init__(self) -> None:
        super().__init__()
        self._order: list[RowPlace] = []

    def put(self, row: EventRow) -> None:
        """Keep a row; one of the same place is replaced."""
        place = (row.seq_nr, row.timestamp_ms)
        if place not in self:
            if self._order and place < self._order[-1]:
                insort(self._order, place)
            else:
                self._order.append(place)
        self[place] = row

    def drop(self, numbers: SeqRange) -> None:
        """Take away the rows with these numbers."""
        first, behind = self._bounds(numbers)
        for place in self._order[first:behind]:
            del self[place]
        del self._order[first:behind]

    def has_any(self, numbers: SeqRange) -> bool:
        """Whether there is a row with one of these numbers."""
        first, behind = self._bounds(numbers)
        return first < behind

    def within(self, numbers: SeqRange) -> Iterator[EventRow]:
        """The rows with these numbers, ascending. What is written or goes meanwhile is seen, or not."""
        next_place: RowPlace | tuple[int] = (numbers.first,)
        while True:
            start = bisect_left(self._order, next_place)
            places = self._order[start : start + _ROWS_AT_A_TIME]
            for place in places:
                if place[0] > numbers.last:
                    return
                if (row := self.get(place)) is not None:
                    yield row
            if not places:
                return
            next_place = (places[-1][0], places[-1][1] + 1)

    def _bounds(self, numbers: SeqRange) -> tuple[int, int]:
        return bisect_left(self._order, (numbers.first,)), bisect_left(self._order, (numbers.last + 1,))
