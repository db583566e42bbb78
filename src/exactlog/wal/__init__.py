"""A region write-ahead log over any Kafka-protocol broker: public API.

    async with Wal.open("embedded:./wal", namespace="ts") as wal:
        region = await wal.open_region(7, create=True)
        last = await region.write(3, [b"a", b"b"])
        async for entry in region.scan():
            ...
        await region.mark_deleted(3, last)

Explained in docs/wal.md. Names are imported when they are first asked for.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from exactlog.core.wal.bounds import Excluded, Included, Max, Min
    from exactlog.core.wal.errors import (
        EmptyBatchError,
        EntryTooLargeError,
        InvalidBoundsError,
        MarkOutOfRangeError,
        RegionClosedError,
        RegionDataLostError,
        RegionFenced,
        RegionMetaLostError,
        RegionNotFoundError,
        RegionReadOnlyError,
        RegionTopicsError,
        RegionTrimmedError,
        SequenceConflictError,
        TableDroppedError,
        TableNotFoundError,
        UnreadableRecordError,
        WalError,
        WriteOutcomeUnknownError,
    )
    from exactlog.wal.entries import CleanResult, RegionStats, ScanProgress, TableStats, WalEntry
    from exactlog.wal.memory_backend import MemoryBackend
    from exactlog.wal.ports import PayloadCodec, WalBackend
    from exactlog.wal.region import Region
    from exactlog.wal.wal import Wal

__all__ = [
    "CleanResult",
    "EmptyBatchError",
    "EntryTooLargeError",
    "Excluded",
    "Included",
    "InvalidBoundsError",
    "MarkOutOfRangeError",
    "Max",
    "MemoryBackend",
    "Min",
    "PayloadCodec",
    "Region",
    "RegionClosedError",
    "RegionDataLostError",
    "RegionFenced",
    "RegionMetaLostError",
    "RegionNotFoundError",
    "RegionReadOnlyError",
    "RegionStats",
    "RegionTopicsError",
    "RegionTrimmedError",
    "ScanProgress",
    "SequenceConflictError",
    "TableDroppedError",
    "TableNotFoundError",
    "TableStats",
    "UnreadableRecordError",
    "Wal",
    "WalBackend",
    "WalEntry",
    "WalError",
    "WriteOutcomeUnknownError",
]

_HOMES = {
    "exactlog.core.wal.bounds": ("Excluded", "Included", "Max", "Min"),
    "exactlog.wal.entries": ("CleanResult", "RegionStats", "ScanProgress", "TableStats", "WalEntry"),
    "exactlog.wal.memory_backend": ("MemoryBackend",),
    "exactlog.wal.ports": ("PayloadCodec", "WalBackend"),
    "exactlog.wal.region": ("Region",),
    "exactlog.wal.wal": ("Wal",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_ERRORS = "exactlog.core.wal.errors"


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415  only who asks for a name pays for it

    return getattr(import_module(_HOME_OF.get(name, _ERRORS)), name)
