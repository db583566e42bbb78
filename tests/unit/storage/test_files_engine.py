"""The durability engine on plain files: partitions on their own, in the order that a crash may cut anywhere."""

import errno

import pytest
from msgspec.structs import replace

from exactlog.storage.files_engine import FilesEngine
from exactlog.storage.round import GroupWrite, StorageRefused, Stored, SyncFailed
from tests.support.engine_rounds import (
    DELTA_LOG,
    DIRECTORY,
    Rounds,
    clean,
    content_of,
    files_engine,
    first,
    other_rounds,
    watched_filesystem,
)


@pytest.fixture
def filesystem():
    return watched_filesystem()


@pytest.fixture
def engine(filesystem):
    engine = files_engine(filesystem)
    yield engine
    engine.close()


@pytest.fixture
def rounds():
    return Rounds()


def test_it_is_not_atomic_across_partitions():
    assert not FilesEngine.is_atomic_across_partitions


# --- what is not synced is written in order -----------------------------------------------------------------------


def unsynced(rounds, **fields):
    group = rounds.group()
    return replace(rounds.write(GroupWrite(group.segments, None)), durable=False, **fields)


def test_what_is_tied_is_not_written_without_what_leads_it(engine, filesystem, rounds):
    others, plain = other_rounds(), Rounds(directory="/data/topic=plain-part=0", name="plain-0")
    filesystem.make_directories(plain.directory)

    def refuse(operation):
        if operation.name == "write_at" and operation.path.startswith(f"{DIRECTORY}/"):
            raise OSError(errno.ENOSPC, "no space left")

    filesystem.before = refuse
    outcomes = engine.commit(
        [unsynced(rounds, is_leading=True, is_tied=True), unsynced(others, is_tied=True), unsynced(plain)]
    )

    assert [type(outcome) for outcome in outcomes] == [StorageRefused, StorageRefused, Stored]
    assert "orders-0" in outcomes[1].reason
    assert not filesystem.exists(others.directory + "/00000000000000000000.log")


def test_what_is_leading_and_what_is_tied_are_written_in_their_order(engine, filesystem, rounds):
    outcomes = engine.commit([unsynced(rounds, is_leading=True, is_tied=True), unsynced(other_rounds(), is_tied=True)])

    assert outcomes == [Stored(), Stored()]
    assert first(filesystem, "write_at", "part=0/00000000000000000000.log") < first(
        filesystem, "write_at", "part=1/00000000000000000000.log"
    )


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


# --- what one partition suffers ----------------------------------------------------------------------------------


def test_a_partition_that_is_refused_hurts_no_other(engine, filesystem, rounds):
    other = other_rounds()

    def refuse(operation):
        if operation.name == "write_at" and operation.path.startswith(other.directory):
            raise OSError(errno.ENOSPC, "No space left on device")

    filesystem.before = refuse
    outcomes = engine.commit([rounds.write(rounds.group()), other.write(other.group()), rounds.write()])

    assert outcomes[0] == outcomes[2] == Stored()
    assert isinstance(outcomes[1], StorageRefused)
    assert "orders-1" in outcomes[1].reason
    assert "No space left" in outcomes[1].reason
    assert all(path.startswith(DIRECTORY) for path in content_of(filesystem))


def test_groups_before_the_refused_one_are_in_place_and_the_others_can_be_written_again(engine, filesystem, rounds):
    write = rounds.write(*rounds.three_groups())

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


def test_a_refused_document_whose_bytes_cannot_be_cut_off_is_as_final_as_a_failed_sync(engine, filesystem, rounds):
    clean(engine, filesystem, rounds)

    def refuse(operation):
        if operation.name == "link" or (operation.name == "truncate" and operation.path.endswith(".log")):
            raise OSError(errno.EIO, "Input/output error")

    filesystem.before = refuse
    (outcome,) = engine.commit([rounds.write(rounds.group())])

    assert isinstance(outcome, SyncFailed)


def test_no_document_is_written_when_the_sync_of_bytes_failed(engine, filesystem, rounds):
    def fail(operation):
        if operation.name == "sync_data":
            raise OSError(errno.EIO, "Input/output error")

    filesystem.before = fail
    (outcome,) = engine.commit([rounds.write(rounds.group())])

    assert isinstance(outcome, SyncFailed)
    assert filesystem._filesystem.list_names(DELTA_LOG) == []


def test_a_document_that_need_not_be_durable_stands_aside_before_its_bytes_are_written(engine, filesystem, rounds):
    """There recovery adopts bytes without a name, and the document tells whose they are."""
    engine.commit([rounds.write(rounds.group(), durable=False)])

    assert first(filesystem, "write_at", "1.json.tmp") < first(filesystem, "write_at", "0.log")
    assert first(filesystem, "write_at", "0.log") < first(filesystem, "link", "1.json")
