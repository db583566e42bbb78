"""Being a member of a group: JoinGroup, SyncGroup, heartbeats, LeaveGroup (the classic protocol, assignor `range`)."""

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from exactlog.client.groups import MemberSettings
from exactlog.client.ports import ClientSettings
from exactlog.client.wire import range_assignor
from exactlog.client.wire.cluster import Cluster, Lane
from exactlog.client.wire.coordinators import Coordinators
from exactlog.client.wire.offsets import (
    LAST_VERSION_WITH_NAMES,
    NOBODY,
    Generation,
    committed_offsets,
    offset_commit_request,
)
from exactlog.client.wire.refusals import as_error_code, refusal
from exactlog.client.wire.retries import retry, retry_patiently
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import ExactlogError
from exactlog.core.model.ids import Offset, TopicPartition
from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.consumer_protocol_format import (
    PROTOCOL_TYPE,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from exactlog.core.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from exactlog.core.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from exactlog.core.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from exactlog.core.protocol.messages.offset_commit import OffsetCommitResponse
from exactlog.core.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

_log = logging.getLogger(__name__)

_FIRST_VERSION_WITH_MEMBERS: Final = 3  # of LeaveGroup
_JOIN_PATIENCE_MS: Final = 5_000  # on top of the rebalance: the coordinator answers when that is over
_NOT_A_MEMBER: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
_JOIN_AGAIN: Final = _NOT_A_MEMBER | {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.MEMBER_ID_REQUIRED}
_JOIN_HINTS: Final = {
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "its members share partitions by another assignor than range, or are no "
    "consumers at all; `exactlog group describe` shows them. Choose another group",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the broker's group.max.size allows no further member",
    ErrorCode.INVALID_SESSION_TIMEOUT: "the broker's group.min.session.timeout.ms and group.max.session.timeout.ms say "
    "what it allows",
}


class GroupMembership:
    """One member of a group that shares one topic.

    Attributes:
        is_stale: set once the assignment is no longer ours: the group is coming together anew, or goes on without us.
    """

    def __init__(
        self,
        cluster: Cluster,
        coordinators: Coordinators,
        group_id: str,
        topic: str,
        *,
        client: ClientSettings,
        member: MemberSettings,
    ) -> None:
        self.is_stale = asyncio.Event()
        self._cluster = cluster
        self._coordinators = coordinators
        self._group_id = group_id
        self._topic = topic
        self._client = client
        self._settings = member
        self._current = NOBODY
        self._beating: asyncio.Task[None] | None = None
        self._led: dict[str, int] = {}  # of the leader: the topics of the group, and how many partitions it dealt out

    async def join(self) -> tuple[TopicPartition, ...]:
        """Join, or join again, and return what this member is to read.

        Raises:
            UnavailableError: the coordinator cannot be reached.
            KafkaError: the group does not take us.
        """
        await self._stop_beating()
        what = f"join group {self._group_id}"
        while True:
            assigned = await retry_patiently(what, self._attempt_to_join, self._client)
            if assigned is not None:
                self.is_stale.clear()
                self._beating = asyncio.create_task(self._beat())
                _log.info("group %s generation %d: %s", self._group_id, self._current.generation_id, assigned)
                return assigned

    async def fetch_offsets(self, places: Iterable[TopicPartition], *, is_stable: bool) -> dict[TopicPartition, Offset]:
        """The offsets that the group has committed of these partitions, where it has."""
        what = f"fetch the offsets of group {self._group_id}"
        asked = tuple(places)
        found = await retry(
            what,
            lambda: committed_offsets(
                self._coordinators, self._group_id, asked, what=what, is_stable=is_stable, lane=Lane.GROUP
            ),
            self._client,
        )
        return {place: committed.offset for place, committed in found.items()}

    async def commit(self, offsets: Mapping[TopicPartition, Offset]) -> bool:
        """Commit offsets; False when the partitions are no longer ours."""
        if self._current.generation_id == NOBODY.generation_id:
            return False
        what = f"commit offsets of group {self._group_id}"
        request = offset_commit_request(self._group_id, offsets, by=self._current)

        async def attempt() -> bool:
            connection = await self._coordinators.connection(self._group_id, Lane.GROUP)
            version = connection.versions.pick(ApiKey.OFFSET_COMMIT, at_most=LAST_VERSION_WITH_NAMES)
            response = await self._coordinators.request(
                self._group_id, request, OffsetCommitResponse, version=version, lane=Lane.GROUP
            )
            for topic in response.topics:
                for partition in topic.partitions:
                    if as_error_code(partition.error_code) in _JOIN_AGAIN:
                        self._lose(partition.error_code)
                        return False
                    self._coordinators.check(self._group_id, partition.error_code, what)
            return True

        return await retry(what, attempt, self._client)

    async def leave(self) -> None:
        """Leave the group, so that the others need not wait for the session to end."""
        await self._stop_beating()
        if self._current == NOBODY:
            return
        try:
            connection = await self._coordinators.connection(self._group_id, Lane.GROUP)
            version = connection.versions.pick(ApiKey.LEAVE_GROUP)
            member_id = self._current.member_id
            request = (
                LeaveGroupRequest(group_id=self._group_id, members=(MemberIdentity(member_id=member_id),))
                if version >= _FIRST_VERSION_WITH_MEMBERS
                else LeaveGroupRequest(group_id=self._group_id, member_id=member_id)
            )
            await self._coordinators.request(
                self._group_id, request, LeaveGroupResponse, version=version, lane=Lane.GROUP
            )
        except ExactlogError as error:
            _log.info("group %s: leaving: %s", self._group_id, error)
        self._current = NOBODY

    # --- joining ---------------------------------------------------------------------------------------------

    async def _attempt_to_join(self) -> tuple[TopicPartition, ...] | None:
        """The assignment, or None to begin anew: at once with the id that we were given, or when the others do."""
        connection = await self._coordinators.connection(self._group_id, Lane.GROUP)
        joined = await self._coordinators.request(
            self._group_id,
            self._join_request(),
            JoinGroupResponse,
            version=connection.versions.pick(ApiKey.JOIN_GROUP),
            lane=Lane.GROUP,
            timeout_ms=self._settings.rebalance_timeout_ms + _JOIN_PATIENCE_MS,
        )
        if as_error_code(joined.error_code) is ErrorCode.MEMBER_ID_REQUIRED:
            self._current = Generation(joined.member_id)
            return None
        if self._is_to_join_again(joined.error_code):
            return None
        self._check_join(joined.error_code)
        self._current = Generation(joined.member_id, joined.generation_id)
        is_leader = joined.leader == joined.member_id and not joined.skip_assignment
        self._led = {}
        request = SyncGroupRequest(
            group_id=self._group_id,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=await self._assign(joined.members) if is_leader else (),
        )
        synced = await self._coordinators.request(
            self._group_id,
            request,
            SyncGroupResponse,
            version=connection.versions.pick(ApiKey.SYNC_GROUP),
            lane=Lane.GROUP,
            timeout_ms=self._settings.rebalance_timeout_ms + _JOIN_PATIENCE_MS,
        )
        if self._is_to_join_again(synced.error_code):
            return None
        self._check_join(synced.error_code)
        return tuple(sorted(decode_assignment(synced.assignment)))

    def _join_request(self) -> JoinGroupRequest:
        protocol = JoinGroupRequestProtocol(name=range_assignor.NAME, metadata=encode_subscription((self._topic,)))
        return JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=self._settings.session_timeout_ms,
            rebalance_timeout_ms=self._settings.rebalance_timeout_ms,
            member_id=self._current.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=(protocol,),
        )

    def _is_to_join_again(self, error_code: int) -> bool:
        code = as_error_code(error_code)
        if code is ErrorCode.UNKNOWN_MEMBER_ID and self._current.member_id == "":
            return False  # an odd thing to say to somebody who has not named himself
        if code in _NOT_A_MEMBER:
            self._lose(error_code)
        return code in _JOIN_AGAIN

    def _check_join(self, error_code: int) -> None:
        hint = _JOIN_HINTS.get(as_error_code(error_code))
        if hint is not None:
            raise refusal(error_code, f"join group {self._group_id}", hint=hint)
        self._coordinators.check(self._group_id, error_code, f"join group {self._group_id}")

    async def _assign(self, members: Iterable[JoinGroupResponseMember]) -> tuple[SyncGroupRequestAssignment, ...]:
        """As the leader: what everybody is to read."""
        candidates = [
            range_assignor.Candidate(
                member.member_id, member.group_instance_id, frozenset(decode_subscription(member.metadata).topics)
            )
            for member in members
        ]
        topics = frozenset[str]().union(*(candidate.topics for candidate in candidates))
        self._led = await self._count_partitions(topics)
        assigned = range_assignor.assign_ranges(candidates, self._led)
        return tuple(
            SyncGroupRequestAssignment(member_id=member_id, assignment=encode_assignment(places))
            for member_id, places in assigned.items()
        )

    async def _count_partitions(self, topics: Iterable[str]) -> dict[str, int]:
        """How many partitions each topic has; none, where there is no such topic."""
        known = await self._cluster.metadata(sorted(topics))
        counts = {topic.name: len(topic.partitions) for topic in known.topics if topic.name and not topic.error_code}
        return {topic: counts.get(topic, 0) for topic in topics}

    # --- staying ---------------------------------------------------------------------------------------------

    async def _beat(self) -> None:
        """Say that this member lives, until the group has no more use for it. What fails is tried at the next beat."""
        now = asyncio.get_running_loop().time
        look_at = now() + self._settings.metadata_interval_ms / 1000
        while True:
            await asyncio.sleep(self._settings.heartbeat_interval_ms / 1000)
            try:
                error_code = await self._send_heartbeat()
                if self._led and now() >= look_at:
                    look_at = now() + self._settings.metadata_interval_ms / 1000
                    if await self._count_partitions(self._led) != self._led:
                        self.is_stale.set()  # a leader that joins again lets the group come together anew
            except ExactlogError as error:
                _log.info("group %s: heartbeat: %s", self._group_id, error)
                if error.retryable:
                    continue
                self.is_stale.set()  # joining again meets the same, and says so
                return
            if error_code is ErrorCode.REBALANCE_IN_PROGRESS:
                self.is_stale.set()  # and it lives on until it has joined again
            elif error_code in _NOT_A_MEMBER:
                self._lose(error_code)
                return

    async def _send_heartbeat(self) -> ErrorCode:
        connection = await self._coordinators.connection(self._group_id, Lane.GROUP)
        request = HeartbeatRequest(
            group_id=self._group_id, generation_id=self._current.generation_id, member_id=self._current.member_id
        )
        response = await self._coordinators.request(
            self._group_id,
            request,
            HeartbeatResponse,
            version=connection.versions.pick(ApiKey.HEARTBEAT),
            lane=Lane.GROUP,
        )
        code = as_error_code(response.error_code)
        if code is not ErrorCode.REBALANCE_IN_PROGRESS and code not in _NOT_A_MEMBER:
            self._coordinators.check(self._group_id, response.error_code, f"heartbeat of group {self._group_id}")
        return code

    async def _stop_beating(self) -> None:
        beating, self._beating = self._beating, None
        if beating is not None:
            beating.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await beating

    def _lose(self, error_code: int) -> None:
        """The group goes on without us, or will: what was assigned is no longer ours."""
        _log.info("group %s: %s", self._group_id, as_error_code(error_code).name)
        self.is_stale.set()
        if as_error_code(error_code) is ErrorCode.UNKNOWN_MEMBER_ID:
            self._current = NOBODY
        elif as_error_code(error_code) is not ErrorCode.REBALANCE_IN_PROGRESS:
            self._current = msgspec.structs.replace(self._current, generation_id=NOBODY.generation_id)
