"""An event-sourcing journal on the log, with a replicated store (seed 003): public API.

    async with Journals.open("kafka://127.0.0.1:9092", store="sqlite:///journals.db") as journals:
        journal = journals["orders", "order-7"]
        await journal.append([{"placed": 3}], NO_STREAM)
        async for record in journal.read():
            ...

Names are imported when they are first asked for.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from exactlog.core.journal.conflict import Conflict
    from exactlog.core.journal.errors import (
        Fenced,
        ForkedJournalError,
        HeadLost,
        JournalDeleted,
        JournalError,
        JournalInputError,
        NotYetReplicated,
        Repartitioned,
        Retriable,
    )
    from exactlog.core.journal.expectation import ANY, EXISTS, NO_STREAM, Expectation
    from exactlog.core.journal.judgement import Appended
    from exactlog.journal.event_record import Envelope, EventRecord, Snapshot
    from exactlog.journal.journal import Journal
    from exactlog.journal.journals import Journals
    from exactlog.journal.replicator import Replicator, ReplicatorSettings
    from exactlog.journal.settings import JournalSettings, ReadBarrier
    from exactlog.journal.subscription import SubscribedEvent
    from exactlog.journal.typed_events import EventCodec, TypedEvents

__all__ = [
    "ANY",
    "EXISTS",
    "NO_STREAM",
    "Appended",
    "Conflict",
    "Envelope",
    "EventCodec",
    "EventRecord",
    "Expectation",
    "Fenced",
    "ForkedJournalError",
    "HeadLost",
    "Journal",
    "JournalDeleted",
    "JournalError",
    "JournalInputError",
    "JournalSettings",
    "Journals",
    "NotYetReplicated",
    "ReadBarrier",
    "Repartitioned",
    "Replicator",
    "ReplicatorSettings",
    "Retriable",
    "Snapshot",
    "SubscribedEvent",
    "TypedEvents",
]

_HOMES = {
    "exactlog.core.journal.conflict": ("Conflict",),
    "exactlog.core.journal.errors": (
        "Fenced",
        "ForkedJournalError",
        "HeadLost",
        "JournalDeleted",
        "JournalError",
        "JournalInputError",
        "NotYetReplicated",
        "Repartitioned",
        "Retriable",
    ),
    "exactlog.core.journal.expectation": ("ANY", "EXISTS", "NO_STREAM", "Expectation"),
    "exactlog.core.journal.judgement": ("Appended",),
    "exactlog.journal.event_record": ("Envelope", "EventRecord", "Snapshot"),
    "exactlog.journal.journal": ("Journal",),
    "exactlog.journal.journals": ("Journals",),
    "exactlog.journal.replicator": ("Replicator", "ReplicatorSettings"),
    "exactlog.journal.settings": ("JournalSettings", "ReadBarrier"),
    "exactlog.journal.subscription": ("SubscribedEvent",),
    "exactlog.journal.typed_events": ("EventCodec", "TypedEvents"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415  only who asks for a name pays for it

    return getattr(import_module(_HOME_OF[name]), name)
