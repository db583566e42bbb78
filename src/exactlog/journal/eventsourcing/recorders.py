"""Recorders of the library `eventsourcing` on journals.

What is inserted together is one transaction of the log: the events of the aggregates, the same events in the sequence
of the application, and the tracking record. Versions of an aggregate rise: one that is not behind its last is refused.
"""

import logging
from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, Final
from uuid import UUID

from eventsourcing.persistence import (
    AggregateRecorder,
    ApplicationRecorder,
    DataError,
    IntegrityError,
    Notification,
    ProcessRecorder,
    Recorder,
    StoredEvent,
    Subscription,
    Tracking,
    TrackingRecorder,
)

from exactlog.core.model.errors import DecodeError, ExactlogError
from exactlog.journal.event_record import Envelope, EventRecord
from exactlog.journal.eventsourcing.notification_format import decode_notification, encode_notification
from exactlog.journal.eventsourcing.persistence_errors import persistence_errors
from exactlog.journal.eventsourcing.recorded_topic import EVENTS, NOTIFICATIONS, RESERVED, RecordedTopic
from exactlog.journal.eventsourcing.subscription import JournalSubscription
from exactlog.journal.transaction import PendingAppend
from exactlog.journal.waiting import WaitingTransaction

_log = logging.getLogger(__name__)

_APPEND_BYTES_MAX: Final = 512 * 1024
"""Of states, in one record of the log: brokers take records of 1 MiB."""

_AGGREGATES_REMEMBERED_MAX: Final = 10_000
_LOOK_BACK_GROWTH: Final = 16
_TRACKINGS_KEPT_MAX: Final = 1_000


class _JournalRecorder(Recorder):
    """What all recorders have.

    Attributes:
        recorded: the topic of the application.
    """

    def __init__(self, recorded: RecordedTopic) -> None:
        self.recorded = recorded


