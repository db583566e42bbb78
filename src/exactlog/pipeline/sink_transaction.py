"""The transaction of one batch: begun and ended where the driver is, written in by tasks (KIP-98, KIP-447).

That a batch was written is recorded in its own transaction, as an offset of a group that has no members: the offset is
the batch's number plus one, its metadata says of which query. So the rows and the record of them count together.
"""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Self

import msgspec

from exactlog.client.groups import CommittedOffset
from exactlog.client.ports import Client, ClientSettings
from exactlog.client.transactions import (
    PREPARE_ABORT,
    ProducerFencedError,
    SharedTransaction,
    TransactionDescription,
)
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import ConfigError, ExactlogError, KafkaError
from exactlog.core.model.ids import Offset, TopicPartition
from exactlog.core.model.sequences import SEQUENCE_MAX
from exactlog.pipeline.client_thread import ClientThread
from exactlog.pipeline.write_options import WriteOptions

_log = logging.getLogger(__name__)

SINK_SETTINGS: Final = ClientSettings(client_id="exactlog-sink", deadline_ms=60_000)
CONTACT_SETTINGS: Final = ClientSettings(client_id="exactlog-sink", deadline_ms=20_000)
"""For what a batch begins with: a broker that is away for longer is told of soon. An abort is as hasty."""

QUERY_PROPERTY: Final = "sql.streaming.queryId"
"""The local property by which Spark tells for which streaming query something is done; in `foreachBatch` too."""

_IDENTITY_PARTITION: Final = 0
_ENDED_BY_COORDINATOR: Final = frozenset({PREPARE_ABORT, "CompleteAbort", "PrepareEpochFence"})
_NEARLY: Final = 0.9  # clocks differ from machine to machine
_OVER: Final = frozenset({ErrorCode.INVALID_TXN_STATE})


class TakenOverError(ExactlogError):
    """Another writer has the transactional id now; this one can write no more."""

    code = "fenced"


class TransactionTimedOutError(ExactlogError):
    """A batch took longer than its transaction may stay open, so the broker has aborted it."""

    code = "transaction-timed-out"


class TransactionEndedError(ExactlogError):
    """The transaction was ended by somebody else before the batch was complete."""

    code = "transaction-ended"
    retryable = True


class TwoQueriesError(ExactlogError):
    """Two queries record their batches under one txnAppId, or a query has lost its checkpoint."""

    code = "two-queries"


class SharedPartitionError(ExactlogError):
    """Two tasks write to one partition, in one transaction: what one wrote cannot be told from what the other did."""

    code = "shared-partition"

    def __init__(self, place: TopicPartition) -> None:
        super().__init__(
            f"two tasks write to partition {place.partition} of topic {place.topic}: in one transaction the broker "
            "would take the records of one for those of the other, sent again",
            hint="exactlog.pipeline.write_exactly_once, and exactly_once_sink for foreachBatch, let one task own each "
            "partition",
        )


class UnlikeReportError(ExactlogError):
    """A partition holds other records of the transaction than those that its task has told of."""

    code = "unlike-report"
    retryable = True


class Recorded(msgspec.Struct, frozen=True):
    """The newest batch that was written under a txnAppId.

    Attributes:
        version: its number.
        query: the id of the streaming query it was of; None where it was of none.
    """

    version: int
    query: str | None


class SinkTransaction(msgspec.Struct, frozen=True):
    """The transaction of one batch, as it travels to tasks and from them to where it is ended.

    Attributes:
        shared: what signs the records.
        began_at_ms: by the clock of the driver.
        recorded: the newest batch that had been written when it began; None: none, or it is not recorded at all.
    """

    shared: SharedTransaction
    began_at_ms: int
    recorded: Recorded | None


class _Metadata(msgspec.Struct, frozen=True):
    """What an offset of a sink's group carries, as JSON."""

    query: str | None = None


