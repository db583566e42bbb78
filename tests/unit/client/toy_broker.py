"""A toy cluster that speaks the protocol: what a broker must answer, told apart from what ours answers.

Every broker of it is a `TcpServer` of its own. A test may put scripted answers in front of the usual ones, and looks at
`requests` afterwards.
"""

import contextlib
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from exactlog.client.adapters import connect
from exactlog.client.ports import Client, ClientSettings
from exactlog.core.codec.message_codec import decode, encode
from exactlog.core.codec.wire_types import Versions
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import ZERO_UUID
from exactlog.core.model.metrics import Registry
from exactlog.core.protocol.api_keys import APIS, ApiKey
from exactlog.core.protocol.headers import decode_request_header, encode_response_header, response_header_version
from exactlog.core.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse, SupportedFeatureKey
from exactlog.core.protocol.messages.create_partitions import CreatePartitionsResponse, CreatePartitionsTopicResult
from exactlog.core.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from exactlog.core.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from exactlog.core.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from exactlog.core.protocol.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from exactlog.core.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from exactlog.core.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from exactlog.core.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from exactlog.core.protocol.messages.init_producer_id import InitProducerIdResponse
from exactlog.core.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from exactlog.core.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from exactlog.core.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    ProduceTerms,
    TopicProduceResponse,
)
from exactlog.core.record.batch_format import decode_header, iter_headers, place
from exactlog.network import Connection, NetworkLimits, Reply, TcpServer
from tests.unit.network.harness import ManualClock

SETTINGS = ClientSettings(deadline_ms=20_000, backoff_ms=1, backoff_ms_max=5, fetch_wait_ms_max=20)


class HangUpError(Exception):
    """Raised by a script: the connection closes without an answer."""


@dataclass
class ToyLog:
    """One partition."""

    leader_id: int
    batches: bytearray = field(default_factory=bytearray)
    log_start: int = 0
    log_end: int = 0
    last_stable_offset: int | None = None
    aborted: list[AbortedTransaction] = field(default_factory=list)
    version: int = 0
    txn_ids: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """By id: the checksum, the version and the first offset of what was appended under it."""

    def append(self, batch: bytes) -> int:
        """Give the batch its offset and keep it, once per producer, epoch and sequence."""
        stored = bytearray(batch)
        new = decode_header(stored)
        for _, old in iter_headers(self.batches):
            signature = (old.producer_id, old.producer_epoch, old.base_sequence)
            if new.has_producer_id and signature == (new.producer_id, new.producer_epoch, new.base_sequence):
                return old.base_offset
        base_offset = self.log_end
        place(stored, new, base_offset=base_offset, leader_epoch=0)
        self.batches += stored
        self.log_end = base_offset + new.last_offset_delta + 1
        return base_offset

    def append_on_terms(self, request, batch: bytes, terms: ProduceTerms) -> ProduceResponse:
        """Append if the terms hold; whoever comes again gets the first result."""
        crc, version, base_offset = self.txn_ids.get(terms.txn_id, (terms.payload_crc, None, 0))
        if crc != terms.payload_crc:
            error = "that id came before"
            return produced(request, error_code=ErrorCode.INVALID_REQUEST, error_message=error, delta_version=version)
        if version is None:
            if terms.expected_version not in {-1, self.version}:
                return produced(request, error_code=ErrorCode.INVALID_UPDATE_VERSION, delta_version=self.version)
            base_offset, version = self.append(batch), self.version + 1
            self.version = version
        if terms.txn_id is not None:
            self.txn_ids[terms.txn_id] = (crc, version, base_offset)
        return produced(request, base_offset=base_offset, delta_version=version)

    def read(self, offset: int) -> bytes:
        for position, header in iter_headers(self.batches):
            if header.last_offset >= offset:
                return bytes(self.batches[position:])
        return b""


@dataclass
class ToyTopic:
    """A topic."""

    topic_id: UUID
    logs: list[ToyLog]
    is_internal: bool = False
    configs: dict[str, str] = field(default_factory=dict)


