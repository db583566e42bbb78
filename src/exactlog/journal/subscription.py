"""Following all journals of a topic, in one order: that of its only partition."""

from collections.abc import AsyncIterator, Collection

from msgspec import Struct

from exactlog.client.ports import Client, IsolationLevel
from exactlog.core.journal.action_fold import apply_action
from exactlog.core.journal.actions import ActionRecord, Append
from exactlog.core.journal.errors import HeadLost, JournalInputError
from exactlog.core.journal.event_journal_format import decode_action
from exactlog.core.journal.event_rows import rows_of
from exactlog.core.journal.state import JournalState, taken_from
from exactlog.core.model.errors import OffsetOutOfRangeError
from exactlog.core.model.ids import Offset, TopicPartition
from exactlog.journal.closing import closing
from exactlog.journal.event_record import EventRecord, event_record_of
from exactlog.journal.parts import Parts

_START = Offset(0)


class SubscribedEvent(Struct, frozen=True):
    """An event of some journal.

    Attributes:
        position: of its append in the topic: to go on behind it, ask from one more.
        key_id: the journal's id.
        record: the event.
    """

    position: int
    key_id: str
    record: EventRecord


class Subscription:
    """Every event that counts, from a position on: those too that were deleted or purged since.

    What counts is known from what came before it, so the topic is read from its beginning; nothing but the keys and the
    headers of actions is looked at up to the position. Where each journal stands is kept in mind, some 200 bytes each.
    """

    def __init__(
        self, parts: Parts, topic: str, *, from_position: int, types: Collection[type], tags: Collection[str]
    ) -> None:
        self._parts = parts
        self._topic = topic
        self._place = TopicPartition(topic, 0)
        self._from_position = from_position
        self._types = tuple(types)
        self._tags = frozenset(tags)
        self._states: dict[str, JournalState] = {}

    async def events(self, *, is_followed: bool) -> AsyncIterator[SubscribedEvent]:
        """The events up to now, or for ever.

        Raises:
            JournalInputError: the topic has several partitions, or the position is below 0.
            HeadLost: the topic does not begin at its beginning any more.
            DecodeError: an action cannot be read.
        """
        if self._from_position < 0:
            raise JournalInputError(f"a position is an offset, not {self._from_position}", hint="begin with 0")
        count = await self._parts.client.partition_count(self._topic)
        if count != 1:
            raise JournalInputError(
                f"topic {self._topic} has {count} partitions, and no order over all of them",
                hint="subscribe to a topic of one partition",
            )
        async with self._parts.brokers() as client:  # of its own: it waits for records all the time
            try:
                async for record in self._records(client, is_followed=is_followed):
                    for event in self._take(record):
                        yield event
            except OffsetOutOfRangeError as error:
                raise HeadLost(
                    f"topic {self._topic} begins at offset {error.oldest}: what counts there cannot be told",
                    hint="keep the topics that are subscribed to whole",
                ) from error

    async def _records(self, client: Client, *, is_followed: bool) -> AsyncIterator[ActionRecord]:
        ends = None if is_followed else {self._place: Offset(await self._parts.log.end(self._place))}
        if ends is not None and ends[self._place] == _START:
            return
        records = client.consume({self._place: _START}, ends=ends, isolation=IsolationLevel.READ_COMMITTED)
        async with closing(records):
            async for found in records:
                action = decode_action(self._place, found.record)
                if action is not None:
                    yield action

    def _take(self, record: ActionRecord) -> list[SubscribedEvent]:
        before = self._states.get(record.key.id)
        after = apply_action(before, record)
        if after is None:
            self._states.pop(record.key.id, None)
        else:
            self._states[record.key.id] = after
        append = record.action
        if not isinstance(append, Append) or record.offset < self._from_position or not append.expect.holds(before):
            return []
        first = taken_from(before)
        return [
            SubscribedEvent(record.offset, record.key.id, event)
            for row in rows_of(record)
            if row.seq_nr >= first and (not self._tags or self._tags & row.event.tags)
            for event in (event_record_of(row, self._parts.codec),)
            if not self._types or isinstance(event.event, self._types)
        ]
