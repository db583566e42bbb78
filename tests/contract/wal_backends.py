"""The backends that a region can have, for the suites that all of them pass."""

import contextlib
import uuid

import pytest

from exactlog.client import connect
from exactlog.wal import MemoryBackend
from exactlog.wal.client_backend import ClientBackend
from exactlog.wal.embedded_backend import EmbeddedBackend

WIRE_BACKENDS = ("wire", pytest.param("apache_kafka", marks=pytest.mark.peer))
BACKENDS = ("memory", "embedded", *WIRE_BACKENDS)
BROKERS = {"wire": "exactlog_broker", "apache_kafka": "apache_kafka"}  # the fixtures that have them


@contextlib.asynccontextmanager
async def backend_of(kind, tmp_path, request):
    """A backend of that kind; those over the wire are of a broker in another thread, or of an Apache Kafka."""
    match kind:
        case "memory":
            backend = MemoryBackend()
        case "embedded":
            backend = await EmbeddedBackend.start(tmp_path / "wal")
        case _:
            broker = request.getfixturevalue(BROKERS[kind])
            backend = ClientBackend(connect(f"kafka://{broker.bootstrap_servers}"))
    async with backend:
        yield backend


def new_namespace():
    """A namespace that nobody has used."""
    return f"ns{uuid.uuid4().hex[:12]}"
