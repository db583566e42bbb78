"""The head of a partition's log, which is what is decided: offsets are given, bytes wait or are on their way."""

from exactlog.core.log.producer_state import ProducerEntry
from exactlog.core.model.ids import NO_TIMESTAMP, LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs
from exactlog.core.record.batch_format import LENGTH_OVERHEAD, BatchHeader, decode_header, place, set_log_append_time
from exactlog.core.record.control_record_format import TransactionMarker, build_marker_batch
from exactlog.storage.append_outcome import Appended
from exactlog.storage.committed_log import CommittedLog
from exactlog.storage.group import Group
from exactlog.storage.head_segment import HeadSegment
from exactlog.storage.pending_versions import PendingVersions
from exactlog.storage.segment import SegmentFiles
from exactlog.storage.settings import LogSettings


class LogHead:
    """Gives batches their places and lets them join the forming group; a new one when what is decided is undone.

    Attributes:
        offset: what the next record gets.
        producers: what the decided batches made of their producers.
        open_group: the one that is forming; None where the next batch begins another.
        forming_bytes: how many bytes wait for the next round.
    """

    __slots__ = ("_directory", "_files", "_segment", "_versions", "forming_bytes", "offset", "open_group", "producers")

    def __init__(
        self, committed: CommittedLog, versions: PendingVersions, *, files: SegmentFiles, directory: str
    ) -> None:
        """Stand where `committed` does."""
        self.offset = committed.end_offset
        self.producers = committed.producers.copy()
        self.open_group: Group | None = None
        self.forming_bytes = 0
        self._versions = versions
        self._files = files
        self._directory = directory
        self._segment = HeadSegment(committed.active_segment())

    def append(
        self,
        header: BatchHeader,
        batch: memoryview,
        settings: LogSettings,
        *,
        now_ms: int,
    ) -> Appended:
        """Appends a batch of data on which all is decided.

        Args:
            header: of the batch.
            batch: is written into: offset, epoch, and with LogAppendTime the time.
            settings: of the log.
            now_ms: the time.
        """
        append_time = NO_TIMESTAMP
        if settings.log_append_time:
            append_time = TimestampMs(now_ms)
            set_log_append_time(batch, 0, timestamp_ms=append_time)
            header = decode_header(batch)
        base_offset = self.offset
        placed = place(batch, header, base_offset=base_offset, leader_epoch=LeaderEpoch(settings.leader_epoch))
        group = self._group_for(placed, settings)
        self._join(group, placed, batch, self.producers.replay(placed))
        return Appended(base_offset, append_time)

    def append_marker(
        self,
        marker: TransactionMarker,
        settings: LogSettings,
        *,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        now_ms: int,
    ) -> tuple[Appended, int]:
        """Appends the end of a producer's transaction, which nothing speaks against; its size in bytes as well."""
        timestamp_ms, base_offset, append_time = TimestampMs(now_ms), self.offset, NO_TIMESTAMP
        batch = build_marker_batch(
            marker,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp_ms=timestamp_ms,
            base_offset=base_offset,
            leader_epoch=LeaderEpoch(settings.leader_epoch),
        )
        if settings.log_append_time:
            append_time = timestamp_ms
            set_log_append_time(batch, 0, timestamp_ms=append_time)
        header = decode_header(batch)
        group = self._group_for(header, settings)
        producer, aborted = self.producers.replay_marker(header, marker)
        if aborted is not None:
            group.aborted.append(aborted)
        self._join(group, header, memoryview(batch), producer)
        return Appended(base_offset, append_time), len(batch)

    def _join(self, group: Group, header: BatchHeader, batch: memoryview, producer: ProducerEntry | None) -> None:
        group.add(header, batch, producer)
        group.first_undecided_offset = self.producers.first_undecided_offset
        self._segment.append(header)
        self.offset = Offset(group.end_offset)
        self.forming_bytes += header.batch_length + LENGTH_OVERHEAD

    def take_forming(self) -> int:
        """The open group goes to a round: how many bytes do, with those of the groups before it."""
        size_bytes, self.forming_bytes, self.open_group = self.forming_bytes, 0, None
        return size_bytes

    def begin_segment(self, base_offset: int) -> None:
        """What comes next goes to a new segment."""
        self._segment = HeadSegment(self._files.new(self._directory, base_offset=base_offset))
        self.open_group = None

    def _group_for(self, header: BatchHeader, settings: LogSettings) -> Group:
        """The open group, or a new one; in a new segment, when the batch would not fit the old one."""
        if not self._segment.has_room_for(header, settings):
            self.begin_segment(header.base_offset)
        elif self.open_group is not None:
            return self.open_group
        head = self._segment
        group = Group(head.segment, position=head.position, base_offset=header.base_offset)
        self._versions.open().groups.append(group)
        self.open_group = group
        return group
