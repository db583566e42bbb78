"""What a crash leaves beside a table: found when a partition is opened, and taken away as far as nobody can need it."""

import logging
from collections.abc import Iterable

from exactlog.core.deltalog.log_path import (
    SegmentFileKind,
    is_temporary_name,
    parse_segment_file_name,
    print_segment_file_name,
)
from exactlog.storage.filesystem import Filesystem
from exactlog.storage.segment import SegmentFiles

_logger = logging.getLogger(__name__)


def sweep_leftovers(files: SegmentFiles, directory: str, *, segments: Iterable[str], end_offset: int) -> list[str]:
    """Removes files that never got their name, segments of no version behind the end, indexes without a segment.

    Segments below the end that are not in the table any more stay: a start from an older checkpoint may need them.
    Foreign names stay, whatever they are.

    Args:
        segments: the names of those in the table.
        end_offset: where the table ends.

    Returns:
        the names of the segments that were removed from the table, by base offset.
    """
    in_table = set(segments)
    names = files.filesystem.list_names(directory)
    there = set(names)
    removed = []
    for name in names:
        parsed = parse_segment_file_name(name)
        if is_temporary_name(name):
            remove_temporary(files.filesystem, f"{directory}/{name}")
        if parsed is None:
            continue
        segment = print_segment_file_name(parsed.base, generation=parsed.generation)
        if segment in in_table:
            continue
        if parsed.base >= end_offset or segment not in there:
            files.forget(f"{directory}/{name}")
            files.filesystem.remove(f"{directory}/{name}")
        elif parsed.kind is SegmentFileKind.LOG:
            removed.append(name)
    return sorted(removed)


def remove_temporary(filesystem: Filesystem, path: str) -> None:
    """Removes a file that never got its name; a directory is not ours, and stays."""
    try:
        filesystem.remove(path)
    except (IsADirectoryError, PermissionError) as error:
        _logger.warning("%s stays, and is no part of the table: %s", path, error)
