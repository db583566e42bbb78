"""Writes the delta checkpoints of one partition, from immutable copies and off the event loop."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from exactlog.core.deltalog.checkpoint_format import encode_checkpoint
from exactlog.core.deltalog.checkpoint_policy import LastCheckpoint, decide_checkpoint
from exactlog.core.deltalog.log_path import DELTA_LOG_DIRECTORY, print_checkpoint_name
from exactlog.core.deltalog.table_state import SegmentDetails, TableState
from exactlog.core.log.producer_state import ProducerEntry, ProducerStates
from exactlog.core.model.ids import DeltaVersion, TimestampMs
from exactlog.storage.background import BackgroundLane
from exactlog.storage.filesystem import Filesystem
from exactlog.storage.producer_entries import to_checkpoint_entries
from exactlog.storage.segment import Segment
from exactlog.storage.segment_index import NewRows
from exactlog.storage.settings import LogSettings
from exactlog.storage.whole_files import replace


class PreparedCheckpoint(Struct, frozen=True):
    """What a checkpoint says besides the table; immutable, for another thread to encode."""

    producers: tuple[ProducerEntry, ...]
    segments: Mapping[str, SegmentDetails]
    new_rows: Sequence[NewRows]


class Checkpointer:
    """Decides when a checkpoint is worth its bytes, and writes one after the other."""

    def __init__(
        self,
        filesystem: Filesystem,
        directory: str,
        settings: LogSettings,
        background: BackgroundLane,
        *,
        last: LastCheckpoint | None,
        commit_bytes_since: int,
    ) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._settings = settings
        self._background = background
        self._last = last
        self._commit_bytes_since = commit_bytes_since
        self._is_running = False

    def is_wanted(self, version: DeltaVersion, *, now_ms: int) -> bool:
        """Whether a version that is being published is to get a checkpoint; one at a time, unless all are asked for."""
        is_free = not self._is_running or self._settings.checkpoint_min_interval_ms == 0
        return is_free and decide_checkpoint(
            version,
            interval=self._settings.checkpoint_interval,
            min_interval_ms=self._settings.checkpoint_min_interval_ms,
            last=self._last,
            commit_bytes_since=self._commit_bytes_since,
            now_ms=TimestampMs(now_ms),
        )

    def count(self, commit_bytes: int) -> None:
        """One more version was published, with a document of that size."""
        self._commit_bytes_since += commit_bytes

    def prepare(self, producers: ProducerStates, segments: Sequence[Segment]) -> "PreparedCheckpoint":
        """Keeps what a checkpoint says besides the table, as of now."""
        return PreparedCheckpoint(
            producers.snapshot(),
            {segment.name: segment.details() for segment in segments},
            [rows for segment in segments if segment.index.has_new_rows for rows in segment.index.take_new_rows()],
        )

    def write(self, table: TableState, prepared: "PreparedCheckpoint", *, now_ms: int) -> None:
        """Writes the checkpoint of a table as it is now; returns at once."""
        self._is_running = True
        snapshot = table.freeze()
        directory = f"{self._directory}/{DELTA_LOG_DIRECTORY}"
        bytes_before = self._commit_bytes_since

        def work() -> int:
            for rows in prepared.new_rows:
                rows.write(self._filesystem)
            checkpoint = snapshot.to_checkpoint(
                segment_details=prepared.segments, producers=to_checkpoint_entries(prepared.producers)
            )
            document = encode_checkpoint(checkpoint)
            name = print_checkpoint_name(snapshot.version)
            replace(self._filesystem, directory, name, document, durable=True)
            return len(document)

        def then(size_bytes: int | None) -> None:
            self._is_running = False
            if size_bytes is not None:
                self._last = LastCheckpoint(written_ms=TimestampMs(now_ms), size_bytes=size_bytes)
                self._commit_bytes_since -= bytes_before

        self._background.submit(work, then)
