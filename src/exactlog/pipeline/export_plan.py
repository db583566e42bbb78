"""What an export has done, and what it has to do next: which offsets of which partition, in which order, by whom.

An export goes by offsets. All that lies below the last stable offset of a partition is decided for ever, so the
committed records between two offsets are the same whenever they are read; and what was open at the end of one run lies
at or behind the offset that the run went up to, and comes with a later one. A run therefore writes

    from   the offset at which the one before ended, or the log start if there was none,
    up to  the last stable offset of the version that it reads,

and records both, the offset and the version, in the step that makes its rows seen. The offset decides where the next
run goes on; the version says up to which state of the log the rows are complete, and that the log has not been replaced
by an older copy of itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from msgspec import Struct

from exactlog.core.model.errors import ExactlogError
from exactlog.core.model.ids import TopicPartition
from exactlog.pipeline.source import Extent, Slice

BYTES_PER_ROUND_DEFAULT = 4 * 1024 * 1024 * 1024
"""How much of the log becomes rows in one step: what is lost of the work when an export is killed."""


class LogReplacedError(ExactlogError):
    """A log ends before what was exported of it: it is another one, or an older copy of itself."""

    code = "log-replaced"


class RecordsLostError(ExactlogError):
    """Records went by retention, or were deleted, before they were exported."""

    code = "records-lost"


class ExportedUpTo(Struct, frozen=True):
    """How far a partition has been exported.

    Attributes:
        offset: of the next record.
        version: the delta version as of which all below it was read; None: a broker was read, which tells of none.
    """

    offset: int
    version: int | None = None


class LogPart(Struct, frozen=True):
    """What is to be exported of a partition.

    Attributes:
        topic_id: tells a topic from one of the same name that was deleted before; the name where there are no ids.
        start_offset: of the first record.
        end_offset: exclusive.
        version: the delta version as of which it is read; None: the source has no versions.
        size_bytes: of its batches; 0 where it is not known.
    """

    topic: str
    partition: int
    topic_id: str
    start_offset: int
    end_offset: int
    version: int | None
    size_bytes: int

    @property
    def place(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)

    def as_slice(self) -> Slice:
        """As a source reads it."""
        return Slice(
            topic=self.topic,
            partition=self.partition,
            start_offset=self.start_offset,
            end_offset=self.end_offset,
            version=self.version,
            size_bytes=self.size_bytes,
        )


def remaining_part(
    place: TopicPartition,
    topic_id: str,
    extent: Extent,
    done: ExportedUpTo | None,
    *,
    is_newest: bool,
    fail_on_data_loss: bool = True,
) -> LogPart | None:
    """What of a partition is still to be exported; None: nothing is.

    Args:
        place: the partition.
        topic_id: its topic's.
        extent: what can be read of it.
        done: how far it has been exported; None: not at all.
        is_newest: whether it is read as it is now; not as of a version or a time that was asked for.
        fail_on_data_loss: whether records that went before they were exported are an error.

    Raises:
        LogReplacedError: the log, as it is now, ends before what was exported.
        RecordsLostError: there is a hole between what was exported and what is left.
    """
    start = extent.start_offset if done is None else done.offset
    if done is not None:
        is_older = None not in (extent.version, done.version) and (extent.version or 0) < (done.version or 0)
        if is_newest and (is_older or extent.end_offset < done.offset):
            raise LogReplacedError(
                f"topic {place.topic}, partition {place.partition}: the log {_end_of(extent)}, and has been exported "
                f"{_up_to(done)}; it is another log, or an older copy",
                hint="Export it into another directory, or bring the log back that was exported.",
            )
        if start < extent.start_offset < extent.end_offset:
            if fail_on_data_loss:
                raise RecordsLostError(
                    f"topic {place.topic}, partition {place.partition}: offsets {start} to {extent.start_offset - 1} "
                    f"were removed before they were exported",
                    hint="Export more often than retention removes, or go on without them (failOnDataLoss=false).",
                )
            start = extent.start_offset
    if start >= extent.end_offset:
        return None
    share = (extent.end_offset - start) / max(1, extent.end_offset - extent.start_offset)
    return LogPart(
        topic=place.topic,
        partition=place.partition,
        topic_id=topic_id,
        start_offset=start,
        end_offset=extent.end_offset,
        version=extent.version,
        size_bytes=int(extent.size_bytes * share),
    )


class Round(Struct, frozen=True):
    """What becomes rows in one step: of each partition in it a contiguous piece, behind that of the round before.

    Attributes:
        slices: what is read, those of a partition in order.
        reached: how far each partition is exported when it is done. The version is told with the last piece alone.
    """

    slices: tuple[Slice, ...]
    reached: Mapping[TopicPartition, ExportedUpTo]


def cut_into_rounds(
    parts: Sequence[LogPart], slices: Mapping[TopicPartition, Sequence[Slice]], *, bytes_max: int
) -> Iterator[Round]:
    """The rounds of an export, each of about so many bytes or less; one slice at least, partition after partition.

    Args:
        parts: what is to be exported.
        slices: the same, cut into what one task reads, in order.
        bytes_max: of a round.
    """
    taken: list[Slice] = []
    taken_bytes = 0
    for part in parts:
        for piece in slices[part.place]:
            if taken and taken_bytes + piece.size_bytes > bytes_max:
                yield _round(taken, parts)
                taken, taken_bytes = [], 0
            taken.append(piece)
            taken_bytes += piece.size_bytes
    if taken:
        yield _round(taken, parts)


def pack_into_tasks(slices: Sequence[Slice], *, bytes_max: int, tasks_min: int) -> list[tuple[Slice, ...]]:
    """The slices of a round for its tasks: small ones together, as long as there is work for `tasks_min` of them."""
    total = sum(piece.size_bytes for piece in slices)
    target = max(1, min(bytes_max, total // max(1, tasks_min)))
    tasks: list[tuple[Slice, ...]] = []
    taken: list[Slice] = []
    taken_bytes = 0
    for piece in slices:
        if taken and (not piece.size_bytes or taken_bytes + piece.size_bytes > target):
            tasks.append(tuple(taken))
            taken, taken_bytes = [], 0
        taken.append(piece)
        taken_bytes += piece.size_bytes
    if taken:
        tasks.append(tuple(taken))
    return tasks


def _round(taken: Sequence[Slice], parts: Sequence[LogPart]) -> Round:
    ends = {part.place: part.end_offset for part in parts}
    reached = {}
    for place, pieces in groupby(taken, key=_place_of):
        last = list(pieces)[-1]
        is_whole = last.end_offset == ends[place]
        reached[place] = ExportedUpTo(last.end_offset, last.version if is_whole else None)
    return Round(slices=tuple(taken), reached=reached)


def _place_of(piece: Slice) -> TopicPartition:
    return TopicPartition(piece.topic, piece.partition)


def _end_of(extent: Extent) -> str:
    version = "" if extent.version is None else f" at version {extent.version}"
    return f"ends at offset {extent.end_offset}{version}"


def _up_to(done: ExportedUpTo) -> str:
    version = "" if done.version is None else f", version {done.version}"
    return f"up to offset {done.offset}{version}"
