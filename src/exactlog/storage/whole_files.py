"""Writing a small file so that it is seen whole or not at all.

Content gets its bytes under a temporary name (one that starts with `.`), is synced, and only then gets its real name:
a crash leaves at most a temporary file, which recovery sweeps away. With `durable` unset nothing is synced (flush modes
`interval` and `none`).
"""

from exactlog.core.deltalog.log_path import print_temporary_name
from exactlog.storage.fault_points import (
    PUBLISH_AFTER_DIRECTORY_SYNC,
    PUBLISH_AFTER_LINK,
    PUBLISH_AFTER_UNLINK,
    PUBLISH_AFTER_WRITE,
    PUBLISH_BEFORE_LINK,
    RenamePoints,
)
from exactlog.storage.filesystem import File, Filesystem


class SyncFailedError(OSError):
    """A sync failed, or what only a sync could tell is unknown: nobody may go on as if it were good."""


def publish_new(filesystem: Filesystem, directory: str, name: str, content: bytes, *, durable: bool) -> None:
    """Gives `content` a name that must be free: atomic and exclusive, as `link()` is. So delta commits are published.

    Raises:
        FileExistsError: the name is taken; nothing was changed.
        SyncFailedError: the name may or may not be there after a crash.
        OSError: the file could not be written; nothing was changed.
    """
    write_aside(filesystem, directory, name, content, durable=durable)
    publish_aside(filesystem, directory, name, durable=durable)


def write_aside(filesystem: Filesystem, directory: str, name: str, content: bytes, *, durable: bool) -> None:
    """The first half of `publish_new`: the whole content under a temporary name, which is made known as that of `name`.

    Raises:
        SyncFailedError: the file may be there in part.
        OSError: the file could not be written; nothing was changed.
    """
    _, file = _write_aside(filesystem, directory, name, content)
    PUBLISH_AFTER_WRITE.reach()
    if durable:
        sync_file(file)


def publish_aside(filesystem: Filesystem, directory: str, name: str, *, durable: bool) -> None:
    """The second half of `publish_new`, and raises as it does; then the temporary name is gone too."""
    aside = f"{directory}/{print_temporary_name(name)}"
    try:
        PUBLISH_BEFORE_LINK.reach()
        filesystem.link(aside, f"{directory}/{name}")
    except OSError:
        _remove_aside(filesystem, aside)
        raise
    PUBLISH_AFTER_LINK.reach()
    _remove_aside(filesystem, aside)
    PUBLISH_AFTER_UNLINK.reach()
    if durable:
        sync_names(filesystem, directory)
        PUBLISH_AFTER_DIRECTORY_SYNC.reach()


def replace(
    filesystem: Filesystem,
    directory: str,
    name: str,
    content: bytes,
    *,
    durable: bool,
    points: RenamePoints | None = None,
) -> None:
    """Gives `content` a name, whoever had it before; raises as `publish_new` does.

    Args:
        points: the fault points of this rename, if it has any.
    """
    aside, file = _write_aside(filesystem, directory, name, content)
    if durable:
        sync_file(file)
    try:
        if points is not None:
            points.before.reach()
        filesystem.rename(aside, f"{directory}/{name}")
    except OSError:
        _remove_aside(filesystem, aside)
        raise
    if points is not None:
        points.after.reach()
    if durable:
        sync_names(filesystem, directory)


def sync_file(file: File) -> None:
    """Makes the content of a file durable.

    Raises:
        SyncFailedError: whether it is cannot be told.
    """
    try:
        file.sync()
    except OSError as error:
        raise SyncFailedError(*error.args) from error


def sync_data(file: File) -> None:
    """Makes the bytes of a file durable, and its size; raises as `sync_file` does."""
    try:
        file.sync_data()
    except OSError as error:
        raise SyncFailedError(*error.args) from error


def sync_names(filesystem: Filesystem, directory: str) -> None:
    """Makes the names in a directory durable.

    Raises:
        SyncFailedError: whether they are cannot be told.
    """
    try:
        filesystem.sync_directory(directory)
    except OSError as error:
        raise SyncFailedError(*error.args) from error


def remove_aside(filesystem: Filesystem, directory: str, name: str) -> None:
    """Takes back what `write_aside` did, or nothing.

    Raises:
        SyncFailedError: it may still be there.
    """
    _remove_aside(filesystem, f"{directory}/{print_temporary_name(name)}")


def remove_tree(filesystem: Filesystem, directory: str) -> None:
    """Removes a directory of files and of directories of files."""
    for name in filesystem.list_names(directory):
        path = f"{directory}/{name}"
        try:
            filesystem.remove(path)
        except (IsADirectoryError, FileNotFoundError, PermissionError):
            remove_tree(filesystem, path)
    filesystem.remove_directory(directory)


def _write_aside(filesystem: Filesystem, directory: str, name: str, content: bytes) -> tuple[str, File]:
    """The temporary name, and the file that has it."""
    aside = f"{directory}/{print_temporary_name(name)}"
    try:
        file = filesystem.open(aside, create=True)
        file.truncate(0)
        file.write_at((content,), 0)
    except OSError:  # a full disk, above all: what was begun would make it fuller
        _remove_aside(filesystem, aside)
        raise
    return aside, file


def _remove_aside(filesystem: Filesystem, aside: str) -> None:
    try:
        filesystem.remove(aside)
    except FileNotFoundError:
        pass  # it was refused before it was made
    except OSError as error:
        raise SyncFailedError(*error.args) from error
