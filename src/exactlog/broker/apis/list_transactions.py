"""ListTransactions (key 66), versions 0 to 2 (KIP-664).

Does: names all transactional ids that the client may describe, with their producer and the state of their transaction,
as of what is committed; filtered by state, producer, age and pattern where asked.
Errors: INVALID_REGULAR_EXPRESSION, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR.
Versions: 1 a least age of the transaction (KIP-994); 2 a pattern that the whole id matches (KIP-1152).
"""

import asyncio

from exactlog.broker.request_context import RequestContext
from exactlog.core.model.authorization import Operation, ResourceType
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.linear_pattern import InvalidPattern, LinearPattern
from exactlog.core.protocol.messages.list_transactions import (
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from exactlog.core.transaction.requests import TransactionDescription
from exactlog.core.transaction.states import TransactionState
from exactlog.storage.waiting import until_settled

_STATES = frozenset(state.kafka_name for state in TransactionState)


IDS_PER_TURN = 100
"""So many are looked at before others get their turn: a pattern takes its time."""


async def handle(request: ListTransactionsRequest, context: RequestContext) -> ListTransactionsResponse:
    """Reads them from all shards."""
    pattern = _compile(request.transactional_id_pattern)
    if isinstance(pattern, InvalidPattern):
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    transactions = context.broker.transactions
    runners = await transactions.load_all() if transactions.is_enabled else ErrorCode.COORDINATOR_NOT_AVAILABLE
    if isinstance(runners, ErrorCode):
        return ListTransactionsResponse(error_code=runners)
    filters = _Filters(request, pattern, now_ms=context.broker.clock.now_ms())
    listed: list[ListedTransaction] = []
    for runner in runners:
        error = await until_settled(runner.when_committed)  # so that a reader sees what was before it
        if error is not ErrorCode.NONE:
            return ListTransactionsResponse(error_code=error)
        for number, found in enumerate(runner.machine.transactions()):
            if number % IDS_PER_TURN == IDS_PER_TURN - 1:
                await asyncio.sleep(0)
            if filters.let_pass(found) and context.allows(
                Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, found.transactional_id
            ):
                listed.append(
                    ListedTransaction(
                        transactional_id=found.transactional_id,
                        producer_id=found.producer_id,
                        transaction_state=found.state,
                    )
                )
    unknown = tuple(state for state in request.state_filters if state not in _STATES)
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=tuple(listed))


class _Filters:
    """What a request asks for; a filter that is empty lets all pass.

    That by age looks at the start alone, which ended transactions keep and unused ids (-1) pass, as in Apache Kafka.
    """

    def __init__(self, request: ListTransactionsRequest, pattern: LinearPattern | None, *, now_ms: int) -> None:
        self._states = frozenset(request.state_filters)
        self._producer_ids = frozenset(request.producer_id_filters)
        self._latest_start_ms = now_ms - request.duration_filter if request.duration_filter >= 0 else None
        self._pattern = pattern

    def let_pass(self, found: TransactionDescription) -> bool:
        """Whether all of them do."""
        return (
            (not self._producer_ids or found.producer_id in self._producer_ids)
            and (not self._states or found.state in self._states)
            and (self._latest_start_ms is None or found.start_time_ms < self._latest_start_ms)
            and (self._pattern is None or self._pattern.matches(found.transactional_id))
        )


def _compile(pattern: str | None) -> LinearPattern | InvalidPattern | None:
    return LinearPattern.compile(pattern) if pattern else None
