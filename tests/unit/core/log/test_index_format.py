import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.core.log.aborted_index_format import (
    ABORTED_INDEX_ROW_SIZE,
    AbortedInRange,
    AbortedTransaction,
    decode_aborted_transaction,
    decode_aborted_transactions,
    encode_aborted_transaction,
    find_aborted_in_range,
)
from exactlog.core.log.index_format import (
    INDEX_ROW_SIZE,
    POSITION_MAX,
    RELATIVE_OFFSET_MAX,
    TIME_INDEX_ROW_SIZE,
    TRAILER_SIZE,
    IndexRow,
    IndexTrailer,
    OffsetIndex,
    TimeIndex,
    TimeIndexRow,
    decode_sealed_rows,
    decode_trailer,
    encode_trailer,
    floor_index_row,
    floor_time_index_row,
)
from exactlog.core.model.errors import DamageError, InvariantError
from tests.unit.core.deltalog.histories import page_blocks


def offset_index(*rows: tuple[int, int]) -> OffsetIndex:
    index = OffsetIndex()
    for relative_offset, position in rows:
        index.append(relative_offset=relative_offset, position=position)
    return index


def time_index(*rows: tuple[int, int]) -> TimeIndex:
    index = TimeIndex()
    for timestamp, relative_offset in rows:
        index.append(timestamp=timestamp, relative_offset=relative_offset)
    return index


class CountingReader:
    """Reads rows from bytes and counts how often."""

    def __init__(self, rows: bytes, *, row_size: int) -> None:
        self.rows = rows
        self.row_size = row_size
        self.reads = 0

    def __call__(self, row: int) -> bytes:
        assert 0 <= row < len(self.rows) // self.row_size
        self.reads += 1
        return self.rows[row * self.row_size : (row + 1) * self.row_size]


def reads_max(row_count: int) -> int:
    return 2 + math.ceil(math.log2(row_count + 1))


def page_bytes(page: str, block: int = 0) -> bytes:
    return bytes.fromhex(re.sub(r"[^0-9a-f]", "", page_blocks(page, "text")[block]))


@st.composite
def rising_rows(draw, *, first_min: int, first_max: int, second_max: int) -> list[tuple[int, int]]:
    firsts = sorted(draw(st.lists(st.integers(first_min, first_max), max_size=30, unique=True)))
    size = len(firsts)
    seconds = sorted(draw(st.lists(st.integers(0, second_max), min_size=size, max_size=size, unique=True)))
    return list(zip(firsts, seconds, strict=True))


offset_rows = rising_rows(first_min=0, first_max=RELATIVE_OFFSET_MAX, second_max=POSITION_MAX)
time_rows = rising_rows(first_min=-(2**63), first_max=2**63 - 1, second_max=RELATIVE_OFFSET_MAX)


def test_rows_are_as_the_page_shows_them():
    index = offset_index((0, 0), (37, 4210))
    rows = index.encode()

    assert rows + encode_trailer(rows, row_size=INDEX_ROW_SIZE) == page_bytes("index_format.md")
    assert time_index((1_762_539_302_880, 7), (1_762_539_303_001, 41)).encode() == page_bytes("index_format.md", 1)


@given(offset_rows)
def test_an_offset_index_comes_back_as_it_was_written(rows):
    index = offset_index(*rows)

    decoded = OffsetIndex.decode(index.encode())

    assert [decoded[row] for row in range(len(decoded))] == rows
    assert len(index.encode()) == len(rows) * INDEX_ROW_SIZE


@given(time_rows)
def test_a_time_index_comes_back_as_it_was_written(rows):
    index = time_index(*rows)

    decoded = TimeIndex.decode(index.encode())

    assert [decoded[row] for row in range(len(decoded))] == rows
    assert len(index.encode()) == len(rows) * TIME_INDEX_ROW_SIZE


@given(offset_rows, st.data())
def test_rows_can_be_written_a_few_at_a_time(rows, data):
    index = offset_index(*rows)
    cut = data.draw(st.integers(0, len(rows)))

    assert index.encode()[: cut * INDEX_ROW_SIZE] + index.encode(first_row=cut) == index.encode()


