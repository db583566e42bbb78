"""Rows in order: as a plain dict of them says, at the price of the rows that are asked for."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from exactlog.core.journal.events import Event, EventRow
from exactlog.core.journal.keys import Place, SeqRange
from exactlog.core.journal.payload import TextPayload
from exactlog.journal.stores import sorted_rows
from exactlog.journal.stores.memory_store import MemoryJournalStore
from exactlog.journal.stores.sorted_rows import SortedRows
from exactlog.testing.journal_store_contract.action_script import ActionScript, apply
from tests.support.event_journals import KEY


def row(seq_nr, timestamp_ms=1, text="x"):
    event = Event(seq_nr, TextPayload(text))
    return EventRow(event=event, timestamp_ms=timestamp_ms, place=Place(0, seq_nr))


NUMBERS = st.integers(1, 12)
RANGES = st.builds(lambda first, more: SeqRange(first, first + more), NUMBERS, st.integers(0, 12))
CHANGES = st.one_of(
    st.builds(row, NUMBERS, st.integers(-1, 2), st.sampled_from("xy")),
    RANGES,
)


@given(changes=st.lists(CHANGES, max_size=30), wanted=RANGES)
def test_they_are_what_a_dict_of_rows_is(changes, wanted):
    rows, plain = SortedRows(), {}
    for change in changes:
        if isinstance(change, EventRow):
            rows.put(change)
            plain[change.seq_nr, change.timestamp_ms] = change
        else:
            rows.drop(change)
            plain = {place: kept for place, kept in plain.items() if place[0] not in change}
    found = [kept for place, kept in sorted(plain.items()) if place[0] in wanted]
    assert list(rows.within(wanted)) == found
    assert rows.has_any(wanted) == bool(found)
    assert rows == plain


def test_a_reader_goes_on_where_it_was_whatever_is_written_and_goes_meanwhile(monkeypatch):
    monkeypatch.setattr(sorted_rows, "_ROWS_AT_A_TIME", 3)
    rows = SortedRows()
    for number in range(2, 12, 2):
        rows.put(row(number))
    reading, told = rows.within(SeqRange(1, 20)), []
    for found in reading:
        told.append(found.seq_nr)
        if found.seq_nr == 4:
            rows.put(row(1))
            rows.drop(SeqRange(2, 6))
            rows.put(row(12))
            rows.put(replace(row(9), timestamp_ms=5))
    assert told == [2, 4, 8, 9, 10, 12]


class CountingRows(SortedRows):
    """Counts the rows that a reader looks at."""

    looked_at = 0

    def get(self, place, default=None):
        CountingRows.looked_at += 1
        return super().get(place, default)


async def test_a_short_read_of_a_long_journal_looks_at_the_rows_that_it_tells_and_no_others(monkeypatch):
    monkeypatch.setattr("exactlog.journal.stores.memory_store.SortedRows", CountingRows)
    monkeypatch.setattr(CountingRows, "looked_at", 0)
    async with MemoryJournalStore(segment_size=100) as store:
        script = ActionScript(KEY)
        await apply(store, script.append(*range(1, 1_001)))
        head = await store.head(KEY)
        for first, last in ((1, 3), (99, 102), (500, 500), (999, 1_000)):
            told = [found.seq_nr async for found in store.rows(KEY, head, SeqRange(first, last))]
            assert told == list(range(first, last + 1))
        assert CountingRows.looked_at == 3 + 4 + 1 + 2
