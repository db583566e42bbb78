"""The shards of one coordinator: which one a key belongs to, loaded when it is first asked for.

The coordinator's topic is made when somebody first needs it. It is a partition log like any other; its number of
partitions stays what it was then.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final, Generic
from uuid import UUID

from msgspec import Struct

from exactlog.broker.coordinator.loading import load_shard
from exactlog.broker.coordinator.machine import AnyMachine
from exactlog.broker.coordinator.shard_runner import ShardRunner, expect_no_effect
from exactlog.broker.partition_lookup import closed_partitions, open_partitions
from exactlog.broker.timers import Timers
from exactlog.broker.topic_registry import Topic, TopicRegistry
from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.model.clock import Clock
from exactlog.core.model.coordinator_partition import coordinator_partition
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import DamageError, DecodeError, InvariantError, KafkaError
from exactlog.core.model.ids import TopicPartition
from exactlog.storage.partition_log import PartitionLog
from exactlog.storage.round_committer import RoundCommitter

_logger = logging.getLogger(__name__)

_UNASKED: Final = "unasked-load"

LOAD_WAIT_S: Final = 5.0
"""How long a request waits for its shard; where that takes longer, clients are told to try again."""

LOAD_RETRY_DELAY_MS: Final = 1_000
"""How long a shard that could not be loaded is left alone: reading it again tells nothing new so soon."""

UNASKED_LOAD_DELAY_MS: Final = 10_000
"""After which a shard that could not be loaded, or that broke, is loaded though nobody asks: what is open in it times
out, as often as transactions are looked at for that (`check_interval_ms`)."""


class LoadedShards(Struct, Generic[AnyMachine]):
    """The shards of a coordinator, as far as they can be loaded."""

    runners: list[ShardRunner[AnyMachine]]
    missing: dict[int, ErrorCode]
    """Those that cannot be had now, by their partition, and why: as `Shards.load`."""


class Shards(Generic[AnyMachine]):
    """Hands every key to its shard. It belongs to the event loop.

    Args:
        topic: the coordinator's topic.
        partition_count: how many partitions the topic gets when it is made.
        config: the settings it gets then.
        make_machine: a shard's rules, with nothing loaded yet, by the index of its partition.
        on_loaded: called when a shard begins to work; nobody has asked it anything yet.
        on_dismissed: called when one has ended that had begun.
        only_newest_counts: whether of several records of one key, decided together, the last one says all; see
            `ShardRunner`.
        on_effect: carries out what the rules decide to be done elsewhere.
    """

    def __init__(
        self,
        *,
        topic: str,
        partition_count: int,
        config: Callable[[], TopicConfig],
        make_machine: Callable[[int], AnyMachine],
        topics: TopicRegistry,
        rounds: RoundCommitter,
        timers: Timers,
        clock: Clock,
        new_topic_id: Callable[[], UUID],
        on_loaded: Callable[[ShardRunner[AnyMachine]], None] = lambda _: None,
        on_dismissed: Callable[[ShardRunner[AnyMachine]], None] = lambda _: None,
        on_effect: Callable[[Struct], None] = expect_no_effect,
        only_newest_counts: bool = False,
    ) -> None:
        self._topic = topic
        self._partition_count = partition_count
        self._config = config
        self._make_machine = make_machine
        self._topics = topics
        self._rounds = rounds
        self._timers = timers
        self._clock = clock
        self._new_topic_id = new_topic_id
        self._on_loaded = on_loaded
        self._on_dismissed = on_dismissed
        self._on_effect = on_effect
        self._only_newest_counts = only_newest_counts
        self._runners: dict[int, ShardRunner[AnyMachine]] = {}
        self._count_found = 0
        """How many partitions the topic has, by the newest load: it does not grow. 0: there was none."""
        self._loading: dict[int, asyncio.Task[ShardRunner[AnyMachine] | ErrorCode]] = {}
        self._not_loaded: set[int] = set()
        """Those that could not be loaded a moment ago."""
        self._making_topic = asyncio.Lock()
        self._is_resigned = False
        topics.when_deleted(self._on_topic_deleted)

    # --- the shard of a key -------------------------------------------------------------------------------------

    def partition_of(self, key: str) -> int | None:
        """Which partition of the topic a key belongs to; None while there is no topic."""
        topic = self._topics.by_name(self._topic)
        return None if topic is None else coordinator_partition(key, topic.partition_count)

    def find(self, key: str) -> ShardRunner[AnyMachine] | None:
        """The shard of a key if it is loaded and works; None: `load` says more."""
        if not self._count_found:
            return None
        # As `find_index`, written out: every write of a transaction asks.
        runner = self._runners.get(coordinator_partition(key, self._count_found))
        return runner if runner is not None and runner.is_usable else None

    def find_index(self, index: int) -> ShardRunner[AnyMachine] | None:
        """The shard of a partition if it is loaded and works; None: `load_index` says more."""
        runner = self._runners.get(index)
        return runner if runner is not None and runner.is_usable else None

    async def load(self, key: str) -> ShardRunner[AnyMachine] | ErrorCode:
        """The shard of a key, loaded; or the error that tells a client why there is none now.

        COORDINATOR_LOAD_IN_PROGRESS where it takes long, COORDINATOR_NOT_AVAILABLE where the disk refuses,
        NOT_COORDINATOR where this broker is about to stop.
        """
        try:
            topic = await self.ensure_topic()
        except KafkaError as error:
            _logger.error("no coordinator for %s: %s", key, error)
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return await self.load_index(coordinator_partition(key, topic.partition_count))

    async def load_index(self, index: int) -> ShardRunner[AnyMachine] | ErrorCode:
        """The shard of a partition of the topic, which is there; or why it cannot be had now, as `load`."""
        if self._is_resigned:
            return ErrorCode.NOT_COORDINATOR
        runner = self.find_index(index)
        if runner is not None:
            return runner
        if index in self._not_loaded:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        task = self._loading.get(index) or self._begin_load(index)
        done, _ = await asyncio.wait([task], timeout=LOAD_WAIT_S)
        return task.result() if done else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    async def load_each(self) -> LoadedShards[AnyMachine]:
        """All shards, as far as they can be loaded; none where nobody ever needed one."""
        topic = self._topics.by_name(self._topic)
        loaded: LoadedShards[AnyMachine] = LoadedShards([], {})
        for index in range(0 if topic is None else topic.partition_count):
            found = await self.load_index(index)
            if isinstance(found, ErrorCode):
                loaded.missing[index] = found
            else:
                loaded.runners.append(found)
        return loaded

    async def load_all(self) -> list[ShardRunner[AnyMachine]] | ErrorCode:
        """All shards, loaded; or why one of them cannot be had now, as `load`."""
        loaded = await self.load_each()
        return next(iter(loaded.missing.values()), loaded.runners)

    def _begin_load(self, index: int) -> asyncio.Task[ShardRunner[AnyMachine] | ErrorCode]:
        task = self._loading[index] = asyncio.ensure_future(self._load(index))
        task.add_done_callback(lambda _: self._loading.pop(index, None))
        return task

    def runners(self) -> list[ShardRunner[AnyMachine]]:
        """The shards that are loaded; some may not work any more."""
        return list(self._runners.values())

    async def ensure_topic(self) -> Topic:
        """The coordinator's topic, made now if there is none yet.

        Raises:
            KafkaError: the disk refuses.
        """
        async with self._making_topic:
            found = self._topics.by_name(self._topic)
            if found is not None:
                return found
            return await self._topics.create(
                self._topic,
                partition_count=self._partition_count,
                config=self._config(),
                topic_id=self._new_topic_id(),
            )

    async def open_partition_of(self, key: str) -> TopicPartition:
        """Where the records of a key are kept: a partition that is open, unless it cannot be or that takes long.

        Raises:
            KafkaError: the disk refuses to make the topic.
        """
        topic = await self.ensure_topic()
        found = TopicPartition(topic.name, coordinator_partition(key, topic.partition_count))
        closed = closed_partitions(self._topics, [found])
        if closed:
            await open_partitions(self._topics, closed)
        return found

    async def _load(self, index: int) -> ShardRunner[AnyMachine] | ErrorCode:
        broken = self._runners.pop(index, None)
        if broken is not None:
            self._dismiss(broken)
        await self._topics.open(self._topic, index)
        partition = self._topics.partition(self._topic, index)
        if not isinstance(partition, PartitionLog) or partition.failure is not None:
            return self._leave_alone(index)
        machine = self._make_machine(index)
        try:
            size_bytes = await load_shard(partition, machine, is_wanted=lambda: not self._is_resigned)
        except (DecodeError, DamageError, InvariantError, OSError) as error:
            _logger.critical("%s: what is in it cannot be loaded: %s", partition.topic_partition, error)
            return self._leave_alone(index)
        except Exception:  # a defect of its rules: it concerns this shard alone
            _logger.critical("%s: what is in it cannot be loaded", partition.topic_partition, exc_info=True)
            return self._leave_alone(index)
        if self._is_resigned:
            return ErrorCode.NOT_COORDINATOR
        runner = ShardRunner(
            partition,
            machine,
            rounds=self._rounds,
            timers=self._timers,
            clock=self._clock,
            on_effect=self._on_effect,
            on_broken=partial(self._load_unasked, index),
            only_newest_counts=self._only_newest_counts,
        )
        topic = self._topics.by_name(self._topic)
        self._count_found = 0 if topic is None else topic.partition_count
        self._runners[index] = runner
        runner.start(loaded_bytes=size_bytes)
        self._on_loaded(runner)
        return runner

    def _leave_alone(self, index: int) -> ErrorCode:
        """A shard cannot be loaded: whoever asks for it in the next moment is told so without another look."""
        self._not_loaded.add(index)
        self._timers.set((self, index), LOAD_RETRY_DELAY_MS, lambda: self._not_loaded.discard(index))
        self._load_unasked(index)
        return ErrorCode.COORDINATOR_NOT_AVAILABLE

    def _load_unasked(self, index: int) -> None:
        """Has a shard loaded in a while, unless somebody asks for it before."""

        def load() -> None:
            is_there = self._topics.by_name(self._topic) is not None and not self._is_resigned
            if is_there and index not in self._loading and self.find_index(index) is None:
                _ = self._begin_load(index)

        self._timers.set((_UNASKED, self, index), UNASKED_LOAD_DELAY_MS, load)

    # --- the end ------------------------------------------------------------------------------------------------

    def resign(self) -> None:
        """This broker coordinates nothing any more: everybody who waits is sent away."""
        self._is_resigned = True
        for runner in self._runners.values():
            self._dismiss(runner)

    def _on_topic_deleted(self, topic: Topic) -> None:
        if topic.name == self._topic:
            for runner in self._runners.values():
                self._dismiss(runner)
            self._runners.clear()

    def _dismiss(self, runner: ShardRunner[AnyMachine]) -> None:
        runner.resign()
        self._on_dismissed(runner)
