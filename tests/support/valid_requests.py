"""A valid request for every API that is served, in any version that is served."""

import uuid

from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.messages import alter_configs, incremental_alter_configs
from exactlog.core.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from exactlog.core.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
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
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsTopic,
)
from exactlog.core.protocol.messages.describe_transactions import DescribeTransactionsRequest
from exactlog.core.protocol.messages.find_coordinator import FindCoordinatorRequest
from exactlog.core.protocol.messages.heartbeat import HeartbeatRequest
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
from exactlog.core.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from exactlog.core.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.support.raw_client import batch_of, fetch_request, produce_request
from tests.support.raw_transactions import TransactionalProducer


def _list_offsets(topic, version):
    part = ListOffsetsPartition(partition_index=0, timestamp=-1)
    return ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name=topic.name, partitions=(part,)),))


def _find_coordinator(topic, version):
    if version >= 4:
        return FindCoordinatorRequest(key_type=1, coordinator_keys=("one", "two"))
    return FindCoordinatorRequest(key="one", key_type=1 if version >= 1 else 0)


def _create_topics(topic, version):
    config = CreatableTopicConfig(name="retention.ms", value="1000")
    name = f"created-{uuid.uuid4().hex}"
    return CreateTopicsRequest(
        topics=(CreatableTopic(name=name, num_partitions=2, replication_factor=1, configs=(config,)),)
    )


def _delete_topics(topic, version):
    if version >= 6:
        return DeleteTopicsRequest(topics=(DeleteTopicState(topic_id=topic.topic_id),))
    return DeleteTopicsRequest(topic_names=(topic.name,))


def _delete_records(topic, version):
    part = DeleteRecordsPartition(partition_index=0, offset=0)
    return DeleteRecordsRequest(topics=(DeleteRecordsTopic(name=topic.name, partitions=(part,)),), timeout_ms=1_000)


def _describe_configs(topic, version):
    resources = tuple(
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        for kind, name in ((2, topic.name), (4, "1"))
    )
    return DescribeConfigsRequest(
        resources=resources, include_synonyms=version >= 1, include_documentation=version >= 3
    )


def _create_partitions(topic, version):
    return CreatePartitionsRequest(topics=(CreatePartitionsTopic(name=topic.name, count=2, assignments=None),))


def _alter_configs(topic, version):
    config = alter_configs.AlterableConfig(name="retention.ms", value="1000")
    resource = alter_configs.AlterConfigsResource(resource_type=2, resource_name=topic.name, configs=(config,))
    return alter_configs.AlterConfigsRequest(resources=(resource,))


def _incremental_alter_configs(topic, version):
    config = incremental_alter_configs.AlterableConfig(name="retention.ms", config_operation=0, value="1000")
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=2, resource_name=topic.name, configs=(config,)
    )
    return incremental_alter_configs.IncrementalAlterConfigsRequest(resources=(resource,))


def _offset_for_leader_epoch(topic, version):
    part = OffsetForLeaderPartition(partition=0, leader_epoch=1)
    return OffsetForLeaderEpochRequest(topics=(OffsetForLeaderTopic(topic=topic.name, partitions=(part,)),))


# --- groups: that of a topic has its name; `prepare` makes it --------------------------------------------------------


_MEMBER_IDS = {}
"""By group: the member that `prepare` has made."""


def _member_id(topic):
    return _MEMBER_IDS.get(topic.name, "a-member")


def _join_group(topic, version):
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"metadata")
    instance_id = "an-instance" if version >= 5 else None
    return JoinGroupRequest(
        group_id=f"{topic.name}-new",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=(protocol,),
    )


def _sync_group(topic, version):
    assignment = SyncGroupRequestAssignment(member_id=_member_id(topic), assignment=b"assignment")
    return SyncGroupRequest(
        group_id=topic.name,
        generation_id=1,
        member_id=_member_id(topic),
        protocol_type="consumer",
        protocol_name="range",
        assignments=(assignment,),
    )


def _leave_group(topic, version):
    if version >= 3:
        return LeaveGroupRequest(group_id=topic.name, members=(MemberIdentity(member_id=_member_id(topic)),))
    return LeaveGroupRequest(group_id=topic.name, member_id=_member_id(topic))


def _offset_commit(topic, version):
    named = {"topic_id": topic.topic_id} if version >= 10 else {"name": topic.name}
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="text")
    asked = OffsetCommitRequestTopic(**named, partitions=(part,))
    return OffsetCommitRequest(group_id=f"{topic.name}-offsets", topics=(asked,))


def _offset_fetch(topic, version):
    if version < 8:
        asked = OffsetFetchRequestTopic(name=topic.name, partition_indexes=(0,))
        return OffsetFetchRequest(group_id=topic.name, topics=(asked,))
    named = {"topic_id": topic.topic_id} if version >= 10 else {"name": topic.name}
    asked = OffsetFetchRequestTopics(**named, partition_indexes=(0,))
    return OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=topic.name, topics=(asked,)),))


def _offset_delete(topic, version):
    part = OffsetDeleteRequestPartition(partition_index=0)
    asked = OffsetDeleteRequestTopic(name=topic.name, partitions=(part,))
    return OffsetDeleteRequest(group_id=f"{topic.name}-offsets", topics=(asked,))


# --- transactions: that of a topic has its name; `prepare` opens it --------------------------------------------------


