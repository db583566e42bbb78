"""How a limit is shared between partitions."""

from hypothesis import given
from hypothesis import strategies as st

from exactlog.pipeline.admission import admit, fair_shares
from exactlog.pipeline.source import Slice

AMOUNTS = st.lists(st.integers(0, 50), max_size=8)


def test_all_is_taken_while_there_is_room():
    assert fair_shares([3, 0, 4], 7) == [3, 0, 4]
    assert fair_shares([], 7) == []


def test_who_has_little_leaves_the_rest_to_the_others():
    assert fair_shares([2, 100, 100], 20) == [2, 9, 9]


def test_nothing_is_taken_within_a_limit_of_nothing():
    assert fair_shares([2, 3], 0) == [0, 0]


@given(AMOUNTS, st.integers(0, 300), st.integers(0, 20))
def test_shares_add_up_to_the_limit_or_to_all_there_is(waiting, limit, turn):
    shares = fair_shares(waiting, limit, turn=turn)
    assert sum(shares) == min(limit, sum(waiting))
    assert all(0 <= share <= amount for share, amount in zip(shares, waiting, strict=True))


@given(AMOUNTS, st.integers(0, 300), st.integers(0, 20))
def test_nobody_who_has_more_to_give_stands_behind_another_by_more_than_one(waiting, limit, turn):
    shares = fair_shares(waiting, limit, turn=turn)
    unmet = [share for share, amount in zip(shares, waiting, strict=True) if share < amount]
    assert not unmet or max(shares) <= min(unmet) + 1


@given(st.integers(1, 8), st.integers(1, 20))
def test_a_limit_below_the_number_of_partitions_comes_to_each_of_them_in_turn(count, limit):
    taken = [0] * count
    for turn in range(count):
        for place, share in enumerate(fair_shares([100] * count, limit, turn=turn)):
            taken[place] += share
    assert len(set(taken)) == 1
    assert sum(taken) == count * min(limit, 100 * count)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=6), st.integers(1, 30))
def test_batch_after_batch_takes_everything_once(waiting, limit):
    left, batches = list(waiting), []
    while any(left):
        shares = fair_shares(left, limit, turn=len(batches))
        batches.append(sum(shares))
        left = [amount - share for amount, share in zip(left, shares, strict=True)]
    assert sum(batches) == sum(waiting)
    assert all(taken == limit for taken in batches[:-1])


class Batches:
    """Partitions as lists of batches: how many offsets, and how many bytes, each has."""

    def __init__(self, partitions):
        self.partitions = partitions
        self.asked = 0

    def pieces(self, ends):
        """What waits behind some offsets."""
        whole = [sum(count for count, _ in batches) for batches in self.partitions]
        return [Slice("t", number, start, end) for number, (start, end) in enumerate(zip(ends, whole, strict=True))]

    def _spans(self, piece):
        start = 0
        for count, size in self.partitions[piece.partition]:
            yield start, start + count, size
            start += count

    def size(self, piece):
        self.asked += 1
        return sum(
            size for start, end, size in self._spans(piece) if start < piece.end_offset and piece.start_offset < end
        )

    def end_within(self, piece, bytes_max):
        reached, left = piece.start_offset, bytes_max
        for start, end, size in self._spans(piece):
            if piece.start_offset < end and start < piece.end_offset:
                left -= size
                if left < 0:
                    return reached
                reached = min(end, piece.end_offset)
        return reached

    def first_end(self, piece):
        return next(min(end, piece.end_offset) for _, end, _ in self._spans(piece) if piece.start_offset < end)

    @property
    def largest(self):
        return max((size for batches in self.partitions for _, size in batches), default=0)


LOGS = st.lists(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 100)), max_size=8), min_size=1, max_size=4).map(
    Batches
)
LIMITS = st.none() | st.integers(1, 250)


@given(LOGS, LIMITS, LIMITS)
def test_batch_after_batch_keeps_both_limits_and_comes_to_the_end(log, rows_max, bytes_max):
    ends, turn = [0] * len(log.partitions), 0
    whole = [piece.end_offset for piece in log.pieces(ends)]
    while ends != whole:
        pieces = log.pieces(ends)
        admitted = admit(pieces, log, rows_max=rows_max, bytes_max=bytes_max, turn=turn)
        taken = [
            Slice("t", piece.partition, piece.start_offset, end) for piece, end in zip(pieces, admitted, strict=True)
        ]
        assert all(piece.start_offset <= end <= piece.end_offset for piece, end in zip(pieces, admitted, strict=True))
        assert admitted != ends
        assert rows_max is None or sum(each.end_offset - each.start_offset for each in taken) <= rows_max
        size = sum(log.size(each) for each in taken if each.start_offset < each.end_offset)
        assert bytes_max is None or size <= bytes_max + log.largest
        ends, turn = admitted, turn + 1


@given(LOGS)
def test_without_limits_all_is_taken_and_nobody_is_asked_for_sizes(log):
    pieces = log.pieces([0] * len(log.partitions))
    assert admit(pieces, log) == [piece.end_offset for piece in pieces]
    assert log.asked == 0


@given(st.integers(1, 100), st.integers(2, 5))
def test_a_partition_whose_batches_are_larger_than_its_share_gets_its_turn(limit, count):
    log = Batches([[(1, 1_000)] * 3] + [[(1, 1)] * 1_000] * (count - 1))
    ends = [0] * count
    for turn in range(3 * count):
        ends = admit(log.pieces(ends), log, bytes_max=limit, turn=turn)
    assert ends[0] == 3
