"""What a broker refuses in the ``records`` field of a Produce request, before any offset is assigned.

A batch that passes can no longer fail alone: everything after this point is decided for the group it is appended with.
The rules, their order and their error codes are Apache Kafka's: ``ProduceRequest.validateRecords`` first, then
``UnifiedLog.analyzeAndValidateRecords``, then ``LogValidator.validateBatch`` (trunk of August 2026). Since Produce
version 3 (KIP-98) a partition gets exactly one batch, of magic 2; older magics are INVALID_RECORD there,
UNSUPPORTED_FOR_MESSAGE_FORMAT is only for topics kept in an old format.

We are stricter in these, each of which Kafka would lose, store or answer without a reason:

- bytes behind the batch that are no whole second batch: Kafka drops them silently;
- a producer id with a negative epoch, and a transactional batch without a producer id: Kafka stores them;
- an unknown compression codec: Kafka answers UNKNOWN_SERVER_ERROR;
- the bit for append time: Kafka refuses it only where the topic uses append time, else rewrites the batch.

The records themselves are not read, except for a compacted topic, where each needs a key.
"""

from typing import TypeAlias

import msgspec

from exactlog.core.codec.compression import COMPRESSION_MASK, Compression
from exactlog.core.codec.wire_types import Buffer
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import DecodeError
from exactlog.core.model.ids import NO_PRODUCER_ID
from exactlog.core.record.batch_format import (
    BATCH_OVERHEAD,
    CONTROL_BIT,
    HEADER,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    MAGIC_POSITION,
    TRANSACTIONAL_BIT,
    BatchHeader,
    checksum,
)
from exactlog.core.record.record_format import decode_records


class ValidRecords(msgspec.Struct, frozen=True, gc=False):
    """The one batch of the field may be appended. Its timestamps are still to be judged by the topic's settings."""

    header: BatchHeader


class InvalidRecords(msgspec.Struct, frozen=True, gc=False):
    """The field is refused, with the code and the message for the answer.

    ``batch_index`` is the index, within the batch, of the record at fault: BatchIndex of a Produce response. None where
    the batch as a whole is.
    """

    error_code: ErrorCode
    message: str
    batch_index: int | None = None


RecordsVerdict: TypeAlias = ValidRecords | InvalidRecords


def validate_produced(
    records: Buffer, *, batch_bytes_max: int, is_compacted: bool = False, is_zstd_known: bool = True
) -> RecordsVerdict:
    """Judge the ``records`` field of one partition in a Produce request of version 3 or later.

    Args:
        records: the field as received; empty where it was null.
        batch_bytes_max: the topic's ``max.message.bytes``.
        is_compacted: whether the topic's cleanup policy needs a key on each record.
        is_zstd_known: false below Produce version 7, whose clients are not to use zstd (KIP-110).
    """
    if len(records) < BATCH_OVERHEAD or records[MAGIC_POSITION] != MAGIC:
        return _no_batch(records)
    header = BatchHeader(*HEADER.unpack_from(records))
    fault = _find_envelope_fault(header, records, batch_bytes_max=batch_bytes_max, is_zstd_known=is_zstd_known)
    if fault is None:
        fault = _find_field_fault(header)
    if fault is None and is_compacted:
        fault = _find_missing_key(header, records)
    return ValidRecords(header) if fault is None else fault


def _no_batch(records: Buffer) -> InvalidRecords:
    if len(records) <= MAGIC_POSITION:
        return _invalid(f"the records of a partition must be exactly one batch; {len(records)} bytes are none")
    magic = records[MAGIC_POSITION]
    if magic > MAGIC:
        return InvalidRecords(ErrorCode.CORRUPT_MESSAGE, f"the batch has magic {magic}, which does not exist")
    if magic < MAGIC:
        return _invalid(f"the batch has magic {magic}; only magic {MAGIC} (Kafka 0.11 and later) is accepted")
    return _invalid(f"the records end after {len(records)} bytes, inside the header of the batch")


def _find_envelope_fault(
    header: BatchHeader, records: Buffer, *, batch_bytes_max: int, is_zstd_known: bool
) -> InvalidRecords | None:
    """Return what keeps the bytes from being exactly one batch, unharmed, of a size and a codec that we take."""
    size_bytes = header.batch_length + LENGTH_OVERHEAD
    if size_bytes < BATCH_OVERHEAD:
        message = f"the batch claims {size_bytes} bytes, less than its header takes"
        return InvalidRecords(ErrorCode.CORRUPT_MESSAGE, message)
    if size_bytes > len(records):
        return _invalid(f"the batch claims {size_bytes} bytes, the records have only {len(records)}")
    if size_bytes < len(records):
        behind = len(records) - size_bytes
        return _invalid(f"the records of a partition must be exactly one batch; {behind} bytes follow it")
    codec = header.attributes & COMPRESSION_MASK
    if codec > Compression.ZSTD:
        return InvalidRecords(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression codec {codec} is unknown")
    if codec == Compression.ZSTD and not is_zstd_known:
        return InvalidRecords(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or later")
    if header.base_offset != 0:
        return _invalid(f"the base offset of a produced batch must be 0, it is {header.base_offset}")
    if size_bytes > batch_bytes_max:
        message = f"the batch takes {size_bytes} bytes, max.message.bytes is {batch_bytes_max}"
        return InvalidRecords(ErrorCode.MESSAGE_TOO_LARGE, message)
    if checksum(records, 0, size_bytes) != header.crc:
        return InvalidRecords(ErrorCode.CORRUPT_MESSAGE, "the batch does not match its checksum")
    return None


def _find_field_fault(header: BatchHeader) -> InvalidRecords | None:
    """Return what the header says that no producer may say."""
    if header.record_count <= 0:
        return _invalid(f"the batch claims {header.record_count} records")
    if header.last_offset_delta != header.record_count - 1:
        return _invalid(
            f"the batch claims {header.record_count} records, but a last offset delta of {header.last_offset_delta}"
        )
    if header.attributes & CONTROL_BIT:
        return _invalid("clients are not allowed to write control records")
    if header.producer_id > NO_PRODUCER_ID:
        if header.base_sequence < 0:
            return _invalid(f"sequence {header.base_sequence} of producer {header.producer_id} is negative")
        if header.producer_epoch < 0:
            return _invalid(f"epoch {header.producer_epoch} of producer {header.producer_id} is negative")
    elif header.attributes & TRANSACTIONAL_BIT:
        return _invalid("a transactional batch needs a producer id")
    if header.attributes & LOG_APPEND_TIME_BIT:
        message = "the timestamp type is LogAppendTime, which only the broker may set"
        return InvalidRecords(ErrorCode.INVALID_TIMESTAMP, message)
    return None


def _find_missing_key(header: BatchHeader, records: Buffer) -> InvalidRecords | None:
    try:
        for index, record in enumerate(decode_records(records, header=header)):
            if record.key is None:
                return InvalidRecords(ErrorCode.INVALID_RECORD, "a compacted topic needs a key on each record", index)
    except DecodeError as error:
        return _invalid(f"the records cannot be read: {error}")
    return None


def _invalid(message: str) -> InvalidRecords:
    return InvalidRecords(ErrorCode.INVALID_RECORD, message)
