"""Rows of Arrow as records: columns in the types that records have, and the bytes of a batch made of them at once.

A loop over records would be what a write spends most of its time with. The bytes are those that
`core.record.record_format.encode_record` makes of each record; `core.record.batch_builder` makes the same batches.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from exactlog.core.codec.compression import Compression, compress
from exactlog.core.model.errors import ExactlogError
from exactlog.core.model.ids import LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs
from exactlog.core.record.batch_format import (
    ATTRIBUTES_POSITION,
    BATCH_OVERHEAD,
    CRC_POSITION,
    HEADER,
    LENGTH_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    checksum,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Int64s: TypeAlias = npt.NDArray[np.int64]

RECORD_OVERHEAD_BYTES: Final = 32
"""What a record takes beside key, value and headers, at most."""

_NULL: Final = -1
_NO_HEADERS: Final = b"\x00"
_NO_LEADER_EPOCH: Final = LeaderEpoch(-1)
_MICROS_PER_MS: Final = 1_000


class InvalidRowError(ExactlogError):
    """A row that cannot be a record."""

    code = "invalid-row"


class RecordRows(msgspec.Struct, frozen=True):
    """Some rows in the types that records have.

    Attributes:
        keys: binary; NULL where a record has none.
        values: binary.
        headers: binary: the count and the bytes of each record's headers, as they stand in a record.
        timestamps_ms: since 1970.
    """

    keys: "pa.Array"
    values: "pa.Array"
    headers: "pa.Array"
    timestamps_ms: "Int64s"

    def __len__(self) -> int:
        return len(self.timestamps_ms)

    def take(self, places: "Int64s") -> "RecordRows":
        """The rows at those places, in that order."""
        return RecordRows(
            self.keys.take(places), self.values.take(places), self.headers.take(places), self.timestamps_ms[places]
        )

    def slice(self, start: int, end: int) -> "RecordRows":
        """The rows from `start` up to, and without, `end`."""
        count = end - start
        return RecordRows(
            self.keys.slice(start, count),
            self.values.slice(start, count),
            self.headers.slice(start, count),
            self.timestamps_ms[start:end],
        )

    def copied(self) -> "RecordRows":
        """The same rows, without the memory of those that they were cut from."""
        import numpy as np  # noqa: PLC0415  of the extra `spark`

        return self.take(np.arange(len(self)))

    def sizes(self) -> "Int64s":
        """How many bytes each record takes, at most."""
        lengths = (_lengths(self.keys).clip(0), _lengths(self.values).clip(0), _lengths(self.headers))
        sizes: Int64s = sum(lengths, start=lengths[0] * 0 + RECORD_OVERHEAD_BYTES)
        return sizes


def concatenate(pieces: Sequence[RecordRows]) -> RecordRows:
    """All rows of the pieces, in order."""
    import numpy as np  # noqa: PLC0415  of the extra `spark`
    import pyarrow as pa  # noqa: PLC0415  of the extra `spark`

    if len(pieces) == 1:
        return pieces[0]
    return RecordRows(
        pa.concat_arrays([piece.keys for piece in pieces]),
        pa.concat_arrays([piece.values for piece in pieces]),
        pa.concat_arrays([piece.headers for piece in pieces]),
        np.concatenate([piece.timestamps_ms for piece in pieces]),
    )


def to_record_rows(batch: "pa.RecordBatch", *, now_ms: int) -> RecordRows:
    """The rows of an Arrow batch of written columns; those without a time get `now_ms`.

    Raises:
        InvalidRowError: a header without a name, a time before 1970.
    """
    import pyarrow as pa  # noqa: PLC0415  of the extra `spark`

    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    nulls = pa.nulls(batch.num_rows, pa.binary())
    return RecordRows(
        keys=columns["key"].cast(pa.binary()) if "key" in columns else nulls,
        values=columns["value"].cast(pa.binary()),
        headers=_encode_headers(columns.get("headers"), batch.num_rows),
        timestamps_ms=_milliseconds(columns.get("timestamp"), batch.num_rows, now_ms=now_ms),
    )


def build_batch_of_rows(
    rows: RecordRows,
    *,
    compression: Compression,
    producer_id: ProducerId,
    producer_epoch: ProducerEpoch,
    base_sequence: int,
) -> bytearray:
    """A transactional batch of these rows, one or more, as `build_batch` would make it of their records."""
    base_timestamp_ms = int(rows.timestamps_ms[0])
    content = compress(compression, _encode_records(rows, base_timestamp_ms))
    header = BatchHeader(
        base_offset=Offset(0),
        batch_length=BATCH_OVERHEAD - LENGTH_OVERHEAD + len(content),
        leader_epoch=_NO_LEADER_EPOCH,
        magic=MAGIC,
        crc=0,
        attributes=compression | TRANSACTIONAL_BIT,
        last_offset_delta=len(rows) - 1,
        base_timestamp=TimestampMs(base_timestamp_ms),
        max_timestamp=TimestampMs(int(rows.timestamps_ms.max())),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(rows),
    )
    batch = bytearray(BATCH_OVERHEAD)
    HEADER.pack_into(batch, 0, *msgspec.structs.astuple(header))
    batch += content
    batch[CRC_POSITION:ATTRIBUTES_POSITION] = checksum(batch, 0, len(batch)).to_bytes(4)
    return batch


def _encode_records(rows: RecordRows, base_timestamp_ms: int) -> bytes:
    """The records of a batch, one behind the other."""
    import numpy as np  # noqa: PLC0415  of the extra `spark`

    key_lengths, value_lengths = _lengths(rows.keys), _lengths(rows.values)
    fields = (
        _varints(rows.timestamps_ms - base_timestamp_ms),
        _varints(np.arange(len(rows), dtype=np.int64)),
        _varints(key_lengths),
        rows.keys,
        _varints(value_lengths),
        rows.values,
        rows.headers,
    )
    lengths = sum((_lengths(field).clip(0) for field in fields), start=np.ones(len(rows), dtype=np.int64))
    return _content(_joined(_varints(lengths), _constant(b"\x00", len(rows)), *fields))


def _encode_headers(column: "pa.Array | None", row_count: int) -> "pa.Array":
    import numpy as np  # noqa: PLC0415  of the extra `spark`
    import pyarrow as pa  # noqa: PLC0415  of the extra `spark`
    import pyarrow.compute as pc  # noqa: PLC0415

    if column is None:
        return _constant(_NO_HEADERS, row_count)
    counts = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    names, values = (field.cast(pa.binary()) for field in column.flatten().flatten())
    if names.null_count:
        raise InvalidRowError("a row has a header without a name", hint="drop such headers before writing")
    encoded = _joined(_varints(_lengths(names)), names, _varints(_lengths(values)), values)
    offsets = pa.array(np.concatenate(([0], np.cumsum(counts))), pa.int32())
    return _joined(_varints(counts), pc.binary_join(pa.ListArray.from_arrays(offsets, encoded), b""))


def _milliseconds(column: "pa.Array | None", row_count: int, *, now_ms: int) -> "Int64s":
    import numpy as np  # noqa: PLC0415  of the extra `spark`
    import pyarrow as pa  # noqa: PLC0415  of the extra `spark`

    if column is None:
        return np.full(row_count, now_ms, dtype=np.int64)
    micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    filled: Int64s = micros.fill_null(now_ms * _MICROS_PER_MS).to_numpy(zero_copy_only=False) // _MICROS_PER_MS
    if row_count and int(filled.min()) < 0:
        raise InvalidRowError(
            f"a row has a timestamp {-int(filled.min())} ms before 1970, which a record cannot have",
            hint="write it into the value, or leave the column NULL",
        )
    return filled


def _lengths(column: "pa.Array") -> "Int64s":
    """The length of each entry of a binary column; -1 where it is NULL."""
    import numpy as np  # noqa: PLC0415  of the extra `spark`
    import pyarrow.compute as pc  # noqa: PLC0415  of the extra `spark`

    lengths: Int64s = pc.binary_length(column).fill_null(_NULL).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


def _varints(values: "Int64s") -> "pa.Array":
    """Each number as `core.codec.zigzag` writes it: zigzag, seven bits a byte, the low ones first."""
    import numpy as np  # noqa: PLC0415  of the extra `spark`
    import pyarrow as pa  # noqa: PLC0415  of the extra `spark`

    raw = ((values << 1) ^ (values >> 63)).view(np.uint64)
    sizes = np.ones(len(raw), dtype=np.int64)
    rest = raw >> np.uint64(7)
    while rest.any():
        sizes += rest != 0
        rest = rest >> np.uint64(7)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    content = np.empty(int(offsets[-1]), dtype=np.uint8)
    for place in range(int(sizes.max(initial=0))):
        has = np.flatnonzero(sizes > place)
        group = (raw[has] >> np.uint64(7 * place)) & np.uint64(0x7F)
        follows = (sizes[has] > place + 1).astype(np.uint64) << np.uint64(7)
        content[offsets[has] + place] = (group | follows).astype(np.uint8)
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(content)]
    return pa.Array.from_buffers(pa.binary(), len(raw), buffers)


def _joined(*columns: "pa.Array") -> "pa.Array":
    """The entries of each row, one behind the other; NULL is nothing."""
    import pyarrow.compute as pc  # noqa: PLC0415  of the extra `spark`

    return pc.binary_join_element_wise(*columns, b"", null_handling="replace", null_replacement=b"")


def _constant(content: bytes, row_count: int) -> "pa.Array":
    import pyarrow as pa  # noqa: PLC0415  of the extra `spark`

    return pa.repeat(pa.scalar(content, pa.binary()), row_count)


def _content(column: "pa.Array") -> bytes:
    """All entries of a column that was just made, one behind the other."""
    import numpy as np  # noqa: PLC0415  of the extra `spark`

    _, offsets, content = column.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32, count=len(column) + 1)
    return bytes(memoryview(content)[int(ends[0]) : int(ends[-1])])
