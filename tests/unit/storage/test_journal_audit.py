"""What an audit says of a data directory in which a commit journal was left."""

import tracemalloc
from random import Random

import pytest

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.deltalog.journal_format import print_journal_name
from exactlog.core.model.ids import TopicPartition
from exactlog.storage import journal_engine, overlay_filesystem
from exactlog.storage.data_directory_audit import audit_data_directory, audit_partition
from exactlog.storage.filesystem import OsFilesystem
from exactlog.storage.journal_redo import redo_journal
from exactlog.testing.failing_filesystem import FailingFilesystem
from tests.support.counting_filesystem import CountingFilesystem
from tests.support.file_trees import files_below
from tests.support.partitions import (
    DELTA_LOG,
    DIRECTORY,
    JOURNAL,
    ROOT,
    DataDirectory,
    batch_of,
    batches_of,
    copy_of,
    replace_file,
)

SETTINGS = {"is_journaled": True, "checkpoint_interval": 1_000}
SEGMENT = f"{DIRECTORY}/{0:020d}.log"
OTHER = TopicPartition("another", 0)
OTHER_DIRECTORY = f"{ROOT}/topic=another-part=0"


def commit_file(version):
    return f"_delta_log/{version:020d}.json"


def journal_path(number=1):
    return f"{JOURNAL}/{print_journal_name(number)}"


def left_behind(filesystem=None, *, unpublished=0, config=None, **settings):
    """What a killed broker leaves: a partition with three versions and so many rounds without one, and another."""
    disk = DataDirectory(filesystem, config=config, **(SETTINGS | settings))
    partition, other = disk.make(), disk.make(OTHER)
    for each in (partition, other):
        for batch in batches_of(3):
            disk.commit(each, batch)
            disk.publish(each)
    disk.commit(partition, *batches_of(unpublished))
    disk.close()
    return disk.filesystem


def audited(filesystem, **options):
    """The report; nothing is written for it."""
    watched = CountingFilesystem(filesystem)
    report = audit_data_directory(watched, ROOT, **options)
    assert {"write_at", "create", "truncate", "remove", "link", "rename", "sync"}.isdisjoint(watched.names())
    return report


def found(filesystem):
    """What was found, by kind and file, but for the catalog, which there is none of."""
    report = audited(filesystem)
    findings = [(finding, "") for finding in report.findings]
    findings += [(finding, f"{table.path}/") for table in report.tables for finding in table.findings]
    return [
        (str(finding.kind), f"{path}{finding.file}") for finding, path in findings if finding.kind != "catalog-missing"
    ]


def test_a_journal_whose_rounds_are_all_in_place_is_not_mentioned():
    assert found(left_behind()) == []


def test_an_empty_journal_is_not_mentioned():
    filesystem = left_behind()
    filesystem.remove(journal_path())

    assert found(filesystem) == []


def test_a_document_that_the_journal_has_is_noted_and_no_damage():
    for content in (None, b"", b'{"version":'):
        filesystem = left_behind()
        filesystem.remove(f"{DIRECTORY}/{commit_file(2)}")
        if content is not None:
            replace_file(filesystem, f"{DIRECTORY}/{commit_file(2)}", content)

        assert found(filesystem) == [("journaled", f"{DIRECTORY}/{commit_file(2)}")]
        report = audited(filesystem)
        assert (report.damage, report.notes) == (0, 2)
        orders = next(table for table in report.tables if table.path == DIRECTORY)
        assert (orders.version, orders.end_offset, orders.records) == (3, 3, 3)


def test_the_finding_says_what_the_next_start_does():
    filesystem = left_behind()
    filesystem.remove(f"{DIRECTORY}/{commit_file(2)}")

    (finding,) = [finding for table in audited(filesystem).tables for finding in table.findings]
    assert finding.severity == "note"
    assert finding.message == (
        "it is not in its place, or not all of it; the commit journal has it: a crash came, or a broker is writing"
    )
    assert finding.next_step == "nothing: the next start puts it in its place"


@pytest.mark.parametrize("size", [0, 1, 100])
def test_bytes_that_the_journal_has_are_noted_and_no_damage(size):
    filesystem = left_behind()
    filesystem.open(SEGMENT).truncate(size)

    assert found(filesystem) == [("journaled", SEGMENT)]


