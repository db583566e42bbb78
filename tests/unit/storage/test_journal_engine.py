"""The durability engine over a commit journal: one sync for a round, which is there for all partitions or for none."""

import errno

import pytest
from msgspec.structs import replace

from exactlog.core.deltalog.journal_format import HEADER_BYTES, decode_file_header, print_journal_name
from exactlog.storage import journal_engine as engine_module
from exactlog.storage.filesystem import MemoryFilesystem
from exactlog.storage.journal_engine import JournalEngine
from exactlog.storage.round import ForeignVersion, GroupWrite, NameRefused, StorageRefused, Stored, SyncFailed
from exactlog.storage.whole_files import SyncFailedError
from tests.support.counting_filesystem import CountingFilesystem
from tests.support.engine_rounds import (
    DELTA_LOG,
    DIRECTORY,
    JOURNAL,
    OTHER_DIRECTORY,
    ROOT,
    SYNCS,
    WRITES,
    Rounds,
    clean,
    content_of,
    content_with,
    documents_of,
    failing_at,
    first,
    journal_engine,
    other_rounds,
    watched_filesystem,
)
from tests.support.journal_rounds import find_rounds

FULL = OSError(errno.ENOSPC, "No space left on device")
BROKEN = OSError(errno.EIO, "Input/output error")
STEPS_MAX = 200
SEGMENT = f"{DIRECTORY}/{0:020d}.log"


@pytest.fixture
def filesystem():
    return watched_filesystem()


@pytest.fixture
def engine(filesystem):
    engine = journal_engine(filesystem)
    yield engine
    engine.close()


@pytest.fixture
def rounds():
    return Rounds()


@pytest.fixture
def other():
    return other_rounds()


def journal_path(number=1):
    return f"{JOURNAL}/{print_journal_name(number)}"


def journaled(filesystem, number=1):
    """The rounds in a file of the journal."""
    content = filesystem._filesystem.read_file(journal_path(number))
    return list(find_rounds(content, decode_file_header(content, number=number)))


def syncs(filesystem):
    return [operation[:2] for operation in filesystem.operations if operation.name in SYNCS]


def big_write(rounds, other, **fields):
    """A round of two partitions, with new segments and several documents in each."""
    return [rounds.write(*rounds.three_groups(), **fields), other.write(*other.three_groups(), **fields)]


def test_it_is_atomic_across_partitions():
    assert JournalEngine.is_atomic_across_partitions


# --- the order of operations -------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 7])
def test_a_round_is_one_sync_whatever_the_number_of_its_partitions_segments_and_documents(engine, filesystem, count):
    partitions = [Rounds(directory=f"/data/topic=many-part={index}", name=f"many-{index}") for index in range(count)]
    for each in partitions:
        filesystem.make_directories(f"{each.directory}/_delta_log")
    clean(engine, filesystem, *partitions)

    assert engine.commit([each.write(*each.three_groups()) for each in partitions]) == [Stored()] * count

    assert syncs(filesystem) == [("sync_data", journal_path())]


def test_the_first_round_of_a_file_syncs_its_header_and_its_name_first(engine, filesystem, rounds):
    engine.commit([rounds.write(rounds.group())])

    assert syncs(filesystem) == [("sync", journal_path()), ("sync_directory", JOURNAL), ("sync_data", journal_path())]


def test_documents_get_names_only_after_the_sync_of_the_journal(engine, filesystem, rounds, other):
    engine.commit(big_write(rounds, other))

    steps = [
        first(filesystem, "write_at", f"{DIRECTORY}/{2:020d}.log"),
        first(filesystem, "write_at", f"{DELTA_LOG}/.{3:020d}.json.tmp"),
        first(filesystem, "sync_data", ".journal"),
        first(filesystem, "link", f"{DELTA_LOG}/{1:020d}.json"),
        first(filesystem, "link", f"{DELTA_LOG}/{2:020d}.json"),
        first(filesystem, "link", f"{DELTA_LOG}/{3:020d}.json"),
        first(filesystem, "link", f"{OTHER_DIRECTORY}/_delta_log/{1:020d}.json"),
    ]
    assert steps == sorted(steps)
    assert "create" not in filesystem.names()[steps[2] :]


