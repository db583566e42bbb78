"""Reading from a broker of any make, with Fetch: no versions, and sizes only as the broker tells them (KIP-113).

A source runs an event loop of its own, for one operation at a time, and so belongs to the thread that made it.
"""

import asyncio
import contextlib
import itertools
import math
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from exactlog.client.adapters import bootstrap_addresses
from exactlog.client.ports import EARLIEST, LATEST, ClientSettings
from exactlog.client.wire.admin import WireAdmin
from exactlog.client.wire.cluster import Cluster, describe, topic_refusal
from exactlog.client.wire.consumer import Reading
from exactlog.client.wire.fetched_batches import FetchedBatch
from exactlog.client.wire.retries import retry
from exactlog.core.model.errors import (
    DamageError,
    DecodeError,
    KafkaError,
    NotFoundError,
    OffsetOutOfRangeError,
    UnavailableError,
    UnsupportedError,
)
from exactlog.core.model.ids import ZERO_UUID, Offset, TopicPartition
from exactlog.core.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from exactlog.pipeline.read_damage import damage_at
from exactlog.pipeline.read_options import ReadOptions
from exactlog.pipeline.source import Extent, Slice, VisibleBatch

Result = TypeVar("Result")

SETTINGS: Final = ClientSettings(client_id="exactlog-spark")
CONTACT_MS_MAX: Final = 10_000
"""How long a broker may be out of reach before the first answer; later on it is `ClientSettings.deadline_ms`."""

_SIZES_MS_MAX: Final = 2_000  # a broker that is away must not hold up what needs no sizes
_SIZES_AGAIN_S: Final = 60.0
_OFFSETS_PER_PIECE: Final = 500_000  # where no size is known
_ATTEMPTS_MAX: Final = 3  # topics may be deleted while they are looked at


