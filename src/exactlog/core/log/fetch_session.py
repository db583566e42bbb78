"""Fetch sessions (KIP-227): the broker remembers what a reader asks for, and tells it only what is new.

A reader opens a session with a full request and then sends what changes: partitions to add, to ask from elsewhere, to
forget. Its answers leave out the partitions of which there is nothing to tell. Each request of a session carries the
epoch after that of the one before, so that neither side can miss a change without noticing:

    session id, epoch            the request is
    0, or any one, -1            full, without a session; the one that was named ends
    0, or any one, 0             full, and opens a session; the one that was named ends
    an open one, the next epoch  incremental
    an open one, another epoch   refused: INVALID_FETCH_SESSION_EPOCH
    any other                    refused: FETCH_SESSION_ID_NOT_FOUND

Sessions outlive their connections. They end when their reader ends them, when nothing is left in them, or to make room:
of those unused for two minutes the one that has been so longest, else the smallest one that is as old as that and
smaller than the newcomer (Apache Kafka, ``FetchSessionCacheShard``; trunk of August 2026). Who finds no room is
answered in full each time, with session id 0; so is who asks for a topic by a name that none can have.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.limits import FETCH_SESSION_IDLE_MS, TOPIC_NAME_LENGTH_MAX

NO_SESSION_ID: Final = 0
FINAL_EPOCH: Final = -1
"""The epoch of a request without a session, which ends the one it names."""
INITIAL_EPOCH: Final = 0
"""The epoch of a request that asks for a new session."""
_EPOCH_MAX: Final = 2**31 - 1

PartitionKey: TypeAlias = tuple[str | UUID, int]
"""A topic, by its name or by its id, and the index of a partition."""

Asked = TypeVar("Asked")


class Told(NamedTuple):
    """What a reader was last told about a partition; -1 where it was told an error."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


NOTHING_TOLD: Final = Told(-1, -1, -1)


class SessionPartition(Generic[Asked]):
    """One partition of a session.

    Attributes:
        asked: what the reader asks of it.
        topic_name: the name of the topic when it was first found; None until then.
        told: what it was last told.
    """

    __slots__ = ("asked", "told", "topic_name")

    def __init__(self, asked: Asked, topic_name: str | None) -> None:
        self.asked = asked
        self.topic_name = topic_name
        self.told = NOTHING_TOLD


Partitions: TypeAlias = dict[PartitionKey, SessionPartition[Asked]]


def next_epoch(epoch: int) -> int:
    """The epoch of the request after one of this epoch; 1 follows the greatest one, since 0 opens a new session."""
    return 1 if epoch == _EPOCH_MAX else epoch + 1


def _has_oversized_name(partitions: Iterable[PartitionKey]) -> bool:
    """Whether one is of a name that no topic can have, and that would take room for nothing."""
    return any(isinstance(topic, str) and len(topic) > TOPIC_NAME_LENGTH_MAX for topic, _ in partitions)


