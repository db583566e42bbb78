"""What an event carries: nothing, bytes, text or JSON."""

from typing import TypeAlias

import msgspec
from msgspec import Struct

from exactlog.core.journal.errors import JournalInputError


class BinaryPayload(Struct, frozen=True):
    """Bytes."""

    content: bytes


class TextPayload(Struct, frozen=True):
    """Text."""

    content: str


class JsonPayload(Struct, frozen=True):
    """A JSON value, as the text that was written: numbers keep their digits, objects the order of their keys."""

    content: str

    @classmethod
    def of(cls, value: object) -> "JsonPayload":
        """The value as compact JSON.

        Raises:
            JournalInputError: the value has no JSON form.
        """
        try:
            return cls(msgspec.json.encode(value).decode())
        except (TypeError, ValueError, OverflowError) as error:
            raise JournalInputError(f"this event has no JSON form: {error}", hint="pass text or bytes") from error

    def value(self) -> object:
        """What the text says."""
        return msgspec.json.decode(self.content)


Payload: TypeAlias = BinaryPayload | TextPayload | JsonPayload