@given(time_rows, st.data())
def test_time_rows_can_be_written_a_few_at_a_time(rows, data):
    index = time_index(*rows)
    cut = data.draw(st.integers(0, len(rows)))

    assert index.encode()[: cut * TIME_INDEX_ROW_SIZE] + index.encode(first_row=cut) == index.encode()


@given(offset_rows, st.integers(0, RELATIVE_OFFSET_MAX), st.data())
def test_a_floor_in_memory_and_in_the_file_are_what_looking_at_every_row_finds(rows, anywhere, data):
    index = offset_index(*rows)
    target = data.draw(st.sampled_from([offset for offset, _ in rows] or [0]) | st.just(anywhere))
    read_row = CountingReader(index.encode(), row_size=INDEX_ROW_SIZE)

    below = [IndexRow(*row) for row in rows if row[0] <= target]
    expected = below[-1] if below else None

    assert index.floor(target) == expected
    assert floor_index_row(read_row, row_count=len(rows), relative_offset=target) == expected
    assert read_row.reads <= reads_max(len(rows))


@given(time_rows, st.integers(-(2**63), 2**63 - 1), st.data())
def test_a_floor_in_time_in_memory_and_in_the_file_are_what_looking_at_every_row_finds(rows, anywhere, data):
    index = time_index(*rows)
    target = data.draw(st.sampled_from([timestamp for timestamp, _ in rows] or [0]) | st.just(anywhere))
    read_row = CountingReader(index.encode(), row_size=TIME_INDEX_ROW_SIZE)

    before = [TimeIndexRow(*row) for row in rows if row[0] <= target]
    expected = before[-1] if before else None

    assert index.floor(target) == expected
    assert floor_time_index_row(read_row, row_count=len(rows), timestamp=target) == expected
    assert read_row.reads <= reads_max(len(rows))


def test_a_floor_looks_at_no_more_rows_than_it_is_told_are_good():
    rows = offset_index((0, 0), (10, 100), (20, 200)).encode()

    found = floor_index_row(CountingReader(rows, row_size=INDEX_ROW_SIZE), row_count=2, relative_offset=99)

    assert found == IndexRow(10, 100)


@pytest.mark.parametrize(
    ("relative_offset", "position"),
    [(10, 200), (9, 200), (11, 100), (11, 99), (RELATIVE_OFFSET_MAX + 1, 200), (11, POSITION_MAX + 1), (-1, 200)],
)
def test_an_index_row_that_does_not_rise_or_does_not_fit_is_refused(relative_offset, position):
    index = offset_index((10, 100))

    with pytest.raises(InvariantError, match="cannot stand behind"):
        index.append(relative_offset=relative_offset, position=position)

    assert len(index) == 1


@pytest.mark.parametrize(
    ("timestamp", "relative_offset"),
    [(1_000, 11), (999, 11), (1_001, 10), (1_001, RELATIVE_OFFSET_MAX + 1), (2**63, 11)],
)
def test_a_time_index_row_that_does_not_rise_or_does_not_fit_is_refused(timestamp, relative_offset):
    index = time_index((1_000, 10))

    with pytest.raises(InvariantError, match="cannot stand behind"):
        index.append(timestamp=timestamp, relative_offset=relative_offset)

    assert len(index) == 1


def test_the_first_row_may_be_all_zero():
    assert offset_index((0, 0))[0] == (0, 0)
    assert time_index((-(2**63), 0))[0] == (-(2**63), 0)


def test_rows_behind_a_truncation_are_gone():
    index = offset_index((0, 0), (10, 100), (20, 200))
    times = time_index((5, 0), (6, 10), (7, 20))

    index.truncate(1)
    times.truncate(2)

    assert (len(index), index.floor(15)) == (1, IndexRow(0, 0))
    assert (len(times), times.floor(9)) == (2, TimeIndexRow(6, 10))
    index.append(relative_offset=3, position=50)
    times.append(timestamp=7, relative_offset=11)
    assert index.encode() == offset_index((0, 0), (3, 50)).encode()


