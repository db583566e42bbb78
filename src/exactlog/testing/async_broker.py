"""The asynchronous twin of `Broker`."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial, wraps
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from exactlog.core.config.broker_configs import BrokerConfig
from exactlog.core.config.definition import ConfigValue
from exactlog.core.model.clock import Clock
from exactlog.testing.broker import Broker, HostedNode
from exactlog.testing.clock import MovableClock
from exactlog.testing.faults import Faults

P = ParamSpec("P")
Result = TypeVar("Result")


def _awaited(
    method: Callable[Concatenate[Broker, P], Result],
) -> Callable[Concatenate["AsyncBroker", P], Coroutine[Any, Any, Result]]:
    """A method of `Broker` that is awaited in place of waited for."""

    @wraps(method)
    async def call(self: "AsyncBroker", /, *args: P.args, **kwargs: P.kwargs) -> Result:
        return await self._in_a_thread(partial(method, self._broker, *args, **kwargs))

    return call


class AsyncBroker:
    """A `Broker` whose methods are awaited: `async with AsyncBroker() as broker: ...`. Everything else is as there.

    It too runs on an event loop in a thread of its own, so a test that blocks its own loop, as with a synchronous
    client, does not block the broker. What is awaited is finished even if whoever awaits it is cancelled.

    Attributes:
        clock: the broker's clock.
        faults: what is to go wrong. Neither is awaited: both are done in a moment.
    """

    def __init__(
        self,
        data_dir: str | Path | None = None,
        port: int = 0,
        config: Mapping[str, ConfigValue] | None = None,
        *,
        make_node: Callable[[BrokerConfig, Clock], HostedNode] | None = None,
    ) -> None:
        self._broker = Broker(data_dir, port, config, make_node=make_node)
        self.clock: MovableClock = self._broker.clock
        self.faults: Faults = self._broker.faults
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except asyncio.CancelledError:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    start = _awaited(Broker.start)
    stop = _awaited(Broker.stop)
    kill = _awaited(Broker.kill)
    restart = _awaited(Broker.restart)
    create_topic = _awaited(Broker.create_topic)
    metrics = _awaited(Broker.metrics)
    describe = _awaited(Broker.describe)

    @property
    def bootstrap_servers(self) -> str:
        """`HOST:PORT`, as Kafka clients want it; it stays the same over `kill` and `restart`."""
        return self._broker.bootstrap_servers

    @property
    def port(self) -> int:
        """The port the broker listens at; 0 before its first start if any free one was asked for."""
        return self._broker.port

    @property
    def data_dir(self) -> Path | None:
        """Where records are kept; None: nowhere (`in.memory`), or not started yet."""
        return self._broker.data_dir

    async def _in_a_thread(self, work: Callable[[], Result]) -> Result:
        async with self._turn:
            working = asyncio.ensure_future(asyncio.to_thread(work))
            try:
                return await asyncio.shield(working)
            except asyncio.CancelledError:
                while not working.done():  # however often it is cancelled: the next call must not begin before
                    with suppress(asyncio.CancelledError):
                        await asyncio.wait([working])
                working.exception()  # nobody is left to be told
                raise
