"""Key and value of a transactional id, as records of `__transaction_state` (Kafka's own schemas).

    key, version 0                    value, versions 0 and 1
    type    field                     type    field                          versions
    int16   version                   int16   version
    string  transactional_id          int64   producer_id
                                      int16   producer_epoch
                                      int32   transaction_timeout_ms
                                      int8    transaction_status
                                      array   transaction_partitions         nullable
                                      int64   transaction_last_update_timestamp_ms
                                      int64   transaction_start_timestamp_ms
                                      int64   previous_producer_id           1+, tag 0
                                      int64   next_producer_id               1+, tag 1
                                      int16   client_transaction_version     1+, tag 2
                                      int16   next_producer_epoch            1+, tag 3
                                      int16   last_producer_epoch            1+, tag 10000

    partitions of one topic
    string  topic
    array   partition_ids             int32

Version 1 of the value is flexible (KIP-482); it is written from `transaction.version` 1 on, which is always. Tag 3 is
of two-phase commit (KIP-939) and never set here. Tag 10000 is our own: Kafka forgets at a restart which epoch may be
retried, and answers such a retry PRODUCER_FENCED. Unknown tags are passed over, as by every reader of these schemas.
"""

import struct
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Annotated, Final

from exactlog.core.codec.message_codec import decode
from exactlog.core.codec.message_schema import Message, Structure
from exactlog.core.codec.varint import encode_uvarint
from exactlog.core.codec.wire_types import Field, Int8, Int16, Int32, Int64, String
from exactlog.core.model.errors import DecodeError
from exactlog.core.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId, TopicPartition
from exactlog.core.transaction.entry import TransactionEntry
from exactlog.core.transaction.states import TransactionState

KEY_VERSION: Final = 0
_VALUE_VERSION: Final = 1
_VERSION: Final = struct.Struct(">h")
_STATES: Final = frozenset(TransactionState) - {TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE}


class TransactionLogKey(Message):
    """Which transactional id."""

    versions = "0"
    flexible = "none"

    transactional_id: String = ""


class TransactionLogPartitions(Structure):
    """Partitions of one topic."""

    topic: String = ""
    partition_ids: tuple[Int32, ...] = ()


class TransactionLogValue(Message):
    """Where it stands."""

    versions = "0-1"
    flexible = "1+"

    producer_id: Int64 = 0
    previous_producer_id: Annotated[Int64, Field("1+", tag=0, ignorable=True)] = -1
    next_producer_id: Annotated[Int64, Field("1+", tag=1, ignorable=True)] = -1
    producer_epoch: Int16 = 0
    transaction_timeout_ms: Int32 = 0
    transaction_status: Int8 = 0
    transaction_partitions: tuple[TransactionLogPartitions, ...] | None = None
    transaction_last_update_timestamp_ms: Int64 = 0
    transaction_start_timestamp_ms: Int64 = 0
    client_transaction_version: Annotated[Int16, Field("1+", tag=2, ignorable=True)] = 0
    next_producer_epoch: Annotated[Int16, Field("1+", tag=3, ignorable=True)] = -1
    last_producer_epoch: Annotated[Int16, Field("1+", tag=10_000, ignorable=True)] = -1


_KEY_HEAD: Final = struct.Struct(">hH")
_VALUE_HEAD: Final = struct.Struct(">hqhib")
_TIMES_AND_TAG_COUNT: Final = struct.Struct(">qqB")
_NO_PARTITIONS: Final = b"\x00"
_INT64_TAG: Final = struct.Struct(">BBq")
_INT16_TAG: Final = struct.Struct(">BBh")
_LAST_EPOCH_TAG: Final = struct.Struct(">3sh")
_LAST_EPOCH_PREFIX: Final = encode_uvarint(10_000) + b"\x02"
_USUAL_END: Final = struct.Struct(">qqBBBqBBh3sh")
"""Times, and the tags 0, 2 and 10000: nearly every value ends so."""
_KEYS_CACHED_MAX: Final = 4_096
_SETS_CACHED_MAX: Final = 1_024
_PARTITIONS_CACHED_MAX: Final = 16  # in one set: at most about 5 KB with the longest names, 5 MB in all


@lru_cache(maxsize=_KEYS_CACHED_MAX)
def encode_transaction_key(transactional_id: str) -> bytes:
    """The bytes of a key, as those of `TransactionLogKey`; kept, since it is written thrice in a transaction."""
    name = transactional_id.encode()
    return _KEY_HEAD.pack(KEY_VERSION, len(name)) + name


def decode_transaction_key(key: bytes) -> str:
    """The transactional id that stands behind the version of a key.

    Raises:
        DecodeError: the bytes are not such a key.
    """
    return decode(TransactionLogKey, KEY_VERSION, key, _VERSION.size).transactional_id


