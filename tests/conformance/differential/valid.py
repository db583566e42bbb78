"""A valid request of each API, about things that exist on the broker: what hostile values are put into."""

from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from exactlog.core.protocol.messages.api_versions import ApiVersionsRequest
from exactlog.core.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from exactlog.core.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from exactlog.core.protocol.messages.delete_groups import DeleteGroupsRequest
from exactlog.core.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from exactlog.core.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from exactlog.core.protocol.messages.describe_cluster import DescribeClusterRequest
from exactlog.core.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from exactlog.core.protocol.messages.describe_groups import DescribeGroupsRequest
from exactlog.core.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from exactlog.core.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersTopic
from exactlog.core.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsTopic,
)
from exactlog.core.protocol.messages.find_coordinator import FindCoordinatorRequest
from exactlog.core.protocol.messages.heartbeat import HeartbeatRequest
from exactlog.core.protocol.messages.incremental_alter_configs import AlterableConfig as IncrementalConfig
from exactlog.core.protocol.messages.incremental_alter_configs import AlterConfigsResource as IncrementalResource
from exactlog.core.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from exactlog.core.protocol.messages.init_producer_id import InitProducerIdRequest
from exactlog.core.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from exactlog.core.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from exactlog.core.protocol.messages.list_config_resources import ListConfigResourcesRequest
from exactlog.core.protocol.messages.list_groups import ListGroupsRequest
from exactlog.core.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from exactlog.core.protocol.messages.list_transactions import ListTransactionsRequest
from exactlog.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from exactlog.core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from exactlog.core.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from exactlog.core.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from exactlog.core.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from exactlog.core.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.conformance.differential.transaction import ABORT, Transaction, markers_request
from tests.support.raw_client import batch_of, fetch_request, produce_request, sequenced

VALID = {}
"""By API: what makes a valid request in the version of the scenario."""

FRESH = set()
"""APIs that need things of their own for each hostile request, since a request takes away what it is about."""


def valid(api_key, *, fresh=False):
    """Registers what makes the valid request of an API."""

    def register(make):
        VALID[api_key] = make
        if fresh:
            FRESH.add(api_key)
        return make

    return register


def topic_with_records(peer):
    """A topic of one partition and three records in two batches."""
    topic = peer.topic()
    peer.produce(topic, batch_of(b"a", b"b", timestamp_ms=1_700_000_000_000))
    peer.produce(topic, batch_of(b"c", timestamp_ms=1_700_000_100_000))
    return topic


@valid(ApiKey.PRODUCE)
def produce(peer):
    return produce_request(peer.topic(), batch_of(b"value"))


@valid(ApiKey.FETCH)
def fetch(peer):
    return fetch_request(topic_with_records(peer), 0)


@valid(ApiKey.LIST_OFFSETS)
def list_offsets(peer):
    part = ListOffsetsPartition(partition_index=0, timestamp=1_700_000_050_000)
    topic = ListOffsetsTopic(name=topic_with_records(peer).name, partitions=(part,))
    return ListOffsetsRequest(replica_id=-1, topics=(topic,), timeout_ms=1_000)


@valid(ApiKey.METADATA)
def metadata(peer):
    topic = peer.topic(partitions=2)
    return MetadataRequest(topics=(MetadataRequestTopic(name=topic.name),), allow_auto_topic_creation=False)


@valid(ApiKey.OFFSET_COMMIT)
def offset_commit(peer):
    topic = peer.topic()
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=3, committed_metadata="so far")
    of_topic = OffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id, partitions=(part,))
    return OffsetCommitRequest(group_id=peer.name("group"), topics=(of_topic,))


@valid(ApiKey.OFFSET_FETCH)
def offset_fetch(peer):
    topic, group = peer.topic(), peer.name("group")
    peer.commit(group, topic, 3)
    if peer.version < 8:
        of_topic = OffsetFetchRequestTopic(name=topic.name, partition_indexes=(0,))
        return OffsetFetchRequest(group_id=group, topics=(of_topic,))
    of_topic = OffsetFetchRequestTopics(name=topic.name, topic_id=topic.topic_id, partition_indexes=(0,))
    return OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group, topics=(of_topic,)),))


