"""How journals behave."""

import socket
from enum import Enum
from typing import Final

from msgspec import Struct

from exactlog import __version__
from exactlog.core.journal.new_actions import Writer


class ReadBarrier(Enum):
    """How a read knows how far the log must be seen.

    MARK writes a mark, as kafka-journal does: any broker will do, and nothing but the log is trusted. END_OFFSET asks
    the broker for the end of the partition: nothing is written, and a store that is up to date is enough.
    """

    MARK = "mark"
    END_OFFSET = "end_offset"


class JournalSettings(Struct, frozen=True, kw_only=True):
    """How journals behave.

    Attributes:
        barrier: how far a read looks.
        no_progress_ms: a read of the log that gets nothing for so long gives up (`Retriable`).
        buffer_actions_max: actions of one journal that a read keeps from its first look at the log, to spare a second.
        buffer_bytes_max: likewise, the bytes of their payloads.
        head_cache: whether the head of each partition that is read from is followed, so that reads need not scan it.
        cache_wait_ms: how long a read waits for the head cache to come to its mark.
        cache_idle_ms: a partition that nobody reads from for so long is followed no more.
        cache_steps_max: how much is kept of one partition (`PartitionCache`).
        pointer_ms: between two looks of the head cache at how far its partition is replicated, and what is in it that
            nobody has asked for.
        append_attempts_max: how often an append that expects nothing is numbered anew when others come first.
        conflict_events_max: how many of the events that came instead a `Conflict` has.
        journals_remembered_max: of how many journals the writer keeps in mind where they stand.
        remembered_ms: for how long what it keeps in mind is taken for near enough to judge an append from.
    """

    barrier: ReadBarrier = ReadBarrier.MARK
    no_progress_ms: int = 10_000
    buffer_actions_max: int = 1_000
    buffer_bytes_max: int = 4 * 1024 * 1024
    head_cache: bool = True
    cache_wait_ms: int = 1_000
    cache_idle_ms: int = 600_000
    cache_steps_max: int = 10_000
    pointer_ms: int = 1_000
    append_attempts_max: int = 20
    conflict_events_max: int = 100
    journals_remembered_max: int = 10_000
    remembered_ms: int = 5_000


THIS_WRITER: Final = Writer(origin=socket.gethostname(), version=__version__)
"""Who writes, unless `Journals.open` is told otherwise."""
