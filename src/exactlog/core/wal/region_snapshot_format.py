"""A snapshot of a region's metadata: the key and the value of one record of its meta topic (HoraeDB's, extended).

    key, 10 bytes, big-endian
    offset  size  type    field
    0       1     uint8   namespace   0: meta
    1       1     uint8   version     0
    2       8     uint64  region

    value
    0       1     uint8   version     0
    1       ...   protobuf, all numbers as varints:
      message RegionMetaSnapshot {
        repeated TableMetaData entries = 2;
        optional int64 high_watermark = 101;            // recovery goes on from here; absent: HoraeDB's shape
        repeated int64 skipped_offsets = 102 [packed];  // records that an operator lets be passed over
      }
      message TableMetaData {
        uint64 table_id = 1;
        uint64 next_sequence_num = 2;
        uint64 latest_marked_deleted = 3;
        int64 current_high_watermark = 4;
        oneof { int64 safe_delete_offset = 5; }         // absent: nothing of the table must stay
        repeated uint64 runs = 101 [packed];            // sequence, offset, length of each run; each a step from the
                                                        // end of the run before, and length less one
        bool is_dropped = 102;
      }

Fields that are not known are passed over, as protobuf has it; ours begin at 101, out of the way of HoraeDB's next ones.
"""

import struct
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from exactlog.core.codec.varint import encode_uvarint
from exactlog.core.model.errors import DecodeError
from exactlog.core.wal.sequence_offsets import Run

META_NAMESPACE: Final = 0
KEY_VERSION: Final = 0
VALUE_VERSION: Final = 0

_KEY: Final = struct.Struct(">BBQ")
_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2
_FIXED32: Final = 5
_VARINT_BYTES_MAX: Final = 10
_UINT64: Final = 2**64
_INT64_MAX: Final = 2**63 - 1

_ENTRIES: Final = 2
_HIGH_WATERMARK: Final = 101
_SKIPPED_OFFSETS: Final = 102
_RUNS: Final = 101
_IS_DROPPED: Final = 102


class TableSnapshot(Struct, frozen=True):
    """A table as it was; `runs` is None in HoraeDB's shape, which has the one `safe_delete_offset` instead."""

    table: int
    next_seq_num: int
    latest_mark_deleted: int
    current_high_watermark: int
    safe_delete_offset: int | None
    runs: tuple[Run, ...] | None = None
    is_dropped: bool = False


class RegionSnapshot(Struct, frozen=True):
    """A region as it was, its tables in order; `high_watermark` is None in HoraeDB's shape."""

    tables: tuple[TableSnapshot, ...]
    high_watermark: int | None = None
    skipped_offsets: tuple[int, ...] = ()


def encode_meta_key(region: int) -> bytes:
    """The key of every snapshot of a region."""
    return _KEY.pack(META_NAMESPACE, KEY_VERSION, region)


def decode_meta_key(data: bytes) -> int:
    """Which region the snapshot is of.

    Raises:
        DecodeError: these bytes are no key of a snapshot.
    """
    if len(data) != _KEY.size:
        raise DecodeError(f"a key of {len(data)} bytes; that of a snapshot has {_KEY.size}")
    namespace, version, region = _KEY.unpack(data)
    if (namespace, version) != (META_NAMESPACE, KEY_VERSION):
        raise DecodeError(f"a key of namespace {namespace} and version {version}; that of a snapshot has 0 and 0")
    return int(region)


# --- writing -----------------------------------------------------------------------------------------------------


def encode_snapshot(snapshot: RegionSnapshot) -> bytes:
    """The value for a snapshot."""
    parts = [bytes([VALUE_VERSION])]
    parts += (_bytes_field(_ENTRIES, _encode_table(table)) for table in snapshot.tables)
    if snapshot.high_watermark is not None:
        parts.append(_key(_HIGH_WATERMARK, _VARINT) + _varint(snapshot.high_watermark))
    if snapshot.skipped_offsets:
        parts.append(_bytes_field(_SKIPPED_OFFSETS, b"".join(map(_varint, snapshot.skipped_offsets))))
    return b"".join(parts)


def _encode_table(table: TableSnapshot) -> bytes:
    numbers = (table.table, table.next_seq_num, table.latest_mark_deleted, table.current_high_watermark)
    parts = [_key(field, _VARINT) + _varint(value) for field, value in enumerate(numbers, start=1) if value]
    if table.safe_delete_offset is not None:
        parts.append(_key(5, _VARINT) + _varint(table.safe_delete_offset))
    if table.runs is not None:
        parts.append(_bytes_field(_RUNS, b"".join(map(_varint, _steps(table.runs)))))
    if table.is_dropped:
        parts.append(_key(_IS_DROPPED, _VARINT) + _varint(1))
    return b"".join(parts)


