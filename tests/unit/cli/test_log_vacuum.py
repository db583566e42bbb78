"""`exactlog log vacuum`: what it is told, what it says, and what it leaves alone."""

import os

import pytest

from exactlog.core.model.ids import TopicPartition
from exactlog.storage.directory_lock import DirectoryLock
from exactlog.storage.filesystem import OsFilesystem
from exactlog.storage.table_reader import open_table
from exactlog.testing import Broker
from tests.support.partitions import DataDirectory, batch_of
from tests.support.watching import wait_published

VERSIONS = 12


@pytest.fixture
def data_dir(tmp_path):
    """A data directory of two partitions with a checkpoint for every second version, and no broker."""
    root = tmp_path / "data"
    with DataDirectory(OsFilesystem(), root=str(root), checkpoint_interval=2) as disk:
        for topic in ("a", "b"):
            partition = disk.make(TopicPartition(topic, 0))
            disk.commit(partition, *[batch_of(b"%d" % number) for number in range(VERSIONS)])
    return root


@pytest.fixture
def partition(data_dir):
    return data_dir / "topic=a-part=0"


def names(partition):
    return sorted(path.name for path in (partition / "_delta_log").iterdir())


def test_old_versions_of_a_partition_expire_and_the_report_says_so(run, data_dir, partition):
    before = {name: (partition / "_delta_log" / name).stat().st_size for name in names(partition)}

    ran = run("log", "vacuum", partition, "--keep-versions", 5)

    gone = before.keys() - set(names(partition))
    assert ran.code == 0
    assert ran.value == [
        {
            "topic": "a",
            "partition": 0,
            "versions_expired": 8,
            "files_removed": len(gone),
            "bytes_freed": sum(before[name] for name in gone),
            "oldest_version": 8,
            "version": VERSIONS,
            "reason": "",
            "dry_run": False,
        }
    ]
    assert [row["version"] for row in run("log", "versions", partition, "--all").value] == [12, 11, 10, 9, 8]
    assert len(run("log", "read", partition).rows) == VERSIONS
    expired = run("log", "read", partition, "--as-of", 7)
    assert (expired.code, expired.error["code"]) == (3, "version-expired")
    assert "8" in expired.error["message"]
    assert len(names(data_dir / "topic=b-part=0")) == len(before), "another partition is not touched"


def test_every_partition_of_a_data_directory_is_vacuumed(run, data_dir):
    rows = run("log", "vacuum", data_dir, "--keep-versions", 1).value

    assert [(row["topic"], row["oldest_version"]) for row in rows] == [("a", 10), ("b", 10)]


def test_people_get_a_table(run, partition):
    out = run("log", "vacuum", partition, "--keep-versions", 5, "-o", "table").out

    heading, row = out.splitlines()
    assert heading.startswith("TOPIC  PARTITION  VERSIONS EXPIRED  FILES REMOVED  BYTES FREED  OLDEST VERSION  VERSION")
    assert row.split()[:3] == ["a", "0", "8"]


def test_a_dry_run_says_what_would_go_and_changes_nothing(run, partition):
    before = names(partition)

    said = run("log", "vacuum", partition, "--keep-versions", 5, "--dry-run").value[0]

    assert names(partition) == before
    assert said["dry_run"] is True
    assert run("log", "vacuum", partition, "--keep-versions", 5).value[0] == said | {"dry_run": False}


def test_where_nothing_expires_the_reason_is_told(run, partition):
    (row,) = run("log", "vacuum", partition, "--keep-versions", 100).value

    assert (row["versions_expired"], row["oldest_version"]) == (0, 0)
    assert row["reason"] == "there are no older versions"


@pytest.mark.parametrize("spelling", ["absolute", "relative", "with a slash", ".", "..", "its data directory"])
def test_the_directory_may_be_named_in_any_way(run, data_dir, partition, monkeypatch, spelling):
    """delta-rs #663: a vacuum of a relative path reported files and removed none."""
    directory, path = {
        "absolute": (data_dir, partition),
        "relative": (data_dir.parent, partition.relative_to(data_dir.parent)),
        "with a slash": (data_dir, f"{partition.name}/"),
        ".": (partition, "."),
        "..": (partition / "_delta_log", ".."),
        "its data directory": (data_dir, "."),
    }[spelling]
    monkeypatch.chdir(directory)

    ran = run("log", "vacuum", path, "--keep-versions", 5)

    assert ran.code == 0
    assert ran.value[0]["oldest_version"] == 8
    assert f"{7:020d}.json" not in names(partition)
    assert open_table(partition).oldest_version == 8
    assert not (partition / "lock").exists()
    assert (data_dir / "lock").exists()


@pytest.mark.parametrize("path", ["partition", "data_dir", "."])
def test_beside_a_broker_it_is_refused_and_says_whose_directory_it_is(run, data_dir, partition, monkeypatch, path):
    before = names(partition)
    monkeypatch.chdir(partition)
    with DirectoryLock(str(data_dir)):
        ran = run("log", "vacuum", {"partition": partition, "data_dir": data_dir}.get(path, path), "--keep-versions", 1)

        assert (ran.code, ran.error["code"]) == (9, "directory-locked")
        assert f"process {os.getpid()}" in ran.error["message"]
        assert run("log", "vacuum", partition, "--keep-versions", 1, "--dry-run").code == 0

    assert names(partition) == before
    assert run("log", "vacuum", partition, "--keep-versions", 1).code == 0


@pytest.mark.parametrize("keep", [["--keep-versions", 0], ["--keep-versions", -3], []])
def test_how_many_are_kept_must_be_said_and_one_at_least(run, partition, keep):
    """delta #1470: a vacuum that kept nothing broke the table."""
    before = names(partition)

    assert run("log", "vacuum", partition, *keep).code == 2
    assert names(partition) == before


def test_a_path_without_a_table_is_an_error_and_gets_no_lock(run, tmp_path):
    for path in (tmp_path, tmp_path / "nowhere"):
        ran = run("log", "vacuum", path, "--keep-versions", 1)
        assert (ran.code, ran.error["code"]) == (3, "not-found")
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_partition_is_left_as_it_is_and_the_others_are_vacuumed(run, data_dir, partition):
    (partition / "_delta_log" / f"{VERSIONS:020d}.json").write_bytes(b"{")
    (partition / "_delta_log" / f"{VERSIONS:020d}.checkpoint.json").unlink()
    before = names(partition)

    ran = run("log", "vacuum", data_dir, "--keep-versions", 1)

    assert (ran.code, ran.error["code"]) == (8, "partly-done")
    assert ran.error["message"].startswith("1 of 2 partitions are as they were")
    assert [row["topic"] for row in ran.value] == ["b"]
    assert names(partition) == before
    alone = run("log", "vacuum", partition, "--keep-versions", 1)
    assert (alone.code, alone.error["code"], alone.out) == (7, "damage", "")


def test_a_broker_starts_on_what_a_vacuum_left(run, tmp_path):
    with Broker(tmp_path, config={"delta.checkpoint.interval": 2, "delta.checkpoint.min.interval.ms": 0}) as broker:
        broker.create_topic("t")
        for number in range(9):
            run("-b", broker.bootstrap_servers, "produce", "t", stdin=b"%d" % number)
            wait_published(broker)
    assert run("log", "vacuum", tmp_path, "--keep-versions", 2).value[0]["versions_expired"] > 0

    with Broker(tmp_path) as broker:
        run("-b", broker.bootstrap_servers, "produce", "t", stdin=b"9")
        rows = run("-b", broker.bootstrap_servers, "consume", "t").rows

    assert [row["value"] for row in rows] == [str(number) for number in range(10)]
