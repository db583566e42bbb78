"""Following an application: what was recorded, and what is recorded from then on, by whomever."""

from collections.abc import Callable, Sequence

from eventsourcing.persistence import ApplicationRecorder, ListenNotifySubscription, ShutDown

from exactlog.journal.eventsourcing.recorded_topic import NOTIFICATIONS, RecordedTopic


class JournalSubscription(ListenNotifySubscription[ApplicationRecorder]):
    """The notifications of an application, without an end: it looks again whenever something is committed.

    Args:
        recorder: to read from.
        recorded: its topic.
        gt: only notifications with greater ids.
        topics: only events of these topics; none: all.
    """

    def __init__(
        self,
        recorder: ApplicationRecorder,
        recorded: RecordedTopic,
        *,
        gt: int | None = None,
        topics: Sequence[str] = (),
    ) -> None:
        self._end_calls: Callable[[], None] | None = None
        super().__init__(recorder=recorder, gt=gt, topics=topics)  # reads in a thread from here on
        self._end_calls = recorded.call_on_commits(NOTIFICATIONS, self._has_been_notified.set)
        if self._has_been_stopped:
            self._end_calls()

    def _pull(self) -> None:
        """Hand on what has come. What is of other topics is passed over once, and not looked at again."""
        while not self._has_been_stopped:
            self._has_been_notified.clear()
            found = self._recorder.select_notifications(
                start=self._last_notification_id or 0, limit=self._select_limit, inclusive_of_start=False
            )
            wanted = [notification for notification in found if not self._topics or notification.topic in self._topics]
            if wanted:
                try:
                    self._notifications_queue.put(wanted)
                except ShutDown:
                    break
            if found:
                self._last_notification_id = found[-1].id
            if len(found) < self._select_limit:
                break

    def stop(self) -> None:
        """Stop: the iteration ends."""
        super().stop()
        if self._end_calls is not None:
            self._end_calls()
