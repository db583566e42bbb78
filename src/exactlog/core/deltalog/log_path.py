"""The names of a partition's files and directories: printed here, parsed here, nowhere else.

    topic=orders-part=0/                          a partition
      00000000000000000400.log                    a segment, by its base offset (.index .timeindex .txnindex beside it)
      00000000000000000400.g2.log                 the same segment, rewritten twice
      _delta_log/00000000000000000011.json        the delta commit of version 11
      _delta_log/00000000000000000010.checkpoint.json
      _delta_log/00000000000000000000.00000000000000000099.compacted.json

Parsing gives None for a foreign name: such a file is not ours to judge. Exactly the names that printing gives are
parsed, so that no two names mean the same file. Layout: docs/formats/directory_layout.md; seed 000 §2.1.
"""

import hashlib
import re
from enum import StrEnum
from typing import Final

import msgspec

from exactlog.core.model.errors import InvariantError
from exactlog.core.model.ids import DeltaVersion, Offset

DELTA_LOG_DIRECTORY: Final = "_delta_log"
CREATING_DIRECTORY: Final = ".creating"  # beside the partitions: one that is being made; renamed when whole
DELETED_DIRECTORY: Final = ".deleted"  # beside the partitions: one that is being taken away

TOPIC_LENGTH_IN_PATH_MAX: Final = 200  # file systems end a name at 255 bytes, and ours has a prefix and a suffix
_HASHED_TOPIC_PREFIX_LENGTH: Final = 100
_HASH_DIGITS: Final = 32  # 128 bits of SHA-256: no two topics of one broker meet

_NUMBER_MAX: Final = 2**63 - 1
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]+")
_PARTITION_DIRECTORY: Final = re.compile(
    r"topic=(?:(?P<topic>[A-Za-z0-9._-]{1,200})|[A-Za-z0-9._-]{100}~[0-9a-f]{32})-part=(?P<partition>0|[1-9][0-9]{0,9})"
)
_DELTA_LOG_FILE: Final = re.compile(
    r"(?P<first>[0-9]{20})(?:\.(?P<last>[0-9]{20})\.compacted|(?P<checkpoint>\.checkpoint))?\.json"
)
_SEGMENT_FILE: Final = re.compile(
    r"(?P<base>[0-9]{20})(?:\.g(?P<generation>[1-9][0-9]{0,9}))?\.(?P<kind>log|index|timeindex|txnindex)"
)


class CommitName(msgspec.Struct, frozen=True):
    """`{version}.json`: one delta commit."""

    version: DeltaVersion


class CheckpointName(msgspec.Struct, frozen=True):
    """`{version}.checkpoint.json`: the whole table as of that version."""

    version: DeltaVersion


class CompactedName(msgspec.Struct, frozen=True):
    """`{first}.{last}.compacted.json`: the delta commits of a range of versions, both ends inclusive."""

    first_version: DeltaVersion
    last_version: DeltaVersion


DeltaLogName = CommitName | CheckpointName | CompactedName


class SegmentFileKind(StrEnum):
    """What a file beside a segment holds; the value is the end of its name."""

    LOG = "log"
    INDEX = "index"
    TIME_INDEX = "timeindex"
    ABORTED_INDEX = "txnindex"


class SegmentFileName(msgspec.Struct, frozen=True):
    """A segment's file: the offset it begins at, how often it was rewritten (0: never), and what it holds."""

    base: Offset
    generation: int
    kind: SegmentFileKind


class PartitionDirectoryName(msgspec.Struct, frozen=True):
    """A partition's directory. `topic` is None where the name holds a hash: version 0's metadata has it then."""

    topic: str | None
    partition: int


def print_commit_name(version: DeltaVersion) -> str:
    """The name of a version's delta commit."""
    return f"{version:020d}.json"


def print_checkpoint_name(version: DeltaVersion) -> str:
    """The name of the delta checkpoint at a version."""
    return f"{version:020d}.checkpoint.json"


def print_compacted_name(*, first_version: DeltaVersion, last_version: DeltaVersion) -> str:
    """The name of the file that packs the delta commits of a range of versions, both ends inclusive."""
    return f"{first_version:020d}.{last_version:020d}.compacted.json"


def parse_delta_log_name(name: str) -> DeltaLogName | None:
    """What a file in `_delta_log` is, by its name; None for a foreign one, temporary files among them."""
    match = _DELTA_LOG_FILE.fullmatch(name)
    if match is None:
        return None
    first = int(match["first"])
    last = first if match["last"] is None else int(match["last"])
    if max(first, last) > _NUMBER_MAX or last < first:
        return None
    if match["last"] is not None:
        return CompactedName(first_version=DeltaVersion(first), last_version=DeltaVersion(last))
    if match["checkpoint"] is not None:
        return CheckpointName(version=DeltaVersion(first))
    return CommitName(version=DeltaVersion(first))


def print_segment_file_name(base: Offset, *, generation: int = 0, kind: SegmentFileKind = SegmentFileKind.LOG) -> str:
    """The name of one of a segment's files; `generation` counts its rewrites."""
    return f"{base:020d}.g{generation}.{kind}" if generation else f"{base:020d}.{kind}"


def parse_segment_file_name(name: str) -> SegmentFileName | None:
    """Which segment a file belongs to and what it holds; None for a foreign name."""
    match = _SEGMENT_FILE.fullmatch(name)
    if match is None or (base := int(match["base"])) > _NUMBER_MAX:
        return None
    return SegmentFileName(
        base=Offset(base), generation=int(match["generation"] or 0), kind=SegmentFileKind(match["kind"])
    )


def print_partition_directory_name(topic: str, partition: int) -> str:
    """The name of a partition's directory. A topic longer than 200 characters is cut and hashed.

    Raises:
        InvariantError: for a topic that holds anything but letters, digits, dot, underscore and hyphen; such a name
            was to be refused when the topic was made, and could lead out of the data directory.
    """
    if not _TOPIC.fullmatch(topic) or partition < 0:
        raise InvariantError(f"no directory can be named after topic {topic!r}, partition {partition}")
    if len(topic) > TOPIC_LENGTH_IN_PATH_MAX:
        digest = hashlib.sha256(topic.encode("ascii")).hexdigest()[:_HASH_DIGITS]
        topic = f"{topic[:_HASHED_TOPIC_PREFIX_LENGTH]}~{digest}"  # no topic's name may hold a tilde
    return f"topic={topic}-part={partition}"


def parse_partition_directory_name(name: str) -> PartitionDirectoryName | None:
    """Which partition a directory holds; None for a foreign name."""
    match = _PARTITION_DIRECTORY.fullmatch(name)
    if match is None:
        return None
    return PartitionDirectoryName(topic=match["topic"], partition=int(match["partition"]))


def print_temporary_name(name: str) -> str:
    """What a file is called until it is whole. One left behind by a crash is removed at the next start."""
    return f".{name}.tmp"


def is_temporary_name(name: str) -> bool:
    """Whether a file is one that never got its name: not part of the table, whatever it holds."""
    return name.startswith(".")
