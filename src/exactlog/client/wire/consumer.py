"""Consuming: Fetch after Fetch from the leaders of some partitions, up to their ends or for ever."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Final

from exactlog.client.ports import EARLIEST, ClientSettings, ConsumedRecord, DamagedBatchError, IsolationLevel
from exactlog.client.wire.admin import WireAdmin
from exactlog.client.wire.cluster import Cluster, Lane, TopicMetadata, pick_by_topic_id
from exactlog.client.wire.connection import WireConnection
from exactlog.client.wire.fetched_batches import FetchedBatch, judged_batches, visible_batches
from exactlog.client.wire.refusals import as_error_code, check, refusal
from exactlog.client.wire.retries import retry
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import DecodeError, ExactlogError, OffsetOutOfRangeError, UnavailableError
from exactlog.core.model.ids import BrokerId, Offset, TopicPartition
from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

_LAST_VERSION_WITH_NAMES: Final = 12
_PARTITION_BYTES_MAX: Final = 1024 * 1024  # Kafka's max.partition.fetch.bytes: no partition starves another
_FETCH_BYTES_MIN: Final = 1

Fetched = dict[TopicPartition, PartitionData]
Failures = dict[TopicPartition, ExactlogError]


class WireConsumer:
    """The `Consumer` port over the wire."""

    def __init__(self, cluster: Cluster, admin: WireAdmin, settings: ClientSettings) -> None:
        self._cluster = cluster
        self._admin = admin
        self._settings = settings

    async def consume(
        self,
        starts: Mapping[TopicPartition, Offset],
        *,
        ends: Mapping[TopicPartition, Offset] | None = None,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        include_control: bool = False,
    ) -> AsyncIterator[ConsumedRecord]:
        """See `Consumer`."""
        reading = Reading(
            self._cluster,
            self._admin,
            self._settings,
            starts,
            ends=ends or {},
            isolation=isolation,
            include_control=include_control,
        )
        while reading.places:
            for place, fetched in (await reading.fetch_round()).items():
                for found in reading.records(place, fetched):
                    yield found


class Reading:
    """Where one reader stands in its partitions, and how it gets on.

    A partition whose leader is away does not stop the others; away for longer than the deadline, it ends the reading.

    Attributes:
        positions: the next offset to read of each partition, also of those that have reached their ends.
    """

    def __init__(
        self,
        cluster: Cluster,
        admin: WireAdmin,
        settings: ClientSettings,
        starts: Mapping[TopicPartition, Offset],
        *,
        ends: Mapping[TopicPartition, Offset],
        isolation: IsolationLevel,
        include_control: bool,
    ) -> None:
        self.positions = dict(starts)
        self._cluster = cluster
        self._admin = admin
        self._settings = settings
        self._ends = ends
        self._isolation = isolation
        self._include_control = include_control
        self._failing_since: dict[TopicPartition, float] = {}
        self._asked_at: dict[TopicPartition, Offset] = {}

    @property
    def places(self) -> list[TopicPartition]:
        """The partitions that have not reached their ends."""
        ends = self._ends
        return [place for place, position in self.positions.items() if place not in ends or position < ends[place]]

    async def fetch_round(self) -> Fetched:
        """What the leaders have for the partitions, perhaps nothing; at least one of them has answered."""
        places = self.places
        others = f" and {len(places) - 1} others" if len(places) > 1 else ""
        return await retry(f"fetch from {min(places)}{others}", self._attempt_round, self._settings)

    def records(self, place: TopicPartition, fetched: PartitionData) -> Iterator[ConsumedRecord]:
        """The records of an answer that the reader sees. The position moves behind each when the next is asked for."""
        end = self._ends.get(place)
        for batch, records in visible_batches(
            fetched.records or b"",
            fetched.aborted_transactions or (),
            place=place,
            from_offset=self.positions[place],
            isolation=self._isolation,
            include_control=self._include_control,
            end=_high_watermark(fetched),
            is_end_newer=self._has_seen_beyond(place, fetched),
        ):
            try:
                for record in records:
                    if end is None or record.offset < end:
                        yield ConsumedRecord(place, record, batch)
                        self.positions[place] = Offset(record.offset + 1)
            except DecodeError as error:
                raise DamagedBatchError(
                    f"{place}: the batch at offset {batch.base_offset}: {error}",
                    offset=batch.base_offset,
                    next_offset=batch.next_offset,
                ) from error
            behind = batch.next_offset if end is None else min(batch.next_offset, end)
            self.positions[place] = max(self.positions[place], behind)
            if self.positions[place] == end:
                break

    def batches(self, place: TopicPartition, fetched: PartitionData) -> Iterator[FetchedBatch]:
        """The batches of an answer that have something for the reader, whole, though it may see only some of them.

        The position moves behind each when the next is asked for. An answer about this partition alone that is empty
        says that nothing is left up to where the broker looked: behind removed records there may be no batch.
        """
        end = self._ends.get(place)
        if not fetched.records and len(self.positions) == 1 and end is not None and end <= self._looked_until(fetched):
            self.positions[place] = end
            return
        for batch in judged_batches(
            fetched.records or b"",
            fetched.aborted_transactions or (),
            place=place,
            from_offset=self.positions[place],
            isolation=self._isolation,
            include_control=self._include_control,
            end=_high_watermark(fetched),
            is_end_newer=self._has_seen_beyond(place, fetched),
        ):
            behind = batch.header.next_offset if end is None else min(batch.header.next_offset, end)
            is_reached = end is None or batch.header.base_offset < end
            if batch.is_visible and is_reached and batch.header.next_offset > self.positions[place]:
                yield batch
            self.positions[place] = max(self.positions[place], behind)
            if self.positions[place] == end:
                return

    def _has_seen_beyond(self, place: TopicPartition, fetched: PartitionData) -> bool:
        """Whether an answer before this one had records from the same offset on, and none could be taken.

        What it had was committed by then, so the high watermark of this answer is not older.
        """
        position = self.positions[place]
        was_asked = self._asked_at.get(place) == position
        if fetched.records:
            self._asked_at[place] = position
        return was_asked

    def _looked_until(self, fetched: PartitionData) -> int:
        """The exclusive end of what the broker could have answered with."""
        is_committed_only = self._isolation is IsolationLevel.READ_COMMITTED
        return fetched.last_stable_offset if is_committed_only else fetched.high_watermark

    async def _attempt_round(self) -> Fetched:
        fetched: Fetched = {}
        failures: Failures = {}
        by_leader: defaultdict[BrokerId, list[TopicPartition]] = defaultdict(list)
        for place in self.places:
            try:
                by_leader[await self._cluster.leader_of(place)].append(place)
            except ExactlogError as error:
                failures[place] = error
        answers = (self._fetch_from(leader_id, places) for leader_id, places in by_leader.items())
        for leader_fetched, leader_failures in await asyncio.gather(*answers):
            fetched |= leader_fetched
            failures |= leader_failures
        self._judge(fetched, failures)
        return fetched

    def _judge(self, fetched: Fetched, failures: Failures) -> None:
        """Raise what cannot be mended, what has lasted too long, and anything when nothing else came."""
        now = asyncio.get_running_loop().time()
        self._failing_since = {place: self._failing_since.get(place, now) for place in failures}
        for place, error in failures.items():
            if not error.retryable or not fetched:
                raise error
            if now - self._failing_since[place] > self._settings.deadline_ms / 1000:
                raise UnavailableError(f"{place}: gave up after {self._settings.deadline_ms} ms: {error}") from error

    async def _fetch_from(self, leader_id: BrokerId, places: Sequence[TopicPartition]) -> tuple[Fetched, Failures]:
        try:
            connection = await self._cluster.connection_to(leader_id, Lane.FETCH)
            topics = {place.topic: await self._cluster.topic(place.topic) for place in places}
            answers = await self._fetch(connection, places, topics)
        except ExactlogError as error:
            for place in places:
                self._cluster.forget(place.topic)
            return {}, dict.fromkeys(places, error)
        good = {place: answer for place, answer in answers.items() if not answer.error_code}
        bad = {place: await self._refusal(place, answer) for place, answer in answers.items() if answer.error_code}
        return good, bad

    async def _fetch(
        self, connection: WireConnection, places: Iterable[TopicPartition], topics: Mapping[str, TopicMetadata]
    ) -> Fetched:
        version = pick_by_topic_id(
            connection.versions, ApiKey.FETCH, topics.values(), names_until=_LAST_VERSION_WITH_NAMES
        )
        asked: defaultdict[str, list[FetchPartition]] = defaultdict(list)
        for place in places:
            asked[place.topic].append(
                FetchPartition(
                    partition=place.partition,
                    fetch_offset=self.positions[place],
                    partition_max_bytes=_PARTITION_BYTES_MAX,
                )
            )
        request = FetchRequest(
            max_wait_ms=self._settings.fetch_wait_ms_max,
            min_bytes=_FETCH_BYTES_MIN,
            max_bytes=self._settings.fetch_bytes_max,
            isolation_level=self._isolation,
            topics=tuple(
                FetchTopic(topic=name, topic_id=topics[name].listing.topic_id, partitions=tuple(partitions))
                for name, partitions in asked.items()
            ),
        )
        response = await connection.request(request, FetchResponse, version=version)
        check(response.error_code, f"{connection.address}: fetch")
        names = {topic.listing.topic_id: name for name, topic in topics.items()}
        answers = {
            TopicPartition(topic.topic or names.get(topic.topic_id, ""), partition.partition_index): partition
            for topic in response.responses
            for partition in topic.partitions
        }
        strange = answers.keys() - self.positions.keys()
        if strange:
            raise DecodeError(f"{connection.address}: the answer to Fetch has {min(strange)}, which was not asked for")
        return answers

    async def _refusal(self, place: TopicPartition, answer: PartitionData) -> ExactlogError:
        self._cluster.forget(place.topic)
        if as_error_code(answer.error_code) is ErrorCode.OFFSET_OUT_OF_RANGE:
            position = self.positions[place]
            earliest = (await self._admin.list_offsets({place: EARLIEST}))[place].offset
            if earliest is not None and position < earliest:
                return OffsetOutOfRangeError(f"{place} at offset {position}", oldest=earliest)
            return refusal(answer.error_code, f"fetch from {place}", f"offset {position} is behind the end")
        return refusal(answer.error_code, f"fetch from {place}")


def _high_watermark(fetched: PartitionData) -> Offset | None:
    """Up to where an answer can have records; None where it does not tell."""
    return Offset(fetched.high_watermark) if fetched.high_watermark > 0 else None
