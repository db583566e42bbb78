"""The columns that records alone hold: keys, values, headers, timestamps, and which offset of its batch each has.

Values are what `core.record.record_format.decode_records` gives, and what it refuses is refused, in its words. Beyond
that, offsets must rise within a batch and be those its header says: rows are counted and cut by them.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, assert_never

import msgspec

from exactlog.core.codec.compression import COMPRESSION_MASK
from exactlog.core.codec.zigzag import decode_varint
from exactlog.core.model.errors import DecodeError
from exactlog.core.model.ids import NO_TIMESTAMP
from exactlog.core.record.batch_format import BATCH_OVERHEAD, LENGTH_OVERHEAD
from exactlog.core.record.record_format import Record, decode_records
from exactlog.pipeline.read_damage import damage_at
from exactlog.pipeline.record_positions import Odd, RecordPositions, join_ends, locate_fields
from exactlog.pipeline.source import Slice, VisibleBatch

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Int64s: TypeAlias = npt.NDArray[np.int64]
    Booleans: TypeAlias = npt.NDArray[np.bool_]

RecordColumn = Literal["key", "value", "headers", "timestamp"]
RECORD_COLUMNS: Final[tuple[RecordColumn, ...]] = ("key", "value", "headers", "timestamp")

_NO_ROOM = b"\0" * BATCH_OVERHEAD
_MICROSECONDS: Final = 1_000  # of a millisecond
_TIMESTAMP_MS_MAX: Final = (2**63 - 1) // _MICROSECONDS  # the last that Spark's microseconds hold, in year 294,247
_BASE_TIMESTAMP_MAX: Final = 2**62  # above it the sum with a delta may not fit 64 bits
_DELTA_MAX: Final = 2**62


class GatheredBatch(NamedTuple):
    """A batch, and the piece of a log that it was read for."""

    piece: Slice
    batch: VisibleBatch


class DecodedRecords(msgspec.Struct, frozen=True):
    """The records of some batches that are rows, in order.

    Attributes:
        counts: how many of each batch.
        offset_delta: of each record, to the base offset of its batch.
        columns: those of `RECORD_COLUMNS` that were asked for, by name.
    """

    counts: "Int64s"
    offset_delta: "Int64s"
    columns: "dict[str, pa.Array]"


def decode_gathered(gathered: Sequence[GatheredBatch], schema: "pa.Schema") -> DecodedRecords:
    """The rows of some batches, with those columns of a schema that only the records hold.

    Raises:
        DamageError: the records are malformed; names topic, partition, offset and version.
    """
    try:
        return _decode_together(gathered, schema)
    except Odd:
        return _decode_one_by_one(gathered, schema)


def locate_by_headers(gathered: Sequence[GatheredBatch], no_columns: "pa.Schema") -> DecodedRecords:
    """The rows of some batches by their headers alone; records are looked into only where a batch has gaps.

    Args:
        gathered: the batches; those without gaps need no records.
        no_columns: a schema without any of `RECORD_COLUMNS`.

    Raises:
        DamageError: as `decode_gathered`.
    """
    import numpy as np  # noqa: PLC0415  of the extra `spark`

    low, high = _seen_deltas(gathered)
    counts = np.maximum(high - low, 0)
    headers = [one.batch.header for one in gathered]
    if any(header.record_count != header.last_offset_delta + 1 for header in headers):
        found = [
            decode_gathered([one], no_columns).offset_delta
            if one.batch.header.record_count != one.batch.header.last_offset_delta + 1
            else np.arange(start, start + count)
            for one, start, count in zip(gathered, low, counts, strict=True)
        ]
        return DecodedRecords(np.array([len(deltas) for deltas in found]), np.concatenate(found), {})
    starts = np.cumsum(counts) - counts
    offset_delta = np.arange(int(counts.sum()), dtype=np.int64) + np.repeat(low - starts, counts)
    return DecodedRecords(counts, offset_delta, {})


def _seen_deltas(gathered: Sequence[GatheredBatch]) -> "tuple[Int64s, Int64s]":
    """Of each batch the offset deltas that are seen: from the first to below the second."""
    import numpy as np  # noqa: PLC0415  of the extra `spark`

    bounds = [
        (
            max(0, batch.start_offset - batch.header.base_offset),
            min(batch.header.last_offset_delta + 1, batch.end_offset - batch.header.base_offset),
        )
        for _, batch in gathered
    ]
    low, high = np.array(bounds, dtype=np.int64).T
    return low, high


# --- all together ---------------------------------------------------------------------------------------------------


def _decode_together(gathered: Sequence[GatheredBatch], schema: "pa.Schema") -> DecodedRecords:
    import numpy as np  # noqa: PLC0415  of the extra `spark`

    batches = [one.batch for one in gathered]
    contents = [batch.records for batch in batches]
    counts = np.array([batch.header.record_count for batch in batches], dtype=np.int64)
    ends = join_ends(contents, counts.tolist())
    content = contents[0] if len(contents) == 1 else b"".join(contents)
    if not len(ends):
        return _decode_one_by_one(gathered, schema)
    found = locate_fields(content, ends)
    batch_of = np.repeat(np.arange(len(batches)), counts)
    _check_deltas(found.offset_delta, batch_of, np.array([batch.header.last_offset_delta for batch in batches]))
    low, high = _seen_deltas(gathered)
    seen = (found.offset_delta >= low[batch_of]) & (found.offset_delta < high[batch_of])
    if not seen.all():
        found = RecordPositions(*(vector[seen] for vector in msgspec.structs.astuple(found)))
        batch_of = batch_of[seen]
        counts = np.bincount(batch_of, minlength=len(batches))
    columns: dict[str, pa.Array] = {}
    for name in RECORD_COLUMNS:
        index = schema.get_field_index(name)
        if index < 0:
            continue
        match name:
            case "key":
                columns[name] = _binary_array(content, found.key_start, found.key_length)
            case "value":
                columns[name] = _binary_array(content, found.value_start, found.value_length)
            case "headers":
                columns[name] = _headers_array(content, found, schema.field(index).type)
            case "timestamp":
                columns[name] = _timestamp_array(found.timestamp_delta, batches, batch_of)
            case _:
                assert_never(name)
    return DecodedRecords(counts, found.offset_delta, columns)


def _check_deltas(offset_delta: "Int64s", batch_of: "npt.NDArray[np.intp]", last: "Int64s") -> None:
    """Raises `Odd` unless the offsets rise in each batch, from 0 to its last one."""
    is_first = batch_of[1:] != batch_of[:-1]
    rises = (offset_delta[1:] > offset_delta[:-1]) | is_first
    if not rises.all() or (offset_delta < 0).any() or (offset_delta > last[batch_of]).any():
        raise Odd


def _binary_array(content: bytes, start: "Int64s", length: "Int64s") -> "pa.Array":
    """The parts of a buffer, copied by Arrow: every other one of an array that has what lies between them too."""
    import numpy as np  # noqa: PLC0415  of the extra `spark`
    import pyarrow as pa  # noqa: PLC0415  of the extra `spark`

    count = len(start)
    is_null = length < 0
    has_null = bool(is_null.any())
    if not count or (has_null and is_null.all()):
        return pa.nulls(count, pa.binary())
    offsets = np.empty(2 * count, dtype=np.int32)
    offsets[0::2] = start
    offsets[1::2] = start + np.maximum(length, 0)
    parts = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), pa.py_buffer(content)])
    return parts.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32), mask=is_null if has_null else None))


def _headers_array(content: bytes, found: RecordPositions, list_type: "pa.DataType") -> "pa.Array":
    import numpy as np  # noqa: PLC0415  of the extra `spark`

    names: list[str] = []
    values: list[bytes | None] = []
    counts = found.header_count
    if counts.any():
        rows = np.flatnonzero(counts)
        selected = zip(counts[rows].tolist(), found.headers_start[rows].tolist(), found.end[rows].tolist(), strict=True)
        known: dict[bytes, str] = {}
        for count, at, end in selected:
            _add_headers(content, at, end, count, names=names, values=values, known=known)
    offsets = np.zeros(len(counts) + 1, dtype=np.int32)
    np.cumsum(counts, out=offsets[1:])
    return _list_array(offsets, names, values, list_type)


def _add_headers(
    content: bytes,
    at: int,
    end: int,
    count: int,
    *,
    names: list[str],
    values: list[bytes | None],
    known: dict[bytes, str],
) -> None:
    """Adds the headers of one record. The same names come again and again: each is decoded once.

    Raises:
        Odd: they do not end where the record does.
    """
    try:
        for _ in range(count):
            length = content[at]
            if length < 0x80 and not length & 1:
                length >>= 1
                at += 1
            else:
                length, at = decode_varint(content, at)
                if length < 0:
                    raise Odd
            encoded = content[at : at + length]
            at += length
            name = known.get(encoded)
            if name is None:
                name = known[encoded] = encoded.decode(errors="replace")
            names.append(name)
            length = content[at]
            if length < 0x80 and not length & 1:
                length >>= 1
                at += 1
            else:
                length, at = decode_varint(content, at)
                if length < 0:
                    values.append(None)
                    continue
            values.append(content[at : at + length])
            at += length
    except (IndexError, DecodeError):
        raise Odd from None
    if at != end:
        raise Odd


def _list_array(
    offsets: "npt.NDArray[np.int32]", names: list[str], values: list[bytes | None], list_type: "pa.DataType"
) -> "pa.Array":
    import pyarrow as pa  # noqa: PLC0415  of the extra `spark`

    entry = list_type.value_type
    entries = pa.StructArray.from_arrays(
        [pa.array(names, type=pa.string()), pa.array(values, type=pa.binary())],
        fields=[entry.field(index) for index in range(entry.num_fields)],
    )
    return pa.ListArray.from_arrays(pa.array(offsets), entries, type=list_type)


def _timestamp_array(delta: "Int64s", batches: Sequence[VisibleBatch], batch_of: "npt.NDArray[np.intp]") -> "pa.Array":
    import numpy as np  # noqa: PLC0415  of the extra `spark`
    import pyarrow as pa  # noqa: PLC0415  of the extra `spark`

    headers = [batch.header for batch in batches]
    if any(abs(header.base_timestamp) > _BASE_TIMESTAMP_MAX for header in headers) or (abs(delta) > _DELTA_MAX).any():
        raise Odd
    timestamp = np.array([header.base_timestamp for header in headers], dtype=np.int64)[batch_of] + delta
    is_append_time = np.array([header.is_log_append_time for header in headers])
    if is_append_time.any():
        append_time = np.array([header.max_timestamp for header in headers], dtype=np.int64)
        timestamp = np.where(is_append_time[batch_of], append_time[batch_of], timestamp)
    is_null = (timestamp == NO_TIMESTAMP) | (timestamp > _TIMESTAMP_MS_MAX) | (timestamp < -_TIMESTAMP_MS_MAX)
    microseconds = np.where(is_null, 0, timestamp) * _MICROSECONDS
    return pa.array(microseconds, mask=is_null if is_null.any() else None).view(pa.timestamp("us", tz="UTC"))


# --- one by one -----------------------------------------------------------------------------------------------------


def _decode_one_by_one(gathered: Sequence[GatheredBatch], schema: "pa.Schema") -> DecodedRecords:
    """The same, slowly, whatever the records are; it says what is wrong with them."""
    import numpy as np  # noqa: PLC0415  of the extra `spark`
    import pyarrow as pa  # noqa: PLC0415  of the extra `spark`

    records: list[Record] = []
    deltas: list[int] = []
    counts: list[int] = []
    for piece, batch in gathered:
        seen = list(_records_of(piece, batch))
        records += seen
        deltas += [record.offset - batch.header.base_offset for record in seen]
        counts.append(len(seen))
    columns: dict[str, pa.Array] = {}
    for name in RECORD_COLUMNS:
        index = schema.get_field_index(name)
        if index < 0:
            continue
        match name:
            case "key":
                columns[name] = pa.array([record.key for record in records], type=pa.binary())
            case "value":
                columns[name] = pa.array([record.value for record in records], type=pa.binary())
            case "headers":
                offsets = np.cumsum([0, *(len(record.headers) for record in records)], dtype=np.int32)
                names = [header for record in records for header, _ in record.headers]
                values = [value for record in records for _, value in record.headers]
                columns[name] = _list_array(offsets, names, values, schema.field(index).type)
            case "timestamp":
                microseconds = [_microseconds(record.timestamp_ms) for record in records]
                columns[name] = pa.array(microseconds, type=pa.int64()).view(pa.timestamp("us", tz="UTC"))
            case _:
                assert_never(name)
    return DecodedRecords(np.array(counts, dtype=np.int64), np.array(deltas, dtype=np.int64), columns)


def _microseconds(timestamp_ms: int) -> int | None:
    if timestamp_ms == NO_TIMESTAMP or abs(timestamp_ms) > _TIMESTAMP_MS_MAX:
        return None
    return timestamp_ms * _MICROSECONDS


def _records_of(piece: Slice, batch: VisibleBatch) -> Iterator[Record]:
    """The records of a batch that are seen, one by one; `DamageError` where it is malformed."""
    stored = batch.header
    opened = msgspec.structs.replace(
        stored,
        batch_length=BATCH_OVERHEAD - LENGTH_OVERHEAD + len(batch.records),
        attributes=stored.attributes & ~COMPRESSION_MASK,
    )
    last = stored.base_offset - 1
    try:
        for record in decode_records(_NO_ROOM + batch.records, header=opened):
            if not last < record.offset < stored.next_offset:
                raise DecodeError(
                    f"a record has offset {record.offset}, behind {last} and in a batch of offsets "
                    f"{stored.base_offset} to {stored.last_offset}"
                )
            last = record.offset
            if batch.start_offset <= record.offset < batch.end_offset:
                yield record
    except DecodeError as error:
        raise damage_at(piece, last + 1, error) from error
