"""The segments of a partition that hold committed bytes nobody has synced yet (flush mode `interval`)."""

from exactlog.storage.round import GroupWrite, PartitionWrite, SegmentWrite
from exactlog.storage.segment import Segment


class UnsyncedSegments:
    """Gathers segments until they are taken to be synced.

    Attributes:
        is_syncing: whether some were taken and their sync has not ended.
    """

    def __init__(self, partition_name: str, directory: str) -> None:
        self.is_syncing = False
        self._partition_name = partition_name
        self._directory = directory
        self._segments: dict[Segment, bool] = {}

    def add(self, segment: Segment, *, is_new: bool) -> None:
        """Bytes of a segment were written; `is_new` where its name has to be synced too."""
        self._segments[segment] = self._segments.get(segment, False) or is_new

    def take(self) -> PartitionWrite | None:
        """All of them, as a round that writes nothing and syncs them; None where there are none."""
        taken, self._segments = self._segments, {}
        if not taken:
            return None
        self.is_syncing = True
        writes = [SegmentWrite(segment.path, segment.size, [], is_new) for segment, is_new in taken.items()]
        return PartitionWrite(
            self._partition_name, self._directory, [GroupWrite(writes, None)], size_bytes=0, durable=True
        )

    def clear(self) -> None:
        """Their files are going away."""
        self._segments = {}
