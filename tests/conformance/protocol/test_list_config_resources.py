"""ListConfigResources: what has a configuration here, by type."""

import pytest

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.support.raw_admin import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC


def listed(raw, *types, version=1):
    response = raw.ask(ListConfigResourcesRequest(resource_types=types), version)
    assert response.error_code == ErrorCode.NONE
    return {(resource.resource_type, resource.resource_name) for resource in response.config_resources}


def test_the_broker_and_all_topics_are_listed(raw, topic):
    found = listed(raw)

    assert {(BROKER, "1"), (TOPIC, topic.name)} <= found
    assert {kind for kind, _ in found} == {BROKER, TOPIC}


def test_only_the_types_asked_for_are_listed(raw, topic):
    assert listed(raw, BROKER) == {(BROKER, "1")}
    assert (TOPIC, topic.name) in listed(raw, TOPIC)
    assert {kind for kind, _ in listed(raw, TOPIC)} == {TOPIC}


def test_of_types_that_are_not_configured_here_there_are_none(raw):
    assert listed(raw, BROKER_LOGGER, CLIENT_METRICS, GROUP) == set()


def test_version_0_lists_client_metrics_alone(raw, topic):
    assert listed(raw, version=0) == set()


@pytest.mark.parametrize("types", [(0,), (1,), (99,), (TOPIC, 99)])
def test_a_type_that_there_is_not_is_refused(raw, types):
    response = raw.ask(ListConfigResourcesRequest(resource_types=types), 1)

    assert (response.error_code, response.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, ())