@valid(ApiKey.FIND_COORDINATOR)
def find_coordinator(peer):
    if peer.version < 4:
        return FindCoordinatorRequest(key=peer.name("key"), key_type=0)
    return FindCoordinatorRequest(key_type=0, coordinator_keys=(peer.name("one"), peer.name("two")))


@valid(ApiKey.JOIN_GROUP, fresh=True)
def join_group(peer):
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"wishes")
    return JoinGroupRequest(
        group_id=peer.name("group"),
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(protocol,),
    )


@valid(ApiKey.HEARTBEAT)
def heartbeat(peer):
    member = peer.member(peer.name("group"))
    return HeartbeatRequest(group_id=member.group, generation_id=member.generation, member_id=member.member_id)


@valid(ApiKey.LEAVE_GROUP, fresh=True)
def leave_group(peer):
    member = peer.member(peer.name("group"))
    if peer.version < 3:
        return LeaveGroupRequest(group_id=member.group, member_id=member.member_id)
    return LeaveGroupRequest(group_id=member.group, members=(MemberIdentity(member_id=member.member_id),))


@valid(ApiKey.SYNC_GROUP)
def sync_group(peer):
    member = peer.member(peer.name("group"))
    return SyncGroupRequest(
        group_id=member.group,
        generation_id=member.generation,
        member_id=member.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=(SyncGroupRequestAssignment(member_id=member.member_id, assignment=b"another"),),
    )


@valid(ApiKey.DESCRIBE_GROUPS)
def describe_groups(peer):
    return DescribeGroupsRequest(groups=(peer.member(peer.name("group")).group,))


@valid(ApiKey.LIST_GROUPS)
def list_groups(peer):
    peer.member(peer.name("group"))
    return ListGroupsRequest(states_filter=("Stable",), types_filter=("classic",))


@valid(ApiKey.API_VERSIONS)
def api_versions(peer):
    return ApiVersionsRequest(client_software_name="raw-client", client_software_version="1.0")


@valid(ApiKey.CREATE_TOPICS, fresh=True)
def create_topics(peer):
    config = CreatableTopicConfig(name="retention.ms", value="1000")
    return CreateTopicsRequest(
        topics=(CreatableTopic(name=peer.name("new"), num_partitions=2, replication_factor=1, configs=(config,)),),
        timeout_ms=10_000,
    )


@valid(ApiKey.DELETE_TOPICS, fresh=True)
def delete_topics(peer):
    topic = peer.topic()
    if peer.version < 6:
        return DeleteTopicsRequest(topic_names=(topic.name,), timeout_ms=10_000)
    return DeleteTopicsRequest(topics=(DeleteTopicState(name=topic.name),), timeout_ms=10_000)


@valid(ApiKey.DELETE_RECORDS)
def delete_records(peer):
    part = DeleteRecordsPartition(partition_index=0, offset=1)
    topic = DeleteRecordsTopic(name=topic_with_records(peer).name, partitions=(part,))
    return DeleteRecordsRequest(topics=(topic,), timeout_ms=10_000)


@valid(ApiKey.INIT_PRODUCER_ID)
def init_producer_id(peer):
    return InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)


@valid(ApiKey.OFFSET_FOR_LEADER_EPOCH)
def offset_for_leader_epoch(peer):
    part = OffsetForLeaderPartition(partition=0, leader_epoch=peer.epoch())
    topic = OffsetForLeaderTopic(topic=topic_with_records(peer).name, partitions=(part,))
    return OffsetForLeaderEpochRequest(replica_id=-1, topics=(topic,))


@valid(ApiKey.DESCRIBE_CONFIGS)
def describe_configs(peer):
    topic = peer.topic(retention_ms=60_000)
    keys = ("retention.ms", "cleanup.policy")
    resource = DescribeConfigsResource(resource_type=2, resource_name=topic.name, configuration_keys=keys)
    return DescribeConfigsRequest(resources=(resource,))


