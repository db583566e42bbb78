"""The client: what the products may ask of a broker, and `connect`, which finds an adapter for a URL: public API.

    async with connect("kafka://127.0.0.1:9092") as client:
        match await client.append("orders", 0, [NewRecord(b"paid")], expected_version=7, txn_id="order-17"):
            case Committed(version=version): ...
            case Conflicted(actual=actual): ...

Names are imported when they are first asked for.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from exactlog.client.adapters import ClientUrlError, connect
    from exactlog.client.ports import EARLIEST, LATEST, Client, ClientSettings, IsolationLevel
    from exactlog.core.deltalog.append_terms import Committed, Conflicted, PayloadDiffers, Unavailable
    from exactlog.core.model.ids import TopicPartition
    from exactlog.core.record.batch_builder import NewRecord

__all__ = [
    "EARLIEST",
    "LATEST",
    "Client",
    "ClientSettings",
    "ClientUrlError",
    "Committed",
    "Conflicted",
    "IsolationLevel",
    "NewRecord",
    "PayloadDiffers",
    "TopicPartition",
    "Unavailable",
    "connect",
]

_HOMES = {
    "exactlog.client.adapters": ("ClientUrlError", "connect"),
    "exactlog.client.ports": ("EARLIEST", "LATEST", "Client", "ClientSettings", "IsolationLevel"),
    "exactlog.core.deltalog.append_terms": ("Committed", "Conflicted", "PayloadDiffers", "Unavailable"),
    "exactlog.core.model.ids": ("TopicPartition",),
    "exactlog.core.record.batch_builder": ("NewRecord",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415  only who asks for a name pays for it

    return getattr(import_module(_HOME_OF[name]), name)
