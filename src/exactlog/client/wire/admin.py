"""Topics, the cluster, offsets by time, and where logs begin."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar
from uuid import UUID

from exactlog.client.ports import (
    BrokerAddress,
    ClientSettings,
    ClusterDescription,
    ConfigEntry,
    ConfigSource,
    IsolationLevel,
    ListedOffset,
    LogDirectory,
    TopicDescription,
    TopicListing,
)
from exactlog.client.wire.cluster import Cluster, TopicMetadata, has_topic_id, topic_refusal
from exactlog.client.wire.connection import WireConnection
from exactlog.client.wire.leaders import ask_leaders
from exactlog.client.wire.refusals import as_error_code, check, refusal, the_only
from exactlog.client.wire.retries import retry
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import ExactlogError, KafkaError, NotFoundError
from exactlog.core.model.ids import ZERO_UUID, BrokerId, LeaderEpoch, Offset, TimestampMs, TopicPartition
from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from exactlog.core.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from exactlog.core.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from exactlog.core.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from exactlog.core.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from exactlog.core.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from exactlog.core.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from exactlog.core.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

Result = TypeVar("Result")

_TOPIC_RESOURCE: Final = 2
_SET: Final = 0
_DELETE: Final = 1
_CONSUMER_REPLICA_ID: Final = -1


class WireAdmin:
    """The `Admin` port over the wire."""

    def __init__(self, cluster: Cluster, settings: ClientSettings) -> None:
        self._cluster = cluster
        self._settings = settings

    async def describe_cluster(self) -> ClusterDescription:
        """See `Admin`."""
        response = await self._retry("describe the cluster", lambda: self._cluster.metadata(()))
        return ClusterDescription(
            cluster_id=response.cluster_id,
            controller_id=BrokerId(response.controller_id) if response.controller_id >= 0 else None,
            brokers=tuple(
                BrokerAddress(BrokerId(broker.node_id), broker.host, broker.port, broker.rack)
                for broker in sorted(response.brokers, key=lambda broker: broker.node_id)
            ),
        )

    async def list_topics(self, *, include_internal: bool = False) -> tuple[TopicListing, ...]:
        """See `Admin`."""
        response = await self._retry("list topics", lambda: self._cluster.metadata(None))
        listings = (
            TopicListing(topic.name or "", _id_or_none(topic.topic_id), len(topic.partitions), topic.is_internal)
            for topic in response.topics
            if include_internal or not topic.is_internal
        )
        return tuple(sorted(listings, key=lambda listing: listing.name))

    async def describe_topic(self, name: str) -> TopicDescription:
        """See `Admin`."""

        async def attempt() -> TopicDescription:
            self._cluster.forget(name)
            topic = await self._cluster.topic(name)
            return TopicDescription(
                name=name,
                topic_id=_id_or_none(topic.listing.topic_id),
                is_internal=topic.listing.is_internal,
                partitions=topic.partitions,
                configs=await self._describe_configs(name),
            )

        return await self._retry(f"describe topic {name}", attempt)

    async def create_topic(
        self,
        name: str,
        *,
        partition_count: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> TopicListing:
        """See `Admin`."""
        what = f"create topic {name}"
        topic = CreatableTopic(
            name=name,
            num_partitions=partition_count,
            replication_factor=replication_factor,
            configs=tuple(CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()),
        )
        needs_defaults = -1 in {partition_count, replication_factor}

        async def attempt() -> None:
            connection = await self._cluster.controller_connection()
            # From version 4 on the broker has defaults for -1 (KIP-464).
            version = connection.versions.pick(ApiKey.CREATE_TOPICS, at_least=4 if needs_defaults else 0)
            request = CreateTopicsRequest(topics=(topic,), timeout_ms=self._settings.request_timeout_ms)
            response = await connection.request(request, CreateTopicsResponse, version=version)
            result = the_only(response.topics, what)
            self._check(result.error_code, what, result.error_message)

        await self._retry(what, attempt)
        return await self._retry(f"wait for topic {name}", lambda: self._find_ready(name))

    async def delete_topic(self, name: str) -> None:
        """See `Admin`."""
        what = f"delete topic {name}"

        async def attempt() -> None:
            connection = await self._cluster.controller_connection()
            version = connection.versions.pick(ApiKey.DELETE_TOPICS)
            timeout_ms = self._settings.request_timeout_ms
            request = (
                DeleteTopicsRequest(topics=(DeleteTopicState(name=name),), timeout_ms=timeout_ms)
                if version >= 6
                else DeleteTopicsRequest(topic_names=(name,), timeout_ms=timeout_ms)
            )
            response = await connection.request(request, DeleteTopicsResponse, version=version)
            result = the_only(response.responses, what)
            self._check_topic(name, result.error_code, what, result.error_message)

        await self._retry(what, attempt)
        self._cluster.forget(name)

    async def create_partitions(self, name: str, partition_count: int) -> TopicListing:
        """See `Admin`."""
        what = f"let topic {name} have {partition_count} partitions"
        topic = CreatePartitionsTopic(name=name, count=partition_count, assignments=None)

        async def attempt() -> None:
            connection = await self._cluster.controller_connection()
            version = connection.versions.pick(ApiKey.CREATE_PARTITIONS)
            request = CreatePartitionsRequest(topics=(topic,), timeout_ms=self._settings.request_timeout_ms)
            response = await connection.request(request, CreatePartitionsResponse, version=version)
            result = the_only(response.results, what)
            self._check_topic(name, result.error_code, what, result.error_message)

        async def grown() -> TopicListing:
            found = await self._find_ready(name)
            if found.partition_count < partition_count:  # the news is still on its way
                raise refusal(ErrorCode.LEADER_NOT_AVAILABLE, f"wait for the partitions of topic {name}")
            return found

        await self._retry(what, attempt)
        return await self._retry(f"wait for the partitions of topic {name}", grown)

    async def alter_topic_configs(self, name: str, changes: Mapping[str, str | None]) -> None:
        """See `Admin`."""
        what = f"alter the settings of topic {name}"
        configs = tuple(
            AlterableConfig(name=key, config_operation=_DELETE if value is None else _SET, value=value)
            for key, value in changes.items()
        )
        resource = AlterConfigsResource(resource_type=_TOPIC_RESOURCE, resource_name=name, configs=configs)

        async def attempt() -> None:
            connection = await self._cluster.controller_connection()
            version = connection.versions.pick(ApiKey.INCREMENTAL_ALTER_CONFIGS)
            request = IncrementalAlterConfigsRequest(resources=(resource,))
            response = await connection.request(request, IncrementalAlterConfigsResponse, version=version)
            result = the_only(response.responses, what)
            self._check_topic(name, result.error_code, what, result.error_message)

        await self._retry(what, attempt)

    async def describe_log_dirs(self) -> tuple[LogDirectory, ...]:
        """See `Admin`."""

        async def attempt() -> tuple[LogDirectory, ...]:
            found: list[LogDirectory] = []
            for broker_id, connection in (await self._cluster.every_connection()).items():
                version = connection.versions.pick(ApiKey.DESCRIBE_LOG_DIRS)
                request = DescribeLogDirsRequest(topics=None)
                response = await connection.request(request, DescribeLogDirsResponse, version=version)
                check(response.error_code, "describe log directories")
                for result in response.results:
                    check(result.error_code, f"describe log directory {result.log_dir}")
                    found.append(_log_directory(broker_id, result))
            return tuple(found)

        return await self._retry("describe log directories", attempt)

    async def list_offsets(
        self,
        timestamps: Mapping[TopicPartition, TimestampMs],
        *,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, ListedOffset]:
        """See `Admin`."""
        found: dict[TopicPartition, ListedOffset] = {}

        async def ask(connection: WireConnection, places: Sequence[TopicPartition]) -> list[KafkaError]:
            asked = {place: timestamps[place] for place in places}
            return await self._list_offsets_of(connection, asked, isolation, found)

        await ask_leaders(self._cluster, "list offsets", timestamps, found, ask, settings=self._settings)
        return found

    async def delete_records(self, offsets: Mapping[TopicPartition, Offset]) -> dict[TopicPartition, Offset]:
        """See `Admin`."""
        low_watermarks: dict[TopicPartition, Offset] = {}

        async def ask(connection: WireConnection, places: Sequence[TopicPartition]) -> list[KafkaError]:
            asked = {place: offsets[place] for place in places}
            return await self._delete_records_of(connection, asked, low_watermarks)

        try:
            await ask_leaders(self._cluster, "delete records", offsets, low_watermarks, ask, settings=self._settings)
        except ExactlogError as error:
            if len(offsets) > 1:
                told = f"the records of {len(low_watermarks)} of {len(offsets)} partitions were deleted for certain"
                error.hint = f"{error.hint}; {told}" if error.hint else told
            raise
        return low_watermarks

    # -----------------------------------------------------------------------------------------------------------

    async def _retry(self, what: str, attempt: Callable[[], Awaitable[Result]]) -> Result:
        return await retry(what, attempt, self._settings)

    def _check(self, error_code: int, what: str, detail: str | None) -> None:
        if as_error_code(error_code) is ErrorCode.NOT_CONTROLLER:
            self._cluster.forget()
        check(error_code, what, detail)

    def _check_topic(self, name: str, error_code: int, what: str, detail: str | None) -> None:
        if as_error_code(error_code) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise topic_refusal(name, error_code)
        self._check(error_code, what, detail)

    async def _find_ready(self, name: str) -> TopicListing:
        """The topic, once every broker asked knows it and each of its partitions has a leader."""
        self._cluster.forget(name)
        try:
            topic = await self._cluster.topic(name)
        except NotFoundError as error:  # the news is still on its way
            raise refusal(ErrorCode.LEADER_NOT_AVAILABLE, f"wait for topic {name}", str(error)) from error
        if any(partition.leader_id is None for partition in topic.partitions):
            raise refusal(ErrorCode.LEADER_NOT_AVAILABLE, f"wait for topic {name}")
        return _listing(topic)

    async def _describe_configs(self, name: str) -> tuple[ConfigEntry, ...]:
        connection = await self._cluster.any_connection()
        if not connection.versions.serves(ApiKey.DESCRIBE_CONFIGS):
            return ()
        resource = DescribeConfigsResource(resource_type=_TOPIC_RESOURCE, resource_name=name, configuration_keys=None)
        version = connection.versions.pick(ApiKey.DESCRIBE_CONFIGS)
        response = await connection.request(
            DescribeConfigsRequest(resources=(resource,)), DescribeConfigsResponse, version=version
        )
        what = f"describe the settings of topic {name}"
        result = the_only(response.results, what)
        check(result.error_code, what, result.error_message)
        entries = (_config_entry(config, version=version) for config in result.configs)
        return tuple(sorted(entries, key=lambda entry: entry.name))

    async def _list_offsets_of(
        self,
        connection: WireConnection,
        timestamps: Mapping[TopicPartition, TimestampMs],
        isolation: IsolationLevel,
        found: dict[TopicPartition, ListedOffset],
    ) -> list[KafkaError]:
        """Ask one leader; what it knows goes into `found`, what it refuses is given back."""
        # Version 1 is the first with one offset each, version 2 the first with an isolation level.
        version = connection.versions.pick(ApiKey.LIST_OFFSETS, at_least=1 + (isolation > 0))
        request = _list_offsets_request(timestamps, isolation)
        response = await connection.request(request, ListOffsetsResponse, version=version)
        errors = []
        for topic in response.topics:
            for partition in topic.partitions:
                place = TopicPartition(topic.name, partition.partition_index)
                if partition.error_code:
                    self._cluster.forget(place.topic)
                    errors.append(refusal(partition.error_code, f"list offsets of {place}"))
                else:
                    found[place] = _listed_offset(partition)
        return errors

    async def _delete_records_of(
        self,
        connection: WireConnection,
        offsets: Mapping[TopicPartition, Offset],
        low_watermarks: dict[TopicPartition, Offset],
    ) -> list[KafkaError]:
        """Ask one leader; where logs begin now goes into `low_watermarks`, what it refuses is given back."""
        version = connection.versions.pick(ApiKey.DELETE_RECORDS)
        request = _delete_records_request(offsets, timeout_ms=self._settings.request_timeout_ms)
        response = await connection.request(request, DeleteRecordsResponse, version=version)
        errors = []
        for topic in response.topics:
            for partition in topic.partitions:
                place = TopicPartition(topic.name, partition.partition_index)
                if partition.error_code:
                    self._cluster.forget(place.topic)
                    errors.append(refusal(partition.error_code, f"delete records of {place}"))
                else:
                    low_watermarks[place] = Offset(partition.low_watermark)
        return errors


def _id_or_none(topic_id: UUID) -> UUID | None:
    return None if topic_id == ZERO_UUID else topic_id


def _listing(topic: TopicMetadata) -> TopicListing:
    topic_id = topic.listing.topic_id if has_topic_id(topic) else None
    return TopicListing(topic.name, topic_id, len(topic.partitions), topic.listing.is_internal)


def _config_entry(config: DescribeConfigsResourceResult, *, version: int) -> ConfigEntry:
    return ConfigEntry(
        name=config.name,
        value=config.value,
        source=_source_of(config, version=version),
        is_read_only=config.read_only,
        is_sensitive=config.is_sensitive,
    )


def _source_of(config: DescribeConfigsResourceResult, *, version: int) -> ConfigSource:
    """Version 0 tells only whether it is set on the topic; a source that nobody knows yet is unknown."""
    if version == 0:
        return ConfigSource.DEFAULT_CONFIG if config.is_default else ConfigSource.DYNAMIC_TOPIC_CONFIG
    try:
        return ConfigSource(config.config_source)
    except ValueError:
        return ConfigSource.UNKNOWN


def _log_directory(broker_id: BrokerId, result: DescribeLogDirsResult) -> LogDirectory:
    return LogDirectory(
        broker_id=broker_id,
        path=result.log_dir,
        bytes_total=None if result.total_bytes < 0 else result.total_bytes,
        bytes_usable=None if result.usable_bytes < 0 else result.usable_bytes,
        partitions={
            TopicPartition(topic.name, partition.partition_index): partition.partition_size
            for topic in result.topics
            for partition in topic.partitions
        },
    )


def _listed_offset(partition: ListOffsetsPartitionResponse) -> ListedOffset:
    return ListedOffset(
        offset=None if partition.offset < 0 else Offset(partition.offset),
        timestamp_ms=TimestampMs(partition.timestamp),
        leader_epoch=LeaderEpoch(partition.leader_epoch),
    )


def _list_offsets_request(
    timestamps: Mapping[TopicPartition, TimestampMs], isolation: IsolationLevel
) -> ListOffsetsRequest:
    by_topic: defaultdict[str, list[ListOffsetsPartition]] = defaultdict(list)
    for place, timestamp_ms in timestamps.items():
        by_topic[place.topic].append(ListOffsetsPartition(partition_index=place.partition, timestamp=timestamp_ms))
    topics = (ListOffsetsTopic(name=name, partitions=tuple(asked)) for name, asked in by_topic.items())
    return ListOffsetsRequest(replica_id=_CONSUMER_REPLICA_ID, isolation_level=isolation, topics=tuple(topics))


def _delete_records_request(offsets: Mapping[TopicPartition, Offset], *, timeout_ms: int) -> DeleteRecordsRequest:
    by_topic: defaultdict[str, list[DeleteRecordsPartition]] = defaultdict(list)
    for place, offset in offsets.items():
        by_topic[place.topic].append(DeleteRecordsPartition(partition_index=place.partition, offset=offset))
    topics = (DeleteRecordsTopic(name=name, partitions=tuple(asked)) for name, asked in by_topic.items())
    return DeleteRecordsRequest(topics=tuple(topics), timeout_ms=timeout_ms)
