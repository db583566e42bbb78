"""Replicating one partition: polls of records go into the store, the journals beside each other, the pointer last.

`ActionApplier` writes what it is given; where that comes from is no concern of it: the replicator in this process and
the tasks of one on Spark have it in common. `PartitionReplicator` knows the log besides, and reads from it what it was
not given.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final, Protocol

from exactlog.core.journal.actions import ActionRecord
from exactlog.core.journal.batch_optimizer import optimize_actions
from exactlog.core.journal.event_journal_format import decode_action
from exactlog.core.journal.purge_cuts import cut_at_purges, is_on_terms
from exactlog.core.journal.read_plan import Stretch
from exactlog.core.model.clock import Clock
from exactlog.core.model.errors import DecodeError, ExactlogError
from exactlog.core.model.ids import TopicPartition
from exactlog.core.record.record_format import Record
from exactlog.journal.parking import ParkedRecord, ParkingLot
from exactlog.journal.replication_metrics import ReplicationMetrics
from exactlog.journal.store_ports import PartitionJournal

_log = logging.getLogger(__name__)

KEYS_AT_A_TIME: Final = 64
"""Journals that are written beside each other: enough to hide a store's latency, and no flood."""
GAP_RECORDS_MAX: Final = 5_000
"""Records of a gap that are applied together."""
GAP_BYTES_MAX: Final = 16 * 1024 * 1024
"""Likewise, of their values."""


class PartitionLog(Protocol):
    """The log of a partition, for whoever was not given all of it."""

    async def start(self, place: TopicPartition) -> int:
        """The first offset that is left."""

    def records(self, place: TopicPartition, stretch: Stretch) -> AsyncIterator[Record]:
        """The committed records of a stretch that is there. Raises `HeadLost`, `Retriable`."""


