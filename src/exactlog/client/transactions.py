"""Transactions: writing in them, and seeing and ending them from outside.

Every operation retries what may succeed later, within `ClientSettings.deadline_ms`; what else it raises stands in
`exactlog.client.ports`.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol, Self

import msgspec

from exactlog.client.groups import CommittedOffset
from exactlog.client.produced import ProducedRecord, ProducerIdentity
from exactlog.core.codec.compression import Compression
from exactlog.core.codec.wire_types import Buffer
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import ExactlogError, KafkaError, UnavailableError
from exactlog.core.model.ids import BrokerId, Offset, ProducerEpoch, ProducerId, TimestampMs, TopicPartition
from exactlog.core.record.batch_builder import NewRecord

ONGOING: Final = "Ongoing"
EMPTY: Final = "Empty"
PREPARE_COMMIT: Final = "PrepareCommit"
PREPARE_ABORT: Final = "PrepareAbort"

STATES: Final = (EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, "CompleteCommit", "CompleteAbort", "Dead")
"""What a coordinator calls the states of a transaction (KIP-664)."""

OPEN_STATES: Final = frozenset({ONGOING, PREPARE_COMMIT, PREPARE_ABORT, "PrepareEpochFence"})
"""Those in which partitions may still wait for the transaction."""

TRANSACTION_TIMEOUT_MS_DEFAULT: Final = 60_000
"""That of Kafka's producer."""

TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
"""The refusals of a batch whose records may be sent again in smaller ones."""


class ProducerFencedError(KafkaError):
    """Another producer has taken over the transactional id, or the coordinator has timed the transaction out.

    It is final: whoever wants the id back takes it with a producer of its own, which fences the other in turn.
    """

    code = "fenced"

    def __init__(self, error_code: ErrorCode, message: str, *, hint: str = "") -> None:
        super().__init__(error_code, message, hint=hint)
        self.retryable = False


class TransactionFailedError(ExactlogError):
    """A part of the transaction has failed, so it cannot be committed; it can be aborted, and done again."""

    code = "transaction-failed"


class OutcomeUnknownError(UnavailableError):
    """Whether the transaction has been ended is not known. To end it the same way again is safe."""

    code = "outcome-unknown"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.retryable = False


class TransactionStateError(ExactlogError):
    """Not now: there is no transaction, or another one is open, or records are still on their way."""

    code = "transaction-state"


class SharedTransaction(msgspec.Struct, frozen=True):
    """An open transaction, for other processes that write in it: it can be pickled, or sent as JSON.

    Attributes:
        transactional_id: whose transaction it is.
        producer_id: what batches are signed with.
        producer_epoch: likewise; it is used for this transaction alone.
        transaction_version: the level of the feature `transaction.version` it began at; from 2 on partitions are added
            by writing to them (KIP-890).
    """

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    transaction_version: int

    @property
    def identity(self) -> ProducerIdentity:
        """What batches are signed with."""
        return ProducerIdentity(self.producer_id, self.producer_epoch)


class TransactionListing(msgspec.Struct, frozen=True):
    """A transactional id in short; `state` is one of `STATES`, `coordinator_id` the broker that coordinates it."""

    transactional_id: str
    producer_id: ProducerId
    state: str
    coordinator_id: BrokerId


class TransactionDescription(msgspec.Struct, frozen=True):
    """A transactional id and its transaction, as its coordinator knows it.

    Attributes:
        transactional_id: the id.
        state: one of `STATES`.
        producer_id: of the producer that has it, or of the next one.
        producer_epoch: likewise.
        timeout_ms: how long a transaction of it may stay open.
        started_at_ms: when the transaction began; None where there is none, or none yet.
        partitions: those it has written to that still wait for it, in order.
        coordinator: the address of its coordinator.
    """

    transactional_id: str
    state: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    timeout_ms: int
    started_at_ms: TimestampMs | None
    partitions: tuple[TopicPartition, ...]
    coordinator: str

    @property
    def is_open(self) -> bool:
        """Whether partitions may wait for it."""
        return self.state in OPEN_STATES


class ActiveProducer(msgspec.Struct, frozen=True):
    """A producer as a partition remembers it.

    Attributes:
        producer_id: the producer.
        producer_epoch: likewise.
        last_sequence: of the last record; None where it has written none in this epoch.
        last_timestamp_ms: of its last batch or marker.
        coordinator_epoch: of the coordinator that wrote its last marker; None before the first.
        txn_start_offset: the first offset of its open transaction; None where none is open. Readers of committed
            records wait there.
    """

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    last_sequence: int | None
    last_timestamp_ms: TimestampMs | None
    coordinator_epoch: int | None
    txn_start_offset: Offset | None