class BatchId(msgspec.Struct, frozen=True):
    """Which batch this is: its number under its txnAppId, and the id of the streaming query it is of, if any."""

    version: int | None
    query: str | None


class WrittenPartition(msgspec.Struct, frozen=True):
    """What one task wrote to one partition; `first_offset` is None where the broker did not tell it."""

    place: TopicPartition
    count: int
    first_offset: int | None


class TaskOutcome(msgspec.Struct, frozen=True):
    """What one task did.

    Attributes:
        transaction: what it wrote in.
        batch: which batch it is.
        written: the partitions it owned; empty where the batch had been recorded before.
    """

    transaction: SinkTransaction
    batch: BatchId
    written: tuple[WrittenPartition, ...]


class TaskFailure(msgspec.Struct, frozen=True):
    """Why one task could not write: an error, as it travels. Most could not be pickled themselves.

    Attributes:
        transaction: what the task was to write in.
        kind: of the error.
        arguments: what it says.
        attributes: what else it carries.
    """

    transaction: SinkTransaction
    kind: type[ExactlogError]
    arguments: tuple[object, ...]
    attributes: dict[str, Any]

    @classmethod
    def of(cls, error: ExactlogError, transaction: SinkTransaction) -> Self:
        """The failure that this error is."""
        return cls(transaction, type(error), error.args, dict(error.__dict__))

    def error(self) -> ExactlogError:
        """The error again."""
        raised = self.kind.__new__(self.kind)
        raised.args = self.arguments
        raised.__dict__.update(self.attributes)
        return raised


def is_recorded(options: WriteOptions, batch: BatchId, recorded: Recorded | None) -> bool:
    """Whether the batch has been written before, so that there is nothing to do.

    Raises:
        TwoQueriesError: one of that number has, but of another query.
    """
    if recorded is None or batch.version is None or batch.version > recorded.version:
        return False
    if recorded.query is not None and batch.query is not None and recorded.query != batch.query:
        raise TwoQueriesError(
            f"two queries write under txnAppId {options.txn_app_id}: query {recorded.query} has written up to batch "
            f"{recorded.version}, this is batch {batch.version} of query {batch.query}",
            hint="give each query a txnAppId of its own. A query that has lost its checkpoint is another query: what "
            "it had written is there, and under another txnAppId it is written again",
        )
    return True


def begin(options: WriteOptions, transactional_id: str) -> SinkTransaction:
    """Take the transactional id and begin a transaction, which stays open when this process ends.

    Whatever an earlier driver has left open is aborted, and it can write no more.

    Raises:
        NotFoundError: the topic does not exist, and the broker does not create it.
        ConfigError: the broker allows no transaction of that length.
        UnavailableError: no broker answers, or it is still busy with the transaction before.
    """

    async def work(client: Client) -> SinkTransaction:
        if options.topic is not None:
            await client.partition_count(options.topic)
        producer = client.transactional_producer(transactional_id, timeout_ms=options.transaction_timeout_ms)
        began_at_ms = _now_ms()
        try:
            shared = await producer.begin_shared()
        except KafkaError as error:
            raise _explained_begin(error, options) from error
        group_id = options.group_id
        recorded = None if group_id is None else newest_recorded(await producer.stable_offsets(group_id))
        return SinkTransaction(shared, began_at_ms, recorded)

    with ClientThread(options.bootstrap, CONTACT_SETTINGS) as thread:
        return thread.run(work)


