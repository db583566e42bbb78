"""What batches of actions make of one journal in the store: the rules of a replicator, without its store.

A store reads the head row, asks `plan_batches`, and carries out the steps in their order. Rows are written before the
head that says they count, and go before the head that says they are gone, so that a crash in between leaves nothing
that a reader takes for whole. The same batches are then applied once more: an action at or before the offset of the
head row does nothing, and what it had begun is done over.

| action | no head row | head row |
|---|---|---|
| append | rows, then a new head | its rows above the last number, then the head: last number, offset, expiry |
| delete | a new head, at that number | the rows up to it, then the head: `delete_to`, offset; never back |
| purge | nothing, but for what a crash left | all rows, snapshots, then no head |
| mark | nothing | nothing |

A purge with an expectation asks one thing more of a replicator: a pointer that has passed what comes before it
(`purge_cuts.py`).

An action whose expectation fails does nothing. An event whose number is not above the last one does nothing either: its
append is reported as a fork.
"""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from exactlog.core.journal import state as states
from exactlog.core.journal.actions import ActionRecord, Append
from exactlog.core.journal.batches import AppendBatch, Batch, DeleteBatch, PurgeBatch
from exactlog.core.journal.errors import Repartitioned
from exactlog.core.journal.event_rows import payload_of, rows_of
from exactlog.core.journal.events import EventRow
from exactlog.core.journal.expiry import Expiry, expiry_of
from exactlog.core.journal.key_plan import Fork, KeyPlan, Terms
from exactlog.core.journal.keys import SEQ_NR_MIN, Place, SeqNr, SeqRange, record_id_of
from exactlog.core.journal.rows import DeleteRows, DropHead, DropSnapshots, HeadRow, PutHead, Step, WriteRows
from exactlog.core.model.ids import Offset

ROWS_PER_STEP_MAX: Final = 10_000
"""Of one `WriteRows`: a store has so many in hand at a time, however long a poll was."""


def plan_batches(head: HeadRow | None, batches: Sequence[Batch], terms: Terms) -> KeyPlan:
    """What these batches of one journal, in the order of the log, make of its head row.

    Raises:
        DecodeError: an append that counts cannot be read, or is not what its header says; the place is named.
        Repartitioned: the head row is of another partition than the batches: offsets say nothing then.
    """
    if head is not None and head.place.partition != terms.topic_partition.partition:
        raise Repartitioned(
            f"a journal that was in partition {head.place.partition} has actions in {terms.topic_partition}",
            hint="the number of partitions was changed: copy the topic into one of the new number",
        )
    draft = _Draft(head, terms)
    for batch in batches:
        draft.apply(batch)
    return draft.plan()


