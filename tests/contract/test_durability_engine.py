"""What every durability engine does with a round, whatever lies behind it."""

import errno
import json

import pytest

from exactlog.core.deltalog.commit_format import decode_commit
from exactlog.core.deltalog.table_state import TableState
from exactlog.storage.files_engine import FilesEngine
from exactlog.storage.filesystem import MemoryFilesystem
from exactlog.storage.open_files import OpenFiles
from exactlog.storage.round import (
    CommitWrite,
    ForeignVersion,
    GroupWrite,
    PartitionWrite,
    SegmentWrite,
    StorageRefused,
    Stored,
    SyncFailed,
)
from tests.support.counting_filesystem import CountingFilesystem
from tests.unit.core.deltalog.histories import History

NAME = "orders-0"
DIRECTORY = "/data/topic=orders-part=0"
DELTA_LOG = f"{DIRECTORY}/_delta_log"
SYNCS = {"sync", "sync_data", "sync_directory"}
WRITES = {"create", "write_at", "truncate", "link"}


@pytest.fixture
def filesystem():
    filesystem = CountingFilesystem(MemoryFilesystem())
    for directory in (DELTA_LOG, "/data/topic=orders-part=1/_delta_log"):
        filesystem.make_directories(directory)
    filesystem.clear()
    return filesystem


@pytest.fixture(params=[FilesEngine])
def engine(request, filesystem):
    engine = request.param(filesystem, OpenFiles(filesystem, files_max=100))
    yield engine
    engine.close()


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

    def write(self, *groups, durable=True):
        size_bytes = sum(len(buffer) for group in groups for part in group.segments for buffer in part.buffers)
        return PartitionWrite(self.name, self.directory, groups, size_bytes, durable)


@pytest.fixture
def rounds():
    return Rounds()


def clean(engine, filesystem, rounds):
    """A first group in place, and nothing noted."""
    assert engine.commit([rounds.write(rounds.group())]) == [Stored()]
    filesystem.clear()


def content_of(filesystem):
    """Every file by its name, with its bytes."""
    files = filesystem._filesystem._files
    return {path: file.read_at(file.size(), 0) for path, file in files.items()}


def first(filesystem, name, path_end):
    """The place of the first operation of that kind on such a path."""
    return next(
        place
        for place, operation in enumerate(filesystem.operations)
        if operation.name == name and operation.path.endswith(path_end)
    )


# --- what is in place afterwards ---------------------------------------------------------------------------------


def test_an_engine_says_whether_it_is_atomic_across_partitions(engine):
    assert engine.is_atomic_across_partitions in (True, False)


def test_an_empty_round_has_no_outcome(engine, filesystem):
    assert engine.commit([]) == []
    assert filesystem.operations == []


@pytest.mark.parametrize("durable", [True, False])
def test_bytes_and_documents_are_in_place(engine, filesystem, rounds, durable):
    groups = [rounds.group(), rounds.group(), rounds.group(new_segment=True)]

    assert engine.commit([rounds.write(*groups, durable=durable)]) == [Stored()]

    files = content_of(filesystem)
    assert files == {
        f"{DIRECTORY}/00000000000000000000.log": b"1" * 10 + b"2" * 10,
        f"{DIRECTORY}/00000000000000000002.log": b"3" * 10,
        f"{DELTA_LOG}/00000000000000000001.json": rounds.history.documents[1],
        f"{DELTA_LOG}/00000000000000000002.json": rounds.history.documents[2],
        f"{DELTA_LOG}/00000000000000000003.json": rounds.history.documents[3],
    }


def test_the_next_round_goes_on_where_the_last_one_ended(engine, filesystem, rounds):
    for _ in range(3):
        assert engine.commit([rounds.write(rounds.group())]) == [Stored()]

    assert filesystem.read_file(f"{DIRECTORY}/00000000000000000000.log") == b"1" * 10 + b"2" * 10 + b"3" * 10


def test_what_was_committed_replays_into_a_table(engine, filesystem, rounds):
    engine.commit([rounds.write(rounds.group(), rounds.group(new_segment=True))])

    table = TableState(table=NAME)
    table.replay(rounds.history.commits[0])
    for version in (1, 2):
        path = f"{DELTA_LOG}/{version:020d}.json"
        table.replay(decode_commit(filesystem.read_file(path), path_hint=path))

    assert [(segment.name, segment.size) for segment in table.segments] == [
        ("00000000000000000000.log", 10),
        ("00000000000000000001.log", 10),
    ]


