"""A file system that notes what is done to another one, and lets a test step in before each operation."""

from exactlog.testing.operation_log import Operation, OperationLog


class CountingFilesystem(OperationLog):
    """Passes everything on and keeps a list of it."""

    def __init__(self, filesystem) -> None:
        super().__init__()
        self._filesystem = filesystem

    # --- the port ---------------------------------------------------------------------------------------------

    def open(self, path, *, create=False, exclusive=False, read_only=False):
        self.note(Operation("create" if create else "open", path))
        file = self._filesystem.open(path, create=create, exclusive=exclusive, read_only=read_only)
        return _CountingFile(file, path, self)

    def read_file(self, path):
        content = self._filesystem.read_file(path)
        self.note(Operation("read_file", path, len(content)))
        return content

    def exists(self, path):
        self.note(Operation("exists", path))
        return self._filesystem.exists(path)

    def file_size(self, path):
        self.note(Operation("file_size", path))
        return self._filesystem.file_size(path)

    def list_names(self, directory):
        self.note(Operation("list_names", directory))
        return self._filesystem.list_names(directory)

    def make_directories(self, path):
        self.note(Operation("make_directories", path))
        self._filesystem.make_directories(path)

    def remove(self, path):
        self.note(Operation("remove", path))
        self._filesystem.remove(path)

    def remove_directory(self, path):
        self.note(Operation("remove_directory", path))
        self._filesystem.remove_directory(path)

    def rename(self, source, target):
        self.note(Operation("rename", target))
        self._filesystem.rename(source, target)

    def link(self, source, target):
        self.note(Operation("link", target))
        self._filesystem.link(source, target)

    def sync_directory(self, path):
        self.note(Operation("sync_directory", path))
        self._filesystem.sync_directory(path)

    def open_tree(self, path):
        return _CountingFileTree(self._filesystem.open_tree(path), path, self)


class _CountingFileTree:
    def __init__(self, tree, path, filesystem) -> None:
        self._tree = tree
        self._path = path
        self._filesystem = filesystem

    def sync_all(self):
        self._filesystem.note(Operation("sync_all", self._path))
        self._tree.sync_all()


class _CountingFile:
    def __init__(self, file, path, filesystem) -> None:
        self._file = file
        self._path = path
        self._filesystem = filesystem

    def write_at(self, buffers, position):
        self._filesystem.note(Operation("write_at", self._path, sum(map(len, buffers))))
        self._file.write_at(buffers, position)

    def read_at(self, size, position):
        content = self._file.read_at(size, position)
        self._filesystem.note(Operation("read_at", self._path, len(content)))
        return content

    def truncate(self, size):
        self._filesystem.note(Operation("truncate", self._path))
        self._file.truncate(size)

    def sync_data(self):
        self._filesystem.note(Operation("sync_data", self._path))
        self._file.sync_data()

    def sync(self):
        self._filesystem.note(Operation("sync", self._path))
        self._file.sync()

    def size(self):
        self._filesystem.note(Operation("size", self._path))
        return self._file.size()
