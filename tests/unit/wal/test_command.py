"""`exactlog wal`, against a real broker."""

import io
import json
import sys

import pytest

from exactlog.cli.main import main
from exactlog.core.wal.region_topics import RegionTopics
from exactlog.wal import RegionFenced, Wal
from tests.contract.wal_backends import new_namespace


class Ran:
    """How a command ended, and what it printed."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def value(self):
        return json.loads(self.out)

    @property
    def rows(self):
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def run(exactlog_broker, capsys, monkeypatch):
    monkeypatch.setenv("EXACTLOG_BOOTSTRAP", exactlog_broker.bootstrap_servers)

    def run_main(*arguments):
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run_main


@pytest.fixture
def namespace():
    return new_namespace()


@pytest.fixture
def log(exactlog_broker, namespace):
    with Wal.open_sync(f"kafka://{exactlog_broker.bootstrap_servers}", namespace=namespace) as wal:
        yield wal


@pytest.fixture
def region(log):
    found = log.open_region(7, create=True)
    found.write(3, [b"a", b"b", b"c"])
    found.write(4, [b"\xff"])
    found.mark_deleted(3, 2, durable=True)
    return found


def test_regions_are_listed(run, namespace, log, region):
    log.open_region(2, create=True)

    assert run("wal", "regions", "-n", namespace).value == [
        {"region": 2, "data_topic": f"{namespace}_data_2", "meta_topic": f"{namespace}_meta_2"},
        {"region": 7, "data_topic": f"{namespace}_data_7", "meta_topic": f"{namespace}_meta_7"},
    ]


def test_a_description_names_the_table_that_pins_the_log(run, namespace, region):
    described = run("wal", "describe", 7, "-n", namespace).value

    assert (described["region"], described["pinned_by_table"], described["pinned_sequence"]) == (7, 3, 3)
    assert described["deletable_offsets"] == 2
    assert described["findings"] == []
    assert [(table["table"], table["kept_entries"], table["pins_log"]) for table in described["tables"]] == [
        (3, 1, True),
        (4, 1, False),
    ]
    assert region.write(3, [b"d"]) == 4


def test_a_description_is_a_table_for_people(run, namespace, region):
    lines = run("wal", "describe", 7, "-n", namespace, "-o", "table").out.splitlines()

    assert lines[0].split() == ["region", "7"]
    assert "TABLE" in lines[-3]


def test_entries_are_scanned(run, namespace, region):
    assert [(row["table"], row["sequence"], row["payload"]) for row in run("wal", "scan", 7, "-n", namespace).rows] == [
        (3, 3, "c"),
        (4, 1, {"base64": "/w=="}),
    ]
    assert [row["table"] for row in run("wal", "scan", 7, "-n", namespace, "-t", 4).rows] == [4]
    assert len(run("wal", "scan", 7, "-n", namespace, "-c", 1).rows) == 1
    assert run("wal", "scan", 7, "-n", namespace, "-o", "table").out.splitlines()[1].split()[:2] == ["3", "3"]


def test_a_mark_takes_the_region_only_if_that_is_meant(run, namespace, region):
    refused = run("wal", "mark-deleted", 7, 3, "--up-to", 3, "-n", namespace)
    assert refused.code == 2
    assert "takes region 7 from whoever has it open" in refused.err

    marked = run("wal", "mark-deleted", 7, 3, "--up-to", 3, "-n", namespace, "--yes")

    assert marked.value == {"region": 7, "table": 3, "marked_up_to": 3}
    with pytest.raises(RegionFenced):
        region.write(3, [b"d"])
    assert run("wal", "describe", 7, "-n", namespace).value["pinned_by_table"] == 4


def test_a_clean_up_says_what_it_kept_and_why(run, namespace, log, region):
    planned = run("wal", "clean", 7, "-n", namespace, "--dry-run").value
    assert region.write(3, [b"d"]) == 4
    log.close_region(7)

    cleaned = run("wal", "clean", 7, "-n", namespace, "--yes").value

    assert planned == {**cleaned, "dry_run": True}
    assert (cleaned["deleted_before"], cleaned["kept_by"], cleaned["pinned_by_table"]) == (2, "table", 3)
    assert run("wal", "clean", 7, "-n", namespace, "--yes").value["deleted_before"] is None
    assert run("wal", "describe", 7, "-n", namespace).value["log_start"] == 2


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("describe", 99), 3),
        (("scan", 99), 3),
        (("clean", 99, "--yes"), 3),
        (("clean", 7), 2),
        (("mark-deleted", 7, 9, "--up-to", 1, "--yes"), 3),
        (("mark-deleted", 7, 3, "--up-to", 99, "--yes"), 1),
        (("describe", -1), 2),
    ],
)
def test_what_cannot_be_done_is_told(run, namespace, region, arguments, code):
    told = run("wal", *arguments, "-n", namespace)

    assert told.code == code
    assert told.out == ""


def test_a_foreign_record_is_named_and_can_be_passed_over(run, namespace, log, region, monkeypatch):
    topic = RegionTopics(namespace, 7).data
    log.close_region(7)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"foreign\n")))
    assert run("produce", topic).code == 0

    refused = run("wal", "scan", 7, "-n", namespace)
    assert refused.code == 7
    offset = int(refused.err.split("the record at offset ")[1].split()[0])

    assert len(run("wal", "scan", 7, "-n", namespace, "--skip", offset).rows) == 2
    assert run("wal", "clean", 7, "-n", namespace, "--skip", offset, "--yes").code == 0
    assert len(run("wal", "scan", 7, "-n", namespace).rows) == 2
