"""Making actions of what a writer asks for, by what it knows of the journal."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from exactlog.core.journal.actions import Append, Delete, Purge
from exactlog.core.journal.errors import JournalInputError
from exactlog.core.journal.event_payload_format import AppendPayload, encode_payload
from exactlog.core.journal.events import NO_HEADERS, Event, RecordMetadata
from exactlog.core.journal.expectation import ANY, Expectation
from exactlog.core.journal.keys import SEQ_NR_MAX, SeqNr, SeqRange, check_seq_nr
from exactlog.core.journal.payload import Payload
from exactlog.core.journal.rows import DueJournal
from exactlog.core.journal.state import JournalState


class Writer(Struct, frozen=True):
    """Who writes, as actions say it: the name of a host, the version of a library."""

    origin: str | None = None
    version: str | None = None


ANONYMOUS = Writer()


class NewEvent(Struct, frozen=True):
    """An event that is to be written.

    Attributes:
        payload: what it carries; None: nothing.
        tags: what it can be found by.
        seq_nr: its number, where the writer wants to leave a gap; None: the next one.
        event_id: the writer's own id of it, by which it is known again when the append is repeated.
    """

    payload: Payload | None = None
    tags: frozenset[str] = frozenset()
    seq_nr: int | None = None
    event_id: str | None = None


def new_append(
    events: Sequence[NewEvent],
    *,
    last_seq_nr: int,
    expect: Expectation = ANY,
    metadata: RecordMetadata = RecordMetadata(),  # noqa: B008  frozen
    headers: Mapping[str, str] = NO_HEADERS,
    writer: Writer = ANONYMOUS,
) -> Append:
    """The append of these events behind the last number of a journal; 0: it has none.

    Raises:
        JournalInputError: there are no events, a number is not above the one before, some events have an id and some
            have none, or one of them cannot be written. Nothing is written then; other appends are not touched.
    """
    if not events:
        raise JournalInputError("an append has one event at least", hint="leave the call out when there is nothing")
    numbered = _numbered(events, last_seq_nr)
    payload = AppendPayload(numbered, metadata.payload_data, metadata.expire_after)
    payload_type, value = encode_payload(payload)
    return Append(
        range=SeqRange(numbered[0].seq_nr, numbered[-1].seq_nr),
        payload_type=payload_type,
        payload=value,
        origin=writer.origin,
        version=writer.version,
        header_data=metadata.header_data,
        headers=headers,
        event_ids=_ids(events),
        expect=expect,
    )


def new_delete(to: int, *, state: JournalState | None, writer: Writer = ANONYMOUS) -> Delete | None:
    """The delete of a journal's events up to a number, of those that there are; None: there is no journal to delete of.

    Raises:
        JournalInputError: the number is below 1.
    """
    check_seq_nr(to, what="the number to delete to")
    if state is None:
        return None
    return Delete(to=min(to, state.seq_nr), origin=writer.origin, version=writer.version)


def new_purge_of_due(due: DueJournal, *, writer: Writer = ANONYMOUS) -> Purge:
    """The purge of a journal whose time is over, as it stood when that was seen.

    An append that comes into the log before this purge wins: the purge then finds another last number and does nothing.
    """
    expect = Expectation(exists=True, seq_nr=SeqNr(due.seq_nr), record_id=due.record_id)
    return Purge(expect=expect, origin=writer.origin, version=writer.version)


def _numbered(events: Sequence[NewEvent], last_seq_nr: int) -> tuple[Event, ...]:
    numbered = []
    for event in events:
        seq_nr = last_seq_nr + 1 if event.seq_nr is None else check_seq_nr(event.seq_nr)
        if seq_nr <= last_seq_nr:
            raise JournalInputError(
                f"an event has number {seq_nr}, the one before it {last_seq_nr}", hint="leave the numbers out"
            )
        if seq_nr > SEQ_NR_MAX:
            raise JournalInputError(f"the journal has come to its last number, {SEQ_NR_MAX}", hint="purge it")
        numbered.append(Event(SeqNr(seq_nr), event.payload, event.tags))
        last_seq_nr = seq_nr
    return tuple(numbered)


def _ids(events: Sequence[NewEvent]) -> tuple[str, ...]:
    ids = tuple(event.event_id for event in events if event.event_id is not None)
    if len(ids) not in {0, len(events)}:
        raise JournalInputError(f"{len(ids)} of {len(events)} events have an id", hint="give all of them one, or none")
    if len(set(ids)) != len(ids):
        raise JournalInputError("two events of one append have the same id", hint="an id names one event")
    return ids
