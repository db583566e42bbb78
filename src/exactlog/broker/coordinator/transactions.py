"""The transaction coordinator of one broker: which shard a transactional id belongs to, and what happens in its name.

The topic `__transaction_state` is made when somebody first looks for a coordinator of transactions. Where there is one
at the start its shards are loaded at once, in the background: outcomes that were decided are carried out, and what is
open times out, whether or not anybody asks.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Hashable, Sequence
from functools import partial
from typing import Final
from uuid import UUID

from msgspec import Struct

from exactlog.broker.coordinator.groups import GroupCoordinator
from exactlog.broker.coordinator.shard_runner import ShardRunner
from exactlog.broker.coordinator.shards import Shards
from exactlog.broker.coordinator.transaction_fault_points import END_BEFORE_PREPARE
from exactlog.broker.coordinator.transaction_markers import MarkerWriter
from exactlog.broker.coordinator.transaction_orphans import Orphans
from exactlog.broker.coordinator.transaction_writes import Held, TransactionWrites, Writer
from exactlog.broker.producer_ids import ProducerIds
from exactlog.broker.timers import Timers
from exactlog.broker.topic_registry import TopicRegistry
from exactlog.core.config.broker_configs import BrokerConfig
from exactlog.core.config.definition import InvalidConfig
from exactlog.core.config.topic_configs import TopicConfig, validate_topic_config
from exactlog.core.model.clock import Clock
from exactlog.core.model.decisions import Decision, Waiter
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import InvariantError
from exactlog.core.model.ids import ProducerId, TopicPartition
from exactlog.core.model.metrics import Counter, Registry
from exactlog.core.model.topic_name import CONSUMER_OFFSETS, TRANSACTION_STATE
from exactlog.core.transaction.limits import TransactionLimits
from exactlog.core.transaction.requests import (
    AddPartitionsRequest,
    EndAnswer,
    EndRequest,
    ErrorAnswer,
    TransactionDescription,
    WriteMarkers,
)
from exactlog.core.transaction.shard import TransactionShard
from exactlog.core.transaction.timer_keys import TimeoutCheck
from exactlog.storage.partition_log import PartitionLog
from exactlog.storage.round_committer import RoundCommitter
from exactlog.storage.waiting import Settling

_logger = logging.getLogger(__name__)

TransactionRunner = ShardRunner[TransactionShard]

_EXPIRY: Final = "transactional-ids-expiry"
_EXPIRY_CHECK_MS: Final = 3_600_000  # as Apache Kafka: the expiration itself is a week


class TransactionCoordinator(Shards[TransactionShard]):
    """Hands every transactional id to its shard, and carries out what the shards decide. It belongs to the event loop.

    Attributes:
        is_enabled: whether this broker coordinates transactions at all (`transactions.enabled`).
        markers: writes the ends of transactions.
        writes: lets the data of transactions into partitions.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        leader_epoch: int,
        topics: TopicRegistry,
        groups: GroupCoordinator,
        rounds: RoundCommitter,
        timers: Timers,
        clock: Clock,
        metrics: Registry,
        producer_ids: ProducerIds,
        new_topic_id: Callable[[], UUID],
    ) -> None:
        limits = _limits(config)
        self._count(metrics)
        super().__init__(
            topic=TRANSACTION_STATE,
            partition_count=config.transaction_state_log_num_partitions,
            config=lambda: _state_topic_config(config),
            make_machine=lambda _: _CountingShard(
                limits,
                coordinator_epoch=leader_epoch,
                new_producer_id=producer_ids.take_now,
                timed_out=self._timed_out,
            ),
            topics=topics,
            rounds=rounds,
            timers=timers,
            clock=clock,
            new_topic_id=new_topic_id,
            on_loaded=self._look_after,
            on_dismissed=lambda runner: timers.cancel((_EXPIRY, runner)),
            on_effect=self._carry_out_effect,
            only_newest_counts=True,
        )
        self.is_enabled = config.transactions_enabled
        self.markers = MarkerWriter(topics=topics, groups=groups, timers=timers, clock=clock)
        self.writes = TransactionWrites(self)
        self._orphans = Orphans(
            load_each=self.load_each,
            hold_off=self.writes.hold_off,
            markers=self.markers,
            topics=topics,
            clock=clock,
            coordinator_epoch=leader_epoch,
        )
        if self.is_enabled:
            topics.before_use(self._orphans.end_in)
        self._groups = groups
        self._is_atomic = rounds.is_atomic
        self._has_markers_in_round = rounds.is_atomic or rounds.is_ordered
        self._ends: list[_EndOfTransaction] = []
        """Those that go into the next round, markers and all, where that is atomic or ordered."""
        self._ending_now: TransactionRunner | None = None
        """Whose transaction is being ended in a round."""
        self._tasks: set[asyncio.Task[None]] = set()

    def _count(self, metrics: Registry) -> None:
        self._committed = metrics.counter("exactlog_transactions_committed_total", "Transactions committed.")
        self._aborted = metrics.counter("exactlog_transactions_aborted_total", "Transactions aborted, by whomever.")
        self._timed_out = metrics.counter(
            "exactlog_transactions_timed_out_total", "Transactions aborted since they were open for too long."
        )
        metrics.gauge(
            "exactlog_transactions_open",
            "Transactions that are open, or whose markers are being written.",
            read=lambda: sum(runner.machine.open_count for runner in self.runners()),
        )
        metrics.gauge(
            "exactlog_transactions_undecided",
            "Transactions open in partitions whose coordinator cannot be asked, since a shard of it cannot be loaded.",
            read=lambda: self._orphans.undecided_count,
        )
        metrics.gauge(
            "exactlog_transactional_ids",
            "Transactional ids that are remembered.",
            read=lambda: sum(runner.machine.id_count for runner in self.runners()),
        )

    def descriptions(self) -> list[TransactionDescription]:
        """All transactional ids of the shards that are loaded, as of what is committed."""
        return [found for runner in self.runners() for found in runner.machine.transactions()]

    def committed_offsets(self) -> tuple[int, ...]:
        """How far the logs of the shards are committed: something else whenever something has changed."""
        return tuple(runner.partition.high_watermark for runner in self.runners())

    def start(self) -> None:
        """Loads all that there is, in the background."""
        if self.is_enabled and self.partition_of("") is not None:
            self._spawn(self._load_eagerly())

    async def _load_eagerly(self) -> None:
        loaded = await self.load_each()
        for index, error in loaded.missing.items():
            _logger.error(
                "%s-%d: transactions that were under way are not looked after yet: %s",
                TRANSACTION_STATE,
                index,
                error.name,
            )

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- what is asked ------------------------------------------------------------------------------------------

    async def load(self, key: str) -> TransactionRunner | ErrorCode:
        """The shard of a transactional id, loaded; or why there is none now: as `Shards`, and where it is disabled."""
        return await super().load(key) if self.is_enabled else ErrorCode.COORDINATOR_NOT_AVAILABLE

    def add_for_write(
        self, writer: Writer, partitions: tuple[TopicPartition, ...], then: Callable[[ErrorCode], None]
    ) -> None:
        """Asks whether a write into partitions is part of the writer's transaction, or makes it so.

        Args:
            then: called once, with NONE or the error, at once if that is possible: what it appends is in one round
                with what makes it part of the transaction. Who answers a client waits for `when_committed` as well.
        """
        request = AddPartitionsRequest(
            transactional_id=writer.transactional_id,
            producer_id=writer.producer_id,
            producer_epoch=writer.producer_epoch,
            partitions=partitions,
            verify_only=not writer.may_add,
            is_told_at_once=True,
            transaction_version=2 if writer.may_add else 1,
        )
        waiter = _OneWaiter(then)
        runner = self.find(writer.transactional_id)
        if runner is None:
            self._spawn(self._add_when_loaded(request, waiter))
        else:
            _add(runner, request, waiter)

    async def _add_when_loaded(self, request: AddPartitionsRequest, waiter: "_OneWaiter") -> None:
        loaded: TransactionRunner | ErrorCode
        try:
            loaded = await self.load(request.transactional_id)
        except Exception:  # a write waits for it, and others of its producer behind that
            _logger.exception("the coordinator of %s cannot be loaded", request.transactional_id)
            loaded = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if isinstance(loaded, ErrorCode):
            waiter.fail(loaded)
        else:
            _add(loaded, request, waiter)

    def when_committed(self, transactional_id: str, callback: Callable[[ErrorCode], None]) -> None:
        """Calls back when all that is decided of an id by now is committed (NONE) or never will be."""
        runner = self.find(transactional_id)
        if runner is None:
            callback(ErrorCode.NOT_COORDINATOR)
        else:
            runner.when_committed(callback)

    def is_ending(self, transactional_id: str) -> bool:
        """Whether the id's transaction is about to end: what comes now is of the next one."""
        runner = self.find(transactional_id)
        return runner is not None and runner.machine.is_ending(transactional_id)

    def abort_orphans(self, held: Sequence[Held], then: Callable[[Held], None]) -> None:
        """What producers have open in partitions is aborted, as far as it is part of no transaction."""
        if not self._is_resigned:  # else the next start finds what there is to abort
            self._spawn(self._orphans.end_lost(held, then))

    def end(self, request: EndRequest, waiter: Waiter, *, runner: TransactionRunner) -> None:
        """Ends a transaction of a shard, once all that was written in it is committed, and what came before is done."""
        end = _EndOfTransaction(
            runner, request, waiter, self._end_in_next_round if self._has_markers_in_round else None, self._begin_end
        )
        if request.transactional_id in runner.machine.waited_for:
            end.queue()
        else:
            self._begin_end(end)

    def _begin_end(self, end: "_EndOfTransaction") -> None:
        """What came before it is done."""
        # An atomic round may hold what it ends: all of that is committed, or in it.
        unsettled = [] if self._is_atomic else self._unsettled(end.runner, end.request)
        if unsettled or self._has_markers_in_round:
            end.wait(unsettled)
        else:
            end.decide()

    def _end_in_next_round(self, end: "_EndOfTransaction") -> None:
        """Has it end, markers and all, in the next round."""
        if not self._ends:
            self._rounds.before_next_round(self._end_all)
        self._ends.append(end)

    def _end_all(self) -> None:
        """A round is about to start. It is whole or absent, or holds no marker without the outcome before it."""
        ends, self._ends = self._ends, []
        for end in ends:
            self._ending_now = end.runner
            end.decide(has_effects_now=True)
        self._ending_now = None

    def _unsettled(self, runner: TransactionRunner, request: EndRequest) -> list[Settling]:
        """Where something is decided of a transaction and not yet committed."""
        entry = runner.machine.entry(request.transactional_id)
        unsettled: list[Settling] = []
        if not runner.machine.is_settled(request.transactional_id):
            unsettled.append(runner.when_committed)
        if entry is None:
            return unsettled
        for topic, index in entry.partitions:
            found = self._topics.partition(topic, index)
            if isinstance(found, PartitionLog) and not found.is_settled(entry.producer_id):
                unsettled.append(found.when_committed)
            if topic == CONSUMER_OFFSETS:
                group_runner = self._groups.find_index(index)
                if group_runner is not None and not group_runner.is_settled:
                    unsettled.append(group_runner.when_committed)
        return unsettled

    def fence(self, transactional_id: str) -> ErrorCode:
        """Fences whoever uses a transactional id, as if another had taken it over; or why that cannot be done."""
        runner = self.find(transactional_id)
        entry = None if runner is None else runner.machine.entry(transactional_id)
        if runner is None or entry is None:
            return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        if entry.state.is_prepared:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        runner.decide(lambda shard, now_ms: shard.fence(transactional_id, now_ms=now_ms))
        return ErrorCode.NONE

    # --- what happens without being asked -----------------------------------------------------------------------

    def _carry_out_effect(self, effect: Struct) -> None:
        if not isinstance(effect, WriteMarkers):
            raise InvariantError(f"nobody carries this out: {effect!r}")
        then, runner = partial(self._note_written, effect), self._ending_now
        is_told_at_once = runner is not None and self._is_atomic
        self.markers.carry_out(effect, then, in_round_of=runner, is_told_at_once=is_told_at_once)

    def _note_written(self, effect: WriteMarkers) -> None:
        """All markers are committed, or in the round that says so; a shard that is not loaded finds out at its load."""
        (self._committed if effect.is_commit else self._aborted).inc()
        runner = self.find(effect.transactional_id) if effect.transactional_id else None
        if runner is not None:
            runner.decide(
                lambda shard, now_ms: shard.markers_written(
                    effect.transactional_id,
                    producer_id=effect.producer_id,
                    producer_epoch=effect.producer_epoch,
                    now_ms=now_ms,
                )
            )

    def _look_after(self, runner: TransactionRunner) -> None:
        """A shard begins to work."""
        self._orphans.look_again()

        def expire() -> None:
            if runner.is_usable:
                runner.decide(lambda shard, now_ms: shard.expire_ids(now_ms=now_ms))
                self._timers.set((_EXPIRY, runner), _EXPIRY_CHECK_MS, expire)

        self._timers.set((_EXPIRY, runner), _EXPIRY_CHECK_MS, expire)

    def resign(self) -> None:
        """This broker coordinates nothing any more: everybody who waits is sent away.

        What is decided stays so: data is on its way into partitions since it is part of a transaction.
        """
        self.markers.stop()
        for runner in self.runners():
            runner.append_decided()
        super().resign()
        self._orphans.look_again()


