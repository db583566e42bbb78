"""Consuming as a member of a group: what the group gives to this member is read, and committed once it is done."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import TracebackType
from typing import Self

from exactlog.client.ports import EARLIEST, ClientSettings, ConsumedRecord, IsolationLevel
from exactlog.client.wire.admin import WireAdmin
from exactlog.client.wire.cluster import Cluster
from exactlog.client.wire.consumer import Reading
from exactlog.client.wire.group_membership import GroupMembership
from exactlog.core.model.errors import ExactlogError
from exactlog.core.model.ids import Offset, TopicPartition

_log = logging.getLogger(__name__)


class WireGroupConsumer:
    """The `GroupConsumer` port over the wire. Everything but heartbeats happens when the next record is asked for."""

    def __init__(
        self,
        cluster: Cluster,
        admin: WireAdmin,
        membership: GroupMembership,
        settings: ClientSettings,
        *,
        starts: Mapping[TopicPartition, Offset],
        ends: Mapping[TopicPartition, Offset] | None,
        isolation: IsolationLevel,
        include_control: bool,
        commit_interval_ms: int,
        before_commit: Callable[[], None],
        find_start: Callable[[TopicPartition], Awaitable[Offset]] | None,
    ) -> None:
        self._cluster = cluster
        self._admin = admin
        self._membership = membership
        self._settings = settings
        self._starts = starts
        self._ends = ends
        self._isolation = isolation
        self._include_control = include_control
        self._commit_interval_s = commit_interval_ms / 1000
        self._before_commit = before_commit
        self._find_start = find_start
        self._reading: Reading | None = None
        self._committed: dict[TopicPartition, Offset] = {}
        self._last: ConsumedRecord | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._commit()
        except ExactlogError as failed:
            if error is None:
                raise
            _log.warning("what was done was not committed on the way out, and may come again: %s", failed)
        finally:
            await self._membership.leave()

    async def records(self) -> AsyncIterator[ConsumedRecord]:
        """See `GroupConsumer`."""
        while self._reading is None or self._membership.is_stale.is_set():
            await self._take_assignment()
            async for found in self._read():
                yield found
            await self._commit()

    def done(self) -> None:
        """See `GroupConsumer`."""
        if self._last is not None:
            self._move_behind(self._last)

    # -----------------------------------------------------------------------------------------------------------

    async def _take_assignment(self) -> None:
        assigned = await self._membership.join()
        places = [place for place in assigned if self._ends is None or place in self._ends]
        self._cluster.forget()  # a leader that moved, a topic that was made anew
        is_stable = self._isolation is IsolationLevel.READ_COMMITTED
        self._committed = await self._membership.fetch_offsets(places, is_stable=is_stable) if places else {}
        self._reading = Reading(
            self._cluster,
            self._admin,
            self._settings,
            await self._find_starts(places),
            ends=self._ends or {},
            isolation=self._isolation,
            include_control=self._include_control,
        )

    async def _find_starts(self, places: list[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Where to read on: at what was committed, or at a start; not before the first record there still is.

        Who keeps progress elsewhere says where.
        """
        earliest = await self._admin.list_offsets(dict.fromkeys(places, EARLIEST)) if places else {}
        starts: dict[TopicPartition, Offset] = {}
        for place in places:
            oldest = earliest[place].offset or Offset(0)
            committed = self._committed.get(place)
            if self._find_start is not None:
                starts[place] = max(await self._find_start(place), oldest)
                continue
            starts[place] = max(self._starts.get(place, oldest) if committed is None else committed, oldest)
            if committed is not None and committed < oldest:
                _log.warning(
                    "%s: the group was at offset %d; the first record left is %d, so %d offsets are passed over",
                    place,
                    committed,
                    oldest,
                    oldest - committed,
                )
        return starts

    async def _read(self) -> AsyncIterator[ConsumedRecord]:
        """The records of the assignment, until it is stale or at its ends; with nothing to follow, it only waits."""
        reading, is_stale, now = self._reading, self._membership.is_stale, asyncio.get_running_loop().time
        assert reading is not None, "an assignment was taken"
        commit_at = now() + self._commit_interval_s
        while reading.places and not is_stale.is_set():
            for place, fetched in (await reading.fetch_round()).items():
                for found in reading.records(place, fetched):
                    self._last = found
                    yield found
                    if is_stale.is_set():
                        self._move_behind(found)
                        return
            if now() >= commit_at:
                await self._commit()
                commit_at = now() + self._commit_interval_s
        if self._ends is None:
            await is_stale.wait()

    def _move_behind(self, found: ConsumedRecord) -> None:
        """The record is done, if its partition is still ours."""
        positions = {} if self._reading is None else self._reading.positions
        if found.place in positions:
            positions[found.place] = max(positions[found.place], Offset(found.record.offset + 1))

    async def _commit(self) -> None:
        """Commit what is done and was not committed yet."""
        positions = {} if self._reading is None else self._reading.positions
        done = {place: position for place, position in positions.items() if position != self._committed.get(place)}
        if not done:
            return
        self._before_commit()
        if await self._membership.commit(done):
            self._committed |= done
        else:
            _log.warning("%s: too late to commit, the group goes on without us; some records may come again", min(done))
