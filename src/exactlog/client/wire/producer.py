"""Producing: records to partitions, partitions to batches, batches to leaders."""

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from exactlog.client.ports import ACKS_ALL, ClientSettings, ProducedRecord, ProducerIdentity
from exactlog.client.wire.cluster import Cluster, TopicMetadata
from exactlog.client.wire.connection import WireConnection
from exactlog.client.wire.partitioner import StickyPartitioner, partition_of_key
from exactlog.client.wire.produce_exchange import detail_of, exchange_produce
from exactlog.client.wire.refusals import as_error_code, check, refusal
from exactlog.client.wire.retries import retry
from exactlog.core.codec.compression import Compression
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import ExactlogError, KafkaError, UnsupportedError
from exactlog.core.model.ids import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicPartition,
)
from exactlog.core.model.sequences import add_to_sequence
from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from exactlog.core.protocol.messages.produce import PartitionProduceData, PartitionProduceResponse
from exactlog.core.record.batch_builder import NewRecord, build_batch

_FIRST_VERSION_WITH_ZSTD: Final = 7
_RECORD_OVERHEAD_BYTES: Final = 32  # lengths and deltas; the most there can be
_HEADER_OVERHEAD_BYTES: Final = 10

_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_SEQUENCE_LOST: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.PRODUCER_FENCED,
    }
)


class IdempotentSession:
    """A producer id, and for each partition the sequence of the next record under it."""

    def __init__(self, identity: ProducerIdentity) -> None:
        self.identity = identity
        self.next_sequences: defaultdict[TopicPartition, int] = defaultdict(int)


class Manner(msgspec.Struct, frozen=True):
    """How records are to be produced."""

    acks: int
    compression: Compression


