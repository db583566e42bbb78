"""What can be read in the metadata that members of a consumer group send with JoinGroup: the topics they subscribe to.

To the coordinator the metadata of a protocol is bytes. Of the protocol type "consumer" it reads the beginning, which
every version has: so offsets of topics that are being read are neither deleted nor expired.
"""

import struct
from typing import Final

from exactlog.core.codec.message_codec import decode
from exactlog.core.codec.message_schema import Message
from exactlog.core.codec.wire_types import String
from exactlog.core.model.errors import DecodeError

PROTOCOL_TYPE: Final = "consumer"
_VERSION: Final = struct.Struct(">h")


class ConsumerProtocolSubscription(Message):
    """The beginning of a subscription; later versions add user data, owned partitions, a generation and a rack."""

    versions = "0"
    flexible = "none"

    topics: tuple[String, ...] = ()


def decode_subscribed_topics(metadata: bytes) -> frozenset[str]:
    """The topics that a member subscribes to.

    Raises:
        DecodeError: these are not the bytes of a subscription.
    """
    if len(metadata) < _VERSION.size or _VERSION.unpack_from(metadata)[0] < 0:
        raise DecodeError(f"no subscription of the consumer protocol: {metadata[: _VERSION.size].hex() or 'no bytes'}")
    return frozenset(decode(ConsumerProtocolSubscription, 0, metadata, _VERSION.size).topics)