def commit(options: WriteOptions, ends: Sequence[TaskOutcome | TaskFailure]) -> None:
    """Let all count that the tasks of a batch have written, together with the record that it was.

    Raises:
        ExactlogError: what a task has failed with.
        SharedPartitionError: two tasks wrote to one partition.
        UnlikeReportError: a partition does not hold what its task has told of.
        TakenOverError, TransactionTimedOutError, TransactionEndedError: it is too late.
        OutcomeUnknownError: whether it was committed is not known; the next attempt will see.
    """
    outcomes = _all_written(ends)
    transaction, batch = outcomes[0].transaction, outcomes[0].batch
    if is_recorded(options, batch, transaction.recorded):
        return
    written = one_owner_each(outcomes)

    async def work(client: Client) -> None:
        producer = client.resume_transaction(transaction.shared, timeout_ms=options.transaction_timeout_ms)
        try:
            await _check_held(client, transaction, written)
            if options.group_id is not None and batch.version is not None:
                places = _identity_places(options, written)
                metadata = msgspec.json.encode(_Metadata(batch.query)).decode()
                offsets = dict.fromkeys(places, Offset(batch.version + 1))
                await producer.send_offsets(options.group_id, offsets, metadata=metadata)
            await producer.commit()
        except KafkaError as error:
            raise await explained(client, options, transaction, error) from error

    with ClientThread(options.bootstrap, SINK_SETTINGS) as thread:
        thread.run(work)


def abort(options: WriteOptions, transaction: SinkTransaction) -> None:
    """Let nothing count that was written in the transaction. What was ended before stays as it is.

    A broker that cannot be reached does it by itself when the transaction times out.
    """

    async def work(client: Client) -> None:
        await client.resume_transaction(transaction.shared, timeout_ms=options.transaction_timeout_ms).abort()

    with ClientThread(options.bootstrap, CONTACT_SETTINGS) as thread:
        try:
            thread.run(work)
        except ProducerFencedError:
            return  # it is over: timed out, taken over, or committed though nobody was told
        except ExactlogError as error:  # why the batch has failed is what is to be told
            _log.warning("transaction %s was not aborted: %s", transaction.shared.transactional_id, error)


def _all_written(ends: Sequence[TaskOutcome | TaskFailure]) -> list[TaskOutcome]:
    """What the tasks have written. Raises what one has failed with, one that has failed by itself before others."""
    failures = [end for end in ends if isinstance(end, TaskFailure)]
    if failures:
        raise min(failures, key=lambda failure: _rank(failure.kind)).error()
    return [end for end in ends if isinstance(end, TaskOutcome)]


def _rank(kind: type[ExactlogError]) -> int:
    """How likely an error is to follow from that of another task, which has aborted the transaction."""
    if issubclass(kind, TransactionEndedError):
        return 2
    return int(issubclass(kind, TakenOverError | TransactionTimedOutError))


def one_owner_each(outcomes: Iterable[TaskOutcome]) -> tuple[WrittenPartition, ...]:
    """All that the tasks wrote, in the order of partitions. Raises `SharedPartitionError`."""
    owned: dict[TopicPartition, WrittenPartition] = {}
    for outcome in outcomes:
        for written in outcome.written:
            if written.place in owned:
                raise SharedPartitionError(written.place)
            owned[written.place] = written
    return tuple(owned[place] for place in sorted(owned))


async def is_written_to(client: Client, place: TopicPartition, shared: SharedTransaction) -> bool:
    """Whether the partition holds records of the transaction."""
    for producer in (await client.describe_producers([place]))[place]:
        if (producer.producer_id, producer.producer_epoch) == (shared.producer_id, shared.producer_epoch):
            return producer.last_sequence is not None
    return False


async def explained(
    client: Client, options: WriteOptions, transaction: SinkTransaction, error: ExactlogError
) -> ExactlogError:
    """The error itself; where the transaction is over, one that says why."""
    if not isinstance(error, ProducerFencedError) and error.kafka_error not in _OVER:
        return error
    shared = transaction.shared
    try:
        description = await client.describe_transaction(shared.transactional_id)
    except ExactlogError:  # then the clock alone must tell
        description = None
    return why_over(options, transaction, description, now_ms=_now_ms())


