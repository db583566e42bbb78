"""The versions of a partition that are closed and are getting their names: one publication at a time.

What the disk refuses before it is durable is closed anew later. What is durable and cannot get its name is *parked*: it
is handed out again as it is, until it has it, for a version never changes.
"""

import logging
from collections.abc import Sequence

from exactlog.core.model.errors import InvariantError
from exactlog.storage.committed_log import CarriedGroups, ClosedVersion, CommittedLog
from exactlog.storage.round import (
    ForeignVersion,
    GroupWrite,
    NameRefused,
    StorageRefused,
    Stored,
    SyncFailed,
    WriteOutcome,
)

_logger = logging.getLogger(__name__)


class Publication:
    """What is being published, or parked.

    Args:
        committed: of the partition.

    Attributes:
        versions: in order; empty where nothing is.
        is_parked: whether they wait to be handed out again.
        unnamed: why versions that are durable have no names; None where all have, or may get them at once.
    """

    __slots__ = ("_committed", "is_parked", "unnamed", "versions")

    def __init__(self, committed: CommittedLog) -> None:
        self._committed = committed
        self.versions: list[ClosedVersion] = []
        self.is_parked = False
        self.unnamed: str | None = None

    @property
    def is_running(self) -> bool:
        """Whether documents are on their way to their names."""
        return bool(self.versions) and not self.is_parked

    @property
    def is_fixed(self) -> bool:
        """Whether the documents are durable already."""
        return self.unnamed is not None

    def begin(self, versions: Sequence[ClosedVersion], *, now_ms: int) -> None:
        """These are to be published; nothing behind them is committed yet."""
        self.versions = [*versions[:-1], *(self._with_checkpoint(last, now_ms=now_ms) for last in versions[-1:])]

    def _with_checkpoint(self, version: ClosedVersion, *, now_ms: int) -> ClosedVersion:
        """Now, since by the time the version is published more may be committed."""
        checkpoint = self._committed.prepare_checkpoint(version.decoded.commit.version, now_ms=now_ms)
        return ClosedVersion(version.pending, version.write, version.decoded, checkpoint)

    def hand_out(self) -> list[GroupWrite]:
        """What a round must write for it."""
        self.is_parked = False
        return [GroupWrite((), version.write) for version in self.versions]

    def park(self, carried: Sequence[CarriedGroups], reason: str, *, now_ms: int) -> None:
        """The versions of these are durable, and could not get their names in the round that brought them."""
        self.begin([each.version for each in carried if each.version is not None], now_ms=now_ms)
        self._park(self.versions, reason)

    def _park(self, versions: Sequence[ClosedVersion], reason: str) -> None:
        _logger.error("version %d is durable and cannot get its name yet: %s", versions[0].write.version, reason)
        self.versions, self.is_parked, self.unnamed = list(versions), True, reason

    def end(self, outcome: WriteOutcome) -> tuple[Sequence[ClosedVersion], Sequence[ClosedVersion]]:
        """Takes in how it ended: the versions that have their names, and those that are to be closed anew."""
        taken, self.versions = self.versions, []
        match outcome:
            case Stored():
                self.unnamed = None
                return taken, ()
            case NameRefused(reason=reason, groups_stored=stored):
                self._park(taken[stored:], reason)
                return taken[:stored], ()
            case StorageRefused(reason=reason, groups_stored=stored) if self.is_fixed:
                self._park(taken[stored:], reason)
                return taken[:stored], ()
            case StorageRefused(reason=reason, groups_stored=stored):
                version = taken[stored].write.version
                _logger.error("version %d is committed and cannot be published yet: %s", version, reason)
                return taken[:stored], taken[stored:]
            case ForeignVersion():
                return (), ()
            case SyncFailed(reason=reason):  # it ends the node, and never arrives here
                raise InvariantError(reason)