def _steps(runs: tuple[Run, ...]) -> Iterator[int]:
    """Sequences and offsets as steps from the last one of the run before: small numbers, one byte each mostly."""
    last_sequence = last_offset = 0
    for sequence, offset, length in runs:
        yield from (sequence - last_sequence, offset - last_offset, length - 1)
        last_sequence, last_offset = sequence + length - 1, offset + length - 1


def _key(field: int, wire_type: int) -> bytes:
    return _varint(field << 3 | wire_type)


def _bytes_field(field: int, content: bytes) -> bytes:
    return _key(field, _BYTES) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    return encode_uvarint(value % _UINT64)  # a negative int64 takes ten bytes


# --- reading -----------------------------------------------------------------------------------------------------


def decode_snapshot(data: bytes) -> RegionSnapshot:
    """What a value says, in either shape.

    Raises:
        DecodeError: it is no snapshot, or one of another version.
    """
    if not data:
        raise DecodeError("an empty value; that of a snapshot begins with its version")
    if data[0] != VALUE_VERSION:
        raise DecodeError(f"a snapshot of version {data[0]}; {VALUE_VERSION} is known")
    tables: list[TableSnapshot] = []
    high_watermark: int | None = None
    skipped: tuple[int, ...] = ()
    for field, value in _fields(data[1:]):
        match field, value:
            case (2, bytes()):
                tables.append(_decode_table(value))
            case (101, int()):
                high_watermark = _signed(value)
            case (102, bytes()):
                skipped = tuple(map(_signed, _varints(value)))
            case _:
                pass  # of a later version
    if len({table.table for table in tables}) != len(tables):
        raise DecodeError("a snapshot that has a table twice")
    return RegionSnapshot(tuple(sorted(tables, key=lambda table: table.table)), high_watermark, skipped)


def _decode_table(data: bytes) -> TableSnapshot:
    numbers: dict[int, int] = {}
    runs: tuple[Run, ...] | None = None
    for field, value in _fields(data):
        if isinstance(value, int):
            numbers[field] = value
        elif field == _RUNS:
            runs = _decode_runs(value)
    safe = numbers.get(5)
    return TableSnapshot(
        table=numbers.get(1, 0),
        next_seq_num=numbers.get(2, 0),
        latest_mark_deleted=numbers.get(3, 0),
        current_high_watermark=_signed(numbers.get(4, 0)),
        safe_delete_offset=None if safe is None else _signed(safe),
        runs=runs,
        is_dropped=bool(numbers.get(_IS_DROPPED)),
    )


def _decode_runs(data: bytes) -> tuple[Run, ...]:
    steps = list(_varints(data))
    if len(steps) % 3:
        raise DecodeError(f"runs in {len(steps)} numbers; each run has three")
    runs: list[Run] = []
    last_sequence = last_offset = 0
    for index in range(0, len(steps), 3):
        run = Run(last_sequence + steps[index], last_offset + steps[index + 1], steps[index + 2] + 1)
        last_sequence, last_offset = run.sequence + run.length - 1, run.offset + run.length - 1
        if last_sequence >= _UINT64 or last_offset > _INT64_MAX or not steps[index]:
            raise DecodeError(f"a run of {run.length} from sequence {run.sequence} at offset {run.offset}")
        runs.append(run)
    return tuple(runs)


def _signed(value: int) -> int:
    return value - _UINT64 if value > _INT64_MAX else value


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message, in the order they come; those of fixed size as bytes."""
    position = 0
    while position < len(data):
        key, position = _read_varint(data, position)
        field, wire_type = key >> 3, key & 7
        if not field:
            raise DecodeError("a field without a number")
        if wire_type == _VARINT:
            number, position = _read_varint(data, position)
            yield field, number
            continue
        if wire_type == _BYTES:
            size, position = _read_varint(data, position)
        elif wire_type in (_FIXED64, _FIXED32):
            size = 8 if wire_type == _FIXED64 else 4
        else:
            raise DecodeError(f"field {field} is of wire type {wire_type}, which there is not")
        if position + size > len(data):
            raise DecodeError(f"field {field} has {size} bytes, and {len(data) - position} are left")
        yield field, data[position : position + size]
        position += size


def _varints(data: bytes) -> Iterator[int]:
    position = 0
    while position < len(data):
        value, position = _read_varint(data, position)
        yield value


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for index in range(_VARINT_BYTES_MAX):
        if position + index >= len(data):
            raise DecodeError("a number that is cut short")
        byte = data[position + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value % _UINT64, position + index + 1
    raise DecodeError(f"a number of more than {_VARINT_BYTES_MAX} bytes")
