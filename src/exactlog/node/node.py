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

from exactlog.broker.api_table import ADVERTISED_VERSIONS
from exactlog.broker.dispatch import Dispatcher
from exactlog.broker.fetch_budget import FetchBudget
from exactlog.broker.producer_ids import ProducerIds
from exactlog.broker.services import Address, BrokerServices
from exactlog.broker.topic_registry import TopicRegistry
from exactlog.core.config.broker_configs import BrokerConfig
from exactlog.core.model.clock import Clock
from exactlog.core.model.errors import ExactlogError, InvariantError
from exactlog.core.model.limits import UNCOMMITTED_BYTES_PER_BROKER_MAX
from exactlog.core.model.metrics import Registry
from exactlog.network.limits import NetworkLimits
from exactlog.network.server import TcpServer
from exactlog.node.clock import SystemClock
from exactlog.storage.background import BackgroundWork
from exactlog.storage.catalog import Catalog
from exactlog.storage.directory_lock import DirectoryLock
from exactlog.storage.files_engine import FilesEngine
from exactlog.storage.filesystem import Filesystem, MemoryFilesystem, OsFilesystem
from exactlog.storage.open_files import OpenFiles
from exactlog.storage.partition_store import NodeSettings, PartitionStore
from exactlog.storage.round_committer import RoundCommitter
from exactlog.storage.settings import FlushMode

_logger = logging.getLogger(__name__)

CATALOG_NAME = "catalog.db"
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
    """

    def __init__(
        self, config: BrokerConfig, *, clock: Clock | None = None, filesystem: Filesystem | None = None
    ) -> None:
        self.config = config
        self.metrics_registry = Registry()
        self.host = config.host
        self.port = config.port
        self.cluster_id = ""
        self.stop_reason: str | None = None
        self._clock: Clock = clock or SystemClock()
        self._filesystem: Filesystem = filesystem or (MemoryFilesystem() if config.data_dir is None else OsFilesystem())
        self._lock: DirectoryLock | None = None
        self._parts: _Parts | None = None
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
        except BaseException:
            self._release()
            raise

    async def stop(self) -> None:
        """Answers what is in flight, makes all of it durable, and lets go of the data directory."""
        if self._parts is not None:
            await self._parts.stop()
        self._release()

    def kill(self) -> None:
        """Drops every socket at once, without answers and without a flush, as a crash would."""
        if self._parts is not None:
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
    """The parts of a started node."""

    def __init__(self, node: Node) -> None:
        config, clock, metrics, filesystem = node.config, node._clock, node.metrics_registry, node._filesystem  # noqa: SLF001  one thing in two classes
        loop = asyncio.get_running_loop()
        root = str(config.data_dir) if config.data_dir is not None else "/exactlog"
        flush_mode = FlushMode(config.flush_mode)
        filesystem.make_directories(root)
        self.catalog = Catalog(None if config.data_dir is None else f"{root}/{CATALOG_NAME}")
        leader_epoch = self.catalog.advance_owner_epoch()
        self._executor = ThreadPoolExecutor(2, thread_name_prefix="exactlog-background")
        self.background = BackgroundWork(loop, self._executor, on_sync_failed=node.on_sync_failed)
        open_files = OpenFiles(filesystem, files_max=config.open_files_max)
        self.engine = FilesEngine(filesystem, open_files)
        self.committer = RoundCommitter(
            self.engine,
            flush_mode=flush_mode,
            loop=loop,
            clock=clock,
            metrics=metrics,
            on_sync_failed=node.on_sync_failed,
        )
        store = PartitionStore(
            filesystem,
            root,
            open_files=open_files,
            clock=clock,
            settings=NodeSettings(
                node_id=config.node_id,
                leader_epoch=leader_epoch,
                flush_mode=flush_mode,
                checkpoint_interval=config.delta_checkpoint_interval,
                checkpoint_min_interval_ms=config.delta_checkpoint_min_interval_ms,
            ),
            background=self.background,
            mark_dirty=self.committer.mark_dirty,
        )
        store.prepare()
        self.topics = TopicRegistry(
            catalog=self.catalog, store=store, topic_defaults=config.topic_defaults, clock=clock, metrics=metrics
        )
        self.topics.load()
        self.services = BrokerServices(
            config=config,
            cluster_id=_cluster_id(self.catalog),
            leader_epoch=leader_epoch,
            topics=self.topics,
            producer_ids=ProducerIds(self.catalog, self._executor),
            fetch_budget=FetchBudget(
                config.fetch_bytes_in_flight_max, bytes_in_flight=lambda: self.server.pending_bytes
            ),
            clock=clock,
            metrics=metrics,
            advertised=lambda: Address(*(config.advertised_address or (node.host, node.port))),
            api_versions=ADVERTISED_VERSIONS,
        )
        self.dispatcher = Dispatcher(self.services)
        self.server = TcpServer(
            self.dispatcher,
            NetworkLimits(
                frame_bytes_max=config.socket_request_max_bytes,
                connections_max=config.connections_max,
                idle_ms_max=config.connections_max_idle_ms,
            ),
            metrics,
            clock,
        )
        self._timers: list[asyncio.TimerHandle] = []
        if flush_mode is FlushMode.INTERVAL:
            self._every(config.flush_interval_ms, self.committer.sync)
        self._every(_PRODUCER_EXPIRY_CHECK_MS, self._expire_producers)
        self.committer.bound_uncommitted(
            UNCOMMITTED_BYTES_PER_BROKER_MAX, pause=self.server.pause_reading, resume=self.server.resume_reading
        )

    def _every(self, interval_ms: int, work: Callable[[], None]) -> None:
        """Calls `work` again and again until the node ends."""
        loop = asyncio.get_running_loop()
        index = len(self._timers)

        def go_off() -> None:
            self._timers[index] = loop.call_later(interval_ms / 1000, go_off)
            work()

        self._timers.append(loop.call_later(interval_ms / 1000, go_off))

    def _expire_producers(self) -> None:
        now_ms = self.services.clock.now_ms()
        for partition in self.topics.open_partitions():
            partition.expire_producers(now_ms=now_ms, expiration_ms=self.services.config.producer_id_expiration_ms)

    async def stop(self) -> None:
        """Ends everything in order."""
        await self.server.stop(drain_ms=DRAIN_MS)
        await self.dispatcher.stop()
        await self.committer.flush()
        await self.background.wait()
        self._close()

    def abort(self) -> None:
        """Ends everything at once."""
        self.server.abort()
        self._close()

    def _close(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self.committer.stop()
        self.engine.close()
        self.topics.close()
        self._executor.shutdown(wait=True, cancel_futures=True)
        self.catalog.close()


def _cluster_id(catalog: Catalog) -> str:
    """The id of the cluster: given at the first start, the same ever after."""
    found = catalog.get("cluster_id")
    if found is None:
        found = uuid.uuid4().hex[:22]
        catalog.put("cluster_id", found)
    return found
