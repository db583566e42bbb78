"""Clients for the URL of a log: of brokers that run, or of one that is started here."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeAlias

from exactlog.client.adapters import connect
from exactlog.client.ports import Client, ClientSettings
from exactlog.node.log_url import AtBrokers, log_place, start_own_broker

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
    place = log_place(url, what="the log of journals")
    if isinstance(place, AtBrokers):
        yield partial(connect, place.url, settings)
        return
    node = await start_own_broker(place, said_by="the URL of the log")
    try:
        yield partial(connect, f"kafka://{node.bootstrap_servers}", settings)
    finally:
        await node.stop()