_PRODUCERS = {}
"""By transactional id: the producer that `prepare` has made."""


def _producer(topic):
    return _PRODUCERS.get(topic.name) or TransactionalProducer(None, topic.name)


def _add_partitions_to_txn(topic, version):
    producer = _producer(topic)
    topics = (AddPartitionsToTxnTopic(name=topic.name, partitions=(0,)),)
    if version >= 4:
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=topic.name,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            verify_only=True,
            topics=topics,
        )
        return AddPartitionsToTxnRequest(transactions=(transaction,))
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=topic.name,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=topics,
    )


def _add_offsets_to_txn(topic, version):
    producer = _producer(topic)
    return AddOffsetsToTxnRequest(
        transactional_id=topic.name,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id=f"{topic.name}-offsets",
    )


def _txn_offset_commit(topic, version):
    producer = _producer(topic)
    named = {"topic_id": topic.topic_id} if version >= 6 else {"name": topic.name}
    part = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="text")
    return TxnOffsetCommitRequest(
        transactional_id=topic.name,
        group_id=f"{topic.name}-offsets",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=(TxnOffsetCommitRequestTopic(**named, partitions=(part,)),),
    )


def _write_txn_markers(topic, version):
    part = WritableTxnMarkerTopic(name=topic.name, partition_indexes=(0,))
    marker = WritableTxnMarker(producer_id=1_000_000_000, producer_epoch=1, topics=(part,))
    return WriteTxnMarkersRequest(markers=(marker,))


def prepare(raw, topic):
    """Makes what requests about groups and transactions need.

    A group with one member, and one that has only offsets; a transaction that has a partition and those offsets.
    """
    producer = _PRODUCERS[topic.name] = TransactionalProducer(raw, topic.name)
    assert producer.init() == 0
    assert producer.add((topic, 0)) == [0]
    assert producer.add_offsets(f"{topic.name}-offsets") == 0
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"metadata")
    join = JoinGroupRequest(
        group_id=topic.name,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(protocol,),
    )
    joined = raw.ask(join, 3)
    assert joined.error_code == 0
    _MEMBER_IDS[topic.name] = joined.member_id
    committed = raw.ask(_offset_commit(topic, 9), 9)
    assert committed.topics[0].partitions[0].error_code == 0


VALID_REQUESTS = {
    ApiKey.PRODUCE: lambda topic, version: produce_request(topic, batch_of(b"value")),
    ApiKey.FETCH: lambda topic, version: fetch_request(topic, 0),
    ApiKey.LIST_OFFSETS: _list_offsets,
    ApiKey.METADATA: lambda topic, version: MetadataRequest(topics=(MetadataRequestTopic(name=topic.name),)),
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.API_VERSIONS: lambda topic, version: ApiVersionsRequest(
        client_software_name="raw-client", client_software_version="1.0"
    ),
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.DELETE_RECORDS: _delete_records,
    ApiKey.INIT_PRODUCER_ID: lambda topic, version: InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=60_000
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: _add_offsets_to_txn,
    ApiKey.END_TXN: lambda topic, version: _producer(topic).end_request(),
    ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
    ApiKey.WRITE_TXN_MARKERS: _write_txn_markers,
    ApiKey.DESCRIBE_TRANSACTIONS: lambda topic, version: DescribeTransactionsRequest(transactional_ids=(topic.name,)),
    ApiKey.LIST_TRANSACTIONS: lambda topic, version: ListTransactionsRequest(),
    ApiKey.DESCRIBE_CONFIGS: _describe_configs,
    ApiKey.ALTER_CONFIGS: _alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _incremental_alter_configs,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.LIST_CONFIG_RESOURCES: lambda topic, version: ListConfigResourcesRequest(
        resource_types=(2, 4) * (version >= 1)
    ),
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.JOIN_GROUP: _join_group,
    ApiKey.HEARTBEAT: lambda topic, version: HeartbeatRequest(
        group_id=topic.name, generation_id=1, member_id=_member_id(topic)
    ),
    ApiKey.LEAVE_GROUP: _leave_group,
    ApiKey.SYNC_GROUP: _sync_group,
    ApiKey.DESCRIBE_GROUPS: lambda topic, version: DescribeGroupsRequest(groups=(topic.name,)),
    ApiKey.LIST_GROUPS: lambda topic, version: ListGroupsRequest(),
    ApiKey.DELETE_GROUPS: lambda topic, version: DeleteGroupsRequest(groups_names=(f"{topic.name}-offsets",)),
    ApiKey.OFFSET_DELETE: _offset_delete,
    ApiKey.DESCRIBE_CLUSTER: lambda topic, version: DescribeClusterRequest(),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
    ApiKey.DESCRIBE_LOG_DIRS: lambda topic, version: DescribeLogDirsRequest(
        topics=(DescribableLogDirTopic(topic=topic.name, partitions=(0,)),)
    ),
    ApiKey.DESCRIBE_PRODUCERS: lambda topic, version: DescribeProducersRequest(
        topics=(DescribeProducersTopic(name=topic.name, partition_indexes=(0,)),)
    ),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: lambda topic, version: DescribeTopicPartitionsRequest(
        topics=(DescribeTopicPartitionsTopic(name=topic.name),)
    ),
}
"""By API: what makes a request about a topic in a version."""
