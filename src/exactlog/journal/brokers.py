"""Clients for the URL of a log: of brokers that run, or of one that is started here."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeAlias

from exactlog.client.adapters import ClientUrlError, connect
from exactlog.client.ports import Client, ClientSettings
from exactlog.node.config import load_config
from exactlog.node.node import Node

Connect: TypeAlias = Callable[[], Client]
"""Makes a client, with connections of its own: one that waits for records holds up nobody else."""


@asynccontextmanager
async def open_brokers(url: str, settings: ClientSettings | None = None) -> AsyncIterator[Connect]:
    """What makes clients of a log, for as long as the context lasts.

    `kafka://HOST:PORT` is a broker of any make. `embedded:DIRECTORY` starts a broker in this process, on this event
    loop; `memory:` one that keeps nothing.

    Raises:
        ClientUrlError: the URL is malformed.
        DirectoryLockedError: another process has the directory open.
    """
    scheme, separator, rest = url.partition(":")
    match scheme:
        case "memory" if separator and not rest:
            place = ("in.memory", "true")
        case "embedded" if rest:
            place = ("data.dir", rest)
        case "kafka":
            yield partial(connect, url, settings)
            return
        case _:
            raise ClientUrlError(
                f"{url}: not where the log of journals can be",
                hint="write kafka://HOST:PORT, embedded:DIRECTORY or memory:",
            )
    node = Node(load_config(overrides=[place, ("port", "0")], overrides_from="the URL of the log"))
    await node.start()
    try:
        yield partial(connect, f"kafka://{node.bootstrap_servers}", settings)
    finally:
        await node.stop()
