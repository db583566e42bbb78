"""Writes the markers that end transactions into all their partitions, and goes on until they are there.

The markers of a transaction are appended in one turn, so they share a round: those of user partitions by the partition,
those of `__consumer_offsets` by the shard of the groups, whose offsets count from then on. A partition that is gone, or
that knows better (a newer epoch or coordinator), counts as done; what the disk refuses is tried again.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from exactlog.broker.coordinator.groups import GroupCoordinator
from exactlog.broker.coordinator.groups import Runner as GroupRunner
from exactlog.broker.coordinator.shard_runner import ShardRunner
from exactlog.broker.coordinator.transaction_fault_points import (
    END_AFTER_PREPARE,
    END_BEFORE_COMPLETE,
    MARKER_AFTER_ALL,
    MARKER_AFTER_SOME,
    MARKER_BEFORE,
)
from exactlog.broker.partition_lookup import find_partition, open_partitions
from exactlog.broker.timers import Timers
from exactlog.broker.topic_registry import TopicRegistry
from exactlog.core.model.clock import Clock
from exactlog.core.model.decisions import ProducerIdentity
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import ProducerId, TopicPartition
from exactlog.core.model.topic_name import CONSUMER_OFFSETS, TRANSACTION_STATE
from exactlog.core.record.control_record_format import TransactionMarker
from exactlog.core.transaction.requests import WriteMarkers
from exactlog.core.transaction.shard import TransactionShard
from exactlog.core.transaction.states import TransactionState
from exactlog.storage.partition_log import AppendRefused, PartitionLog
from exactlog.storage.waiting import until_settled

_logger = logging.getLogger(__name__)

RETRY_MS: Final = 1_000
"""After which markers that could not be written are tried again: a disk that is full stays so for a while."""

_GONE: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
_KNOWS_BETTER: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
_NOT_READY: Final = frozenset({ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
"""The partition has to be opened first, or its shard to be loaded."""

_PREPARED: Final = {True: TransactionState.PREPARE_COMMIT, False: TransactionState.PREPARE_ABORT}

_Target = PartitionLog | GroupRunner | ErrorCode
"""Where markers for a partition go, or why they cannot."""

_Key = tuple[str | tuple[TopicPartition, ...], ProducerIdentity, bool]


class _Job:
    """The markers of one transaction on their way."""

    __slots__ = ("_in_round_of", "attempt", "effect", "identity", "is_told_at_once", "key", "then")

    def __init__(
        self,
        effect: WriteMarkers,
        then: Callable[[], None],
        *,
        in_round_of: ShardRunner[TransactionShard] | None,
        is_told_at_once: bool,
    ) -> None:
        self.effect = effect
        self.then = then
        self.is_told_at_once = is_told_at_once
        self._in_round_of = in_round_of
        self.attempt: _Attempt | None = None
        self.identity = ProducerIdentity(effect.producer_id, effect.producer_epoch)
        # What no two have in common. Of what nobody's transactional id lists, a partition at a time is aborted.
        self.key: _Key = (effect.transactional_id or effect.partitions, self.identity, effect.is_commit)

    def __str__(self) -> str:
        outcome = "commit" if self.effect.is_commit else "abort"
        return f"the {outcome} of transaction {self.effect.transactional_id or self.effect.producer_id}"

    async def wait_for_outcome(self) -> None:
        """Waits until it is known what becomes of the round that the outcome is in."""
        if self._in_round_of is not None:
            await until_settled(self._in_round_of.when_committed)

    @property
    def has_outcome(self) -> bool:
        """Whether the outcome, whose round has ended, is committed."""
        runner, effect = self._in_round_of, self.effect
        if runner is None:
            return True
        entry = runner.machine.entry(effect.transactional_id) if runner.is_usable else None
        if entry is None or entry.state is not _PREPARED[effect.is_commit]:
            return False
        return (entry.producer_id, entry.producer_epoch) == (effect.producer_id, effect.producer_epoch)


class _Attempt:
    """One try to write markers; what an earlier one still comes to is nobody's."""

    __slots__ = ("failed", "is_first", "missing", "partitions")

    def __init__(self, partitions: Sequence[TopicPartition], *, is_first: bool) -> None:
        self.partitions = partitions
        self.is_first = is_first
        self.missing = 1 + len(partitions)  # the one more is who appends them
        self.failed: dict[TopicPartition, ErrorCode] = {}


