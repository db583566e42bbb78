"""What one Fetch request is about, with a session or without one, and what its answer says (KIP-227)."""

import secrets
from collections.abc import Sequence
from typing import TypeAlias
from uuid import UUID

from msgspec.structs import replace

from exactlog.broker.topic_registry import TopicRegistry
from exactlog.core.log.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION_ID,
    FetchSession,
    FetchSessions,
    PartitionKey,
    SessionPartition,
    Told,
)
from exactlog.core.model.clock import Clock
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.limits import FETCH_SESSION_PARTITIONS_MAX
from exactlog.core.model.metrics import Registry
from exactlog.core.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

NO_EPOCH_END = -1

Partition: TypeAlias = SessionPartition[FetchPartition]
Partitions: TypeAlias = dict[PartitionKey, Partition]
Read: TypeAlias = tuple[PartitionKey, PartitionData]
"""What there is to say of one partition."""


class Sessions:
    """The fetch sessions of one broker."""

    def __init__(self, topics: TopicRegistry, clock: Clock, metrics: Registry, *, sessions_max: int) -> None:
        self._topics = topics
        self._clock = clock
        self._kept: FetchSessions[FetchPartition] = FetchSessions(
            sessions_max=sessions_max,
            partitions_max=FETCH_SESSION_PARTITIONS_MAX,
            new_id=lambda: 1 + secrets.randbelow(2**31 - 1),
        )
        metrics.gauge("exactlog_fetch_sessions", "Fetch sessions that are open.", read=lambda: len(self._kept))
        metrics.gauge(
            "exactlog_fetch_session_partitions",
            "Partitions in open fetch sessions.",
            read=lambda: self._kept.partition_count,
        )
        metrics.gauge(
            "exactlog_fetch_session_evictions",
            "Fetch sessions that have gone to make room for others.",
            read=lambda: self._kept.evictions,
        )

    def take(self, request: FetchRequest, *, takes_ids: bool) -> "FetchScope | ErrorCode":
        """What a request is about; or why its session is refused."""
        asked = self._asked(request, takes_ids=takes_ids)
        if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            if request.session_id != NO_SESSION_ID:
                self._kept.end(request.session_id)
            if request.session_epoch == FINAL_EPOCH:
                return FetchScope(asked)
            return NewSessionScope(asked, self, takes_ids=takes_ids)
        session = self._kept.resume(
            request.session_id,
            request.session_epoch,
            takes_ids=takes_ids,
            asked=asked,
            forgotten=_forgotten(request, takes_ids=takes_ids),
            now_ms=self._clock.now_ms(),
        )
        if session is None:
            return FetchScope(asked)
        return session if isinstance(session, ErrorCode) else SessionScope(session)

    def in_full(self, request: FetchRequest) -> FetchRequest:
        """A request with all partitions that it asks for, those its session remembers among them; nothing changes."""
        session = self._kept.find(request.session_id) if request.session_epoch > INITIAL_EPOCH else None
        if session is None:
            return request
        asked = {key: partition.asked for key, partition in session.partitions.items()}
        asked |= {key: partition.asked for key, partition in self._asked(request, takes_ids=session.takes_ids).items()}
        for key in _forgotten(request, takes_ids=session.takes_ids):
            asked.pop(key, None)
        topics: dict[str | UUID, list[FetchPartition]] = {}
        for (place, _), part in asked.items():
            topics.setdefault(place, []).append(part)
        return replace(
            request,
            topics=tuple(
                FetchTopic(topic=place, partitions=tuple(parts))
                if isinstance(place, str)
                else FetchTopic(topic_id=place, partitions=tuple(parts))
                for place, parts in topics.items()
            ),
        )

    def open(self, partitions: Partitions, *, takes_ids: bool) -> int:
        """Opens a session about partitions that were just told; its id, or 0 where there is no room for it."""
        session = self._kept.open(partitions, takes_ids=takes_ids, now_ms=self._clock.now_ms())
        return NO_SESSION_ID if session is None else session.session_id

    def _asked(self, request: FetchRequest, *, takes_ids: bool) -> Partitions:
        """The partitions that a request names; of one that is named twice, the last."""
        asked: Partitions = {}
        for topic in request.topics:
            if takes_ids:
                known = self._topics.by_id(topic.topic_id)
                place: str | UUID = topic.topic_id
                name = None if known is None else known.name
            else:
                place = name = topic.topic
            for part in topic.partitions:
                asked[place, part.partition] = SessionPartition(part, name)
        return asked


class FetchScope:
    """A request without a session: its own partitions, each of which is told.

    Attributes:
        partitions: in the order in which they are read.
    """

    __slots__ = ("partitions",)

    def __init__(self, partitions: Partitions) -> None:
        self.partitions = partitions

    def answer(self, found: Sequence[Read]) -> FetchResponse:
        """The answer that says what was found."""
        return _response(found, session_id=NO_SESSION_ID)


class NewSessionScope(FetchScope):
    """A request that opens a session, by its answer."""

    __slots__ = ("_sessions", "_takes_ids")

    def __init__(self, partitions: Partitions, sessions: Sessions, *, takes_ids: bool) -> None:
        super().__init__(partitions)
        self._sessions = sessions
        self._takes_ids = takes_ids

    def answer(self, found: Sequence[Read]) -> FetchResponse:
        for key, data in found:
            self.partitions[key].told = _told(data)
        return _response(found, session_id=self._sessions.open(self.partitions, takes_ids=self._takes_ids))


class SessionScope(FetchScope):
    """A request of an open session: all partitions of the session, of which those with something new are told."""

    __slots__ = ("_epoch", "_session")

    def __init__(self, session: FetchSession[FetchPartition]) -> None:
        super().__init__(session.partitions)
        self._session = session
        self._epoch = session.epoch

    def answer(self, found: Sequence[Read]) -> FetchResponse:
        session = self._session
        if session.epoch != self._epoch:  # the reader has sent another request of it while this one waited
            return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=session.session_id)
        news = [
            (key, data)
            for key, data in found
            if session.tell(
                key,
                _told(data),
                has_records=bool(data.records),
                must_tell=data.error_code != ErrorCode.NONE or data.diverging_epoch.epoch != NO_EPOCH_END,
            )
        ]
        return _response(news, session_id=session.session_id)


def _forgotten(request: FetchRequest, *, takes_ids: bool) -> list[PartitionKey]:
    return [
        (topic.topic_id if takes_ids else topic.topic, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]


def _told(data: PartitionData) -> Told:
    return Told(data.high_watermark, data.last_stable_offset, data.log_start_offset)


def _response(found: Sequence[Read], *, session_id: int) -> FetchResponse:
    """Partitions of one topic that stand behind each other are told as one topic."""
    topics: list[FetchableTopicResponse] = []
    partitions: list[PartitionData] = []
    current: str | UUID | None = None
    for (topic, _), data in found:
        if topic is not current and topic != current:
            if current is not None:
                topics.append(_topic_response(current, partitions))
            current, partitions = topic, []
        partitions.append(data)
    if current is not None:
        topics.append(_topic_response(current, partitions))
    return FetchResponse(session_id=session_id, responses=tuple(topics))


def _topic_response(topic: str | UUID, partitions: Sequence[PartitionData]) -> FetchableTopicResponse:
    if isinstance(topic, str):
        return FetchableTopicResponse(topic=topic, partitions=tuple(partitions))
    return FetchableTopicResponse(topic_id=topic, partitions=tuple(partitions))
