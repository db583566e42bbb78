"""Actions: what records of a journal's topic say. kafka-journal's four, and an expectation that each may carry."""

from collections.abc import Mapping
from enum import Enum
from typing import TypeAlias

from msgspec import Struct

from exactlog.core.journal.events import NO_HEADERS
from exactlog.core.journal.expectation import ANY, Expectation
from exactlog.core.journal.keys import JournalKey, Place, SeqRange


class PayloadType(Enum):
    """In which form the value of an append is."""

    JSON = "json"
    BINARY = "binary"


class Append(Struct, frozen=True, kw_only=True):
    """Events of one journal, saved together or not at all.

    Attributes:
        range: the numbers of the first and the last one.
        payload_type: the form of `payload`.
        payload: the record's value, not looked into yet: who only wants to know where a journal stands never does.
        header_data: what the writer says of the append, a JSON value as text.
        headers: those of the record, without the action header.
        event_ids: the writer's own ids of the events, one for each, or none at all.
    """

    range: SeqRange
    payload_type: PayloadType
    payload: bytes
    origin: str | None = None
    version: str | None = None
    header_data: str | None = None
    headers: Mapping[str, str] = NO_HEADERS
    event_ids: tuple[str, ...] = ()
    expect: Expectation = ANY


class Mark(Struct, frozen=True, kw_only=True):
    """A place in the log that a reader knows again: it need not read further than its own mark."""

    id: str
    origin: str | None = None
    version: str | None = None


class Delete(Struct, frozen=True, kw_only=True):
    """The events up to `to` that stand before it are to go; later ones stay."""

    to: int
    origin: str | None = None
    version: str | None = None
    expect: Expectation = ANY


class Purge(Struct, frozen=True, kw_only=True):
    """All of the journal is to go, and no trace to stay: the next append begins a new one."""

    origin: str | None = None
    version: str | None = None
    expect: Expectation = ANY


Action: TypeAlias = Append | Mark | Delete | Purge


class ActionRecord(Struct, frozen=True):
    """An action at its place in the log."""

    key: JournalKey
    place: Place
    timestamp_ms: int
    action: Action

    @property
    def offset(self) -> int:
        """Its place in its partition."""
        return self.place.offset
