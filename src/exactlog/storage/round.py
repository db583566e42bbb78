"""The durability port: what a round is, and how it can end.

A *round* is what is made durable together: for every partition that has something waiting, the bytes to put into its
segments and the delta commits to publish. Version numbers, positions and the exact bytes of every document are fixed
before the round starts. One round is in flight at a time; what arrives meanwhile forms the next one, so the slower the
disk, the bigger the rounds.

An engine carries a round out, blocking, on a thread of its own. Within one partition the order is always: bytes of
segments, then their sync, then the documents in order of version. An engine says whether it is atomic across
partitions; the one on plain files is not.
"""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from exactlog.storage.filesystem import Buffer


class SegmentWrite(Struct, frozen=True, gc=False):
    """Bytes for one segment, contiguous from `position` on, which is where the segment ends so far."""

    path: str
    position: int
    buffers: list[Buffer]
    is_new: bool
    """Whether the segment is created by this write: its directory is synced too, before any document names it."""


class CommitWrite(Struct, frozen=True, gc=False):
    """One delta commit, ready to be published."""

    version: int
    name: str
    content: bytes
    txn_id: str


class GroupWrite(Struct, frozen=True):
    """What becomes visible together: bytes, and the delta commit that makes them count.

    In flush modes `interval` and `none` bytes and commits travel in different rounds; then one of the two is missing.
    """

    segments: Sequence[SegmentWrite]
    commit: CommitWrite | None


class PartitionWrite(Struct, frozen=True):
    """What one partition brings to a round: its groups, oldest first."""

    name: str
    directory: str
    groups: Sequence[GroupWrite]
    size_bytes: int
    durable: bool
    """Whether bytes and documents are synced (flush mode `commit`), or only handed to the operating system."""
    topic_id: str = ""
    """Of the topic that the partition belongs to: a journal must tell it from a later one of the same name."""
    is_tied: bool = False
    """Whether an engine that is atomic across partitions must not store the rest of the round without this part:
    transaction markers, and what coordinators keep, count together. Refused alone, any other part is its producers'."""
    is_leading: bool = False
    """Whether what is tied counts only with this part, which stands before it in the round: where parts are written one
    after the other, nothing that is tied is written without it. What decides how transactions end is such a part."""
    is_fixed: bool = False
    """Whether its documents are durable already and have no names (`NameRefused`): they are to get them, durably."""


class Stored(Struct, frozen=True):
    """All of it is in place."""


class StorageRefused(Struct, frozen=True):
    """The operating system refused a write: a full disk, above all.

    The first `groups_stored` groups are in place, the others are not: their bytes are cut off again. Nothing earlier is
    touched; reads go on.
    """

    reason: str
    groups_stored: int


class NameRefused(Struct, frozen=True):
    """All of it is durable, and a document could not get its name: there is no room for that, above all.

    The first `groups_stored` groups are in place. The documents of the others are fixed: they are to be handed out
    again, as they are, until they get their names.
    """

    reason: str
    groups_stored: int


class ForeignVersion(Struct, frozen=True):
    """Somebody else's document has the name of our version: the partition stops, naming both."""

    version: int
    our_txn_id: str
    their_txn_id: str
    reason: str

    def tell(self, partition: str) -> str:
        """What has happened to the partition, and what to do."""
        return (
            f"{partition}: delta version {self.version} was already published by {self.their_txn_id!r} when "
            f"{self.our_txn_id!r} wanted it ({self.reason}). Somebody else writes into this directory: the partition "
            "stops. Find the other writer, then start the broker again."
        )


class SyncFailed(Struct, frozen=True):
    """A sync failed: what is on disk is unknown from here on. Final for the whole broker; never tried again."""

    reason: str


WriteOutcome = Stored | StorageRefused | NameRefused | ForeignVersion | SyncFailed


class DurabilityEngine(Protocol):
    """Carries out rounds."""

    @property
    def is_atomic_across_partitions(self) -> bool:
        """Whether after a crash a round is in place for all of its partitions or for none."""

    def take_sync_seconds(self) -> list[float]:
        """How long each sync of record bytes, or of a journal, took since it was asked last, in seconds."""

    def commit(self, writes: Sequence[PartitionWrite]) -> list[WriteOutcome]:
        """Carries out one round; blocking. One outcome per partition, in order."""
