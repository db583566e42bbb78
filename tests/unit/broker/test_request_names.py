"""What a request is about is found whatever its API calls it."""

import uuid

import pytest

from exactlog.broker.request_names import RequestNames, names_of
from exactlog.core.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from exactlog.core.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from exactlog.core.protocol.messages.delete_groups import DeleteGroupsRequest
from exactlog.core.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from exactlog.core.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from exactlog.core.protocol.messages.describe_groups import DescribeGroupsRequest
from exactlog.core.protocol.messages.end_txn import EndTxnRequest
from exactlog.core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from exactlog.core.protocol.messages.find_coordinator import FindCoordinatorRequest
from exactlog.core.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from exactlog.core.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from exactlog.core.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

ID = uuid.UUID(int=7)
PRODUCED = (PartitionProduceData(index=0), PartitionProduceData(index=2))
CONFIG = CreatableTopicConfig(name="retention.ms", value="1")
ASSIGNED = CreatableReplicaAssignment(partition_index=4)

CASES = {
    "partitions by name": (
        ProduceRequest(transactional_id="t", topic_data=(TopicProduceData(name="a", partition_data=PRODUCED),)),
        RequestNames(topics={"a"}, partitions={("a", 0), ("a", 2)}, transactional_ids={"t"}),
    ),
    "partitions by id, without what is forgotten": (
        FetchRequest(
            topics=(FetchTopic(topic_id=ID, partitions=(FetchPartition(partition=1),)),),
            forgotten_topics_data=(ForgottenTopic(topic="gone", partitions=(0,)),),
        ),
        RequestNames(topics={ID}, partitions={(ID, 1)}),
    ),
    "a topic and its configuration": (
        CreateTopicsRequest(topics=(CreatableTopic(name="a", configs=(CONFIG,), assignments=(ASSIGNED,)),)),
        RequestNames(topics={"a"}),
    ),
    "topics as plain names": (DeleteTopicsRequest(topic_names=("a", "b")), RequestNames(topics={"a", "b"})),
    "topics as states": (
        DeleteTopicsRequest(topics=(DeleteTopicState(name="a"), DeleteTopicState(topic_id=ID))),
        RequestNames(topics={"a", ID}),
    ),
    "resources": (
        DescribeConfigsRequest(
            resources=(
                DescribeConfigsResource(resource_type=2, resource_name="a"),
                DescribeConfigsResource(resource_type=4, resource_name="1"),
                DescribeConfigsResource(resource_type=32, resource_name="g"),
            )
        ),
        RequestNames(topics={"a"}, groups={"g"}),
    ),
    "a member of a group": (
        JoinGroupRequest(group_id="g", protocols=(JoinGroupRequestProtocol(name="range"),)),
        RequestNames(groups={"g"}),
    ),
    "groups as plain names": (DescribeGroupsRequest(groups=("g", "h")), RequestNames(groups={"g", "h"})),
    "groups to delete": (DeleteGroupsRequest(groups_names=("g",)), RequestNames(groups={"g"})),
    "groups and what they ask for": (
        OffsetFetchRequest(
            groups=(
                OffsetFetchRequestGroup(
                    group_id="g", topics=(OffsetFetchRequestTopics(name="a", partition_indexes=(0, 1)),)
                ),
                OffsetFetchRequestGroup(group_id="h", topics=None),
            )
        ),
        RequestNames(topics={"a"}, partitions={("a", 0), ("a", 1)}, groups={"g", "h"}),
    ),
    "the coordinator of a group": (FindCoordinatorRequest(key="g", key_type=0), RequestNames(groups={"g"})),
    "the coordinators of transactions": (
        FindCoordinatorRequest(coordinator_keys=("t", "u"), key_type=1),
        RequestNames(transactional_ids={"t", "u"}),
    ),
    "a transaction": (EndTxnRequest(transactional_id="t"), RequestNames(transactional_ids={"t"})),
    "a transaction's partitions, as there were few": (
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="t",
            v3_and_below_topics=(AddPartitionsToTxnTopic(name="a", partitions=(5,)),),
        ),
        RequestNames(topics={"a"}, partitions={("a", 5)}, transactional_ids={"t"}),
    ),
}


@pytest.mark.parametrize(("request_", "expected"), CASES.values(), ids=CASES)
def test_what_a_request_names(request_, expected):
    assert names_of(request_) == expected
