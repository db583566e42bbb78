"""Named places between two steps, where a test may let the process die or make a step fail.

A point is declared once, as a constant, and passed with `reach()`, which costs next to nothing while nothing is armed
there. Names are public and say `layer.action.step`; descriptions say what has happened by then and what has not. Points
belong to the process, not to one broker in it.
"""

from collections.abc import Callable
from threading import Lock
from typing import Final

from msgspec import Struct

from exactlog.core.config.definition import nearest_name_hint
from exactlog.core.model.errors import ConfigError, InvariantError

Action = Callable[[], None]


class ArmedAction:
    """An action that waits for the n-th time its point is reached.

    Attributes:
        has_fired: whether that time has come.
    """

    def __init__(self, action: Action, *, at: int) -> None:
        self.has_fired = False
        self._action = action
        self._left = at
        self._lock = Lock()

    def count(self) -> None:
        """The point is reached once more, by whatever thread."""
        with self._lock:
            self._left -= 1
            if self._left != 0:
                return
            self.has_fired = True
        self._action()


class FaultPoint:
    """One named point.

    Raises:
        InvariantError: the name is taken.
    """

    __slots__ = ("_armed", "description", "name")

    def __init__(self, name: str, description: str) -> None:
        self.name: Final = name
        self.description: Final = description
        self._armed: ArmedAction | None = None
        if _points.setdefault(name, self) is not self:
            raise InvariantError(f"two fault points are named {name}")

    def __repr__(self) -> str:
        return f"FaultPoint({self.name!r})"

    def reach(self) -> None:
        """The code is here: does what is armed, whatever that raises."""
        armed = self._armed
        if armed is not None:
            armed.count()

    def arm(self, action: Action, *, at: int = 1) -> ArmedAction:
        """Lets `action` happen the `at`-th time the point is reached from now on, in place of what was armed before.

        Raises:
            ConfigError: `at` is less than 1.
        """
        if at < 1:
            raise ConfigError(f"fault point {self.name} cannot be reached a {at}th time", hint="Count from 1.")
        self._armed = armed = ArmedAction(action, at=at)
        return armed

    def disarm(self) -> None:
        """Lets nothing happen here any more."""
        self._armed = None


_points: Final[dict[str, FaultPoint]] = {}


def points() -> tuple[FaultPoint, ...]:
    """Every point, in the order of declaration."""
    return tuple(_points.values())


def find(name: str) -> FaultPoint:
    """The point of a name.

    Raises:
        ConfigError: there is none; the hint names the one that is most like it.
    """
    if name not in _points:
        hint = nearest_name_hint(name, _points) or "exactlog.testing.faults.points() lists them."
        raise ConfigError(f"unknown fault point {name}", hint=hint)
    return _points[name]


def arm(name: str, action: Action, *, at: int = 1) -> ArmedAction:
    """Lets `action` happen the `at`-th time the point of that name is reached; see `FaultPoint.arm`.

    Raises:
        ConfigError: there is no such point, or `at` is less than 1.
    """
    return find(name).arm(action, at=at)


def disarm_all() -> None:
    """Lets nothing happen anywhere any more."""
    for point in _points.values():
        point.disarm()


class RenamePoints(Struct, frozen=True, kw_only=True):
    """The points around a rename, for the code that renames on behalf of others."""

    before: FaultPoint
    after: FaultPoint


# --- a partition is created ------------------------------------------------------------------------------------------

CREATE_BEFORE_RENAME: Final = FaultPoint(
    "storage.create.before_rename", "a new partition is whole and synced under .creating/, and has no name yet"
)
CREATE_AFTER_RENAME: Final = FaultPoint(
    "storage.create.after_rename", "a new partition has its name, which is not synced yet"
)

# --- a round: the bytes of appends, one partition at a time ----------------------------------------------------------

ROUND_BEFORE_WRITE: Final = FaultPoint(
    "storage.round.before_write", "a round begins in a partition: nothing of it is written"
)
ROUND_AFTER_SEGMENT_WRITE: Final = FaultPoint(
    "storage.round.after_segment_write", "the bytes of a round are written, nothing of it is synced"
)
ROUND_AFTER_SEGMENT_SYNC: Final = FaultPoint(
    "storage.round.after_segment_sync",
    "the bytes of a round are synced; the name of a new segment is not, and no delta commit names the bytes",
)
ROUND_AFTER_DIRECTORY_SYNC: Final = FaultPoint(
    "storage.round.after_directory_sync",
    "the bytes of a round and the name of its new segment are synced; no delta commit names the bytes",
)

# --- a round goes through the commit journal -------------------------------------------------------------------------

