"""A valid request for every API that is served, in any version that is served."""

import uuid

from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.messages.api_versions import ApiVersionsRequest
from exactlog.core.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from exactlog.core.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from exactlog.core.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from exactlog.core.protocol.messages.describe_cluster import DescribeClusterRequest
from exactlog.core.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from exactlog.core.protocol.messages.find_coordinator import FindCoordinatorRequest
from exactlog.core.protocol.messages.init_producer_id import InitProducerIdRequest
from exactlog.core.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from exactlog.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.raw_client import batch_of, fetch_request, produce_request


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
    ApiKey.DESCRIBE_CONFIGS: _describe_configs,
    ApiKey.DESCRIBE_CLUSTER: lambda topic, version: DescribeClusterRequest(),
}
"""By API: what makes a request about a topic in a version."""
