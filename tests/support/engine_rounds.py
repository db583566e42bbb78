"""Rounds for a durability engine, made by hand, and what is on the disk after them."""

from exactlog.storage.files_engine import FilesEngine
from exactlog.storage.filesystem import MemoryFilesystem
from exactlog.storage.journal import Journal
from exactlog.storage.journal_engine import JournalEngine
from exactlog.storage.open_files import OpenFiles
from exactlog.storage.round import CommitWrite, GroupWrite, PartitionWrite, SegmentWrite, Stored
from tests.support.counting_filesystem import CountingFilesystem
from tests.unit.core.deltalog.histories import History

NAME = "orders-0"
ROOT = "/data"
DIRECTORY = f"{ROOT}/topic=orders-part=0"
DELTA_LOG = f"{DIRECTORY}/_delta_log"
OTHER_NAME = "orders-1"
OTHER_DIRECTORY = f"{ROOT}/topic=orders-part=1"
JOURNAL = f"{ROOT}/journal"
SYNCS = {"sync", "sync_data", "sync_directory", "sync_all"}
WRITES = {"create", "write_at", "truncate", "link"}


def watched_filesystem():
    """An empty data directory with two partitions; it notes what is done to it from here on."""
    filesystem = CountingFilesystem(MemoryFilesystem())
    for directory in (DELTA_LOG, f"{OTHER_DIRECTORY}/_delta_log", JOURNAL):
        filesystem.make_directories(directory)
    filesystem.clear()
    return filesystem


def files_engine(filesystem):
    return FilesEngine(filesystem, OpenFiles(filesystem, files_max=100))


def journal_engine(filesystem):
    journal = Journal(filesystem, ROOT, number=1, sequence=1)
    return JournalEngine(filesystem, OpenFiles(filesystem, files_max=100), journal)


class Rounds:
    """Makes the groups of one partition, one after the other: each has bytes and the delta commit that names them."""

    def __init__(self, *, directory=DIRECTORY, name=NAME):
        self.directory = directory
        self.name = name
        self.history = History()
        self.history.commit()

    def group(self, size=10, *, new_segment=False):
        is_first = new_segment or not self.history.segments
        operation = self.history.add(size=size, new_segment=new_segment)
        decoded = self.history.commit(operation)
        content = b"%d" % decoded.commit.version * size
        segment = SegmentWrite(
            f"{self.directory}/{operation.segment}", operation.position, [content[:4], content[4:size]], is_first
        )
        document = self.history.documents[-1]
        name = f"{decoded.commit.version:020d}.json"
        return GroupWrite((segment,), CommitWrite(decoded.commit.version, name, document, decoded.commit.txn_id))

    def three_groups(self):
        """Two in one segment, and one in the next."""
        return [self.group(), self.group(), self.group(new_segment=True)]

    def write(self, *groups, durable=True, is_tied=False):
        size_bytes = sum(len(buffer) for group in groups for part in group.segments for buffer in part.buffers)
        return PartitionWrite(self.name, self.directory, groups, size_bytes, durable, is_tied=is_tied)


def other_rounds():
    """Those of another partition."""
    return Rounds(directory=OTHER_DIRECTORY, name=OTHER_NAME)


def clean(engine, filesystem, *rounds):
    """A first group in place in each partition, and nothing noted."""
    writes = [each.write(each.group()) for each in rounds]
    assert engine.commit(writes) == [Stored()] * len(writes)
    filesystem.clear()


def content_of(filesystem):
    """Every file of partitions by its name, with its bytes."""
    files = filesystem._filesystem._files
    return {path: file.read_at(file.size(), 0) for path, file in files.items() if not path.startswith(JOURNAL)}


def content_with(before, *groups):
    """What is there once these groups are in place too."""
    after = dict(before)
    for group in groups:
        for segment in group.segments:
            after[segment.path] = after.get(segment.path, b"") + b"".join(segment.buffers)
            delta_log = f"{segment.path.rpartition('/')[0]}/_delta_log"
            after[f"{delta_log}/{group.commit.name}"] = group.commit.content
    return after


def first(filesystem, name, path_end):
    """The place of the first operation of that kind on such a path."""
    return next(
        place
        for place, operation in enumerate(filesystem.operations)
        if operation.name == name and operation.path.endswith(path_end)
    )


def documents_of(*groups):
    """What is left to do of groups whose documents could not get their names."""
    return [GroupWrite((), group.commit) for group in groups]


def failing_at(step, kinds, error):
    """What lets the operation of some kinds whose turn it is fail, once; it says so in `met`."""

    def before(operation):
        if operation.name in kinds:
            if before.count == step:
                before.met.append(operation)
                before.count += 1
                raise error
            before.count += 1

    before.count, before.met = 0, []
    return before