class JournalAggregateRecorder(_JournalRecorder, AggregateRecorder):
    """Records events of aggregates, each in a journal of its own.

    Args:
        recorded: the topic of the application.
        purpose: "events"; recorders of other purposes ("snapshots") keep what they record apart.
    """

    def __init__(self, recorded: RecordedTopic, *, purpose: str = EVENTS) -> None:
        super().__init__(recorded)
        self._prefix = "" if purpose == EVENTS else f"{RESERVED}{purpose}/"
        self._turn = Lock()
        self._last_numbers: OrderedDict[str, int] = OrderedDict()

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:  # noqa: ANN401
        """Record events: all of them, or none.

        Raises:
            IntegrityError: a version was recorded before, or a later one of its aggregate was.
            PersistenceError: as `persistence_errors`.
        """
        with self._recording(stored_events) as transaction:
            self._record(transaction, stored_events, **kwargs)
        return None

    def select_events(
        self,
        originator_id: UUID | str,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[StoredEvent]:
        """The events of an aggregate, as they are in the log now."""
        first = 1 if gt is None else max(1, gt + 2)
        last = None if lte is None else lte + 1
        if (last is not None and last < first) or (limit is not None and limit < 1):
            return []
        key_id = self._key_id(originator_id)
        if desc:
            records = self._last_of(key_id, first=first, last=last, limit=limit)
        else:
            records = self.recorded.events(key_id, first=first, last=last, limit=limit)
        with persistence_errors():
            return [_stored_event(originator_id, record) for record in records]

    @contextmanager
    def _recording(self, stored_events: Sequence[StoredEvent]) -> Iterator[WaitingTransaction]:
        """The transaction of an insert.

        A program's transactions come one after the other. So who waits here can be told, when its turn has come, that
        somebody else of this program was quicker, at the price of a look and not of a transaction.
        """
        firsts: dict[str, int] = {}
        lasts: dict[str, int] = {}
        for event in stored_events:
            key_id, number = self._key_id(event.originator_id), event.originator_version + 1
            firsts[key_id] = min(number, firsts.get(key_id, number))
            lasts[key_id] = max(number, lasts.get(key_id, number))
        with self._turn:
            for key_id, first in firsts.items():
                if self._last_numbers.get(key_id, 0) >= first:
                    self._refuse_late(key_id, first)
            with self.recorded.transaction() as transaction:
                yield transaction
            for key_id, last in lasts.items():
                self._last_numbers[key_id] = last
                self._last_numbers.move_to_end(key_id)
            while len(self._last_numbers) > _AGGREGATES_REMEMBERED_MAX:
                self._last_numbers.popitem(last=False)

    def _refuse_late(self, key_id: str, first: int) -> None:
        last = self.recorded.last_number(key_id)
        if last is not None and last >= first:
            raise IntegrityError(f"{key_id} has come to version {last - 1}: {first - 1} cannot be recorded any more")

    def _record(self, transaction: WaitingTransaction, stored_events: Sequence[StoredEvent], **_: Any) -> None:  # noqa: ANN401
        """What happens in the transaction of an insert."""
        by_id: defaultdict[str, list[StoredEvent]] = defaultdict(list)
        for event in stored_events:
            by_id[self._key_id(event.originator_id)].append(event)
        for key_id, events in by_id.items():
            events.sort(key=lambda event: event.originator_version)
            versions = [event.originator_version for event in events]
            if len(set(versions)) < len(versions):
                raise IntegrityError(f"two of the events to be recorded have one version, of {key_id}: {versions}")
            journal = self.recorded.journal(key_id)
            for part in _parts(events):
                envelopes = [
                    Envelope(event.state, frozenset({event.topic}), event.originator_version + 1) for event in part
                ]
                transaction.append(journal, envelopes)

    def _key_id(self, originator_id: UUID | str) -> str:
        key_id = str(originator_id)
        if key_id.startswith(RESERVED):
            raise DataError(f"the id of an aggregate does not begin with {RESERVED!r}: {key_id}")
        return self._prefix + key_id

    def _last_of(self, key_id: str, *, first: int, last: int | None, limit: int | None) -> list[EventRecord]:
        """The last so many of a range, descending. Numbers may have gaps, so it looks back further and further."""
        end = self.recorded.last_number(key_id)
        if end is None:
            return []
        upper = end if last is None else min(last, end)
        width = end if limit is None else limit
        found: list[EventRecord] = []
        while upper >= first and (limit is None or len(found) < limit):
            lower = max(first, upper - width + 1)
            found.extend(reversed(self.recorded.events(key_id, first=lower, last=upper)))
            upper = lower - 1
            width *= _LOOK_BACK_GROWTH
        return found[:limit]


class JournalApplicationRecorder(JournalAggregateRecorder, ApplicationRecorder):
    """Records events of aggregates, and all of them in the sequence of the application.

    Notification ids are 1, 2, 3, ... in the order of the transactions, without gaps; one is seen when its transaction
    is committed, and then all before it are.
    """

    def __init__(self, recorded: RecordedTopic) -> None:
        super().__init__(recorded)

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:  # noqa: ANN401
        """Record events, all of them or none; the answer is their notification ids. Raises as its base."""
        with self._recording(stored_events) as transaction:
            self._record(transaction, stored_events, **kwargs)
            pending = self._notify(transaction, stored_events)
        ids: list[int] = []
        for part, append in pending:
            assert append.appended is not None, "the transaction was committed"
            ids.extend(range(append.appended.seq_nr - len(part) + 1, append.appended.seq_nr + 1))
        return ids

    def select_notifications(
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
    ) -> Sequence[Notification]:
        """Events of the application in their sequence, as it is in the log now."""
        first = 1 if start is None else max(1, start if inclusive_of_start else start + 1)
        last = stop
        if not topics:
            last = first + limit - 1 if last is None else min(last, first + limit - 1)
        if limit < 1 or (last is not None and last < first):
            return []
        records = self.recorded.events(NOTIFICATIONS, first=first, last=last, limit=limit, tags=topics)
        with persistence_errors():
            return [_notification(record) for record in records]

    def max_notification_id(self) -> int | None:
        """The id of the last notification; None: there is none."""
        return self.recorded.last_number(NOTIFICATIONS)

    def subscribe(self, gt: int | None = None, topics: Sequence[str] = ()) -> Subscription[ApplicationRecorder]:
        """The notifications with greater ids, without an end: also those that other programs record."""
        return JournalSubscription(self, self.recorded, gt=gt, topics=topics)

    def _notify(
        self, transaction: WaitingTransaction, stored_events: Sequence[StoredEvent]
    ) -> list[tuple[Sequence[StoredEvent], PendingAppend]]:
        journal = self.recorded.journal(NOTIFICATIONS)
        return [
            (
                part,
                transaction.append(
                    journal,
                    [
                        Envelope(
                            encode_notification(event.originator_id, event.originator_version, event.state),
                            frozenset({event.topic}),
                        )
                        for event in part
                    ],
                ),
            )
            for part in _parts(stored_events)
        ]


class JournalTrackingRecorder(_JournalRecorder, TrackingRecorder):
    """Records how far the notifications of other applications were followed.

    A class of one's own that keeps a view puts what it keeps into the transaction of `tracked`.
    """

    def __init__(self, recorded: RecordedTopic) -> None:
        super().__init__(recorded)
        self._kept: defaultdict[str, int] = defaultdict(int)

    def insert_tracking(self, tracking: Tracking) -> None:
        """Record a position. Raises `IntegrityError` where it is not behind the last one of that application."""
        with self.tracked(tracking):
            pass

    @contextmanager
    def tracked(self, tracking: Tracking) -> Iterator[WaitingTransaction]:
        """A transaction in which a position is recorded, and whatever else is to count with it.

            with self.tracked(tracking) as transaction:
                transaction.append(self.recorded.journal("view"), [{"opened": 1}])

        Raises:
            IntegrityError: when the block ends: the position is not behind the last one of that application.
            PersistenceError: as `persistence_errors`.
        """
        with self.recorded.transaction() as transaction:
            self._track(transaction, tracking)
            yield transaction
        self._forget_before(tracking)

    def max_tracking_id(self, application_name: str) -> int | None:
        """The last position of an application; None: there is none."""
        number = self.recorded.last_number(_tracking_id(application_name))
        return None if number is None else number - 1

    def _track(self, transaction: WaitingTransaction, tracking: Tracking) -> None:
        journal = self.recorded.journal(_tracking_id(tracking.application_name))
        transaction.append(journal, [Envelope(None, seq_nr=tracking.notification_id + 1)])

    def _forget_before(self, tracking: Tracking) -> None:
        """Delete what is of no use any more, now and then. The position stands without it."""
        name = tracking.application_name
        self._kept[name] += 1
        if self._kept[name] < _TRACKINGS_KEPT_MAX:
            return
        self._kept[name] = 0
        try:
            self.recorded.journal(_tracking_id(name)).delete(max(1, tracking.notification_id))
        except ExactlogError as error:  # the tracking itself is committed
            _log.warning("older tracking records of %s stay for now: %s", name, error)


class JournalProcessRecorder(JournalTrackingRecorder, JournalApplicationRecorder, ProcessRecorder):
    """Records events with the position of what they come from: `insert_events(events, tracking=...)`, both or none."""

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:  # noqa: ANN401
        """As `JournalApplicationRecorder`; a keyword `tracking` is recorded in the same transaction."""
        ids = super().insert_events(stored_events, **kwargs)
        tracking: Tracking | None = kwargs.get("tracking")
        if tracking is not None:
            self._forget_before(tracking)
        return ids

    def _record(self, transaction: WaitingTransaction, stored_events: Sequence[StoredEvent], **kwargs: Any) -> None:  # noqa: ANN401
        super()._record(transaction, stored_events, **kwargs)
        tracking: Tracking | None = kwargs.get("tracking")
        if tracking is not None:
            self._track(transaction, tracking)


def _parts(events: Sequence[StoredEvent]) -> list[list[StoredEvent]]:
    """The events, cut where a record of the log would become too large."""
    parts: list[list[StoredEvent]] = []
    part_bytes = 0
    for event in events:
        event_bytes = len(event.state)
        if not parts or part_bytes + event_bytes > _APPEND_BYTES_MAX:
            parts.append([])
            part_bytes = 0
        parts[-1].append(event)
        part_bytes += event_bytes
    return parts


def _stored_event(originator_id: UUID | str, record: EventRecord) -> StoredEvent:
    if not isinstance(record.event, bytes) or len(record.tags) != 1:
        raise DecodeError(f"event {record.seq_nr} of {originator_id} was not written by a recorder")
    (topic,) = record.tags
    return StoredEvent(
        originator_id=originator_id, originator_version=record.seq_nr - 1, topic=topic, state=record.event
    )


def _notification(record: EventRecord) -> Notification:
    event = decode_notification(record.event)
    (topic,) = record.tags
    return Notification(
        id=record.seq_nr,
        originator_id=event.originator,
        originator_version=event.originator_version,
        topic=topic,
        state=event.state,
    )


def _tracking_id(application_name: str) -> str:
    return f"{RESERVED}tracking/{application_name}"
