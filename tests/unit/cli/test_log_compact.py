"""`exactlog log compact`: what it is told, what it says, and what it leaves alone."""

import os

import pytest

from exactlog.storage.directory_lock import DirectoryLock
from exactlog.storage.filesystem import OsFilesystem
from exactlog.storage.table_reader import open_table
from exactlog.testing import Broker
from tests.support.raw_client import RawClient
from tests.support.transactions import BrokerWriter

KEYED = "topic=keyed-part=0"
COLUMNS = {
    "topic",
    "partition",
    "version",
    "segments_before",
    "segments",
    "bytes_before",
    "bytes",
    "records_removed",
    "passes",
    "is_dry_run",
}


@pytest.fixture
def data_dir(tmp_path, run):
    """Two compacted topics, one that is not, and what a group has committed; the broker has stopped."""
    root = tmp_path / "data"
    with Broker(root) as broker, RawClient(broker.port) as raw:
        for name in ("keyed", "other"):
            raw.create_topic(name, cleanup_policy="compact", segment_bytes=200)
            for number in range(12):
                key, value = f"k{number % 2}", b"%d\n" % number
                assert run("produce", name, "-k", key, "-b", broker.bootstrap_servers, stdin=value).code == 0
        raw.create_topic("plain", segment_bytes=200)
        for number in range(5):
            BrokerWriter(broker, "plain").plain(b"%0100d" % number)
    return root


def names_in(directory):
    return sorted(path.relative_to(directory) for path in directory.rglob("*") if path.is_file())


def test_the_compacted_topics_of_a_data_directory_are_compacted_and_no_other(run, data_dir):
    plain = names_in(data_dir / "topic=plain-part=0")

    ran = run("log", "compact", data_dir)

    assert ran.code == 0
    assert [(row["topic"], row["partition"]) for row in ran.value] == [("keyed", 0), ("other", 0)]
    for row in ran.value:
        assert row.keys() == COLUMNS
        assert row["bytes"] < row["bytes_before"]
        assert row["segments"] <= row["segments_before"]
        assert row["records_removed"] > 5
    assert names_in(data_dir / "topic=plain-part=0") == plain
    left = run("log", "read", data_dir / KEYED).rows
    assert [row["value"] for row in left][-2:] == ["10", "11"]
    assert len(left) < 8
    assert run("log", "verify", data_dir, "--deep").code == 0


def test_one_topic_or_one_partition_is_compacted_alone(run, data_dir, monkeypatch):
    assert [row["topic"] for row in run("log", "compact", data_dir, "--topic", "other").value] == ["other"]
    monkeypatch.chdir(data_dir / KEYED)
    assert [row["topic"] for row in run("log", "compact", ".").value] == ["keyed"]


def test_people_get_a_table(run, data_dir):
    heading, *rows = run("log", "compact", data_dir, "-o", "table").out.splitlines()
    assert heading.startswith("TOPIC  PARTITION  VERSION")
    assert [row.split()[0] for row in rows] == ["keyed", "other"]


def test_a_dry_run_says_what_would_be_done_and_changes_nothing(run, data_dir):
    before = {path: path.read_bytes() for path in data_dir.rglob("*") if path.is_file() and path.name != "lock"}

    trial = run("log", "compact", data_dir, "--dry-run")

    assert trial.code == 0
    assert {path: path.read_bytes() for path in data_dir.rglob("*") if path.is_file() and path.name != "lock"} == before
    real = run("log", "compact", data_dir)
    for trial_row, real_row in zip(trial.value, real.value, strict=True):
        assert trial_row["is_dry_run"]
        assert trial_row["bytes"] == real_row["bytes"]
        assert trial_row["records_removed"] == real_row["records_removed"]


def test_what_an_earlier_version_had_is_read_until_its_files_are_gone(run, data_dir):
    version = open_table(data_dir / KEYED).snapshot().version
    assert run("log", "compact", data_dir, "--topic", "keyed").code == 0

    before = run("log", "read", data_dir / KEYED, "--as-of", version)
    assert len(before.rows) == 12

    newest = {segment.name for segment in open_table(data_dir / KEYED).snapshot().segments}
    for path in (data_dir / KEYED).glob("*.log"):
        if path.name not in newest:
            path.unlink()
    gone = run("log", "read", data_dir / KEYED, "--as-of", version)
    assert (gone.code, gone.error["code"]) == (3, "version-expired")


@pytest.mark.parametrize("dry_run", [[], ["--dry-run"]])
def test_beside_a_broker_it_is_refused_and_says_whose_directory_it_is(run, data_dir, dry_run):
    with DirectoryLock(str(data_dir)):
        ran = run("log", "compact", data_dir, *dry_run)

    assert (ran.code, ran.error["code"]) == (9, "directory-locked")
    assert f"process {os.getpid()}" in ran.error["message"]


@pytest.mark.parametrize(("topic", "code", "error"), [("nobody", 3, "not-found"), ("plain", 2, "invalid-config")])
def test_a_topic_that_is_not_there_or_not_compacted_is_an_error(run, data_dir, topic, code, error):
    ran = run("log", "compact", data_dir, "--topic", topic)
    assert (ran.code, ran.error["code"]) == (code, error)


def test_a_path_without_a_table_is_an_error_and_gets_no_lock(run, tmp_path):
    for path in (tmp_path, tmp_path / "nowhere"):
        ran = run("log", "compact", path)
        assert (ran.code, ran.error["code"]) == (3, "not-found")
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_partition_stays_as_it_was_and_the_others_are_done(run, data_dir):
    log = min((data_dir / KEYED).glob("*.log"))
    content = bytearray(log.read_bytes())
    content[-1] ^= 1
    log.write_bytes(content)
    files = names_in(data_dir / KEYED / "_delta_log")

    ran = run("log", "compact", data_dir)

    assert (ran.code, ran.error["code"]) == (8, "partly-done")
    assert log.name in ran.error["message"]
    assert [row["topic"] for row in ran.value] == ["other"]
    assert [name for name in names_in(data_dir / KEYED / "_delta_log") if name not in files] == []
    assert OsFilesystem().exists(str(log))