class ToyBroker:
    """One broker: decodes requests, answers from the cluster's state, or from a script first."""

    def __init__(self, cluster: "ToyCluster", broker_id: int) -> None:
        self.id = broker_id
        self.cluster = cluster
        self.requests: list[tuple[int, object]] = []
        self.connections: list[Connection] = []
        self.port = 0
        self.server = TcpServer(self, NetworkLimits(), Registry(), ManualClock())

    def connection_opened(self, connection: Connection) -> None:
        self.connections.append(connection)

    def connection_closed(self, connection: Connection) -> None:
        self.connections.remove(connection)

    def frames_handled(self, connection: Connection) -> None:
        """Nothing waits for the end of a read here."""

    def frame_received(self, connection: Connection, frame: bytearray, reply: Reply) -> None:
        header, position = decode_request_header(frame)
        key, version = ApiKey(header.api_key), header.api_version
        served = self.cluster.versions.get(key)
        if served is None or version not in served:
            assert key is ApiKey.API_VERSIONS, f"{key.name} version {version} is not served"
            refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=self.cluster.advertised())
            reply.send([encode_response_header(header.correlation_id, header_version=0), *encode(refusal, 0)])
            return
        request = decode(APIS[key].request, version, frame, position)
        self.requests.append((version, request))
        scripts = self.cluster.scripts[key]
        answer = scripts.popleft() if scripts else getattr(self.cluster, f"answer_{key.name.lower()}")
        try:
            response = answer(self, request, version)
        except HangUpError:
            connection.abort()
            return
        if response is None:
            reply.skip()
            return
        head = encode_response_header(header.correlation_id, header_version=response_header_version(key, version))
        body = [response] if isinstance(response, bytes) else encode(response, version)
        reply.send([head, *body])

    def requests_of(self, kind: type) -> list:
        return [request for _, request in self.requests if isinstance(request, kind)]


