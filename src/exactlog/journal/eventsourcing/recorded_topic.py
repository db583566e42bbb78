"""One application's topic: the journals of its aggregates, of its sequence, and of what it has seen of others.

| journal | its events |
|---|---|
| the id of an aggregate | its events: version N is number N + 1, the topic is the tag, the state the payload |
| `$notifications` | all of them once more, in one sequence: the number is the notification id |
| `$tracking/NAME` | how far the application NAME was followed: notification N is number N + 1 |
| `$PURPOSE/ID` | what another recorder keeps of an aggregate, as `$snapshots/ID` |
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from typing import Final

from exactlog.journal.event_record import EventRecord
from exactlog.journal.eventsourcing.open_logs import LogShare, TopicUse
from exactlog.journal.eventsourcing.persistence_errors import persistence_errors
from exactlog.journal.waiting import WaitingJournal, WaitingTransaction

EVENTS: Final = "events"
"""The purpose of a recorder of the aggregates' own events."""

NOTIFICATIONS: Final = "$notifications"
RESERVED: Final = "$"
"""What ids of aggregates do not begin with."""


class RecordedTopic:
    """The topic of an application, for its recorders.

    Args:
        share: in the log.
        name: of the topic.
        use: how it is used.
    """

    def __init__(self, share: LogShare, name: str, use: TopicUse) -> None:
        self.name = name
        self._share = share
        self._use = use
        with persistence_errors():
            share.log.use_topic(name, use)

    def journal(self, key_id: str) -> WaitingJournal:
        """A journal of the topic. What it raises are errors of `exactlog.journal`.

        Raises:
            InterfaceError: the log was closed.
        """
        return self._share.log.journals[self.name, key_id]

    @contextmanager
    def transaction(self) -> Iterator[WaitingTransaction]:
        """A transaction, written when the block ends; all of it counts, or nothing. Raises as `persistence_errors`."""
        with (
            persistence_errors(),
            self._share.log.journals.transaction(self._use.transactional_id) as transaction,
        ):
            yield transaction

    def events(
        self, key_id: str, *, first: int, last: int | None, limit: int | None = None, tags: Collection[str] = ()
    ) -> list[EventRecord]:
        """The first so many events of a journal's range, as the log has them now; with tags: that have one of them.

        Raises as `persistence_errors`.
        """
        found: list[EventRecord] = []
        with persistence_errors(), closing(self.journal(key_id).read(first, last)) as records:
            for record in records:
                if not tags or not record.tags.isdisjoint(tags):
                    found.append(record)
                if len(found) == limit:
                    break
        return found

    def last_number(self, key_id: str) -> int | None:
        """The number of a journal's last event; None: it has none. Raises as `persistence_errors`."""
        with persistence_errors():
            return self.journal(key_id).pointer()

    def call_on_commits(self, key_id: str, call: Callable[[], None]) -> Callable[[], None]:
        """See `OpenLog.call_on_commits`."""
        with persistence_errors():
            return self._share.log.call_on_commits(self.name, key_id, call)
