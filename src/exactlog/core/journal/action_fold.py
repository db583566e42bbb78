"""One action after the other: the plainest fold, on which every other one is measured."""

from collections.abc import Iterable
from uuid import UUID

from exactlog.core.journal import state as states
from exactlog.core.journal.actions import ActionRecord, Append, Delete, Mark, Purge
from exactlog.core.journal.keys import record_id_of
from exactlog.core.journal.state import JournalState
from exactlog.core.model.ids import TopicPartition


def apply_action(state: JournalState | None, record: ActionRecord) -> JournalState | None:
    """The state of a journal after one of its actions; the very same object where it changes nothing."""
    match record.action:
        case Mark():
            return state
        case Append(expect=expect) | Delete(expect=expect) | Purge(expect=expect) if not expect.holds(state):
            return state
        case Append(range=numbers):
            return states.append(state, first=numbers.first, last=numbers.last, record_id=life_begun_by(record))
        case Delete(to=to):
            return states.delete(state, to=to, record_id=life_begun_by(record))
        case Purge():
            return None


def apply_actions(state: JournalState | None, records: Iterable[ActionRecord]) -> JournalState | None:
    """The state of a journal after these actions of it, in the order of the log."""
    for record in records:
        state = apply_action(state, record)
    return state


def life_begun_by(record: ActionRecord) -> UUID:
    """The id of the life of a journal that this action begins, if it does."""
    return record_id_of(TopicPartition(record.key.topic, record.place.partition), record.offset)
