"""A broker of one's own in the same process: topics in a directory, without anything else to run."""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Self

from exactlog.client.adapters import connect
from exactlog.client.ports import ClientSettings
from exactlog.node.log_url import InDirectory, start_own_broker
from exactlog.wal.client_backend import ClientBackend, transaction_timeout_ms

if TYPE_CHECKING:
    from exactlog.node.node import Node


class EmbeddedBackend(ClientBackend):
    """The `WalBackend` port over a broker that runs on this event loop, for as long as the backend is open."""

    def __init__(self, node: "Node", settings: ClientSettings | None) -> None:
        client = connect(f"kafka://{node.bootstrap_servers}", settings)
        super().__init__(client, transaction_timeout_ms=transaction_timeout_ms(settings))
        self._node = node

    @classmethod
    async def start(cls, directory: Path, settings: ClientSettings | None = None) -> Self:
        """Start the broker in a directory, which is made if it is not there.

        Raises:
            DirectoryLockedError: another process has it open.
        """
        return cls(
            await start_own_broker(InDirectory(str(directory)), said_by="the URL of the write-ahead log"), settings
        )

    @property
    def bootstrap_servers(self) -> str:
        """Where other clients of this machine find the broker."""
        return self._node.bootstrap_servers

    async def close(self) -> None:
        """See `WalBackend`."""
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self._node.stop)
            await super().close()
