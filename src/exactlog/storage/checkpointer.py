"""Writes the delta checkpoints of one partition, from immutable copies and off the event loop.

A checkpoint stands on bytes that are durable where they are, in every mode: in `interval` and `none`, and behind a
commit journal, those that it is the first to count are synced before it. Else a power cut could leave checkpoints that
cannot be used, while what only they could replace (removed segments, expired versions) is gone.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from exactlog.core.deltalog.checkpoint_format import encode_checkpoint
from exactlog.core.deltalog.checkpoint_policy import LastCheckpoint, decide_checkpoint
from exactlog.core.deltalog.log_path import DELTA_LOG_DIRECTORY, print_checkpoint_name
from exactlog.core.deltalog.table_state import SegmentDetails, TableState
from exactlog.core.log.producer_state import ProducerEntry, ProducerStates
from exactlog.core.model.ids import DeltaVersion, TimestampMs
from exactlog.storage.background import Lane
from exactlog.storage.fault_points import CHECKPOINT_AFTER_DIRECTORY_SYNC, CHECKPOINT_RENAME
from exactlog.storage.filesystem import Filesystem
from exactlog.storage.packing import PackingProgress, pack
from exactlog.storage.producer_entries import to_checkpoint_entries, to_open_transactions
from exactlog.storage.segment import Segment
from exactlog.storage.segment_index import NewRows
from exactlog.storage.settings import LogSettings
from exactlog.storage.whole_files import replace, sync_data, sync_names


class PreparedCheckpoint(Struct, frozen=True):
    """What a checkpoint says besides the table; immutable, for another thread to encode."""

    producers: tuple[ProducerEntry, ...]
    segments: Mapping[str, SegmentDetails]
    new_rows: Sequence[NewRows]
    sizes: Mapping[str, int]
    """How many bytes of each segment it counts, by the paths of the segments."""


class Checkpointer:
    """Decides when a checkpoint is worth its bytes, and writes one after the other; packs old commits behind them.

    Attributes:
        durable_versions: the versions of the newest two checkpoints known to be durable, in rising order.
    """

    def __init__(
        self,
        filesystem: Filesystem,
        directory: str,
        settings: LogSettings,
        background: Lane,
        *,
        last: LastCheckpoint | None,
        last_version: DeltaVersion | None,
        commit_bytes_since: int,
        packing: PackingProgress,
    ) -> None:
        self._filesystem = filesystem
        self._partition_directory = directory
        self._settings = settings
        self._background = background
        self._last = last
        self._commit_bytes_since = commit_bytes_since
        self._running = 0
        self._packing: PackingProgress | None = packing
        self._is_packing = False
        self._synced_sizes: Mapping[str, int] = {}
        self.durable_versions: tuple[DeltaVersion, ...] = () if last_version is None else (last_version,)

    @property
    def is_running(self) -> bool:
        """Whether a checkpoint is on its way."""
        return self._running > 0

    @property
    def last_written_ms(self) -> int | None:
        """When the newest checkpoint was written, in ms since 1970; None where there is none."""
        return None if self._last is None else self._last.written_ms

    def is_wanted(self, version: DeltaVersion, *, now_ms: int) -> bool:
        """Whether a version that is being published is to get a checkpoint; one at a time, unless all are asked for."""
        is_free = not self.is_running or self._settings.checkpoint_min_interval_ms == 0
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
            [rows for segment in segments if segment.has_new_rows for rows in segment.take_new_rows()],
            {segment.path: segment.size for segment in segments},
        )

    def write(self, table: TableState, prepared: "PreparedCheckpoint", *, now_ms: int) -> None:
        """Writes the checkpoint of a table as it is now; returns at once."""
        self._running += 1
        snapshot = table.freeze()
        directory = f"{self._partition_directory}/{DELTA_LOG_DIRECTORY}"
        bytes_before = self._commit_bytes_since
        is_synced = self._settings.publishes_in_round
        unsynced = [] if is_synced else sorted(prepared.sizes.items() - self._synced_sizes.items())

        def work() -> int:
            self._sync([path for path, _ in unsynced])
            for rows in prepared.new_rows:
                rows.write(self._filesystem)
            checkpoint = snapshot.to_checkpoint(
                segment_details=prepared.segments,
                producers=to_checkpoint_entries(prepared.producers),
                open_transactions=to_open_transactions(prepared.producers),
            )
            document = encode_checkpoint(checkpoint)
            name = print_checkpoint_name(snapshot.version)
            replace(self._filesystem, directory, name, document, durable=True, points=CHECKPOINT_RENAME)
            CHECKPOINT_AFTER_DIRECTORY_SYNC.reach()
            return len(document)

        def then(size_bytes: int | None) -> None:
            self._running -= 1
            if size_bytes is not None:
                self.durable_versions = (*self.durable_versions[-1:], snapshot.version)
                self._synced_sizes = prepared.sizes
                self._last = LastCheckpoint(written_ms=TimestampMs(now_ms), size_bytes=size_bytes)
                self._commit_bytes_since -= bytes_before
                self._pack_behind(snapshot.version)

        self._background.submit(work, then)

    def _sync(self, paths: Sequence[str]) -> None:
        """Makes bytes durable that a checkpoint counts, and the names of their files."""
        for path in paths:
            sync_data(self._filesystem.open(path))
        if paths:
            sync_names(self._filesystem, self._partition_directory)

    def _pack_behind(self, version: DeltaVersion) -> None:
        """Packs the commits that a durable checkpoint makes old enough, one range after the other."""
        if self._packing is None or self._is_packing:
            return
        plan = self._packing.find_pack(
            newest_version=version, checkpoint_version=version, versions_keep=self._settings.versions_keep
        )
        if plan is None:
            return
        progress = self._packing.after(plan)
        self._is_packing = True

        def work() -> bool:
            pack(self._filesystem, self._partition_directory, plan)
            return True

        def then(is_packed: bool | None) -> None:  # noqa: FBT001  the shape of a continuation
            self._is_packing = False
            self._packing = progress if is_packed else None  # what failed is tried again after the next start
            self._pack_behind(version)

        self._background.submit(work, then)
