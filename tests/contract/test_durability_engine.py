"""What every durability engine does with a round, whatever lies behind it."""

import errno
import json

import pytest

from exactlog.core.deltalog.commit_format import decode_commit
from exactlog.core.deltalog.table_state import TableState
from exactlog.storage.round import (
    ForeignVersion,
    GroupWrite,
    NameRefused,
    SegmentWrite,
    StorageRefused,
    Stored,
    SyncFailed,
)
from tests.support.engine_rounds import (
    DELTA_LOG,
    DIRECTORY,
    NAME,
    SYNCS,
    WRITES,
    Rounds,
    clean,
    content_of,
    content_with,
    documents_of,
    failing_at,
    files_engine,
    journal_engine,
    other_rounds,
    watched_filesystem,
)
from tests.unit.core.deltalog.histories import History

FULL = OSError(errno.ENOSPC, "No space left on device")
BROKEN = OSError(errno.EIO, "Input/output error")
STEPS_MAX = 100


@pytest.fixture
def filesystem():
    return watched_filesystem()


@pytest.fixture(params=[files_engine, journal_engine])
def make_engine(request):
    """Makes engines of one kind; they end with the test."""
    made = []

    def make(filesystem):
        made.append(request.param(filesystem))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


@pytest.fixture
def engine(make_engine, filesystem):
    return make_engine(filesystem)


@pytest.fixture
def rounds():
    return Rounds()


# --- what is in place afterwards ---------------------------------------------------------------------------------


def test_an_engine_says_whether_it_is_atomic_across_partitions(engine):
    assert engine.is_atomic_across_partitions in (True, False)


def test_an_empty_round_has_no_outcome(engine, filesystem):
    assert engine.commit([]) == []
    assert filesystem.operations == []


@pytest.mark.parametrize("durable", [True, False])
def test_bytes_and_documents_are_in_place(engine, filesystem, rounds, durable):
    assert engine.commit([rounds.write(*rounds.three_groups(), durable=durable)]) == [Stored()]

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


def test_each_partition_has_its_own_outcome_in_order(engine, filesystem, rounds):
    other, empty = other_rounds(), Rounds()
    write, other_write = rounds.write(rounds.group()), other.write(other.group())

    assert engine.commit([write, other_write, empty.write()]) == [Stored()] * 3

    assert content_of(filesystem) == content_with({}, *write.groups, *other_write.groups)


@pytest.mark.parametrize("durable", [True, False])
def test_bytes_alone_and_a_document_alone_are_rounds_too(engine, filesystem, rounds, durable):
    """Where the version follows later."""
    group = rounds.group()

    assert engine.commit([rounds.write(GroupWrite(group.segments, None), durable=durable)]) == [Stored()]
    assert filesystem.list_names(DELTA_LOG) == []
    assert engine.commit([rounds.write(GroupWrite((), group.commit), durable=durable)]) == [Stored()]

    assert filesystem.list_names(DELTA_LOG) == [group.commit.name]
    assert durable == bool(SYNCS.intersection(filesystem.names()))


def test_what_need_not_be_durable_is_not_synced(engine, filesystem, rounds):
    engine.commit([rounds.write(*rounds.three_groups(), durable=False)])

    assert filesystem.names(*SYNCS) == []


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


def test_no_document_has_its_name_before_something_was_synced_in_the_end(engine, filesystem, rounds):
    """All that a version says is durable when somebody else can see it."""
    names_at_sync = []

    def look(operation):
        if operation.name in SYNCS:
            names_at_sync.append([name for name in filesystem._filesystem.list_names(DELTA_LOG) if name[0] != "."])

    filesystem.before = look
    engine.commit([rounds.write(rounds.group(new_segment=True))])

    assert names_at_sync[0] == []
    assert filesystem.list_names(DELTA_LOG) == [f"{1:020d}.json"]


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


def test_a_foreign_document_stops_no_other_partition_of_the_round(engine, filesystem, rounds):
    other, group = other_rounds(), rounds.group()
    filesystem.open(f"{DELTA_LOG}/{group.commit.name}", create=True)
    write = other.write(other.group())

    outcomes = engine.commit([write, rounds.write(group), other.write()])

    assert [type(outcome) for outcome in outcomes] == [Stored, ForeignVersion, Stored]
    assert content_with({}, *write.groups).items() <= content_of(filesystem).items()


