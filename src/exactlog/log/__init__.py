"""A partition as an ACID table, without a broker: public API.

    with open_partition("data/topic=orders-part=0") as orders:
        match orders.append([b"paid"], expected_version=7, txn_id="order-17"):
            case Committed(version=version): ...
            case Conflicted(actual=actual): ...
        for record in orders.read(0, as_of_version=7): ...

Explained in docs/table.md.
"""

from exactlog.core.codec.compression import Compression
from exactlog.core.deltalog.append_terms import Committed, Conflicted, PayloadDiffers, Superseded, Unavailable
from exactlog.core.deltalog.table_state import TableSnapshot
from exactlog.core.record.batch_builder import NewRecord
from exactlog.core.record.record_format import Record
from exactlog.log.compaction import CompactedPartition, compact_topics
from exactlog.log.delta_store import DeltaStore
from exactlog.log.errors import (
    InvalidArgumentError,
    PartitionClosedError,
    PartitionStoppedError,
    ReadOnlyError,
    TransactionEndedError,
)
from exactlog.log.partition import Partition, Transaction, open_partition

__all__ = [
    "Committed",
    "CompactedPartition",
    "Compression",
    "Conflicted",
    "DeltaStore",
    "InvalidArgumentError",
    "NewRecord",
    "Partition",
    "PartitionClosedError",
    "PartitionStoppedError",
    "PayloadDiffers",
    "ReadOnlyError",
    "Record",
    "Superseded",
    "TableSnapshot",
    "Transaction",
    "TransactionEndedError",
    "Unavailable",
    "compact_topics",
    "open_partition",
]
