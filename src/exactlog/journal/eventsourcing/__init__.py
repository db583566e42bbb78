"""A persistence module for the library `eventsourcing` (9.5): applications keep their events as journals on a log.

    PERSISTENCE_MODULE=exactlog.journal.eventsourcing
    EXACTLOG_URL=kafka://127.0.0.1:9092
    EXACTLOG_STORE_URL=sqlite:///journals.db

It needs the extra `exactlog[eventsourcing]`. The library looks for the one factory that stands here.
"""

from exactlog.journal.eventsourcing.factory import JournalFactory as Factory
from exactlog.journal.eventsourcing.recorded_topic import RecordedTopic
from exactlog.journal.eventsourcing.recorders import (
    JournalAggregateRecorder,
    JournalApplicationRecorder,
    JournalProcessRecorder,
    JournalTrackingRecorder,
)
from exactlog.journal.eventsourcing.subscription import JournalSubscription

__all__ = [
    "Factory",
    "JournalAggregateRecorder",
    "JournalApplicationRecorder",
    "JournalProcessRecorder",
    "JournalSubscription",
    "JournalTrackingRecorder",
    "RecordedTopic",
]
