"""Actions of one journal, drawn together into as few batches as leave the same behind.

- Marks are left out.
- Before the last purge nothing is left but that purge: it takes all with it.
- Appends that follow each other become one batch.
- A delete is left out when a later one reaches as far; deletes that follow each other become one.
- An append of which a later delete takes everything need not be written, unless it is the last before that delete: the
  head learns from it how far the journal is.
- An action with an expectation is a batch of its own: whether it counts is known where the head row is. Nothing is
  drawn together over it, and it takes nothing with it.

What is left out is remembered where it shows in the outcome (`batches.py`).
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from exactlog.core.journal.actions import ActionRecord, Append, Delete, Mark, Purge
from exactlog.core.journal.batches import AppendBatch, Batch, DeleteBatch, PurgeBatch


class _Change(NamedTuple):
    """An action that may change something, and where it stands."""

    record: ActionRecord
    action: Append | Delete | Purge

    @property
    def is_free(self) -> bool:
        return self.action.expect.is_any


class _LaterDelete:
    """A delete behind the actions that are looked at, and how far the appends between here and there come."""

    __slots__ = ("appended_to", "to")

    def __init__(self, to: int) -> None:
        self.to = to
        self.appended_to = 0


def optimize_actions(records: Iterable[ActionRecord]) -> tuple[Batch, ...]:
    """The batches of these actions of one journal, which come in the order of the log."""
    changes = [_Change(record, record.action) for record in records if not isinstance(record.action, Mark)]
    purges = [at for at, change in enumerate(changes) if isinstance(change.action, Purge) and change.is_free]
    batches: list[Batch] = []
    if purges:
        before, changes = changes[: purges[-1] + 1], changes[purges[-1] + 1 :]
        dropped_to = max(
            (change.action.range.last for change in before if isinstance(change.action, Append)), default=0
        )
        batches.append(PurgeBatch(offset=before[-1].record.offset, dropped_to=dropped_to))
    for is_free, section in groupby(changes, lambda change: change.is_free):
        section_changes = list(section)
        batches.extend(_drawn_together(section_changes) if is_free else map(_alone, section_changes))
    return tuple(batches)


def _alone(change: _Change) -> Batch:
    record, action = change
    match action:
        case Append():
            return _appends([change], first_offset=record.offset, first_seq_nr=action.range.first)
        case Delete():
            return _deletes([change], first_offset=record.offset)
        case Purge():
            return PurgeBatch(offset=record.offset, expect=action.expect)


def _drawn_together(section: Sequence[_Change]) -> Iterator[Batch]:
    """The batches of appends and deletes that expect nothing. The first one remembers where the section begins."""
    first_offset = section[0].record.offset
    first_seq_nr = next((change.action.range.first for change in section if isinstance(change.action, Append)), 0)
    for is_append, changes in groupby(_still_seen(section), lambda change: isinstance(change.action, Append)):
        if is_append:
            yield _appends(list(changes), first_offset=first_offset, first_seq_nr=first_seq_nr)
        else:
            yield _deletes(list(changes), first_offset=first_offset)


def _still_seen(section: Sequence[_Change]) -> list[_Change]:
    """What shows in the end; found from the newest to the oldest."""
    seen: list[_Change] = []
    deletes: list[_LaterDelete] = []  # each reaches further than those behind it
    for change in reversed(section):
        if isinstance(change.action, Append):
            last = change.action.range.last
            taken = next((delete for delete in deletes if delete.to >= last), None)
            if taken is not None and taken.appended_to >= last:
                continue
            for delete in deletes:
                delete.appended_to = max(delete.appended_to, last)
        else:
            to = _delete_to(change)
            if deletes and deletes[-1].to >= to:
                continue
            deletes.append(_LaterDelete(to))
        seen.append(change)
    seen.reverse()
    return seen


def _appends(changes: Sequence[_Change], *, first_offset: int, first_seq_nr: int) -> AppendBatch:
    return AppendBatch(
        records=tuple(change.record for change in changes),
        offset=changes[-1].record.offset,
        first_offset=first_offset,
        first_seq_nr=first_seq_nr,
        expect=changes[-1].action.expect,
    )


def _deletes(changes: Sequence[_Change], *, first_offset: int) -> DeleteBatch:
    """`max` takes the first of equals."""
    furthest = max(changes, key=_delete_to)
    last = changes[-1]
    return DeleteBatch(
        to=_delete_to(furthest),
        to_offset=furthest.record.offset,
        offset=last.record.offset,
        first_offset=first_offset,
        origin=last.action.origin,
        expect=last.action.expect,
    )


def _delete_to(change: _Change) -> int:
    assert isinstance(change.action, Delete)
    return change.action.to
