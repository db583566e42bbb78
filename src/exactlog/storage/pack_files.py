"""Writing a pack of delta commits so that it is seen whole or not at all, however large it is."""

from collections.abc import Iterable

from exactlog.core.deltalog.log_path import CompactedName, print_compacted_name, print_temporary_name
from exactlog.core.model.errors import DamageError
from exactlog.storage.fault_points import PACK_AFTER_RENAME, PACK_BEFORE_RENAME
from exactlog.storage.filesystem import File, Filesystem
from exactlog.storage.whole_files import SyncFailedError, remove_aside, sync_file, sync_names

_WRITE_BYTES = 1024 * 1024


def print_pack_name(pack: CompactedName) -> str:
    """The name of a pack's file."""
    return print_compacted_name(first_version=pack.first_version, last_version=pack.last_version)


def publish_pack(filesystem: Filesystem, directory: str, pack: CompactedName, lines: Iterable[bytes]) -> None:
    """Gives lines the name of a pack, which must be free; durable when this returns.

    Args:
        lines: asked for one by one; what they raise leaves nothing behind.

    Raises:
        FileExistsError: the name is taken; nothing was changed.
        SyncFailedError: the name may or may not be there after a crash.
        OSError: the file could not be written; nothing was changed.
    """
    name = print_pack_name(pack)
    aside = f"{directory}/{print_temporary_name(name)}"
    try:
        file = filesystem.open(aside, create=True)
        file.truncate(0)
        _write(file, lines)
        sync_file(file)
        PACK_BEFORE_RENAME.reach()
        filesystem.link(aside, f"{directory}/{name}")
    except SyncFailedError:
        raise
    except (OSError, DamageError):
        remove_aside(filesystem, directory, name)
        raise
    PACK_AFTER_RENAME.reach()
    remove_aside(filesystem, directory, name)
    sync_names(filesystem, directory)


def _write(file: File, lines: Iterable[bytes]) -> None:
    position, size = 0, 0
    waiting: list[bytes] = []
    for line in lines:
        waiting.append(line)
        size += len(line)
        if size >= _WRITE_BYTES:
            file.write_at(waiting, position)
            position, size, waiting = position + size, 0, []
    if waiting:
        file.write_at(waiting, position)
