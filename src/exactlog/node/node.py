"""A whole broker: the only place where its parts are built and put together.

Start order: lock, catalog, owner epoch, topics, socket; when the socket opens, everything behind it is ready. Stop
order: the reverse, and nothing that was answered is left undone. `kill` is what a crash does: sockets drop, nothing is
flushed, nobody is told.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from exactlog.broker.answer_faults import AnswerFaults
from exactlog.broker.api_table import ADVERTISED_VERSIONS
from exactlog.broker.coordinator.groups import GroupCoordinator
from exactlog.broker.coordinator.transaction_export import TransactionExport
from exactlog.broker.coordinator.transactions import TransactionCoordinator
from exactlog.broker.dispatch import Dispatcher
from exactlog.broker.fetch_budget import FetchBudget
from exactlog.broker.fetch_sessions import Sessions
from exactlog.broker.producer_ids import ProducerIds
from exactlog.broker.running_config import RunningConfig
from exactlog.broker.services import Address, BrokerServices, random_topic_id
from exactlog.broker.timers import Timers
from exactlog.broker.topic_registry import TopicRegistry
from exactlog.broker.upkeep import Upkeep
from exactlog.core.config.broker_configs import BrokerConfig
from exactlog.core.model.authorization import AllowAll, Authorizer
from exactlog.core.model.clock import Clock
from exactlog.core.model.errors import ConfigError, ExactlogError, InvariantError
from exactlog.core.model.limits import UNCOMMITTED_BYTES_PER_BROKER_MAX
from exactlog.core.model.metrics import Registry
from exactlog.network.limits import NetworkLimits
from exactlog.network.server import TcpServer
from exactlog.node.clock import SystemClock
from exactlog.node.durability import Durability
from exactlog.storage.background import BackgroundWork
from exactlog.storage.boot_id import note_boot
from exactlog.storage.catalog import CATALOG_NAME, Catalog
from exactlog.storage.directory_lock import DirectoryLock
from exactlog.storage.filesystem import Filesystem, MemoryFilesystem, OsFilesystem
from exactlog.storage.open_files import OpenFiles
from exactlog.storage.partition_store import NodeSettings, PartitionStore
from exactlog.storage.round_committer import RoundCommitter
from exactlog.storage.settings import FlushMode

_logger = logging.getLogger(__name__)

_ROOT_IN_MEMORY = "/exactlog"
_BACKGROUND_THREADS = 2
_SWEEP_MS = 500  # for files whose time has come: nothing to do is nearly always the answer
_PRODUCER_EXPIRY_CHECK_MS = 600_000  # as Apache Kafka: the expiration itself is a day
DRAIN_MS = 5_000
"""How long a stop waits for requests in flight."""


class NodeStoppedError(ExactlogError):
    """The node stopped by itself: what is on disk can no longer be told from what was promised."""

    code = "node-stopped"


class Node:
    """One broker, built from its configuration; it belongs to the event loop on which `start` runs, and starts once.

    Args:
        config: `data_dir` None keeps everything in memory.
        clock: where time comes from; the system's by default.
        filesystem: where files go; the operating system's (or memory) by default.
        authorizer: who may do what; by default everybody everything.
        faults: answers that are to go wrong.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock | None = None,
        filesystem: Filesystem | None = None,
        authorizer: Authorizer | None = None,
        faults: AnswerFaults | None = None,
    ) -> None:
        self.config = config
        self.authorizer: Authorizer = authorizer or AllowAll()
        self.faults = faults
        self.metrics_registry = Registry()
        self.host = config.host
        self.port = config.port
        self.cluster_id = ""
        self.stop_reason: str | None = None
        self.clock: Clock = clock or SystemClock()
        self.filesystem: Filesystem = filesystem or (MemoryFilesystem() if config.data_dir is None else OsFilesystem())
        self._lock: DirectoryLock | None = None
        self._parts: _Parts | None = None
        self._is_killed = False
        self._stopped = asyncio.Event()

    @property
    def node_id(self) -> int:
        """The id of this broker in its cluster."""
        return self.config.node_id

    @property
    def bootstrap_servers(self) -> str:
        """What a client on this machine is configured with."""
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::") else self.host  # noqa: S104  compared, not bound
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    async def start(self) -> None:
        """Opens the data directory and the socket; when it returns, clients are served.

        Raises:
            DirectoryLockedError: another process owns the data directory.
            ConfigError: the data directory is that of another node.
            DamageError: the catalog cannot be read.
            ListenError: the address cannot be listened on.
        """
        if self._parts is not None or self._stopped.is_set():
            raise InvariantError("a node is started once")
        if self.config.data_dir is not None:
            self._lock = DirectoryLock(str(self.config.data_dir))
        try:
            self._parts = _Parts(self)
            self.cluster_id = self._parts.services.cluster_id
            self.host, self.port = await self._parts.server.start(self.config.host, self.config.port)
            self._parts.start_coordinating()
        except BaseException:
            self.kill()
            raise

    async def stop(self) -> None:
        """Answers what is in flight, makes all of it durable, and lets go of the data directory."""
        if self._parts is not None and not self._is_killed:
            await self._parts.stop()
        self._release()

    def kill(self) -> None:
        """Drops every socket at once, without answers and without a flush, as a crash would."""
        if self._parts is not None and not self._is_killed:
            self._is_killed = True
            self._parts.abort()
        self._release()

    async def wait_stopped(self) -> None:
        """Waits until the node has stopped, whoever stopped it.

        Raises:
            NodeStoppedError: it stopped by itself; the message says why.
        """
        await self._stopped.wait()
        if self.stop_reason is not None:
            raise NodeStoppedError(
                self.stop_reason, hint="check the disk, then start again: recovery finds what is good"
            )

    @property
    def services(self) -> BrokerServices:
        """The parts of the broker, while it runs."""
        if self._parts is None:
            raise InvariantError("a node has no parts before it has started")
        return self._parts.services

    def look_at_clock(self) -> None:
        """Does what is due: to be called before and after the clock is moved, so that what was done is dated before."""
        if self._parts is not None:
            self._parts.timers.look()
            self._parts.server.sweep()

    def metrics(self) -> dict[str, float]:
        """All metrics, by their Prometheus names."""
        return self.metrics_registry.snapshot()

    def on_sync_failed(self, reason: str) -> None:
        """A sync failed: nobody gets an answer any more, and the node stops (a failed fsync is never tried again)."""
        if self.stop_reason is None:
            self.stop_reason = f"a sync failed, so nothing can be promised any more: {reason}"
            _logger.critical("%s", self.stop_reason)
            self.kill()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None
        self._stopped.set()


