"""Who may write a Produce request's transactional batches, and what the coordinator's errors are called in its answer.

    the coordinator says           told from version 12 on   in 11                   up to 10
    PRODUCER_FENCED                INVALID_PRODUCER_EPOCH    the same                the same
    CONCURRENT_TRANSACTIONS        the same                  NOT_ENOUGH_REPLICAS     NOT_ENOUGH_REPLICAS
    TRANSACTION_ABORTABLE          the same                  the same                INVALID_TXN_STATE
    that it is not there           NOT_ENOUGH_REPLICAS       NOT_ENOUGH_REPLICAS     NOT_ENOUGH_REPLICAS

As Apache Kafka's ``ReplicaManager`` does it: NOT_ENOUGH_REPLICAS is what clients of any age just try again.
"""

from typing import Final, TypeAlias

from exactlog.broker.coordinator.transaction_writes import Writer
from exactlog.broker.request_context import RequestContext
from exactlog.core.model.authorization import Operation, ResourceType
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import InvariantError
from exactlog.core.model.ids import ProducerId
from exactlog.core.protocol.messages.produce import ProduceRequest
from exactlog.core.record.batch_format import (
    ATTRIBUTES_POSITION,
    BATCH_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    PRODUCER,
    PRODUCER_POSITION,
    TRANSACTIONAL_BIT,
    BatchHeader,
)

ADDS_PARTITIONS_SINCE: Final = 12
"""Where the feature `transaction.version` is 2: clients need not name their partitions beforehand (KIP-890)."""
ABORTABLE_SINCE: Final = 11
EPOCHS_PER_TRANSACTION: Final = 2
"""The level of `transaction.version` from which each transaction has an epoch of its own."""

_NOT_THERE: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


Producer: TypeAlias = tuple[int, int]
"""Its id and its epoch, as they stand in a batch."""


def transactional_producers(request: ProduceRequest) -> set[Producer]:
    """The producers whose batches in a request say that they are part of a transaction."""
    producers: set[Producer] = set()
    for data in request.topic_data:
        for part in data.partition_data:
            records = part.records
            if (
                records is not None
                and len(records) >= BATCH_OVERHEAD
                and records[ATTRIBUTES_POSITION + 1] & TRANSACTIONAL_BIT
                and records[MAGIC_POSITION] == MAGIC
            ):
                producers.add(PRODUCER.unpack_from(records, PRODUCER_POSITION))
    return producers


def refuse_transaction(request: ProduceRequest, context: RequestContext, producers: set[Producer]) -> ErrorCode | None:
    """Why a request with transactional batches, of these producers, is refused as a whole."""
    transactional_id = request.transactional_id
    if transactional_id is None or not context.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if len(producers) > 1:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return None


def writer_of(request: ProduceRequest, context: RequestContext, header: BatchHeader) -> Writer:
    """Whose transaction it is."""
    if request.transactional_id is None:
        raise InvariantError("a transactional batch without a transactional id was let pass")
    return Writer(
        transactional_id=request.transactional_id,
        producer_id=ProducerId(header.producer_id),
        producer_epoch=header.producer_epoch,
        may_add=_has_epoch_per_transaction(context),
    )


def _has_epoch_per_transaction(context: RequestContext) -> bool:
    """Whether the producer names no partitions beforehand and begins anew with each transaction (KIP-890)."""
    level = context.broker.config.transaction_version
    return context.api_version >= ADDS_PARTITIONS_SINCE and level >= EPOCHS_PER_TRANSACTION


def in_words_of_produce(error: ErrorCode, version: int) -> tuple[ErrorCode, str]:
    """The coordinator's error as the answer to a Produce of that version has it, and a text for who reads it."""
    told = error
    if error is ErrorCode.PRODUCER_FENCED:
        told = ErrorCode.INVALID_PRODUCER_EPOCH
    elif error in _NOT_THERE or (error is ErrorCode.CONCURRENT_TRANSACTIONS and version < ADDS_PARTITIONS_SINCE):
        told = ErrorCode.NOT_ENOUGH_REPLICAS
    elif error is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
        told = ErrorCode.INVALID_TXN_STATE
    return told, f"The transaction coordinator has not let the batch in: {error.name}."