JOURNAL_AFTER_CREATE: Final = FaultPoint(
    "storage.journal.after_create", "a file of the commit journal has its header; neither it nor its name is synced"
)
JOURNAL_BEFORE_WRITE: Final = FaultPoint(
    "storage.journal.before_write", "the bytes of a round are in their segments, and not in the journal"
)
JOURNAL_AFTER_WRITE: Final = FaultPoint(
    "storage.journal.after_write", "the record of a round is written to the journal, and not synced"
)
JOURNAL_AFTER_SYNC: Final = FaultPoint(
    "storage.journal.after_sync", "a round is durable in the journal; its documents have no names, nobody has been told"
)
JOURNAL_BEFORE_SETTLE_SYNC: Final = FaultPoint(
    "storage.journal.before_settle_sync", "a file of the journal is to go; nothing that it holds is synced in its place"
)
JOURNAL_BEFORE_REMOVE: Final = FaultPoint(
    "storage.journal.before_remove", "all that a file of the journal holds is synced in its place; it is still there"
)
JOURNAL_BEFORE_REDO_SYNC: Final = FaultPoint(
    "storage.journal.before_redo_sync", "a start has put back what the journal holds; nothing of it is synced"
)

# --- a delta commit is published -------------------------------------------------------------------------------------

PUBLISH_AFTER_WRITE: Final = FaultPoint(
    "storage.publish.after_write", "a delta commit is written under a temporary name, and not synced"
)
PUBLISH_BEFORE_LINK: Final = FaultPoint(
    "storage.publish.before_link", "a delta commit is written under a temporary name, and synced if it must be durable"
)
PUBLISH_AFTER_LINK: Final = FaultPoint(
    "storage.publish.after_link", "a delta commit has its name, and its temporary name still; neither is synced"
)
PUBLISH_AFTER_UNLINK: Final = FaultPoint(
    "storage.publish.after_unlink", "a delta commit has its name only, which is not synced"
)
PUBLISH_AFTER_DIRECTORY_SYNC: Final = FaultPoint(
    "storage.publish.after_directory_sync", "a delta commit is durable; nobody has been told"
)

# --- a checkpoint is written -----------------------------------------------------------------------------------------

CHECKPOINT_BEFORE_RENAME: Final = FaultPoint(
    "storage.checkpoint.before_rename", "a checkpoint is written under a temporary name, and synced"
)
CHECKPOINT_AFTER_RENAME: Final = FaultPoint(
    "storage.checkpoint.after_rename", "a checkpoint has its name, which is not synced"
)
CHECKPOINT_RENAME: Final = RenamePoints(before=CHECKPOINT_BEFORE_RENAME, after=CHECKPOINT_AFTER_RENAME)
CHECKPOINT_AFTER_DIRECTORY_SYNC: Final = FaultPoint(
    "storage.checkpoint.after_directory_sync", "a checkpoint is durable"
)

# --- a partition is deleted ------------------------------------------------------------------------------------------

DELETE_BEFORE_RENAME: Final = FaultPoint(
    "storage.delete.before_rename", "the deletion of a partition is decided, its directory is untouched"
)
DELETE_AFTER_RENAME: Final = FaultPoint(
    "storage.delete.after_rename", "the directory of a partition is under .deleted/, which is not synced"
)
DELETE_BEFORE_FILES: Final = FaultPoint(
    "storage.delete.before_files", "the directory of a partition is durably under .deleted/, with all its files"
)

# --- a partition is recovered ----------------------------------------------------------------------------------------

RECOVERY_BEFORE_TRUNCATE: Final = FaultPoint(
    "storage.recovery.before_truncate", "recovery is about to cut off bytes that no delta commit names"
)
RECOVERY_AFTER_TRUNCATE: Final = FaultPoint(
    "storage.recovery.after_truncate", "recovery has cut off bytes that no delta commit names; nothing is synced"
)
RECOVERY_BEFORE_PUBLISH: Final = FaultPoint(
    "storage.recovery.before_publish",
    "recovery is about to publish a delta commit: of batches that had none, or of another flush mode",
)

# --- old delta commits are packed ------------------------------------------------------------------------------------

PACK_BEFORE_RENAME: Final = FaultPoint(
    "storage.pack.before_rename", "a pack of delta commits is written under a temporary name, and synced"
)
PACK_AFTER_RENAME: Final = FaultPoint("storage.pack.after_rename", "a pack has its name, which is not synced")
PACK_BEFORE_UNLINK: Final = FaultPoint(
    "storage.pack.before_unlink", "a pack is durable; the delta commits in it are still there one by one"
)

# --- removed segments and expired versions go ------------------------------------------------------------------------

REMOVAL_BEFORE_UNLINK: Final = FaultPoint(
    "storage.removal.before_unlink", "the files of a removed segment may go, and are all there"
)
REMOVAL_AFTER_UNLINK: Final = FaultPoint(
    "storage.removal.after_unlink", "the files of a removed segment are gone, which is not synced"
)
VACUUM_BEFORE_UNLINK: Final = FaultPoint(
    "storage.vacuum.before_unlink", "vacuum has decided what to expire, and removed nothing"
)
VACUUM_AFTER_UNLINK: Final = FaultPoint("storage.vacuum.after_unlink", "vacuum has removed a file, which is not synced")
