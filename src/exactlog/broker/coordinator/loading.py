"""How a shard comes by its state: all records of its partition, from the log start on.

All that is committed is read, also in transactions that are open: what they hold is pending until their marker.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from exactlog.broker.coordinator.machine import Machine
from exactlog.core.codec.wire_types import Buffer
from exactlog.core.model.errors import DecodeError
from exactlog.core.record.batch_format import BatchHeader, iter_headers
from exactlog.core.record.control_record_format import decode_marker
from exactlog.core.record.record_format import decode_records
from exactlog.storage.partition_log import PartitionLog
from exactlog.storage.waiting import until_settled

_READ_BYTES: Final = 1024 * 1024


async def load_shard(partition: PartitionLog, machine: Machine, *, is_wanted: Callable[[], bool]) -> int:
    """Restores a machine from its partition, a megabyte at a time so that others get their turn.

    What is on its way into the log, as by a shard that was given up a moment ago, belongs to it: its round is awaited.

    Returns:
        how many bytes of log were read.

    Raises:
        DecodeError: a record is not in any known schema.
        OSError: the partition cannot be read.
    """
    await until_settled(partition.when_committed)
    offset: int = partition.log_start_offset
    end_offset, size_bytes = partition.high_watermark, 0
    while offset < end_offset and is_wanted():
        batches = partition.committed.read(
            offset, end_offset=end_offset, bytes_max=_READ_BYTES, at_least_one_batch=True
        )
        next_offset = offset
        for position, header in iter_headers(batches):
            next_offset = header.last_offset + 1
            _restore(machine, batches, position, header, from_offset=offset)
        if next_offset == offset:
            raise DecodeError(f"{partition.topic_partition}: no batch at offset {offset}, the log ends at {end_offset}")
        size_bytes += len(batches)
        offset = next_offset
        await asyncio.sleep(0)
    return size_bytes


def _restore(machine: Machine, batches: Buffer, position: int, header: BatchHeader, *, from_offset: int) -> None:
    producer_id = header.producer_id if header.is_transactional else None
    for record in decode_records(batches, position, header=header):
        if record.offset < from_offset:
            continue
        if header.is_control:
            marker = decode_marker(record)
            if marker is not None:
                machine.restore_marker(header.producer_id, is_commit=marker.is_commit)
        elif record.key is not None:
            machine.restore(record.key, record.value, producer_id=producer_id)
