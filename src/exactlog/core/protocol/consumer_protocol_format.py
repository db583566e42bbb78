"""What members of a consumer group tell each other through the coordinator, to which it is opaque bytes.

Each blob begins with its version; then follow, in the types of the protocol (never compact):

    subscription    version, from         assignment    version, from
    version         int16                 version       int16
    topics          [string]              partitions    [topic string, partitions [int32]]
    user_data       bytes or null         user_data     bytes or null
    owned           1  [topic string, partitions [int32]]
    generation_id   2  int32
    rack_id         3  string or null

Versions 0 to 3; later ones may only add fields at the end, so a reader takes a higher version for the highest that it
knows. Written is version 1, which every client of today reads: what stands behind it only serves assignors that keep
partitions where they are.

Source: Apache Kafka's ConsumerProtocol (KIP-429, KIP-792, KIP-881).
"""

import struct
from collections import defaultdict
from collections.abc import Iterable
from typing import Annotated, Final, TypeVar

import msgspec

from exactlog.core.codec.message_codec import decode, encode_bytes
from exactlog.core.codec.message_schema import Message, Structure, versions_of
from exactlog.core.codec.wire_types import Bytes, Field, Int32, String
from exactlog.core.model.errors import DecodeError
from exactlog.core.model.ids import TopicPartition

PROTOCOL_TYPE: Final = "consumer"
"""The protocol type of groups whose members speak so."""

WRITTEN_VERSION: Final = 1

_VERSION: Final = struct.Struct(">h")


class _PartitionsOfTopic(Structure):
    """Some partitions of a topic."""

    topic: String = ""
    partitions: tuple[Int32, ...] = ()


class _SubscriptionBeginning(Message):
    """What every version of a subscription begins with."""

    versions = "0"
    flexible = "none"

    topics: tuple[String, ...] = ()


class _SubscriptionMessage(Message):
    """What stands behind the version of a subscription."""

    versions = "0-3"
    flexible = "none"

    topics: tuple[String, ...] = ()
    user_data: Bytes | None = None
    owned_partitions: Annotated[tuple[_PartitionsOfTopic, ...], Field("1+", ignorable=True)] = ()
    generation_id: Annotated[Int32, Field("2+", ignorable=True)] = -1
    rack_id: Annotated[String | None, Field("3+", ignorable=True)] = None


class _AssignmentMessage(Message):
    """What stands behind the version of an assignment."""

    versions = "0-3"
    flexible = "none"

    assigned_partitions: tuple[_PartitionsOfTopic, ...] = ()
    user_data: Bytes | None = None


class Subscription(msgspec.Struct, frozen=True):
    """What a member wants, and has.

    Attributes:
        topics: that it wants to read.
        owned: the partitions it holds; None where its version does not tell.
    """

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] | None = None


_AnyMessage = TypeVar("_AnyMessage", bound=Message)


def encode_subscription(topics: Iterable[str]) -> bytes:
    """The metadata with which a member that holds no partitions joins a group."""
    return _VERSION.pack(WRITTEN_VERSION) + encode_bytes(_SubscriptionMessage(topics=tuple(topics)), WRITTEN_VERSION)


def decode_subscription(metadata: bytes) -> Subscription:
    """What the metadata of a member says, of whatever version.

    Raises:
        DecodeError: these are not the bytes of a subscription.
    """
    message, version = _decode(_SubscriptionMessage, metadata, "subscription")
    return Subscription(message.topics, None if version < 1 else _flatten(message.owned_partitions))


def decode_subscribed_topics(metadata: bytes) -> frozenset[str]:
    """The topics that the metadata of a member names, of whatever version: all that a coordinator looks at.

    Raises:
        DecodeError: these are not the bytes of a subscription.
    """
    if len(metadata) < _VERSION.size or _VERSION.unpack_from(metadata)[0] < 0:
        raise DecodeError(f"no subscription of the consumer protocol: {metadata[: _VERSION.size].hex() or 'no bytes'}")
    return frozenset(decode(_SubscriptionBeginning, 0, metadata, _VERSION.size).topics)


def encode_assignment(places: Iterable[TopicPartition]) -> bytes:
    """What a leader gives a member: these partitions."""
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for place in places:
        by_topic[place.topic].append(place.partition)
    assigned = tuple(_PartitionsOfTopic(topic=topic, partitions=tuple(found)) for topic, found in by_topic.items())
    message = _AssignmentMessage(assigned_partitions=assigned)
    return _VERSION.pack(WRITTEN_VERSION) + encode_bytes(message, WRITTEN_VERSION)


def decode_assignment(assignment: bytes) -> tuple[TopicPartition, ...]:
    """The partitions that a member was given; none in no bytes, which a group without an assignment has.

    Raises:
        DecodeError: these are not the bytes of an assignment.
    """
    if not assignment:
        return ()
    message, _ = _decode(_AssignmentMessage, assignment, "assignment")
    return _flatten(message.assigned_partitions)


def _decode(kind: type[_AnyMessage], blob: bytes, what: str) -> tuple[_AnyMessage, int]:
    version = _VERSION.unpack_from(blob)[0] if len(blob) >= _VERSION.size else -1
    if version < 0:
        raise DecodeError(f"no {what} of the consumer protocol: {blob[: _VERSION.size].hex() or 'no bytes'}")
    known = min(version, versions_of(kind).highest)
    return decode(kind, known, blob, _VERSION.size), version


def _flatten(by_topic: Iterable[_PartitionsOfTopic]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(found.topic, partition) for found in by_topic for partition in found.partitions)