class _Draft:
    """A plan in the making: the head row as it would be, and the steps to there.

    Appends are gathered: rows of all that follow each other, then one head. `_head` is ahead of the steps meanwhile.
    """

    def __init__(self, head: HeadRow | None, terms: Terms) -> None:
        self._head = head
        self._terms = terms
        self._rows: list[EventRow] = []
        self._has_head_to_put = False
        self._steps: list[Step] = []
        self._forks: list[Fork] = []
        self._refused: list[int] = []

    def plan(self) -> KeyPlan:
        self._put_what_was_gathered()
        return KeyPlan(
            steps=tuple(self._steps), head=self._head, forks=tuple(self._forks), refused=tuple(self._refused)
        )

    def apply(self, batch: Batch) -> None:
        applied_to = -1 if self._head is None else self._head.offset
        is_repeated_purge = isinstance(batch, PurgeBatch) and batch.offset == applied_to
        if batch.offset <= applied_to and not is_repeated_purge:
            return
        if not batch.expect.holds(self._state):
            self._refused.append(batch.offset)
            return
        match batch:
            case AppendBatch():
                for record in batch.records:
                    if record.offset > applied_to:
                        self._append(record, batch)
            case DeleteBatch():
                self._delete(batch)
            case PurgeBatch():
                self._purge(batch)

    @property
    def _state(self) -> states.JournalState | None:
        return None if self._head is None else self._head.state

    def _append(self, record: ActionRecord, batch: AppendBatch) -> None:
        append = record.action
        assert isinstance(append, Append)
        state = self._state
        payload = payload_of(record)
        taken_from = states.taken_from(state)
        if append.range.first < taken_from:
            self._forks.append(Fork(record.offset, append.range, taken_from - 1))
        first = min(append.range.first, batch.first_seq_nr)  # what need not be written began the journal all the same
        record_id = record_id_of(self._terms.topic_partition, batch.first_offset)
        after = states.append(state, first=first, last=append.range.last, record_id=record_id)
        rows = (row for row in rows_of(record, payload) if row.seq_nr >= taken_from)
        self._rows.extend(replace(row, record_id=after.record_id) for row in rows)
        expiry = expiry_of(payload.expire_after, timestamp_ms=record.timestamp_ms)
        self._move_head(after, record.offset, origin=append.origin, expiry=expiry)

    def _delete(self, batch: DeleteBatch) -> None:
        """Rows first: a head that says more is deleted than is would never be set right."""
        state = self._state
        record_id = record_id_of(self._terms.topic_partition, batch.first_offset)
        after = states.delete(state, to=batch.to, record_id=record_id)
        self._put_what_was_gathered()
        if state is not None and not after.is_reset and after.delete_to > state.delete_to:
            self._drop_rows(state.delete_to + 1, after.delete_to)
        expiry = None if self._head is None else self._head.expiry
        self._move_head(after, batch.offset, origin=batch.origin, expiry=expiry)

    def _purge(self, batch: PurgeBatch) -> None:
        self._put_what_was_gathered()
        rows_from, rows_to = int(SEQ_NR_MIN), batch.dropped_to
        if self._head is not None:
            rows_from, rows_to = self._head.state.delete_to + 1, max(self._head.rows_to, batch.dropped_to)
        if batch.dropped_to:  # a crash may have left rows of what need not be carried out
            rows_from = SEQ_NR_MIN
        if rows_from <= rows_to:
            self._drop_rows(rows_from, rows_to)
        if self._head is not None or batch.dropped_to:
            place = Place(self._terms.topic_partition.partition, Offset(batch.offset))
            self._steps.append(DropSnapshots(place))
        if self._head is not None:
            self._steps.append(DropHead())
            self._head = None

    # --- the head, and what goes before it ----------------------------------------------------------------------------

    def _move_head(self, state: states.JournalState, offset: int, *, origin: str | None, expiry: Expiry | None) -> None:
        head, now_ms = self._head, self._terms.now_ms
        self._head = HeadRow(
            place=Place(self._terms.topic_partition.partition, Offset(offset)),
            segment_size=self._segment_size,
            seq_nr=state.seq_nr,
            delete_to=state.delete_to or None,
            created_ms=now_ms if head is None else head.created_ms,
            updated_ms=now_ms,
            expiry=expiry,
            record_id=state.record_id,
            origin=origin,
            is_reset=state.is_reset,
        )
        self._has_head_to_put = True

    def _put_what_was_gathered(self) -> None:
        for start in range(0, len(self._rows), ROWS_PER_STEP_MAX):
            rows = tuple(self._rows[start : start + ROWS_PER_STEP_MAX])
            self._steps.append(WriteRows(rows, self._segment_size))
        self._rows.clear()
        if self._has_head_to_put:
            assert self._head is not None
            self._steps.append(PutHead(self._head))
        self._has_head_to_put = False

    def _drop_rows(self, first: int, last: int) -> None:
        self._steps.append(DeleteRows(SeqRange(SeqNr(first), SeqNr(last)), self._segment_size))

    @property
    def _segment_size(self) -> int:
        return self._terms.segment_size if self._head is None else self._head.segment_size
