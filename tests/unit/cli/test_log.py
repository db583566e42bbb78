import uuid

import pytest

from exactlog.testing import Broker
from tests.support.watching import wait_published


@pytest.fixture
def partition(exactlog_broker, exactlog_topic):
    """The directory of a new topic's only partition."""
    return exactlog_broker.data_dir / f"topic={exactlog_topic}-part=0"


@pytest.fixture
def produce(run, exactlog_broker, exactlog_topic):
    """Appends values, each as a version of its own; returns the topic."""

    def produce_values(*values):
        for value in values:
            assert run("produce", exactlog_topic, stdin=value).code == 0
            wait_published(exactlog_broker)
        return exactlog_topic

    return produce_values


def test_a_partition_is_described_beside_its_running_broker(run, produce, partition):
    topic = produce(b"a", b"b")

    described = run("log", "inspect", partition).value

    assert (described["topic"], described["partition"], described["version"]) == (topic, 0, 2)
    assert (described["log_start_offset"], described["last_stable_offset"], described["end_offset"]) == (0, 2, 2)
    assert described["segment_files"] == ["00000000000000000000.log"]
    assert described["segments"] == 1
    assert described["bytes"] == (partition / "00000000000000000000.log").stat().st_size
    assert uuid.UUID(described["topic_id"])


def test_a_data_directory_is_described_partition_by_partition(run, tmp_path):
    with Broker(tmp_path) as broker:
        broker.create_topic("b", partitions=2)
        broker.create_topic("a")

    rows = run("log", "inspect", tmp_path).value

    assert [(row["topic"], row["partition"], row["end_offset"]) for row in rows] == [
        ("a", 0, 0),
        ("b", 0, 0),
        ("b", 1, 0),
    ]
    assert run("log", "inspect", tmp_path, "-o", "table").out.splitlines()[0].startswith("TOPIC  PARTITION  VERSION")


def test_versions_are_listed_the_newest_first(run, produce, partition):
    produce(b"a", b"b", b"c")

    rows = run("log", "versions", partition).value

    assert [(row["version"], row["adds"], row["removes"], row["end_offset"]) for row in rows] == [
        (3, 1, 0, 3),
        (2, 1, 0, 2),
        (1, 1, 0, 1),
        (0, 0, 0, 0),
    ]
    assert [row["changes_metadata"] for row in rows] == [False, False, False, True]
    assert rows[0]["txn_id"].startswith("broker-1:")


def test_as_many_versions_are_listed_as_asked_for(run, produce, partition):
    produce(b"a", b"b", b"c")

    assert [row["version"] for row in run("log", "versions", partition, "-n", 2).value] == [3, 2]
    assert [row["version"] for row in run("log", "versions", partition, "--all").value] == [3, 2, 1, 0]


def test_records_are_read_as_of_now_a_version_or_a_time(run, produce, partition):
    produce(b"a", b"b", b"c")
    times = {row["version"]: row["timestamp"] for row in run("log", "versions", partition).value}

    def read(*arguments):
        return [row["value"] for row in run("log", "read", partition, *arguments).rows]

    assert read() == ["a", "b", "c"]
    assert read("--as-of", 2) == ["a", "b"]
    assert read("--as-of", 0) == []
    assert read("--as-of", times[3]) == ["a", "b", "c"]
    assert read("--as-of", "2999-01-01T00:00:00Z") == ["a", "b", "c"]
    assert read("--from", 1, "--to", 2) == ["b"]


def test_all_partitions_of_a_data_directory_are_read(run, tmp_path):
    with Broker(tmp_path) as broker:
        broker.create_topic("t", partitions=2)
        for partition in (0, 1):
            run("-b", broker.bootstrap_servers, "produce", "t", "-p", partition, stdin=b"x%d" % partition)

    rows = run("log", "read", tmp_path).rows

    assert [(row["topic"], row["partition"], row["offset"], row["value"]) for row in rows] == [
        ("t", 0, 0, "x0"),
        ("t", 1, 0, "x1"),
    ]


def test_a_version_there_is_not_is_an_error(run, produce, partition):
    produce(b"a")

    ran = run("log", "read", partition, "--as-of", 99)

    assert (ran.code, ran.error["code"]) == (3, "version-unknown")


def test_a_path_without_a_table_is_an_error(run, tmp_path):
    (tmp_path / "file").touch()

    for path in (tmp_path, tmp_path / "nowhere", tmp_path / "file"):
        ran = run("log", "inspect", path)
        assert (ran.code, ran.error["code"]) == (3, "not-found")


def test_damage_is_an_error_of_its_own(run, tmp_path):
    with Broker(tmp_path) as broker:
        broker.create_topic("t")
        run("-b", broker.bootstrap_servers, "produce", "t", stdin=b"a")
    (tmp_path / "topic=t-part=0" / "_delta_log" / f"{1:020d}.json").write_bytes(b"{")

    ran = run("log", "inspect", tmp_path)

    assert (ran.code, ran.error["code"]) == (7, "damage")


def test_a_path_without_a_table_prints_no_heading(run, tmp_path):
    ran = run("log", "read", tmp_path, "-o", "table")

    assert (ran.code, ran.out) == (3, "")


def test_a_time_before_the_table_was_made_is_an_error_that_names_the_oldest_version(run, produce, partition):
    produce(b"a")

    ran = run("log", "read", partition, "--as-of", "2001-01-01T00:00:00Z")

    assert ran.code == 3
    assert ran.error["message"].endswith("so old a version cannot be read; the oldest one that can is 0")
