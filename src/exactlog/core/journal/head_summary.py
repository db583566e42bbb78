"""What a stretch of the log makes of one journal, whatever the journal was before it.

The log ahead of a store's pointer is its *head*: actions that are told and not replicated. A summary is the fold of the
actions of one journal in a stretch of it: a function from the state before to the state behind, small, and composed by
`join`. It is associative (any split of the stretch gives the same), and idempotent (what is folded already is passed
over).

A summary is a list of steps. A *run* is any number of appends and deletes that expect nothing, as one: for a journal of
last event s, deleted to d,

    last event  max(s, last of the appends)
    deleted to  max(d, min(furthest delete, s), furthest of min(delete, last of the appends before it))

An action with an expectation stays a step of its own, undecided, until the state before the stretch is known. A purge
that expects nothing makes everything before it irrelevant: from there on the state is known, and decided at once.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from exactlog.core.journal import state as states
from exactlog.core.journal.actions import ActionRecord, Append, Delete, Mark, Purge
from exactlog.core.journal.expectation import Expectation
from exactlog.core.journal.keys import record_id_of
from exactlog.core.journal.state import JournalState
from exactlog.core.model.errors import InvariantError
from exactlog.core.model.ids import TopicPartition

_NONE = 0


class Run(Struct, frozen=True, kw_only=True):
    """Appends and deletes that expect nothing, one after the other.

    Attributes:
        first_offset: of the first action.
        last_offset: of the last one.
        first_seq_nr: the first number of the first append; 0: there is no append.
        lowest_seq_nr: the lowest number of any append; 0: there is none.
        last_seq_nr: the greatest number of any append; 0: there is none.
        delete_to: as far as any delete asks for.
        deleted_to: as far as the deletes reach within the appends before them.
        is_ahead: a delete asks for numbers that an append behind it begins with. Such a run may not be applied twice.
    """

    first_offset: int
    last_offset: int
    first_seq_nr: int = _NONE
    lowest_seq_nr: int = _NONE
    last_seq_nr: int = _NONE
    delete_to: int = _NONE
    deleted_to: int = _NONE
    is_ahead: bool = False

    def then(self, later: "Run") -> "Run":
        """Both, one after the other."""
        lowest = min(filter(None, (self.lowest_seq_nr, later.lowest_seq_nr)), default=_NONE)
        return Run(
            first_offset=self.first_offset,
            last_offset=later.last_offset,
            first_seq_nr=self.first_seq_nr or later.first_seq_nr,
            lowest_seq_nr=lowest,
            last_seq_nr=max(self.last_seq_nr, later.last_seq_nr),
            delete_to=max(self.delete_to, later.delete_to),
            deleted_to=max(self.deleted_to, later.deleted_to, min(later.delete_to, self.last_seq_nr)),
            is_ahead=self.is_ahead or later.is_ahead or 0 < later.lowest_seq_nr <= self.delete_to,
        )

    def apply(self, state: JournalState | None, topic_partition: TopicPartition) -> JournalState:
        """The state behind it."""
        if state is not None and not state.is_reset:
            delete_to = max(state.delete_to, min(self.delete_to, state.seq_nr), self.deleted_to)
            return replace(state, seq_nr=max(state.seq_nr, self.last_seq_nr), delete_to=delete_to)
        record_id = record_id_of(topic_partition, self.first_offset) if state is None else state.record_id
        if self.last_seq_nr:
            delete_to = max(self.first_seq_nr - 1, self.deleted_to)
            return JournalState(self.last_seq_nr, delete_to, record_id=record_id)
        return states.delete(state, to=self.delete_to, record_id=record_id_of(topic_partition, self.first_offset))


class Conditional(Struct, frozen=True):
    """An action with an expectation: a run of one append or delete, or a purge (None)."""

    offset: int
    expect: Expectation
    run: Run | None

    @property
    def first_offset(self) -> int:
        """Of the action."""
        return self.offset

    @property
    def last_offset(self) -> int:
        """Of the action."""
        return self.offset

    def apply(self, state: JournalState | None, topic_partition: TopicPartition) -> JournalState | None:
        """The state behind it: the same where the expectation fails."""
        if not self.expect.holds(state):
            return state
        return None if self.run is None else self.run.apply(state, topic_partition)


SummaryStep: TypeAlias = Run | Conditional


class KnownState(Struct, frozen=True):
    """A state that does not depend on what was before the stretch, or depends on what was told.

    Attributes:
        state: at the end of the stretch; None: there is no journal.
        changed_at: offset of the last action; before the stretch, where there is none in it.
        purged_at: offset of the last purge that expected nothing; None: the state before was told.
        begins_at: offset of the first action behind that purge, or in the stretch; None: there is none.
        life_at: offset of the action that began the life the journal is in; None: the state that was told was in it.
        is_from_nothing: what was told is that there was no journal.
        doubt_at: offset of a purge that failed, and may not have (`HeadSummary.doubt_at`).
    """

    state: JournalState | None
    changed_at: int
    purged_at: int | None = None
    begins_at: int | None = None
    life_at: int | None = None
    is_from_nothing: bool = False
    doubt_at: int | None = None


class HeadSummary(Struct, frozen=True, kw_only=True):
    """What the offsets from `start` up to, not including, `end` of a partition make of one journal.

    Attributes:
        topic_partition: the partition.
        start: the first offset of the stretch.
        end: the offset behind it.
        steps: what happened, in order; none, where `known` says where that led.
        known: the state at the end, where what was before does not matter.
    """

    topic_partition: TopicPartition
    start: int
    end: int
    steps: tuple[SummaryStep, ...] = ()
    known: KnownState | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is no action of the journal, marks aside."""
        return self.last_offset is None

    @property
    def last_offset(self) -> int | None:
        """Of the last action; None: there is none."""
        if self.known is not None:
            return self.known.changed_at if self.known.changed_at >= self.start else None
        return self.steps[-1].last_offset if self.steps else None

    @property
    def begins_at(self) -> int | None:
        """Offset of the first action, or of the first one behind a purge that expected nothing; None: there is none."""
        if self.known is not None:
            return self.known.begins_at
        return self.steps[0].first_offset if self.steps else None

    @property
    def size(self) -> int:
        """How many steps it keeps in mind."""
        return 1 if self.known is not None else len(self.steps)

    def state_after(self, before: JournalState | None) -> JournalState | None:
        """The state at the end, by that at the start.

        A life that began before the stretch has the id that its head row says: other programs draw it at random.
        """
        if self.known is None:
            return _follow(before, self.steps, self.topic_partition).state
        state, life_at = self.known.state, self.known.life_at
        if state is not None and before is not None and life_at is not None and life_at < self.start:
            return replace(state, record_id=before.record_id)
        return state

    def doubt_at(self, before: JournalState | None) -> int | None:
        """Offset of a purge on terms that makes the state at the end doubtful; None: there is none.

        A store that has carried out such a purge, and whose pointer has not passed it yet, has no head to tell of it:
        the state before it seems to be no journal, and what expected that seems to hold. Only the purge of a life that
        is not the one found can have been it.
        """
        if self.known is not None:
            return self.known.doubt_at
        return None if before is not None else _follow(None, self.steps, self.topic_partition).doubt_at

    def since(self, offset: int) -> "HeadSummary | None":
        """What is to be applied to a state that holds every action up to `offset`, and none behind it.

        None: it cannot be told from this summary. It begins too late, or a run that it drew together lies on both sides
        of the offset and must not be applied twice: the log has to be read again from there.
        """
        if offset + 1 < self.start:
            return None
        last_offset = self.last_offset
        if offset >= self.end or last_offset is None or last_offset <= offset:
            end = max(self.end, offset + 1)
            return HeadSummary(topic_partition=self.topic_partition, start=offset + 1, end=end)
        if self.known is not None:
            return replace(self, start=offset + 1)
        steps = tuple(step for step in self.steps if step.last_offset > offset)
        first = steps[0]
        if first.first_offset <= offset and isinstance(first, Run) and first.is_ahead:
            return None
        return replace(self, start=offset + 1, steps=steps)