def test_a_record_of_the_journal_has_all_that_the_round_has(engine, filesystem, rounds, other):
    writes = big_write(rounds, other)
    engine.commit(writes)
    engine.commit([rounds.write(rounds.group())])

    found, following = journaled(filesystem)
    assert (found.sequence, found.position, following.sequence) == (1, HEADER_BYTES, 2)
    content = bytes(found.content)
    for partition, write in zip(found.round.partitions, writes, strict=True):
        assert f"/data/{partition.directory}" == write.directory
        for piece, group in zip(partition.bytes, write.groups, strict=True):
            (segment,) = group.segments
            described = (f"{write.directory}/{piece.segment}", piece.position, piece.is_new, piece.crc)
            assert described == (segment.path, segment.position, segment.is_new, None)
            assert content[: piece.size] == b"".join(segment.buffers)
            content = content[piece.size :]
        for commit, group in zip(partition.commits, write.groups, strict=True):
            assert (commit.version, content[: commit.size]) == (group.commit.version, group.commit.content)
            content = content[commit.size :]
    assert content == b""


def test_a_round_that_need_not_be_durable_leaves_no_trace_in_the_journal(engine, filesystem, rounds):
    engine.commit([rounds.write(rounds.group(), durable=False)])

    assert filesystem.list_names(JOURNAL) == []
    assert engine.is_file_empty
    assert engine.end_file() is None


# --- long runs of bytes ------------------------------------------------------------------------------------------


@pytest.fixture
def runs_of_20_are_long(monkeypatch):
    monkeypatch.setattr(engine_module, "DIRECT_BYTES_MIN", 20)


def test_long_runs_are_synced_before_the_journal_which_says_only_where_they_are(
    runs_of_20_are_long, engine, filesystem, rounds, other
):
    clean(engine, filesystem, rounds, other)
    long = rounds.group(20)

    assert engine.commit([rounds.write(long), other.write(other.group(19))]) == [Stored()] * 2

    assert syncs(filesystem)[0] == ("sync_data", SEGMENT)
    assert syncs(filesystem)[-1] == ("sync_data", journal_path())
    assert not any(OTHER_DIRECTORY in path for _, path in syncs(filesystem))
    of_long, of_short = journaled(filesystem)[-1].round.partitions
    assert (of_long.bytes[0].position, of_long.bytes[0].size) == (10, 20)
    assert of_long.bytes[0].crc is not None
    assert of_short.bytes[0].crc is None
    sizes = [len(long.commit.content), 19, of_short.commits[0].size]
    assert len(journaled(filesystem)[-1].content) == sum(sizes)


def test_a_long_run_in_a_new_segment_has_its_name_synced_too(runs_of_20_are_long, engine, filesystem, rounds):
    clean(engine, filesystem, rounds)

    engine.commit([rounds.write(rounds.group(20, new_segment=True))])

    assert [name for name, _ in syncs(filesystem)] == ["sync_data", "sync_directory", "sync_data"]
    assert syncs(filesystem)[1] == ("sync_directory", DIRECTORY)


def test_a_long_run_in_a_segment_that_an_earlier_round_made_has_its_name_synced_once(
    runs_of_20_are_long, engine, filesystem, rounds
):
    clean(engine, filesystem, rounds)

    for _ in range(2):
        engine.commit([rounds.write(rounds.group(20))])

    assert syncs(filesystem) == [
        ("sync_data", SEGMENT),
        ("sync_directory", DIRECTORY),
        ("sync_data", journal_path()),
        ("sync_data", SEGMENT),
        ("sync_data", journal_path()),
    ]


