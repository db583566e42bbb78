"""The configuration of the broker while it runs: what it was started with, and what clients have set over that."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from functools import partial

from msgspec.structs import replace

from exactlog.core.config.broker_configs import BrokerConfig, LayeredBrokerConfig
from exactlog.core.config.definition import InvalidConfig
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import DamageError, KafkaError
from exactlog.storage.catalog import BrokerScope, Catalog


class RunningConfig:
    """What the broker runs with at this moment. It belongs to the event loop.

    Attributes:
        layers: where that comes from.
        current: what it comes to.

    Raises:
        DamageError: the catalog has settings of the broker that are not valid.
    """

    def __init__(self, started_with: BrokerConfig, catalog: Catalog, executor: Executor) -> None:
        self._catalog = catalog
        self._executor = executor
        self._changing = asyncio.Lock()
        self._on_changed: list[Callable[[BrokerConfig], Awaitable[None]]] = []
        self.layers = LayeredBrokerConfig(
            started_with=started_with,
            cluster=catalog.broker_config(BrokerScope.CLUSTER),
            node=catalog.broker_config(BrokerScope.NODE),
        )
        current = self.layers.in_force()
        if isinstance(current, InvalidConfig):
            raise DamageError(f"catalog: what was set on the broker is not valid: {current}")
        self.current = current

    def when_changed(self, callback: Callable[[BrokerConfig], Awaitable[None]]) -> None:
        """Awaits this with what the broker runs with, each time that has changed, before the change is answered."""
        self._on_changed.append(callback)

    def check(self, scope: BrokerScope, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> None:
        """Sees to it that a change can be made, and does not make it; raises as `alter`."""
        self._changed(scope, change)

    async def alter(self, scope: BrokerScope, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> None:
        """Changes what is set on brokers; it is durable, and acts, when this returns.

        Args:
            change: what is to be set, from what is set at that moment; what it raises is raised.

        Raises:
            KafkaError: INVALID_REQUEST for values that cannot be, KAFKA_STORAGE_ERROR when the disk refuses; all is as
                it was then.
        """
        async with self._changing:
            layers, current, values = self._changed(scope, change)
            write = partial(self._catalog.set_broker_config, scope, values)
            try:
                await asyncio.get_running_loop().run_in_executor(self._executor, write)
            except OSError as error:
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"the configuration could not be changed: {error}"
                ) from error
            self.layers, self.current = layers, current
            for callback in self._on_changed:
                await callback(current)

    def _changed(
        self, scope: BrokerScope, change: Callable[[Mapping[str, str]], Mapping[str, str]]
    ) -> tuple[LayeredBrokerConfig, BrokerConfig, Mapping[str, str]]:
        values = change(self.layers.cluster if scope is BrokerScope.CLUSTER else self.layers.node)
        if scope is BrokerScope.CLUSTER:
            layers = replace(self.layers, cluster=values)
        else:
            layers = replace(self.layers, node=values)
        current = layers.in_force()
        if isinstance(current, InvalidConfig):
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(current))  # sic: of a topic's it would be INVALID_CONFIG
        return layers, current, values
