"""Where an Apache Cassandra is, and how a store is made in it."""

import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from exactlog.core.journal.segments import SEGMENTS, SEGMENTS_BEFORE

_KEYSPACE: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9_]{0,47}")
_DATACENTER: Final = re.compile(r"[\w.-]{1,100}")


class CassandraPlace(Struct, frozen=True, kw_only=True):
    """A keyspace of an Apache Cassandra.

    Attributes:
        contact_points: host and port of nodes that are asked first; the others are learnt from them.
        keyspace: it is made where there is none.
        local_dc: the data centre that LOCAL_QUORUM means; None: that of the first node.
        replication_factor: of a keyspace that is made.
        user: None: nobody in particular.
        segments: how many the head rows of a topic are spread over, of journals that begin now and of older ones.
    """

    contact_points: Sequence[tuple[str, int]]
    keyspace: str
    local_dc: str | None = None
    replication_factor: int = 1
    user: str | None = None
    password: str | None = None
    segments: tuple[int, int] = (SEGMENTS, SEGMENTS_BEFORE)

    def __post_init__(self) -> None:
        if _KEYSPACE.fullmatch(self.keyspace) is None:
            raise ValueError(f"{self.keyspace!r} is no keyspace: a letter, then letters, digits and _, 48 at most")
        if self.local_dc is not None and _DATACENTER.fullmatch(self.local_dc) is None:
            raise ValueError(f"{self.local_dc!r} is no data centre")
        if self.replication_factor < 1 or min(self.segments) < 1:
            raise ValueError("there is one replica and one segment at least")

    def __str__(self) -> str:
        hosts = ",".join(f"{host}:{port}" for host, port in self.contact_points)
        return f"cassandra://{hosts}/{self.keyspace}"

    def __repr__(self) -> str:
        return str(self)  # no password in logs
