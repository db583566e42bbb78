"""What the topics of a region are called, and whose writer it has: `<namespace>_data_<region>` and `.._meta_..`."""

import re
from typing import Final

from msgspec import Struct

from exactlog.core.model.errors import ConfigError

REGION_MAX: Final = 2**64 - 1

TOPIC_CONFIGS: Final = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}
"""A region deletes its records itself, and only behind a durable snapshot: nobody else may."""

META_TOPIC_CONFIGS: Final = {**TOPIC_CONFIGS, "max.message.bytes": str(64 * 1024 * 1024)}
"""A snapshot is one record: about 20 bytes for each table, so that millions of them fit."""

_NAMESPACE: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")


class RegionTopics(Struct, frozen=True):
    """The names that belong to one region."""

    namespace: str
    region: int

    @property
    def data(self) -> str:
        """The topic with the entries."""
        return f"{self.namespace}_data_{self.region}"

    @property
    def meta(self) -> str:
        """The topic with the snapshots of the metadata."""
        return f"{self.namespace}_meta_{self.region}"

    @property
    def transactional_id(self) -> str:
        """Whoever has it is the one writer of the region."""
        return f"{self.namespace}_wal_{self.region}"


def check_namespace(namespace: str) -> str:
    """The namespace, if topics can be called so.

    Raises:
        ConfigError: they cannot.
    """
    if not _NAMESPACE.fullmatch(namespace):
        raise ConfigError(
            f"namespace {namespace!r} cannot begin the name of a topic",
            hint="use up to 200 letters, digits, dots, dashes and underscores",
        )
    return namespace


def region_of_topic(namespace: str, topic: str) -> int | None:
    """Which region of the namespace a topic belongs to; None where it is no topic of a region."""
    match = re.fullmatch(rf"{re.escape(namespace)}_(?:data|meta)_(0|[1-9][0-9]{{0,19}})", topic)
    return None if match is None or int(match[1]) > REGION_MAX else int(match[1])


def endangering_settings(configs: dict[str, str | None]) -> dict[str, str]:
    """Those settings of a topic under which a broker would delete records by itself."""
    return {
        name: found
        for name, wanted in TOPIC_CONFIGS.items()
        if (found := configs.get(name)) is not None and found != wanted
    }
