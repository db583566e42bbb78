"""Which table a directory is: as the catalog beside it says, or where there is none, as the table itself does."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final
from uuid import UUID

from msgspec import Struct

from exactlog.core.config.broker_configs import BrokerConfig
from exactlog.core.config.definition import InvalidConfig
from exactlog.core.config.topic_configs import TopicConfig, validate_topic_config
from exactlog.core.deltalog.log_path import (
    PartitionDirectoryName,
    parse_partition_directory_name,
    print_partition_directory_name,
)
from exactlog.core.deltalog.table_state import TableSnapshot
from exactlog.core.model.errors import DamageError, NotFoundError
from exactlog.core.model.ids import LeaderEpoch, TopicPartition
from exactlog.log.errors import InvalidArgumentError
from exactlog.storage.boot_id import note_boot
from exactlog.storage.catalog import CATALOG_NAME, Catalog, CatalogTopic, TopicState
from exactlog.storage.settings import FLUSH_MODE_KEY

DEFAULTS: Final = BrokerConfig()
"""What a broker without any configuration does, and a table without a broker too."""


class TablePlace(Struct, frozen=True):
    """A partition as it is to be opened."""

    topic_partition: TopicPartition
    topic_id: UUID
    config: TopicConfig
    leader_epoch: int


class CatalogFacts(Struct, frozen=True):
    """What a catalog says to whoever opens partitions beside it."""

    path: str
    node_id: int
    leader_epoch: int
    boot_epoch: LeaderEpoch | None
    """See `note_boot`."""
    topics: Mapping[str, CatalogTopic]
    """The live ones, by name."""

    def place_of(self, directory_name: str) -> TablePlace:
        """The partition in a directory of that name.

        Raises:
            NotFoundError: the catalog does not know it.
        """
        parsed = parse_directory_name(directory_name)
        topic = self._topic_of(parsed, directory_name)
        if topic is None or parsed.partition >= topic.partition_count:
            raise NotFoundError(
                f"{self.path} has no partition {directory_name}: no broker would serve it",
                hint="create the topic with a broker on this data directory, or use a directory without a catalog",
            )
        config = _validate(topic.config, f"{self.path}: the configuration of topic {topic.name}")
        return TablePlace(TopicPartition(topic.name, parsed.partition), topic.topic_id, config, self.leader_epoch)

    def _topic_of(self, parsed: PartitionDirectoryName, directory_name: str) -> CatalogTopic | None:
        if parsed.topic is not None:
            return self.topics.get(parsed.topic)
        names = [
            name for name in self.topics if print_partition_directory_name(name, parsed.partition) == directory_name
        ]
        return self.topics[names[0]] if names else None


def read_catalog(data_dir: str, *, is_trial: bool = False) -> CatalogFacts | None:
    """The catalog of a data directory, for a new owner of it: the owner epoch is one higher. None without a catalog.

    Args:
        is_trial: whether the catalog stays as it is, for an owner who keeps nothing.

    Raises:
        DamageError: it cannot be read.
        OSError: the disk refuses.
    """
    path = Path(data_dir, CATALOG_NAME)
    if not path.exists():
        return None
    catalog = Catalog(str(path))
    try:
        node_id = catalog.get("node_id")
        leader_epoch = catalog.next_owner_epoch() if is_trial else catalog.advance_owner_epoch()
        return CatalogFacts(
            path=str(path),
            node_id=DEFAULTS.node_id if node_id is None else int(node_id),
            leader_epoch=leader_epoch,
            boot_epoch=None if is_trial else note_boot(catalog, leader_epoch),
            topics={topic.name: topic for topic in catalog.topics() if topic.state is TopicState.LIVE},
        )
    finally:
        catalog.close()


def place_of_table(directory_name: str, table: TableSnapshot) -> TablePlace:
    """The partition in a directory of that name, as its own metadata has it; its leader epoch is one higher.

    Raises:
        DamageError: its configuration is not valid.
    """
    parsed = parse_directory_name(directory_name)
    metadata = table.metadata
    topic = metadata.topic if parsed.topic is None else parsed.topic
    overrides = {key: value for key, value in metadata.config.items() if key != FLUSH_MODE_KEY}
    config = _validate(overrides, f"{directory_name}: the configuration in its metadata")
    return TablePlace(TopicPartition(topic, parsed.partition), metadata.topic_id, config, table.leader_epoch + 1)


def parse_directory_name(name: str) -> PartitionDirectoryName:
    """The topic and the partition that a directory is named after.

    Raises:
        InvalidArgumentError: it is not the name of a partition's directory.
    """
    parsed = parse_partition_directory_name(name)
    if parsed is None:
        raise InvalidArgumentError(
            f"{name!r} is not the name of a partition's directory",
            hint="a partition's directory is called topic=NAME-part=NUMBER, as in data/topic=orders-part=0",
        )
    return parsed


def _validate(overrides: Mapping[str, str], what: str) -> TopicConfig:
    config = validate_topic_config(overrides)
    if isinstance(config, InvalidConfig):
        raise DamageError(f"{what} is not valid: {config}")
    return config
