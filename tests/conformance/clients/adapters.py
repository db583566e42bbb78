"""The clients of the matrix: how each is made, how it becomes a member of a group, and what it cannot do by itself.

A case says by the marker `needs` what it takes. It runs with every client that can.
"""

import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tests.conformance.clients.aiokafka_adapter import Aiokafka
from tests.conformance.clients.confluent_adapter import ConfluentKafka
from tests.conformance.clients.kafka_python_adapter import KafkaPython
from tests.conformance.clients.program_adapter import ClientProgram
from tests.peers import PROJECT
from tests.peers.go_programs import build_go_program
from tests.peers.java_programs import java_client_cases

JAVA_CLIENTS = {"java-4.4": "4.4.0", "java-3.9": "3.9.2"}

FEATURES = frozenset(
    {
        "produce", "idempotence", "empty", "append time", "consume", "offset_at", "list_offset", "tiers",
        "create_topic", "delete_topic", "delete_records", "partition_counts", "settings", "alter_settings",
        "incremental settings", "create_partitions", "describe_cluster", "log_sizes", "producers",
        "commit", "committed", "metadata", "consume_in_group", "alter_group_offsets", "delete_group_offsets",
        "groups", "group states", "describe_group", "delete_group",
        "member", "static member", "cooperative", "client_apis",
        "transactions", "read committed", "copy",
    }
)  # fmt: skip
"""All that cases may need."""


class Client(NamedTuple):
    """A client of the matrix.

    Attributes:
        open: makes an adapter for a broker's address; what has `close()` is closed after use.
        member_command: the command that becomes a member of a group; the membership in JSON is to follow.
        copy_command: the command that copies a topic in transactions; how, in JSON, is to follow.
        cannot: what the client itself does not offer, and why.
        is_peer: whether it needs tools besides Python.
    """

    open: Callable[[str], Any]
    member_command: Callable[[str], list[str]]
    copy_command: Callable[[str], list[str]]
    cannot: Mapping[str, str]
    is_peer: bool = False


def _python(module, *arguments):
    return lambda bootstrap_servers: [sys.executable, "-m", f"{__package__}.{module}", *arguments, bootstrap_servers]


def _java(version):
    def command(bootstrap_servers):
        return [*java_client_cases(version), bootstrap_servers]

    return {
        "open": lambda bootstrap_servers: ClientProgram(command(bootstrap_servers)),
        "member_command": lambda bootstrap_servers: [*command(bootstrap_servers), "member"],
        "copy_command": lambda bootstrap_servers: [*command(bootstrap_servers), "copy"],
        "is_peer": True,
    }


def _go(library):
    def command(bootstrap_servers):
        program = build_go_program(PROJECT / "tests" / "peers" / "go" / "clientcases")
        return [str(program), "-bootstrap", bootstrap_servers, "-client", library]

    return {
        "open": lambda bootstrap_servers: ClientProgram(command(bootstrap_servers)),
        "member_command": lambda bootstrap_servers: [*command(bootstrap_servers), "member"],
        "copy_command": lambda bootstrap_servers: [*command(bootstrap_servers), "copy"],
        "is_peer": True,
    }


NO_API_TABLE = {"client_apis": "only the Java program is asked for the APIs that it knows"}

CLIENTS: Mapping[str, Client] = {
    "confluent-kafka": Client(
        ConfluentKafka,
        _python("python_member", "confluent-kafka"),
        _python("python_copier", "confluent-kafka"),
        cannot={
            "tiers": "librdkafka has no specifications for tiered logs",
            "log_sizes": "librdkafka has no DescribeLogDirs",
            "producers": "librdkafka has no DescribeProducers",
            "metadata": "confluent-kafka reads past the end of the metadata of a commit",
            "delete_group_offsets": "librdkafka has OffsetDelete, confluent-kafka does not hand it out",
        }
        | NO_API_TABLE,
    ),
    "kafka-python": Client(
        KafkaPython,
        _python("python_member", "kafka-python"),
        _python("python_copier", "kafka-python"),
        cannot=NO_API_TABLE,
    ),
    "aiokafka": Client(
        Aiokafka,
        _python("python_member", "aiokafka"),
        _python("python_copier", "aiokafka"),
        cannot={
            "list_offset": "its administration has no ListOffsets",
            "tiers": "it cannot list_offset at all",
            "incremental settings": "it has AlterConfigs only",
            "log_sizes": "it has no DescribeLogDirs",
            "producers": "it has no DescribeProducers",
            "alter_group_offsets": "its administration cannot commit",
            "delete_group_offsets": "it has no OffsetDelete",
            "group states": "its ListGroups is too old to tell states",
            "delete_group": "it has no DeleteGroups",
            "cooperative": "it has no cooperative assignor",
        }
        | NO_API_TABLE,
    ),
    "java-4.4": Client(**_java(JAVA_CLIENTS["java-4.4"]), cannot={}),
    "java-3.9": Client(**_java(JAVA_CLIENTS["java-3.9"]), cannot={}),
    "franz-go": Client(**_go("franz"), cannot=NO_API_TABLE),
    "kafka-go": Client(
        **_go("segmentio"),
        cannot={
            "idempotence": "its Writer has no idempotence",
            "empty": "its Reader does not tell empty from absent",
            "append time": "its Reader shows the producer's time",
            "list_offset": "its ListOffsets knows the ends and times only",
            "tiers": "its ListOffsets knows the ends and times only",
            "delete_records": "it has no DeleteRecords",
            "log_sizes": "it has no DescribeLogDirs",
            "producers": "it has no DescribeProducers",
            "group states": "its ListGroups is too old to tell states",
            "static member": "its ConsumerGroup has no group instance id",
            "cooperative": "its ConsumerGroup is eager",
            "read committed": "its Reader hands out aborted records, and markers too",
            "copy": "it has no transactional producer",
        }
        | NO_API_TABLE,
    ),
    "kcat": Client(
        lambda bootstrap_servers: None,
        _python("kcat_member"),
        lambda bootstrap_servers: [],
        cannot=dict.fromkeys(
            FEATURES - {"member", "static member", "cooperative"},
            "a command line; what it does besides membership has cases of its own",
        ),
        is_peer=True,
    ),
}
