"""Exactly-once in one block, with the Kafka client you have, here and on Apache Kafka: public API.

    async with transaction(producer, consumer) as txn:
        for record in await read(consumer):
            await txn.send("invoices", priced(record), key=record.key)

Explained in docs/transactions.md. Nothing is imported but the library that the given objects come from.
"""

from exactlog.eos.blocks import SyncTransaction, Transaction, transaction, transaction_sync
from exactlog.eos.errors import (
    AbortableError,
    FatalError,
    FencedError,
    OutcomeUnknownError,
    RebalancedError,
    RetriableError,
    TransactionError,
)

__all__ = [
    "AbortableError",
    "FatalError",
    "FencedError",
    "OutcomeUnknownError",
    "RebalancedError",
    "RetriableError",
    "SyncTransaction",
    "Transaction",
    "TransactionError",
    "transaction",
    "transaction_sync",
]
