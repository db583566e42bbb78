"""The client of the wire adapter: one cluster, and the ports on it."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Self

from exactlog.client.ports import (
    ACKS_ALL,
    ClientSettings,
    ClusterDescription,
    ConsumedRecord,
    IsolationLevel,
    ListedOffset,
    ProducedRecord,
    ProducerIdentity,
    TopicDescription,
    TopicListing,
)
from exactlog.client.wire.addresses import Address
from exactlog.client.wire.admin import WireAdmin
from exactlog.client.wire.appender import WireAppender
from exactlog.client.wire.cluster import Cluster
from exactlog.client.wire.consumer import WireConsumer
from exactlog.client.wire.producer import WireProducer
from exactlog.core.codec.compression import Compression
from exactlog.core.deltalog.append_terms import Committed, Conflicted, PayloadDiffers, Unavailable
from exactlog.core.model.ids import Offset, TimestampMs, TopicPartition
from exactlog.core.record.batch_builder import NewRecord


class WireClient:
    """The `Client` port over the wire."""

    def __init__(self, bootstrap: Sequence[Address], settings: ClientSettings) -> None:
        self._cluster = Cluster(bootstrap, settings)
        self._admin = WireAdmin(self._cluster, settings)
        self._producer = WireProducer(self._cluster, settings)
        self._appender = WireAppender(self._cluster, settings)
        self._consumer = WireConsumer(self._cluster, self._admin, settings)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """See `Client`."""
        await self._cluster.close()

    async def describe_cluster(self) -> ClusterDescription:
        """See `Admin`."""
        return await self._admin.describe_cluster()

    async def list_topics(self, *, include_internal: bool = False) -> tuple[TopicListing, ...]:
        """See `Admin`."""
        return await self._admin.list_topics(include_internal=include_internal)

    async def describe_topic(self, name: str) -> TopicDescription:
        """See `Admin`."""
        return await self._admin.describe_topic(name)

    async def create_topic(
        self,
        name: str,
        *,
        partition_count: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> TopicListing:
        """See `Admin`."""
        return await self._admin.create_topic(
            name, partition_count=partition_count, replication_factor=replication_factor, configs=configs
        )

    async def delete_topic(self, name: str) -> None:
        """See `Admin`."""
        await self._admin.delete_topic(name)

    async def list_offsets(
        self,
        timestamps: Mapping[TopicPartition, TimestampMs],
        *,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, ListedOffset]:
        """See `Admin`."""
        return await self._admin.list_offsets(timestamps, isolation=isolation)

    async def delete_records(self, offsets: Mapping[TopicPartition, Offset]) -> dict[TopicPartition, Offset]:
        """See `Admin`."""
        return await self._admin.delete_records(offsets)

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
        return await self._producer.produce(topic, records, partition=partition, acks=acks, compression=compression)

    async def append(
        self,
        topic: str,
        partition: int,
        records: Sequence[NewRecord],
        *,
        expected_version: int | None = None,
        txn_id: str | None = None,
        compression: Compression = Compression.NONE,
    ) -> Committed | Conflicted | PayloadDiffers | Unavailable:
        """See `Producer`."""
        return await self._appender.append(
            TopicPartition(topic, partition),
            records,
            expected_version=expected_version,
            txn_id=txn_id,
            compression=compression,
        )

    async def init_producer_id(self) -> ProducerIdentity:
        """See `Producer`."""
        return await self._producer.init_producer_id()

    def consume(
        self,
        starts: Mapping[TopicPartition, Offset],
        *,
        ends: Mapping[TopicPartition, Offset] | None = None,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        include_control: bool = False,
    ) -> AsyncIterator[ConsumedRecord]:
        """See `Consumer`."""
        return self._consumer.consume(starts, ends=ends, isolation=isolation, include_control=include_control)