def test_each_partition_has_its_own_outcome(engine, filesystem, rounds):
    other = Rounds(directory="/data/topic=orders-part=1", name="orders-1")

    def refuse(operation):
        if operation.name == "write_at" and operation.path.startswith(other.directory):
            raise OSError(errno.ENOSPC, "No space left on device")

    filesystem.before = refuse
    outcomes = engine.commit([rounds.write(rounds.group()), other.write(other.group()), rounds.write()])
    filesystem.before = lambda operation: None

    assert outcomes[0] == outcomes[2] == Stored()
    assert isinstance(outcomes[1], StorageRefused)
    assert "orders-1" in outcomes[1].reason
    assert "No space left" in outcomes[1].reason
    assert all(path.startswith(DIRECTORY) for path in content_of(filesystem))


def test_bytes_alone_and_a_document_alone_are_rounds_too(engine, filesystem, rounds):
    """Flush modes `interval` and `none`: the version follows later."""
    group = rounds.group()

    assert engine.commit([rounds.write(GroupWrite(group.segments, None), durable=False)]) == [Stored()]
    assert filesystem.list_names(DELTA_LOG) == []
    assert engine.commit([rounds.write(GroupWrite((), group.commit), durable=False)]) == [Stored()]

    assert filesystem.list_names(DELTA_LOG) == [group.commit.name]
    assert not SYNCS.intersection(filesystem.names())


# --- the order of operations -------------------------------------------------------------------------------------


def test_bytes_are_synced_before_any_document_names_them_and_names_last(engine, filesystem, rounds):
    engine.commit([rounds.write(rounds.group(), rounds.group())])

    steps = [
        first(filesystem, "write_at", "0.log"),
        first(filesystem, "sync_data", "0.log"),
        first(filesystem, "sync_directory", DIRECTORY),  # the segment is new: its name too
        first(filesystem, "write_at", "1.json.tmp"),
        first(filesystem, "sync", "1.json.tmp"),
        first(filesystem, "link", "1.json"),
        first(filesystem, "sync_directory", "_delta_log"),
        first(filesystem, "write_at", "2.json.tmp"),
        first(filesystem, "sync", "2.json.tmp"),
        first(filesystem, "link", "2.json"),
    ]
    assert steps == sorted(steps)
    assert filesystem.operations[-1] == ("sync_directory", DELTA_LOG, 0)


def test_the_segments_of_all_groups_are_written_and_synced_before_the_first_document(engine, filesystem, rounds):
    engine.commit([rounds.write(rounds.group(), rounds.group(new_segment=True))])

    first_document = first(filesystem, "create", "1.json.tmp")
    for segment in ("00000000000000000000.log", "00000000000000000001.log"):
        assert first(filesystem, "write_at", segment) < first(filesystem, "sync_data", segment) < first_document


def test_a_segment_that_exists_costs_no_sync_of_its_directory(engine, filesystem, rounds):
    clean(engine, filesystem, rounds)

    engine.commit([rounds.write(rounds.group())])

    assert ("sync_directory", DIRECTORY, 0) not in filesystem.operations
    assert filesystem.names("sync_data", "sync", "sync_directory") == ["sync_data", "sync", "sync_directory"]


def test_groups_that_follow_each_other_in_a_segment_are_one_write_and_one_sync(engine, filesystem, rounds):
    clean(engine, filesystem, rounds)

    engine.commit([rounds.write(*(rounds.group() for _ in range(5)))])

    on_segment = [operation.name for operation in filesystem.operations if operation.path.endswith(".log")]
    assert on_segment.count("write_at") == 1
    assert on_segment.count("sync_data") == 1


def test_no_document_is_ever_seen_half_written(engine, filesystem, rounds):
    """Whoever lists the directory before any operation finds whole documents under their names, in order, no gap."""
    groups = [rounds.group(), rounds.group(), rounds.group()]
    seen = []

    def look(operation):
        names = sorted(name for name in filesystem._filesystem.list_names(DELTA_LOG) if not name.startswith("."))
        assert names == [f"{version:020d}.json" for version in range(1, len(names) + 1)]
        for name in names:
            decode_commit(filesystem._filesystem.read_file(f"{DELTA_LOG}/{name}"), path_hint=name)
        seen.append(len(names))

    filesystem.before = look
    engine.commit([rounds.write(*groups)])

    assert set(seen) == {0, 1, 2, 3}


