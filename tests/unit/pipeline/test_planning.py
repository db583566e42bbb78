"""Which task reads what."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from exactlog.pipeline.planning import narrow, pack, plan_tasks
from exactlog.pipeline.source import Slice


class Log:
    """A source whose batches are ten bytes an offset; every third offset is a marker, and no row."""

    def __init__(self, *, batch=1):
        self.batch = batch
        self.counted = []

    def split(self, piece, *, bytes_max):
        step = max(self.batch, bytes_max // 10 // self.batch * self.batch)
        inner = [offset for offset in range(0, piece.end_offset, step) if piece.start_offset < offset]
        ends = [piece.start_offset, *inner, piece.end_offset]
        return [
            replace(piece, start_offset=start, end_offset=end, size_bytes=10 * (end - start), first_row=None)
            for start, end in pairwise(ends)
        ]

    def count_rows(self, piece):
        self.counted.append(piece)
        return sum(offset % 3 != 2 for offset in range(piece.start_offset, piece.end_offset))


def slice_of(partition, start, end, **more):
    return Slice("orders", partition, start, end, version=4, size_bytes=10 * (end - start), **more)


PIECES = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 40)), max_size=5).map(
    lambda spans: [slice_of(index, start, start + length) for index, (start, length) in enumerate(spans)]
)


@given(PIECES, st.integers(1, 500), st.integers(1, 7))
def test_the_tasks_read_all_of_each_piece_once_and_in_order(pieces, bytes_max, batch):
    tasks = plan_tasks(Log(batch=batch), pieces, bytes_max=bytes_max)

    read = [
        (part.partition, offset)
        for task in tasks
        for part in task
        for offset in range(part.start_offset, part.end_offset)
    ]
    assert read == [
        (piece.partition, offset) for piece in pieces for offset in range(piece.start_offset, piece.end_offset)
    ]
    assert all(part.version == 4 for task in tasks for part in task)


@given(PIECES, st.integers(1, 500), st.integers(1, 7))
def test_each_partition_with_offsets_has_a_task_and_none_reads_two(pieces, bytes_max, batch):
    tasks = plan_tasks(Log(batch=batch), pieces, bytes_max=bytes_max)

    assert all(len({part.partition for part in task}) == 1 for task in tasks)
    assert {task[0].partition for task in tasks} == {piece.partition for piece in pieces if piece.size_bytes}
    for task in tasks:
        size = sum(part.size_bytes for part in task)
        assert size <= max(bytes_max, batch * 10)


@given(st.integers(0, 30), st.integers(1, 60), st.integers(0, 100), st.integers(1, 200))
def test_rows_are_numbered_across_tasks_as_they_would_be_in_one(start, length, first_row, bytes_max):
    log = Log()
    piece = slice_of(0, start, start + length, first_row=first_row)

    parts = [part for task in plan_tasks(log, [piece], bytes_max=bytes_max) for part in task]

    for part in parts:
        assert part.first_row == first_row + Log().count_rows(replace(piece, end_offset=part.start_offset))
    assert len(log.counted) == len(parts) - 1  # the last needs no counting


def test_nothing_is_counted_for_who_does_not_ask():
    log = Log()

    tasks = plan_tasks(log, [slice_of(0, 0, 60)], bytes_max=100)

    assert len(tasks) == 6
    assert log.counted == []


def test_pieces_need_not_be_cut():
    piece, empty = slice_of(0, 0, 10_000, first_row=5), slice_of(1, 7, 7, first_row=0)

    assert plan_tasks(Log(), [piece, empty], bytes_max=None) == [(piece,)]


def test_small_pieces_of_one_partition_go_together_and_those_of_unknown_size_alone():
    small = [slice_of(0, number, number + 1) for number in range(5)]
    unknown = [replace(piece, size_bytes=0) for piece in small]

    assert list(pack(small, bytes_max=20)) == [tuple(small[:2]), tuple(small[2:4]), (small[4],)]
    assert list(pack(small, bytes_max=1)) == [(piece,) for piece in small]
    assert list(pack(unknown, bytes_max=20)) == [(piece,) for piece in unknown]
    assert list(pack([small[0], replace(small[1], partition=1)], bytes_max=20)) == [
        (small[0],),
        (replace(small[1], partition=1),),
    ]


@given(st.integers(0, 20), st.integers(0, 20), st.integers(-5, 30), st.integers(-5, 30))
def test_a_narrowed_piece_has_the_offsets_that_both_have(start, length, low, high):
    piece = slice_of(0, start, start + length, first_row=0)

    found = narrow(piece, start_offset=low, end_offset=high)

    inside = [offset for offset in range(start, start + length) if low <= offset < high]
    assert list(range(found.start_offset, found.end_offset)) == inside
    assert start <= found.start_offset <= found.end_offset <= start + length
    assert found.size_bytes == 10 * len(inside)
    assert found.first_row is None
