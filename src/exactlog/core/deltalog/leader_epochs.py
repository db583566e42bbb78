"""Leader epochs: from which offset on each leader wrote, and where an epoch ends (KIP-101, KIP-279).

Entries rise in epoch and in offset; the last one is that of the newest epoch. They are kept as Kafka's epoch cache
keeps its own: an epoch that wrote nothing leaves no entry, and of what lies below the log start only the epoch stays
that holds it.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

from exactlog.core.deltalog.checkpoint_format import LeaderEpochEntry
from exactlog.core.model.ids import LeaderEpoch, Offset


class EpochEnd(NamedTuple):
    """Where an epoch ends: the greatest known epoch up to the one that was asked for, and its end, exclusive."""

    epoch: int
    end_offset: int


UNKNOWN_EPOCH_END: Final = EpochEnd(-1, -1)
"""Of an epoch nothing is known of: it is newer than all that are."""


def begin_epoch(entries: list[LeaderEpochEntry], epoch: LeaderEpoch, *, start_offset: Offset) -> None:
    """A newer epoch begins at the end of the log; those that wrote nothing before it go."""
    while entries and entries[-1].start_offset >= start_offset:
        entries.pop()
    entries.append(LeaderEpochEntry(epoch=epoch, start_offset=start_offset))


def trim_epochs(entries: list[LeaderEpochEntry], *, log_start_offset: Offset) -> None:
    """The log starts later; the epoch that holds the new start is the first one left, and begins there."""
    while len(entries) > 1 and entries[1].start_offset <= log_start_offset:
        del entries[0]
    if entries and entries[0].start_offset < log_start_offset:
        entries[0] = LeaderEpochEntry(epoch=entries[0].epoch, start_offset=log_start_offset)


def find_epoch_end(entries: Sequence[LeaderEpochEntry], epoch: int, *, log_end_offset: int) -> EpochEnd:
    """Where an epoch ends: where the next one that is known begins, or at the end of the log for the newest.

    An epoch older than all that are known ends where those begin; one newer than all is unknown, as -1 is.
    """
    newer = bisect_right(entries, epoch, key=_epoch_of)
    if epoch == UNKNOWN_EPOCH_END.epoch or not entries or epoch > entries[-1].epoch:
        return UNKNOWN_EPOCH_END
    end_offset = entries[newer].start_offset if newer < len(entries) else log_end_offset
    return EpochEnd(entries[newer - 1].epoch if newer else epoch, end_offset)


def _epoch_of(entry: LeaderEpochEntry) -> int:
    return entry.epoch
