"""When a delta checkpoint is written.

A checkpoint saves the next start from replaying the commits before it, and costs a document as large as the table's
state. So one is due every few versions (seed 000 §2.3: `version % 10 == 0`), and a due one is left out while it would
buy little: the last one is young, or holds more bytes than the commits it would spare.
"""

import msgspec

from exactlog.core.model.ids import DeltaVersion, TimestampMs


class LastCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The newest checkpoint of a partition: when it was written and how many bytes it has."""

    written_ms: TimestampMs
    size_bytes: int


def is_checkpoint_due(version: DeltaVersion, *, interval: int) -> bool:
    """Whether a checkpoint is due at a version; the commit's `checkpoint_hint` says so.

    Args:
        version: of the commit.
        interval: `delta.checkpoint.interval`, in versions, 1 or more.
    """
    return version % interval == 0


def decide_checkpoint(
    version: DeltaVersion,
    *,
    interval: int,
    min_interval_ms: int,
    last: LastCheckpoint | None,
    commit_bytes_since: int,
    now_ms: TimestampMs,
) -> bool:
    """Whether a checkpoint of this version is to be written.

    Args:
        version: the version just committed.
        interval: `delta.checkpoint.interval`, in versions.
        min_interval_ms: `delta.checkpoint.min.interval.ms`; at 0 every due checkpoint is written.
        last: the newest checkpoint; None where there is none yet.
        commit_bytes_since: the size of all commit documents after the last checkpoint, this version's included.
        now_ms: the time.
    """
    if not is_checkpoint_due(version, interval=interval):
        return False
    if min_interval_ms == 0 or last is None:
        return True
    return now_ms - last.written_ms >= min_interval_ms and commit_bytes_since >= last.size_bytes
