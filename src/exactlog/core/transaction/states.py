"""The states of a transactional id, and the one table of what may follow what.

Numbers and names are Kafka's (`TransactionState`); the table is KIP-98's with what KIP-890 added: with transaction
version 2 an id that has no transaction open may be aborted too, for the sake of the next epoch.
"""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from exactlog.core.model.errors import InvariantError


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

    @property
    def kafka_name(self) -> str:
        """Kafka's spelling: `PrepareCommit`."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_prepared(self) -> bool:
        """Whether an outcome is decided whose markers are not all written."""
        return self is TransactionState.PREPARE_COMMIT or self is TransactionState.PREPARE_ABORT

    @property
    def is_complete(self) -> bool:
        """Whether the last transaction has ended."""
        return self is TransactionState.COMPLETE_COMMIT or self is TransactionState.COMPLETE_ABORT

    @property
    def is_open(self) -> bool:
        """Whether partitions wait for markers, now or later."""
        return self is TransactionState.ONGOING or self.is_prepared


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


def check_transition(before: TransactionState, after: TransactionState) -> None:
    """Lets a legal change pass.

    Raises:
        InvariantError: it is not in the table.
    """
    if after not in TRANSITIONS[before]:
        raise InvariantError(f"no transaction goes from {before.kafka_name} to {after.kafka_name}")
