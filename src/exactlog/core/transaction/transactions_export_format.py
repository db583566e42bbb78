"""The readable export of all transactional ids: `transactions/transactions.json`. Nothing ever reads it back.

    {
      "written_ms": 1760000000000,
      "transactions": [
        {
          "transactional_id": "orders-7",
          "state": "Ongoing",
          "producer_id": 1000,
          "producer_epoch": 3,
          "timeout_ms": 60000,
          "start_time_ms": 1759999999000,
          "last_update_ms": 1759999999500,
          "partitions": [{"topic": "orders", "partition": 0}]
        }
      ]
    }

Transactional ids are sorted. States are spelled as Kafka does; `start_time_ms` is null before the first transaction.
"""

from collections.abc import Iterable

import msgspec

from exactlog.core.transaction.entry import NO_TIME
from exactlog.core.transaction.requests import TransactionDescription


class _Partition(msgspec.Struct, frozen=True):
    topic: str
    partition: int


class _Transaction(msgspec.Struct, frozen=True):
    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_time_ms: int | None
    last_update_ms: int
    partitions: tuple[_Partition, ...]


class _Export(msgspec.Struct, frozen=True):
    written_ms: int
    transactions: tuple[_Transaction, ...]


def encode_export(descriptions: Iterable[TransactionDescription], *, now_ms: int) -> bytes:
    """The whole document, indented."""
    document = _Export(
        written_ms=now_ms,
        transactions=tuple(
            _Transaction(
                transactional_id=found.transactional_id,
                state=found.state,
                producer_id=found.producer_id,
                producer_epoch=found.producer_epoch,
                timeout_ms=found.timeout_ms,
                start_time_ms=None if found.start_time_ms == NO_TIME else found.start_time_ms,
                last_update_ms=found.last_update_ms,
                partitions=tuple(_Partition(key.topic, key.partition) for key in found.partitions),
            )
            for found in sorted(descriptions, key=lambda found: found.transactional_id)
        ),
    )
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