class WireProducer:
    """The `Producer` port over the wire. One batch of a partition is under way at a time."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ClientSettings,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        choose_start: Callable[[], int] = lambda: random.randrange(1 << 16),  # noqa: S311  spreads load, hides nothing
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._now_ms = now_ms
        self._choose_start = choose_start
        self._sticky: dict[str, StickyPartitioner] = {}
        self._turns: defaultdict[TopicPartition, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._session: IdempotentSession | None = None
        self._session_turn = asyncio.Lock()

    async def produce(
        self,
        topic: str,
        records: Sequence[NewRecord],
        *,
        partition: int | None = None,
        acks: int = ACKS_ALL,
        compression: Compression = Compression.NONE,
    ) -> tuple[ProducedRecord, ...]:
        """See `Producer`."""
        if not records:
            return ()
        what = f"produce to topic {topic}"
        metadata = await retry(what, lambda: self._cluster.topic(topic, may_create=True), self._settings)
        now_ms = self._now_ms()
        stamped = [stamp(record, now_ms=now_ms) for record in records]
        by_partition: defaultdict[int, list[int]] = defaultdict(list)
        for index, record in enumerate(stamped):
            place = self._choose(metadata, record) if partition is None else partition
            by_partition[place].append(index)
        produced: dict[int, ProducedRecord] = {}

        async def produce_to(place: TopicPartition, indexes: list[int]) -> None:
            async with self._turns[place]:
                for batch in _in_batches(indexes, stamped, bytes_max=self._settings.batch_bytes_max):
                    batch_records = [stamped[index] for index in batch]
                    offsets = await self._produce_batch(place, batch_records, Manner(acks, compression))
                    for index, offset in zip(batch, offsets, strict=True):
                        produced[index] = ProducedRecord(place.partition, offset)

        endings = await asyncio.gather(
            *(produce_to(TopicPartition(topic, place), indexes) for place, indexes in by_partition.items()),
            return_exceptions=True,
        )
        _raise_first(endings, produced_count=len(produced), record_count=len(records))
        return tuple(produced[index] for index in range(len(records)))

    async def init_producer_id(self) -> ProducerIdentity:
        """See `Producer`."""
        what = "get a producer id"

        async def attempt() -> ProducerIdentity:
            connection = await self._cluster.any_connection()
            version = connection.versions.pick(ApiKey.INIT_PRODUCER_ID)
            request = InitProducerIdRequest(transactional_id=None)
            response = await connection.request(request, InitProducerIdResponse, version=version)
            check(response.error_code, what)
            return ProducerIdentity(ProducerId(response.producer_id), ProducerEpoch(response.producer_epoch))

        return await retry(what, attempt, self._settings)

    # --- which partition -------------------------------------------------------------------------------------

    def _choose(self, topic: TopicMetadata, record: NewRecord) -> int:
        if record.key is not None:
            return topic.partitions[partition_of_key(record.key, partition_count=len(topic.partitions))].partition
        led = [partition.partition for partition in topic.partitions if partition.leader_id is not None]
        sticky = self._sticky.get(topic.name)
        if sticky is None:
            sticky = self._sticky[topic.name] = StickyPartitioner(self._choose_start())
        every = [partition.partition for partition in topic.partitions]
        return sticky.choose(led or every, record_bytes=_size_of(record))

    # --- one batch -------------------------------------------------------------------------------------------

    async def _produce_batch(
        self, place: TopicPartition, records: Sequence[NewRecord], manner: Manner
    ) -> list[Offset | None]:
        """The offsets of the records. What is too large for the broker in one batch is tried in two halves."""
        try:
            base_offset = await self._append(place, records, manner)
        except KafkaError as error:
            if error.kafka_error not in _TOO_LARGE or len(records) == 1:
                raise
            middle = len(records) // 2
            first_half = await self._produce_batch(place, records[:middle], manner)
            return first_half + await self._produce_batch(place, records[middle:], manner)
        if base_offset is None:
            return [None] * len(records)
        return [Offset(base_offset + delta) for delta in range(len(records))]

    async def _append(self, place: TopicPartition, records: Sequence[NewRecord], manner: Manner) -> Offset | None:
        session = await self._current_session() if manner.acks == ACKS_ALL else None
        batch = _build(records, manner, session, place)
        is_open = False  # whether an attempt ended without a word on what became of it

        async def attempt() -> Offset | None:
            nonlocal is_open
            leader_id = await self._cluster.leader_of(place, may_create=True)
            connection = await self._cluster.connection_to(leader_id)
            topic = await self._cluster.topic(place.topic)
            try:
                return await self._send(connection, topic, place, batch, manner)
            except (KafkaError, UnsupportedError):
                raise  # the broker has said no
            except BaseException as error:  # of cancellation too
                is_open = True
                self._cluster.forget(place.topic)
                if session is None:
                    _say_that_it_is_open(error)
                raise

        try:
            base_offset = await retry(f"produce to {place}", attempt, self._settings)
        except BaseException as error:
            has_lost_count = is_open or (isinstance(error, ExactlogError) and error.kafka_error in _SEQUENCE_LOST)
            if has_lost_count and self._session is session:
                self._session = None  # nobody knows which sequence comes next under this producer id
            if is_open:
                _say_that_it_is_open(error)
            raise
        if session is not None:
            session.next_sequences[place] = add_to_sequence(session.next_sequences[place], len(records))
        return base_offset

    async def _send(
        self,
        connection: WireConnection,
        topic: TopicMetadata,
        place: TopicPartition,
        batch: bytearray,
        manner: Manner,
    ) -> Offset | None:
        answer = await exchange_produce(
            connection,
            topic,
            PartitionProduceData(index=place.partition, records=batch),
            acks=manner.acks,
            timeout_ms=self._settings.request_timeout_ms,
            at_least=_FIRST_VERSION_WITH_ZSTD if manner.compression is Compression.ZSTD else 0,
        )
        return None if answer is None else self._offset_of(answer, place)

    def _offset_of(self, answer: PartitionProduceResponse, place: TopicPartition) -> Offset | None:
        code = as_error_code(answer.error_code)
        if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            return None  # appended by an earlier attempt, too long ago for the broker to know where
        if code is not ErrorCode.NONE:
            self._cluster.forget(place.topic)
            raise refusal(answer.error_code, f"produce to {place}", detail_of(answer))
        return Offset(answer.base_offset)

    async def _current_session(self) -> IdempotentSession:
        async with self._session_turn:
            if self._session is None:
                self._session = IdempotentSession(await self.init_producer_id())
            return self._session


def stamp(record: NewRecord, *, now_ms: int) -> NewRecord:
    """The record with the time of now, if it has none."""
    if record.timestamp_ms != NO_TIMESTAMP:
        return record
    return msgspec.structs.replace(record, timestamp_ms=TimestampMs(now_ms))


def _build(
    records: Sequence[NewRecord], manner: Manner, session: IdempotentSession | None, place: TopicPartition
) -> bytearray:
    return build_batch(
        records,
        compression=manner.compression,
        producer_id=NO_PRODUCER_ID if session is None else session.identity.producer_id,
        producer_epoch=NO_PRODUCER_EPOCH if session is None else session.identity.producer_epoch,
        base_sequence=NO_SEQUENCE if session is None else session.next_sequences[place],
    )


def _say_that_it_is_open(error: BaseException) -> None:
    """Nobody knows whether the batch was appended: who sends it again as another batch may find it there twice."""
    if isinstance(error, ExactlogError):
        error.retryable = False
        error.hint = "whether the records were appended is not known; look before sending them again"


def _size_of(record: NewRecord) -> int:
    headers = sum(len(name) + len(value or b"") + _HEADER_OVERHEAD_BYTES for name, value in record.headers)
    return _RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"") + headers


def _in_batches(indexes: Iterable[int], records: Sequence[NewRecord], *, bytes_max: int) -> Iterator[list[int]]:
    """The indexes in groups of records that have at most so many bytes together; a larger one stays alone."""
    batch: list[int] = []
    batch_bytes = 0
    for index in indexes:
        record_bytes = _size_of(records[index])
        if batch and batch_bytes + record_bytes > bytes_max:
            yield batch
            batch, batch_bytes = [], 0
        batch.append(index)
        batch_bytes += record_bytes
    if batch:
        yield batch


def _raise_first(endings: Iterable[BaseException | None], *, produced_count: int, record_count: int) -> None:
    for ending in endings:
        if ending is None:
            continue
        if isinstance(ending, ExactlogError) and record_count > 1:
            told = f"{produced_count} of {record_count} records were appended for certain"
            ending.hint = f"{ending.hint}; {told}" if ending.hint else told
        raise ending