# --- refused -----------------------------------------------------------------------------------------------------


def named_later(engine, writes, outcomes):
    """A document of one partition could not get its name, and nobody else was touched; when there is room, it can."""
    (refused,) = [outcome for outcome in outcomes if outcome != Stored()]
    assert isinstance(refused, NameRefused)
    write = writes[outcomes.index(refused)]
    assert refused.reason.startswith(f"{write.name}, version {write.groups[refused.groups_stored].commit.version}: ")
    rest = documents_of(*write.groups[refused.groups_stored :])
    assert engine.commit([replace(write, groups=rest)]) == [Stored()]


@pytest.mark.parametrize("long_from", [5, 1_000])
def test_a_round_refused_at_any_write_leaves_nothing_of_any_partition(monkeypatch, long_from):
    """Where they belong together, and until it is in the journal; from there on it is committed, with names or not."""
    monkeypatch.setattr(engine_module, "DIRECT_BYTES_MIN", long_from)
    refused = 0
    for step in range(STEPS_MAX):
        filesystem, rounds, other = watched_filesystem(), Rounds(), other_rounds()
        engine = journal_engine(filesystem)
        clean(engine, filesystem, rounds, other)
        before, journal = content_of(filesystem), filesystem.read_file(journal_path())
        writes = big_write(rounds, other, is_tied=True)
        filesystem.before = failing_at(step, WRITES, FULL)
        outcomes = engine.commit(writes)
        met, filesystem.before = filesystem.before.met, lambda operation: None
        if not met:
            break
        if met[0].name == "link":
            assert len(journaled(filesystem)) == 2
            named_later(engine, writes, outcomes)
            assert content_of(filesystem) == content_with(before, *writes[0].groups, *writes[1].groups)
        else:
            refused += 1
            assert [type(outcome) for outcome in outcomes] == [StorageRefused] * 2
            assert [outcome.groups_stored for outcome in outcomes] == [0, 0]
            assert ["orders-0" in outcomes[0].reason, "orders-1" in outcomes[1].reason] == [True, True]
            assert content_of(filesystem) == before
            assert filesystem.read_file(journal_path()) == journal
            assert engine.commit(writes) == [Stored()] * 2
            assert content_of(filesystem) == content_with(before, *writes[0].groups, *writes[1].groups)
            assert [found.sequence for found in journaled(filesystem)] == [1, 2]
        engine.close()
    assert outcomes == [Stored()] * 2
    assert refused > 10


@pytest.mark.parametrize("long_from", [5, 1_000])
@pytest.mark.parametrize("place", [0, 1])
def test_a_partition_that_is_refused_at_any_write_refuses_no_other(monkeypatch, long_from, place):
    monkeypatch.setattr(engine_module, "DIRECT_BYTES_MIN", long_from)
    refused = 0
    for step in range(STEPS_MAX):
        filesystem, rounds, other = watched_filesystem(), Rounds(), other_rounds()
        engine = journal_engine(filesystem)
        clean(engine, filesystem, rounds, other)
        before = content_of(filesystem)
        writes = big_write(rounds, other)
        fail = failing_at(step, WRITES, FULL)
        directory = writes[place].directory
        filesystem.before = lambda operation, fail=fail, of=directory: fail(operation) if of in operation.path else None
        outcomes = engine.commit(writes)
        filesystem.before = lambda operation: None
        if not fail.met:
            break
        if fail.met[0].name == "link":
            named_later(engine, writes, outcomes)
        else:
            refused += 1
            assert outcomes[1 - place] == Stored()
            assert isinstance(outcomes[place], StorageRefused)
            assert (outcomes[place].groups_stored, writes[place].name in outcomes[place].reason) == (0, True)
            assert content_of(filesystem) == content_with(before, *writes[1 - place].groups)
            there = [partition.directory for partition in journaled(filesystem)[-1].round.partitions]
            assert there == [writes[1 - place].directory.removeprefix(f"{ROOT}/")]
            assert engine.commit([writes[place]]) == [Stored()]
        assert content_of(filesystem) == content_with(before, *writes[0].groups, *writes[1].groups)
        engine.close()
    assert outcomes == [Stored()] * 2
    assert refused > 5


