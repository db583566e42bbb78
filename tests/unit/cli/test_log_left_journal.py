"""`exactlog log verify`, `repair` and `vacuum` where a broker has left a commit journal."""

import pytest

from exactlog.cli.exit_codes import ExitCode
from exactlog.core.deltalog.journal_format import print_journal_name
from exactlog.storage import journal_engine
from exactlog.storage.filesystem import OsFilesystem
from tests.support.partitions import DataDirectory, batch_of, batches_of, values_of

SEGMENT = f"{0:020d}.log"
JOURNALED = {"is_journaled": True, "checkpoint_interval": 3}


def left_behind(root):
    """What a killed broker leaves: versions 0 to 6, and a committed round without a version."""
    disk = DataDirectory(OsFilesystem(), root=str(root), **JOURNALED)
    partition = disk.make()
    for batch in batches_of(6):
        disk.commit(partition, batch)
        disk.publish(partition)
    disk.commit(partition, batch_of(b"without a version"))
    disk.close()


def opened_values(root):
    with DataDirectory(OsFilesystem(), root=str(root), **JOURNALED) as disk:
        return values_of(disk.open())


VALUES = [*(b"%020d" % number for number in range(6)), b"without a version"]


@pytest.fixture
def root(tmp_path):
    left_behind(tmp_path)
    return tmp_path


@pytest.fixture
def long_root(tmp_path, monkeypatch):
    """The same, where the journal has none of the bytes: only where they are."""
    monkeypatch.setattr(journal_engine, "DIRECT_BYTES_MIN", 1)
    left_behind(tmp_path)
    return tmp_path


@pytest.fixture
def partition(root):
    return root / "topic=orders-part=0"


def commit(partition, version):
    return partition / "_delta_log" / f"{version:020d}.json"


def kinds(ran):
    return [finding["kind"] for table in ran.value["tables"] for finding in table["findings"]]


def test_verify_takes_what_the_journal_has_for_what_is_there(run, root, partition):
    commit(partition, 2).unlink()

    for path in (root, partition):
        ran = run("log", "verify", path)
        assert ran.code == ExitCode.OK
        assert kinds(ran) == ["journaled", "journaled"]
    assert not commit(partition, 2).exists()


def test_verify_of_one_partition_has_its_path_as_it_was_given(run, partition, monkeypatch):
    monkeypatch.chdir(partition)

    (table,) = run("log", "verify", ".").value["tables"]
    assert (table["topic"], table["path"], [each["kind"] for each in table["findings"]]) == (
        "orders",
        ".",
        ["journaled"],
    )


def test_a_damaged_journal_ends_verify_with_7_and_repair_changes_nothing(run, root, partition):
    journal = root / "journal" / print_journal_name(1)
    journal.write_bytes(bytes(journal.stat().st_size))
    leftover = partition / "_delta_log" / ".x.tmp"
    leftover.write_bytes(b"")

    for path in (root, partition):
        assert run("log", "verify", path).code == ExitCode.DAMAGE
        ran = run("log", "repair", path)
        assert ran.code == ExitCode.DAMAGE
        assert "journal" in ran.error["message"]
    assert leftover.exists()


def test_repair_puts_the_journal_in_its_place_first(run, root, partition):
    document = commit(partition, 2).read_bytes()
    commit(partition, 2).unlink()
    (partition / "_delta_log" / ".x.tmp").write_bytes(b"")

    ran = run("log", "repair", root)

    assert ran.code == ExitCode.OK
    assert [step["kind"] for table in ran.value["tables"] for step in table["steps"]] == ["remove-temporary-file"]
    assert commit(partition, 2).read_bytes() == document
    assert (root / "journal" / print_journal_name(1)).exists()
    assert opened_values(root) == VALUES


def test_a_dry_run_of_repair_changes_nothing(run, root, partition):
    commit(partition, 2).unlink()

    ran = run("log", "repair", "--dry-run", root)

    assert (ran.code, ran.value["steps"]) == (ExitCode.OK, 0)
    assert not commit(partition, 2).exists()


@pytest.mark.parametrize("place", ["", "topic=orders-part=0"])
def test_repair_cuts_nothing_off_that_is_committed_and_has_no_version_yet(run, long_root, place):
    size = (long_root / "topic=orders-part=0" / SEGMENT).stat().st_size

    ran = run("log", "repair", long_root / place)

    assert (ran.code, ran.value["steps"]) == (ExitCode.OK, 0)
    assert (long_root / "topic=orders-part=0" / SEGMENT).stat().st_size == size
    assert opened_values(long_root) == VALUES


def test_vacuum_puts_the_journal_in_its_place_first(run, root, partition):
    commit(partition, 5).unlink()

    ran = run("log", "vacuum", partition, "--keep-versions", 2)

    assert ran.code == ExitCode.OK
    assert ran.value[0]["oldest_version"] == 3
    assert commit(partition, 5).exists()
    assert opened_values(root) == VALUES
    assert not commit(partition, 2).exists(), "what expired does not come back"