@pytest.mark.parametrize(
    ("decode", "rows", "reason"),
    [
        (OffsetIndex.decode, b"\0" * 9, "9 bytes of index are no whole number of 8-byte rows"),
        (OffsetIndex.decode, b"\0" * 16, "do not rise"),
        (OffsetIndex.decode, offset_index((5, 50), (6, 60)).encode()[::-1], "do not rise"),
        (TimeIndex.decode, b"\0" * 11, "11 bytes of index are no whole number of 12-byte rows"),
        (TimeIndex.decode, b"\0" * 24, "do not rise"),
        (TimeIndex.decode, time_index((5, 1)).encode() + time_index((4, 2)).encode(), "do not rise"),
        (TimeIndex.decode, time_index((5, 2)).encode() + time_index((6, 1)).encode(), "do not rise"),
    ],
)
def test_rows_that_are_none_are_damage(decode, rows, reason):
    with pytest.raises(DamageError, match=reason):
        decode(rows)


@given(offset_rows)
def test_a_sealed_index_tells_its_row_count_and_gives_its_rows(rows):
    encoded = offset_index(*rows).encode()
    content = encoded + encode_trailer(encoded, row_size=INDEX_ROW_SIZE)

    trailer = decode_trailer(content[-TRAILER_SIZE:], file_size=len(content), row_size=INDEX_ROW_SIZE)

    assert trailer == IndexTrailer(
        row_size=INDEX_ROW_SIZE, row_count=len(rows), crc=int.from_bytes(content[-4:], "big")
    )
    assert decode_sealed_rows(content, row_size=INDEX_ROW_SIZE) == encoded


def test_every_flipped_bit_and_every_cut_of_a_sealed_index_is_noticed():
    rows = offset_index((0, 0), (37, 4210), (70, 8500)).encode()
    content = rows + encode_trailer(rows, row_size=INDEX_ROW_SIZE)

    for size in range(len(content)):
        with pytest.raises(DamageError):
            decode_sealed_rows(content[:size], row_size=INDEX_ROW_SIZE)
    for bit in range(len(content) * 8):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamageError):
            decode_sealed_rows(bytes(damaged), row_size=INDEX_ROW_SIZE)


def test_a_file_without_a_trailer_has_none():
    rows = offset_index((0, 0), (37, 4210), (70, 8500)).encode()
    sealed = rows + encode_trailer(rows, row_size=INDEX_ROW_SIZE)

    assert decode_trailer(rows[-TRAILER_SIZE:], file_size=len(rows), row_size=INDEX_ROW_SIZE) is None
    assert decode_trailer(b"", file_size=0, row_size=INDEX_ROW_SIZE) is None
    assert decode_trailer(sealed[-TRAILER_SIZE:], file_size=len(sealed), row_size=TIME_INDEX_ROW_SIZE) is None
    assert decode_trailer(sealed[-TRAILER_SIZE:], file_size=len(sealed) + 8, row_size=INDEX_ROW_SIZE) is None


def test_a_part_of_a_row_is_not_sealed():
    with pytest.raises(DamageError, match="no whole number"):
        encode_trailer(b"\0" * 9, row_size=INDEX_ROW_SIZE)


def aborted(producer_id: int, first_offset: int, last_offset: int, last_stable_offset: int) -> AbortedTransaction:
    return AbortedTransaction(
        producer_id=producer_id,
        first_offset=first_offset,
        last_offset=last_offset,
        last_stable_offset=last_stable_offset,
    )


def rows_of(*transactions: AbortedTransaction) -> CountingReader:
    return CountingReader(b"".join(map(encode_aborted_transaction, transactions)), row_size=ABORTED_INDEX_ROW_SIZE)


