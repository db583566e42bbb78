import json
import shutil
import subprocess
import sys

import pytest

from exactlog.cli.exit_codes import ExitCode
from exactlog.testing import Broker
from tests.support.watching import wait_published

SEGMENT = f"{0:020d}.log"


@pytest.fixture
def data_dir(run, tmp_path):
    """A data directory that no broker runs on, with topic t of two partitions: one version in 0, two in 1."""
    with Broker(tmp_path / "data", config={"delta.checkpoint.min.interval.ms": 0}) as broker:
        broker.create_topic("t", partitions=2)
        for partition, value in ((0, b"a"), (1, b"b"), (1, b"c")):
            assert run("-b", broker.bootstrap_servers, "produce", "t", "-p", partition, stdin=value).code == 0
            wait_published(broker)
    return tmp_path / "data"


@pytest.fixture
def partition(data_dir):
    return data_dir / "topic=t-part=1"


def content_of(directory):
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def damage_segment(partition):
    segment = partition / SEGMENT
    content = segment.read_bytes()
    segment.write_bytes(content[:64] + bytes([content[64] ^ 1]) + content[65:])  # in the first batch


def leave_temporary_file(partition):
    (partition / "_delta_log" / ".x.tmp").write_bytes(b"")


# --- verify ----------------------------------------------------------------------------------------------------


def test_a_data_directory_that_is_well_is_reported_and_ends_with_0(run, data_dir):
    ran = run("log", "verify", data_dir)

    assert ran.code == ExitCode.OK
    tables = ran.value["tables"]
    assert [(table["topic"], table["partition"], table["records"], table["findings"]) for table in tables] == [
        ("t", 0, 1, []),
        ("t", 1, 2, []),
    ]
    assert tables[1] | {"topic_id": None, "bytes": None} == {
        "topic": "t",
        "partition": 1,
        "topic_id": None,
        "path": str(data_dir / "topic=t-part=1"),
        "flush_mode": "commit",
        "version": 2,
        "oldest_version": 0,
        "log_start_offset": 0,
        "end_offset": 2,
        "bytes": None,
        "batches": 2,
        "records": 2,
        "open_transactions": [],
        "findings": [],
    }
    assert (ran.value["findings"], ran.value["damage"], ran.value["harmless"], ran.value["notes"]) == ([], 0, 0, 0)


def test_one_partition_can_be_verified_alone(run, partition, monkeypatch):
    assert [table["partition"] for table in run("log", "verify", partition).value["tables"]] == [1]

    monkeypatch.chdir(partition)
    (table,) = run("log", "verify", ".", "--deep").value["tables"]
    assert (table["topic"], table["partition"], table["path"]) == ("t", 1, ".")


def test_damage_ends_with_7_and_says_what_where_and_what_next(run, data_dir, partition):
    damage_segment(partition)

    ran = run("log", "verify", data_dir)

    assert ran.code == ExitCode.DAMAGE
    (finding,) = ran.value["tables"][1]["findings"]
    assert finding | {"message": None, "next": None} == {
        "severity": "damage",
        "kind": "batch-damaged",
        "version": 1,
        "file": SEGMENT,
        "position": 0,
        "message": None,
        "next": None,
    }
    assert "CRC" in finding["message"]
    assert "restore" in finding["next"]
    assert ran.value["damage"] == 1


def test_harmless_damage_ends_with_7_too(run, partition):
    checkpoint = partition / "_delta_log" / f"{1:020d}.checkpoint.json"
    checkpoint.write_bytes(b"{")

    ran = run("log", "verify", partition)

    assert (ran.code, ran.value["damage"], ran.value["harmless"]) == (ExitCode.DAMAGE, 1, 1)


def test_notes_alone_end_with_0(run, partition):
    leave_temporary_file(partition)

    ran = run("log", "verify", partition)

    assert (ran.code, ran.value["damage"], ran.value["notes"]) == (ExitCode.OK, 0, 1)


def test_a_person_gets_a_table_and_the_findings_below_it(run, data_dir, partition):
    damage_segment(partition)
    (data_dir / "not\nours").write_bytes(b"")

    lines = run("log", "verify", data_dir, "-o", "table").out.splitlines()

    assert lines[0].startswith("TOPIC  PARTITION  VERSION  OLDEST VERSION  LOG START OFFSET  END OFFSET  BYTES")
    assert lines[0].split()[-4:] == ["BATCHES", "RECORDS", "DAMAGE", "NOTES"]
    assert [line.split()[-2:] for line in lines[1:3]] == [["0", "0"], ["1", "0"]]
    assert f"damage: batch-damaged: {partition}/{SEGMENT}, byte 0, version 1" in lines
    assert f"note: foreign-file: {data_dir}/not\\nours" in lines
    assert sum(line.startswith("  next: ") for line in lines) == 2
    assert lines[-1] == "2 partitions, damage: 1, notes: 1"


def test_verifying_runs_beside_a_broker_and_changes_nothing(run, exactlog_broker, exactlog_topic):
    run("produce", exactlog_topic, stdin=b"a\nb")
    wait_published(exactlog_broker)
    directory = exactlog_broker.data_dir / f"topic={exactlog_topic}-part=0"
    before = content_of(directory)

    assert run("log", "verify", directory).code == ExitCode.OK
    assert run("log", "verify", exactlog_broker.data_dir).code == ExitCode.OK
    assert content_of(directory) == before


