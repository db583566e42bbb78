"""`exactlog journal`, against a real broker and a store in a file."""

import io
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from exactlog.cli.main import main


@pytest.fixture
def run(broker, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("EXACTLOG_BOOTSTRAP", broker.bootstrap_servers)
    monkeypatch.setenv("EXACTLOG_JOURNAL_STORE", f"sqlite:///{tmp_path / 'journals.db'}")

    def run_main(*arguments, stdin=b""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main(["journal", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run_main


def value(ran):
    code, out, err = ran
    assert code == 0, err
    return json.loads(out)


def rows(ran):
    code, out, err = ran
    assert code == 0, err
    return [json.loads(line) for line in out.splitlines()]


def test_what_is_appended_is_read(run, topic):
    told = value(run("append", topic, "order-7", "--tag", "x", "--metadata", "[1]", stdin=b'{"placed":3}\n"text"\n'))
    assert told["seq_nr"] == 2
    value(run("append", topic, "order-7", "--text", "--expect", 2, "-H", "k=v", stdin=b"plain\n"))

    found = rows(run("read", topic, "order-7"))
    assert [(row["seq_nr"], row["event"]) for row in found] == [(1, {"placed": 3}), (2, "text"), (3, "plain")]
    assert (found[0]["tags"], found[0]["metadata"], found[2]["headers"]) == (["x"], [1], {"k": "v"})
    assert [row["seq_nr"] for row in rows(run("read", topic, "order-7", "--from", 2, "--to", 2))] == [2]
    assert value(run("pointer", topic, "order-7"))["seq_nr"] == 3
    assert run("read", topic, "order-7", "-o", "table")[1].splitlines()[1].endswith('{"placed":3}')


def test_a_conflict_ends_with_its_exit_code(run, topic):
    value(run("append", topic, "a", "--text", stdin=b"x\n"))
    code, _, err = run("append", topic, "a", "--text", "--expect", "none", stdin=b"y\n")
    assert code == 4
    assert json.loads(err)["error"]["code"] == "version-conflict"


@pytest.mark.parametrize(
    "arguments",
    [
        ("append", "a", "--expect", "some"),
        ("append", "a"),
        ("append", "a", "--metadata", "{"),
        ("read", "a", "--from", "0"),
        ("read", "a", "--from", "3", "--to", "2"),
        ("delete", "a", "--to", "1"),
        ("delete", "a", "--to", "0", "--yes"),
        ("purge", "a"),
    ],
)
def test_wrong_usage_is_told(run, topic, arguments):
    code, _, err = run(arguments[0], topic, *arguments[1:])
    assert code == 2
    assert json.loads(err)["error"]["hint"] is not None


def test_lines_that_are_no_json_are_refused_all_together(run, topic):
    code, _, _ = run("append", topic, "a", stdin=b"1\nno json\n")
    assert code == 2
    assert value(run("pointer", topic, "a"))["seq_nr"] is None


def test_deleting_purging_and_snapshots(run, topic):
    value(run("append", topic, "a", "--text", stdin=b"1\n2\n3\n"))
    assert value(run("snapshot", topic, "a", "--take", "--seq-nr", 2, stdin=b'{"sum":3}'))["seq_nr"] == 2
    assert value(run("snapshot", topic, "a")) == {"seq_nr": 2, "state": {"sum": 3}}
    assert value(run("delete", topic, "a", "--to", 2, "--yes"))["offset"] > 0
    assert [row["seq_nr"] for row in rows(run("read", topic, "a"))] == [3]
    assert run("purge", topic, "a", "--expect", 7, "--yes")[0] == 4
    value(run("purge", topic, "a", "--yes"))
    assert value(run("pointer", topic, "a"))["seq_nr"] is None
    assert value(run("snapshot", topic, "a")) == {"seq_nr": None}


def test_a_replicator_runs_until_it_is_ended(run, topic, tmp_path):
    value(run("append", topic, "a", "--text", "--expire-after", "1 ms", stdin=b"1\n2\n"))
    assert [row["lag"] for row in value(run("lag", "--topic-prefix", topic))] == [2]
    command = [sys.executable, "-m", "exactlog.cli.main", "journal", "replicate", "--topic-prefix", topic]
    replicator = subprocess.Popen([*command, "--skip", f"{topic}:0:999"], env=dict(os.environ))
    try:
        while value(run("lag", "--topic-prefix", topic))[0]["lag"]:
            assert replicator.poll() is None
            time.sleep(0.1)
    finally:
        replicator.send_signal(signal.SIGTERM)
        assert replicator.wait(30) == 130
    assert [row["topic"] for row in value(run("lag"))] == [topic]
    assert [row["event"] for row in rows(run("read", topic, "a"))] == ["1", "2"]
    assert value(run("purge-expired", "--topic", topic)) == {"purges": 1}
    assert value(run("pointer", topic, "a"))["seq_nr"] is None


def test_what_cannot_be_skipped_is_refused(run):
    assert run("replicate", "--skip", "topic")[0] == 2
