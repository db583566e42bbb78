"""A broker in a thread of the test process: real sockets, real files, gone at the end."""

import tempfile
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from msgspec.structs import replace

from exactlog.broker.services import BrokerServices
from exactlog.client.adapters import connect
from exactlog.core.config.broker_configs import BrokerConfig
from exactlog.core.config.definition import ConfigValue, format_config_value
from exactlog.core.model.clock import Clock
from exactlog.core.model.errors import ExactlogError
from exactlog.node.clock import SystemClock
from exactlog.node.config import load_config
from exactlog.node.node import Node
from exactlog.testing.broker_description import describe
from exactlog.testing.clock import MovableClock
from exactlog.testing.faults import Faults
from exactlog.testing.loop_thread import LoopDiedError, LoopThread, StandsStillError

Result = TypeVar("Result")

_STOP_TIMEOUT_S = 60.0
"""The network gives its clients five seconds; the rest is work of the disk."""
_KILL_TIMEOUT_S = 5.0


class HostedNode(Protocol):
    """What the test broker needs of a node."""

    @property
    def port(self) -> int: ...
    @property
    def bootstrap_servers(self) -> str: ...

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    def kill(self) -> None: ...
    def look_at_clock(self) -> None: ...
    def metrics(self) -> dict[str, float]: ...
    @property
    def services(self) -> BrokerServices: ...
    @property
    def stop_reason(self) -> str | None: ...


class BrokerNotRunningError(ExactlogError):
    """The broker was not started, or was stopped or killed."""

    code = "broker-not-running"