class BrokerSource:
    """The topics of a broker as a `Source`.

    Attributes:
        cluster_id: of the cluster, once `extents` has been called; None where the broker does not tell.
        topic_ids: of the topics that `extents` found; those that the broker gives no id are left out.

    Every method raises as the operations of `exactlog.client`: `UnavailableError` where no broker could be reached in
    time, `NotFoundError` for a topic that does not exist, `OffsetOutOfRangeError` for records that have been removed.

    Raises:
        ClientUrlError: the addresses are malformed.
    """

    def __init__(self, options: ReadOptions, settings: ClientSettings = SETTINGS) -> None:
        self.bootstrap = (options.bootstrap or "").removeprefix("kafka://")
        self.cluster_id: str | None = None
        self.topic_ids: dict[str, str] = {}
        self._topics = options.topics
        self._isolation = options.isolation
        self._include_control = options.include_control
        self._settings = settings
        self._cluster = Cluster(bootstrap_addresses(f"kafka://{self.bootstrap}"), settings)
        self._admin = WireAdmin(self._cluster, settings)
        self._sizes_admin = WireAdmin(self._cluster, replace(settings, deadline_ms=_SIZES_MS_MAX))
        self._offset_counts: dict[TopicPartition, int] = {}
        self._bytes_per_offset: dict[TopicPartition, float] = {}
        self._sizes_due = 0.0
        self._has_answered = False
        self._runner: asyncio.Runner | None = None

    def extents(self) -> Mapping[TopicPartition, Extent]:
        """See `Source`. Sizes are estimates: the average of the partition, for the offsets in between."""
        attempts_left = _ATTEMPTS_MAX
        while True:
            attempts_left -= 1
            try:
                return self._run(self._extents())
            except NotFoundError:
                if self._topics or not attempts_left:
                    raise

    def split(self, piece: Slice, *, bytes_max: int) -> list[Slice]:
        """See `Source`: into even ranges of offsets. Where a cut goes through a batch, it is fetched for both sides."""
        offsets = piece.end_offset - piece.start_offset
        size = piece.size_bytes or self._size(_place(piece), offsets)
        wanted = -(-size // bytes_max) if size else -(-offsets // _OFFSETS_PER_PIECE)
        count = max(1, min(wanted, offsets))
        cuts = [piece.start_offset + offsets * index // count for index in range(count + 1)]
        return [
            replace(
                piece,
                start_offset=start,
                end_offset=end,
                size_bytes=size // count,
                first_row=piece.first_row if index == 0 else None,
            )
            for index, (start, end) in enumerate(itertools.pairwise(cuts))
        ]

    def count_rows(self, piece: Slice) -> int:
        """See `Source`. It is all fetched for that: Kafka's protocol gives nobody headers alone."""
        return sum(_count_rows(batch, piece) for batch in self._fetched(piece))

    def batches(self, piece: Slice) -> Iterator[VisibleBatch]:
        """See `Source`."""
        for batch in self._fetched(piece):
            try:
                records = batch.decompressed()
            except DecodeError as error:
                raise _damage(piece, batch.header.base_offset, error) from error
            yield VisibleBatch(batch.header, records, piece.start_offset, piece.end_offset)

    # --- for streams (`stream_source`) ---------------------------------------------------------------------------

    def topic_id(self, piece: Slice) -> str | None:
        """The id of a piece's topic as it is now; None where the broker gives none."""
        found = self._run(retry(f"find topic {piece.topic}", lambda: self._cluster.topic(piece.topic), self._settings))
        return _printed_id(found.listing)

    def log_end(self, place: TopicPartition) -> int:
        """The high watermark of a partition."""
        return self._run(self._admin.list_offsets({place: LATEST}))[place].offset or 0

    def size(self, piece: Slice) -> int:
        """About how many bytes the batches of a piece take, by the average of the partition.

        Raises:
            UnsupportedError: the broker does not tell, or must not.
        """
        place, offset_count = _place(piece), piece.end_offset - piece.start_offset
        if offset_count and place not in self._bytes_per_offset:
            with contextlib.suppress(KafkaError, UnsupportedError):
                self._run(self._ask_for_sizes())
            if place not in self._bytes_per_offset:
                raise UnsupportedError(
                    f"{self.bootstrap} does not tell how large topic {piece.topic}, partition {piece.partition}, is: "
                    "a limit in bytes cannot be kept",
                    hint="use maxRowsPerTrigger, or let this client describe log directories",
                )
        return self._size(place, offset_count)

    def end_within(self, piece: Slice, bytes_max: int) -> int:
        """The offset up to which about so many bytes of a piece reach; its start where they are less than a record."""
        fitting = bytes_max * (piece.end_offset - piece.start_offset) // max(1, self.size(piece))
        return min(piece.end_offset, piece.start_offset + fitting)

    def first_end(self, piece: Slice) -> int:
        """The end of the first part that a piece can be cut into."""
        return piece.start_offset + 1

    def close(self) -> None:
        """See `Source`."""
        if self._runner is not None:
            self._runner.run(self._cluster.close())
            self._runner.close()
            self._runner = None

    # -----------------------------------------------------------------------------------------------------------

    def _run(self, operation: Coroutine[Any, Any, Result]) -> Result:
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(operation)

    def _fetched(self, piece: Slice) -> Iterator[FetchedBatch]:
        place = _place(piece)
        reading = Reading(
            self._cluster,
            self._admin,
            self._settings,
            {place: Offset(piece.start_offset)},
            ends={place: Offset(piece.end_offset)},
            isolation=self._isolation,
            include_control=self._include_control,
        )
        topic_id = self.topic_id(piece)
        while reading.places:
            try:
                answers = self._run(reading.fetch_round())
            except OffsetOutOfRangeError as error:
                raise _removed(piece, reading.positions[place], oldest=error.oldest) from error
            for fetched in answers.values():
                try:
                    yield from reading.batches(place, fetched)
                except DecodeError as error:
                    raise _damage(piece, reading.positions[place], error) from error
        if self.topic_id(piece) != topic_id:  # the client goes on in a topic of the same name
            raise NotFoundError(
                f"topic {piece.topic} was deleted and made again while partition {piece.partition} was read from "
                f"offset {piece.start_offset} on",
                hint="read it again from its start",
            )

    async def _extents(self) -> dict[TopicPartition, Extent]:
        topics = await self._find_topics()
        places = [
            TopicPartition(topic.name or "", partition.partition)
            for topic in topics
            for partition in describe(topic).partitions
        ]
        starts = await self._admin.list_offsets(dict.fromkeys(places, EARLIEST))
        ends = await self._admin.list_offsets(dict.fromkeys(places, LATEST), isolation=self._isolation)
        bounds = {place: (starts[place].offset or 0, ends[place].offset or 0) for place in places}
        self._offset_counts = {place: end - start for place, (start, end) in bounds.items()}
        await self._learn_sizes()
        return {
            place: Extent(start, max(start, end), size_bytes=self._size(place, end - start))
            for place, (start, end) in sorted(bounds.items())
        }

    async def _find_topics(self) -> Sequence[MetadataResponseTopic]:
        settings = self._settings
        if not self._has_answered:
            settings = replace(settings, deadline_ms=min(settings.deadline_ms, CONTACT_MS_MAX))
        try:
            return await retry(f"read from {self.bootstrap}", self._attempt_topics, settings)
        except UnavailableError as error:
            error.hint = "is a broker running there? `exactlog serve` starts one; the option bootstrap names another"
            raise

    async def _attempt_topics(self) -> Sequence[MetadataResponseTopic]:
        response = await self._cluster.metadata(self._topics or None)
        self._has_answered = True
        found = _asked_for(response, self._topics)
        self.cluster_id = response.cluster_id
        self.topic_ids = {topic.name or "": topic_id for topic in found if (topic_id := _printed_id(topic))}
        return found

    async def _learn_sizes(self) -> None:
        """Asks how large the partitions are, now and then; a broker that does not tell leaves it unknown."""
        now = time.monotonic()
        if now >= self._sizes_due:
            self._sizes_due = now + _SIZES_AGAIN_S
            with contextlib.suppress(KafkaError, UnavailableError, UnsupportedError):
                await self._ask_for_sizes()

    async def _ask_for_sizes(self) -> None:
        sizes: dict[TopicPartition, int] = {}
        for directory in await self._sizes_admin.describe_log_dirs():
            for place, size in directory.partitions.items():
                sizes[place] = max(size, sizes.get(place, 0))
        self._bytes_per_offset = {
            place: sizes[place] / count for place, count in self._offset_counts.items() if count and place in sizes
        }

    def _size(self, place: TopicPartition, offset_count: int) -> int:
        """About how many bytes so many offsets of a partition take; 0 where it is not known."""
        return math.ceil(self._bytes_per_offset.get(place, 0) * offset_count)


def _asked_for(response: MetadataResponse, names: Sequence[str]) -> list[MetadataResponseTopic]:
    """The topics of an answer that are to be read, by name.

    Raises:
        NotFoundError: one that was named does not exist.
        KafkaError: the broker cannot tell of one, or not yet.
    """
    found = []
    for topic in sorted(response.topics, key=lambda topic: topic.name or ""):
        if topic.error_code:
            raise topic_refusal(topic.name or "", topic.error_code)
        if names or not topic.is_internal:
            found.append(topic)
    return found


def _printed_id(topic: MetadataResponseTopic) -> str | None:
    return None if topic.topic_id == ZERO_UUID else str(topic.topic_id)


def _place(piece: Slice) -> TopicPartition:
    return TopicPartition(piece.topic, piece.partition)


def _count_rows(batch: FetchedBatch, piece: Slice) -> int:
    header = batch.header
    if header.base_offset >= piece.start_offset and header.last_offset < piece.end_offset:
        return header.record_count
    try:
        return sum(piece.start_offset <= record.offset < piece.end_offset for record in batch.records())
    except DecodeError as error:
        raise _damage(piece, header.base_offset, error) from error


def _damage(piece: Slice, offset: int, reason: DecodeError) -> DamageError:
    return damage_at(piece, offset, reason, hint="the broker sent it so: look at its log with its own means")


def _removed(piece: Slice, offset: int, *, oldest: int) -> OffsetOutOfRangeError:
    error = OffsetOutOfRangeError(f"topic {piece.topic}, partition {piece.partition}, offset {offset}", oldest=oldest)
    error.hint = f"read from offset {oldest} on, or keep records for longer (retention.ms, retention.bytes)"
    return error
