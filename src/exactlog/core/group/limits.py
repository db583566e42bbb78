"""The bounds that a group coordinator holds its groups to."""

from msgspec import Struct


class GroupLimits(Struct, frozen=True):
    """Kafka's settings for groups, with Kafka's defaults except for the delay."""

    session_timeout_ms_min: int = 6_000
    session_timeout_ms_max: int = 1_800_000
    initial_rebalance_delay_ms: int = 0
    members_max: int = 2**31 - 1
    offset_metadata_bytes_max: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1_000
