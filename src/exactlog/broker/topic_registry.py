"""The topics of this broker and their partitions: which exist, which are open, and how one comes and goes.

What exists is known from the catalog before the first connection; a partition is opened, and recovered if it must be,
when it is first touched. Requests for it wait meanwhile. Creation, growth and deletion run on the catalog's thread: the
catalog first says what is going to happen, then the directories follow, then the catalog says that it happened, so that
a crash between two steps is finished or undone at the next start. Settings are in force once the catalog has them; the
delta log of each open partition follows, that of a closed one when it is opened.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from exactlog.core.config.definition import InvalidConfig
from exactlog.core.config.topic_configs import TopicConfig, validate_topic_config
from exactlog.core.model.clock import Clock
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import DamageError, KafkaError
from exactlog.core.model.ids import TopicPartition
from exactlog.core.model.metrics import Registry
from exactlog.core.model.topic_name import collision_key, is_internal
from exactlog.storage.catalog import Catalog, CatalogTopic, TopicState
from exactlog.storage.partition_log import PartitionLog
from exactlog.storage.partition_store import PartitionStore
from exactlog.storage.waiting import until_settled

_logger = logging.getLogger(__name__)

_OPENING_THREADS = 4
_RECOVERY_SECONDS_BOUNDS = [0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 30.0]


class Topic(Struct, frozen=True):
    """A topic that clients can use."""

    name: str
    topic_id: UUID
    partition_count: int
    overrides: Mapping[str, str]
    """The configuration that was set for this topic, as given."""
    config: TopicConfig
    """The configuration in force: what was set, over what the broker defaults to."""

    @property
    def is_internal(self) -> bool:
        """Whether it is a coordinator's topic."""
        return is_internal(self.name)


class UnknownTopicOrPartition(Struct, frozen=True):
    """There is no such topic, or it has no such partition."""


class NotOpenYet(Struct, frozen=True):
    """The partition exists and must be opened first: `TopicRegistry.open`."""


class Stopped(Struct, frozen=True):
    """The partition could not be opened; the reason has been logged and stays until the next start."""

    reason: str


_UNKNOWN = UnknownTopicOrPartition()
_NOT_OPEN_YET = NotOpenYet()


