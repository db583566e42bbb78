"""Ends transactions that are open in a partition and that the coordinator does not know of there.

A crash can leave the data of a transaction behind without the record that made its partition part of it. Its producer
resends the data then. So before anybody comes by a partition that is opened, such a transaction is aborted with the
next epoch, and the producer's entry moves there with it: the resend is fenced, never taken for a duplicate of what is
aborted.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from exactlog.broker.coordinator.shard_runner import ShardRunner
from exactlog.broker.coordinator.transaction_markers import MarkerWriter
from exactlog.broker.coordinator.transaction_writes import Writer
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

_Runner = ShardRunner[TransactionShard]

_RETRY_S = 0.1


class Orphans:
    """Finds and ends them in one broker. It belongs to the event loop."""

    def __init__(
        self,
        *,
        load_all: Callable[[], Awaitable[Sequence[_Runner] | ErrorCode]],
        markers: MarkerWriter,
        topics: TopicRegistry,
        clock: Clock,
        coordinator_epoch: int,
    ) -> None:
        self._load_all = load_all
        self._markers = markers
        self._topics = topics
        self._clock = clock
        self._coordinator_epoch = coordinator_epoch

    async def end_in(self, partition: PartitionLog) -> None:
        """Ends those in a partition that is being opened, and waits until they are; what the disk refuses is repeated.

        With one of them left a resend would be taken for a duplicate, and the next transaction would take it up.
        """
        key = partition.topic_partition
        if key.topic == TRANSACTION_STATE:
            return
        hopeless: set[ProducerId] = set()
        while open_here := [each for each in partition.open_transactions() if each.producer_id not in hopeless]:
            runners = await self._wait_for_shards()
            if isinstance(runners, ErrorCode):
                _logger.error("%s: nobody can tell whether its open transactions are known: %s", key, runners.name)
                return
            unknown = [each for each in open_here if not _is_known_to(runners, each, key)]
            for producer in unknown:
                if not await self._end(partition, producer, runners):
                    hopeless.add(producer.producer_id)
            await until_settled(partition.when_committed)
            if not unknown or partition.failure is not None or self._topics.by_name(key.topic) is None:
                return
            if partition.open_transactions():
                await asyncio.sleep(_RETRY_S)

    async def _end(self, partition: PartitionLog, producer: ProducerEntry, runners: Sequence[_Runner]) -> bool:
        """Tries to end one of them; False: that will never be."""
        if not partition.has_open_transaction(producer.producer_id, producer.producer_epoch):
            return True  # meanwhile it was, by its coordinator
        _logger.warning(
            "%s: a transaction of producer %d since offset %d is not known to the coordinator; it is aborted",
            partition.topic_partition,
            producer.producer_id,
            producer.txn_start_offset,
        )
        owner = _find_owner(runners, producer.producer_id)
        if owner is None or owner[1].producer_epoch != producer.producer_epoch:
            return self._append_marker(partition, producer)
        await self._abort_with_entry(owner[0], partition, producer)
        return True

    async def end_lost(self, writer: Writer, partitions: Sequence[TopicPartition]) -> bool:
        """Ends what was written in partitions whose part in the transaction was not committed.

        What the disk refuses is repeated until it is done; False: this broker stops before that.
        """
        while True:
            runners = await self._load_all()
            if runners is ErrorCode.NOT_COORDINATOR:
                return False
            if isinstance(runners, ErrorCode):
                _logger.error("data of transaction %s is left open yet: %s", writer.transactional_id, runners.name)
            else:
                left = [await self._end_lost_in(key, writer, runners) for key in partitions]
                if not any(left):
                    return True
            await asyncio.sleep(_RETRY_S)

    async def _end_lost_in(self, key: TopicPartition, writer: Writer, runners: Sequence[_Runner]) -> bool:
        """Tries to end it in one partition; gives whether there is something left that nobody is going to end."""
        found = self._topics.partition(key.topic, key.partition)
        if not isinstance(found, PartitionLog) or found.failure is not None or not runners:
            return False  # the next opening finds it
        await until_settled(found.when_committed)
        producer = found.committed.producers.get(writer.producer_id)
        if producer is None or producer.txn_start_offset is None:
            return False
        owner = _find_owner(runners, writer.producer_id)
        runner = runners[0] if owner is None else owner[0]
        if owner is not None and is_known(owner[1], producer, key):
            return await until_settled(runner.when_committed) is not ErrorCode.NONE
        if await _ask(runner, producer, key) is not ErrorCode.NONE:
            return True
        left = found.committed.producers.get(writer.producer_id)
        return left is not None and left.txn_start_offset is not None and not _is_known_to(runners, left, key)

    async def _wait_for_shards(self) -> Sequence[_Runner] | ErrorCode:
        while True:
            runners = await self._load_all()
            if runners is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return runners

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

        waiting = asyncio.ensure_future(self._markers.end_while_opening(partition, is_ended))
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


def is_known(entry: TransactionEntry, producer: ProducerEntry, partition: TopicPartition) -> bool:
    """Whether the coordinator is going to end a transaction that is open in a partition."""
    return entry.ends(partition, producer.producer_epoch)


def _find_owner(runners: Sequence[_Runner], producer_id: ProducerId) -> tuple[_Runner, TransactionEntry] | None:
    for runner in runners:
        entry = runner.machine.find_by_producer(producer_id)
        if entry is not None:
            return runner, entry
    return None


def _is_known_to(runners: Sequence[_Runner], producer: ProducerEntry, partition: TopicPartition) -> bool:
    owner = _find_owner(runners, producer.producer_id)
    return owner is not None and is_known(owner[1], producer, partition)


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