def test_the_row_of_an_aborted_transaction_is_as_the_page_shows_it():
    row = encode_aborted_transaction(aborted(1000, 20, 31, 25))

    assert row == page_bytes("aborted_index_format.md")
    assert len(row) == ABORTED_INDEX_ROW_SIZE
    assert decode_aborted_transaction(row) == aborted(1000, 20, 31, 25)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (b"", "has 34 bytes, not 0"),
        (encode_aborted_transaction(aborted(1, 2, 3, 4))[:-1], "has 34 bytes, not 33"),
        (b"\0\1" + encode_aborted_transaction(aborted(1, 2, 3, 4))[2:], "has version 1; this exactlog reads 0"),
        (encode_aborted_transaction(aborted(1, 3, 2, 4)), "offsets 3 to 2"),
        (encode_aborted_transaction(aborted(-1, 2, 3, 4)), "producer -1"),
        (encode_aborted_transaction(aborted(1, -2, 3, 4)), "offsets -2 to 3"),
        (encode_aborted_transaction(aborted(1, 2, 3, -1)), "last stable offset -1"),
    ],
)
def test_a_damaged_row_of_an_aborted_transaction_is_named(row, reason):
    with pytest.raises(DamageError, match=reason):
        decode_aborted_transaction(row)


def test_rows_are_read_in_the_order_of_their_markers():
    transactions = (aborted(1, 5, 9, 6), aborted(2, 6, 10, 11))

    assert decode_aborted_transactions(rows_of(*transactions).rows) == transactions
    with pytest.raises(DamageError, match="order of their markers"):
        decode_aborted_transactions(rows_of(*reversed(transactions)).rows)
    with pytest.raises(DamageError, match="has 34 bytes, not 1"):
        decode_aborted_transactions(rows_of(*transactions).rows + b"\0")


@pytest.mark.parametrize(
    ("start_offset", "end_offset", "expected", "is_complete"),
    [
        (0, 5, [], True),
        (0, 6, [1], True),
        (0, 100, [1, 2, 3], False),
        (9, 100, [1, 2, 3], False),
        (10, 100, [2, 3], False),
        (10, 11, [2], True),
        (11, 20, [3], True),
        (31, 40, [], False),
    ],
)
def test_the_aborted_transactions_of_a_range_are_those_that_reach_into_it(
    start_offset, end_offset, expected, is_complete
):
    read_row = rows_of(aborted(1, 5, 9, 6), aborted(2, 6, 10, 11), aborted(3, 15, 30, 31))

    found = find_aborted_in_range(read_row, row_count=3, start_offset=start_offset, end_offset=end_offset)

    assert [transaction.producer_id for transaction in found.transactions] == expected
    assert found.is_complete is is_complete


def test_a_segment_without_aborted_transactions_leaves_the_question_open():
    assert find_aborted_in_range(rows_of(), row_count=0, start_offset=0, end_offset=9) == AbortedInRange((), False)


@st.composite
def logs_of_transactions(draw) -> tuple[list[AbortedTransaction], int]:
    """What a partition would index, record by record, by the plain rules; and where its log ends."""
    open_since: dict[int, int] = {}
    rows = []
    steps = draw(
        st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["write", "write", "abort", "commit"])), max_size=40)
    )
    for offset, (producer_id, step) in enumerate(steps):
        if step == "write":
            open_since.setdefault(producer_id, offset)
        elif producer_id in open_since:
            first_offset = open_since.pop(producer_id)
            if step == "abort":
                rows.append(aborted(producer_id, first_offset, offset, min(open_since.values(), default=offset + 1)))
    return rows, len(steps)


@given(logs_of_transactions(), st.data())
def test_no_aborted_transaction_that_reaches_into_a_range_is_missed(log, data):
    transactions, end = log
    start_offset = data.draw(st.integers(0, end))
    end_offset = data.draw(st.integers(start_offset, end))

    found = find_aborted_in_range(
        rows_of(*transactions), row_count=len(transactions), start_offset=start_offset, end_offset=end_offset
    )

    assert list(found.transactions) == [
        row for row in transactions if row.last_offset >= start_offset and row.first_offset < end_offset
    ]
