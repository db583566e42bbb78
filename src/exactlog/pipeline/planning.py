"""Which task reads what: large pieces are cut between batches, small ones of one partition go together.

A task reads pieces of one partition only, so that there are at least as many tasks as partitions with rows.
"""

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from exactlog.pipeline.source import Slice, Source


def plan_tasks(source: Source, pieces: Iterable[Slice], *, bytes_max: int | None) -> list[tuple[Slice, ...]]:
    """What each task reads, in the order of the pieces.

    Args:
        source: says where a piece can be cut.
        pieces: of any partitions; those without offsets are left out. Where one has a `first_row`, so have all parts.
        bytes_max: about how much of the log a task reads; a batch is never cut. None: each piece is one task.
    """
    if bytes_max is None:
        return [(piece,) for piece in pieces if piece.start_offset < piece.end_offset]
    parts: list[Slice] = []
    for piece in pieces:
        if piece.start_offset < piece.end_offset:
            cut = source.split(piece, bytes_max=bytes_max)
            parts += cut if piece.first_row is None else number_rows(source, cut, first_row=piece.first_row)
    return list(pack(parts, bytes_max=bytes_max))


def pack(pieces: Sequence[Slice], *, bytes_max: int) -> Iterator[tuple[Slice, ...]]:
    """Pieces that follow each other, together as far as they are of one partition and no larger than so many bytes.

    Those of unknown size (0) stay alone.
    """
    task: list[Slice] = []
    size = 0
    for piece in pieces:
        is_joined = (
            bool(task)
            and (piece.topic, piece.partition) == (task[0].topic, task[0].partition)
            and size > 0
            and 0 < piece.size_bytes <= bytes_max - size
        )
        if task and not is_joined:
            yield tuple(task)
            task, size = [], 0
        task.append(piece)
        size += piece.size_bytes
    if task:
        yield tuple(task)


def number_rows(source: Source, pieces: Sequence[Slice], *, first_row: int) -> list[Slice]:
    """The same pieces of one partition, each with the `row_seq` of its first row.

    Args:
        source: counts rows.
        pieces: in the order of offsets.
        first_row: the `row_seq` of the first row of the first.
    """
    numbered: list[Slice] = []
    for piece in pieces:
        if numbered:
            first_row += source.count_rows(numbered[-1])
        numbered.append(replace(piece, first_row=first_row))
    return numbered


def narrow(piece: Slice, *, start_offset: int, end_offset: int) -> Slice:
    """The part of a piece between two offsets; without offsets where they leave nothing of it.

    Its size is its share by offsets. It has no first row: that is to be counted.
    """
    start = min(max(piece.start_offset, start_offset), piece.end_offset)
    end = max(start, min(piece.end_offset, end_offset))
    share = (end - start) / max(1, piece.end_offset - piece.start_offset)
    return replace(
        piece, start_offset=start, end_offset=end, first_row=None, size_bytes=round(piece.size_bytes * share)
    )