@pytest.mark.parametrize("place", [0, 1])
def test_a_part_that_the_rest_belongs_to_refuses_the_whole_round(engine, filesystem, rounds, other, place):
    clean(engine, filesystem, rounds, other)
    before, journal = content_of(filesystem), filesystem.read_file(journal_path())
    parts = [rounds, other]
    writes = [each.write(*each.three_groups(), is_tied=place == index) for index, each in enumerate(parts)]

    def refuse(operation):
        if operation.name == "write_at" and operation.path.startswith(parts[place].directory):
            raise FULL

    filesystem.before = refuse
    outcomes = engine.commit(writes)
    filesystem.before = lambda operation: None

    assert [type(outcome) for outcome in outcomes] == [StorageRefused] * 2
    assert content_of(filesystem) == before
    assert filesystem.read_file(journal_path()) == journal


def test_a_round_of_which_everything_is_refused_is_not_in_the_journal(engine, filesystem, rounds, other):
    clean(engine, filesystem, rounds, other)
    journal = filesystem.read_file(journal_path())

    def refuse(operation):
        if operation.name == "write_at" and operation.path.endswith(".log"):
            raise FULL

    filesystem.before = refuse
    outcomes = engine.commit(big_write(rounds, other))

    assert [type(outcome) for outcome in outcomes] == [StorageRefused] * 2
    assert filesystem.read_file(journal_path()) == journal


def test_a_part_of_a_record_that_was_refused_is_cut_off(engine, filesystem, rounds):
    clean(engine, filesystem, rounds)
    size = filesystem.file_size(journal_path())
    file = filesystem._filesystem.open(journal_path())

    def half(operation):
        if operation.name == "write_at" and operation.path == journal_path():
            file.write_at((b"half of a record",), size)
            raise FULL

    filesystem.before = half
    write = rounds.write(rounds.group(100))
    (outcome,) = engine.commit([write])
    filesystem.before = lambda operation: None

    assert isinstance(outcome, StorageRefused)
    assert filesystem.file_size(journal_path()) == size
    assert engine.commit([write]) == [Stored()]
    assert len(journaled(filesystem)) == 2


@pytest.mark.parametrize("kind", ["create", "write_at"])
def test_a_file_of_the_journal_that_cannot_be_begun_refuses_the_round_and_can_be_begun_later(
    engine, filesystem, rounds, kind
):
    def refuse(operation):
        if operation.name == kind and operation.path.startswith(JOURNAL):
            raise FULL

    filesystem.before = refuse
    write = rounds.write(rounds.group())
    assert isinstance(engine.commit([write])[0], StorageRefused)
    filesystem.before = lambda operation: None
    assert filesystem.list_names(JOURNAL) == []
    assert content_of(filesystem) == {}

    assert engine.commit([write]) == [Stored()]

    assert content_of(filesystem) == content_with({}, *write.groups)


def test_a_file_that_could_neither_be_begun_nor_removed_is_in_nobodys_way(engine, filesystem, rounds):
    def refuse(operation):
        if operation.name in {"write_at", "remove"} and operation.path.startswith(JOURNAL):
            raise BROKEN

    filesystem.before = refuse
    write = rounds.write(rounds.group())
    assert isinstance(engine.commit([write])[0], StorageRefused)
    filesystem.before = lambda operation: None

    assert engine.commit([write]) == [Stored()]

    assert sorted(filesystem.list_names(JOURNAL)) == [print_journal_name(1), print_journal_name(2)]
    assert [found.sequence for found in journaled(filesystem, 2)] == [1]


