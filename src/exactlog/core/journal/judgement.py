"""What a writer is told of its append, once the log up to and including it has been folded.

The answer is the one that every reader comes to: it is judged by the state before the append's place in the log.
"""

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct

from exactlog.core.journal.action_fold import apply_action
from exactlog.core.journal.actions import ActionRecord, Append
from exactlog.core.journal.events import EventRow
from exactlog.core.journal.expectation import Expectation
from exactlog.core.journal.state import JournalState, taken_from
from exactlog.core.model.errors import InvariantError


class Appended(Struct, frozen=True):
    """The events are in the journal.

    Attributes:
        seq_nr: of the last one.
        partition: of the log, where the append stands.
        offset: its place there.
    """

    seq_nr: int
    partition: int
    offset: int


class NotAsExpected(Struct, frozen=True):
    """The journal was not as expected at the place of the append: nothing of it is seen by anybody.

    Attributes:
        expected: what the writer said.
        actual: the last number then; None: there was no journal.
    """

    expected: Expectation
    actual: int | None


class Overtaken(Struct, frozen=True):
    """Another append had taken some of the numbers already: a fork. Events up to `actual` are the other one's.

    Attributes:
        actual: the last number before the append.
        taken: how far this append's own events are in the journal; None: none of them is.
    """

    actual: int
    taken: int | None


Judgement: TypeAlias = Appended | NotAsExpected | Overtaken


def judge_append(record: ActionRecord, before: JournalState | None) -> Judgement:
    """What became of an append, by the state of its journal before it."""
    append = record.action
    if not isinstance(append, Append):
        raise InvariantError(f"not an append: {record.place}")
    actual = None if before is None else before.seq_nr
    if not append.expect.holds(before):
        return NotAsExpected(append.expect, actual)
    first_free = taken_from(before)
    if append.range.first < first_free:
        return Overtaken(first_free - 1, append.range.last if append.range.last >= first_free else None)
    return Appended(append.range.last, record.place.partition, record.place.offset)


def judge_appends(
    records: Sequence[ActionRecord], before: JournalState | None
) -> tuple[tuple[Judgement, ...], JournalState | None]:
    """What becomes of appends to one journal that stand one behind the other, as in a transaction; the state then."""
    judgements = []
    for record in records:
        judgements.append(judge_append(record, before))
        before = apply_action(before, record)
    return tuple(judgements), before


def first_answer(append: Append, rows: Sequence[EventRow]) -> Appended | None:
    """The answer of the first time, where an append whose expectation failed had been carried out before.

    The same ids with the same expectation get the same answer, however many events there are.

    Args:
        append: with ids.
        rows: of the journal, from the expected number on (from its first event on where no journal was expected), at
            least all of the append that comes first there.
    """
    of_first = [row for row in rows if row.place == rows[0].place]
    if not append.event_ids or tuple(row.event_id for row in of_first) != append.event_ids:
        return None
    last = of_first[-1]
    return Appended(last.seq_nr, last.place.partition, last.place.offset)
