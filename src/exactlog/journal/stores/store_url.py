"""The url of a store: which one, and where.

    memory:                                      in this program, gone with it
    sqlite:journals.db                           a file, from the working folder
    sqlite:///journals.db                        the same
    sqlite:////var/lib/journals.db               a file, from the root
    cassandra://host[:port][,host[:port]...]/keyspace[?option=value&...]

Apache Cassandra's options are those of `CassandraPlace`: `local_dc`, `replication_factor`, `user`, `password`.
"""

from typing import Final
from urllib.parse import parse_qsl, unquote

from exactlog.core.journal.rows import SEGMENT_SIZE_DEFAULT
from exactlog.journal.store_ports import JournalStore
from exactlog.journal.stores.cassandra_place import CassandraPlace
from exactlog.journal.stores.errors import StoreUrlError
from exactlog.journal.stores.memory_store import MemoryJournalStore
from exactlog.journal.stores.sqlite_store import SqliteJournalStore

_HINT: Final = "for example memory:, sqlite:journals.db or cassandra://127.0.0.1:9042/journal"
_CASSANDRA_PORT: Final = 9042
_PORT_MAX: Final = 65_535


def journal_store(url: str, *, segment_size: int = SEGMENT_SIZE_DEFAULT) -> JournalStore:
    """The store of a url. Entering its context opens it.

    Args:
        url: as above.
        segment_size: of journals that begin in it.

    Raises:
        StoreUrlError: the url names no store that there is.
        JournalInputError: the segment size is out of range.
        DriverMissingError: the package for Apache Cassandra is not installed.
    """
    scheme, colon, rest = url.partition(":")
    match scheme if colon else "":
        case "memory":
            if rest:
                raise StoreUrlError(f"memory: has no place, {url!r} names one", hint=_HINT)
            return MemoryJournalStore(segment_size=segment_size)
        case "sqlite":
            return SqliteJournalStore(_sqlite_path(url, rest), segment_size=segment_size)
        case "cassandra":
            place = cassandra_place(url)
            from exactlog.journal.stores.cassandra_store import CassandraJournalStore  # noqa: PLC0415  an extra

            return CassandraJournalStore(place, segment_size=segment_size)
        case _:
            raise StoreUrlError(f"{scheme + colon!r} is not the url of a store", hint=_HINT)


def cassandra_place(url: str) -> CassandraPlace:
    """What a url says of an Apache Cassandra.

    Raises:
        StoreUrlError: it is not as above.
    """
    shown, _, query = url.partition("?")  # options are not for messages: there may be a password
    address = shown.removeprefix("cassandra:")
    hosts, slash, keyspace = address.removeprefix("//").partition("/")
    if "@" in hosts:
        raise StoreUrlError("the url of a store names a user before its host", hint="/keyspace?user=USER&password=WORD")
    if not (address.startswith("//") and hosts and slash and keyspace):
        raise StoreUrlError(f"{shown!r} names no host, or no keyspace", hint=_HINT)
    try:
        options = dict(parse_qsl(query, strict_parsing=True)) if query else {}
        if unknown := options.keys() - {"local_dc", "replication_factor", "user", "password"}:
            raise StoreUrlError(f"{shown!r}: no such option: {', '.join(sorted(unknown))}", hint=_HINT)
        return CassandraPlace(
            contact_points=tuple(_contact_point(host) for host in hosts.split(",")),
            keyspace=unquote(keyspace),
            local_dc=options.get("local_dc"),
            replication_factor=int(options.get("replication_factor", "1")),
            user=options.get("user"),
            password=options.get("password"),
        )
    except ValueError as error:
        raise StoreUrlError(f"{shown!r}: {error}", hint=_HINT) from None


def _contact_point(host: str) -> tuple[str, int]:
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]"):  # an IPv6 address is in brackets
        name, port = host, str(_CASSANDRA_PORT)
    name = name.removeprefix("[").removesuffix("]")
    if not (name and port.isascii() and port.isdecimal() and 0 < int(port) <= _PORT_MAX):
        raise ValueError(f"{host!r} is not a host and a port")
    return name, int(port)


def _sqlite_path(url: str, rest: str) -> str:
    path = rest
    if rest.startswith("//"):
        host, slash, path = rest.removeprefix("//").partition("/")
        if host or not slash:
            raise StoreUrlError(f"{url!r} names a host, and a file is here", hint="sqlite:///journals.db")
    if not path or path == "/":
        raise StoreUrlError(f"{url!r} names no file", hint="sqlite:///journals.db")
    return path
