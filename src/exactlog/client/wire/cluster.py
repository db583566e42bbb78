"""The cluster as the client knows it: where brokers are, who leads which partition, and connections to them."""

import asyncio
from collections.abc import Iterable, Sequence
from enum import Enum

import msgspec

from exactlog.client.ports import ClientSettings, PartitionDescription
from exactlog.client.wire.addresses import Address
from exactlog.client.wire.broker_versions import VERSION_MAX, BrokerVersions
from exactlog.client.wire.connection import WireConnection
from exactlog.client.wire.refusals import as_error_code, check, refusal
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import KafkaError, NotFoundError, UnavailableError
from exactlog.core.model.ids import ZERO_UUID, BrokerId, LeaderEpoch, TopicPartition
from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


class Lane(Enum):
    """A request that waits long holds up what comes behind it on a connection, and so has one of its own.

    FETCH waits for records, GROUP for the other members.
    """

    GENERAL = "general"
    FETCH = "fetch"
    GROUP = "group"


class TopicMetadata(msgspec.Struct, frozen=True):
    """What is known of a topic; `topic_id` is all zeros where the broker gives none."""

    listing: MetadataResponseTopic
    partitions: tuple[PartitionDescription, ...]

    @property
    def name(self) -> str:
        """The topic's name."""
        return self.listing.name or ""