def empty_summary(topic_partition: TopicPartition, start: int, end: int | None = None) -> HeadSummary:
    """Of a stretch in which the journal has no action."""
    return HeadSummary(topic_partition=topic_partition, start=start, end=start if end is None else end)


def settle(summary: HeadSummary, before: JournalState | None) -> HeadSummary:
    """The same stretch, now that the state before it is told: nothing in it is undecided any more.

    Where it is told first, each action is decided as it is added: the summary of millions of them stays small.
    """
    if summary.known is not None:
        return summary
    followed = _follow(before, summary.steps, summary.topic_partition)
    known = KnownState(
        followed.state,
        changed_at=summary.start - 1 if summary.last_offset is None else summary.last_offset,
        begins_at=summary.begins_at,
        life_at=followed.life_at,
        is_from_nothing=before is None,
        doubt_at=followed.doubt_at if before is None else None,
    )
    return replace(summary, steps=(), known=known)


def join(earlier: HeadSummary, later: HeadSummary) -> HeadSummary:
    """Of both stretches, one behind the other; what lies within the other one adds nothing.

    Raises:
        InvariantError: they are of two partitions, there is a gap between them, or each has what the other lacks.
    """
    if earlier.topic_partition != later.topic_partition:
        raise InvariantError(f"{earlier.topic_partition} cannot be joined to {later.topic_partition}")
    if earlier.end != later.start:
        return _containing(earlier, later)
    if later.known is not None:
        return replace(later, start=earlier.start, known=_told_later(earlier, later, later.known))
    if earlier.known is not None:
        return replace(earlier, end=later.end, known=_go_on(earlier.known, later))
    return replace(earlier, end=later.end, steps=_concatenated(earlier.steps, later.steps))


