"""Where a journal stands, and what each action makes of that: the one place with these rules.

| before | append first..last | delete to t | purge |
|---|---|---|---|
| no journal | last event `last`, deleted to first - 1 | reset: last event and deleted to are t | no journal |
| reset to r | last event `last`, deleted to first - 1 | reset to max(r, t) | no journal |
| last event s, deleted to d | last event max(s, last) | deleted to max(d, min(t, s)) | no journal |

- A delete says what may go of the events before it. It never takes one that comes after it, and never brings one back.
- A number is given once in a life: an event whose number is not above the last one is not taken. That is a *fork*: a
  second writer, or the same one again. Whoever came first in the log stands.
- A journal that begins with a delete is *reset*: it exists, at that number, and has no event that could be taken twice.
"""

from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from exactlog.core.journal.keys import NOTHING_DELETED


class JournalState(Struct, frozen=True):
    """Where a journal stands after an action; None, in its place, says that there is no journal.

    Attributes:
        seq_nr: its last sequence number.
        delete_to: events up to this number are deleted; 0: none is.
        is_reset: it began with a delete, and has had no event since.
        record_id: its life, given by the action that began it; None in journals from before there were such ids.
    """

    seq_nr: int
    delete_to: int = NOTHING_DELETED
    is_reset: bool = False
    record_id: UUID | None = None


def append(state: JournalState | None, *, first: int, last: int, record_id: UUID) -> JournalState:
    """A journal after events `first` to `last`; `record_id` is its life, if they begin one."""
    if state is None:
        return JournalState(last, first - 1, record_id=record_id)
    if state.is_reset:
        return replace(state, seq_nr=last, delete_to=first - 1, is_reset=False)
    return state if last <= state.seq_nr else replace(state, seq_nr=last)


def delete(state: JournalState | None, *, to: int, record_id: UUID) -> JournalState:
    """A journal after its events up to `to` were deleted; `record_id` is its life, if that begins one."""
    if state is None:
        return JournalState(to, to, is_reset=True, record_id=record_id)
    if state.is_reset:
        to = max(to, state.seq_nr)
        return replace(state, seq_nr=to, delete_to=to)
    return replace(state, delete_to=max(state.delete_to, min(to, state.seq_nr)))


def taken_from(state: JournalState | None) -> int:
    """The lowest number that the next event may have."""
    return 1 if state is None or state.is_reset else state.seq_nr + 1
