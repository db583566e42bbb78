"""Records as the command line prints and reads them."""

import base64
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Struct

from exactlog.cli.errors import InvalidUsageError
from exactlog.cli.output import OutputFormat, RowPrinter, cell
from exactlog.core.deltalog.timestamps import TIMESTAMP_MS_MAX, format_timestamp
from exactlog.core.model.ids import NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP, DeltaVersion, TimestampMs, TopicPartition
from exactlog.core.model.sequences import add_to_sequence
from exactlog.core.record.batch_builder import NewRecord
from exactlog.core.record.batch_format import BatchHeader
from exactlog.core.record.record_format import Record

RECORD_HEADING: Final = f"{'PARTITION':>9}  {'OFFSET':>10}  {'TIME':<24}  KEY  VALUE"
_Number = Annotated[int, msgspec.Meta(ge=0)]


_TIMESTAMP_TYPES: Final = {False: "CreateTime", True: "LogAppendTime"}


class _Base64(Struct, frozen=True, forbid_unknown_fields=True):
    base64: bytes


_Content = str | _Base64 | None


class _RecordDocument(Struct, frozen=True, forbid_unknown_fields=True):
    """A record as it is printed. What the broker decides is taken and not looked at, so that output can be input."""

    topic: object = None
    partition: _Number | None = None
    offset: object = None
    timestamp: _Number | None = None
    timestamp_type: object = None
    key: _Content = None
    value: _Content = None
    headers: Sequence[tuple[str, _Content]] = ()
    transactional: object = None
    control: bool | None = None
    producer_id: object = None
    producer_epoch: object = None
    sequence: object = None
    delta_version: object = None


RECORD_FIELDS: Final = _RecordDocument.__struct_fields__

_decoder: Final = msgspec.json.Decoder(_RecordDocument)


class ProducibleRecord(Struct, frozen=True):
    """A record to write, and the partition to write it to if that is said."""

    record: NewRecord
    partition: int | None


def record_row(
    place: TopicPartition,
    record: Record,
    *,
    batch: BatchHeader | None,
    delta_version: DeltaVersion | None = None,
) -> dict[str, object]:
    """The record with all that is known about it, ready for JSON; what it does not have is null.

    Args:
        batch: the header of the batch it came in; None where that is not known.
        delta_version: the version that added it; None where that is not known.
    """
    return {
        "topic": place.topic,
        "partition": place.partition,
        "offset": record.offset,
        "timestamp": None if record.timestamp_ms == NO_TIMESTAMP else record.timestamp_ms,
        "timestamp_type": None if batch is None else _TIMESTAMP_TYPES[batch.is_log_append_time],
        "key": encode_bytes(record.key),
        "value": encode_bytes(record.value),
        "headers": [[name, encode_bytes(value)] for name, value in record.headers],
        "transactional": None if batch is None else batch.is_transactional,
        "control": None if batch is None else batch.is_control,
        **_producer_of(record, batch),
        "delta_version": delta_version,
    }


def encode_bytes(content: bytes | None) -> str | dict[str, str] | None:
    """Bytes for JSON: text where they are UTF-8, else `{"base64": ...}`."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode("ascii")}


def record_printer(output: OutputFormat) -> RowPrinter:
    """What prints the rows of records as they come."""
    return RowPrinter(output, heading=RECORD_HEADING, line_of=record_line)


def record_line(row: Mapping[str, object]) -> str:
    """The record on one line, for people; a transaction's marker says what it is."""
    mark = "  (transaction marker)" if row["control"] else ""
    key, value = (_shown(row[name]) for name in ("key", "value"))
    return f"{row['partition']:>9}  {row['offset']:>10}  {_time(row['timestamp']):<24}  {key}  {value}{mark}"


def parse_record(line: str | bytes, *, number: int) -> ProducibleRecord:
    """The record that a line of JSON describes.

    Raises:
        InvalidUsageError: it is no JSON object of a record's fields. `number` is the line's, for the message.
    """
    try:
        document = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise InvalidUsageError(
            f"line {number} is no record: {error}", hint=f"A record has the fields {', '.join(RECORD_FIELDS)}."
        ) from error
    if document.control:
        raise InvalidUsageError(f"line {number} is a transaction marker, which only a broker writes")
    record = NewRecord(
        key=_decode_bytes(document.key),
        value=_decode_bytes(document.value),
        headers=tuple((name, _decode_bytes(value)) for name, value in document.headers),
        timestamp_ms=NO_TIMESTAMP if document.timestamp is None else TimestampMs(document.timestamp),
    )
    return ProducibleRecord(record, document.partition)


def _producer_of(record: Record, batch: BatchHeader | None) -> dict[str, int | None]:
    if batch is None or batch.producer_id == NO_PRODUCER_ID:
        return dict.fromkeys(("producer_id", "producer_epoch", "sequence"))
    has_sequence = batch.base_sequence != NO_SEQUENCE
    return {
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "sequence": add_to_sequence(batch.base_sequence, record.offset - batch.base_offset) if has_sequence else None,
    }


def _decode_bytes(value: _Content) -> bytes | None:
    return value.base64 if isinstance(value, _Base64) else None if value is None else value.encode()


def _shown(value: object) -> str:
    match value:
        case {"base64": str() as text}:
            return f"base64:{text}"
        case _:
            return cell(value)


def _time(timestamp: object) -> str:
    if not isinstance(timestamp, int) or not 0 <= timestamp <= TIMESTAMP_MS_MAX:
        return cell(timestamp)
    return format_timestamp(TimestampMs(timestamp))