class _Opening:
    """A partition that is being opened and has transactions to end before anybody else comes by it."""

    __slots__ = ("changed", "partition", "refused")

    def __init__(self, partition: PartitionLog) -> None:
        self.partition = partition
        self.changed = asyncio.Event()
        self.refused: set[ProducerId] = set()
        """Whose markers it takes not."""


class MarkerWriter:
    """Writes markers into the partitions of one broker. It belongs to the event loop."""

    def __init__(self, *, topics: TopicRegistry, groups: GroupCoordinator, timers: Timers, clock: Clock) -> None:
        self._topics = topics
        self._groups = groups
        self._timers = timers
        self._clock = clock
        self._jobs: dict[_Key, _Job] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._opening: dict[TopicPartition, _Opening] = {}
        self._is_stopped = False

    # --- one marker ---------------------------------------------------------------------------------------------

    async def make_ready(self, partitions: Sequence[TopicPartition]) -> None:
        """Opens those of the partitions that are not open yet, as far as that goes."""
        closed = [key for key in partitions if self._find(key) is ErrorCode.LEADER_NOT_AVAILABLE]
        if closed:
            await open_partitions(self._topics, closed)
        for key in partitions:
            if self._find(key) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                await self._groups.load_index(key.partition)

    def append(
        self,
        topic_partition: TopicPartition,
        marker: TransactionMarker,
        identity: ProducerIdentity,
        *,
        transaction_version: int,
        then: Callable[[ErrorCode], None],
    ) -> None:
        """Appends a marker to a partition that is open; tells once it is committed, or why it never will be."""
        target = self._find(topic_partition)
        self._append_to(target, marker, identity, transaction_version=transaction_version, then=then)

    def _find(self, topic_partition: TopicPartition) -> _Target:
        """Where markers for a partition go; or why they cannot: not now (`_NOT_READY`), or never."""
        opening = self._opening.get(topic_partition)
        if opening is not None:
            return opening.partition
        topic, index = topic_partition
        if topic == CONSUMER_OFFSETS:
            found = self._topics.by_name(topic)
            if found is None or not 0 <= index < found.partition_count:
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            runner = self._groups.find_index(index)
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if runner is None else runner
        if topic == TRANSACTION_STATE:  # only the coordinator of transactions itself writes there
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return find_partition(self._topics, topic, index)

    def _append_to(
        self,
        target: _Target,
        marker: TransactionMarker,
        identity: ProducerIdentity,
        *,
        transaction_version: int,
        then: Callable[[ErrorCode], None],
    ) -> bool:
        """As `append`; gives whether it is on its way into the log."""
        if isinstance(target, ErrorCode):
            then(target)
            return False
        if not isinstance(target, PartitionLog):
            return target.write_marker(marker, identity, transaction_version=transaction_version, then=then)
        outcome = target.append_marker(
            marker,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            transaction_version=transaction_version,
            now_ms=self._clock.now_ms(),
        )
        if self._opening and (opening := self._opening.get(target.topic_partition)) is not None:
            opening.changed.set()
            if isinstance(outcome, AppendRefused):
                opening.refused.add(identity.producer_id)
        if isinstance(outcome, AppendRefused):
            refusal = outcome.error_code
            target.when_committed(lambda error: then(refusal if error is ErrorCode.NONE else error))
            return False
        target.when_committed(then)
        return True

    async def end_while_opening(
        self, partition: PartitionLog, producer_id: ProducerId, is_ended: Callable[[], bool]
    ) -> None:
        """Waits until a producer's marker has come to a partition that is being opened, and that nobody else comes by.

        Args:
            is_ended: looks whether a marker that was appended is the one that is waited for. One that the partition
                refuses will never be.
        """
        opening = self._opening[partition.topic_partition] = _Opening(partition)
        try:
            while not (is_ended() or producer_id in opening.refused or self._is_stopped):
                await opening.changed.wait()
                opening.changed.clear()
        finally:
            del self._opening[partition.topic_partition]

    # --- all of a transaction -----------------------------------------------------------------------------------

    def carry_out(
        self,
        effect: WriteMarkers,
        then: Callable[[], None],
        *,
        in_round_of: ShardRunner[TransactionShard] | None = None,
        is_told_at_once: bool = False,
    ) -> None:
        """Writes all markers of an outcome, and calls `then` when they are committed.

        What is on its way already is not begun again; whoever asked last is told.

        Args:
            in_round_of: whose outcome goes into the next round with them. Those that cannot be in it come after it,
                if the outcome is committed; else never. None: it is committed.
            is_told_at_once: calls `then` as soon as they are appended, if that can be now. For an outcome that goes
                into the next round with them, where a round is whole or absent.
        """
        job = _Job(effect, then, in_round_of=in_round_of, is_told_at_once=is_told_at_once)
        present = self._jobs.get(job.key)
        if present is not None and in_round_of is None:
            present.then = then
            return
        if present is not None:  # its outcome was not committed: else it would not have been decided again
            present.attempt = None
            self._timers.cancel((self, job.key))
        self._jobs[job.key] = job
        self._try(job, effect.partitions)

    def stop(self) -> None:
        """Writes no further markers; the next start finds what is left to do."""
        self._is_stopped = True
        self._jobs.clear()
        for opening in self._opening.values():
            opening.changed.set()

    def _try(self, job: _Job, partitions: Sequence[TopicPartition]) -> None:
        """Appends markers, once their partitions are open; whatever breaks is tried again."""
        job.attempt = attempt = _Attempt(partitions, is_first=job.attempt is None)
        targets = [self._find(partition) for partition in partitions]
        if _NOT_READY.isdisjoint(targets):
            self._append_all(job, attempt, targets)
            return

        job.is_told_at_once = False

        async def append_when_ready() -> None:
            try:
                await self.make_ready(partitions)
            except Exception:
                _logger.exception("the partitions of %s cannot be opened", job)
            await job.wait_for_outcome()
            if self._is_due(job):
                self._append_all(job, attempt, [self._find(partition) for partition in partitions])

        task = asyncio.ensure_future(append_when_ready())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _is_due(self, job: _Job) -> bool:
        """Whether its markers are still to be written; one whose outcome was not committed is given up here."""
        if self._is_stopped or self._jobs.get(job.key) is not job:
            return False
        if not job.has_outcome:
            _logger.warning("%s was not committed: its markers are not written", job)
            del self._jobs[job.key]
            return False
        return True

    def _append_all(self, job: _Job, attempt: _Attempt, targets: Sequence[_Target]) -> None:
        effect = job.effect
        marker = TransactionMarker(is_commit=effect.is_commit, coordinator_epoch=effect.coordinator_epoch)
        identity, version = job.identity, effect.transaction_version
        on_their_way = 0
        try:
            END_AFTER_PREPARE.reach()
            for number, target in enumerate(targets):
                if number:
                    MARKER_AFTER_SOME.reach()
                MARKER_BEFORE.reach()
                then = self._when_one_is_done(job, attempt, attempt.partitions[number])
                on_their_way += self._append_to(target, marker, identity, transaction_version=version, then=then)
            MARKER_AFTER_ALL.reach()
        except Exception:  # of what is appended by now nobody is told; a second marker does no harm
            _logger.exception("the markers of %s could not be appended", job)
            self._try_again_later(job, attempt.partitions)
            return
        if job.is_told_at_once and not attempt.failed and attempt.missing == 1 + on_their_way:
            self._end(job, attempt)
        else:
            self._count(job, attempt)

    def _when_one_is_done(self, job: _Job, attempt: _Attempt, partition: TopicPartition) -> Callable[[ErrorCode], None]:
        def is_done(error: ErrorCode) -> None:
            if error in _KNOWS_BETTER:
                _logger.warning("%s takes no marker for %s: %s", partition, job, error.name)
            elif error is not ErrorCode.NONE and error not in _GONE:
                attempt.failed[partition] = error
            self._count(job, attempt)

        return is_done

    def _count(self, job: _Job, attempt: _Attempt) -> None:
        attempt.missing -= 1
        if attempt.missing or attempt is not job.attempt or self._is_stopped:
            return
        failed = tuple(attempt.failed)
        if failed:
            if attempt.is_first:
                _logger.error("%s takes no marker for %s yet: %s", failed[0], job, attempt.failed[failed[0]].name)
            self._try_again_later(job, failed)
        else:
            self._end(job, attempt)

    def _end(self, job: _Job, attempt: _Attempt) -> None:
        try:
            END_BEFORE_COMPLETE.reach()
            del self._jobs[job.key]
            job.attempt = None
            job.then()
        except Exception:  # what ended the wait must go on: it is a round of others as well
            _logger.exception("the end of %s could not be noted", job)
            if job.key in self._jobs:
                self._try_again_later(job, attempt.partitions)

    def _try_again_later(self, job: _Job, partitions: Sequence[TopicPartition]) -> None:
        def try_again() -> None:
            if self._is_due(job):
                self._try(job, partitions)

        job.attempt = _Attempt(partitions, is_first=False)
        job.is_told_at_once = False
        self._timers.set((self, job.key), RETRY_MS, try_again)
