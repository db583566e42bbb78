"""AddOffsetsToTxn (key 25), versions 0 to 4.

Does: makes the partition that keeps a group's offsets part of a transaction.
Errors: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED, INVALID_REQUEST (an empty transactional id),
INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS (the last transaction is not over yet),
COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR.
Versions: 2 PRODUCER_FENCED, before that INVALID_PRODUCER_EPOCH.
"""

import logging

from exactlog.broker.asking import Later, RequestWaiter, ask_shard
from exactlog.broker.error_words import in_words_of
from exactlog.broker.request_context import RequestContext
from exactlog.core.model.authorization import Operation, ResourceType
from exactlog.core.model.decisions import Decision, Waiter
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import KafkaError
from exactlog.core.model.ids import ProducerEpoch, ProducerId, TopicPartition
from exactlog.core.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from exactlog.core.transaction.requests import AddPartitionsRequest, ErrorAnswer
from exactlog.core.transaction.shard import TransactionShard

_logger = logging.getLogger(__name__)

FENCED_SINCE = 2


async def handle(request: AddOffsetsToTxnRequest, context: RequestContext) -> AddOffsetsToTxnResponse | None:
    """Adds the partition of the group."""
    if not context.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not context.allows(Operation.READ, ResourceType.GROUP, request.group_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not request.transactional_id:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    try:
        # Opened, so that what another transaction left there is known.
        partition = await context.broker.groups.open_partition_of(request.group_id)
    except KafkaError as error:
        _logger.error("the offsets of group %s have no place: %s", request.group_id, error)
        return AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    later = _ask(request, partition, context)
    if later is not None:
        await later
    return None


def _ask(request: AddOffsetsToTxnRequest, partition: TopicPartition, context: RequestContext) -> Later:
    asked = AddPartitionsRequest(
        transactional_id=request.transactional_id,
        producer_id=ProducerId(request.producer_id),
        producer_epoch=ProducerEpoch(request.producer_epoch),
        partitions=(partition,),
        transaction_version=1,  # in the second one TxnOffsetCommit adds it
    )

    def decide(shard: TransactionShard, waiter: Waiter, now_ms: int) -> Decision:
        return shard.add_partitions(asked, waiter, now_ms=now_ms)

    def respond(answer: ErrorAnswer) -> AddOffsetsToTxnResponse:
        return tell(answer.error_code)

    def tell(error: ErrorCode) -> AddOffsetsToTxnResponse:
        return AddOffsetsToTxnResponse(error_code=in_words_of(context.api_version, error, fenced_since=FENCED_SINCE))

    waiter = RequestWaiter(context, respond, tell)
    return ask_shard(context.broker.transactions, request.transactional_id, decide, waiter)
