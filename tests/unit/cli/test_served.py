"""The command line as processes: what a shell sees."""

import json
import signal
import subprocess
import sys

import pytest

EXACTLOG = (sys.executable, "-m", "exactlog.cli.main")
PATIENCE_S = 60


@pytest.fixture
def start(tmp_path, clean_environment):
    """Starts `exactlog serve` in a directory of its own; returns the process and its ready line."""
    served = []

    def start_broker(*arguments):
        process = subprocess.Popen(
            [*EXACTLOG, "serve", "--port", "0", "--print-ready", "json", *arguments],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        served.append(process)
        return process, json.loads(process.stdout.readline())

    yield start_broker
    for process in served:
        process.kill()
        process.communicate(timeout=PATIENCE_S)


def run(*arguments, stdin=""):
    return subprocess.run(
        [*EXACTLOG, *arguments], input=stdin, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_served_broker_says_where_it_is_and_stops_when_told(start, tmp_path, number):
    process, ready = start("--data-dir", "data")

    assert ready["event"] == "ready"
    assert ready["bootstrap_servers"] == f"127.0.0.1:{ready['port']}"
    assert ready["pid"] == process.pid
    assert ready["data_dir"] == str(tmp_path / "data")
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (0, "")
    assert ready["bootstrap_servers"] in err


def test_records_survive_a_stop_and_a_start(start):
    process, ready = start("--data-dir", "data")
    assert run("-b", ready["bootstrap_servers"], "topic", "create", "orders").returncode == 0
    assert run("-b", ready["bootstrap_servers"], "produce", "orders", stdin="a\nb\n").returncode == 0
    process.terminate()
    assert process.wait(timeout=PATIENCE_S) == 0

    _, again = start("--data-dir", "data")

    shown = run("-b", again["bootstrap_servers"], "consume", "orders")
    assert [json.loads(line)["value"] for line in shown.stdout.splitlines()] == ["a", "b"]
    assert again["cluster_id"] == ready["cluster_id"]


def test_a_directory_in_use_ends_with_9_and_names_its_owner(start, tmp_path):
    process, ready = start("--data-dir", "data")

    second = run("serve", "--port", "0", "--data-dir", ready["data_dir"])

    assert second.returncode == 9
    assert f"process {process.pid}" in json.loads(second.stderr)["error"]["message"]


def test_an_address_in_use_is_told(start):
    _, ready = start("--in-memory")

    second = run("serve", "--in-memory", "--port", str(ready["port"]))

    assert second.returncode == 1
    assert json.loads(second.stderr)["error"]["code"] == "cannot-listen"


def test_a_directory_that_cannot_be_made_is_told(tmp_path, clean_environment):
    (tmp_path / "file").touch()

    served = run("serve", "--port", "0", "--data-dir", str(tmp_path / "file"))

    assert served.returncode == 1
    assert json.loads(served.stderr)["error"]["code"] == "cannot-start"


def test_following_is_interrupted_with_130_after_printing_what_came(start):
    _, ready = start("--in-memory")
    broker = ("-b", ready["bootstrap_servers"])
    run(*broker, "produce", "orders", stdin="a\n")
    with subprocess.Popen(
        [*EXACTLOG, *broker, "consume", "orders", "-f"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as follower:
        assert json.loads(follower.stdout.readline())["value"] == "a"
        run(*broker, "produce", "orders", stdin="b\n")
        assert json.loads(follower.stdout.readline())["value"] == "b"

        follower.send_signal(signal.SIGINT)

        out, err = follower.communicate(timeout=PATIENCE_S)
    assert (follower.returncode, out, err.strip()) == (130, "", "")


def test_producing_from_a_pipe_sends_lines_as_they_come_and_can_be_interrupted(start):
    _, ready = start("--in-memory")
    with subprocess.Popen(
        [*EXACTLOG, "-b", ready["bootstrap_servers"], "produce", "orders"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as producer:
        producer.stdin.write("a\n")
        producer.stdin.flush()
        assert json.loads(producer.stdout.readline())["last_offset"] == 0

        producer.send_signal(signal.SIGINT)

        producer.communicate(timeout=PATIENCE_S)
    assert producer.returncode == 130


def test_a_reader_that_has_enough_ends_consuming_quietly(start):
    _, ready = start("--in-memory")
    broker = ("-b", ready["bootstrap_servers"])
    run(*broker, "produce", "orders", stdin="x" * 1_000 + "\n")
    run(*broker, "produce", "orders", stdin="y\n" * 20_000)
    with subprocess.Popen(
        [*EXACTLOG, *broker, "consume", "orders"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as consumer:
        consumer.stdout.readline()
        consumer.stdout.close()
        err = consumer.stderr.read()
        assert consumer.wait(timeout=PATIENCE_S) == 0
    assert err == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_member_that_is_told_to_stop_commits_what_it_printed_and_leaves(start, number):
    _, ready = start("--in-memory")
    broker = ("-b", ready["bootstrap_servers"])
    run(*broker, "produce", "orders", stdin="a\nb\n")
    with subprocess.Popen(
        [*EXACTLOG, *broker, "consume", "orders", "-g", "readers", "-f"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as member:
        assert [json.loads(member.stdout.readline())["value"] for _ in range(2)] == ["a", "b"]
        member.send_signal(number)
        out, err = member.communicate(timeout=PATIENCE_S)
    assert (member.returncode, out, err.strip()) == (130, "", "")
    described = json.loads(run(*broker, "group", "describe", "readers").stdout)
    assert (described["state"], described["lag"]) == ("Empty", 0)


def test_a_member_whose_reader_has_gone_leaves_and_commits_nothing_that_nobody_got(start):
    _, ready = start("--in-memory")
    broker = ("-b", ready["bootstrap_servers"])
    run(*broker, "produce", "orders", stdin="x\n" * 20_000)
    with subprocess.Popen(
        [*EXACTLOG, *broker, "consume", "orders", "-g", "readers"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as member:
        member.stdout.readline()
        member.stdout.close()
        assert (member.stderr.read(), member.wait(timeout=PATIENCE_S)) == ("", 0)
    described = json.loads(run(*broker, "group", "describe", "readers").stdout)
    assert (described["state"], described["offsets"]) == ("Empty", [])


def test_the_environment_configures_a_broker_and_a_wrong_variable_is_named(start, monkeypatch, tmp_path):
    monkeypatch.setenv("EXACTLOG_FLUSH_MODE", "none")
    _, ready = start("--in-memory")
    assert ready["flush_mode"] == "none"

    monkeypatch.setenv("EXACTLOG_FLUSHMODE", "none")
    refused = run("serve", "--in-memory", "--port", "0")
    assert refused.returncode == 2
    assert "EXACTLOG_FLUSHMODE" in json.loads(refused.stderr)["error"]["message"]
    assert not list(tmp_path.iterdir())
