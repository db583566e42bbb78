"""What an authorizer does not allow is refused by the admin APIs with the code Kafka has for it."""

import pytest

from exactlog.core.model.authorization import CLUSTER_NAME, Operation, ResourceType
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from exactlog.core.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from exactlog.core.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from exactlog.core.protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.support.raw_admin import BROKER, SET, TOPIC, alter, alter_incrementally, create_partitions, growth

CLUSTER = (ResourceType.CLUSTER, CLUSTER_NAME)


class Forbidding:
    """Allows everything but what is named."""

    def __init__(self):
        self.forbidden = set()

    def is_allowed(self, requester, operation, resource_type, name):
        return (operation, resource_type, name) not in self.forbidden


@pytest.fixture
def forbid(broker, monkeypatch):
    """Forbids an operation on a resource for the rest of the test."""
    authorizer = Forbidding()
    monkeypatch.setattr(
        "exactlog.broker.request_context.RequestContext.allows",
        lambda self, operation, resource_type, name: authorizer.is_allowed(None, operation, resource_type, name),
    )
    return lambda *what: authorizer.forbidden.add(what)


def created(raw, name):
    (result,) = raw.ask(
        CreateTopicsRequest(topics=(CreatableTopic(name=name, num_partitions=1, replication_factor=1),)), 7
    ).topics
    return result


def described(raw, kind, name):
    asked = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    (result,) = raw.ask(DescribeConfigsRequest(resources=(asked,)), 4).results
    return result


def test_a_topic_is_created_by_who_may_create_it_or_anything_in_the_cluster(raw, forbid):
    forbid(Operation.CREATE, ResourceType.TOPIC, "mine-1")
    assert created(raw, "mine-1").error_code == ErrorCode.NONE

    forbid(Operation.CREATE, *CLUSTER)
    forbid(Operation.CREATE, ResourceType.TOPIC, "mine-2")
    assert created(raw, "mine-2").error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert created(raw, "mine-3").error_code == ErrorCode.NONE


def test_a_new_topic_is_not_described_to_who_may_not_see_its_settings(raw, forbid):
    forbid(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "unseen")

    result = created(raw, "unseen")

    assert (result.error_code, result.topic_config_error_code) == (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert (result.configs, result.num_partitions, result.replication_factor) == ((), -1, -1)


def test_a_topic_grows_for_who_may_alter_it(raw, topic, forbid):
    forbid(Operation.ALTER, ResourceType.TOPIC, topic.name)

    (result,) = create_partitions(raw, growth(topic.name, 2)).values()

    assert result.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_topic_is_deleted_by_who_may_delete_it(raw, topic, forbid):
    forbid(Operation.DELETE, *CLUSTER)
    forbid(Operation.DELETE, ResourceType.TOPIC, topic.name)
    states = DeleteTopicState(name=topic.name), DeleteTopicState(topic_id=topic.topic_id)

    results = raw.ask(DeleteTopicsRequest(topics=states), 6).responses

    assert [result.error_code for result in results] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2


@pytest.mark.parametrize("kind", [TOPIC, BROKER])
def test_settings_are_seen_and_changed_by_who_may(raw, topic, forbid, kind):
    name = topic.name if kind == TOPIC else "1"
    resource = (ResourceType.TOPIC, name) if kind == TOPIC else CLUSTER
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED if kind == TOPIC else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    forbid(Operation.DESCRIBE_CONFIGS, *resource)
    forbid(Operation.ALTER_CONFIGS, *resource)

    assert described(raw, kind, name).error_code == refused
    assert [refusal.error_code for refusal in alter(raw, (kind, name, {"retention.ms": "1"}))] == [refused]
    assert [refusal.error_code for refusal in alter_incrementally(raw, (kind, name, ("retention.ms", SET, "1")))] == [
        refused
    ]


def test_resources_are_listed_to_who_may_see_settings_of_the_cluster(raw, forbid):
    forbid(Operation.DESCRIBE_CONFIGS, *CLUSTER)

    response = raw.ask(ListConfigResourcesRequest(), 1)

    assert (response.error_code, response.config_resources) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ())