class _Parts:
    """The parts of a started node, from the disk up to the socket."""

    def __init__(self, node: Node) -> None:
        config = node.config
        self._node = node
        self._loop = asyncio.get_running_loop()
        self.timers = Timers(self._loop, node.clock)
        self._root = str(config.data_dir) if config.data_dir is not None else _ROOT_IN_MEMORY
        self._flush_mode = FlushMode(config.flush_mode)
        self._executor = ThreadPoolExecutor(_BACKGROUND_THREADS, thread_name_prefix="exactlog-background")
        node.filesystem.make_directories(self._root)
        self.catalog = _open_catalog(config)
        leader_epoch = self.catalog.advance_owner_epoch()
        self.running = RunningConfig(config, self.catalog, self._executor)
        self.background = BackgroundWork(self._loop, self._executor, on_sync_failed=node.on_sync_failed)
        self._open_files = OpenFiles(node.filesystem, files_max=config.open_files_max)
        self.durability = self._make_durability()
        self.engine = self.durability.engine
        self.committer = self._make_committer()
        self.topics = self._load_topics(leader_epoch)
        self.running.when_changed(lambda config: self.topics.set_defaults(config.topic_defaults))
        self.groups = GroupCoordinator(
            config=config,
            topics=self.topics,
            rounds=self.committer,
            timers=self.timers,
            clock=node.clock,
            metrics=node.metrics_registry,
            new_topic_id=random_topic_id,
        )
        self.producer_ids = ProducerIds(self.catalog, self._executor)
        self.transactions = TransactionCoordinator(
            config=config,
            leader_epoch=leader_epoch,
            topics=self.topics,
            groups=self.groups,
            rounds=self.committer,
            timers=self.timers,
            clock=node.clock,
            metrics=node.metrics_registry,
            producer_ids=self.producer_ids,
            new_topic_id=random_topic_id,
        )
        self.export = self._make_export()
        self.services = self._assemble_services(leader_epoch)
        self.dispatcher = Dispatcher(self.services, node.faults)
        self.server = TcpServer(self.dispatcher, _network_limits(config), node.metrics_registry, node.clock)
        self.committer.bound_uncommitted(
            UNCOMMITTED_BYTES_PER_BROKER_MAX, pause=self.server.pause_reading, resume=self.server.resume_reading
        )
        self.upkeep = Upkeep(self.topics, node.clock)
        if self._flush_mode is FlushMode.INTERVAL:
            self._every(config.flush_interval_ms, self.committer.sync)
        self._every(_PRODUCER_EXPIRY_CHECK_MS, self._expire_producers)
        self._every(config.retention_check_interval_ms, self.upkeep.start_retention)
        self._every(_SWEEP_MS, self.upkeep.sweep)

    def _make_durability(self) -> Durability:
        """How rounds become durable: through a journal where that is wanted, and there is something to sync."""
        config = self._node.config
        is_synced = config.data_dir is not None and self._flush_mode is FlushMode.COMMIT
        is_journaled = is_synced and config.commit_engine == "journal"
        return Durability(self._node.filesystem, self._root, self._open_files, is_journaled=is_journaled)

    def _make_committer(self) -> RoundCommitter:
        node = self._node
        return RoundCommitter(
            self.engine,
            flush_mode=self._flush_mode,
            publishes_in_round=self._flush_mode is FlushMode.COMMIT and not self.durability.is_journaled,
            loop=self._loop,
            clock=node.clock,
            metrics=node.metrics_registry,
            on_sync_failed=node.on_sync_failed,
        )

    def _make_export(self) -> TransactionExport | None:
        """The readable copy of the transactions; none where everything is in memory."""
        if self._node.config.data_dir is None:
            return None
        return TransactionExport(
            self._node.filesystem,
            self._root,
            executor=self._executor,
            timers=self.timers,
            clock=self._node.clock,
            read=self.transactions.descriptions,
            mark=self.transactions.committed_offsets,
        )

    def start_coordinating(self) -> None:
        """The socket is open: what was under way when the node last ended goes on."""
        self.durability.start(
            self.topics,
            self.committer,
            executor=self._executor,
            timers=self.timers,
            clock=self._node.clock,
            on_sync_failed=self._node.on_sync_failed,
        )
        self.transactions.start()
        if self.export is not None:
            self.export.start()

    def _load_topics(self, leader_epoch: int) -> TopicRegistry:
        config = self._node.config
        store = PartitionStore(
            self._node.filesystem,
            self._root,
            open_files=self._open_files,
            clock=self._node.clock,
            settings=NodeSettings(
                node_id=config.node_id,
                leader_epoch=leader_epoch,
                flush_mode=self._flush_mode,
                checkpoint_interval=config.delta_checkpoint_interval,
                checkpoint_min_interval_ms=config.delta_checkpoint_min_interval_ms,
                versions_keep=config.delta_versions_keep,
                is_journaled=self.durability.is_journaled,
                boot_epoch=note_boot(self.catalog, leader_epoch),
            ),
            background=self.background,
            mark_dirty=self.committer.mark_dirty,
            metrics=self._node.metrics_registry,
            journal=self.durability.redone,
        )
        topics = TopicRegistry(
            catalog=self.catalog,
            store=store,
            topic_defaults=self.running.current.topic_defaults,
            clock=self._node.clock,
            metrics=self._node.metrics_registry,
        )
        topics.load()
        return topics

    def _assemble_services(self, leader_epoch: int) -> BrokerServices:
        node, config = self._node, self._node.config
        return BrokerServices(
            running=self.running,
            cluster_id=_cluster_id(self.catalog),
            leader_epoch=leader_epoch,
            topics=self.topics,
            groups=self.groups,
            transactions=self.transactions,
            rounds=self.committer,
            producer_ids=self.producer_ids,
            fetch_budget=FetchBudget(
                config.fetch_bytes_in_flight_max, bytes_in_flight=lambda: self.server.pending_bytes
            ),
            fetch_sessions=Sessions(
                self.topics, node.clock, node.metrics_registry, sessions_max=config.fetch_session_slots_max
            ),
            clock=node.clock,
            timers=self.timers,
            metrics=node.metrics_registry,
            advertised=lambda: Address(*(config.advertised_address or (node.host, node.port))),
            api_versions=ADVERTISED_VERSIONS,
            authorizer=node.authorizer,
        )

    def _every(self, interval_ms: int, work: Callable[[], None]) -> None:
        """Calls `work` again and again until the node ends."""

        def go_off() -> None:
            self.timers.set(work, interval_ms, go_off)
            work()

        self.timers.set(work, interval_ms, go_off)

    def _expire_producers(self) -> None:
        now_ms = self.services.clock.now_ms()
        for partition in self.topics.open_partitions():
            partition.expire_producers(now_ms=now_ms, expiration_ms=self.services.config.producer_id_expiration_ms)

    async def stop(self) -> None:
        """Ends everything in order."""
        if self._node.faults is not None:
            self._node.faults.let_go()  # the server waits for answers that are late
        self.groups.resign()
        self.transactions.resign()
        await self.server.stop(drain_ms=DRAIN_MS)
        await self.dispatcher.stop()
        await self.committer.flush()
        if self.export is not None:
            await self.export.close()
        await self.background.wait()
        await self.durability.finish()
        self._close()

    def abort(self) -> None:
        """Ends everything at once."""
        self.server.abort()
        self._close()

    def _close(self) -> None:
        self.timers.stop()
        self.upkeep.stop()
        self.committer.stop()
        self.durability.close()
        self.topics.close()
        self._executor.shutdown(wait=True, cancel_futures=True)
        self.catalog.close()


def _open_catalog(config: BrokerConfig) -> Catalog:
    """The catalog of the data directory, which keeps the node id it was created with: origins bear it.

    Raises:
        ConfigError: it is that of another node.
    """
    catalog = Catalog(None if config.data_dir is None else f"{config.data_dir}/{CATALOG_NAME}")
    found = catalog.get("node_id")
    if found is None:
        catalog.put("node_id", str(config.node_id))
    elif found != str(config.node_id):
        catalog.close()
        raise ConfigError(
            f"data directory {config.data_dir} is that of node {found}, and node.id is {config.node_id}",
            hint=f"Set node.id to {found}, or use another data directory.",
        )
    return catalog


def _network_limits(config: BrokerConfig) -> NetworkLimits:
    return NetworkLimits(
        frame_bytes_max=config.socket_request_max_bytes,
        connections_max=config.connections_max,
        idle_ms_max=config.connections_max_idle_ms,
    )


def _cluster_id(catalog: Catalog) -> str:
    """The id of the cluster: given at the first start, the same ever after."""
    found = catalog.get("cluster_id")
    if found is None:
        found = uuid.uuid4().hex[:22]
        catalog.put("cluster_id", found)
    return found