@pytest.mark.parametrize("path_end", [".log", ".journal"])
def test_what_cannot_be_cut_off_is_as_final_as_a_failed_sync(engine, filesystem, rounds, other, path_end):
    clean(engine, filesystem, rounds, other)

    def refuse(operation):
        if operation.path.endswith((path_end, ".journal")) and operation.name in {"write_at", "truncate"}:
            raise BROKEN

    filesystem.before = refuse
    outcomes = engine.commit([rounds.write(rounds.group()), other.write(other.group())])

    assert [type(outcome) for outcome in outcomes] == [SyncFailed] * 2


# --- a failed sync -----------------------------------------------------------------------------------------------


def test_a_failed_sync_at_any_step_is_final_for_all_partitions(monkeypatch):
    """Nobody is told anything good, no document has got its name, and no sync is tried again."""
    monkeypatch.setattr(engine_module, "DIRECT_BYTES_MIN", 20)
    for step in range(STEPS_MAX):
        filesystem, rounds, other = watched_filesystem(), Rounds(), other_rounds()
        engine = journal_engine(filesystem)
        fail = failing_at(step, SYNCS, BROKEN)

        def before(operation, fail=fail):
            assert not (fail.met and operation.name in SYNCS), "a sync after a failed one"
            fail(operation)

        filesystem.before = before
        outcomes = engine.commit([rounds.write(rounds.group(10), rounds.group(30)), other.write(other.group(5))])
        filesystem.before = lambda operation: None
        if not fail.met:
            break
        assert [type(outcome) for outcome in outcomes] == [SyncFailed] * 2
        assert all("the commit journal: " in outcome.reason for outcome in outcomes)
        assert [name for name in filesystem.list_names(DELTA_LOG) if not name.startswith(".")] == []
        engine.close()
    assert step == 5, "the segment, its directory, the header of the journal, its directory, the record"


# --- names that are taken ----------------------------------------------------------------------------------------


def test_a_partition_whose_name_is_taken_is_not_in_the_journal(engine, filesystem, rounds, other):
    """The next start would put it in the place of the other document, or rather: never open the partition again."""
    clean(engine, filesystem, rounds, other)
    group, write = rounds.group(), other.write(other.group())
    filesystem.open(f"{DELTA_LOG}/{group.commit.name}", create=True)
    before = content_of(filesystem)

    outcomes = engine.commit([rounds.write(group), write])

    assert [type(outcome) for outcome in outcomes] == [ForeignVersion, Stored]
    assert [partition.directory for partition in journaled(filesystem)[-1].round.partitions] == ["topic=orders-part=1"]
    assert content_of(filesystem) == content_with(before, *write.groups)


def test_where_a_name_is_taken_from_what_the_rest_belongs_to_nothing_of_the_round_is_stored(
    engine, filesystem, rounds, other
):
    """A transaction would end without its marker in the partition that stops."""
    clean(engine, filesystem, rounds, other)
    group = rounds.group()
    filesystem.open(f"{DELTA_LOG}/{group.commit.name}", create=True)
    before, journal = content_of(filesystem), filesystem.read_file(journal_path())

    outcomes = engine.commit([rounds.write(group, is_tied=True), other.write(other.group())])

    assert [type(outcome) for outcome in outcomes] == [ForeignVersion, StorageRefused]
    assert "what belongs to it cannot be stored" in outcomes[1].reason
    assert (content_of(filesystem), filesystem.read_file(journal_path())) == (before, journal)


def test_a_round_of_nobody_but_partitions_that_stop_is_not_in_the_journal(engine, filesystem, rounds):
    group = rounds.group()
    filesystem.open(f"{DELTA_LOG}/{group.commit.name}", create=True)
    filesystem.clear()

    assert isinstance(engine.commit([rounds.write(group)])[0], ForeignVersion)

    assert filesystem.names(*WRITES) == []


