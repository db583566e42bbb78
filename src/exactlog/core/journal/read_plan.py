"""Reading one journal from a store that lags and a log that has lost its tail: what to read, from where (seed 003).

The order of questions, each answered by a function here:

1. `needed_stretch`: after the mark of this read is in the log (or its end offset was asked for) and the store has told
   its pointer: which stretch of the log is not replicated? None: the store alone is enough.
2. `held_offset`: after the store has given the head row: up to which offset does that row hold all actions?
3. `plan_read`: after the stretch has been summarized (by a cache, or by reading it once): which events come from the
   store, which from the log? There is no plan without a summary, so nothing is streamed before the deletes in the head
   are known.
4. `LogReader`: streams the part from the log, and takes from it what the same fold takes.

What comes from the store is at least as new as its head row, what comes from the log ends with the stretch: the answer
holds every event from before the mark, and is the same whichever path it took.
"""

from collections.abc import Iterator
from enum import Enum

from msgspec import Struct
from msgspec.structs import replace

from exactlog.core.journal import state as states
from exactlog.core.journal.action_fold import apply_action
from exactlog.core.journal.actions import ActionRecord, Append
from exactlog.core.journal.errors import HeadLost, Repartitioned, Retriable
from exactlog.core.journal.event_rows import rows_of
from exactlog.core.journal.events import EventRow
from exactlog.core.journal.head_summary import HeadSummary
from exactlog.core.journal.keys import JournalKey, SeqNr, SeqRange
from exactlog.core.journal.rows import HeadRow
from exactlog.core.journal.state import JournalState
from exactlog.core.model.ids import TopicPartition

NOT_REPLICATED = -1
"""The pointer of a partition of which nothing is replicated."""


class ReadPath(Enum):
    """Which way a read took: a label of its metrics."""

    NOTHING = "nothing"
    STORE = "store"
    LOG = "log"
    STORE_THEN_LOG = "store_then_log"


class Stretch(Struct, frozen=True):
    """Offsets of a partition, `end` not included."""

    start: int
    end: int


class LogPart(Struct, frozen=True, kw_only=True):
    """Which stretch of the log to stream, and the state of the journal before it."""

    stretch: Stretch
    before: JournalState | None


class ReadPlan(Struct, frozen=True, kw_only=True):
    """What to read.

    Attributes:
        state: of the journal at the end of the stretch; None: there is no journal.
        wanted: the numbers to be told; None: no event of the wanted range is there.
        store: the numbers to ask the store for, first of all; None: nothing of the store counts.
        log: the stretch to stream afterwards; None: the store has all of it.
    """

    state: JournalState | None
    wanted: SeqRange | None = None
    store: SeqRange | None = None
    log: LogPart | None = None

    @property
    def path(self) -> ReadPath:
        """The way it takes."""
        match self.store, self.log:
            case None, None:
                return ReadPath.NOTHING
            case None, _:
                return ReadPath.LOG
            case _, None:
                return ReadPath.STORE
            case _:
                return ReadPath.STORE_THEN_LOG

    def log_after(self, last_seq_nr: int | None) -> LogPart | None:
        """What is left to stream once the store has given its rows, the last with this number.

        None, where the replicator has caught up meanwhile: no consumer is needed.
        """
        assert self.wanted is not None
        is_complete = last_seq_nr is not None and last_seq_nr >= self.wanted.last
        return None if is_complete else self.log


def needed_stretch(topic_partition: TopicPartition, *, pointer: int | None, end: int, log_start: int) -> Stretch | None:
    """The stretch of the log that a read needs; None: the store has everything before `end`.

    Args:
        topic_partition: the journal's.
        pointer: offset of the last record that is replicated; None: nothing is.
        end: the read is to see every action before this offset: that of its mark, or the end offset.
        log_start: the first offset that is left.

    Raises:
        HeadLost: records were removed that are not replicated.
    """
    start = (NOT_REPLICATED if pointer is None else pointer) + 1
    if end <= start:
        return None
    if log_start > start:
        raise HeadLost(
            f"{topic_partition}: offsets {start} to {log_start - 1} are neither replicated nor in the log any more",
            hint="look for their events in a copy; then move the pointer of the store to go on without them",
        )
    return Stretch(start, end)


