"""What a coordinator knows of one transactional id, and every way in which that changes.

An entry never changes: each function gives the next one, after the table of states has let it pass.
"""

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from exactlog.core.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId, TopicPartition
from exactlog.core.transaction.states import TransactionState, check_transition

EPOCH_MAX: Final = ProducerEpoch(32_767)
"""Only markers carry it, so that the last epoch of a producer can be fenced too."""

LAST_USABLE_EPOCH: Final = ProducerEpoch(EPOCH_MAX - 1)
"""The highest epoch that a client ever gets; after it comes a new producer id at epoch 0."""

FIRST_EPOCH: Final = ProducerEpoch(0)

NO_TIME: Final = -1

EPOCH_PER_TRANSACTION_VERSION: Final = 2
"""From this transaction version on, every transaction has an epoch of its own (KIP-890)."""


class TransactionEntry(Struct, frozen=True, kw_only=True, gc=False):
    """One transactional id; shared by head and committed. Times are in ms."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    """What the producer id was before the last change."""
    next_producer_id: ProducerId = NO_PRODUCER_ID
    """What it becomes once the markers are written, where the epochs of the present one are used up."""
    last_producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    """The epoch before the present one, where its owner may go on: a retry with it gets the same answer again."""
    timeout_ms: int
    state: TransactionState
    partitions: tuple[TopicPartition, ...] = ()
    """Sorted, each once."""
    start_time_ms: int = NO_TIME
    last_update_ms: int
    client_transaction_version: int = 0
    """Of whoever last began or ended a transaction."""

    @property
    def is_epoch_used_up(self) -> bool:
        """Whether no higher epoch can be given to a client."""
        return self.producer_epoch >= LAST_USABLE_EPOCH

    @property
    def has_epoch_per_transaction(self) -> bool:
        """Whether the epoch went up when the last transaction ended."""
        return self.client_transaction_version >= EPOCH_PER_TRANSACTION_VERSION

    @property
    def next_identity(self) -> tuple[ProducerId, ProducerEpoch]:
        """Who the producer is as soon as what is decided is complete."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, FIRST_EPOCH
        return self.producer_id, self.producer_epoch

    def ends(self, partition: TopicPartition, producer_epoch: ProducerEpoch) -> bool:
        """Whether its markers end what its producer has open in a partition at this epoch.

        Data at the epoch that the markers carry is of the next transaction, which has begun since they are all written.
        """
        if partition not in self.partitions or not self.state.is_open:
            return False
        if self.state is TransactionState.ONGOING:
            return producer_epoch == self.producer_epoch
        return producer_epoch < self.producer_epoch or not self.has_epoch_per_transaction


def create(transactional_id: str, *, producer_id: ProducerId, timeout_ms: int, now_ms: int) -> TransactionEntry:
    """A transactional id that nobody has used yet, at epoch 0."""
    return TransactionEntry(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=FIRST_EPOCH,
        previous_producer_id=producer_id,  # what Kafka writes
        timeout_ms=timeout_ms,
        state=TransactionState.EMPTY,
        last_update_ms=now_ms,
    )


def initialise(
    entry: TransactionEntry,
    *,
    producer_epoch: ProducerEpoch,
    last_producer_epoch: ProducerEpoch,
    timeout_ms: int,
    now_ms: int,
) -> TransactionEntry:
    """The producer is to go on at this epoch."""
    is_repeated = producer_epoch == entry.producer_epoch  # of a retry: what tells that it is one stays
    return replace(
        entry,
        state=check_transition(entry.state, TransactionState.EMPTY),
        producer_epoch=producer_epoch,
        previous_producer_id=entry.previous_producer_id if is_repeated else entry.producer_id,
        last_producer_epoch=last_producer_epoch,
        timeout_ms=timeout_ms,
        start_time_ms=NO_TIME,
        last_update_ms=now_ms,
    )


def rotate(
    entry: TransactionEntry,
    *,
    producer_id: ProducerId,
    last_producer_epoch: ProducerEpoch,
    timeout_ms: int,
    now_ms: int,
) -> TransactionEntry:
    """The epochs are used up: the producer is to go on with a new id."""
    return replace(
        entry,
        state=check_transition(entry.state, TransactionState.EMPTY),
        previous_producer_id=entry.producer_id,
        producer_id=producer_id,
        producer_epoch=FIRST_EPOCH,
        last_producer_epoch=last_producer_epoch,
        timeout_ms=timeout_ms,
        start_time_ms=NO_TIME,
        last_update_ms=now_ms,
    )


def add(
    entry: TransactionEntry, partitions: tuple[TopicPartition, ...], *, transaction_version: int, now_ms: int
) -> TransactionEntry:
    """These partitions, sorted, are those of the transaction; the first ones begin it."""
    return replace(
        entry,
        state=check_transition(entry.state, TransactionState.ONGOING),
        previous_producer_id=entry.producer_id,
        partitions=partitions,
        start_time_ms=entry.start_time_ms if entry.state is TransactionState.ONGOING else now_ms,
        last_update_ms=now_ms,
        client_transaction_version=transaction_version,
    )


def fence(entry: TransactionEntry, *, last_producer_epoch: ProducerEpoch) -> TransactionEntry:
    """The epoch goes up against the producer of an open transaction; `prepare` leaves it at that (KAFKA-19367)."""
    return replace(
        entry,
        state=check_transition(entry.state, TransactionState.PREPARE_EPOCH_FENCE),
        previous_producer_id=entry.producer_id,
        producer_epoch=_next_epoch(entry),
        last_producer_epoch=last_producer_epoch,
    )


def prepare(
    entry: TransactionEntry,
    *,
    is_commit: bool,
    transaction_version: int,
    next_producer_id: ProducerId = NO_PRODUCER_ID,
    partitions: tuple[TopicPartition, ...] | None = None,
    now_ms: int,
) -> TransactionEntry:
    """The outcome is decided. Markers carry the epoch of the entry that comes out.

    Args:
        next_producer_id: to go on with, where the epochs of the present one are used up.
        partitions: to write markers to; None: those of the transaction.
    """
    is_fenced = entry.state is TransactionState.PREPARE_EPOCH_FENCE
    bumps = transaction_version >= EPOCH_PER_TRANSACTION_VERSION and not is_fenced
    has_begun = is_fenced or entry.state is TransactionState.ONGOING
    return replace(
        entry,
        state=check_transition(
            entry.state, TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT
        ),
        previous_producer_id=entry.producer_id,
        producer_epoch=_next_epoch(entry) if bumps else entry.producer_epoch,
        last_producer_epoch=entry.producer_epoch if bumps else entry.last_producer_epoch,
        next_producer_id=next_producer_id,
        partitions=entry.partitions if partitions is None else partitions,
        start_time_ms=entry.start_time_ms if has_begun else now_ms,
        last_update_ms=now_ms,
        client_transaction_version=transaction_version,
    )


def complete(entry: TransactionEntry, *, now_ms: int) -> TransactionEntry:
    """All markers are written."""
    is_commit = entry.state is TransactionState.PREPARE_COMMIT
    producer_id, producer_epoch = entry.next_identity
    return replace(
        entry,
        state=check_transition(
            entry.state, TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
        ),
        previous_producer_id=entry.producer_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        next_producer_id=NO_PRODUCER_ID,
        partitions=(),
        last_update_ms=now_ms,
    )


def _next_epoch(entry: TransactionEntry) -> ProducerEpoch:
    return ProducerEpoch(min(entry.producer_epoch + 1, EPOCH_MAX))
