"""Ends transactions that are open in a partition and that the coordinator does not know of there.

A crash can leave the data of a transaction behind without the record that made its partition part of it. Its producer
resends the data then. So before anybody comes by a partition that is opened, such a transaction is aborted with the
next epoch, and the producer's entry moves there with it: the resend is fenced, never taken for a duplicate of what is
aborted.

Where no shard that is loaded knows a producer, and one cannot be loaded, it is undecided whether its transaction has a
coordinator. It stays open then, and its partition takes nothing of that producer, until a shard is loaded that tells.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum, auto
from typing import TypeAlias

from msgspec import Struct

from exactlog.broker.coordinator.shard_runner import ShardRunner
from exactlog.broker.coordinator.shards import LoadedShards
from exactlog.broker.coordinator.transaction_markers import MarkerWriter
from exactlog.broker.coordinator.transaction_writes import Held
from exactlog.broker.topic_registry import TopicRegistry
from exactlog.core.log.producer_state import ProducerEntry
from exactlog.core.model.clock import Clock
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import ProducerEpoch, ProducerId, TopicPartition
from exactlog.core.model.topic_name import TRANSACTION_STATE
from exactlog.core.record.control_record_format import TransactionMarker
from exactlog.core.transaction.entry import EPOCH_MAX, TransactionEntry
from exactlog.core.transaction.requests import ErrorAnswer
from exactlog.core.transaction.shard import TransactionShard
from exactlog.storage.partition_log import AppendRefused, PartitionLog
from exactlog.storage.waiting import until_settled

_logger = logging.getLogger(__name__)

_Runner: TypeAlias = ShardRunner[TransactionShard]
_Shards: TypeAlias = LoadedShards[TransactionShard]

_RETRY_S = 0.1
_RETRY_S_MAX = 10.0


class _Fate(Enum):
    """What becomes of a transaction that is open in a partition."""

    COORDINATED = auto()
    """Its coordinator is going to end it there."""
    ORPHANED = auto()
    """Nobody is."""
    UNDECIDED = auto()
    """The shard that would know cannot be loaded."""


class Orphans:
    """Finds and ends them in one broker. It belongs to the event loop.

    Args:
        load_each: loads the shards of the coordinator, as far as that goes.
        hold_off: lets nothing of producers into a partition until `end_lost` has settled what they have open there.
    """

    def __init__(
        self,
        *,
        load_each: Callable[[], Awaitable[_Shards]],
        hold_off: Callable[[Sequence[Held]], None],
        markers: MarkerWriter,
        topics: TopicRegistry,
        clock: Clock,
        coordinator_epoch: int,
    ) -> None:
        self._load_each = load_each
        self._hold_off = hold_off
        self._markers = markers
        self._topics = topics
        self._clock = clock
        self._coordinator_epoch = coordinator_epoch
        self._undecided: set[tuple[TopicPartition, ProducerId]] = set()
        self._another_is_loaded = asyncio.Event()

    @property
    def undecided_count(self) -> int:
        """How many transactions are open in partitions, of which nobody can tell whether they have a coordinator."""
        return len(self._undecided)

    def look_again(self) -> None:
        """One more shard is loaded, or none ever will be: what is undecided may be decided."""
        told, self._another_is_loaded = self._another_is_loaded, asyncio.Event()
        told.set()

    async def end_in(self, partition: PartitionLog) -> None:
        """Ends those in a partition that is being opened, and waits until they are; what the disk refuses is repeated.

        With one of them left a resend would be taken for a duplicate, and the next transaction would take it up.
        """
        key = partition.topic_partition
        if key.topic == TRANSACTION_STATE:
            return
        passed_over: set[ProducerId] = set()
        while open_here := [each for each in partition.open_transactions() if each.producer_id not in passed_over]:
            shards = await self._wait_for_shards()
            fates = [(each, _judge(shards, each, key)) for each in open_here]
            undecided = [each for each, fate in fates if fate is _Fate.UNDECIDED]
            if undecided:
                self._leave_undecided(partition, undecided, shards)
                passed_over.update(each.producer_id for each in undecided)
            orphaned = [each for each, fate in fates if fate is _Fate.ORPHANED]
            for producer in orphaned:
                if not await self._end(partition, producer, shards.runners):
                    passed_over.add(producer.producer_id)
            await until_settled(partition.when_committed)
            if not orphaned or partition.failure is not None or self._topics.by_name(key.topic) is None:
                return
            if partition.open_transactions():
                await asyncio.sleep(_RETRY_S)

    def _leave_undecided(self, partition: PartitionLog, producers: Sequence[ProducerEntry], shards: _Shards) -> None:
        missing = [f"{TRANSACTION_STATE}-{index} ({error.name})" for index, error in shards.missing.items()]
        _logger.warning(
            "%s: %d open transactions stay undecided, readers of committed records wait at offset %d: the coordinator "
            "cannot be asked, %s cannot be loaded",
            partition.topic_partition,
            len(producers),
            partition.last_stable_offset,
            ", ".join(missing),
        )
        self._undecided.update((partition.topic_partition, producer.producer_id) for producer in producers)
        self._hold_off([(partition, producer.producer_id) for producer in producers])

    async def _end(self, partition: PartitionLog, producer: ProducerEntry, runners: Sequence[_Runner]) -> bool:
        """Tries to end one of them; False: that will never be."""
        if not partition.has_open_transaction(producer.producer_id, producer.producer_epoch):
            return True  # meanwhile it was, by its coordinator
        _warn_of_abort(partition.topic_partition, producer)
        owner = _find_owner(runners, producer.producer_id)
        if owner is None or owner[1].producer_epoch != producer.producer_epoch:
            return self._append_marker(partition, producer)
        await self._abort_with_entry(owner[0], partition, producer)
        return True

    async def end_lost(self, held: Sequence[Held], then: Callable[[Held], None]) -> None:
        """Ends what producers have open in partitions, as far as nobody else is going to; `then` is told of each.

        What the disk refuses, or nobody can tell yet, is repeated until it is done, or this broker stops.
        """
        left, delay_s = held, _RETRY_S
        while left:
            another_is_loaded = self._another_is_loaded
            shards = await self._load_each()
            if ErrorCode.NOT_COORDINATOR in shards.missing.values():
                return
            fates = [(each, await self._end_lost_in(*each, shards)) for each in left]
            for each, fate in fates:
                if fate is not _Fate.UNDECIDED:
                    self._undecided.discard((each[0].topic_partition, each[1]))
                if fate is _Fate.COORDINATED:
                    then(each)
            left = [each for each, fate in fates if fate is not _Fate.COORDINATED]
            if any(fate is _Fate.ORPHANED for _, fate in fates):
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, _RETRY_S_MAX)
            elif left:
                await another_is_loaded.wait()

    async def _end_lost_in(self, partition: PartitionLog, producer_id: ProducerId, shards: _Shards) -> _Fate:
        """Tries to end it in one partition; gives what is to be said of it then, coordinated also where it is ended."""
        key = partition.topic_partition
        await until_settled(partition.when_committed)
        producer = _open_transaction(partition, producer_id)
        if producer is None or not (shards.runners or shards.missing):  # if at all, the next opening finds it
            return _Fate.COORDINATED
        fate = _judge(shards, producer, key)
        if fate is _Fate.UNDECIDED:
            return fate
        owner = _find_owner(shards.runners, producer_id)
        runner = shards.runners[0] if owner is None else owner[0]
        if fate is _Fate.COORDINATED:
            is_certain = await until_settled(runner.when_committed) is ErrorCode.NONE
            return _Fate.COORDINATED if is_certain else _Fate.ORPHANED
        _warn_of_abort(key, producer)
        if await _ask(runner, producer, key) is not ErrorCode.NONE:
            return _Fate.ORPHANED
        await until_settled(partition.when_committed)
        left = _open_transaction(partition, producer_id)
        return _Fate.COORDINATED if left is None else _judge(shards, left, key)

    async def _wait_for_shards(self) -> _Shards:
        while True:
            shards = await self._load_each()
            if ErrorCode.COORDINATOR_LOAD_IN_PROGRESS not in shards.missing.values():
                return shards

    def _append_marker(self, partition: PartitionLog, producer: ProducerEntry) -> bool:
        """Nobody has this producer at this epoch any more; False: the partition will never take its marker."""
        outcome = partition.append_marker(
            TransactionMarker(is_commit=False, coordinator_epoch=self._coordinator_epoch),
            producer_id=producer.producer_id,
            producer_epoch=ProducerEpoch(min(producer.producer_epoch + 1, EPOCH_MAX)),
            transaction_version=1,
            now_ms=self._clock.now_ms(),
        )
        if isinstance(outcome, AppendRefused):
            _logger.error("%s: it cannot be aborted: %s", partition.topic_partition, outcome.message)
            return False
        return True

    async def _abort_with_entry(self, runner: _Runner, partition: PartitionLog, producer: ProducerEntry) -> None:
        """The entry moves to the next epoch, and its marker is written here as in its other partitions."""

        def is_ended() -> bool:
            return not partition.has_open_transaction(producer.producer_id, producer.producer_epoch)

        waiting = asyncio.ensure_future(self._markers.end_while_opening(partition, producer.producer_id, is_ended))
        await asyncio.sleep(0)  # so that it waits before there is something to wait for
        error = await _ask(runner, producer, partition.topic_partition)
        if error is ErrorCode.NONE:
            await waiting
        else:  # as while a new producer id is being fetched
            waiting.cancel()
            _logger.error("%s: the coordinator cannot abort it yet: %s", partition.topic_partition, error.name)


class _Waiter:
    """Is told once what came of an abort."""

    def __init__(self, tell: Callable[[ErrorCode], None]) -> None:
        self._tell = tell

    def answer(self, outcome: Struct) -> None:
        """It was decided."""
        self._tell(outcome.error_code if isinstance(outcome, ErrorAnswer) else ErrorCode.UNKNOWN_SERVER_ERROR)

    def fail(self, error_code: ErrorCode) -> None:
        """It was not."""
        self._tell(error_code)


def _judge(shards: _Shards, producer: ProducerEntry, partition: TopicPartition) -> _Fate:
    """What becomes of a transaction that is open in a partition; no two shards know the same producer."""
    owner = _find_owner(shards.runners, producer.producer_id)
    if owner is None:
        return _Fate.UNDECIDED if shards.missing else _Fate.ORPHANED
    return _Fate.COORDINATED if owner[1].ends(partition, producer.producer_epoch) else _Fate.ORPHANED


def _open_transaction(partition: PartitionLog, producer_id: ProducerId) -> ProducerEntry | None:
    """What a producer has open in a partition, by what is committed; None also where the partition has stopped."""
    producer = partition.committed.producers.get(producer_id)
    if producer is None or producer.txn_start_offset is None or partition.failure is not None:
        return None
    return producer


def _warn_of_abort(partition: TopicPartition, producer: ProducerEntry) -> None:
    _logger.warning(
        "%s: a transaction of producer %d since offset %d is not known to the coordinator; it is aborted",
        partition,
        producer.producer_id,
        producer.txn_start_offset,
    )


def _find_owner(runners: Sequence[_Runner], producer_id: ProducerId) -> tuple[_Runner, TransactionEntry] | None:
    for runner in runners:
        entry = runner.machine.find_by_producer(producer_id)
        if entry is not None:
            return runner, entry
    return None


async def _ask(runner: _Runner, producer: ProducerEntry, partition: TopicPartition) -> ErrorCode:
    """Has the coordinator abort what a producer has open in a partition; what came of that, once it is committed."""
    producer_id, producer_epoch = producer.producer_id, producer.producer_epoch

    def abort(tell: Callable[[ErrorCode], None]) -> None:
        waiter = _Waiter(tell)
        runner.decide(
            lambda shard, now_ms: shard.abort_orphan(producer_id, producer_epoch, partition, waiter, now_ms=now_ms),
            asker=waiter,
        )

    return await until_settled(abort)