@pytest.mark.parametrize("rival", [b"", b"{", b"not a document\n"])
def test_an_unreadable_document_under_the_name_stops_the_partition_too(engine, filesystem, rounds, rival):
    group = rounds.group()
    filesystem.open(f"{DELTA_LOG}/{group.commit.name}", create=True).write_at((rival,), 0)

    (outcome,) = engine.commit([rounds.write(group)])

    assert isinstance(outcome, ForeignVersion)
    assert outcome.version == 1
    assert group.commit.name in outcome.reason


# --- a refused write ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durable", [True, False])
def test_a_full_disk_at_any_write_leaves_whole_groups_and_nothing_of_the_refused_ones(make_engine, durable):
    """And what was refused can be written when there is room again. What cannot be undone is final."""
    kinds = []
    for step in range(STEPS_MAX):
        filesystem, rounds = watched_filesystem(), Rounds()
        engine = make_engine(filesystem)
        clean(engine, filesystem, rounds)
        before = content_of(filesystem)
        groups = rounds.three_groups()
        filesystem.before = failing_at(step, WRITES, FULL)
        (outcome,) = engine.commit([rounds.write(*groups, durable=durable)])
        if not filesystem.before.met:
            break
        kinds.append(type(outcome))
        assert "No space left on device" in outcome.reason
        assert NAME in outcome.reason
        if isinstance(outcome, StorageRefused):
            stored = groups[: outcome.groups_stored]
            assert content_of(filesystem) == content_with(before, *stored)
            rest = groups[outcome.groups_stored :]
            assert engine.commit([rounds.write(*rest, durable=durable)]) == [Stored()]
            assert content_of(filesystem) == content_with(before, *groups)
        if isinstance(outcome, NameRefused):
            rest = groups[outcome.groups_stored :]
            assert engine.commit([rounds.write(*documents_of(*rest), durable=durable)]) == [Stored()]
            assert content_of(filesystem) == content_with(before, *groups)
    assert outcome == Stored()
    assert set(kinds) <= {StorageRefused, NameRefused, SyncFailed}
    assert kinds.count(StorageRefused) >= 6


def test_a_refused_write_of_bytes_that_cannot_be_cut_off_is_as_final_as_a_failed_sync(engine, filesystem, rounds):
    clean(engine, filesystem, rounds)

    def refuse(operation):
        if operation.path.endswith(".log") and operation.name in {"write_at", "truncate"}:
            raise BROKEN

    filesystem.before = refuse
    (outcome,) = engine.commit([rounds.write(rounds.group())])

    assert isinstance(outcome, SyncFailed)


# --- a failed sync -----------------------------------------------------------------------------------------------


def test_a_failed_sync_of_whatever_is_final_and_never_tried_again(make_engine):
    for step in range(STEPS_MAX):
        filesystem, rounds = watched_filesystem(), Rounds()
        fail = failing_at(step, SYNCS, BROKEN)

        def before(operation, fail=fail):
            assert not (fail.met and operation.name in SYNCS), "a sync after a failed one"
            fail(operation)

        filesystem.before = before
        (outcome,) = make_engine(filesystem).commit([rounds.write(*rounds.three_groups())])
        if not fail.met:
            break
        assert isinstance(outcome, SyncFailed)
        assert NAME in outcome.reason
        assert "Input/output error" in outcome.reason
    assert outcome == Stored()
    assert step >= 1


def test_documents_are_not_published_when_the_first_sync_failed(engine, filesystem, rounds):
    filesystem.before = failing_at(0, {"sync", "sync_data"}, BROKEN)

    (outcome,) = engine.commit([rounds.write(rounds.group())])

    assert isinstance(outcome, SyncFailed)
    assert all(name.startswith(".") for name in filesystem._filesystem.list_names(DELTA_LOG))


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


def test_a_sync_of_a_segment_that_cannot_be_opened_is_a_failed_sync_and_cuts_nothing(make_engine, filesystem, rounds):
    group = rounds.group()
    make_engine(filesystem).commit([rounds.write(GroupWrite(group.segments, None), durable=False)])
    (segment,) = group.segments
    before = content_of(filesystem)
    other = make_engine(filesystem)
    filesystem.before = failing_at(0, {"open", "create"}, OSError(errno.EMFILE, "Too many open files"))

    (outcome,) = other.commit([rounds.write(GroupWrite((SegmentWrite(segment.path, 4, [], is_new=True),), None))])

    assert isinstance(outcome, SyncFailed)
    assert content_of(filesystem) == before


def test_how_long_syncs_took_is_told_once(engine, filesystem, rounds):
    engine.commit([rounds.write(rounds.group())])

    assert all(seconds >= 0 for seconds in engine.take_sync_seconds())
    assert engine.take_sync_seconds() == []