def test_a_name_that_is_taken_at_the_last_moment_stops_the_partition_and_no_other(engine, filesystem, rounds, other):
    group = rounds.group()

    def intrude(operation):
        if operation.name == "link" and operation.path.startswith(DIRECTORY):
            filesystem._filesystem.open(operation.path, create=True)

    filesystem.before = intrude
    outcomes = engine.commit([rounds.write(group), other.write(other.group())])

    assert [type(outcome) for outcome in outcomes] == [ForeignVersion, Stored]


# --- files that end and go ---------------------------------------------------------------------------------------


def test_a_file_ends_and_the_next_one_goes_on_with_the_sequence(engine, filesystem, rounds):
    for _ in range(2):
        engine.commit([rounds.write(rounds.group())])
    part = engine.end_file()
    engine.commit([rounds.write(rounds.group())])

    assert part.number == 1
    assert engine.end_file().number == 2
    assert [found.sequence for found in journaled(filesystem, 1)] == [1, 2]
    assert [found.sequence for found in journaled(filesystem, 2)] == [3]
    headers = [filesystem.read_file(journal_path(number))[:HEADER_BYTES] for number in (1, 2)]
    assert decode_file_header(headers[0], number=1).salt != decode_file_header(headers[1], number=2).salt


def test_a_file_is_full_when_it_is_long_enough(monkeypatch, engine, rounds):
    monkeypatch.setattr(engine_module, "JOURNAL_FILE_BYTES", 1_000)
    assert (engine.is_file_empty, engine.is_file_full) == (True, False)
    engine.commit([rounds.write(rounds.group())])
    assert (engine.is_file_empty, engine.is_file_full) == (False, False)
    engine.commit([rounds.write(rounds.group(1_000))])
    assert (engine.is_file_empty, engine.is_file_full) == (False, True)
    engine.end_file()
    assert (engine.is_file_empty, engine.is_file_full) == (True, False)


def settled(engine, filesystem, part):
    """What letting a file go did."""
    filesystem.clear()
    engine.settle(part)
    return filesystem.operations


def test_all_that_a_file_holds_is_synced_before_the_file_goes_and_that_is_synced_too(engine, filesystem, rounds, other):
    engine.commit(big_write(rounds, other))

    done = settled(engine, filesystem, engine.end_file())

    removal = done.index(("remove", journal_path(), 0))
    synced = [operation[:2] for operation in done[:removal] if operation.name in SYNCS]
    expected = [("sync_directory", directory) for directory in (DIRECTORY, OTHER_DIRECTORY, DELTA_LOG)]
    for directory in (DIRECTORY, OTHER_DIRECTORY):
        expected += [("sync_data", f"{directory}/{base:020d}.log") for base in (0, 2)]
        expected += [("sync", f"{directory}/_delta_log/{version:020d}.json") for version in (1, 2, 3)]
    assert sorted(synced) == sorted([*expected, ("sync_directory", f"{OTHER_DIRECTORY}/_delta_log")])
    assert done[removal + 1 :] == [("sync_directory", JOURNAL, 0)]
    assert filesystem.list_names(JOURNAL) == []


def test_what_has_gone_meanwhile_is_passed_over(engine, filesystem, rounds, other):
    """A segment was removed, a document packed, a topic deleted: whoever did that has seen to it."""
    engine.commit(big_write(rounds, other))
    filesystem.remove(SEGMENT)
    filesystem.remove(f"{DELTA_LOG}/{1:020d}.json")
    filesystem.rename(OTHER_DIRECTORY, "/data/deleted")

    settled(engine, filesystem, engine.end_file())

    assert filesystem.list_names(JOURNAL) == []