class Cluster:
    """One cluster, found through the addresses of some of its brokers."""

    def __init__(self, bootstrap: Sequence[Address], settings: ClientSettings) -> None:
        self._bootstrap = tuple(bootstrap)
        self._settings = settings
        self._brokers: dict[BrokerId, Address] = {}
        self._controller_id: BrokerId | None = None
        self._topics: dict[str, TopicMetadata] = {}
        self._connections: dict[tuple[Address, Lane], WireConnection] = {}
        self._connecting: dict[tuple[Address, Lane], asyncio.Lock] = {}
        self._is_closed = False

    # --- connections -----------------------------------------------------------------------------------------

    async def any_connection(self) -> WireConnection:
        """A connection to some broker: one that is open, else the first that can be opened.

        Raises:
            UnavailableError: no broker can be reached; all reasons are named.
        """
        for (_, lane), connection in self._connections.items():
            if lane is Lane.GENERAL and not connection.is_closed:
                return connection
        failures = []
        for address in dict.fromkeys((*self._brokers.values(), *self._bootstrap)):
            try:
                return await self._connect(address, Lane.GENERAL)
            except UnavailableError as error:
                failures.append(error)
        raise UnavailableError("; ".join(map(str, failures)), hint=failures[-1].hint)

    async def connection_to(self, broker_id: BrokerId, lane: Lane = Lane.GENERAL) -> WireConnection:
        """A connection to that broker.

        Raises:
            UnavailableError: it cannot be reached, or nobody knows it any more; what was known is forgotten.
        """
        address = self._brokers.get(broker_id)
        if address is None:
            self.forget()
            raise UnavailableError(f"broker {broker_id} is not a member of the cluster")
        try:
            return await self._connect(address, lane)
        except UnavailableError as error:
            self.forget()
            raise UnavailableError(
                f"broker {broker_id} at {address}, as the cluster advertises it: {error}", hint=error.hint
            ) from error

    async def every_connection(self) -> dict[BrokerId, WireConnection]:
        """A connection to each broker that the cluster has now, for what each of them knows alone."""
        await self.metadata(())
        return {broker_id: await self.connection_to(broker_id) for broker_id in sorted(self._brokers)}

    async def connection_at(self, address: Address, lane: Lane) -> WireConnection:
        """A connection to the broker at that address, wherever that is known from.

        Raises:
            UnavailableError: it cannot be reached.
        """
        return await self._connect(address, lane)

    async def controller_connection(self) -> WireConnection:
        """A connection to the controller, for changes of topics; to any broker where there is no controller."""
        if self._controller_id is None:
            await self.metadata(())
        if self._controller_id is None:
            return await self.any_connection()
        return await self.connection_to(self._controller_id)

    async def close(self) -> None:
        """Close every connection, also one that is being opened by somebody else just now."""
        self._is_closed = True
        connections, self._connections = self._connections, {}
        for connection in connections.values():  # at once: whoever closes may be cancelled while it waits
            connection.give_up()
        await asyncio.gather(*(connection.close() for connection in connections.values()))

    async def _connect(self, address: Address, lane: Lane) -> WireConnection:
        key = (address, lane)
        async with self._connecting.setdefault(key, asyncio.Lock()):
            connection = self._connections.get(key)
            if connection is not None and not connection.is_closed:
                return connection
            if connection is not None:
                await connection.close()
            connection = await WireConnection.open(address, self._settings)
            if self._is_closed:
                await connection.close()
                raise UnavailableError(f"{address}: the client is closed")
            self._connections[key] = connection
            return connection

    # --- metadata --------------------------------------------------------------------------------------------

    async def metadata(self, names: Iterable[str] | None, *, may_create: bool = False) -> MetadataResponse:
        """Ask some broker for the cluster and for these topics, None being all; remember what it says.

        Raises:
            UnavailableError: no broker can be reached.
            KafkaError: it refused.
        """
        connection = await self.any_connection()
        version = connection.versions.pick(ApiKey.METADATA)
        request = _metadata_request(version, names, may_create=may_create)
        response = await connection.request(request, MetadataResponse, version=version)
        check(response.error_code, f"{connection.address}: ask for metadata")
        self._brokers = {
            BrokerId(broker.node_id): Address(broker.host, broker.port) for broker in response.brokers
        } or self._brokers
        self._controller_id = BrokerId(response.controller_id) if response.controller_id >= 0 else None
        for topic in response.topics:
            if topic.name is not None and not topic.error_code:
                self._topics[topic.name] = describe(topic)
        return response

    async def topic(self, name: str, *, may_create: bool = False) -> TopicMetadata:
        """The topic, as remembered or asked for.

        Raises:
            NotFoundError: there is no such topic.
            KafkaError: it cannot be told, or not yet.
        """
        known = self._topics.get(name)
        if known is not None:
            return known
        response = await self.metadata([name], may_create=may_create)
        for topic in response.topics:
            if topic.name == name:
                if not topic.error_code:
                    return self._topics[name]
                raise topic_refusal(name, topic.error_code)
        raise topic_refusal(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    async def leader_of(self, place: TopicPartition, *, may_create: bool = False) -> BrokerId:
        """Who leads the partition.

        Raises:
            NotFoundError: there is no such topic or partition.
            KafkaError: LEADER_NOT_AVAILABLE; what was known of the topic is forgotten.
        """
        topic = await self.topic(place.topic, may_create=may_create)
        partition = next((found for found in topic.partitions if found.partition == place.partition), None)
        if partition is None:
            raise NotFoundError(
                f"topic {place.topic} has {len(topic.partitions)} partitions; there is no partition {place.partition}",
                kafka_error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
        if partition.leader_id is None:
            self.forget(place.topic)
            raise refusal(ErrorCode.LEADER_NOT_AVAILABLE, f"find the leader of {place}")
        return partition.leader_id

    def forget(self, topic: str | None = None) -> None:
        """Ask again next time: for that topic, or for everything and the controller too."""
        if topic is not None:
            self._topics.pop(topic, None)
        else:
            self._topics.clear()
            self._controller_id = None


def describe(topic: MetadataResponseTopic) -> TopicMetadata:
    """A topic as it came, with its partitions in order."""
    partitions = sorted(topic.partitions, key=lambda partition: partition.partition_index)
    return TopicMetadata(topic, tuple(map(_describe_partition, partitions)))


def topic_refusal(name: str, error_code: int) -> KafkaError | NotFoundError:
    """The exception for a topic that has an error code."""
    code = as_error_code(error_code)
    if code in {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}:
        return NotFoundError(
            f"topic {name} does not exist",
            kafka_error=code,
            hint=f"`exactlog topic list` shows the topics, `exactlog topic create {name}` creates it",
        )
    return refusal(error_code, f"find topic {name}")


def has_topic_id(topic: TopicMetadata) -> bool:
    """Whether the broker gave the topic an id, so that requests may name it by that."""
    return topic.listing.topic_id != ZERO_UUID


def pick_by_topic_id(
    versions: BrokerVersions,
    api_key: ApiKey,
    topics: Iterable[TopicMetadata],
    *,
    names_until: int,
    at_least: int = 0,
    at_most: int = VERSION_MAX,
) -> int:
    """The highest version to speak, not above `names_until`, the last with names, unless every topic has an id."""
    if not all(map(has_topic_id, topics)):
        at_most = min(at_most, names_until)
    return versions.pick(api_key, at_least=at_least, at_most=at_most)


def _describe_partition(partition: MetadataResponsePartition) -> PartitionDescription:
    return PartitionDescription(
        partition=partition.partition_index,
        leader_id=BrokerId(partition.leader_id) if partition.leader_id >= 0 else None,
        leader_epoch=LeaderEpoch(partition.leader_epoch),
        replicas=tuple(map(BrokerId, partition.replica_nodes)),
        in_sync_replicas=tuple(map(BrokerId, partition.isr_nodes)),
        offline_replicas=tuple(map(BrokerId, partition.offline_replicas)),
    )


def _metadata_request(version: int, names: Iterable[str] | None, *, may_create: bool) -> MetadataRequest:
    topics = None if names is None else tuple(MetadataRequestTopic(name=name) for name in names)
    if version == 0 and topics is None:
        topics = ()  # all of them, in that version
    # Before version 4 the broker creates what it is asked for whenever its settings let it.
    return MetadataRequest(topics=topics, allow_auto_topic_creation=may_create or version < 4)