def test_a_segment_that_the_journal_has_is_noted_and_no_damage():
    filesystem = left_behind()
    filesystem.remove(SEGMENT)

    assert found(filesystem) == [("journaled", SEGMENT)]


def test_committed_bytes_without_a_version_are_noted_as_such():
    filesystem = left_behind(unpublished=2)
    size = filesystem.file_size(SEGMENT)

    assert found(filesystem) == [("journaled", SEGMENT)]
    (finding,) = [finding for table in audited(filesystem).tables for finding in table.findings]
    assert finding.position == size * 3 // 5
    assert f"bytes {finding.position} to {size} are committed, and no version names them yet" in finding.message


def test_a_committed_segment_without_a_version_is_noted_as_such():
    filesystem = left_behind(unpublished=3, config=TopicConfig(segment_bytes=300))

    assert found(filesystem) == [("journaled", f"{DIRECTORY}/{3:020d}.log")]


def test_bytes_that_the_journal_does_not_have_are_what_they_are_without_one():
    filesystem = left_behind()
    filesystem.open(SEGMENT).write_at((b"torn",), filesystem.file_size(SEGMENT))

    assert found(filesystem) == [("bytes-behind", SEGMENT)]


def test_damage_that_the_journal_cannot_put_right_is_damage():
    disk = DataDirectory(**SETTINGS)
    partition = disk.make()
    disk.commit(partition, batch_of(b"settled"))
    disk.settle()
    disk.settle()
    disk.commit(partition, batch_of(b"in the journal"))
    disk.close()
    filesystem = FailingFilesystem(disk.filesystem)
    filesystem.flip_bit(SEGMENT, 70, 0)

    assert [kind for kind, _ in found(filesystem)] == ["batch-damaged", "journaled"]


@pytest.mark.parametrize("seed", range(20))
def test_after_a_power_cut_there_is_no_damage_and_what_is_noted_is_what_a_start_puts_back(seed):
    """The indexes alone may be torn: they are not synced."""
    filesystem = FailingFilesystem(sector_bytes=64)
    left_behind(filesystem, unpublished=seed % 3, config=TopicConfig(segment_bytes=300))
    content = filesystem.after_power_cut(Random(seed))
    kinds = found(content)
    before = files_below(content)
    redone = copy_of(content)
    redo_journal(redone, ROOT)

    assert {kind for kind, _ in kinds} <= {"journaled", "temporary-file", "index-damaged", "index-incomplete"}
    put_back = {path for path, after in files_below(redone).items() if before.get(path) != after}
    noted = {path for kind, path in kinds if kind == "journaled"}
    assert put_back <= noted
    assert all(path.endswith(".log") for path in noted - put_back), "without a version"
    assert {kind for kind, _ in found(redone)} <= {"journaled", "index-damaged", "index-incomplete"}


# --- what is wrong with the journal ------------------------------------------------------------------------------


def test_a_damaged_journal_is_damage_and_the_tables_are_verified_without_it():
    filesystem = left_behind(unpublished=1)
    replace_file(filesystem, journal_path(), bytes(1_000))

    assert found(filesystem) == [("journal-damaged", "journal"), ("bytes-behind", SEGMENT)]
    finding = next(finding for finding in audited(filesystem).findings if finding.kind == "journal-damaged")
    assert finding.severity == "damage"
    assert journal_path() in finding.message
    assert "no broker can start here" in finding.message


def test_a_journal_with_a_file_missing_is_damage():
    disk = DataDirectory(**SETTINGS)
    partition = disk.make()
    for batch in batches_of(3):
        disk.commit(partition, batch)
        disk.engine.end_file()
    disk.close()
    disk.filesystem.remove(journal_path(2))

    assert ("journal-damaged", "journal") in found(disk.filesystem)


def test_a_journal_that_cannot_be_read_is_damage():
    filesystem = FailingFilesystem(left_behind())
    filesystem.fail("read_at", path_pattern=f"{JOURNAL}/*", times=None)

    assert found(filesystem) == [("file-unreadable", "journal")]


def test_a_document_that_is_not_that_of_the_journal_is_damage_of_its_partition():
    filesystem, later = left_behind(), DataDirectory(**SETTINGS)
    later.clock.time_ms += 5
    stranger = later.make()
    for batch in batches_of(3):
        later.commit(stranger, batch)
        later.publish(stranger)
    later.close()
    replace_file(filesystem, f"{DELTA_LOG}/{2:020d}.json", later.filesystem.read_file(f"{DELTA_LOG}/{2:020d}.json"))

    kinds = found(filesystem)
    assert ("journal-differs", f"{DIRECTORY}/") in kinds
    assert not any(OTHER_DIRECTORY in path for _, path in kinds)


