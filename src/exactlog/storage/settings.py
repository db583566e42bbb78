"""What a partition log is told when it is opened."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from exactlog.core.deltalog.commit_format import TableMetadata
from exactlog.core.model.limits import INDEX_INTERVAL_BYTES, SEGMENT_BYTES_MAX


class FlushMode(StrEnum):
    """When what was appended is made durable (`flush.mode`)."""

    COMMIT = "commit"
    """Every round is synced before anything is answered: what is acknowledged survives a power cut."""
    INTERVAL = "interval"
    """Acknowledged once the operating system has it, synced every `flush.interval.ms`."""
    NONE = "none"
    """Acknowledged once the operating system has it, as in Apache Kafka by default; synced only before a checkpoint."""


class LogSettings(Struct, frozen=True):
    """The settings of one partition log; those of its topic and those of its node."""

    node_id: int = 1
    leader_epoch: int = 0
    flush_mode: FlushMode = FlushMode.COMMIT
    is_journaled: bool = False
    """Whether what a round makes durable is in a commit journal first, and in the partition's files later."""
    segment_bytes: int = SEGMENT_BYTES_MAX
    segment_ms: int = 2**63 - 1
    """A segment rolls when a batch comes that is so much younger than its first one."""
    checkpoint_interval: int = 10
    """A checkpoint is due at every so manyth version (seed 000 §2.3)."""
    checkpoint_min_interval_ms: int = 1000
    versions_keep: int = 1000
    """How many of the newest versions keep a document of their own (`delta.versions.keep`); older ones are packed."""
    file_delete_delay_ms: int = 60_000
    """How long the files of removed segments stay."""
    log_append_time: bool = False
    """`message.timestamp.type=LogAppendTime`: the broker's clock replaces the producer's."""
    index_interval_bytes: int = INDEX_INTERVAL_BYTES
    topic_config: Mapping[str, str] = {}
    """What was set on the topic, as given: it stands in the table's metadata, with the flush mode."""

    @property
    def publishes_in_round(self) -> bool:
        """Whether a round gives what it commits its delta version too; else that follows within a moment."""
        return self.flush_mode is FlushMode.COMMIT and not self.is_journaled

    def are_recorded_in(self, metadata: TableMetadata) -> bool:
        """Whether the table says already what was set, and how it is made durable."""
        set_on_topic = {name: value for name, value in metadata.config.items() if name != FLUSH_MODE_KEY}
        return set_on_topic == self.topic_config and recorded_flush_mode(metadata) is self.flush_mode

    def record_in(self, metadata: TableMetadata) -> TableMetadata:
        """What the table is to say of itself under these settings."""
        return TableMetadata(
            topic=metadata.topic,
            partition=metadata.partition,
            topic_id=metadata.topic_id,
            created=metadata.created,
            format_version=metadata.format_version,
            config={**self.topic_config, FLUSH_MODE_KEY: self.flush_mode},
        )


FLUSH_MODE_KEY = "flush.mode"


def recorded_flush_mode(metadata: TableMetadata) -> FlushMode:
    """The flush mode under which a table has been written since that metadata: what a crash may have taken."""
    return FlushMode(metadata.config.get(FLUSH_MODE_KEY, FlushMode.COMMIT))
