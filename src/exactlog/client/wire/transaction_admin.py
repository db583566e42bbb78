"""Transactions, seen from outside, and ended from there (KIP-664)."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from exactlog.client.ports import ClientSettings
from exactlog.client.produced import ProducerIdentity
from exactlog.client.transactions import ActiveProducer, TransactionDescription, TransactionListing
from exactlog.client.wire.addresses import Address
from exactlog.client.wire.cluster import Cluster
from exactlog.client.wire.connection import WireConnection
from exactlog.client.wire.coordinators import Coordinators
from exactlog.client.wire.leaders import ask_leaders
from exactlog.client.wire.refusals import as_error_code, check, refusal
from exactlog.client.wire.retries import retry
from exactlog.client.wire.transaction_descriptions import (
    IDS_PER_REQUEST_MAX,
    describe_once,
    describe_with_coordinator,
)
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import KafkaError
from exactlog.core.model.ids import Offset, ProducerEpoch, ProducerId, TimestampMs, TopicPartition
from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.messages import describe_producers
from exactlog.core.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopic,
)
from exactlog.core.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from exactlog.core.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from exactlog.core.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_FIRST_LIST_WITH_DURATION: Final = 1
_FIRST_LIST_WITH_PATTERN: Final = 2


class WireTransactionAdmin:
    """The `TransactionAdmin` port over the wire."""

    def __init__(self, cluster: Cluster, coordinators: Coordinators, settings: ClientSettings) -> None:
        self._cluster = cluster
        self._coordinators = coordinators
        self._settings = settings

    async def list_transactions(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        open_for_ms_min: int | None = None,
        id_pattern: str | None = None,
    ) -> tuple[TransactionListing, ...]:
        """See `TransactionAdmin`."""
        what = "list transactions"
        at_least = 0 if open_for_ms_min is None else _FIRST_LIST_WITH_DURATION
        at_least = at_least if id_pattern is None else _FIRST_LIST_WITH_PATTERN
        request = ListTransactionsRequest(
            state_filters=tuple(states),
            producer_id_filters=tuple(producer_ids),
            duration_filter=-1 if open_for_ms_min is None else open_for_ms_min,
            transactional_id_pattern=id_pattern,
        )

        async def attempt() -> tuple[TransactionListing, ...]:
            found: dict[str, TransactionListing] = {}
            for broker_id, connection in (await self._cluster.every_connection()).items():
                version = connection.versions.pick(ApiKey.LIST_TRANSACTIONS, at_least=at_least)
                response = await connection.request(request, ListTransactionsResponse, version=version)
                check(response.error_code, what)
                if response.unknown_state_filters:
                    unknown = ", ".join(response.unknown_state_filters)
                    raise refusal(ErrorCode.INVALID_REQUEST, what, f"the broker does not know the state {unknown}")
                for listed in response.transaction_states:
                    transactional_id = listed.transactional_id
                    self._coordinators.remember(transactional_id, connection.address)
                    found[transactional_id] = TransactionListing(
                        transactional_id, ProducerId(listed.producer_id), listed.transaction_state, broker_id
                    )
            return tuple(found[transactional_id] for transactional_id in sorted(found))

        return await retry(what, attempt, self._settings)

    async def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        """See `TransactionAdmin`."""
        return await describe_with_coordinator(self._coordinators, transactional_id, settings=self._settings)

    async def describe_transactions(self, transactional_ids: Collection[str]) -> dict[str, TransactionDescription]:
        """See `TransactionAdmin`."""
        told: dict[str, TransactionDescription | None] = {}

        async def attempt() -> None:
            by_address: defaultdict[Address, list[str]] = defaultdict(list)
            for transactional_id in sorted(set(transactional_ids) - told.keys()):
                by_address[await self._coordinators.address(transactional_id)].append(transactional_id)
            for asked in by_address.values():
                for position in range(0, len(asked), IDS_PER_REQUEST_MAX):
                    told.update(
                        await describe_once(self._coordinators, asked[position : position + IDS_PER_REQUEST_MAX])
                    )

        await retry("describe transactions", attempt, self._settings)
        return {transactional_id: found for transactional_id, found in sorted(told.items()) if found is not None}

    async def describe_producers(
        self, places: Collection[TopicPartition]
    ) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
        """See `TransactionAdmin`."""
        found: dict[TopicPartition, tuple[ActiveProducer, ...]] = {}

        async def ask(connection: WireConnection, asked: Sequence[TopicPartition]) -> list[KafkaError]:
            version = connection.versions.pick(ApiKey.DESCRIBE_PRODUCERS)
            request = DescribeProducersRequest(topics=_topics_to_describe(asked))
            response = await connection.request(request, DescribeProducersResponse, version=version)
            errors = []
            for topic in response.topics:
                for partition in topic.partitions:
                    place = TopicPartition(topic.name, partition.partition_index)
                    if partition.error_code:
                        self._cluster.forget(place.topic)
                        what = f"describe the producers of {place}"
                        errors.append(refusal(partition.error_code, what, partition.error_message))
                    else:
                        producers = map(_active_producer, partition.active_producers)
                        found[place] = tuple(sorted(producers, key=lambda producer: producer.producer_id))
            return errors

        await ask_leaders(self._cluster, "describe producers", places, found, ask, settings=self._settings)
        return found

    async def fence_producers(self, transactional_id: str, *, timeout_ms: int) -> ProducerIdentity:
        """See `TransactionAdmin`."""
        what = f"fence the producer of {transactional_id}"
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)

        async def attempt() -> ProducerIdentity:
            connection = await self._coordinators.connection(transactional_id)
            version = connection.versions.pick(ApiKey.INIT_PRODUCER_ID)
            response = await self._coordinators.request(
                transactional_id, request, InitProducerIdResponse, version=version
            )
            self._coordinators.check(transactional_id, response.error_code, what)
            return ProducerIdentity(ProducerId(response.producer_id), ProducerEpoch(response.producer_epoch))

        return await retry(what, attempt, self._settings)

    async def write_abort_marker(
        self, place: TopicPartition, *, producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> None:
        """See `TransactionAdmin`."""
        what = f"abort the transaction of producer {producer_id} in {place}"
        topic = WritableTxnMarkerTopic(name=place.topic, partition_indexes=(place.partition,))
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_result=False,
            topics=(topic,),
            coordinator_epoch=coordinator_epoch,
            transaction_version=0,  # the marker's epoch is that of the records: no later one is known here
        )
        done: dict[TopicPartition, bool] = {}

        async def ask(connection: WireConnection, _: Sequence[TopicPartition]) -> list[KafkaError]:
            version = connection.versions.pick(ApiKey.WRITE_TXN_MARKERS)
            request = WriteTxnMarkersRequest(markers=(marker,))
            response = await connection.request(request, WriteTxnMarkersResponse, version=version)
            errors = []
            for code, answered in _marker_results(response):
                if as_error_code(code) is not ErrorCode.NONE:
                    self._cluster.forget(place.topic)
                    errors.append(refusal(code, what))
                else:
                    done[answered] = True
            return errors

        await ask_leaders(self._cluster, what, (place,), done, ask, settings=self._settings)


def _topics_to_describe(places: Iterable[TopicPartition]) -> tuple[DescribeProducersTopic, ...]:
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for place in places:
        by_topic[place.topic].append(place.partition)
    return tuple(DescribeProducersTopic(name=name, partition_indexes=tuple(found)) for name, found in by_topic.items())


def _active_producer(told: describe_producers.ActiveProducer) -> ActiveProducer:
    return ActiveProducer(
        producer_id=ProducerId(told.producer_id),
        producer_epoch=ProducerEpoch(told.producer_epoch),
        last_sequence=told.last_sequence if told.last_sequence >= 0 else None,
        last_timestamp_ms=TimestampMs(told.last_timestamp) if told.last_timestamp >= 0 else None,
        coordinator_epoch=told.coordinator_epoch if told.coordinator_epoch >= 0 else None,
        txn_start_offset=Offset(told.current_txn_start_offset) if told.current_txn_start_offset >= 0 else None,
    )


def _marker_results(response: WriteTxnMarkersResponse) -> Iterable[tuple[int, TopicPartition]]:
    for marker in response.markers:
        for topic in marker.topics:
            for partition in topic.partitions:
                yield partition.error_code, TopicPartition(topic.name, partition.partition_index)