def _containing(one: HeadSummary, other: HeadSummary) -> HeadSummary:
    """The stretch that the other one lies within."""
    for outer, inner in ((one, other), (other, one)):
        if outer.start <= inner.start and inner.end <= outer.end:
            return outer
    stretches = f"{one.start} to {one.end} and {other.start} to {other.end}"
    raise InvariantError(f"{one.topic_partition}: the stretches {stretches} do not follow each other")


def add_action(summary: HeadSummary, record: ActionRecord) -> HeadSummary:
    """The stretch up to and including this action; one that it has already is passed over.

    Whatever lies between the end of the stretch and the action is not of this journal.
    """
    if record.offset < summary.end:
        return summary
    stretch = HeadSummary(topic_partition=summary.topic_partition, start=summary.end, end=record.offset + 1)
    return join(summary, _with_action(stretch, record))


def summarize(topic_partition: TopicPartition, records: Iterable[ActionRecord], *, start: int, end: int) -> HeadSummary:
    """Of the actions of one journal in a stretch, in the order of the log. Those outside are passed over."""
    summary = empty_summary(topic_partition, start)
    for record in records:
        if record.offset < end:
            summary = add_action(summary, record)
    return replace(summary, end=max(summary.end, end))


def _with_action(stretch: HeadSummary, record: ActionRecord) -> HeadSummary:
    """The stretch, with the action that it ends with."""
    offset, action = record.offset, record.action
    if isinstance(action, Mark):
        return stretch
    run = _run_of(action, offset)
    if not action.expect.is_any:
        return replace(stretch, steps=(Conditional(offset, action.expect, run),))
    if run is None:
        return replace(stretch, known=KnownState(None, changed_at=offset, purged_at=offset))
    return replace(stretch, steps=(run,))


def _run_of(action: Append | Delete | Purge, offset: int) -> Run | None:
    match action:
        case Append(range=numbers):
            return Run(
                first_offset=offset,
                last_offset=offset,
                first_seq_nr=numbers.first,
                lowest_seq_nr=numbers.first,
                last_seq_nr=numbers.last,
            )
        case Delete(to=to):
            return Run(first_offset=offset, last_offset=offset, delete_to=to)
        case Purge():
            return None


def _told_later(earlier: HeadSummary, later: HeadSummary, known: KnownState) -> KnownState:
    """What is known of the later stretch holds at the end of both; unless it begins with a purge, both have actions."""
    if known.purged_at is not None:
        return known
    changed_at = earlier.last_offset if later.last_offset is None else later.last_offset
    return replace(
        known,
        changed_at=earlier.start - 1 if changed_at is None else changed_at,
        purged_at=None if earlier.known is None else earlier.known.purged_at,
        begins_at=known.begins_at if earlier.begins_at is None else earlier.begins_at,
    )


def _go_on(known: KnownState, later: HeadSummary) -> KnownState:
    if not later.steps:
        return known
    followed = _follow(known.state, later.steps, later.topic_partition)
    return replace(
        known,
        state=followed.state,
        changed_at=later.steps[-1].last_offset,
        begins_at=later.steps[0].first_offset if known.begins_at is None else known.begins_at,
        life_at=known.life_at if followed.life_at is None else followed.life_at,
        doubt_at=followed.doubt_at if known.is_from_nothing and known.doubt_at is None else known.doubt_at,
    )


class _Followed(NamedTuple):
    """Where steps lead; the offset at which a life began on the way, and that of a doubtful purge."""

    state: JournalState | None
    life_at: int | None = None
    doubt_at: int | None = None


def _follow(before: JournalState | None, steps: Iterable[SummaryStep], topic_partition: TopicPartition) -> _Followed:
    """One step after the other. Doubtful is a purge of a life other than the one found."""
    state, life_at, doubt_at = before, None, None
    for step in steps:
        if doubt_at is None and state is not None and isinstance(step, Conditional) and step.run is None:
            is_of_another = step.expect.record_id not in {None, state.record_id}
            doubt_at = step.offset if is_of_another else None
        was_none = state is None
        state = step.apply(state, topic_partition)
        if was_none and state is not None:
            life_at = step.first_offset
    return _Followed(state, life_at, doubt_at)


def _concatenated(earlier: Sequence[SummaryStep], later: Sequence[SummaryStep]) -> tuple[SummaryStep, ...]:
    """Where two runs meet they become one."""
    if earlier and later and isinstance(earlier[-1], Run) and isinstance(later[0], Run):
        return (*earlier[:-1], earlier[-1].then(later[0]), *later[1:])
    return (*earlier, *later)
