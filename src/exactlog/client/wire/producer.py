"""Producing without transactions: batches to leaders, once each."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import msgspec

from exactlog.client.ports import ACKS_ALL, ClientSettings
from exactlog.client.produced import ProducedRecord, ProducerIdentity
from exactlog.client.wire.cluster import Cluster, TopicMetadata
from exactlog.client.wire.connection import WireConnection
from exactlog.client.wire.produce_exchange import FIRST_VERSION_WITH_ZSTD, detail_of, exchange_produce
from exactlog.client.wire.record_distributor import RecordDistributor
from exactlog.client.wire.refusals import as_error_code, check, refusal
from exactlog.client.wire.retries import retry
from exactlog.core.codec.compression import Compression
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import ExactlogError, KafkaError, UnsupportedError
from exactlog.core.model.ids import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    Offset,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)
from exactlog.core.model.sequences import add_to_sequence
from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from exactlog.core.protocol.messages.produce import PartitionProduceData, PartitionProduceResponse
from exactlog.core.record.batch_builder import NewRecord, build_batch

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
    """The `Producer` port over the wire."""

    def __init__(self, cluster: Cluster, settings: ClientSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._distributor = RecordDistributor(cluster, settings)
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
        manner = Manner(acks, compression)

        async def produce_batch(place: TopicPartition, batch: Sequence[NewRecord]) -> Offset | None:
            return await self._append(place, batch, manner)

        return await self._distributor.produce(topic, records, produce_batch, partition=partition)

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

    # --- one batch -------------------------------------------------------------------------------------------

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
            at_least=FIRST_VERSION_WITH_ZSTD if manner.compression is Compression.ZSTD else 0,
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
