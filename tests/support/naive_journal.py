"""A journal as simple as can be: its actions one by one, in the order of the log, each once."""

from dataclasses import dataclass, field

from exactlog.core.journal.actions import Append, Delete, Mark, Purge
from exactlog.core.journal.event_payload_format import decode_payload
from exactlog.core.journal.expiry import expiry_of
from exactlog.core.journal.keys import record_id_of
from exactlog.core.model.ids import TopicPartition


@dataclass
class NaiveJournal:
    """Where a journal stands, and its events by number, each with the offset of its append."""

    last: int = 0
    deleted: int = 0
    is_reset: bool = False
    life: object = None  # None: there is no journal
    offset: int = -1
    expiry: object = None
    events: dict[int, int] = field(default_factory=dict)

    @property
    def seen(self):
        """What can be seen of it in a store."""
        if self.life is None:
            return None
        return self.last, self.deleted or None, self.is_reset, self.life, self.offset, self.expiry


def journal_after(records):
    """A journal after these actions of it."""
    journal = NaiveJournal()
    for record in records:
        if isinstance(record.action, Mark) or not is_expected(journal, record.action.expect):
            continue
        if isinstance(record.action, Purge):
            journal = NaiveJournal()
            continue
        begins = record_id_of(TopicPartition(record.key.topic, record.place.partition), record.offset)
        match record.action:
            case Append() as append:
                append_to(journal, append, record, begins)
            case Delete(to=to):
                delete_from(journal, to, begins)
        journal.offset = record.offset
    return journal


def append_to(journal, append, record, begins):
    is_new = journal.life is None
    if is_new or journal.is_reset:
        journal.life = begins if is_new else journal.life
        journal.last = journal.deleted = append.range.first - 1
        journal.is_reset = False
    payload = decode_payload(append.payload_type, append.payload)
    for event in payload.events:
        if event.seq_nr > journal.last:
            journal.events[event.seq_nr] = record.offset
    journal.last = max(journal.last, append.range.last)
    journal.expiry = expiry_of(payload.expire_after, timestamp_ms=record.timestamp_ms)


def delete_from(journal, to, begins):
    if journal.life is None:
        journal.life, journal.is_reset = begins, True
    if journal.is_reset:
        journal.last = journal.deleted = max(journal.last, to)
    journal.deleted = max(journal.deleted, min(to, journal.last))
    journal.events = {number: offset for number, offset in journal.events.items() if number > journal.deleted}


def is_expected(journal, expect):
    if journal.life is None:
        return not (expect.exists or expect.seq_nr or expect.record_id)
    return (
        expect.exists is not False
        and expect.seq_nr in {None, journal.last}
        and expect.record_id in {None, journal.life}
    )