class TransactionAdmin(Protocol):
    """Transactions, seen from outside (KIP-664)."""

    async def list_transactions(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        open_for_ms_min: int | None = None,
        id_pattern: str | None = None,
    ) -> tuple[TransactionListing, ...]:
        """The transactional ids of every coordinator, by name.

        Args:
            states: only those in these states.
            producer_ids: only those of these producers.
            open_for_ms_min: only those whose transaction has been open for so long (KIP-994).
            id_pattern: only those that match this regular expression (RE2, KIP-1152).

        Raises `UnsupportedError` where the broker does not know such a filter, `KafkaError` with INVALID_REQUEST for
        states that it does not know, INVALID_REGULAR_EXPRESSION.
        """

    async def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        """One of them. Raises `NotFoundError`."""

    async def describe_transactions(self, transactional_ids: Collection[str]) -> dict[str, TransactionDescription]:
        """Many of them; those that are not there are left out."""

    async def describe_producers(
        self, places: Collection[TopicPartition]
    ) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
        """The producers that each partition remembers, by id. Raises `NotFoundError` for a partition."""

    async def fence_producers(self, transactional_id: str, *, timeout_ms: int) -> ProducerIdentity:
        """Take a transactional id over: its transaction is aborted, its producer fenced.

        The timeout becomes that of the next transactions of this id, unless their producer brings its own.

        Raises `KafkaError` with INVALID_TRANSACTION_TIMEOUT.
        """

    async def write_abort_marker(
        self, place: TopicPartition, *, producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> None:
        """End a producer's transaction in one partition, whatever its coordinator knows: its records are aborted.

        It is for a transaction that no coordinator will ever end. `ActiveProducer` has the numbers; a coordinator
        epoch that it does not have is 0.

        Raises `KafkaError` with INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED where they are old.
        """


class TransactionPart(Protocol):
    """Writes in an open transaction; where anything has failed the transaction can only be aborted."""

    async def produce(
        self,
        topic: str,
        records: Sequence[NewRecord],
        *,
        partition: int | None = None,
        compression: Compression = Compression.NONE,
    ) -> tuple[ProducedRecord, ...]:
        """Append records and say where each went; partitions are chosen as by `Producer.produce`.

        Of the processes that share a transaction only one may write to a partition.

        Raises `ProducerFencedError`, `TransactionFailedError` where an earlier call has failed,
        `TransactionStateError` where no transaction is open.
        """

    async def send_batch(self, place: TopicPartition, batch: Buffer) -> Offset | None:
        """Append one batch that the caller has built (`build_batch`), and say where; None where the broker does not.

        It is signed with the transaction's producer id and epoch, and a sequence that counts the records of the
        partition from 0. Whoever writes so to a partition does not use `produce` on it. Batches of a partition go one
        after the other.

        Raises as `produce`. A refusal of `TOO_LARGE` leaves the transaction as it was: the records may be sent again
        in smaller batches.
        """

    async def stable_offsets(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """Every offset that a group has committed, once no other transaction is about to commit one (KIP-447)."""

    async def send_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, Offset],
        *,
        member_id: str = "",
        generation_id: int = -1,
        group_instance_id: str | None = None,
        metadata: str = "",
    ) -> None:
        """Let a group have come that far, if the transaction commits.

        The name of a member and its generation let the coordinator refuse one that is no longer a member (KIP-447).
        The metadata is kept with each of the offsets.

        Raises as `produce`, and `KafkaError` with ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
        """


class TransactionalProducer(TransactionPart, Protocol):
    """The one producer of a transactional id, in one transaction after another.

    As a context it aborts, when left, what is still open.
    """

    @property
    def identity(self) -> ProducerIdentity | None:
        """What the present or next transaction is signed with; None before `init`."""

    async def init(self) -> ProducerIdentity:
        """Take the transactional id: whatever transaction of it is open is aborted, whoever had it is fenced.

        The first `begin` does it too.

        Raises `ProducerFencedError`, `KafkaError` with INVALID_TRANSACTION_TIMEOUT.
        """

    async def begin(self) -> None:
        """Begin a transaction. Raises `TransactionStateError` while one is open, `ProducerFencedError`."""

    async def begin_shared(self) -> SharedTransaction:
        """Begin a transaction that other processes write in too (`Client.join_transaction`).

        Commit it when all of them have done what they had to; those that come later are fenced. A producer that is not
        used as a context leaves it open when its process ends: `Client.resume_transaction` ends it elsewhere.
        """

    async def commit(self) -> None:
        """Let all that was written in the transaction count, and nothing less.

        Raises:
            ProducerFencedError: it does not count.
            TransactionFailedError: it cannot; abort it.
            OutcomeUnknownError: call `commit` again.
            TransactionStateError: none is open, or records are still on their way.
        """

    async def abort(self) -> None:
        """Let nothing count that was written in the transaction. Raises as `commit`."""

    def transaction(self) -> AbstractAsyncContextManager[Self]:
        """`async with producer.transaction():` commits at the end, and aborts when an exception comes out."""

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *exception: object) -> None: ...
