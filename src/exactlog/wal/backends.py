"""A backend for a URL: the scheme names it."""

from pathlib import Path

from exactlog.client.adapters import ClientUrlError, connect
from exactlog.client.ports import ClientSettings
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
    scheme, separator, rest = url.partition(":")
    match scheme:
        case "memory" if separator and not rest:
            return MemoryBackend()
        case "embedded" if rest:
            return await EmbeddedBackend.start(Path(rest), settings)
        case "kafka":
            return ClientBackend(
                connect(url, settings),
                replication_factor=replication_factor,
                transaction_timeout_ms=transaction_timeout_ms(settings),
            )
        case _:
            raise ClientUrlError(
                f"{url}: not where a write-ahead log can be",
                hint="write kafka://HOST:PORT, embedded:DIRECTORY or memory:",
            )