class ToyCluster:
    """Brokers 1 to n over one state. `scripts[key]` are answers to be given once each, before the usual ones."""

    def __init__(self, *, broker_count: int = 1, versions: Mapping[ApiKey, Versions] | None = None) -> None:
        everything = {key: api.versions for key, api in APIS.items() if hasattr(self, f"answer_{key.name.lower()}")}
        self.versions: dict[ApiKey, Versions] = everything | dict(versions or {})
        self.brokers = [ToyBroker(self, broker_id) for broker_id in range(1, broker_count + 1)]
        self.topics: dict[str, ToyTopic] = {}
        self.scripts: defaultdict[ApiKey, deque[Callable]] = defaultdict(deque)
        self.controller_id = 1
        self.has_topic_ids = True
        self.features = {"exactlog.append": Versions(1, 1)}
        self.may_create = True
        self.next_producer_id = 1_000

    def add_topic(self, name: str, *, leaders: tuple[int, ...] = (1,), is_internal: bool = False) -> ToyTopic:
        topic_id = UUID(int=len(self.topics) + 1) if self.has_topic_ids else ZERO_UUID
        topic = ToyTopic(topic_id, [ToyLog(leader) for leader in leaders], is_internal)
        self.topics[name] = topic
        return topic

    def advertised(self) -> tuple[ApiVersion, ...]:
        return tuple(
            ApiVersion(api_key=key, min_version=served.lowest, max_version=served.highest)
            for key, served in self.versions.items()
        )

    def name_of(self, name: str, topic_id: UUID) -> str:
        return name or next(known for known, topic in self.topics.items() if topic.topic_id == topic_id)

    def requests_of(self, kind: type) -> list:
        return [request for broker in self.brokers for request in broker.requests_of(kind)]

    def versions_of(self, kind: type) -> list[int]:
        asked = [asked for broker in self.brokers for asked in broker.requests]
        return [version for version, request in asked if isinstance(request, kind)]

    # --- answers ---------------------------------------------------------------------------------------------

    def answer_api_versions(self, broker, request, version):
        features = tuple(
            SupportedFeatureKey(name=name, min_version=levels.lowest, max_version=levels.highest)
            for name, levels in self.features.items()
        )
        return ApiVersionsResponse(api_keys=self.advertised(), supported_features=features)

    def answer_metadata(self, broker, request, version):
        asked = None if request.topics is None else [topic.name for topic in request.topics]
        if asked is None or (version == 0 and not asked):
            asked = list(self.topics)
        for name in asked:
            if name not in self.topics and self.may_create and request.allow_auto_topic_creation:
                self.add_topic(name)
        return MetadataResponse(
            brokers=tuple(
                MetadataResponseBroker(node_id=member.id, host="127.0.0.1", port=member.port) for member in self.brokers
            ),
            cluster_id="toy",
            controller_id=self.controller_id,
            topics=tuple(self._topic_metadata(name, version) for name in asked),
        )

    def _topic_metadata(self, name: str, version: int) -> MetadataResponseTopic:
        topic = self.topics.get(name)
        if topic is None:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name)
        return MetadataResponseTopic(
            name=name,
            topic_id=topic.topic_id if version >= 10 else ZERO_UUID,
            is_internal=topic.is_internal,
            partitions=tuple(
                MetadataResponsePartition(
                    error_code=0 if log.leader_id >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
                    partition_index=index,
                    leader_id=log.leader_id,
                    leader_epoch=0 if version >= 7 else -1,
                    replica_nodes=(1,),
                    isr_nodes=(1,),
                )
                for index, log in reversed(list(enumerate(topic.logs)))  # a client must not rely on the order
            ),
        )

    def answer_create_topics(self, broker, request, version):
        (asked,) = request.topics
        if asked.name in self.topics:
            result = CreatableTopicResult(
                name=asked.name, error_code=ErrorCode.TOPIC_ALREADY_EXISTS, error_message="it is there already"
            )
            return CreateTopicsResponse(topics=(result,))
        topic = self.add_topic(asked.name, leaders=(1,) * max(asked.num_partitions, 1))
        topic.configs = {config.name: config.value for config in asked.configs}
        return CreateTopicsResponse(topics=(CreatableTopicResult(name=asked.name),))

    def answer_delete_topics(self, broker, request, version):
        (name,) = [topic.name for topic in request.topics] or request.topic_names
        error_code = 0 if self.topics.pop(name, None) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return DeleteTopicsResponse(responses=(DeletableTopicResult(name=name, error_code=error_code),))

    def answer_describe_configs(self, broker, request, version):
        (asked,) = request.resources
        assert (asked.resource_type, asked.configuration_keys) == (2, None)
        own = self.topics[asked.resource_name].configs
        configs = {"segment.bytes": "1024", "retention.ms": "1000"} | own
        return DescribeConfigsResponse(
            results=(
                DescribeConfigsResult(
                    resource_name=asked.resource_name,
                    configs=tuple(
                        DescribeConfigsResourceResult(
                            name=name,
                            value=value,
                            config_source=1 if name in own else 5,
                            is_default=version == 0 and name not in own,
                        )
                        for name, value in configs.items()
                    ),
                ),
            )
        )

    def answer_incremental_alter_configs(self, broker, request, version):
        (asked,) = request.resources
        topic = self.topics.get(asked.resource_name)
        for config in asked.configs if topic else ():
            topic.configs.pop(config.name, None)
            if config.config_operation == 0:
                topic.configs[config.name] = config.value
        error_code = 0 if topic else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        response = AlterConfigsResourceResponse(error_code=error_code, resource_name=asked.resource_name)
        return IncrementalAlterConfigsResponse(responses=(response,))

    def answer_create_partitions(self, broker, request, version):
        (asked,) = request.topics
        topic = self.topics.get(asked.name)
        error_code = 0 if topic else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic and asked.count <= len(topic.logs):
            error_code = ErrorCode.INVALID_PARTITIONS
        elif topic:
            topic.logs += [ToyLog(1) for _ in range(asked.count - len(topic.logs))]
        return CreatePartitionsResponse(results=(CreatePartitionsTopicResult(name=asked.name, error_code=error_code),))

    def answer_describe_log_dirs(self, broker, request, version):
        assert request.topics is None
        topics = tuple(
            DescribeLogDirsTopic(
                name=name,
                partitions=tuple(
                    DescribeLogDirsPartition(partition_index=index, partition_size=len(log.batches))
                    for index, log in enumerate(topic.logs)
                ),
            )
            for name, topic in self.topics.items()
        )
        result = DescribeLogDirsResult(log_dir=f"/{broker.id}", topics=topics, total_bytes=100, usable_bytes=50)
        return DescribeLogDirsResponse(results=(result,))

    def answer_list_offsets(self, broker, request, version):
        return ListOffsetsResponse(
            topics=tuple(
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=tuple(
                        self._listed(broker, topic.name, asked, request.isolation_level) for asked in topic.partitions
                    ),
                )
                for topic in request.topics
            )
        )

    def _listed(self, broker, name, asked, isolation_level):
        log = self.topics[name].logs[asked.partition_index]
        if log.leader_id != broker.id:
            return ListOffsetsPartitionResponse(
                partition_index=asked.partition_index, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER
            )
        stable = log.log_end if log.last_stable_offset is None else log.last_stable_offset
        offset = {-1: stable if isolation_level else log.log_end, -2: log.log_start}.get(asked.timestamp, -1)
        return ListOffsetsPartitionResponse(partition_index=asked.partition_index, offset=offset)

    def answer_delete_records(self, broker, request, version):
        return DeleteRecordsResponse(
            topics=tuple(
                DeleteRecordsTopicResult(
                    name=topic.name,
                    partitions=tuple(self._deleted(broker, topic.name, asked) for asked in topic.partitions),
                )
                for topic in request.topics
            )
        )

    def _deleted(self, broker, name, asked):
        log = self.topics[name].logs[asked.partition_index]
        error_code = 0
        if log.leader_id != broker.id:
            error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif asked.offset > log.log_end:
            error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            log.log_start = max(log.log_start, log.log_end if asked.offset == -1 else asked.offset)
        return DeleteRecordsPartitionResult(
            partition_index=asked.partition_index,
            low_watermark=-1 if error_code else log.log_start,
            error_code=error_code,
        )

    def answer_init_producer_id(self, broker, request, version):
        self.next_producer_id += 1
        return InitProducerIdResponse(producer_id=self.next_producer_id, producer_epoch=0)

    def answer_produce(self, broker, request, version):
        (topic,) = request.topic_data
        (data,) = topic.partition_data
        log = self.topics[self.name_of(topic.name, topic.topic_id)].logs[data.index]
        if log.leader_id != broker.id:
            return produced(request, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if data.terms is not None:
            return log.append_on_terms(request, data.records, data.terms)
        base_offset = log.append(data.records)
        return produced(request, base_offset=base_offset) if request.acks else None

    def answer_fetch(self, broker, request, version):
        return FetchResponse(
            responses=tuple(
                FetchableTopicResponse(
                    topic=topic.topic,
                    topic_id=topic.topic_id,
                    partitions=tuple(
                        self._fetched(broker, self.name_of(topic.topic, topic.topic_id), asked, request)
                        for asked in topic.partitions
                    ),
                )
                for topic in request.topics
            )
        )

    def _fetched(self, broker, name, asked, request):
        log = self.topics[name].logs[asked.partition]
        if log.leader_id != broker.id:
            return PartitionData(partition_index=asked.partition, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if not log.log_start <= asked.fetch_offset <= log.log_end:
            return PartitionData(partition_index=asked.partition, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
        return PartitionData(
            partition_index=asked.partition,
            records=log.read(asked.fetch_offset),
            aborted_transactions=tuple(log.aborted) if request.isolation_level else None,
        )


def produced(request, *, base_offset: int = -1, **fields) -> ProduceResponse:
    """The answer to a Produce about one partition; `fields` are those of `PartitionProduceResponse`."""
    (topic,) = request.topic_data
    (data,) = topic.partition_data
    response = PartitionProduceResponse(index=data.index, base_offset=base_offset, **fields)
    return ProduceResponse(
        responses=(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=(response,)),)
    )


@contextlib.asynccontextmanager
async def running(cluster: ToyCluster, settings: ClientSettings = SETTINGS) -> AsyncIterator[Client]:
    """The cluster, and a client of it."""
    for broker in cluster.brokers:
        _, broker.port = await broker.server.start("127.0.0.1", 0)
    bootstrap = ",".join(f"127.0.0.1:{broker.port}" for broker in cluster.brokers)
    try:
        async with connect(f"kafka://{bootstrap}", settings) as client:
            yield client
    finally:
        for broker in cluster.brokers:
            await broker.server.stop(drain_ms=0)
