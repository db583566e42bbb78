"""`KNOWN_GAPS.md` names every API that a client may ask for and the broker does not serve, and clients see it so."""

import re

import pytest
from confluent_kafka import admin

from exactlog.broker.api_table import API_TABLE
from tests.conformance.clients.confluent_adapter import outcome
from tests.conformance.clients.face import refused
from tests.peers import PROJECT

pytestmark = pytest.mark.only_exactlog

BETWEEN_BROKERS = range(4, 8), (56, 58, 67)
"""In the list of 3.9, which has brokers' own APIs too: LeaderAndIsr and its like; AlterPartition, Envelope,
AllocateProducerIds."""

ATTEMPTS = [
    "DescribeAcls", "CreateAcls", "DeleteAcls", "DescribeUserScramCredentials", "AlterUserScramCredentials",
    "CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken", "DescribeDelegationToken",
    "DescribeClientQuotas", "AlterClientQuotas", "ElectLeaders", "AlterPartitionReassignments",
    "ListPartitionReassignments", "AlterReplicaLogDirs", "DescribeQuorum", "UnregisterBroker", "UpdateFeatures",
    "ConsumerGroupHeartbeat",
]  # fmt: skip
"""The calls of Java's administration, by the API that each makes."""


def named_in(*titles):
    """The APIs in the first column of the tables under these titles."""
    page = (PROJECT / "KNOWN_GAPS.md").read_text()
    sections = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", page, flags=re.MULTILINE | re.DOTALL))
    rows = re.findall(
        r"^\| (?!API )([A-Z]\w+(?:, \w+)*) \|", "".join(sections[title] for title in titles), flags=re.MULTILINE
    )
    return [name for row in rows for name in row.split(", ")]


@pytest.mark.needs("client_apis")
def test_the_page_names_what_the_java_client_knows_and_the_broker_does_not_serve(client, client_name):
    known = client.client_apis()
    ours_alone = {key for keys in BETWEEN_BROKERS for key in keys}

    missing = {name for key, name in known.items() if key not in API_TABLE and key not in ours_alone}

    named = set(named_in("Refused"))
    assert missing <= named
    if client_name == "java-4.4":
        assert missing == named


def test_the_page_names_nothing_twice():
    names = named_in("Refused")

    assert len(names) == len(set(names)) > 40
    assert set(ATTEMPTS) <= set(names)


@pytest.mark.needs("client_apis")
@pytest.mark.parametrize("api", ATTEMPTS)
def test_the_java_client_is_told_that_the_broker_does_not_serve_it(client, topic, api):
    with refused("UNSUPPORTED_VERSION"):
        client.attempt(api, topic)


@pytest.fixture
def administration(bootstrap_servers):
    """librdkafka's administration, which lets through what the broker is to refuse."""
    return admin.AdminClient({"bootstrap.servers": bootstrap_servers})


def test_there_are_no_other_nodes_to_put_a_partition_on(administration, control, new_name):
    with refused("INVALID_REPLICATION_FACTOR"):
        outcome(administration.create_topics([admin.NewTopic(new_name, 1, 3)]))
    with refused("INVALID_REPLICA_ASSIGNMENT"):
        outcome(administration.create_topics([admin.NewTopic(new_name, 1, replica_assignment=[[7]])]))

    control.create_topic(new_name)
    with refused("INVALID_REPLICA_ASSIGNMENT"):
        outcome(administration.create_partitions([admin.NewPartitions(new_name, 2, replica_assignment=[[7]])]))


def altered(kind, name, key, value):
    entry = admin.ConfigEntry(key, value, incremental_operation=admin.AlterConfigOpType.SET)
    return admin.ConfigResource(kind, name, incremental_configs=[entry])


def test_settings_that_would_not_act_are_not_kept(administration, control):
    broker = str(control.describe_cluster()["controller"])
    kind = admin.ConfigResource.Type

    for code, resource in {
        "INVALID_REQUEST": altered(kind.BROKER, broker, "num.partitions", "3"),
        "INVALID_CONFIG": altered(kind.BROKER, broker, "no.such.key", "3"),
    }.items():
        with refused(code):
            outcome(administration.incremental_alter_configs([resource]))


def test_groups_have_no_settings(administration, new_name):
    kind = admin.ConfigResource.Type

    with refused("INVALID_REQUEST"):
        outcome(administration.describe_configs([admin.ConfigResource(kind.GROUP, new_name)]))
    with refused("INVALID_REQUEST"):
        changes = altered(kind.GROUP, new_name, "consumer.session.timeout.ms", "50000")
        outcome(administration.incremental_alter_configs([changes]))
