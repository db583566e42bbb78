"""An event in the sequence of its application: the payload of event number N of the journal `$notifications`.

    MessagePack, an array of four
    str     originator_id        of the aggregate; a UUID in its usual form, with hyphens
    bool    is_uuid              whether the application knows it as a UUID
    int     originator_version   as the application counts them
    bin     state                as the application's mapper has made it

The event's number in the journal is its notification id, its one tag is its topic.
"""

from typing import Final
from uuid import UUID

import msgspec
from msgspec import Struct

from exactlog.core.model.errors import DecodeError


class NotifiedEvent(Struct, frozen=True, array_like=True):
    """What the payload says; the topic is beside it."""

    originator_id: str
    is_uuid: bool
    originator_version: int
    state: bytes

    @property
    def originator(self) -> UUID | str:
        """The id as the application knows it."""
        return UUID(self.originator_id) if self.is_uuid else self.originator_id


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(NotifiedEvent).decode


def encode_notification(originator_id: UUID | str, originator_version: int, state: bytes) -> bytes:
    """The payload of an event."""
    return _encode(NotifiedEvent(str(originator_id), isinstance(originator_id, UUID), originator_version, state))


def decode_notification(payload: object) -> NotifiedEvent:
    """The event of a payload.

    Raises:
        DecodeError: it is not as above.
    """
    try:
        if not isinstance(payload, bytes):
            raise DecodeError(f"a notification is bytes, not {type(payload).__name__}")
        found = _decode(payload)
        _ = found.originator
    except (msgspec.DecodeError, ValueError) as error:
        raise DecodeError(f"not the payload of a notification: {error}") from error
    return found