class _CountingShard(TransactionShard):
    """A shard that counts the transactions it aborts since they have timed out."""

    def __init__(
        self,
        limits: TransactionLimits,
        *,
        coordinator_epoch: int,
        new_producer_id: Callable[[], ProducerId | None],
        timed_out: Counter,
    ) -> None:
        super().__init__(limits, coordinator_epoch=coordinator_epoch, new_producer_id=new_producer_id)
        self._timed_out_total = timed_out

    def time_out(self, key: Hashable, *, now_ms: int) -> Decision:
        """A timer that was set has gone off."""
        decision = super().time_out(key, now_ms=now_ms)
        if isinstance(key, TimeoutCheck):
            self._timed_out_total.inc(len(decision.effects))
        return decision


class _EndOfTransaction:
    """A transaction that is to end, once what was written in it is committed.

    Where it has to queue behind others of its transactional id it waits for that itself, as a `Waiter`.
    """

    __slots__ = ("_begin", "_decide_later", "_is_expected", "_missing", "_waiter", "request", "runner")

    def __init__(
        self,
        runner: TransactionRunner,
        request: EndRequest,
        waiter: Waiter,
        decide_later: Callable[["_EndOfTransaction"], None] | None,
        begin: Callable[["_EndOfTransaction"], None],
    ) -> None:
        self.runner = runner
        self.request = request
        self._waiter = waiter
        self._decide_later = decide_later
        self._begin = begin
        self._missing = 0
        self._is_expected = False

    def queue(self) -> None:
        """Waits until what came before it has gone on."""
        self.runner.decide(lambda shard, now_ms: shard.queue_end(self.request, self, now_ms=now_ms), asker=self)

    def answer(self, outcome: Struct) -> None:
        """It has; or it takes too long."""
        error = outcome.error_code if isinstance(outcome, ErrorAnswer) else ErrorCode.UNKNOWN_SERVER_ERROR
        if error is ErrorCode.NONE:
            self._is_expected = True
            self._begin(self)
        else:
            self._waiter.answer(EndAnswer(error_code=error))

    def fail(self, error_code: ErrorCode) -> None:
        """Nothing goes on any more."""
        self._waiter.fail(error_code)

    def wait(self, settling: Sequence[Settling]) -> None:
        """Waits for all of them; then it is decided, now or later. What comes meanwhile is no part of it.

        What a round refuses was answered with an error: it is not part of what ends.
        """
        if not self._is_expected:
            self._is_expected = True
            self.runner.machine.expect_end(self.request.transactional_id)
        self._missing = 1 + len(settling)
        for settle in settling:
            settle(self._one_is_settled)
        self._one_is_settled(ErrorCode.NONE)

    def decide(self, *, has_effects_now: bool = False) -> None:
        """Lets the rules decide it."""
        self.runner.decide(self._decide, asker=self._waiter, has_effects_now=has_effects_now)

    def _one_is_settled(self, _: ErrorCode) -> None:
        self._missing -= 1
        if self._missing:
            return
        if self._decide_later is None:
            self.decide()
        else:
            self._decide_later(self)

    def _decide(self, shard: TransactionShard, now_ms: int) -> Decision:
        END_BEFORE_PREPARE.reach()
        return shard.end(self.request, self._waiter, was_expected=self._is_expected, now_ms=now_ms)


