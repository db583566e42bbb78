"""AddPartitionsToTxn (key 24), versions 0 to 5.

Does: makes partitions part of a transaction, all of them or none. From version 4 on brokers ask, for several
transactions at once; `verify_only` tells whether partitions are part of one already.
Errors: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED (from version 4 on),
TOPIC_AUTHORIZATION_FAILED (also for a coordinator's topic: a group gets there by AddOffsetsToTxn) and
UNKNOWN_TOPIC_OR_PARTITION (with OPERATION_NOT_ATTEMPTED for the other partitions),
INVALID_REQUEST (an empty transactional id), INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS (the
last transaction is not over yet), TRANSACTION_ABORTABLE (a partition is not part of it, or too many are),
COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR.
Versions: 2 PRODUCER_FENCED, before that INVALID_PRODUCER_EPOCH; 4 several transactions, verification (KIP-890).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from msgspec import Struct

from exactlog.broker.asking import Gathering, ask_shard
from exactlog.broker.error_words import in_words_of
from exactlog.broker.partition_lookup import closed_partitions, open_partitions
from exactlog.broker.request_context import RequestContext
from exactlog.core.model.authorization import CLUSTER_NAME, Operation, ResourceType
from exactlog.core.model.decisions import Decision, Waiter
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import ProducerEpoch, ProducerId, TopicPartition
from exactlog.core.model.topic_name import TRANSACTION_STATE, is_internal
from exactlog.core.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from exactlog.core.transaction.requests import AddPartitionsRequest, ErrorAnswer
from exactlog.core.transaction.shard import TransactionShard

FENCED_SINCE = 2
SEVERAL_SINCE = 4


async def handle(request: AddPartitionsToTxnRequest, context: RequestContext) -> AddPartitionsToTxnResponse | None:
    """Adds the partitions of each transaction, or says of each what is wrong with it."""
    is_of_client = context.api_version < SEVERAL_SINCE
    if not is_of_client and not context.allows(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    transactions = (_transaction_of_client(request),) if is_of_client else request.transactions
    refusals = [_find_refusals(transaction, context) for transaction in transactions]
    questions = [
        question
        for transaction, refused in zip(transactions, refusals, strict=True)
        if not refused
        for question in _questions(transaction, context)
    ]
    # So that what another transaction left there is found out before this one has a part in it.
    await _open([key for question in questions for key in question.partitions], context)

    def respond(outcomes: Sequence[Struct | ErrorCode]) -> AddPartitionsToTxnResponse:
        answers = iter([_error_of(outcome, context.api_version) for outcome in outcomes])
        results = []
        for transaction, refused in zip(transactions, refusals, strict=True):
            errors = refused or _spread(transaction, answers)
            results.append(_result(transaction, errors))
        if is_of_client:
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results)
        return AddPartitionsToTxnResponse(results_by_transaction=tuple(results))

    slots = Gathering(len(questions), context, respond).slots
    for question, slot in zip(questions, slots, strict=True):
        shards = context.broker.transactions
        later = ask_shard(shards, question.transactional_id, partial(_decide, question), slot)
        if later is not None:
            await later
    return None


_Errors = Mapping[tuple[str, int], ErrorCode]
"""What became of partitions, by topic and index."""


def _decide(question: AddPartitionsRequest, shard: TransactionShard, waiter: Waiter, now_ms: int) -> Decision:
    return shard.add_partitions(question, waiter, now_ms=now_ms)


def _transaction_of_client(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )


def _names_of(transaction: AddPartitionsToTxnTransaction) -> list[tuple[str, int]]:
    return [(topic.name, index) for topic in transaction.topics for index in topic.partitions]


def _find_refusals(transaction: AddPartitionsToTxnTransaction, context: RequestContext) -> _Errors:
    """What is wrong with the partitions of a transaction that the coordinator is not asked about; empty: nothing."""
    names = _names_of(transaction)
    is_of_client = context.api_version < SEVERAL_SINCE
    transactional_id = transaction.transactional_id
    if is_of_client and not context.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return dict.fromkeys(names, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    found = {(name, index): _judge(name, index, context, is_of_client=is_of_client) for name, index in names}
    if any(error is not ErrorCode.NONE for error in found.values()):
        return {
            name: error if error is not ErrorCode.NONE else ErrorCode.OPERATION_NOT_ATTEMPTED
            for name, error in found.items()
        }
    return {} if transactional_id else dict.fromkeys(names, ErrorCode.INVALID_REQUEST)


def _judge(name: str, index: int, context: RequestContext, *, is_of_client: bool) -> ErrorCode:
    topic = context.broker.topics.by_name(name)
    is_refused = is_internal(name) if is_of_client else name == TRANSACTION_STATE
    if is_refused or (is_of_client and not context.allows(Operation.WRITE, ResourceType.TOPIC, name)):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if topic is None or not 0 <= index < topic.partition_count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def _questions(transaction: AddPartitionsToTxnTransaction, context: RequestContext) -> list[AddPartitionsRequest]:
    """One for all partitions; one for each where only that is asked."""
    topics = context.broker.topics
    partitions = [
        TopicPartition(topic.name, index)
        for name, index in _names_of(transaction)
        if (topic := topics.by_name(name)) is not None
    ]
    verify_only = transaction.verify_only
    return [
        AddPartitionsRequest(
            transactional_id=transaction.transactional_id,
            producer_id=ProducerId(transaction.producer_id),
            producer_epoch=ProducerEpoch(transaction.producer_epoch),
            partitions=together,
            verify_only=verify_only,
            transaction_version=1 if context.api_version < SEVERAL_SINCE else 2,
        )
        for together in ([(partition,) for partition in partitions] if verify_only else [tuple(partitions)])
    ]


async def _open(partitions: Iterable[TopicPartition], context: RequestContext) -> None:
    closed = closed_partitions(context.broker.topics, partitions)
    if closed:
        await open_partitions(context.broker.topics, closed)


def _spread(transaction: AddPartitionsToTxnTransaction, answers: Iterator[ErrorCode]) -> _Errors:
    names = _names_of(transaction)
    if transaction.verify_only:
        return {name: next(answers) for name in names}
    return dict.fromkeys(names, next(answers))


def _error_of(outcome: Struct | ErrorCode, version: int) -> ErrorCode:
    error = outcome.error_code if isinstance(outcome, ErrorAnswer) else ErrorCode.UNKNOWN_SERVER_ERROR
    if isinstance(outcome, ErrorCode):
        error = outcome
    return in_words_of(version, error, fenced_since=FENCED_SINCE)


def _result(transaction: AddPartitionsToTxnTransaction, errors: _Errors) -> AddPartitionsToTxnResult:
    return AddPartitionsToTxnResult(
        transactional_id=transaction.transactional_id,
        topic_results=tuple(
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=tuple(
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=errors[topic.name, index]
                    )
                    for index in topic.partitions
                ),
            )
            for topic in transaction.topics
        ),
    )
