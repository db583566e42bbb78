"""The segments of a table, and what a rewriting version makes of them.

Compaction puts segments with fewer records in the place of sealed ones: `remove` and `add` operations of one version,
over the same offsets. Offsets do not change, so nothing else of the table does; the last segment, which may still grow,
stays.
"""

from collections.abc import Sequence

import msgspec

from exactlog.core.deltalog.commit_format import Operation
from exactlog.core.deltalog.log_path import SegmentFileKind, parse_segment_file_name
from exactlog.core.model.errors import DamageError
from exactlog.core.model.ids import Offset


class TableSegment(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A segment as the delta log knows it: the bytes of the file `name` from 0 to `size` count.

    Attributes:
        name: of its `.log` file.
        base: its first offset.
        next_offset: the offset after its last one, exclusive end.
        size: how many bytes of the file count.
    """

    name: str
    base: Offset
    next_offset: Offset
    size: int


def is_rewritten(segment_name: str) -> bool:
    """Whether the name of a segment says that compaction has made it: then there may be gaps between its batches."""
    parsed = parse_segment_file_name(segment_name)
    return parsed is not None and parsed.generation > 0


def rewrite_segments(segments: Sequence[TableSegment], operations: Sequence[Operation]) -> list[TableSegment]:
    """The segments of a table after a rewriting version.

    Raises:
        DamageError: what it adds is not what can stand in the place of what it removes; says why.
    """
    by_name = {segment.name: segment for segment in segments}
    active = segments[-1].name if segments else ""
    for operation in operations:
        if operation.type == "remove":
            removed = by_name.pop(operation.segment, None)
            if removed is None:
                raise DamageError(f"it rewrites {operation.segment}, which is not in the table")
            if removed.name == active:
                raise DamageError(f"it rewrites {active}, the active segment")
            check_is_whole(operation, removed)
    added = [_added_by(operation) for operation in operations if operation.type == "add"]
    for segment in added:
        if by_name.setdefault(segment.name, segment) is not segment:
            raise DamageError(f"it adds {segment.name}, which is in the table")
    rewritten = sorted(by_name.values(), key=_base_of)
    next_offset = segments[0].base
    for segment in rewritten:
        if segment.base != next_offset:
            raise DamageError(f"with it {segment.name} is to follow offset {next_offset - 1}")
        next_offset = segment.next_offset
    return rewritten


def check_is_whole(operation: Operation, segment: TableSegment) -> None:
    """Whether an operation removes the whole of a segment.

    Raises:
        DamageError: it does not.
    """
    told = operation.offset_start, operation.offset_end + 1, operation.position, operation.size
    if told != (segment.base, segment.next_offset, 0, segment.size):
        raise DamageError(f"it removes a part of {segment.name}; segments go whole")


def _added_by(operation: Operation) -> TableSegment:
    name = parse_segment_file_name(operation.segment)
    if name is None or name.kind is not SegmentFileKind.LOG or not name.generation:
        raise DamageError(f"{operation.segment!r} is not the name of a rewritten segment")
    if operation.position != 0 or name.base != operation.offset_start or operation.offset_end < operation.offset_start:
        raise DamageError(f"a rewritten segment begins at byte 0 and is named after its first offset, {name.base}")
    next_offset = Offset(operation.offset_end + 1)
    return TableSegment(
        name=operation.segment, base=operation.offset_start, next_offset=next_offset, size=operation.size
    )


def _base_of(segment: TableSegment) -> Offset:
    return segment.base
