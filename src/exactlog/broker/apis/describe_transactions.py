"""DescribeTransactions (key 65), version 0 (KIP-664).

Does: shows of transactional ids who their producer is, and the state, start and partitions of the transaction, as of
what is committed. Partitions of topics that the client may not describe are left out.
Errors: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, INVALID_REQUEST (an empty id), TRANSACTIONAL_ID_NOT_FOUND,
COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR.
"""

from collections.abc import Sequence
from functools import partial
from itertools import groupby

from msgspec import Struct

from exactlog.broker.asking import Gathering, read_when_committed
from exactlog.broker.request_context import RequestContext
from exactlog.core.model.authorization import Operation, ResourceType
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.describe_transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionTopic,
)
from exactlog.core.transaction.requests import TransactionDescription
from exactlog.core.transaction.shard import TransactionShard


class _Found(Struct, frozen=True):
    """What there is of one id."""

    description: TransactionDescription | None


async def handle(request: DescribeTransactionsRequest, context: RequestContext) -> None:
    """Reads each from its shard."""
    ids = request.transactional_ids
    refusals = [_refusal(transactional_id, context) for transactional_id in ids]

    def respond(outcomes: Sequence[Struct | ErrorCode]) -> DescribeTransactionsResponse:
        return DescribeTransactionsResponse(
            transaction_states=tuple(
                _tell(transactional_id, outcome, context)
                for transactional_id, outcome in zip(ids, outcomes, strict=True)
            )
        )

    slots = Gathering(len(ids), context, respond).slots
    for transactional_id, refusal, slot in zip(ids, refusals, slots, strict=True):
        if refusal is not ErrorCode.NONE:
            slot.fail(refusal)
            continue
        runner = await context.broker.transactions.load(transactional_id)
        if isinstance(runner, ErrorCode):
            slot.fail(runner)
        else:
            read_when_committed(runner, partial(_look, transactional_id), slot)


def _look(transactional_id: str, shard: TransactionShard) -> _Found:
    return _Found(shard.describe(transactional_id))


def _refusal(transactional_id: str, context: RequestContext) -> ErrorCode:
    if not context.allows(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return ErrorCode.NONE if transactional_id else ErrorCode.INVALID_REQUEST


def _tell(transactional_id: str, outcome: Struct | ErrorCode, context: RequestContext) -> DescribedTransaction:
    found = outcome.description if isinstance(outcome, _Found) else None
    if found is None:
        error = outcome if isinstance(outcome, ErrorCode) else ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return DescribedTransaction(error_code=error, transactional_id=transactional_id)
    return DescribedTransaction(
        transactional_id=transactional_id,
        transaction_state=found.state,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_time_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=tuple(
            TransactionTopic(topic=topic, partitions=tuple(key.partition for key in keys))
            for topic, keys in groupby(found.partitions, key=lambda key: key.topic)
            if context.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic)
        ),
    )
