"""DescribeTransactions: what one coordinator says of transactional ids (KIP-664)."""

from collections.abc import Sequence
from typing import Final

from exactlog.client.ports import ClientSettings
from exactlog.client.transactions import TransactionDescription
from exactlog.client.wire.coordinators import Coordinators
from exactlog.client.wire.refusals import as_error_code, refusal
from exactlog.client.wire.retries import retry
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import DecodeError, KafkaError, NotFoundError
from exactlog.core.model.ids import ProducerEpoch, ProducerId, TimestampMs, TopicPartition
from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.messages.describe_transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)

IDS_PER_REQUEST_MAX: Final = 500


async def describe_with_coordinator(
    coordinators: Coordinators, transactional_id: str, *, settings: ClientSettings
) -> TransactionDescription:
    """What the coordinator of an id says of it.

    Raises:
        NotFoundError: it does not know it.
    """
    what = f"describe transaction {transactional_id}"

    async def attempt() -> TransactionDescription | None:
        return (await describe_once(coordinators, (transactional_id,)))[transactional_id]

    described = await retry(what, attempt, settings)
    if described is None:
        raise NotFoundError(
            f"transactional id {transactional_id} does not exist",
            kafka_error=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
            hint="`exactlog txn list` shows those that do; one that nobody has used for long is forgotten",
        )
    return described


async def describe_once(
    coordinators: Coordinators, transactional_ids: Sequence[str]
) -> dict[str, TransactionDescription | None]:
    """What the coordinator of the first of these ids says of all of them; None for one that it does not know.

    What it says of an id that it does not coordinate is an error, after which that is asked elsewhere.

    Raises:
        ExactlogError: one attempt has failed.
    """
    first = transactional_ids[0]
    connection = await coordinators.connection(first)
    version = connection.versions.pick(ApiKey.DESCRIBE_TRANSACTIONS)
    request = DescribeTransactionsRequest(transactional_ids=tuple(transactional_ids))
    response = await coordinators.request(first, request, DescribeTransactionsResponse, version=version)
    found: dict[str, TransactionDescription | None] = {}
    refused: KafkaError | None = None
    for described in response.transaction_states:
        transactional_id = described.transactional_id
        code = as_error_code(described.error_code)
        if code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            found[transactional_id] = None
        elif code is not ErrorCode.NONE:
            coordinators.note(transactional_id, described.error_code)
            refused = refusal(described.error_code, f"describe transaction {transactional_id}")
        else:
            found[transactional_id] = _description(described, coordinator=str(connection.address))
    if refused is not None:
        raise refused
    missing = set(transactional_ids) - found.keys()
    if missing:
        raise DecodeError(f"describe transactions: the broker left {min(missing)} out of its answer")
    return found


def _description(described: DescribedTransaction, *, coordinator: str) -> TransactionDescription:
    return TransactionDescription(
        transactional_id=described.transactional_id,
        state=described.transaction_state,
        producer_id=ProducerId(described.producer_id),
        producer_epoch=ProducerEpoch(described.producer_epoch),
        timeout_ms=described.transaction_timeout_ms,
        started_at_ms=(
            TimestampMs(described.transaction_start_time_ms) if described.transaction_start_time_ms >= 0 else None
        ),
        partitions=tuple(
            sorted(
                TopicPartition(topic.topic, partition) for topic in described.topics for partition in topic.partitions
            )
        ),
        coordinator=coordinator,
    )