class Broker:
    """A broker for a test, as a context manager: `with Broker() as broker: ...`.

    It runs on an event loop in a thread of its own and answers at `bootstrap_servers`, an address of this machine.
    Any Kafka client of any language may connect. The methods here are to be called from one thread at a time, and wait:
    `AsyncBroker` is for who must not wait.

    Args:
        data_dir: where records are kept; None: in a temporary directory, which outlives `kill` and `restart` and is
            removed at the end.
        port: 0: any free one, kept over `restart`.
        config: configuration keys and values, as `{"flush.mode": "none", "segment.bytes": 1024}`. The environment
            is not looked at.

    Raises:
        ConfigError: a key is unknown or a value is not valid.

    Attributes:
        clock: the broker's clock; `clock.advance_ms(60_000)` lets a minute pass.
        faults: what is to go wrong; `faults.fail("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=1)`.
    """

    def __init__(
        self,
        data_dir: str | Path | None = None,
        port: int = 0,
        config: Mapping[str, ConfigValue] | None = None,
        *,
        make_node: Callable[[BrokerConfig, Clock], HostedNode] | None = None,
    ) -> None:
        overrides = [(name, format_config_value(value)) for name, value in (config or {}).items()]
        self._config = load_config(overrides=[("port", str(port)), *overrides], overrides_from="Broker(config=...)")
        self._given_data_dir = None if data_dir is None else Path(data_dir)
        self._make_node = make_node or self._make_whole_node
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._thread: LoopThread | None = None
        self._node: HostedNode | None = None
        self._port = port
        self._bootstrap_servers: str | None = None
        self.clock = MovableClock(SystemClock(), look=self._look_at_clock)
        self.faults = Faults(lambda work: self._ask(lambda node: work(node.services)))

    # --- life -------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the broker; it answers when this returns. What keeps it from starting is raised."""
        if self._thread is not None:
            return
        config = replace(self._config, data_dir=self._data_dir(), port=self._port)
        self._thread = LoopThread("exactlog-broker", on_death=self._kill_node)
        try:
            self._node = self._thread.call(lambda: self._start_node(config))
        except BaseException:
            self._leave_thread()
            self._remove_temporary()
            raise
        self._port, self._bootstrap_servers = self._node.port, self._node.bootstrap_servers

    def stop(self) -> None:
        """Let the broker finish what it has, stop it, and remove a temporary data directory.

        Raises:
            StandsStillError: it was not done after a minute, and was killed; the message says where it stood.
        """
        try:
            self._stop_node()
        finally:
            self._leave_thread()
            self._remove_temporary()

    def kill(self) -> None:
        """Drop the broker as a crash would: connections break, nothing is answered, nothing is flushed.

        What was acknowledged is on disk as far as the flush mode promises; `restart` recovers it.
        """
        self._call(self._kill_in_loop)
        self._leave_thread()

    def restart(self) -> None:
        """Start the broker again at the same port and on the same directory, after stopping it if it still runs."""
        try:
            self._stop_node()
        finally:
            self._leave_thread()
        self.start()

    # --- use --------------------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """`HOST:PORT`, as Kafka clients want it; it stays the same over `kill` and `restart`."""
        if self._bootstrap_servers is None:
            raise _not_running()
        return self._bootstrap_servers

    @property
    def port(self) -> int:
        """The port the broker listens at; 0 before its first start if any free one was asked for."""
        return self._port

    @property
    def data_dir(self) -> Path | None:
        """Where records are kept; None: nowhere (`in.memory`), or not started yet."""
        if self._config.data_dir is None:
            return None
        if self._given_data_dir is not None:
            return self._given_data_dir
        return None if self._temporary is None else Path(self._temporary.name)

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, ConfigValue] | None = None) -> None:
        """Create a topic; any client can use it when this returns.

        Raises:
            KafkaError: as CreateTopics answers: TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_CONFIG, ...
        """
        configs = {key: format_config_value(value) for key, value in (config or {}).items()}

        async def create() -> None:
            async with connect(f"kafka://{self.bootstrap_servers}") as client:
                await client.create_topic(name, partition_count=partitions, configs=configs)

        self._call(create)

    def metrics(self) -> dict[str, float]:
        """The broker's metrics by the names Prometheus would show: `name{label="value"}`."""
        return self._ask(lambda node: node.metrics())

    def describe(self) -> str:
        """The topics and groups of the broker as a few lines of text, for who reads why a test failed."""

        async def look() -> str:
            return await describe(self._running_node().services)

        return self._call(look)

    # --- inside -----------------------------------------------------------------------------------------------

    def _stop_node(self) -> None:
        if self._node is None or self._thread is None:
            return
        try:
            self._thread.call(self._node.stop, timeout_s=_STOP_TIMEOUT_S)
        except LoopDiedError:
            pass  # then nothing is left to stop
        except StandsStillError:
            with suppress(StandsStillError):  # not even for that has its loop an ear
                self._thread.call(self._kill_in_loop, timeout_s=_KILL_TIMEOUT_S)
            raise

    def _call(self, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        if self._thread is None:
            raise _not_running()
        return self._thread.call(work)

    def _ask(self, question: Callable[[HostedNode], Result]) -> Result:
        async def ask() -> Result:
            return question(self._running_node())

        return self._call(ask)

    def _look_at_clock(self) -> None:
        with suppress(BrokerNotRunningError, LoopDiedError):  # then nobody waits
            self._ask(lambda node: node.look_at_clock())

    async def _start_node(self, config: BrokerConfig) -> HostedNode:
        node = self._make_node(config, self.clock)
        self._node = node
        await node.start()
        return node

    def _running_node(self) -> HostedNode:
        if self._node is None:
            raise _not_running()
        if self._node.stop_reason is not None:
            raise BrokerNotRunningError(
                f"the broker has stopped by itself: {self._node.stop_reason}", hint="restart() starts it again"
            )
        return self._node

    def _kill_node(self) -> None:
        if self._node is not None:
            self._node.kill()

    async def _kill_in_loop(self) -> None:
        self._kill_node()

    def _make_whole_node(self, config: BrokerConfig, clock: Clock) -> HostedNode:
        return Node(config, clock=clock, faults=self.faults)

    def _leave_thread(self) -> None:
        if self._thread is not None:
            self._thread.close()
        self._thread = self._node = None

    def _data_dir(self) -> Path | None:
        if self._config.data_dir is not None and self._given_data_dir is None and self._temporary is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="exactlog-", ignore_cleanup_errors=True)
        return self.data_dir

    def _remove_temporary(self) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None


def _not_running() -> BrokerNotRunningError:
    return BrokerNotRunningError("the broker is not running", hint="start() or restart() it first.")
