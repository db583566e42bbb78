"""Where a log can be, as a URL says it: at brokers that run, in a directory for a broker of one's own, or in memory."""

from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from exactlog.client.adapters import ClientUrlError

if TYPE_CHECKING:
    from exactlog.node.node import Node


class AtBrokers(Struct, frozen=True):
    """`kafka://HOST:PORT`: of any make. `connect` takes the URL, and says what is wrong with it."""

    url: str


class InDirectory(Struct, frozen=True):
    """`embedded:DIRECTORY`: a broker in this process keeps it there."""

    directory: str


class InMemory(Struct, frozen=True):
    """`memory:`: nothing is kept."""


LogPlace: TypeAlias = AtBrokers | InDirectory | InMemory


def log_place(url: str, *, what: str) -> LogPlace:
    """The place that a URL names; `what` is to be there, as the error says it.

    Raises:
        ClientUrlError: it names none.
    """
    scheme, separator, rest = url.partition(":")
    match scheme:
        case "memory" if separator and not rest:
            return InMemory()
        case "embedded" if rest:
            return InDirectory(rest)
        case "kafka":
            return AtBrokers(url)
        case _:
            raise ClientUrlError(
                f"{url}: not where {what} can be", hint="write kafka://HOST:PORT, embedded:DIRECTORY or memory:"
            )


async def start_own_broker(place: InDirectory | InMemory, *, said_by: str) -> "Node":
    """Start a broker on this event loop, at a free port; its directory is made if it is not there.

    Args:
        place: what it keeps its topics in.
        said_by: what errors about its configuration are blamed on.

    Raises:
        DirectoryLockedError: another process has the directory open.
    """
    from exactlog.node.config import load_config  # noqa: PLC0415  only who starts a broker pays for loading it
    from exactlog.node.node import Node  # noqa: PLC0415

    kept = ("data.dir", place.directory) if isinstance(place, InDirectory) else ("in.memory", "true")
    node = Node(load_config(overrides=[kept, ("port", "0")], overrides_from=said_by))
    await node.start()
    return node
