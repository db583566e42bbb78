"""`exactlog pipeline replicate-journal`: metrics on standard output, progress on standard error, one sentence else."""

import json
import signal
import subprocess
import sys

import pytest

from exactlog.cli.main import main
from exactlog.core.journal.rows import SEGMENT_SIZE_DEFAULT
from exactlog.testing import Broker
from tests.peers.gate import skip_without_peer
from tests.peers.toolchain import require_tools
from tests.support.journal_streams import (
    RandomWriters,
    log_ends,
    pointers_in,
    poison,
    replicate_embedded,
    write_actions,
)
from tests.support.replicated_store import rows_in

pytestmark = pytest.mark.peer

TOPIC = "orders"


@pytest.fixture
def broker():
    with Broker() as running:
        running.create_topic(TOPIC, partitions=1)
        yield running


@pytest.fixture
def writers():
    return RandomWriters("command", TOPIC, 1)


@pytest.fixture
def given(broker, tmp_path):
    return ("-b", broker.bootstrap_servers, "-s", f"sqlite:///{tmp_path}/j.db", "--checkpoint", tmp_path / "checkpoint")


@pytest.fixture
def run(spark, capfd):
    """Runs the command in the session of the tests; returns exit code, standard output, lines of standard error."""

    def run_main(*arguments):
        capfd.readouterr()
        code = main(["pipeline", "replicate-journal", *map(str, arguments)])
        captured = capfd.readouterr()
        return code, captured.out, captured.err.splitlines()

    return run_main


def test_it_prints_its_metrics_and_goes_on_where_it_was(run, broker, writers, given):
    write_actions(broker, writers, 50)

    code, out, lines = run(*given, "--topic-prefix", "ord")

    metrics = json.loads(out)
    assert (code, metrics["lag"], metrics["batches"], metrics["parked"], metrics["is_stopped"]) == (0, 0, 1, [], False)
    assert 0 < metrics["actions"] <= metrics["rows"]
    assert any(f"batch 0: {metrics['rows']} rows so far" in line for line in lines)
    assert json.loads(run(*given)[1])["rows"] == 0


def test_what_is_parked_is_named_and_skipped(run, broker, writers, given):
    write_actions(broker, writers, 10, extra=[poison(writers, "bad")])

    code, out, _ = run(*given)
    (parked,) = json.loads(out)["parked"]
    assert (code, parked["topic"], parked["partition"], parked["key_id"]) == (0, TOPIC, 0, "bad")
    code, out, _ = run(*given, "-o", "table")
    assert code == 0
    assert "TOPIC   PARTITION  OFFSET  KEY ID  REASON" in out
    code, out, _ = run(*given, "--skip", f"{TOPIC}:0:{parked['offset']}")
    assert json.loads(out)["parked"] == []


@pytest.mark.parametrize(
    ("arguments", "code", "kind"),
    [
        (["--skip", "orders"], 2, "usage"),
        (["--topic", "nosuch"], 3, "not-found"),
        (["-s", "memory:"], 2, "store-url"),
        (["--connector", "kafka", "--path", "{data_dir}"], 2, "invalid-option"),
        (["--path", "/no/such/log"], 3, "not-found"),
    ],
)
def test_what_cannot_be_replicated_is_one_sentence_and_an_exit_code(run, broker, given, *, arguments, code, kind):
    found, out, lines = run(*given, *(argument.format(data_dir=broker.data_dir) for argument in arguments))

    assert (found, out, json.loads(lines[-1])["error"]["code"]) == (code, "", kind)


def test_a_job_that_follows_ends_well_when_it_is_told_to(broker, writers, given, tmp_path):
    with skip_without_peer():
        require_tools("java")
    write_actions(broker, writers, 20)
    command = [sys.executable, "-m", "exactlog.cli.main", "pipeline", "replicate-journal", *map(str, given)]
    with subprocess.Popen(
        [*command, "--follow", "--master", "local[2]"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        said = []
        for line in running.stderr:
            said.append(line)
            if line.startswith("batch 0"):
                write_actions(broker, writers, 20)
            elif line.startswith("batch") and pointers_in(tmp_path / "j.db") == log_ends(broker, TOPIC):
                running.send_signal(signal.SIGTERM)
        out = running.stdout.read()

    assert running.returncode == 0, said
    metrics = json.loads(out)
    assert (metrics["is_stopped"], metrics["lag"], metrics["parked"]) == (True, 0, [])
    assert [line for line in said if "Exception" in line or line.startswith("\tat ")] == []
    replicate_embedded(broker, tmp_path / "embedded.db", TOPIC, segment_size=SEGMENT_SIZE_DEFAULT)
    assert rows_in(tmp_path / "j.db")["journal"] == rows_in(tmp_path / "embedded.db")["journal"]
