"""The backends that a region can have, for the suites that all of them pass."""

import contextlib
import uuid

from exactlog.client import connect
from exactlog.wal import MemoryBackend
from exactlog.wal.client_backend import ClientBackend
from exactlog.wal.embedded_backend import EmbeddedBackend

BACKENDS = ("memory", "embedded", "wire")


@contextlib.asynccontextmanager
async def backend_of(kind, tmp_path, bootstrap_servers):
    """A backend of that kind; that over the wire is of a broker in another thread."""
    match kind:
        case "memory":
            backend = MemoryBackend()
        case "embedded":
            backend = await EmbeddedBackend.start(tmp_path / "wal")
        case "wire":
            backend = ClientBackend(connect(f"kafka://{bootstrap_servers()}"))
    async with backend:
        yield backend


def new_namespace():
    """A namespace that nobody has used."""
    return f"ns{uuid.uuid4().hex[:12]}"