@valid(ApiKey.ALTER_CONFIGS)
def alter_configs(peer):
    config = AlterableConfig(name="retention.ms", value="120000")
    resource = AlterConfigsResource(resource_type=2, resource_name=peer.topic().name, configs=(config,))
    return AlterConfigsRequest(resources=(resource,))


@valid(ApiKey.INCREMENTAL_ALTER_CONFIGS)
def incremental_alter_configs(peer):
    config = IncrementalConfig(name="retention.ms", config_operation=0, value="120000")
    resource = IncrementalResource(resource_type=2, resource_name=peer.topic().name, configs=(config,))
    return IncrementalAlterConfigsRequest(resources=(resource,))


@valid(ApiKey.DESCRIBE_LOG_DIRS)
def describe_log_dirs(peer):
    topic = DescribableLogDirTopic(topic=topic_with_records(peer).name, partitions=(0,))
    return DescribeLogDirsRequest(topics=(topic,))


@valid(ApiKey.CREATE_PARTITIONS, fresh=True)
def create_partitions(peer):
    topic = CreatePartitionsTopic(name=peer.topic().name, count=3, assignments=None)
    return CreatePartitionsRequest(topics=(topic,), timeout_ms=10_000)


@valid(ApiKey.DELETE_GROUPS, fresh=True)
def delete_groups(peer):
    group = peer.name("group")
    peer.commit(group, peer.topic(), 3)
    return DeleteGroupsRequest(groups_names=(group,))


@valid(ApiKey.OFFSET_DELETE, fresh=True)
def offset_delete(peer):
    topic, group = peer.topic(), peer.name("group")
    peer.commit(group, topic, 3)
    part = OffsetDeleteRequestPartition(partition_index=0)
    return OffsetDeleteRequest(group_id=group, topics=(OffsetDeleteRequestTopic(name=topic.name, partitions=(part,)),))


@valid(ApiKey.DESCRIBE_CLUSTER)
def describe_cluster(peer):
    return DescribeClusterRequest()


@valid(ApiKey.DESCRIBE_PRODUCERS)
def describe_producers(peer):
    topic = peer.topic()
    peer.produce(topic, sequenced(peer.producer(), 0, b"a", b"b"))
    return DescribeProducersRequest(topics=(DescribeProducersTopic(name=topic.name, partition_indexes=(0,)),))


@valid(ApiKey.LIST_CONFIG_RESOURCES)
def list_config_resources(peer):
    peer.topic()
    return ListConfigResourcesRequest(resource_types=(2,))


@valid(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
def describe_topic_partitions(peer):
    topic = peer.topic(partitions=3)
    return DescribeTopicPartitionsRequest(
        topics=(DescribeTopicPartitionsTopic(name=topic.name),),
        response_partition_limit=2,
        cursor=Cursor(topic_name=topic.name, partition_index=0),
    )


@valid(ApiKey.ADD_PARTITIONS_TO_TXN)
def add_partitions_to_txn(peer):
    return Transaction(peer).init().add_request(0, 1, version=peer.version)


@valid(ApiKey.ADD_OFFSETS_TO_TXN)
def add_offsets_to_txn(peer):
    return Transaction(peer).init().add_offsets_request(peer.name("group"))


@valid(ApiKey.END_TXN, fresh=True)
def end_txn(peer):
    return Transaction(peer).init().write(b"a").end_request()


@valid(ApiKey.WRITE_TXN_MARKERS)
def write_txn_markers(peer):
    transaction = Transaction(peer).init().write(b"a")
    return markers_request(transaction.marker(ABORT, 0))


@valid(ApiKey.TXN_OFFSET_COMMIT)
def txn_offset_commit(peer):
    transaction, group = Transaction(peer).init(), peer.name("group")
    return transaction.add_offsets(group).offsets_request(group, (0, 3))


@valid(ApiKey.DESCRIBE_TRANSACTIONS)
def describe_transactions(peer):
    return Transaction(peer).init().write(b"a").describe_request()


@valid(ApiKey.LIST_TRANSACTIONS)
def list_transactions(peer):
    transaction = Transaction(peer).init().write(b"a")
    return ListTransactionsRequest(
        state_filters=("Ongoing",), producer_id_filters=(transaction.identity.producer_id,), duration_filter=0
    )
