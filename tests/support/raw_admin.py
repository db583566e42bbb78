"""What a client asks of the admin APIs about partitions and configurations, in one line each."""

from typing import NamedTuple

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages import alter_configs, incremental_alter_configs
from exactlog.core.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from exactlog.core.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from exactlog.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


class Refusal(NamedTuple):
    """An error code and what was said with it."""

    error_code: ErrorCode
    message: str | None


DONE = Refusal(ErrorCode.NONE, None)


def growth(name, count, *assignments):
    """A topic that shall have so many partitions, the new ones held by these brokers."""
    assigned = tuple(CreatePartitionsAssignment(broker_ids=brokers) for brokers in assignments)
    return CreatePartitionsTopic(name=name, count=count, assignments=assigned or None)


def create_partitions(raw, *growths, version=3, **options):
    """What became of each topic, by its name."""
    results = raw.ask(CreatePartitionsRequest(topics=growths, timeout_ms=10_000, **options), version).results
    assert len(results) == len({growth.name for growth in growths})
    return {result.name: Refusal(ErrorCode(result.error_code), result.error_message) for result in results}


def partition_count(raw, name):
    """How many partitions a topic has."""
    asked = MetadataRequest(topics=(MetadataRequestTopic(name=name),), allow_auto_topic_creation=False)
    (described,) = raw.ask(asked, 12).topics
    return len(described.partitions)


def alter(raw, *resources, version=2, **options):
    """AlterConfigs of resources, each as (type, name, {key: value}); what became of each."""
    asked = tuple(
        alter_configs.AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=tuple(alter_configs.AlterableConfig(name=key, value=value) for key, value in configs.items()),
        )
        for kind, name, configs in resources
    )
    return _refusals(raw.ask(alter_configs.AlterConfigsRequest(resources=asked, **options), version), asked)


def alter_incrementally(raw, *resources, version=1, **options):
    """IncrementalAlterConfigs of resources, each as (type, name, (key, operation, value)...); what became of each."""
    asked = tuple(
        incremental_alter_configs.AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=tuple(
                incremental_alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
                for key, operation, value in changes
            ),
        )
        for kind, name, *changes in resources
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=asked, **options)
    return _refusals(raw.ask(request, version), asked)


def set_on(raw, kind, name, **configs):
    """Sets keys, spelled with underscores, on a topic or broker; it must succeed."""
    changes = [(key.replace("_", "."), SET, str(value)) for key, value in configs.items()]
    assert alter_incrementally(raw, (kind, name, *changes)) == [DONE]


def described(raw, kind, name, *keys, **options):
    """The settings of a resource, by name; all of them where no keys are given."""
    asked = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys or None)
    (result,) = raw.ask(DescribeConfigsRequest(resources=(asked,), **options), 4).results
    assert result.error_code == 0, result.error_message
    return {entry.name: entry for entry in result.configs}


def _refusals(response, asked):
    answered = [(answer.resource_type, answer.resource_name) for answer in response.responses]
    assert answered == [(resource.resource_type, resource.resource_name) for resource in asked]
    return [Refusal(ErrorCode(answer.error_code), answer.error_message) for answer in response.responses]
