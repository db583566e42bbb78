"""`exactlog topic`: create, list, describe, alter and delete topics."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import click
from msgspec import Struct

from exactlog.cli.client import run_with_client
from exactlog.cli.completion_names import complete_topics
from exactlog.cli.errors import InvalidUsageError, PartlyDoneError
from exactlog.cli.output import Row, write_line, write_object, write_rows
from exactlog.cli.settings import Group, Settings, split_assignment
from exactlog.client.ports import (
    EARLIEST,
    LATEST,
    Client,
    ConfigSource,
    IsolationLevel,
    TopicDescription,
    TopicListing,
)
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import ExactlogError, KafkaError
from exactlog.core.model.ids import TopicPartition

BROKER_DEFAULT: Final = -1

_TOPIC_COLUMNS: Final = ("topic", "partitions", "topic_id", "internal")
_PARTITION_COLUMNS: Final = (
    "partition",
    "leader",
    "leader_epoch",
    "in_sync_replicas",
    "log_start_offset",
    "last_stable_offset",
    "end_offset",
)
_CONFIG_COLUMNS: Final = ("name", "value", "source")


class DescribedTopic(Struct, frozen=True):
    """A topic as rows: itself, its partitions, its configuration."""

    topic: Row
    partitions: Sequence[Row]
    configs: Sequence[Row]


@click.group(cls=Group)
def topic() -> None:
    """Create, list, describe, alter and delete topics."""


@topic.command()
@click.argument("name")
@click.option("-p", "--partitions", type=click.IntRange(1), help="How many; the broker's num.partitions by default.")
@click.option("-c", "--config", "assignments", metavar="KEY=VALUE", multiple=True, help="Set a configuration key.")
@click.option("--if-not-exists", is_flag=True, help="A topic that exists already is fine, whatever it is like.")
@click.pass_obj
def create(
    settings: Settings, /, *, name: str, partitions: int | None, assignments: tuple[str, ...], if_not_exists: bool
) -> None:
    """Create the topic NAME. Any client can use it at once."""
    configs = dict(map(split_assignment, assignments))
    count = BROKER_DEFAULT if partitions is None else partitions

    async def work(client: Client) -> Row:
        try:
            created = await client.create_topic(name, partition_count=count, configs=configs)
        except KafkaError as error:
            if error.kafka_error is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            if not if_not_exists:
                error.hint = "With --if-not-exists a topic that is there already is fine."
                raise
            return {**topic_row(await client.describe_topic(name)), "created": False}
        return {**topic_row(created), "created": True}

    write_object(run_with_client(settings, work), output=settings.output_of_list())


@topic.command("list")
@click.option("--internal", is_flag=True, help="Those the broker keeps for itself too.")
@click.pass_obj
def list_topics(settings: Settings, /, *, internal: bool) -> None:
    """List the topics by name."""
    listings = run_with_client(settings, lambda client: client.list_topics(include_internal=internal))
    write_rows(map(topic_row, listings), columns=_TOPIC_COLUMNS, output=settings.output_of_list())


@topic.command()
@click.argument("name", shell_complete=complete_topics)
@click.pass_obj
def describe(settings: Settings, /, *, name: str) -> None:
    """Describe the topic NAME: its partitions with their offsets, and its configuration.

    A table shows what of the configuration was set, on the topic or for all topics of the broker; JSON shows all.
    """
    described = run_with_client(settings, lambda client: describe_topic(client, name))
    output = settings.output_of_list()
    if output != "table":
        write_object(
            {**described.topic, "partitions": described.partitions, "configs": described.configs}, output=output
        )
        return
    write_object({**described.topic, "partitions": len(described.partitions)}, output=output)
    write_line("")
    write_rows(described.partitions, columns=_PARTITION_COLUMNS, output=output)
    configs_set = [
        config for config in described.configs if config["source"] != _source_text(ConfigSource.DEFAULT_CONFIG)
    ]
    if configs_set:
        write_line("")
        write_rows(configs_set, columns=_CONFIG_COLUMNS, output=output)


@topic.command()
@click.argument("name", shell_complete=complete_topics)
@click.option("-p", "--partitions", type=click.IntRange(1), help="How many it shall have in all; never fewer.")
@click.option("-c", "--config", "assignments", metavar="KEY=VALUE", multiple=True, help="Set a key; KEY= unsets it.")
@click.pass_obj
def alter(settings: Settings, /, *, name: str, partitions: int | None, assignments: tuple[str, ...]) -> None:
    """Give the topic NAME more partitions, or another configuration. It is in force when this returns."""
    changes = {key: value or None for key, value in map(split_assignment, assignments)}
    if partitions is None and not changes:
        raise InvalidUsageError("nothing to alter", hint="Say -p PARTITIONS, -c KEY=VALUE, or both.")
    work = partial(alter_topic, name=name, partition_count=partitions, changes=changes)
    write_object(run_with_client(settings, work), output=settings.output_of_list())


@topic.command()
@click.argument("name", shell_complete=complete_topics)
@click.option("--yes", is_flag=True, help="Yes, delete it with all its records.")
@click.pass_obj
def delete(settings: Settings, /, *, name: str, yes: bool) -> None:
    """Delete the topic NAME and all its records."""
    if not yes:
        raise InvalidUsageError(f"deleting {name} destroys its records", hint="Add --yes if that is meant.")
    run_with_client(settings, lambda client: client.delete_topic(name))
    write_object({"topic": name, "deleted": True}, output=settings.output_of_list())


def topic_row(topic: TopicListing | TopicDescription) -> Row:
    """The topic as a row."""
    partition_count = topic.partition_count if isinstance(topic, TopicListing) else len(topic.partitions)
    return {
        "topic": topic.name,
        "topic_id": None if topic.topic_id is None else str(topic.topic_id),
        "partitions": partition_count,
        "internal": topic.is_internal,
    }


async def alter_topic(
    client: Client, *, name: str, partition_count: int | None, changes: Mapping[str, str | None]
) -> Row:
    """Alter a topic, and say what it is like now.

    Raises:
        PartlyDoneError: it has more partitions, and its configuration is as it was.
    """
    if partition_count is not None:
        await client.create_partitions(name, partition_count)
    if changes:
        try:
            await client.alter_topic_configs(name, changes)
        except ExactlogError as error:
            if partition_count is None:
                raise
            done = f"topic {name} has {partition_count} partitions now, then: {error}"
            raise PartlyDoneError(done, error) from error
    described = await client.describe_topic(name)
    altered = {config.name: config.value for config in described.configs if config.name in changes}
    return {**topic_row(described), "configs": altered}


async def describe_topic(client: Client, name: str) -> DescribedTopic:
    """All about a topic: what it is, its partitions with their offsets, its configuration."""
    found = await client.describe_topic(name)
    places = {partition.partition: TopicPartition(name, partition.partition) for partition in found.partitions}
    starts, stable_ends, ends = [
        await client.list_offsets(dict.fromkeys(places.values(), time), isolation=isolation)
        for time, isolation in (
            (EARLIEST, IsolationLevel.READ_UNCOMMITTED),
            (LATEST, IsolationLevel.READ_COMMITTED),
            (LATEST, IsolationLevel.READ_UNCOMMITTED),
        )
    ]
    partitions = [
        {
            "partition": partition.partition,
            "leader": partition.leader_id,
            "leader_epoch": partition.leader_epoch,
            "replicas": partition.replicas,
            "in_sync_replicas": partition.in_sync_replicas,
            "log_start_offset": starts[places[partition.partition]].offset,
            "last_stable_offset": stable_ends[places[partition.partition]].offset,
            "end_offset": ends[places[partition.partition]].offset,
        }
        for partition in found.partitions
    ]
    configs = [
        {
            "name": config.name,
            "value": config.value,
            "source": _source_text(config.source),
            "is_default": config.is_default,
        }
        for config in found.configs
    ]
    return DescribedTopic(topic_row(found), partitions, configs)


def _source_text(source: ConfigSource) -> str:
    """Kafka's name of where a value comes from, as `dynamic_topic_config`."""
    return source.name.lower()