def held_offset(topic_partition: TopicPartition, *, pointer: int | None, head: HeadRow | None) -> int:
    """The offset up to which a head row holds every action of its journal, and behind which it holds none.

    The pointer was told before the head row was. A replicator may have gone on since, but writes the heads of a poll
    before it moves the pointer.

    Raises:
        Repartitioned: the head row is of another partition.
    """
    replicated_to = NOT_REPLICATED if pointer is None else pointer
    if head is None:
        return replicated_to
    if head.place.partition != topic_partition.partition:
        raise Repartitioned(
            f"a journal of partition {head.place.partition} now belongs to {topic_partition}",
            hint="the number of partitions was changed: copy the topic into one of the new number",
        )
    return max(replicated_to, head.offset)


def plan_read(key: JournalKey, wanted: SeqRange, *, head: HeadRow | None, summary: HeadSummary) -> ReadPlan:
    """What to read of a journal.

    Args:
        key: the journal.
        wanted: the numbers that are asked for.
        head: its head row; None: there is none.
        summary: of the stretch behind `held_offset`, up to the end of the read (`HeadSummary.since`).

    Raises:
        Retriable: the store is about to carry out a purge on terms; a moment later it can be told.
    """
    before = None if head is None else head.state
    doubt_at = summary.doubt_at(before)
    if doubt_at is not None:
        raise Retriable(
            f"journal {key}: whether the purge at offset {doubt_at} of {summary.topic_partition} was carried out "
            "cannot be told before it is replicated",
            hint="read again in a moment",
        )
    state = summary.state_after(before)
    if state is None:
        return ReadPlan(state=None)
    first, last = max(wanted.first, state.delete_to + 1), min(wanted.last, state.seq_nr)
    if first > last:
        return ReadPlan(state=state)
    stored_to = 0
    if before is not None and not before.is_reset and before.record_id == state.record_id:
        stored_to = before.seq_nr
    seq_range = SeqRange(SeqNr(first), SeqNr(last))
    return ReadPlan(
        state=state,
        wanted=seq_range,
        store=seq_range if first <= stored_to else None,
        log=_log_part(summary, before) if last > stored_to else None,
    )


def _log_part(summary: HeadSummary, before: JournalState | None) -> LogPart:
    """From the journal's first action on: those before it are of others."""
    known = summary.known
    is_purged = known is not None and known.purged_at is not None and known.purged_at >= summary.start
    begins_at = summary.begins_at
    start = summary.start if begins_at is None else max(summary.start, begins_at)
    return LogPart(stretch=Stretch(start, summary.end), before=None if is_purged else before)


class LogReader:
    """Takes the events of one journal from the actions of a stretch: those that the fold takes, of the life it ends in.

    Give it the journal's actions in the order of the log; ones that it had already are passed over.
    """

    def __init__(self, plan: ReadPlan, part: LogPart, *, next_seq_nr: int = 1) -> None:
        """Reading `part` of a plan; numbers below `next_seq_nr` have been told."""
        assert plan.state is not None
        assert plan.wanted is not None
        self._life = plan.state.record_id
        self._wanted = plan.wanted
        self._stretch = part.stretch
        self._state = part.before
        self._offset = part.stretch.start - 1
        self._next_seq_nr = max(next_seq_nr, plan.wanted.first)

    @property
    def is_done(self) -> bool:
        """Whether the last event that is wanted was told, or the stretch is over."""
        return self._next_seq_nr > self._wanted.last or self._offset + 1 >= self._stretch.end

    def take(self, record: ActionRecord) -> Iterator[EventRow]:
        """The events that an action adds, ascending.

        Raises:
            DecodeError: the action adds some, and they cannot be read.
        """
        if not self._offset < record.offset < self._stretch.end:
            return
        self._offset = record.offset
        before = self._state
        self._state = apply_action(before, record)
        append = record.action
        if not isinstance(append, Append) or self._state is before or self._state is None:
            return
        is_wanted = self._next_seq_nr <= append.range.last and append.range.first <= self._wanted.last
        if self._state.record_id != self._life or not is_wanted:
            return
        taken_from = max(states.taken_from(before), self._next_seq_nr)
        for row in rows_of(record):
            if taken_from <= row.seq_nr <= self._wanted.last:
                self._next_seq_nr = row.seq_nr + 1
                yield replace(row, record_id=self._life)