def why_over(
    options: WriteOptions, transaction: SinkTransaction, description: TransactionDescription | None, *, now_ms: int
) -> ExactlogError:
    """Why a transaction that was not ended here is over, by what its coordinator says of the transactional id now."""
    name = _name(options)
    is_aborted = description is None or description.state in _ENDED_BY_COORDINATOR
    if is_aborted and now_ms - transaction.began_at_ms >= _NEARLY * options.transaction_timeout_ms:
        return TransactionTimedOutError(
            f"the transaction of {name} was open for longer than transactionTimeoutMs "
            f"({options.transaction_timeout_ms}), so the broker has aborted it; nothing of the batch counts",
            hint="raise transactionTimeoutMs, up to the broker's transaction.max.timeout.ms, or write smaller batches",
        )
    if description is not None and is_aborted:
        return TransactionEndedError(
            f"the transaction of {name} was aborted from outside, by an operator or by a broker that was restarted; "
            "nothing of the batch counts",
            hint="run it again",
        )
    return TakenOverError(
        f"another query or job with {name} has taken over; this one can write no more, and its batch does not count",
        hint="let one of them run alone, or give each a txnAppId of its own",
    )


async def _check_held(client: Client, transaction: SinkTransaction, written: Sequence[WrittenPartition]) -> None:
    """Raises unless each partition holds of the transaction what its task has told of: no more, no less.

    Another attempt of a task that goes on unseen could have added to it; a transaction that timed out and was begun
    anew by a write, where brokers are set not to fence it, could lack its first part.
    """
    shared = transaction.shared
    producers = await client.describe_producers([partition.place for partition in written])
    for partition in written:
        found = next((each for each in producers[partition.place] if each.producer_id == shared.producer_id), None)
        holds = (
            found is not None
            and found.producer_epoch == shared.producer_epoch
            and found.last_sequence == (partition.count - 1) % (SEQUENCE_MAX + 1)
            and partition.first_offset in {None, found.txn_start_offset}
        )
        if not holds and found is not None and found.producer_epoch > shared.producer_epoch:
            raise ProducerFencedError(ErrorCode.PRODUCER_FENCED, f"{partition.place} was written to in a later epoch")
        if not holds:
            raise UnlikeReportError(
                f"{partition.place} does not hold the {partition.count} records of the transaction that a task has "
                f"written there, from offset {partition.first_offset} on: it holds {found}",
                hint="run the batch again; nothing of it counts",
            )


def _identity_places(options: WriteOptions, written: Sequence[WrittenPartition]) -> list[TopicPartition]:
    """Under which partitions the batch is recorded: those that its group's offsets are of."""
    topics = {partition.place.topic for partition in written} if options.topic is None else {options.topic}
    return [TopicPartition(topic, _IDENTITY_PARTITION) for topic in sorted(topics)]


def newest_recorded(offsets: Mapping[TopicPartition, CommittedOffset]) -> Recorded | None:
    """The newest batch that the offsets of a sink's group tell of; None where they tell of none."""
    newest = max(offsets.values(), key=lambda found: found.offset, default=None)
    if newest is None or newest.offset < 1:
        return None
    try:
        query = msgspec.json.decode(newest.metadata, type=_Metadata).query
    except msgspec.DecodeError:  # an offset that somebody has set by hand: its number counts all the same
        query = None
    return Recorded(newest.offset - 1, query)


def _explained_begin(error: KafkaError, options: WriteOptions) -> ExactlogError:
    if error.kafka_error is not ErrorCode.INVALID_TRANSACTION_TIMEOUT:
        return error
    refused = ConfigError(
        f"the broker allows no transaction of transactionTimeoutMs {options.transaction_timeout_ms}",
        hint="set it to the broker's transaction.max.timeout.ms or less, or let the broker allow more",
    )
    refused.kafka_error = error.kafka_error
    return refused


def _name(options: WriteOptions) -> str:
    return "a write" if options.txn_app_id is None else f"txnAppId {options.txn_app_id}"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
