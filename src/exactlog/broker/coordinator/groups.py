"""The consumer groups of one broker. They are kept in the topic `__consumer_offsets`."""

import asyncio
import logging
import uuid
from collections.abc import Callable
from typing import Final
from uuid import UUID

from exactlog.broker.coordinator.shard_runner import ShardRunner
from exactlog.broker.coordinator.shards import Shards
from exactlog.broker.timers import Timers
from exactlog.broker.topic_registry import Topic, TopicRegistry
from exactlog.core.config.broker_configs import BrokerConfig
from exactlog.core.config.definition import InvalidConfig
from exactlog.core.config.topic_configs import TopicConfig, validate_topic_config
from exactlog.core.group.shard import GroupLimits, GroupShard
from exactlog.core.model.clock import Clock
from exactlog.core.model.errors import InvariantError
from exactlog.core.model.metrics import Registry
from exactlog.core.model.topic_name import CONSUMER_OFFSETS
from exactlog.storage.round_committer import RoundCommitter

_logger = logging.getLogger(__name__)

Runner = ShardRunner[GroupShard]

_EXPIRY: Final = "offsets-expiry"


class GroupCoordinator(Shards[GroupShard]):
    """Hands every group to its shard, and has done what happens without being asked. It belongs to the event loop."""

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
        limits = _limits(config)
        super().__init__(
            topic=CONSUMER_OFFSETS,
            partition_count=config.offsets_topic_num_partitions,
            config=lambda: _offsets_topic_config(config),
            make_machine=lambda _: GroupShard(limits, new_id=new_id),
            topics=topics,
            rounds=rounds,
            timers=timers,
            clock=clock,
            new_topic_id=new_topic_id,
            on_loaded=self._expire_regularly,
            on_dismissed=lambda runner: timers.cancel((_EXPIRY, runner)),
        )
        self._expiry_interval_ms = config.offsets_retention_check_interval_ms
        self._tasks: set[asyncio.Task[None]] = set()
        topics.when_deleted(self._on_any_topic_deleted)
        metrics.gauge("exactlog_groups", "Consumer groups that are loaded.", read=self._count_groups)

    def force_rebalance(self, group_id: str) -> bool:
        """Makes a group rebalance now, as if a member had come; False where nobody has asked for the group yet."""
        runner = self.find(group_id)
        if runner is None or runner.machine.describe(group_id) is None:
            return False
        runner.decide(lambda shard, now_ms: shard.force_rebalance(group_id, now_ms=now_ms))
        return True

    def _expire_regularly(self, runner: Runner) -> None:
        def expire() -> None:
            if runner.is_usable:
                runner.decide(lambda shard, now_ms: shard.expire_offsets(now_ms=now_ms))
                self._timers.set((_EXPIRY, runner), self._expiry_interval_ms, expire)

        self._timers.set((_EXPIRY, runner), self._expiry_interval_ms, expire)

    def _on_any_topic_deleted(self, topic: Topic) -> None:
        """Offsets in a topic go with it; also those of groups that nobody has asked for since the start."""
        if topic.name != CONSUMER_OFFSETS:
            task = asyncio.ensure_future(self._drop_offsets(topic.name, topic.topic_id))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _drop_offsets(self, topic: str, topic_id: UUID) -> None:
        loaded = await self.load_each()
        for index, error in loaded.missing.items():
            _logger.error("%s-%d: offsets in the deleted topic %s stay: %s", CONSUMER_OFFSETS, index, topic, error.name)
        for runner in loaded.runners:
            runner.decide(lambda shard, now_ms: shard.delete_topic(topic, topic_id=topic_id, now_ms=now_ms))

    def _count_groups(self) -> int:
        return sum(runner.machine.group_count for runner in self.runners())


def _limits(config: BrokerConfig) -> GroupLimits:
    return GroupLimits(
        session_timeout_ms_min=config.group_min_session_timeout_ms,
        session_timeout_ms_max=config.group_max_session_timeout_ms,
        initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        members_max=config.group_max_size,
        offset_metadata_bytes_max=config.offset_metadata_max_bytes,
        offsets_retention_ms=config.offsets_retention_minutes * 60_000,
    )


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