def _add(runner: TransactionRunner, request: AddPartitionsRequest, waiter: "_OneWaiter") -> None:
    runner.decide(lambda shard, now_ms: shard.add_partitions(request, waiter, now_ms=now_ms), asker=waiter)


class _OneWaiter:
    """Who waits for whether partitions are part of a transaction, and is told once."""

    __slots__ = ("_then",)

    def __init__(self, then: Callable[[ErrorCode], None]) -> None:
        self._then: Callable[[ErrorCode], None] | None = then

    def answer(self, outcome: Struct) -> None:
        """Tells the outcome."""
        self.fail(outcome.error_code if isinstance(outcome, ErrorAnswer) else ErrorCode.UNKNOWN_SERVER_ERROR)

    def fail(self, error_code: ErrorCode) -> None:
        """Tells that there is none, or which one."""
        then, self._then = self._then, None
        if then is not None:
            then(error_code)


def _limits(config: BrokerConfig) -> TransactionLimits:
    return TransactionLimits(
        transaction_version=config.transaction_version,
        timeout_ms_min=config.min_timeout_ms,
        timeout_ms_max=config.transaction_max_timeout_ms,
        clamps_timeout=config.timeout_policy == "clamp",
        check_interval_ms=config.check_interval_ms,
        write_abort_markers=config.write_abort_markers,
        fence_on_timeout=config.fence_on_timeout,
        id_expiration_ms=config.transactional_id_expiration_ms,
        partitions_per_transaction_max=config.transaction_partitions_max,
    )


def _state_topic_config(config: BrokerConfig) -> TopicConfig:
    overrides = {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "segment.bytes": str(config.offsets_topic_segment_bytes),
    }
    checked = validate_topic_config(overrides, defaults=config.topic_defaults)
    if isinstance(checked, InvalidConfig):
        raise InvariantError(str(checked))
    return checked