class ActionApplier:
    """What records of one partition say, carried out in a store: each journal in its order, what cannot be is parked.

    Args:
        place: the partition.
        journal: the store, for this partition.
        clock: for the times in the store.
        metrics: what is counted.

    Attributes:
        parking: what is parked, and what may be passed over.
    """

    def __init__(
        self, place: TopicPartition, journal: PartitionJournal, clock: Clock, metrics: ReplicationMetrics
    ) -> None:
        self.place = place
        self.parking = ParkingLot(place)
        self._journal = journal
        self._clock = clock
        self._metrics = metrics
        self._pointer: int | None = None
        self._position = 0

    @property
    def pointer(self) -> int | None:
        """Up to which offset the partition is replicated, as far as it is known here; None: nothing is."""
        return self._pointer

    @property
    def position(self) -> int:
        """Everything before this offset has been seen to: it is in the store, or waits."""
        return self._position

    async def read_pointer(self) -> int | None:
        """The pointer as it stands in the store. It is the truth, whatever anybody else says."""
        pointer = await self._journal.pointer()
        self._pointer = None if pointer is None else pointer.offset
        return self._pointer

    def stand_at(self, position: int, parked: Iterable[ParkedRecord] = ()) -> None:
        """All before this offset has been seen to; of that, these records are parked."""
        self._position = position
        self.parking.restore(parked)

    async def move_to(self, position: int) -> None:
        """All before this offset is done: the pointer goes there, or to before the first record that is parked."""
        self._position = max(self._position, position)
        first_parked = self.parking.first_offset
        target = self._position - 1 if first_parked is None else min(self._position, first_parked) - 1
        if target < 0 or (self._pointer is not None and target <= self._pointer):
            return
        now_ms = self._clock.now_ms()
        if self._pointer is None:
            await self._journal.create_pointer(target, now_ms=now_ms)
        else:
            await self._journal.move_pointer(target, now_ms=now_ms)
        self._pointer = target

    # --- the journals -------------------------------------------------------------------------------------------------

    async def apply(self, records: Sequence[Record]) -> None:
        """Carry out what records say, in the order of the log; the pointer stays, but where a purge needs it moved.

        Those before `position` are passed over. Nothing committed may be missing between them and what came before.

        Raises:
            Retriable: the store cannot be written to; the same records may be given again.
        """
        records = [record for record in records if record.offset >= self._position]
        for stretch in cut_at_purges(self._decoded(records)):
            if any(map(is_on_terms, stretch)):
                await self.move_to(stretch[0].offset)  # what is before it never comes again
            await self._apply_stretch(stretch)
        self._metrics.records.inc(len(records))

    def _decoded(self, records: Sequence[Record]) -> list[ActionRecord]:
        """Their actions, in order; a record that cannot be read is parked."""
        decoded = []
        for record in records:
            if self.parking.is_skipped(record.offset):
                continue
            try:
                action = decode_action(self.place, record)
            except DecodeError as error:
                self._park(_key_id(record), record.offset, str(error))
                continue
            if action is not None:
                decoded.append(action)
        return decoded

    async def _apply_stretch(self, stretch: Sequence[ActionRecord]) -> None:
        at_a_time = asyncio.Semaphore(KEYS_AT_A_TIME)
        by_key = self._by_key(stretch)
        outcomes = await asyncio.gather(
            *(self._apply_key(key_id, actions, at_a_time) for key_id, actions in by_key.items()), return_exceptions=True
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    def _by_key(self, stretch: Sequence[ActionRecord]) -> dict[str, list[ActionRecord]]:
        """The actions of each journal, without those that wait.

        A purge on terms waits as well where a record before it is parked: the pointer cannot pass what came before it.
        """
        first_parked = self.parking.first_offset
        by_key: defaultdict[str, list[ActionRecord]] = defaultdict(list)
        for action in stretch:
            key_id = action.key.id
            if self.parking.is_waiting(key_id, action.offset):
                continue
            if first_parked is not None and first_parked < action.offset and is_on_terms(action):
                self._park(key_id, action.offset, f"a purge on terms waits for offset {first_parked}, which is parked")
                continue
            by_key[key_id].append(action)
        return by_key

    async def _apply_key(self, key_id: str, actions: list[ActionRecord], at_a_time: asyncio.Semaphore) -> None:
        """One journal; what is wrong with it is its own affair."""
        async with at_a_time:
            for stretch in (actions, *([action] for action in actions)):
                try:
                    plan = await self._journal.key(key_id).apply(optimize_actions(stretch), now_ms=self._clock.now_ms())
                except ExactlogError as error:
                    if error.retryable:
                        raise
                    if len(stretch) > 1:
                        continue  # one after the other then: those before the bad one count
                    self._park(key_id, stretch[0].offset, str(error))
                    return
                self._metrics.actions.inc(len(stretch))
                self._metrics.refused.inc(len(plan.refused))
                for fork in plan.forks:
                    self._metrics.forks.inc()
                    _log.warning(
                        "%s offset %d, journal %s: events %d to %d were appended when it had come to %d already",
                        self.place,
                        fork.offset,
                        key_id,
                        fork.range.first,
                        fork.range.last,
                        fork.last_seq_nr,
                    )
                if stretch is actions:
                    return

    def _park(self, key_id: str | None, offset: int, reason: str) -> None:
        parked = self.parking.park(key_id, offset, reason)
        if parked.offset == offset:
            _log.error("%s offset %d, journal %s: parked: %s", self.place, offset, key_id, reason)


class PartitionReplicator:
    """One partition. What it was given before, or is in the store already, it passes over."""

    def __init__(
        self,
        place: TopicPartition,
        journal: PartitionJournal,
        log: PartitionLog,
        clock: Clock,
        metrics: ReplicationMetrics,
    ) -> None:
        self.place = place
        self._applier = ActionApplier(place, journal, clock, metrics)
        self._log = log
        self._is_open = False

    @property
    def parking(self) -> ParkingLot:
        """What is parked, and what may be passed over."""
        return self._applier.parking

    @property
    def pointer(self) -> int | None:
        """Up to which offset the partition is replicated, as far as it is known here; None: nothing is."""
        return self._applier.pointer

    async def apply(self, records: Sequence[Record]) -> None:
        """Replicate what was read of the partition, in the order of the log.

        Where it does not follow what came before (another replicator had the partition meanwhile, or the group has
        committed more than the store has), what lies between is read from the log first.

        Raises:
            Retriable: the store cannot be written to; the same records may be given again.
            HeadLost: what lies between is gone.
        """
        first, last = records[0].offset, records[-1].offset
        if last < self._applier.position:
            return
        if not self._is_open or first > self._applier.position:
            await self.catch_up(first)
        await self._applier.apply(records)
        await self._applier.move_to(last + 1)

    async def skip(self, offset: int) -> None:
        """Pass over a record that is parked, and replicate what waited behind it."""
        self.parking.skip(offset)
        if self._is_open:
            await self.catch_up(self._applier.position)

    async def catch_up(self, before: int) -> None:
        """Go on from the pointer of the store, whatever the group has committed, and read from the log up to an offset.

        Raises:
            Retriable, HeadLost: as `apply`.
        """
        pointer = await self._applier.read_pointer()
        position = await self._log.start(self.place) if pointer is None else pointer + 1
        if pointer is None and position > 0:
            _log.warning("%s: the first %d offsets are gone, and were never replicated", self.place, position)
        self._applier.stand_at(position)
        self._is_open = True
        if position >= before:
            return
        gap: list[Record] = []
        gap_bytes = 0
        async for record in self._log.records(self.place, Stretch(position, before)):
            gap.append(record)
            gap_bytes += len(record.value or b"")
            if len(gap) == GAP_RECORDS_MAX or gap_bytes >= GAP_BYTES_MAX:
                await self._applier.apply(gap)
                gap.clear()
                gap_bytes = 0
        await self._applier.apply(gap)
        await self._applier.move_to(before)


def _key_id(record: Record) -> str | None:
    try:
        return None if record.key is None else record.key.decode()
    except UnicodeDecodeError:
        return None
