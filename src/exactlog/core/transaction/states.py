"""The states of a transactional id, and the one table of what may follow what.

Numbers and names are Kafka's (`TransactionState`); the table is KIP-98's with what KIP-890 added: with transaction
version 2 an id that has no transaction open may be aborted too, for the sake of the next epoch.
"""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, Self

from exactlog.core.model.errors import InvariantError

_ONGOING: Final = 1
_PREPARED: Final = frozenset({2, 3})
_COMPLETE: Final = frozenset({4, 5})


class TransactionState(IntEnum):
    """Where a transactional id stands; the number is what the log says."""

    EMPTY = 0
    """There has been no transaction since the producer was initialised."""
    ONGOING = 1
    """A transaction is open."""
    PREPARE_COMMIT = 2
    """It is decided to commit; its markers are being written."""
    PREPARE_ABORT = 3
    """It is decided to abort; its markers are being written."""
    COMPLETE_COMMIT = 4
    """The last transaction was committed, all its markers are written."""
    COMPLETE_ABORT = 5
    """The last transaction was aborted, all its markers are written."""
    DEAD = 6
    """The id has expired and is no more; the log has no value for it, so nobody sees this state."""
    PREPARE_EPOCH_FENCE = 7
    """The epoch of an open transaction has gone up, so that it can be aborted against its producer; never written."""

    is_prepared: bool
    """Whether an outcome is decided whose markers are not all written."""
    is_complete: bool
    """Whether the last transaction has ended."""
    is_open: bool
    """Whether partitions wait for markers, now or later."""

    def __new__(cls, number: int) -> Self:
        """A member; what it is asked all the time is an attribute, which costs a fraction of a property."""
        member = int.__new__(cls, number)
        member._value_ = number
        member.is_prepared = number in _PREPARED
        member.is_complete = number in _COMPLETE
        member.is_open = number == _ONGOING or member.is_prepared
        return member

    @property
    def kafka_name(self) -> str:
        """Kafka's spelling: `PrepareCommit`."""
        return "".join(word.capitalize() for word in self.name.split("_"))


_S = TransactionState

TRANSITIONS: Final[Mapping[TransactionState, frozenset[TransactionState]]] = MappingProxyType(
    {
        _S.EMPTY: frozenset({_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT, _S.DEAD}),
        _S.ONGOING: frozenset({_S.ONGOING, _S.PREPARE_COMMIT, _S.PREPARE_ABORT, _S.PREPARE_EPOCH_FENCE}),
        _S.PREPARE_COMMIT: frozenset({_S.COMPLETE_COMMIT}),
        _S.PREPARE_ABORT: frozenset({_S.COMPLETE_ABORT}),
        _S.COMPLETE_COMMIT: frozenset({_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT, _S.DEAD}),
        _S.COMPLETE_ABORT: frozenset({_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT, _S.DEAD}),
        _S.PREPARE_EPOCH_FENCE: frozenset({_S.PREPARE_ABORT}),
        _S.DEAD: frozenset(),
    }
)
"""What may follow a state. docs/transaction_states.md draws it."""


def check_transition(before: TransactionState, after: TransactionState) -> TransactionState:
    """Lets a legal change pass; gives the state after it.

    Raises:
        InvariantError: it is not in the table.
    """
    if after not in TRANSITIONS[before]:
        raise InvariantError(f"no transaction goes from {before.kafka_name} to {after.kafka_name}")
    return after
