"""Which rows of a store are events of a journal: those of its present life, within what its head row says."""

from collections.abc import Iterable, Iterator

from exactlog.core.journal.errors import ForkedJournalError
from exactlog.core.journal.events import EventRow
from exactlog.core.journal.keys import JournalKey, SeqNr, SeqRange
from exactlog.core.journal.rows import HeadRow


def range_within(head: HeadRow, seq_range: SeqRange) -> SeqRange | None:
    """What of a range can have rows that count; None: nothing."""
    first = max(seq_range.first, head.state.delete_to + 1)
    last = min(seq_range.last, head.seq_nr)
    return SeqRange(SeqNr(first), SeqNr(last)) if first <= last else None


class CountedRows:
    """Lets pass what counts, page after page; rows come in ascending order of their numbers."""

    def __init__(self, key: JournalKey, head: HeadRow) -> None:
        self._key = key
        self._record_id = head.record_id
        self._last: EventRow | None = None

    def of(self, rows: Iterable[EventRow]) -> Iterator[EventRow]:
        """Those that count.

        Raises:
            ForkedJournalError: two of them have one number.
        """
        for row in rows:
            if self._record_id is not None and row.record_id != self._record_id:
                continue
            if self._last is not None and self._last.seq_nr == row.seq_nr:
                raise ForkedJournalError(
                    f"journal {self._key}: event {row.seq_nr} is there twice, from partition and offset "
                    f"{tuple(self._last.place)} and {tuple(row.place)}",
                    hint="two writers without expectations wrote it; delete up to it, or purge the journal",
                )
            self._last = row
            yield row