def test_long_runs_that_are_not_those_of_the_journal_are_damage_of_their_partition(monkeypatch):
    monkeypatch.setattr(journal_engine, "DIRECT_BYTES_MIN", 1)
    filesystem = FailingFilesystem(left_behind(unpublished=1))
    filesystem.flip_bit(SEGMENT, filesystem.file_size(SEGMENT) - 1, 0)

    assert ("journal-differs", f"{DIRECTORY}/") in found(filesystem)


def test_foreign_names_beside_the_journal_are_noted():
    filesystem = left_behind()
    replace_file(filesystem, f"{JOURNAL}/notes.txt", b"")

    assert found(filesystem) == [("foreign-file", "journal/notes.txt")]


# --- beside a broker, and of one partition -----------------------------------------------------------------------


def test_a_file_of_the_journal_that_goes_while_it_is_read_is_no_damage():
    filesystem = CountingFilesystem(left_behind())

    def let_go(operation):
        if operation.name == "read_file" and operation.path == journal_path():
            filesystem.before = lambda operation: None
            filesystem._filesystem.remove(journal_path())
            raise FileNotFoundError(journal_path())

    filesystem.before = let_go
    report = audit_data_directory(filesystem, ROOT)

    assert report.damage == 0


def test_what_a_broker_has_put_in_place_meanwhile_is_not_noted():
    filesystem = left_behind()
    document = filesystem.read_file(f"{DELTA_LOG}/{3:020d}.json")
    filesystem.remove(f"{DELTA_LOG}/{3:020d}.json")
    watched = CountingFilesystem(filesystem)

    def publish(operation):
        if operation.name == "list_names" and operation.path == DELTA_LOG and "read_file" in watched.names():
            lists = [each for each in watched.operations if each == operation]
            if len(lists) == 2:
                replace_file(filesystem, f"{DELTA_LOG}/{3:020d}.json", document)

    watched.before = publish
    report = audit_data_directory(watched, ROOT)

    assert [str(finding.kind) for table in report.tables for finding in table.findings] == []


def test_one_partition_is_verified_with_what_the_journal_has_of_it():
    filesystem = left_behind(unpublished=1)
    filesystem.remove(f"{DIRECTORY}/{commit_file(1)}")
    filesystem.remove(f"{OTHER_DIRECTORY}/{commit_file(1)}")

    report = audit_partition(filesystem, ROOT, "topic=orders-part=0")

    (table,) = report.tables
    assert [(str(finding.kind), finding.file) for finding in table.findings] == [
        ("journaled", commit_file(1)),
        ("journaled", f"{0:020d}.log"),
    ]
    assert (report.damage, report.notes) == (0, 2)


def test_of_one_partition_a_damaged_journal_is_told_too():
    filesystem = left_behind()
    replace_file(filesystem, journal_path(), bytes(1_000))

    report = audit_partition(filesystem, ROOT, "topic=orders-part=0")

    assert [str(finding.kind) for finding in report.findings] == ["journal-damaged"]
    assert report.damage == 1


def test_no_more_than_a_part_of_the_journal_or_of_what_it_puts_back_is_in_memory(tmp_path, monkeypatch):
    """A journal of 24 MB, none of whose bytes are in their places, as after a power cut."""
    root = str(tmp_path)
    settings = SETTINGS | {"config": TopicConfig(segment_bytes=2**30)}
    with DataDirectory(OsFilesystem(), root=root, **settings) as disk:
        partition = disk.make()
        disk.commit(partition, *[batch_of(b"%03d" % number * 20_000) for number in range(400)])
    segment = tmp_path / "topic=orders-part=0" / f"{0:020d}.log"
    size = segment.stat().st_size
    assert size > 24_000_000
    segment.write_bytes(bytes(size))

    monkeypatch.setattr(overlay_filesystem, "MEMORY_BYTES", 1_000_000)
    tracemalloc.start()
    report = audit_data_directory(OsFilesystem(), root)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    kinds = {finding.kind for table in report.tables for finding in table.findings}
    assert (report.damage, kinds) == (0, {"journaled"})
    assert peak < 8_000_000
    assert segment.read_bytes() == bytes(size)
