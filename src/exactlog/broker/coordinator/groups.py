"""The consumer groups of one broker: which shard a group belongs to, loaded when it is first asked for.

The topic `__consumer_offsets` is made when somebody first looks for a group's coordinator. It is a partition log like
any other; its number of partitions stays what it was then.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable
from typing import Final
from uuid import UUID

from exactlog.broker.coordinator.loading import load_shard
from exactlog.broker.coordinator.shard_runner import ShardRunner
from exactlog.broker.timers import Timers
from exactlog.broker.topic_registry import Topic, TopicRegistry
from exactlog.core.config.broker_configs import BrokerConfig
from exactlog.core.config.definition import InvalidConfig
from exactlog.core.config.topic_configs import TopicConfig, validate_topic_config
from exactlog.core.group.shard import GroupLimits, GroupShard
from exactlog.core.model.clock import Clock
from exactlog.core.model.coordinator_partition import coordinator_partition
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import DamageError, DecodeError, InvariantError, KafkaError
from exactlog.core.model.metrics import Registry
from exactlog.core.model.topic_name import CONSUMER_OFFSETS
from exactlog.storage.partition_log import PartitionLog
from exactlog.storage.round_committer import RoundCommitter

_logger = logging.getLogger(__name__)

Runner = ShardRunner[GroupShard]

_EXPIRY: Final = "offsets-expiry"

LOAD_WAIT_S: Final = 5.0
"""How long a request waits for its shard; where that takes longer, clients are told to try again."""


class GroupCoordinator:
    """Hands every group to its shard. It belongs to the event loop."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        topics: TopicRegistry,
        rounds: RoundCommitter,
        timers: Timers,
        clock: Clock,
        metrics: Registry,
        new_topic_id: Callable[[], UUID],
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self._config = config
        self._topics = topics
        self._rounds = rounds
        self._timers = timers
        self._clock = clock
        self._new_topic_id = new_topic_id
        self._new_id = new_id
        self._runners: dict[int, Runner] = {}
        self._loading: dict[int, asyncio.Task[Runner | ErrorCode]] = {}
        self._making_topic = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_resigned = False
        topics.when_deleted(self._on_topic_deleted)
        metrics.gauge("exactlog_groups", "Consumer groups that are loaded.", read=self._count_groups)

    # --- the shard of a group -----------------------------------------------------------------------------------

    def find(self, group_id: str) -> Runner | None:
        """The shard of a group if it is loaded and works; None: `load` says more."""
        topic = self._topics.by_name(CONSUMER_OFFSETS)
        if topic is None:
            return None
        runner = self._runners.get(coordinator_partition(group_id, topic.partition_count))
        return runner if runner is not None and runner.is_usable else None

    async def load(self, group_id: str) -> Runner | ErrorCode:
        """The shard of a group, loaded; or the error that tells a client why there is none now.

        COORDINATOR_LOAD_IN_PROGRESS where it takes long, COORDINATOR_NOT_AVAILABLE where the disk refuses,
        NOT_COORDINATOR where this broker is about to stop.
        """
        try:
            topic = await self.ensure_topic()
        except KafkaError as error:
            _logger.error("no coordinator for group %s: %s", group_id, error)
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return await self._load_partition(coordinator_partition(group_id, topic.partition_count))

    async def load_all(self) -> list[Runner] | ErrorCode:
        """All shards, loaded; none where there never was a group. Or why that cannot be had now, as `load`."""
        topic = self._topics.by_name(CONSUMER_OFFSETS)
        loaded: list[Runner] = []
        for index in range(0 if topic is None else topic.partition_count):
            runner = await self._load_partition(index)
            if isinstance(runner, ErrorCode):
                return runner
            loaded.append(runner)
        return loaded

    async def ensure_topic(self) -> Topic:
        """The topic that keeps the groups, made now if there is none yet.

        Raises:
            KafkaError: the disk refuses.
        """
        async with self._making_topic:
            found = self._topics.by_name(CONSUMER_OFFSETS)
            if found is not None:
                return found
            return await self._topics.create(
                CONSUMER_OFFSETS,
                partition_count=self._config.offsets_topic_num_partitions,
                config=_offsets_topic_config(self._config),
                topic_id=self._new_topic_id(),
            )

    async def _load_partition(self, index: int) -> Runner | ErrorCode:
        if self._is_resigned:
            return ErrorCode.NOT_COORDINATOR
        runner = self._runners.get(index)
        if runner is not None and runner.is_usable:
            return runner
        task = self._loading.get(index)
        if task is None:
            task = self._loading[index] = asyncio.ensure_future(self._load(index))
            task.add_done_callback(lambda _: self._loading.pop(index, None))
        done, _ = await asyncio.wait([task], timeout=LOAD_WAIT_S)
        return task.result() if done else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    async def _load(self, index: int) -> Runner | ErrorCode:
        broken = self._runners.pop(index, None)
        if broken is not None:
            self._dismiss(broken)
        await self._topics.open(CONSUMER_OFFSETS, index)
        partition = self._topics.partition(CONSUMER_OFFSETS, index)
        if not isinstance(partition, PartitionLog) or partition.failure is not None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        shard = GroupShard(self._limits(), new_id=self._new_id)
        try:
            size_bytes = await load_shard(partition, shard, is_wanted=lambda: not self._is_resigned)
        except (DecodeError, DamageError, OSError) as error:
            _logger.critical("%s: the groups in it cannot be loaded: %s", partition.topic_partition, error)
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if self._is_resigned:
            return ErrorCode.NOT_COORDINATOR
        runner = ShardRunner(partition, shard, rounds=self._rounds, timers=self._timers, clock=self._clock)
        self._runners[index] = runner
        runner.start(loaded_bytes=size_bytes)
        self._expire_regularly(runner)
        return runner

    def _limits(self) -> GroupLimits:
        config = self._config
        return GroupLimits(
            session_timeout_ms_min=config.group_min_session_timeout_ms,
            session_timeout_ms_max=config.group_max_session_timeout_ms,
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            members_max=config.group_max_size,
            offset_metadata_bytes_max=config.offset_metadata_max_bytes,
            offsets_retention_ms=config.offsets_retention_minutes * 60_000,
        )

    # --- what happens without being asked -----------------------------------------------------------------------

    def _expire_regularly(self, runner: Runner) -> None:
        def expire() -> None:
            if runner.is_usable:
                runner.decide(lambda shard, now_ms: shard.expire_offsets(now_ms=now_ms))
                self._timers.set((_EXPIRY, runner), self._config.offsets_retention_check_interval_ms, expire)

        self._timers.set((_EXPIRY, runner), self._config.offsets_retention_check_interval_ms, expire)

    def _on_topic_deleted(self, topic: Topic) -> None:
        """Offsets in a topic go with it; also those of groups that nobody has asked for since the start."""
        if topic.name == CONSUMER_OFFSETS:
            for runner in self._runners.values():
                self._dismiss(runner)
            self._runners.clear()
            return
        task = asyncio.ensure_future(self._drop_offsets(topic.name, topic.topic_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _drop_offsets(self, topic: str, topic_id: UUID) -> None:
        runners = await self.load_all()
        if isinstance(runners, ErrorCode):
            _logger.error("offsets in the deleted topic %s stay: %s", topic, runners.name)
            return
        for runner in runners:
            runner.decide(lambda shard, now_ms: shard.delete_topic(topic, topic_id=topic_id, now_ms=now_ms))

    def force_rebalance(self, group_id: str) -> bool:
        """Makes a group rebalance now, as if a member had come; False where nobody has asked for the group yet."""
        runner = self.find(group_id)
        if runner is None or runner.machine.describe(group_id) is None:
            return False
        runner.decide(lambda shard, now_ms: shard.force_rebalance(group_id, now_ms=now_ms))
        return True

    def resign(self) -> None:
        """This broker coordinates nothing any more: everybody who waits is sent away."""
        self._is_resigned = True
        for runner in self._runners.values():
            self._dismiss(runner)

    def _dismiss(self, runner: Runner) -> None:
        self._timers.cancel((_EXPIRY, runner))
        runner.resign()

    def _count_groups(self) -> int:
        return sum(runner.machine.group_count for runner in self._runners.values())


def _offsets_topic_config(config: BrokerConfig) -> TopicConfig:
    overrides = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(config.offsets_topic_segment_bytes),
    }
    checked = validate_topic_config(overrides, defaults=config.topic_defaults)
    if isinstance(checked, InvalidConfig):
        raise InvariantError(str(checked))
    return checked
