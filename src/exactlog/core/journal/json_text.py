"""JSON values that pass through as the text they were written in."""

from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from exactlog.core.journal.errors import JournalInputError

_validate: Final = msgspec.json.Decoder(msgspec.Raw).decode


def raw_json(text: str, *, what: str) -> msgspec.Raw:
    """The text, to be embedded as it is.

    Raises:
        JournalInputError: it is not one JSON value; `what` names it.
    """
    try:
        content = text.encode()
        _validate(content)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise JournalInputError(f"{what} is not JSON: {error}") from None
    return msgspec.Raw(content)


def text_of(raw: msgspec.Raw) -> str:
    """The text of an embedded value."""
    return bytes(raw).decode()


def data_of(raw: msgspec.Raw | UnsetType) -> str | None:
    """The text of a member that may be left out; where it says null it says nothing, as for kafka-journal."""
    text = None if raw is UNSET else text_of(raw)
    return None if text == "null" else text


def raw_data(text: str | None) -> msgspec.Raw | UnsetType:
    """A member that is left out where it says nothing. Raises `JournalInputError` where the text is not JSON."""
    return UNSET if text is None else raw_json(text, what="the metadata")