def encode_transaction_value(entry: TransactionEntry) -> bytes:
    """The bytes of a value, as those of `TransactionLogValue` in version 1; written out as well."""
    head = _VALUE_HEAD.pack(_VALUE_VERSION, entry.producer_id, entry.producer_epoch, entry.timeout_ms, entry.state)
    partitions = entry.partitions
    if entry.state is TransactionState.EMPTY:
        encoded_partitions = _NO_PARTITIONS
    elif len(partitions) <= _PARTITIONS_CACHED_MAX:
        encoded_partitions = _encode_small_set(partitions)
    else:
        encoded_partitions = _encode_set(partitions)
    has_previous = entry.previous_producer_id != NO_PRODUCER_ID
    has_next = entry.next_producer_id != NO_PRODUCER_ID
    has_last_epoch = entry.last_producer_epoch != NO_PRODUCER_EPOCH
    version = entry.client_transaction_version
    if has_previous and version and has_last_epoch and not has_next:
        times, tag_count = (entry.last_update_ms, entry.start_time_ms), 3
        tags = (0, 8, entry.previous_producer_id, 2, 2, version, _LAST_EPOCH_PREFIX, entry.last_producer_epoch)
        return head + encoded_partitions + _USUAL_END.pack(*times, tag_count, *tags)
    return head + encoded_partitions + _encode_end(entry)


def _encode_end(entry: TransactionEntry) -> bytes:
    """Times and tags, whichever there are."""
    tags, tag_count = b"", 0
    if entry.previous_producer_id != NO_PRODUCER_ID:
        tags += _INT64_TAG.pack(0, 8, entry.previous_producer_id)
        tag_count += 1
    if entry.next_producer_id != NO_PRODUCER_ID:
        tags += _INT64_TAG.pack(1, 8, entry.next_producer_id)
        tag_count += 1
    if entry.client_transaction_version:
        tags += _INT16_TAG.pack(2, 2, entry.client_transaction_version)
        tag_count += 1
    if entry.last_producer_epoch != NO_PRODUCER_EPOCH:
        tags += _LAST_EPOCH_TAG.pack(_LAST_EPOCH_PREFIX, entry.last_producer_epoch)
        tag_count += 1
    return _TIMES_AND_TAG_COUNT.pack(entry.last_update_ms, entry.start_time_ms, tag_count) + tags


def _encode_set(partitions: tuple[TopicPartition, ...]) -> bytes:
    by_topic = _by_topic(partitions)
    parts = [encode_uvarint(len(by_topic) + 1)]
    for of_topic in by_topic:
        name, ids = of_topic.topic.encode(), of_topic.partition_ids
        parts += (encode_uvarint(len(name) + 1), name, encode_uvarint(len(ids) + 1), struct.pack(f">{len(ids)}i", *ids))
        parts.append(b"\x00")
    return b"".join(parts)


_encode_small_set = lru_cache(maxsize=_SETS_CACHED_MAX)(_encode_set)
"""Transactions of one program nearly always have the same partitions."""


def decode_transaction_value(transactional_id: str, value: bytes) -> TransactionEntry:
    """What a value says, of any version.

    Raises:
        DecodeError: the bytes are not such a value.
    """
    if len(value) < _VERSION.size:
        raise DecodeError(f"the value of a transactional id begins with its version; it has {len(value)} bytes")
    decoded = decode(TransactionLogValue, _VERSION.unpack_from(value)[0], value, _VERSION.size)
    if decoded.transaction_status not in _STATES:
        raise DecodeError(f"transactional id {transactional_id}: no such state: {decoded.transaction_status}")
    partitions = {
        TopicPartition(of_topic.topic, partition)
        for of_topic in decoded.transaction_partitions or ()
        for partition in of_topic.partition_ids
    }
    return TransactionEntry(
        transactional_id=transactional_id,
        producer_id=ProducerId(decoded.producer_id),
        producer_epoch=ProducerEpoch(decoded.producer_epoch),
        previous_producer_id=ProducerId(decoded.previous_producer_id),
        next_producer_id=ProducerId(decoded.next_producer_id),
        last_producer_epoch=ProducerEpoch(decoded.last_producer_epoch),
        timeout_ms=decoded.transaction_timeout_ms,
        state=TransactionState(decoded.transaction_status),
        partitions=tuple(sorted(partitions)),
        start_time_ms=decoded.transaction_start_timestamp_ms,
        last_update_ms=decoded.transaction_last_update_timestamp_ms,
        client_transaction_version=decoded.client_transaction_version,
    )


def _by_topic(partitions: tuple[TopicPartition, ...]) -> tuple[TransactionLogPartitions, ...]:
    return tuple(
        TransactionLogPartitions(topic=topic, partition_ids=tuple(partition for _, partition in of_topic))
        for topic, of_topic in groupby(partitions, key=itemgetter(0))
    )
