"""What is said of records that were written, and of who wrote them."""

import msgspec

from exactlog.core.model.ids import Offset, ProducerEpoch, ProducerId


class ProducedRecord(msgspec.Struct, frozen=True):
    """Where a record went; `offset` is None when the broker did not tell (acks=0, or a forgotten duplicate)."""

    partition: int
    offset: Offset | None


class ProducerIdentity(msgspec.Struct, frozen=True):
    """What an idempotent producer signs its batches with (KIP-98)."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
