"""Files of a file system, whole trees of them."""


def make_directories(files, *paths):
    """Directories of the root whose names are certain."""
    for path in paths:
        files.make_directories(path)
    files.sync_directory("/")


def written(files, path, content=b"", *, synced=True):
    """A file with some content; its name is not synced."""
    file = files.open(path, create=True)
    file.write_at((content,), 0)
    if synced:
        file.sync()
    return file


def tree(files, path=""):
    """The content of all files below a directory, by path; None for each directory."""
    found = {}
    for name in files.list_names(path or "/"):
        here = f"{path}/{name}"
        try:
            found[here] = files.read_file(here)
        except IsADirectoryError:
            found |= {here: None, **tree(files, here)}
    return found


def files_below(files):
    """The content of all files, by path."""
    return {path: content for path, content in tree(files).items() if content is not None}
