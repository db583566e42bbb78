"""The log of actions: topics of a broker of any make, seen through a client."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Final, TypeAlias

from exactlog.client.ports import EARLIEST, LATEST, Client, ConsumedRecord
from exactlog.client.wire.partitioner import partition_of_key
from exactlog.core.journal.actions import Action, ActionRecord
from exactlog.core.journal.errors import HeadLost, Repartitioned, Retriable
from exactlog.core.journal.event_journal_format import ACTION_HEADER, decode_action, encode_action
from exactlog.core.journal.keys import JournalKey, Place
from exactlog.core.journal.read_plan import Stretch
from exactlog.core.model.clock import Clock
from exactlog.core.model.errors import OffsetOutOfRangeError, UnavailableError
from exactlog.core.model.ids import Offset, TopicPartition
from exactlog.core.model.isolation_level import IsolationLevel
from exactlog.core.record.record_format import Record
from exactlog.journal.closing import closing
from exactlog.journal.metrics import JournalMetrics, Spared

Written: TypeAlias = Callable[[TopicPartition, ActionRecord], None]
"""Who is told of every action that was written here, and where it stands."""

_PARTITIONS_LOOKED_AT: Final = 8
_RECORDS_LOOKED_AT: Final = 256
"""Of each partition; one fetch, mostly."""
_KEYS_LOOKED_AT: Final = 32
"""After so many that are where they should be, a topic that has doubled is missed once in four billion times."""


class ActionLog:
    """Writes actions, and reads those of one journal. It does not own the client.

    Args:
        client: of the brokers.
        clock: gives actions their time.
        no_progress_ms: a read that gets nothing for so long gives up.
        metrics: what is counted.
        written: told of every action that is written.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        *,
        no_progress_ms: int,
        metrics: JournalMetrics,
        written: Written | None = None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._no_progress_ms = no_progress_ms
        self._metrics = metrics
        self._partition_counts: dict[str, int] = {}
        self._written = written
        self._looking: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def place_of(self, key: JournalKey) -> TopicPartition:
        """The partition of a journal, as every client of Kafka chooses it.

        Raises:
            Repartitioned: the topic had another number of partitions when it was first used here, or when its first
                records were written.
            Retriable: its first records cannot be read.
        """
        topic = key.topic
        count = await self._client.partition_count(topic)
        if topic not in self._partition_counts:
            async with self._looking[topic]:
                await self._look_for_growth(topic, count)
        if self._partition_counts[topic] != count:
            raise _grown(topic, f"had {self._partition_counts[topic]} partitions and now has {count}")
        return TopicPartition(topic, partition_of_key(key.id.encode(), partition_count=count))

    def partitions_beside(self, topic: str) -> int:
        """How many other partitions a topic has that was asked for before."""
        return self._partition_counts[topic] - 1

    async def write(self, key: JournalKey, place: TopicPartition, action: Action) -> ActionRecord:
        """Write an action and say where it stands.

        Raises:
            UnavailableError: the log could not be reached; whether the action is in it is then not known.
            KafkaError: the broker refuses it, as too large or not allowed.
        """
        now_ms = self._clock.now_ms()
        record = encode_action(key, action, timestamp_ms=now_ms)
        (produced,) = await self._client.produce(key.topic, [record], partition=place.partition)
        if produced.offset is None:
            raise UnavailableError(
                f"{place}: the broker has forgotten where a record that came twice lies",
                hint="read the journal to see whether the action counts",
            )
        written = ActionRecord(key, Place(place.partition, produced.offset), now_ms, action)
        if self._written is not None:
            self._written(place, written)
        return written

    async def end(self, place: TopicPartition) -> int:
        """The offset behind the last record, of open transactions too."""
        return int((await self._client.list_offsets({place: LATEST}))[place].offset or 0)

    async def start(self, place: TopicPartition) -> int:
        """The first offset that is left."""
        return int((await self._client.list_offsets({place: EARLIEST}))[place].offset or 0)

    async def actions(self, place: TopicPartition, stretch: Stretch, key_id: str) -> AsyncIterator[ActionRecord]:
        """The actions of one journal in a stretch that is there, or will be at once.

        Raises:
            HeadLost: the first of its offsets were removed.
            DecodeError: one of them cannot be read.
            Retriable: nothing came for too long, as when a transaction stays open.
        """
        key = key_id.encode()
        self._metrics.spared[Spared.PARTITIONS].inc(self.partitions_beside(place.topic))
        passed_over, decoded = self._metrics.spared[Spared.DECODING], self._metrics.decoded
        async with closing(self.records(place, stretch)) as records:
            async for record in records:
                if record.key != key:
                    passed_over.value += 1
                    continue
                decoded.value += 1
                action = decode_action(place, record)
                if action is not None:
                    yield action

    async def records(self, place: TopicPartition, stretch: Stretch) -> AsyncIterator[Record]:
        """The committed records of a stretch that is there, or will be at once. Raises `HeadLost`, `Retriable`."""
        if stretch.start >= stretch.end:
            return
        found = self._client.consume(
            {place: Offset(stretch.start)}, ends={place: Offset(stretch.end)}, isolation=IsolationLevel.READ_COMMITTED
        )
        async with closing(self._watched(place, stretch, found)) as watched:
            async for one in watched:
                yield one.record

    async def _look_for_growth(self, topic: str, partition_count: int) -> None:
        """Remember the number of partitions, unless the first records say that it was another one.

        Partitions are only ever added, and what was written before stays in the first ones, whatever the keys say now.
        A key stays where it was with a chance of a half at most, so that a few of them tell.
        """
        if topic in self._partition_counts:
            return
        keys: set[bytes] = set()
        for partition in range(min(partition_count - 1, _PARTITIONS_LOOKED_AT)):
            here = await self._first_keys(TopicPartition(topic, partition))
            for key in here:
                wanted = partition_of_key(key, partition_count=partition_count)
                if wanted != partition:
                    name = key.decode(errors="replace")
                    told = f"has {partition_count} partitions, and journal {name} of {wanted} in {partition}"
                    raise _grown(topic, told)
            keys |= here
            if len(keys) >= _KEYS_LOOKED_AT:
                break
        self._partition_counts[topic] = partition_count

    async def _first_keys(self, place: TopicPartition) -> set[bytes]:
        """Those of the first actions of a partition."""
        listed = await self._client.list_offsets({place: LATEST}, isolation=IsolationLevel.READ_COMMITTED)
        start, end = await self.start(place), int(listed[place].offset or 0)
        keys: set[bytes] = set()
        with suppress(HeadLost):  # they went just now
            async for record in self.records(place, Stretch(start, min(end, start + _RECORDS_LOOKED_AT))):
                if record.key is not None and any(name == ACTION_HEADER for name, _ in record.headers):
                    keys.add(record.key)
        return keys

    async def _watched(
        self, place: TopicPartition, stretch: Stretch, records: AsyncIterator[ConsumedRecord]
    ) -> AsyncIterator[ConsumedRecord]:
        """The records, as long as they keep coming."""
        async with closing(records):
            while True:
                try:
                    async with asyncio.timeout(self._no_progress_ms / 1000):
                        found = await anext(records)
                except StopAsyncIteration:
                    return
                except TimeoutError:
                    raise Retriable(
                        f"{place}: nothing came for {self._no_progress_ms} ms of offsets {stretch.start} to "
                        f"{stretch.end - 1}",
                        hint="an open transaction holds readers back (`exactlog txn list`), or the broker is busy",
                    ) from None
                except OffsetOutOfRangeError as error:
                    raise HeadLost(
                        f"{place}: offsets {stretch.start} to {error.oldest - 1} are neither replicated nor in the log "
                        "any more",
                        hint="look for their events in a copy; then move the pointer of the store to go on without "
                        "them",
                    ) from error
                except UnavailableError as error:
                    raise Retriable(f"{place}: the log cannot be read: {error}", hint=error.hint) from error
                yield found


def _grown(topic: str, what: str) -> Repartitioned:
    return Repartitioned(
        f"topic {topic} {what}",
        hint="its journals would be looked for where they are not: copy the topic into one of the new number",
    )