def test_progress_is_told_only_when_asked_for_and_on_standard_error(run, data_dir):
    assert run("log", "verify", data_dir).err == ""

    command = [sys.executable, "-m", "exactlog.cli.main", "log", "verify", str(data_dir), "-v", "--json"]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(told.stdout)["damage"] == 0
    assert told.stderr.count("is verified") == 2
    assert f"{data_dir}/topic=t-part=1/{SEGMENT}: 2 batches" in told.stderr


def test_a_partition_without_a_delta_log_is_damage_not_nothing(run, partition):
    shutil.rmtree(partition / "_delta_log")

    ran = run("log", "verify", partition)

    assert ran.code == ExitCode.DAMAGE
    assert [finding["kind"] for finding in ran.value["tables"][0]["findings"]] == ["delta-log-missing"]


def test_a_data_directory_without_topics_can_be_verified(run, tmp_path):
    with Broker(tmp_path / "data"):
        pass

    ran = run("log", "verify", tmp_path / "data")

    assert (ran.code, ran.value["tables"], ran.value["damage"]) == (ExitCode.OK, [], 0)


@pytest.mark.parametrize("command", ["verify", "repair"])
def test_what_is_no_directory_of_ours_is_not_found_and_left_alone(run, tmp_path, command):
    (tmp_path / "something").write_bytes(b"")
    for path in (tmp_path / "nowhere", tmp_path, tmp_path / "something"):
        ran = run("log", command, path)
        assert (ran.code, ran.error["code"]) == (ExitCode.NOT_FOUND, "not-found")
    assert [path.name for path in tmp_path.iterdir()] == ["something"]


def test_a_missing_partition_of_the_catalog_is_found(run, data_dir):
    shutil.rmtree(data_dir / "topic=t-part=0")

    ran = run("log", "verify", data_dir)

    assert ran.code == ExitCode.DAMAGE
    assert [finding["kind"] for finding in ran.value["findings"]] == ["partition-missing"]


# --- repair ----------------------------------------------------------------------------------------------------


def test_what_is_repaired_is_told_and_verifies_well_afterwards(run, data_dir, partition):
    leave_temporary_file(partition)
    checkpoint = partition / "_delta_log" / f"{1:020d}.checkpoint.json"
    checkpoint.write_bytes(b"{")

    ran = run("log", "repair", data_dir)

    assert ran.code == ExitCode.OK
    assert (ran.value["dry_run"], ran.value["steps"], ran.value["damage"]) == (False, 2, 0)
    assert [step["kind"] for step in ran.value["tables"][1]["steps"]] == ["remove-checkpoint", "remove-temporary-file"]
    assert run("log", "verify", data_dir).value["notes"] == 0
    with Broker(data_dir) as broker:
        records = run("-b", broker.bootstrap_servers, "consume", "t", "-p", 1).rows
        assert [record["value"] for record in records] == ["b", "c"]


def test_a_dry_run_says_the_same_and_changes_no_byte(run, data_dir, partition):
    leave_temporary_file(partition)
    before = content_of(data_dir)

    planned = run("log", "repair", data_dir, "--dry-run")

    assert content_of(data_dir) == before
    assert planned.value["dry_run"] is True
    assert run("log", "repair", data_dir).value["tables"] == planned.value["tables"]


def test_what_cannot_be_repaired_is_listed_and_ends_with_7(run, data_dir, partition):
    damage_segment(partition)
    leave_temporary_file(partition)
    before = content_of(partition)

    ran = run("log", "repair", data_dir)

    assert ran.code == ExitCode.DAMAGE
    (finding,) = ran.value["tables"][1]["remaining"]
    assert (finding["kind"], finding["file"]) == ("batch-damaged", SEGMENT)
    assert finding["next"]
    assert content_of(partition) == before


def test_a_person_gets_the_steps_and_what_remains(run, data_dir, partition):
    leave_temporary_file(partition)
    heading, step, *others = run("log", "repair", data_dir, "--dry-run", "-o", "table").out.splitlines()
    assert heading == "TOPIC  PARTITION  STEP                   FILE               REASON"
    assert step.startswith("t              1  remove-temporary-file  _delta_log/.x.tmp  a file that never got its name")
    assert others == ["", "1 step to do, damage that remains: 0"]
    run("log", "repair", data_dir)
    assert run("log", "repair", data_dir, "-o", "table").out == "0 steps done, damage that remains: 0\n"

    damage_segment(partition)
    lines = run("log", "repair", data_dir, "-o", "table").out.splitlines()
    assert lines[1] == f"damage: batch-damaged: {partition}/{SEGMENT}, byte 0, version 1"
    assert lines[-1] == "0 steps done, damage that remains: 1"


def test_nothing_is_repaired_while_a_broker_runs(run, exactlog_broker, exactlog_topic):
    run("produce", exactlog_topic, stdin=b"a")
    directory = exactlog_broker.data_dir / f"topic={exactlog_topic}-part=0"

    for path in (directory, exactlog_broker.data_dir):
        ran = run("log", "repair", path)
        assert (ran.code, ran.error["code"]) == (ExitCode.DIRECTORY_LOCKED, "directory-locked")
    assert run("log", "repair", directory, "--dry-run").code == ExitCode.OK


def test_help_says_what_both_do(run):
    assert {"verify", "repair"} <= set(run("log", "--help").out.split())
    assert "--deep" in run("log", "verify", "--help").out
    assert "--dry-run" in run("log", "repair", "--help").out
    assert json.loads(run("log", "verify", "--nothing", "--json").err)["error"]["code"] == "usage"
