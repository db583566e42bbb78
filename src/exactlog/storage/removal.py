"""Taking the oldest records out of a partition: how far, and when the files may go.

Retention and DeleteRecords move the log start; segments that lie below it altogether leave the table by `remove`
operations of the same version. Their files stay for `file.delete.delay.ms`, for readers that are at it, and until two
durable checkpoints stand at or past that version: should the newer one be damaged, the older one and the commits behind
it must still give the table and its producers, without bytes that are gone.
"""

import logging
from collections import deque
from collections.abc import Sequence

from msgspec import Struct

from exactlog.core.deltalog.log_path import SegmentFileKind, parse_segment_file_name, print_segment_file_name
from exactlog.storage.background import Lane
from exactlog.storage.fault_points import REMOVAL_AFTER_UNLINK, REMOVAL_BEFORE_UNLINK
from exactlog.storage.segment import Segment, SegmentFiles
from exactlog.storage.whole_files import sync_names

_logger = logging.getLogger(__name__)

CHECKPOINTS_NEEDED = 2


class Retention(Struct, frozen=True, kw_only=True):
    """How much of a partition is kept: `retention.ms` and `retention.bytes`; None without bound."""

    ms: int | None = None
    bytes_max: int | None = None


def find_retained_start(segments: Sequence[Segment], retention: Retention, *, now_ms: int) -> int | None:
    """The log start that retention asks for: that of the first segment to keep; None where all of them stay.

    As in Apache Kafka, whole segments go: by time those whose youngest record is too old (one without a timestamp
    stays), by size the oldest while what is left still has `retention.bytes` or more.
    """
    start = None
    size = sum(segment.size for segment in segments)
    for segment in segments:
        is_old = (
            retention.ms is not None and segment.max_timestamp >= 0 and now_ms - segment.max_timestamp > retention.ms
        )
        is_too_much = retention.bytes_max is not None and size - segment.size >= retention.bytes_max
        if not is_old and not is_too_much:
            break
        size -= segment.size
        start = segment.next_offset
    return start


class RemovedSegments(Struct, frozen=True):
    """Segments that left the table together."""

    version: int
    removed_ms: int
    names: Sequence[str]


class RemovedFiles:
    """The files of a partition's removed segments, until they may go."""

    def __init__(self, directory: str, files: SegmentFiles, background: Lane) -> None:
        self._directory = directory
        self._files = files
        self._background = background
        self._waiting: deque[RemovedSegments] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, removed: RemovedSegments) -> None:
        """Some more segments left the table."""
        if removed.names:
            self._waiting.append(removed)

    def due(self, *, now_ms: int, delay_ms: int) -> int | None:
        """The version that removed the oldest files that have waited long enough; None while none have."""
        if self._waiting and now_ms - self._waiting[0].removed_ms >= delay_ms:
            return self._waiting[0].version
        return None

    def unlink_due(self) -> None:
        """Lets the oldest files go, in the background; should that fail, the next start finds them."""
        names = self._waiting.popleft().names

        def work() -> None:
            for name in names:
                self._unlink(name)
            sync_names(self._files.filesystem, self._directory)

        self._background.submit(work, _ignore)

    def _unlink(self, segment_name: str) -> None:
        parsed = parse_segment_file_name(segment_name)
        if parsed is None:
            return
        REMOVAL_BEFORE_UNLINK.reach()
        for kind in reversed(SegmentFileKind):  # the log itself last: it is what the others are known by
            name = print_segment_file_name(parsed.base, generation=parsed.generation, kind=kind)
            path = f"{self._directory}/{name}"
            self._files.forget(path)
            try:
                self._files.filesystem.remove(path)
            except FileNotFoundError:
                continue
        REMOVAL_AFTER_UNLINK.reach()
        _logger.info("%s/%s is gone: its records had been removed", self._directory, segment_name)


def _ignore(result: None) -> None:
    del result
