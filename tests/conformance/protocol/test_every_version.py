"""Every API that is served, in every version that is served: a valid request is answered in that version, without error.

`RawClient.receive` sees to it that the answer decodes as its version asks, to its last byte.
"""

import uuid

import msgspec
import pytest

from exactlog.broker.api_table import API_TABLE
from exactlog.core.protocol.api_keys import APIS, ApiKey
from exactlog.core.protocol.messages.api_versions import ApiVersionsRequest
from exactlog.core.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from exactlog.core.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from exactlog.core.protocol.messages.describe_cluster import DescribeClusterRequest
from exactlog.core.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from exactlog.core.protocol.messages.find_coordinator import FindCoordinatorRequest
from exactlog.core.protocol.messages.init_producer_id import InitProducerIdRequest
from exactlog.core.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from exactlog.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.raw_client import batch_of, fetch_request, produce_request


def list_offsets(topic, version):
    part = ListOffsetsPartition(partition_index=0, timestamp=-1)
    return ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name=topic.name, partitions=(part,)),))


def find_coordinator(topic, version):
    if version >= 4:
        return FindCoordinatorRequest(key_type=1, coordinator_keys=("one", "two"))
    return FindCoordinatorRequest(key="one", key_type=1 if version >= 1 else 0)


def create_topics(topic, version):
    config = CreatableTopicConfig(name="retention.ms", value="1000")
    name = f"created-{uuid.uuid4().hex}"
    return CreateTopicsRequest(
        topics=(CreatableTopic(name=name, num_partitions=2, replication_factor=1, configs=(config,)),)
    )


def delete_topics(topic, version):
    if version >= 6:
        return DeleteTopicsRequest(topics=(DeleteTopicState(topic_id=topic.topic_id),))
    return DeleteTopicsRequest(topic_names=(topic.name,))


def describe_configs(topic, version):
    resources = tuple(
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        for kind, name in ((2, topic.name), (4, "1"))
    )
    return DescribeConfigsRequest(
        resources=resources, include_synonyms=version >= 1, include_documentation=version >= 3
    )


REQUESTS = {
    ApiKey.PRODUCE: lambda topic, version: produce_request(topic, batch_of(b"value")),
    ApiKey.FETCH: lambda topic, version: fetch_request(topic, 0),
    ApiKey.LIST_OFFSETS: list_offsets,
    ApiKey.METADATA: lambda topic, version: MetadataRequest(topics=(MetadataRequestTopic(name=topic.name),)),
    ApiKey.FIND_COORDINATOR: find_coordinator,
    ApiKey.API_VERSIONS: lambda topic, version: ApiVersionsRequest(
        client_software_name="raw-client", client_software_version="1.0"
    ),
    ApiKey.CREATE_TOPICS: create_topics,
    ApiKey.DELETE_TOPICS: delete_topics,
    ApiKey.INIT_PRODUCER_ID: lambda topic, version: InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=60_000
    ),
    ApiKey.DESCRIBE_CONFIGS: describe_configs,
    ApiKey.DESCRIBE_CLUSTER: lambda topic, version: DescribeClusterRequest(),
}

SERVED = [
    pytest.param(api.key, version, id=f"{api.name}-{version}")
    for api in API_TABLE.values()
    for version in range(APIS[api.key].versions.lowest, api.max_version + 1)
]


def errors_in(value, path="response"):
    """Every error code in a response that is not 0, with where it stands."""
    if isinstance(value, tuple):
        return [error for index, item in enumerate(value) for error in errors_in(item, f"{path}[{index}]")]
    if not isinstance(value, msgspec.Struct):
        return []
    found = []
    for name in value.__struct_fields__:
        field = getattr(value, name)
        if name.endswith("error_code"):
            found += [f"{path}.{name} = {field}"] if field else []
        else:
            found += errors_in(field, f"{path}.{name}")
    return found


def test_every_served_api_has_a_request_here():
    assert set(REQUESTS) == set(API_TABLE)


@pytest.mark.parametrize(("api_key", "version"), SERVED)
def test_a_valid_request_is_answered_in_its_version_without_error(raw, topic, api_key, version):
    response = raw.ask(REQUESTS[api_key](topic, version), version)

    assert isinstance(response, APIS[api_key].response)
    assert errors_in(response) == []


@pytest.mark.parametrize(("api_key", "version"), SERVED)
def test_a_request_of_no_version_disturbs_the_next_one_on_its_connection(raw, topic, api_key, version):
    raw.send_all((REQUESTS[api_key](topic, version), version), (ApiVersionsRequest(), 0))

    raw.receive()
    assert raw.receive().error_code == 0