def test_a_topic_that_is_deleted_while_its_directory_is_about_to_be_synced_is_passed_over(engine, filesystem, rounds):
    engine.commit([rounds.write(rounds.group())])
    part = engine.end_file()

    def delete(operation):
        if operation.name == "sync_directory" and operation.path == DIRECTORY:
            filesystem._filesystem.rename(DIRECTORY, "/data/deleted")

    filesystem.before = delete
    engine.settle(part)

    assert filesystem._filesystem.list_names(JOURNAL) == []


def test_a_failed_sync_while_a_file_goes_is_final_and_the_file_stays():
    for step in range(STEPS_MAX):
        filesystem, rounds = watched_filesystem(), Rounds()
        engine = journal_engine(filesystem)
        engine.commit([rounds.write(*rounds.three_groups())])
        part = engine.end_file()
        filesystem.before = failing_at(step, SYNCS, BROKEN)
        engine.close()
        if step == 8:
            engine.settle(part)
            break
        with pytest.raises(SyncFailedError):
            engine.settle(part)
        assert (filesystem._filesystem.list_names(JOURNAL) == []) == (step == 7)


def test_what_is_in_many_files_is_synced_with_one_flush_before_the_file_goes(monkeypatch, engine, filesystem, rounds):
    monkeypatch.setattr(engine_module, "SYNCED_ONE_BY_ONE_MAX", 4)
    engine.commit([rounds.write(*rounds.three_groups())])
    part = engine.end_file()

    done = settled(engine, filesystem, part)

    assert done == [("sync_all", ROOT, 0), ("remove", journal_path(), 0), ("sync_directory", JOURNAL, 0)]


def test_a_failed_flush_is_final_and_the_file_stays(monkeypatch, engine, filesystem, rounds):
    monkeypatch.setattr(engine_module, "SYNCED_ONE_BY_ONE_MAX", 4)
    engine.commit([rounds.write(*rounds.three_groups())])
    part = engine.end_file()
    filesystem.before = failing_at(0, SYNCS, BROKEN)

    with pytest.raises(SyncFailedError):
        engine.settle(part)

    assert filesystem.list_names(JOURNAL) == [print_journal_name(1)]


def test_bytes_in_one_file_and_their_version_in_the_next(engine, filesystem, rounds):
    """Where versions follow later."""
    group = rounds.group()
    engine.commit([rounds.write(GroupWrite(group.segments, None))])
    first_part = engine.end_file()
    engine.commit([rounds.write(GroupWrite((), group.commit))])
    second_part = engine.end_file()

    assert SEGMENT in [path for name, path, _ in settled(engine, filesystem, first_part) if name == "sync_data"]
    assert filesystem.list_names(JOURNAL) == [print_journal_name(2)]
    documents = [path for name, path, _ in settled(engine, filesystem, second_part) if name == "sync"]
    assert documents == [f"{DELTA_LOG}/{1:020d}.json"]
    assert filesystem.list_names(JOURNAL) == []


class TellingFilesystem(CountingFilesystem):
    """A directory tells of what could not be written back since it was opened, and of nothing before, as Linux does.

    Attributes:
        failures: how many writes did not reach the disk.
    """

    failures = 0

    def open_tree(self, path):
        tree, seen = super().open_tree(path), self.failures
        sync_all = tree.sync_all

        def tell():
            if self.failures > seen:
                raise BROKEN
            sync_all()

        tree.sync_all = tell
        return tree


def test_a_flush_of_everything_tells_of_all_that_failed_since_the_engine_was_made(monkeypatch, rounds):
    monkeypatch.setattr(engine_module, "SYNCED_ONE_BY_ONE_MAX", 0)
    filesystem = TellingFilesystem(MemoryFilesystem())
    for directory in (DELTA_LOG, JOURNAL):
        filesystem.make_directories(directory)
    engine = journal_engine(filesystem)
    engine.commit([rounds.write(rounds.group())])
    filesystem.failures += 1

    with pytest.raises(SyncFailedError):
        engine.settle(engine.end_file())

    assert filesystem.list_names(JOURNAL) == [print_journal_name(1)]
    engine.close()
