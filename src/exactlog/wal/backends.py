"""A backend for a URL: the scheme names it."""

from pathlib import Path

from exactlog.client.adapters import connect
from exactlog.client.ports import ClientSettings
from exactlog.node.log_url import AtBrokers, InDirectory, InMemory, log_place
from exactlog.wal.client_backend import ClientBackend, transaction_timeout_ms
from exactlog.wal.embedded_backend import EmbeddedBackend
from exactlog.wal.memory_backend import MemoryBackend
from exactlog.wal.ports import WalBackend


async def open_backend(
    url: str, settings: ClientSettings | None = None, *, replication_factor: int | None = None
) -> WalBackend:
    """The backend of a URL: `kafka://HOST:PORT`, `embedded:DIRECTORY` or `memory:`.

    Args:
        url: of brokers of any make, of a directory for a broker of one's own, or of memory.
        settings: of the client.
        replication_factor: of topics that are created; None: the cluster's default.

    Raises:
        ClientUrlError: the URL is malformed.
        DirectoryLockedError: another process has the directory open.
    """
    match log_place(url, what="a write-ahead log"):
        case InMemory():
            return MemoryBackend()
        case InDirectory(directory):
            return await EmbeddedBackend.start(Path(directory), settings)
        case AtBrokers(at):
            return ClientBackend(
                connect(at, settings),
                replication_factor=replication_factor,
                transaction_timeout_ms=transaction_timeout_ms(settings),
            )