class FetchSession(Generic[Asked]):
    """One session.

    Attributes:
        session_id: what its requests name; not 0.
        epoch: what the next request must carry.
        takes_ids: whether topics are named by their ids.
        partitions: in the order in which they are read.
    """

    __slots__ = ("created_ms", "epoch", "partitions", "session_id", "takes_ids", "used_ms")

    def __init__(self, session_id: int, partitions: Partitions[Asked], *, takes_ids: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.takes_ids = takes_ids
        self.partitions = partitions
        self.created_ms = now_ms
        self.used_ms = now_ms

    def change(self, asked: Mapping[PartitionKey, SessionPartition[Asked]], forgotten: Iterable[PartitionKey]) -> None:
        """Takes in what a request asks for, and then what it forgets."""
        for key, partition in asked.items():
            known = self.partitions.get(key)
            if known is None:
                self.partitions[key] = partition
            else:
                known.asked = partition.asked
        for key in forgotten:
            self.partitions.pop(key, None)

    def tell(self, key: PartitionKey, now: Told, *, has_records: bool, must_tell: bool) -> bool:
        """Whether an answer must speak of a partition; if so, this is what was told.

        A partition whose records are told goes behind the others, so that each gets its turn under a limit of bytes.

        Args:
            now: what there is to tell.
            has_records: whether the answer holds records of it.
            must_tell: whether there is more to tell, as an error.
        """
        partition = self.partitions.get(key)
        if partition is None:
            return False
        if has_records:
            self.partitions[key] = self.partitions.pop(key)
        elif now == partition.told and not must_tell:
            return False
        partition.told = now
        return True


class FetchSessions(Generic[Asked]):
    """The sessions of one broker, at most so many, and at most so many partitions in them together.

    Args:
        sessions_max: how many; 0: none at all.
        partitions_max: how many partitions in all of them.
        new_id: gives random ids, above 0.
    """

    def __init__(self, *, sessions_max: int, partitions_max: int, new_id: Callable[[], int]) -> None:
        self._sessions_max = sessions_max
        self._partitions_max = partitions_max
        self._new_id = new_id
        self._sessions: dict[int, FetchSession[Asked]] = {}  # the one used longest ago first
        self.partition_count = 0
        self.evictions = 0

    def __len__(self) -> int:
        """How many are open."""
        return len(self._sessions)

    def open(self, partitions: Partitions[Asked], *, takes_ids: bool, now_ms: int) -> FetchSession[Asked] | None:
        """Opens a session about some partitions; None where there is no room for it."""
        if _has_oversized_name(partitions) or not self._make_room(len(partitions), now_ms=now_ms):
            return None
        session_id = self._new_id()
        while session_id in self._sessions:
            session_id = self._new_id()
        session = FetchSession(session_id, partitions, takes_ids=takes_ids, now_ms=now_ms)
        self._sessions[session_id] = session
        self.partition_count += len(partitions)
        return session

    def resume(
        self,
        session_id: int,
        epoch: int,
        *,
        takes_ids: bool,
        asked: Mapping[PartitionKey, SessionPartition[Asked]],
        forgotten: Iterable[PartitionKey],
        now_ms: int,
    ) -> FetchSession[Asked] | ErrorCode | None:
        """Takes the next request of a session; None when nothing is left in it, and it has ended by that."""
        session = self._sessions.get(session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if epoch != session.epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if takes_ids != session.takes_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        if _has_oversized_name(asked):
            self.end(session_id)
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        count = len(session.partitions)
        session.change(asked, forgotten)
        self.partition_count += len(session.partitions) - count
        if not session.partitions:
            self.end(session_id)
            return None
        if self.partition_count > self._partitions_max:  # it has grown; its reader goes on as if it had been evicted
            self.end(session_id)
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        session.epoch = next_epoch(epoch)
        session.used_ms = now_ms
        self._sessions[session_id] = self._sessions.pop(session_id)
        return session

    def find(self, session_id: int) -> FetchSession[Asked] | None:
        """The session of an id, to look at; None where there is none."""
        return self._sessions.get(session_id)

    def end(self, session_id: int) -> None:
        """Ends a session; one that is not there is fine."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partition_count -= len(session.partitions)

    def _make_room(self, size: int, *, now_ms: int) -> bool:
        if self._sessions_max == 0 or size > self._partitions_max:
            return False
        while len(self._sessions) >= self._sessions_max or self.partition_count + size > self._partitions_max:
            victim = self._find_victim(size, now_ms=now_ms)
            if victim is None:
                return False
            self.end(victim.session_id)
            self.evictions += 1
        return True

    def _find_victim(self, size: int, *, now_ms: int) -> FetchSession[Asked] | None:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is not None and now_ms - oldest.used_ms > FETCH_SESSION_IDLE_MS:
            return oldest
        smaller = (
            session
            for session in self._sessions.values()
            if len(session.partitions) < size and now_ms - session.created_ms > FETCH_SESSION_IDLE_MS
        )
        return min(smaller, key=lambda session: len(session.partitions), default=None)
