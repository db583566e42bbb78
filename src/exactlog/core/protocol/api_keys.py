"""The table of the APIs: key, name, request and response, versions.

What is declared stands here, once; which of it a broker serves is the broker's own table.
"""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from exactlog.core.codec.message_schema import Message, versions_of
from exactlog.core.codec.wire_types import API_VERSION_MAX, Versions, parse_versions
from exactlog.core.model.errors import InvariantError
from exactlog.core.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from exactlog.core.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from exactlog.core.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from exactlog.core.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from exactlog.core.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from exactlog.core.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from exactlog.core.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from exactlog.core.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from exactlog.core.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from exactlog.core.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from exactlog.core.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from exactlog.core.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from exactlog.core.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from exactlog.core.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from exactlog.core.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from exactlog.core.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from exactlog.core.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from exactlog.core.protocol.messages.fetch import FetchRequest, FetchResponse
from exactlog.core.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from exactlog.core.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from exactlog.core.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from exactlog.core.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from exactlog.core.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from exactlog.core.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from exactlog.core.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from exactlog.core.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from exactlog.core.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from exactlog.core.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from exactlog.core.protocol.messages.metadata import MetadataRequest, MetadataResponse
from exactlog.core.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from exactlog.core.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from exactlog.core.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from exactlog.core.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from exactlog.core.protocol.messages.produce import ProduceRequest, ProduceResponse
from exactlog.core.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from exactlog.core.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from exactlog.core.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse


class ApiKey(IntEnum):
    """The number of an API, as it travels in a request header."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    INCREMENTAL_ALTER_CONFIGS = 44
    OFFSET_DELETE = 47
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75


class Api(Struct, frozen=True):
    """One API of the protocol.

    Attributes:
        key: its number.
        name: as Kafka spells it.
        request: what a client sends.
        response: what it gets.
        versions: that are declared, and so can be decoded.
        flexible_from: the first version with compact types, tagged fields and the longer headers (KIP-482).
        advertised: the versions named to clients; for Produce more than the declared ones.
    """

    key: ApiKey
    name: str
    request: type[Message]
    response: type[Message]
    versions: Versions
    flexible_from: int
    advertised: Versions


def _api(request: type[Message], response: type[Message], *, advertised_from: int | None = None) -> Api:
    versions = versions_of(request)
    if (request.api_key, versions, request.flexible) != (response.api_key, versions_of(response), response.flexible):
        raise InvariantError(f"{request.__name__} and {response.__name__} do not belong together")
    flexible = parse_versions(request.flexible)
    return Api(
        key=ApiKey(request.api_key),
        name=request.__name__.removesuffix("Request"),
        request=request,
        response=response,
        versions=versions,
        flexible_from=flexible.lowest if flexible.highest >= flexible.lowest else API_VERSION_MAX + 1,
        advertised=Versions(versions.lowest if advertised_from is None else advertised_from, versions.highest),
    )


_TABLE: Final = (
    _api(ProduceRequest, ProduceResponse, advertised_from=0),
    _api(FetchRequest, FetchResponse),
    _api(ListOffsetsRequest, ListOffsetsResponse),
    _api(MetadataRequest, MetadataResponse),
    _api(OffsetCommitRequest, OffsetCommitResponse),
    _api(OffsetFetchRequest, OffsetFetchResponse),
    _api(FindCoordinatorRequest, FindCoordinatorResponse),
    _api(JoinGroupRequest, JoinGroupResponse),
    _api(HeartbeatRequest, HeartbeatResponse),
    _api(LeaveGroupRequest, LeaveGroupResponse),
    _api(SyncGroupRequest, SyncGroupResponse),
    _api(DescribeGroupsRequest, DescribeGroupsResponse),
    _api(ListGroupsRequest, ListGroupsResponse),
    _api(ApiVersionsRequest, ApiVersionsResponse),
    _api(CreateTopicsRequest, CreateTopicsResponse),
    _api(DeleteTopicsRequest, DeleteTopicsResponse),
    _api(DeleteRecordsRequest, DeleteRecordsResponse),
    _api(InitProducerIdRequest, InitProducerIdResponse),
    _api(OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse),
    _api(AddPartitionsToTxnRequest, AddPartitionsToTxnResponse),
    _api(AddOffsetsToTxnRequest, AddOffsetsToTxnResponse),
    _api(EndTxnRequest, EndTxnResponse),
    _api(WriteTxnMarkersRequest, WriteTxnMarkersResponse),
    _api(TxnOffsetCommitRequest, TxnOffsetCommitResponse),
    _api(DescribeConfigsRequest, DescribeConfigsResponse),
    _api(AlterConfigsRequest, AlterConfigsResponse),
    _api(DescribeLogDirsRequest, DescribeLogDirsResponse),
    _api(CreatePartitionsRequest, CreatePartitionsResponse),
    _api(DeleteGroupsRequest, DeleteGroupsResponse),
    _api(IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse),
    _api(OffsetDeleteRequest, OffsetDeleteResponse),
    _api(DescribeClusterRequest, DescribeClusterResponse),
    _api(DescribeProducersRequest, DescribeProducersResponse),
    _api(DescribeTransactionsRequest, DescribeTransactionsResponse),
    _api(ListTransactionsRequest, ListTransactionsResponse),
    _api(ListConfigResourcesRequest, ListConfigResourcesResponse),
    _api(DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse),
)

APIS: Final[Mapping[int, Api]] = MappingProxyType({api.key: api for api in _TABLE})
"""Every API that is declared, by key. Look up with any int: an `ApiKey` is one."""
