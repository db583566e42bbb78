"""At which offset each sequence of a table lies: the seed's `seq_offset_mapping`, kept as runs.

What is written together lies together, so most neighbours in sequence are neighbours in offset: such a run is three
numbers, however long it is. Both sequences and offsets only rise (offsets may stay: one record may hold several).
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple


class Run(NamedTuple):
    """So many sequences one after the other, at as many offsets one after the other."""

    sequence: int
    offset: int
    length: int


class SequenceOffsets:
    """The mapping. It grows at its end and is pruned at its beginning."""

    __slots__ = ("_lengths", "_offsets", "_sequences")

    def __init__(self) -> None:
        self._sequences = array("Q")
        self._offsets = array("q")
        self._lengths = array("q")

    @classmethod
    def of_runs(cls, runs: tuple[Run, ...]) -> "SequenceOffsets":
        """The mapping that has these runs.

        Raises:
            ValueError: they do not rise.
        """
        found = cls()
        for sequence, offset, length in runs:
            if length < 1 or sequence <= found.last_sequence or offset < found.last_offset:
                raise ValueError(f"the run of {length} from sequence {sequence} at offset {offset} does not rise")
            found._append(sequence, offset, length)
        return found

    def _append(self, sequence: int, offset: int, length: int) -> None:
        self._sequences.append(sequence)
        self._offsets.append(offset)
        self._lengths.append(length)

    @property
    def run_count(self) -> int:
        """How many runs it takes."""
        return len(self._sequences)

    @property
    def last_sequence(self) -> int:
        """The highest sequence; 0 where there is none."""
        return self._sequences[-1] + self._lengths[-1] - 1 if self._sequences else 0

    @property
    def last_offset(self) -> int:
        """The highest offset; 0 where there is none."""
        return self._offsets[-1] + self._lengths[-1] - 1 if self._sequences else 0

    def runs(self) -> tuple[Run, ...]:
        """The runs, in order."""
        return tuple(map(Run, self._sequences, self._offsets, self._lengths))

    def remember(self, sequence: int, offset: int) -> None:
        """A sequence was found there. What is known already, or lies below what is, changes nothing."""
        if not self._sequences:
            self._append(sequence, offset, 1)
            return
        next_sequence = self._sequences[-1] + self._lengths[-1]
        if sequence < next_sequence:
            return
        next_offset = self._offsets[-1] + self._lengths[-1]
        if sequence == next_sequence and offset == next_offset:
            self._lengths[-1] += 1
        else:
            self._append(sequence, offset, 1)

    def forget_below(self, sequence: int) -> None:
        """Only this sequence and higher ones are wanted."""
        index = bisect_right(self._sequences, sequence) - 1
        if index < 0:
            return
        skip = sequence - self._sequences[index]
        if skip >= self._lengths[index]:
            index, skip = index + 1, 0
        del self._sequences[:index], self._offsets[:index], self._lengths[:index]
        if skip:
            self._sequences[0] += skip
            self._offsets[0] += skip
            self._lengths[0] -= skip

    def offset_from(self, sequence: int) -> int | None:
        """The offset of this sequence, or else of the next higher one; None where there is none."""
        index = bisect_right(self._sequences, sequence) - 1
        if index >= 0 and (into := sequence - self._sequences[index]) < self._lengths[index]:
            return self._offsets[index] + into
        return self._offsets[index + 1] if index + 1 < len(self._sequences) else None

    def first_sequence_from(self, offset: int) -> int | None:
        """The first sequence that lies at this offset or behind it; None where there is none."""
        for run in self.runs():
            if run.offset + run.length > offset:
                return run.sequence + max(0, offset - run.offset)
        return None

    def __iter__(self) -> Iterator[tuple[int, int]]:
        for sequence, offset, length in self.runs():
            for step in range(length):
                yield sequence + step, offset + step

    def __len__(self) -> int:
        return sum(self._lengths)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SequenceOffsets) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"SequenceOffsets({list(self.runs())!r})"
