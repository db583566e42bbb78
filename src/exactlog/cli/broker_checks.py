"""Who answers at the address of a broker, and what it says of itself."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterable
from typing import Final

from exactlog.cli.findings import Finding, fail, ok, warn
from exactlog.client.ports import Client, ClientSettings, ClusterDescription
from exactlog.client.wire.addresses import Address
from exactlog.client.wire.broker_versions import BrokerVersions
from exactlog.client.wire.connection import WireConnection
from exactlog.core.model.errors import DecodeError, ExactlogError, UnavailableError
from exactlog.core.protocol.api_keys import APIS

_DISK_FREE_MIN: Final = 0.05
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost", "0.0.0.0"})  # noqa: S104  compared, not bound


async def check_address(address: Address, settings: ClientSettings) -> AsyncIterator[Finding]:
    """Whether a broker answers there; where nobody does, whether one could be started."""
    try:
        connection = await WireConnection.open(address, settings)
    except (UnavailableError, DecodeError) as error:
        yield _nobody_who_speaks_kafka(address, error)
        return
    try:
        yield ok("port", f"a broker answers at {address}")
        yield _protocol(connection.versions)
    finally:
        await connection.close()


async def check_cluster(client: Client, bootstrap: Iterable[Address]) -> AsyncIterator[Finding]:
    """What the cluster says of itself, and whether its brokers can be reached where they say that they are."""
    described = await client.describe_cluster()
    yield ok("cluster", _cluster_text(described))
    reached = set(bootstrap)
    for broker in described.brokers:
        address = Address(broker.host, broker.port)
        if address not in reached and not await _answers(address):
            yield fail(
                "advertised",
                f"broker {broker.id} says that it is at {address}, and nobody answers there",
                why="clients go on to the address that a broker advertises",
                hint="Start it with --advertised HOST:PORT, an address that this machine reaches.",
            )
    try:
        for directory in await client.describe_log_dirs():
            if directory.bytes_total and directory.bytes_usable is not None:
                yield _disk(directory.path, directory.bytes_usable, directory.bytes_total)
    except ExactlogError as error:  # not every broker tells, or tells everybody
        yield ok("broker's disk", f"the broker does not tell: {error}")


def _nobody_who_speaks_kafka(address: Address, error: ExactlogError) -> Finding:
    start = f"exactlog serve --port {address.port}"
    if _is_listened_to(address):
        return fail(
            "port",
            f"something answers at {address}, and it is no Kafka broker: {error}",
            why="a broker cannot be started where another program listens",
            hint="Stop that program, or choose another port by --port, and by -b for clients.",
        )
    if address.host in _LOOPBACK:
        return ok("port", f"nobody listens at {address}: `{start}` can")
    return fail(
        "port",
        f"nobody answers: {error}",
        why="commands and clients that are told this address fail",
        hint="Start the broker there, or name another one by -b.",
    )


def _is_listened_to(address: Address) -> bool:
    try:
        with socket.create_connection(address, timeout=1):
            return True
    except OSError:
        return False


async def _answers(address: Address) -> bool:
    return await asyncio.to_thread(_is_listened_to, address)


def _protocol(versions: BrokerVersions) -> Finding:
    """Which of what we speak the broker does not, in short."""
    missing = [api.name for key, api in APIS.items() if not versions.serves(api.key)]
    features = "".join(f", {name} {levels.highest}" for name, levels in versions.features.items())
    message = f"it serves {len(versions.served)} APIs, {len(APIS) - len(missing)} of the {len(APIS)} known here"
    if missing:
        message += f" (not {', '.join(missing)})"
    return ok("protocol", message + (f"; features{features[1:]}" if features else ""))


def _cluster_text(described: ClusterDescription) -> str:
    brokers = ", ".join(f"{broker.id} at {Address(broker.host, broker.port)}" for broker in described.brokers)
    return f"cluster {described.cluster_id or 'without an id'}; brokers: {brokers}"


def _disk(path: str, usable: int, total: int) -> Finding:
    message = f"{usable / 1e9:.1f} of {total / 1e9:.1f} GB are free in {path}"
    if usable >= _DISK_FREE_MIN * total:
        return ok("broker's disk", message)
    why = "a broker whose disk is full stops taking records"
    return warn("broker's disk", message, why=why, hint="Make room, or lower retention.ms and retention.bytes.")