# --- a name that is taken ----------------------------------------------------------------------------------------


def test_our_own_document_under_the_name_is_our_earlier_success(engine, filesystem, rounds):
    write = rounds.write(rounds.group(), rounds.group())
    assert engine.commit([write]) == [Stored()]
    before = content_of(filesystem)

    assert engine.commit([write]) == [Stored()]

    assert content_of(filesystem) == before


def test_a_foreign_document_under_the_name_stops_the_partition_and_both_are_named(engine, filesystem, rounds):
    group = rounds.group()
    theirs = json.loads(group.commit.content)
    stranger = History()
    stranger.commit()
    stranger.commit(stranger.add(size=10), txn_id="broker-7:1762539302883:1")
    path = f"{DELTA_LOG}/{group.commit.name}"
    filesystem.open(path, create=True).write_at((stranger.documents[1],), 0)

    (outcome,) = engine.commit([rounds.write(group, rounds.group())])

    assert isinstance(outcome, ForeignVersion)
    assert (outcome.version, outcome.our_txn_id, outcome.their_txn_id) == (
        1,
        theirs["txn_id"],
        "broker-7:1762539302883:1",
    )
    assert path in outcome.reason
    assert filesystem.read_file(path) == stranger.documents[1]
    assert filesystem.list_names(DELTA_LOG) == [group.commit.name], "nothing is published behind it, nothing left aside"


@pytest.mark.parametrize("rival", [b"", b"{", b"not a document\n"])
def test_an_unreadable_document_under_the_name_stops_the_partition_too(engine, filesystem, rounds, rival):
    group = rounds.group()
    filesystem.open(f"{DELTA_LOG}/{group.commit.name}", create=True).write_at((rival,), 0)

    (outcome,) = engine.commit([rounds.write(group)])

    assert isinstance(outcome, ForeignVersion)
    assert outcome.version == 1
    assert group.commit.name in outcome.reason


# --- a refused write ---------------------------------------------------------------------------------------------


def refusals(rounds_of_groups):
    """How many operations that write or name something a round of such groups has."""
    filesystem = CountingFilesystem(MemoryFilesystem())
    filesystem.make_directories(DELTA_LOG)
    engine = FilesEngine(filesystem, OpenFiles(filesystem, files_max=100))
    rounds = Rounds()
    clean(engine, filesystem, rounds)
    engine.commit([rounds.write(*rounds_of_groups(rounds))])
    engine.close()
    return sum(name in WRITES for name in filesystem.names())


def three_groups(rounds):
    return [rounds.group(), rounds.group(), rounds.group(new_segment=True)]


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("step", range(refusals(three_groups)))
def test_a_full_disk_at_any_write_leaves_whole_groups_and_nothing_of_the_refused_ones(
    engine, filesystem, rounds, step, durable
):
    clean(engine, filesystem, rounds)
    before = content_of(filesystem)
    write = rounds.write(*three_groups(rounds), durable=durable)
    steps = iter(range(1_000))

    def refuse(operation):
        if operation.name in WRITES and next(steps) == step:
            raise OSError(errno.ENOSPC, "No space left on device", operation.path)

    filesystem.before = refuse
    (outcome,) = engine.commit([write])
    filesystem.before = lambda operation: None

    assert isinstance(outcome, StorageRefused)
    assert "No space left on device" in outcome.reason
    assert NAME in outcome.reason
    after = content_of(filesystem)
    stored = write.groups[: outcome.groups_stored]
    expected = dict(before)
    for group in stored:
        (segment,) = group.segments
        expected[segment.path] = expected.get(segment.path, b"") + b"".join(segment.buffers)
        expected[f"{DELTA_LOG}/{group.commit.name}"] = group.commit.content
    assert after == expected


