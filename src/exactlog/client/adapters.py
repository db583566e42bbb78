"""A client for a URL: the scheme names the adapter."""

from typing import Final
from urllib.parse import SplitResult, urlsplit

from exactlog.client.ports import Client, ClientSettings
from exactlog.client.wire.addresses import Address
from exactlog.client.wire.client import WireClient
from exactlog.core.model.errors import ExactlogError

_DEFAULT_PORT: Final = 9092
_NOT_YET: Final = {"embedded", "memory"}


class ClientUrlError(ExactlogError):
    """A URL for which there is no adapter, or that the adapter cannot read."""

    code = "invalid-url"


def connect(url: str, settings: ClientSettings | None = None) -> Client:
    """The client of a cluster, to be used as an asynchronous context manager.

    Nothing is sent before the first operation. `kafka://host:port` is a broker of any make; several, of one cluster,
    are separated by commas.

    Raises:
        ClientUrlError: the URL is malformed or its scheme is not served.
    """
    scheme, separator, _ = url.partition(":")
    if separator and scheme in _NOT_YET:
        raise ClientUrlError(f"{url}: {scheme} URLs are not served by this version", hint="use kafka://HOST:PORT")
    if scheme != "kafka" or "://" not in url:
        raise ClientUrlError(
            f"{url}: not the URL of a broker", hint="write kafka://HOST:PORT, as kafka://127.0.0.1:9092"
        )
    return WireClient(bootstrap_addresses(url), settings or ClientSettings())


def bootstrap_addresses(url: str) -> tuple[Address, ...]:
    """The addresses in a `kafka:` URL.

    Raises:
        ClientUrlError: it is malformed.
    """
    location = url.removeprefix("kafka://").rstrip("/")
    return tuple(_address(url, part.strip()) for part in location.split(","))


def _address(url: str, location: str) -> Address:
    try:
        parts = urlsplit(f"//{location}")
        port = parts.port or _DEFAULT_PORT
    except ValueError as error:
        raise ClientUrlError(f"{url}: {error}", hint="write kafka://HOST:PORT[,HOST:PORT...]") from error
    if not parts.hostname or parts != SplitResult("", parts.netloc, "", "", "") or parts.username is not None:
        raise ClientUrlError(f"{url}: {location!r} is not HOST:PORT", hint="write kafka://HOST:PORT[,HOST:PORT...]")
    return Address(parts.hostname, port)
