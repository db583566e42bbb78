"""Appending on terms: all records as one batch, in one delta version, if the terms hold.

The terms travel in a tagged field that only a broker with the feature `exactlog.append` understands; no other is sent
any, since it would append the records without looking at them.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from exactlog.client.ports import ACKS_ALL, ClientSettings
from exactlog.client.wire.cluster import Cluster, TopicMetadata
from exactlog.client.wire.connection import WireConnection
from exactlog.client.wire.produce_exchange import detail_of, exchange_produce
from exactlog.client.wire.record_distributor import stamp
from exactlog.client.wire.refusals import as_error_code, refusal
from exactlog.client.wire.retries import retry
from exactlog.core.codec.compression import Compression
from exactlog.core.deltalog.append_terms import Committed, Conflicted, PayloadDiffers, Unavailable
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import (
    DecodeError,
    EncodeError,
    ExactlogError,
    KafkaError,
    UnavailableError,
    UnsupportedError,
)
from exactlog.core.model.ids import TopicPartition
from exactlog.core.protocol.messages.produce import (
    APPEND_FEATURE,
    APPEND_FEATURE_LEVEL,
    NO_DELTA_VERSION,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceTerms,
)
from exactlog.core.record.batch_builder import NewRecord, build_batch
from exactlog.core.record.payload_crc import payload_crc

Appended = Committed | Conflicted | PayloadDiffers

_FIRST_VERSION_WITH_TERMS: Final = 9

_PERHAPS_APPENDED: Final = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})


class _Append(msgspec.Struct, frozen=True):
    """One append as it is sent, however often."""

    place: TopicPartition
    batch: bytearray
    record_count: int
    terms: ProduceTerms

    @property
    def is_repeatable(self) -> bool:
        """Whether the broker knows it again, and tells its first result."""
        return self.terms.txn_id is not None


class WireAppender:
    """`Producer.append` over the wire."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ClientSettings,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._now_ms = now_ms

    async def append(
        self,
        topic: str,
        partition: int,
        records: Sequence[NewRecord],
        *,
        expected_version: int | None = None,
        txn_id: str | None = None,
        compression: Compression = Compression.NONE,
    ) -> Appended | Unavailable:
        """See `Producer`."""
        place = TopicPartition(topic, partition)
        if expected_version is not None and expected_version < 0:
            raise ValueError(f"expected_version is {expected_version}; the first delta version is 0")
        terms = ProduceTerms(
            expected_version=NO_DELTA_VERSION if expected_version is None else expected_version,
            txn_id=txn_id,
            payload_crc=int(payload_crc(records), 16),
        )
        now_ms = self._now_ms()
        stamped = [stamp(record, now_ms=now_ms) for record in records]
        append = _Append(place, build_batch(stamped, compression=compression), len(records), terms)
        is_open = False  # whether an attempt ended without a word on what became of it

        async def attempt() -> Appended:
            nonlocal is_open
            leader_id = await self._cluster.leader_of(place)
            metadata = await self._cluster.topic(place.topic)
            connection = await self._cluster.connection_to(leader_id)
            connection.versions.check_feature(APPEND_FEATURE, level=APPEND_FEATURE_LEVEL)
            try:
                return self._outcome(await self._send(connection, metadata, append), append)
            except (KafkaError, UnsupportedError, EncodeError):
                raise  # the broker has said no, or was not asked
            except BaseException as error:  # of cancellation too
                is_open = True
                self._cluster.forget(place.topic)
                if isinstance(error, ExactlogError) and not append.is_repeatable:
                    error.retryable = False  # sent again it might meet itself
                raise

        try:
            return await retry(f"append to {place}", attempt, self._settings)
        except ExactlogError as error:
            if is_open:
                raise _outcome_unknown(append, error) from error
            if error.kafka_error is ErrorCode.KAFKA_STORAGE_ERROR:
                return Unavailable(str(error))
            raise

    async def _send(
        self, connection: WireConnection, topic: TopicMetadata, append: _Append
    ) -> PartitionProduceResponse:
        data = PartitionProduceData(index=append.place.partition, records=append.batch, terms=append.terms)
        answer = await exchange_produce(
            connection,
            topic,
            data,
            acks=ACKS_ALL,
            timeout_ms=self._settings.request_timeout_ms,
            at_least=_FIRST_VERSION_WITH_TERMS,
        )
        assert answer is not None, "acks=all is answered"
        return answer

    def _outcome(self, answer: PartitionProduceResponse, append: _Append) -> Appended:
        """What the broker says became of it.

        Raises:
            KafkaError: it was refused.
            UnavailableError: the broker itself does not know.
            DecodeError: the answer lacks the delta version.
        """
        what, version = f"append to {append.place}", answer.delta_version
        match as_error_code(answer.error_code):
            case ErrorCode.NONE if version != NO_DELTA_VERSION:
                return Committed(version, answer.base_offset, answer.base_offset + append.record_count - 1)
            case ErrorCode.NONE:
                raise DecodeError(f"{what}: the broker appended the records and did not say in which delta version")
            case ErrorCode.INVALID_UPDATE_VERSION if version != NO_DELTA_VERSION:
                return Conflicted(append.terms.expected_version, version)
            case ErrorCode.INVALID_REQUEST if version != NO_DELTA_VERSION:
                return PayloadDiffers(answer.error_message or what, version)
            case code if code in _PERHAPS_APPENDED:
                raise UnavailableError(f"{what}: {code.name}")
            case _:
                self._cluster.forget(append.place.topic)
                raise refusal(answer.error_code, what, detail_of(answer))


def _outcome_unknown(append: _Append, error: ExactlogError) -> UnavailableError:
    unknown = UnavailableError(
        f"append to {append.place}: outcome unknown: {error}",
        hint="append the same records under the same txn_id again: their first result is told, nothing is added twice"
        if append.is_repeatable
        else "whether the records were appended is not known; look before appending them again, or use a txn_id",
    )
    unknown.retryable = append.is_repeatable
    unknown.kafka_error = error.kafka_error
    return unknown
