"""Writing a small file so that it is seen whole or not at all.

Content gets its bytes under a temporary name (one that starts with `.`), is synced, and only then gets its real name:
a crash leaves at most a temporary file, which recovery sweeps away. With `durable` unset nothing is synced (flush modes
`interval` and `none`).
"""

from exactlog.core.deltalog.log_path import print_temporary_name
from exactlog.storage.filesystem import Filesystem


class SyncFailedError(OSError):
    """A sync failed, or what only a sync could tell is unknown: nobody may go on as if it were good."""


def publish_new(filesystem: Filesystem, directory: str, name: str, content: bytes, *, durable: bool) -> None:
    """Gives `content` a name that must be free: atomic and exclusive, as `link()` is.

    Raises:
        FileExistsError: the name is taken; nothing was changed.
        SyncFailedError: the name may or may not be there after a crash.
        OSError: the file could not be written; nothing was changed.
    """
    aside = _write_aside(filesystem, directory, name, content, durable=durable)
    try:
        filesystem.link(aside, f"{directory}/{name}")
    finally:
        _remove_aside(filesystem, aside)
    if durable:
        _sync_directory(filesystem, directory)


def replace(filesystem: Filesystem, directory: str, name: str, content: bytes, *, durable: bool) -> None:
    """Gives `content` a name, whoever had it before; raises as `publish_new` does."""
    aside = _write_aside(filesystem, directory, name, content, durable=durable)
    try:
        filesystem.rename(aside, f"{directory}/{name}")
    except OSError:
        _remove_aside(filesystem, aside)
        raise
    if durable:
        _sync_directory(filesystem, directory)


def remove_tree(filesystem: Filesystem, directory: str) -> None:
    """Removes a directory of files and of directories of files."""
    for name in filesystem.list_names(directory):
        path = f"{directory}/{name}"
        try:
            filesystem.remove(path)
        except (IsADirectoryError, FileNotFoundError, PermissionError):
            remove_tree(filesystem, path)
    filesystem.remove_directory(directory)


def _write_aside(filesystem: Filesystem, directory: str, name: str, content: bytes, *, durable: bool) -> str:
    aside = f"{directory}/{print_temporary_name(name)}"
    try:
        file = filesystem.open(aside, create=True)
        file.truncate(0)
        file.write_at((content,), 0)
    except OSError:  # a full disk, above all: what was begun would make it fuller
        _remove_aside(filesystem, aside)
        raise
    if durable:
        try:
            file.sync()
        except OSError as error:
            raise SyncFailedError(*error.args) from error
    return aside


def _remove_aside(filesystem: Filesystem, aside: str) -> None:
    try:
        filesystem.remove(aside)
    except FileNotFoundError:
        pass  # it was refused before it was made
    except OSError as error:
        raise SyncFailedError(*error.args) from error


def _sync_directory(filesystem: Filesystem, directory: str) -> None:
    try:
        filesystem.sync_directory(directory)
    except OSError as error:
        raise SyncFailedError(*error.args) from error
