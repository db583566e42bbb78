"""What a caller may give to be appended, copied at once into records of our own."""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from exactlog.core.codec.compression import Compression
from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.model.ids import NO_TIMESTAMP, TimestampMs
from exactlog.core.record.batch_builder import NewRecord, build_batch
from exactlog.core.record.batch_format import BatchHeader
from exactlog.core.record.batch_validation import InvalidRecords, validate_produced
from exactlog.log.errors import InvalidArgumentError

Content: TypeAlias = bytes | bytearray | memoryview | str
"""Bytes; a text stands for its UTF-8."""

RecordLike: TypeAlias = NewRecord | Content | tuple[Content | None, Content | None]
"""A record; or its value alone; or its key and its value."""

_TIMESTAMP_MS_MAX = 2**63 - 1


def copy_records(records: Iterable[RecordLike]) -> tuple[NewRecord, ...]:
    """The same records, of bytes that nobody else can change.

    Raises:
        InvalidArgumentError: one is not a record.
    """
    if isinstance(records, bytes | bytearray | memoryview | str | Mapping | NewRecord):
        raise InvalidArgumentError(
            f"the records are a {type(records).__name__}, which is not a list of records",
            hint="put a single record into a list",
        )
    return tuple(_copy_record(record, index) for index, record in enumerate(records))


def build_stamped_batch(
    records: Iterable[NewRecord], config: TopicConfig, *, compression: Compression, now_ms: TimestampMs
) -> tuple[BatchHeader, bytearray]:
    """The records as one batch such as the topic takes; a record without a timestamp gets the time of now.

    Raises:
        InvalidArgumentError: the topic's configuration does not allow it; the message says which key.
    """
    stamped = [
        record
        if record.timestamp_ms != NO_TIMESTAMP
        else NewRecord(record.value, record.key, record.headers, timestamp_ms=now_ms)
        for record in records
    ]
    try:
        batch = build_batch(stamped, compression=compression)
    except ValueError as error:
        raise InvalidArgumentError(f"the records cannot be written: {error}") from error
    verdict = validate_produced(
        batch, batch_bytes_max=config.max_message_bytes, is_compacted="compact" in config.cleanup_policy
    )
    if isinstance(verdict, InvalidRecords):
        raise InvalidArgumentError(f"the records are refused: {verdict.message}")
    _check_timestamps(stamped, config, now_ms=now_ms)
    return verdict.header, batch


def _check_timestamps(records: list[NewRecord], config: TopicConfig, *, now_ms: int) -> None:
    if config.message_timestamp_type == "LogAppendTime":
        return
    earliest = now_ms - config.message_timestamp_before_max_ms
    latest = now_ms + config.message_timestamp_after_max_ms
    for record in records:
        if not earliest <= record.timestamp_ms <= latest:
            raise InvalidArgumentError(
                f"timestamp {record.timestamp_ms} is not from {earliest} to {latest}, as the topic asks "
                "(message.timestamp.before.max.ms, message.timestamp.after.max.ms)",
                hint="timestamps are in milliseconds since 1970",
            )


def _copy_record(record: RecordLike, index: int) -> NewRecord:
    try:
        match record:
            case NewRecord():
                headers = tuple((_check_name(name), _copy_nullable(value)) for name, value in record.headers)
                timestamp_ms = _check_timestamp(record.timestamp_ms)
                return NewRecord(_copy_nullable(record.value), _copy_nullable(record.key), headers, timestamp_ms)
            case bytes() | bytearray() | memoryview() | str():
                return NewRecord(_copy(record))
            case tuple((key, value)):
                return NewRecord(_copy_nullable(value), _copy_nullable(key))
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"record {index} is not a record: {error}") from error
    raise InvalidArgumentError(
        f"record {index} is a {type(record).__name__}",
        hint="a record is a NewRecord, a value of bytes or str, or a pair of a key and a value",
    )


def _copy_nullable(content: object) -> bytes | None:
    return None if content is None else _copy(content)


def _copy(content: object) -> bytes:
    if isinstance(content, str):
        return content.encode()
    if isinstance(content, bytes | bytearray | memoryview):
        return bytes(content)
    raise TypeError(f"a {type(content).__name__} is neither bytes nor str")


def _check_name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"the name of a header is a str, not a {type(name).__name__}")
    name.encode()
    return name


def _check_timestamp(timestamp_ms: object) -> TimestampMs:
    if not isinstance(timestamp_ms, int) or not NO_TIMESTAMP <= timestamp_ms <= _TIMESTAMP_MS_MAX:
        raise TypeError(f"timestamp_ms {timestamp_ms!r} is not a time in milliseconds since 1970")
    return TimestampMs(timestamp_ms)