def test_what_was_refused_can_be_written_again(engine, filesystem, rounds):
    write = rounds.write(*three_groups(rounds))

    def refuse(operation):
        if operation.name == "link" and operation.path.endswith("2.json"):
            raise OSError(errno.ENOSPC, "No space left on device")

    filesystem.before = refuse
    assert engine.commit([write]) == [StorageRefused("orders-0: [Errno 28] No space left on device", 1)]
    filesystem.before = lambda operation: None
    rest = rounds.write(*write.groups[1:])

    assert engine.commit([rest]) == [Stored()]

    assert sorted(filesystem.list_names(DELTA_LOG)) == [f"{version:020d}.json" for version in (1, 2, 3)]
    assert filesystem.read_file(f"{DIRECTORY}/00000000000000000000.log") == b"1" * 10 + b"2" * 10


def test_a_refused_write_that_cannot_be_cut_off_is_as_final_as_a_failed_sync(engine, filesystem, rounds):
    clean(engine, filesystem, rounds)

    def refuse(operation):
        if operation.name == "link" or (operation.name == "truncate" and operation.path.endswith(".log")):
            raise OSError(errno.EIO, "Input/output error")

    filesystem.before = refuse
    (outcome,) = engine.commit([rounds.write(rounds.group())])

    assert isinstance(outcome, SyncFailed)


# --- a failed sync -----------------------------------------------------------------------------------------------


def count_syncs():
    filesystem = CountingFilesystem(MemoryFilesystem())
    filesystem.make_directories(DELTA_LOG)
    engine = FilesEngine(filesystem, OpenFiles(filesystem, files_max=100))
    rounds = Rounds()
    engine.commit([rounds.write(*three_groups(rounds))])
    engine.close()
    return sum(name in SYNCS for name in filesystem.names())


@pytest.mark.parametrize("step", range(count_syncs()))
def test_a_failed_sync_of_whatever_is_final_and_never_tried_again(engine, filesystem, rounds, step):
    write = rounds.write(*three_groups(rounds))
    steps = iter(range(1_000))
    failed = []

    def fail(operation):
        assert not (failed and operation.name in SYNCS), "a sync after a failed one"
        if operation.name in SYNCS and next(steps) == step:
            failed.append(operation)
            raise OSError(errno.EIO, "Input/output error")

    filesystem.before = fail
    (outcome,) = engine.commit([write])

    assert len(failed) == 1
    assert isinstance(outcome, SyncFailed)
    assert NAME in outcome.reason
    assert "Input/output error" in outcome.reason


def test_documents_are_not_published_when_the_sync_of_their_bytes_failed(engine, filesystem, rounds):
    def fail(operation):
        if operation.name == "sync_data":
            raise OSError(errno.EIO, "Input/output error")

    filesystem.before = fail
    engine.commit([rounds.write(rounds.group())])

    assert filesystem._filesystem.list_names(DELTA_LOG) == []


def test_a_sync_alone_is_a_round_that_changes_no_byte(engine, filesystem, rounds):
    """Flush mode `interval`: what earlier rounds wrote is synced, while newer bytes already stand behind it."""
    first_group, second_group = rounds.group(), rounds.group()
    for group in (first_group, second_group):
        engine.commit([rounds.write(GroupWrite(group.segments, None), durable=False)])
    (segment,) = first_group.segments
    before = content_of(filesystem)
    filesystem.clear()

    write = rounds.write(GroupWrite((SegmentWrite(segment.path, 10, [], is_new=True),), None))
    assert engine.commit([write]) == [Stored()]

    assert filesystem.operations == [("sync_data", segment.path, 0), ("sync_directory", DIRECTORY, 0)]
    assert content_of(filesystem) == before


def test_a_sync_of_a_segment_that_cannot_be_opened_is_a_failed_sync_and_cuts_nothing(engine, filesystem, rounds):
    group = rounds.group()
    engine.commit([rounds.write(GroupWrite(group.segments, None), durable=False)])
    (segment,) = group.segments
    before = content_of(filesystem)
    other = FilesEngine(filesystem, OpenFiles(filesystem, files_max=100))
    steps = iter(range(1_000))

    def refuse(operation):
        if operation.name in {"open", "create"} and next(steps) == 0:
            raise OSError(errno.EMFILE, "Too many open files")

    filesystem.before = refuse
    (outcome,) = other.commit([rounds.write(GroupWrite((SegmentWrite(segment.path, 4, [], is_new=True),), None))])
    other.close()

    assert isinstance(outcome, SyncFailed)
    assert content_of(filesystem) == before