class TopicRegistry:
    """The topics of one broker. Everything but what is said to block belongs to the event loop's thread."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        store: PartitionStore,
        topic_defaults: TopicConfig,
        clock: Clock,
        metrics: Registry,
    ) -> None:
        self._catalog = catalog
        self._store = store
        self._defaults = topic_defaults
        self._clock = clock
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[UUID, Topic] = {}
        self._names_taken: dict[str, str] = {}
        """The name of a topic by what no other name may have in common with it."""
        self._partitions: dict[tuple[str, int], PartitionLog | Stopped] = {}
        """Those that were opened, by topic and index: a `TopicPartition` is such a pair."""
        self._opening: dict[TopicPartition, asyncio.Task[None]] = {}
        self._deleted: list[tuple[int, str]] = []
        """From when on the files of deleted partitions may go, in ms since 1970, and the directories they are in."""
        self._catalog_thread = ThreadPoolExecutor(1, thread_name_prefix="exactlog-catalog")
        self._opening_threads = ThreadPoolExecutor(_OPENING_THREADS, thread_name_prefix="exactlog-open")
        self._changing = asyncio.Lock()
        self._on_deleted: list[Callable[[Topic], None]] = []
        self._before_use: list[Callable[[PartitionLog], Awaitable[None]]] = []
        metrics.gauge("exactlog_topics", "Topics.", read=lambda: len(self._by_name))
        metrics.gauge("exactlog_partitions_open", "Partitions that are open.", read=lambda: len(self.open_partitions()))
        metrics.gauge(
            "exactlog_delta_versions",
            "Delta versions of all open partitions.",
            read=lambda: sum(partition.table.version + 1 for partition in self.open_partitions()),
        )
        metrics.gauge(
            "exactlog_checkpoint_age_seconds_max",
            "The age of the oldest checkpoint of an open partition that has newer delta commits.",
            read=self._oldest_checkpoint_s,
        )
        self._recoveries = metrics.histogram(
            "exactlog_recovery_seconds", "How long it took to open a partition.", bounds=_RECOVERY_SECONDS_BOUNDS
        )

    # --- what exists ----------------------------------------------------------------------------------------

    def load(self) -> None:
        """Reads the catalog, and finishes or undoes what a crash interrupted; blocks, before the first request."""
        self._deleted += [(0, directory) for directory in self._store.prepare()]
        plans = self._catalog.partition_plans()
        for entry in self._catalog.topics():
            if entry.state is TopicState.LIVE:
                topic = self._topic_of(entry)
                self._enter(topic)
                if entry.topic_id in plans:
                    self._undo_growth(topic, plans[entry.topic_id])
            else:
                self._remove_files(entry.name, entry.topic_id, entry.partition_count)

    def close(self) -> None:
        """Ends the threads; what they do is finished first."""
        self._opening_threads.shutdown(wait=True, cancel_futures=True)
        self._catalog_thread.shutdown(wait=True)

    def topics(self) -> list[Topic]:
        """All topics by name."""
        return sorted(self._by_name.values(), key=lambda topic: topic.name)

    def by_name(self, name: str) -> Topic | None:
        """A topic by its name."""
        return self._by_name.get(name)

    def by_id(self, topic_id: UUID) -> Topic | None:
        """A topic by its id."""
        return self._by_id.get(topic_id)

    def check_is_free(self, name: str) -> None:
        """Sees to it that a name is not taken.

        Raises:
            KafkaError: TOPIC_ALREADY_EXISTS, or INVALID_TOPIC_EXCEPTION for a name that collides with another one.
        """
        rival = self._names_taken.get(collision_key(name))
        if rival == name:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if rival is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {rival}")

    # --- partitions -------------------------------------------------------------------------------------------

    def partition(self, name: str, index: int) -> PartitionLog | NotOpenYet | Stopped | UnknownTopicOrPartition:
        """The partition if it is open, or why not."""
        found = self._partitions.get((name, index))
        if found is not None:
            return found
        topic = self._by_name.get(name)
        if topic is None or not 0 <= index < topic.partition_count:
            return _UNKNOWN
        return _NOT_OPEN_YET

    def open_partitions(self) -> list[PartitionLog]:
        """The partitions that are open."""
        return [partition for partition in self._partitions.values() if isinstance(partition, PartitionLog)]

    async def open(self, name: str, index: int) -> None:
        """Opens a partition, once however many ask; afterwards `partition` says how it went."""
        key = TopicPartition(name, index)
        if key in self._partitions:  # since whoever asks has looked: never open the same files twice
            return
        task = self._opening.get(key)
        if task is None:
            task = self._opening[key] = asyncio.ensure_future(self._open(key))
            task.add_done_callback(lambda _: self._opening.pop(key, None))
        await asyncio.shield(task)

    async def _open(self, key: TopicPartition) -> None:
        topic = self._by_name.get(key.topic)
        if topic is None:
            return
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            partition = await loop.run_in_executor(
                self._opening_threads, partial(self._store.open, key, topic.topic_id, topic.config)
            )
            for prepare in self._before_use:
                await prepare(partition)
        except (DamageError, OSError) as error:
            _logger.critical("%s cannot be opened: %s %s", key, error, getattr(error, "hint", ""))
            self._partitions[key] = Stopped(str(error))
            return
        except Exception as error:  # a broken invariant stops this partition, and only this one
            _logger.exception("%s cannot be opened", key)
            self._partitions[key] = Stopped(repr(error))
            return
        self._recoveries.observe(loop.time() - began)
        now = self._by_name.get(key.topic)
        if now is not None and now.topic_id == topic.topic_id:  # else it was deleted meanwhile
            self._partitions[key] = partition
            if now.config is not topic.config:  # it was changed meanwhile
                self._store.apply(partition, now.config)

    def before_use(self, prepare: Callable[[PartitionLog], Awaitable[None]]) -> None:
        """Has `prepare` awaited for every partition that is opened, before anybody else comes by it."""
        self._before_use.append(prepare)

    def _oldest_checkpoint_s(self) -> float:
        now_ms = self._clock.now_ms()
        ages = (partition.committed.checkpoint_age_ms(now_ms=now_ms) for partition in self.open_partitions())
        return max(ages, default=0) / 1_000

    # --- coming and going -------------------------------------------------------------------------------------

    async def create(self, name: str, *, partition_count: int, config: TopicConfig, topic_id: UUID) -> Topic:
        """Creates a topic; durable, and usable by every client, when it returns.

        Raises:
            KafkaError: as `check_is_free`, or KAFKA_STORAGE_ERROR when the disk refuses.
        """
        async with self._changing:
            self.check_is_free(name)
            now_ms = self._clock.now_ms()
            config = self._config_of(name, config.overrides)  # the broker's defaults may have changed
            entry = CatalogTopic(name, topic_id, partition_count, config.overrides, TopicState.CREATING, now_ms)
            try:
                await self._on_catalog_thread(partial(self._create_files, entry, config))
            except OSError as error:
                _logger.error("topic %s could not be created: %s", name, error)
                await self._on_catalog_thread(partial(self._remove_or_leave_files, name, topic_id, partition_count))
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"topic {name} could not be created: {error}"
                ) from error
            topic = Topic(name, topic_id, partition_count, config.overrides, config)
            self._enter(topic)
            return topic

    async def grow(self, topic: Topic, partition_count: int) -> None:
        """Gives a topic more partitions; durable, and usable by every client, when it returns.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION or INVALID_PARTITIONS when somebody else was faster,
                KAFKA_STORAGE_ERROR when the disk refuses; the topic is as it was then.
        """
        async with self._changing:
            now = self._still(topic)
            if partition_count <= now.partition_count:
                raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {now.partition_count} partition(s).")
            try:
                await self._on_catalog_thread(partial(self._grow_files, now, partition_count))
            except OSError as error:
                _logger.error("topic %s could not be given more partitions: %s", topic.name, error)
                await self._on_catalog_thread(partial(self._undo_growth_or_leave_files, now, partition_count))
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"partitions of topic {topic.name} could not be created: {error}"
                ) from error
            self._enter(replace(now, partition_count=partition_count))

    async def alter_config(self, topic: Topic, change: Callable[[Topic], TopicConfig]) -> None:
        """Changes what is set on a topic; it is durable, and acts, when this returns.

        Args:
            change: the configuration the topic is to have, from what it is at that moment; what it raises is raised.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION when it was deleted, KAFKA_STORAGE_ERROR when the disk refuses; the
                topic is as it was then.
        """
        async with self._changing:
            config = change(self._still(topic))
            try:
                await self._on_catalog_thread(partial(self._catalog.set_topic_config, topic.topic_id, config.overrides))
            except OSError as error:
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"topic {topic.name} could not be changed: {error}"
                ) from error
            await self._apply(replace(self._still(topic), overrides=config.overrides, config=config))

    async def set_defaults(self, defaults: TopicConfig) -> None:
        """From now on the broker gives topics other defaults; those that have nothing else set on them follow."""
        async with self._changing:
            self._defaults = defaults
            for topic in self.topics():
                await self._apply(replace(topic, config=self._config_of(topic.name, topic.overrides)))

    async def _apply(self, topic: Topic) -> None:
        """A topic has another configuration; waits until the delta logs of its open partitions say so."""
        self._enter(topic)
        published = []
        for index in range(topic.partition_count):
            found = self._partitions.get(TopicPartition(topic.name, index))
            if isinstance(found, PartitionLog):
                self._store.apply(found, topic.config)
                published.append(until_settled(found.when_published))
        for error in await asyncio.gather(*published):
            if error is not ErrorCode.NONE:  # it acts all the same, and the next opening makes up for it
                _logger.error("a partition of topic %s does not say how it is set: %s", topic.name, error.name)

    def _still(self, topic: Topic) -> Topic:
        """A topic as it is now."""
        now = self._by_id.get(topic.topic_id)
        if now is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return now

    async def delete(self, topic: Topic) -> None:
        """Deletes a topic: nobody sees it any more when this returns; its files go after `file.delete.delay.ms`.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION when somebody else was faster, KAFKA_STORAGE_ERROR when the disk
                refuses; the topic is as it was then.
        """
        async with self._changing:
            topic = self._still(topic)
            deletion = partial(self._catalog.set_topic_state, topic.topic_id, TopicState.DELETING)
            try:
                await self._on_catalog_thread(deletion)
            except OSError as error:
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"topic {topic.name} could not be deleted: {error}"
                ) from error
            del self._by_name[topic.name], self._by_id[topic.topic_id], self._names_taken[collision_key(topic.name)]
            for index in range(topic.partition_count):
                key = TopicPartition(topic.name, index)
                if key in self._opening:
                    await asyncio.wait([self._opening[key]])
                partition = self._partitions.pop(key, None)
                if isinstance(partition, PartitionLog):
                    await partition.retire()
            for callback in self._on_deleted:
                callback(topic)
            await self._on_catalog_thread(
                partial(self._remove_or_leave_files, topic.name, topic.topic_id, topic.partition_count)
            )

    def when_deleted(self, callback: Callable[[Topic], None]) -> None:
        """Calls back whenever a topic has been deleted, before its name is free again."""
        self._on_deleted.append(callback)

    async def _on_catalog_thread(self, work: partial[None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._catalog_thread, work)

    def _create_files(self, entry: CatalogTopic, config: TopicConfig) -> None:
        self._catalog.add_topic(entry)
        for index in range(entry.partition_count):
            self._store.create(
                TopicPartition(entry.name, index), entry.topic_id, config=config, created_ms=entry.created_ms
            )
        self._store.sync_root()
        self._catalog.set_topic_state(entry.topic_id, TopicState.LIVE)

    def _grow_files(self, topic: Topic, partition_count: int) -> None:
        self._catalog.plan_partitions(topic.topic_id, partition_count)
        now_ms = self._clock.now_ms()
        for index in range(topic.partition_count, partition_count):
            self._store.create(
                TopicPartition(topic.name, index), topic.topic_id, config=topic.config, created_ms=now_ms
            )
        self._store.sync_root()
        self._catalog.carry_out_plan(topic.topic_id)

    def _undo_growth_or_leave_files(self, topic: Topic, planned_count: int) -> None:
        try:
            self._undo_growth(topic, planned_count)
        except OSError as error:  # the catalog says what is to become of them
            _logger.error("files of partitions that topic %s did not get stay: %s", topic.name, error)

    def _undo_growth(self, topic: Topic, planned_count: int) -> None:
        self._take_files_away(topic.name, topic.topic_id, range(topic.partition_count, planned_count))
        self._catalog.drop_plan(topic.topic_id)

    def _remove_or_leave_files(self, name: str, topic_id: UUID, partition_count: int) -> None:
        try:
            self._remove_files(name, topic_id, partition_count)
        except OSError as error:  # the catalog says what is to become of them
            _logger.error("files of topic %s stay until the next start: %s", name, error)

    def _remove_files(self, name: str, topic_id: UUID, partition_count: int) -> None:
        planned_count = self._catalog.partition_plans().get(topic_id, 0)
        self._take_files_away(name, topic_id, range(max(partition_count, planned_count)))
        self._catalog.remove_topic(topic_id)

    def _take_files_away(self, name: str, topic_id: UUID, indexes: Iterable[int]) -> None:
        due_ms = self._clock.now_ms() + self._defaults.file_delete_delay_ms
        for index in indexes:
            directory = self._store.remove(TopicPartition(name, index), topic_id)
            if directory is not None:
                self._deleted.append((due_ms, directory))

    def sweep_deleted(self) -> None:
        """Lets the files of deleted partitions go whose time has come, on a thread."""
        now_ms = self._clock.now_ms()
        due = [directory for due_ms, directory in self._deleted if due_ms <= now_ms]
        self._deleted = [(due_ms, directory) for due_ms, directory in self._deleted if due_ms > now_ms]
        for directory in due:
            self._opening_threads.submit(self._remove_deleted, directory)

    def _remove_deleted(self, directory: str) -> None:
        try:
            self._store.remove_deleted(directory)
        except OSError as error:  # it is no longer in anybody's way
            _logger.error("files in %s stay until the next start: %s", directory, error)

    def _enter(self, topic: Topic) -> None:
        self._by_name[topic.name] = topic
        self._by_id[topic.topic_id] = topic
        self._names_taken[collision_key(topic.name)] = topic.name

    def _topic_of(self, entry: CatalogTopic) -> Topic:
        config = self._config_of(entry.name, entry.config)
        return Topic(entry.name, entry.topic_id, entry.partition_count, entry.config, config)

    def _config_of(self, name: str, overrides: Mapping[str, str]) -> TopicConfig:
        config = validate_topic_config(overrides, defaults=self._defaults)
        if isinstance(config, InvalidConfig):
            raise DamageError(f"catalog: topic {name} has a configuration that is not valid: {config}")
        return config
