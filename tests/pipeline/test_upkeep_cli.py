"""The jobs of upkeep as commands: reports on standard output, progress on standard error, one sentence if they fail."""

import json
import os
import signal
import subprocess
import sys
from datetime import UTC, date, datetime

import pytest
from deltalake import DeltaTable

from exactlog.cli.main import main
from exactlog.core.model.ids import TopicPartition
from exactlog.testing import Broker
from tests.peers.gate import skip_without_peer
from tests.peers.spark_cluster import spark_home
from tests.peers.toolchain import PROJECT, require_tools
from tests.support.generated_logs import write_log
from tests.support.replicated_store import ids_in, replicate, rows_in, write_journals
from tests.support.transactions import BrokerWriter

pytestmark = pytest.mark.peer

TOPIC = "flights"


@pytest.fixture
def broker(tmp_path):
    with Broker(data_dir=tmp_path / "data") as running:
        running.create_topic(TOPIC, partitions=2)
        yield running


@pytest.fixture(autouse=True)
def filled(broker, store):
    async def write(journals):
        for number in range(4):
            await journals[TOPIC, f"over-{number}"].append(["x"], expire_after="1 millisecond")
            await journals[TOPIC, f"ever-{number}"].append(["x", "y"])

    write_journals(broker, store, write)
    replicate(broker, store, TOPIC)


@pytest.fixture
def run(spark, broker, capfd):
    """Runs the command in the session of the tests; returns exit code, standard output, lines of standard error."""

    def run_main(*arguments):
        capfd.readouterr()
        code = main(["pipeline", *map(str, arguments), "-b", broker.bootstrap_servers])
        captured = capfd.readouterr()
        assert all("Exception" not in line and "\tat " not in line for line in captured.err.splitlines()), captured.err
        return code, captured.out, captured.err.splitlines()

    return run_main


def fault_of(lines):
    """What the one line of an error says, behind lines of progress."""
    return json.loads(lines[-1])["error"]


def test_purging_prints_what_is_due_and_how_it_goes_on(run, broker, store, path):
    code, out, lines = run("purge-expired", "--store", store, "--shares", 3, "--dry-run")
    told = json.loads(out)
    assert (code, told["due"], told["purges"], told["is_dry_run"], told["shares"]) == (0, 4, 0, True, 3)
    assert date.fromisoformat(told["through"]) <= datetime.now(UTC).date()
    assert "share 3 of 3: 4 journals due so far, 0 purges asked for" in lines

    code, out, _ = run("purge-expired", "--store", store, "--topic", TOPIC)
    replicate(broker, store, TOPIC)

    told = json.loads(out)
    assert (code, told["purges"], told["topics"]) == (0, 4, [{"topic": TOPIC, "due": 4, "purges": 4}])
    assert {row[1] for row in rows_in(path)["metajournal"]} == {f"ever-{number}" for number in range(4)}


def test_verifying_ends_with_7_where_there_is_damage(run, broker, store, tmp_path):
    code, out, lines = run("verify", "--path", tmp_path / "data", "--deep")
    told = json.loads(out)
    assert (code, told["damage"], told["is_stopped"], told["partitions"]) == (0, 0, False, 3)
    assert any(line.startswith("partition 3 of 3: ") for line in lines)
    code, out, _ = run("verify", "--store", store)
    assert (code, json.loads(out)["equal"]) == (0, 8)

    write_log(tmp_path / "other", seed=5, places=[TopicPartition("orders", 0)], removes=False)
    (log, *_) = sorted((tmp_path / "other" / "topic=orders-part=0").glob("*.log"))
    content = bytearray(log.read_bytes())
    content[100] ^= 1
    log.write_bytes(content)
    code, out, _ = run("verify", "--path", tmp_path / "other", "-o", "table")
    assert code == 7
    assert "damage: batch-damaged" in out


def test_exporting_journals_adds_what_is_not_there_yet(run, store, tmp_path):
    code, out, lines = run("export-journals", "--store", store, "--target", tmp_path / "t", "--shares", 2)

    told = json.loads(out)
    assert (code, told["rows"], told["topics_left"]) == (0, 12, 0)
    assert any(line.startswith("topic flights, 1 of 1: share 2 of 2: 12 events") for line in lines)
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().num_rows == 12
    code, out, _ = run("export-journals", "--store", store, "--target", tmp_path / "t", "-o", "table")
    assert (code, out.startswith("rows")) == (0, True)


def test_compacting_wants_a_yes_where_it_takes_something(run, broker, store):
    code, out, _ = run("compact", "--store", store, "--shares", 2)
    assert (code, json.loads(out)["rows"]) == (0, 0)
    code, _, lines = run("compact", "--wal", "ts")
    assert (code, fault_of(lines)["code"]) == (2, "usage")
    code, _, lines = run("compact", "--wal", "ts", "--dry-run")
    assert (code, fault_of(lines)["code"]) == (3, "not-found")


@pytest.mark.parametrize(
    ("arguments", "code", "kind"),
    [
        (["purge-expired", "--store", "memory:"], 2, "store-url"),
        (["purge-expired", "--store", "sqlite:/no/such.db"], 3, "not-found"),
        (["purge-expired", "--store", "{store}", "--topic", "nosuch"], 3, "not-found"),
        (["purge-expired", "--store", "{store}", "--path", "d"], 2, "usage"),
        (["purge-expired"], 2, "usage"),
        (["verify"], 2, "usage"),
        (["verify", "--path", "/no/such", "--store", "{store}"], 2, "usage"),
        (["verify", "--path", "/no/such"], 3, "not-found"),
        (["verify", "--store", "sqlite:/no/such.db"], 3, "not-found"),
        (["compact"], 2, "usage"),
        (["compact", "--store", "cassandra://h/k"], 1, "unsupported"),
        (["export-journals", "--store", "{store}", "--target", "{store}/inside"], 2, "invalid-target"),
        (["export-journals", "--store", "{store}", "--target", "t", "--topic", "nosuch"], 3, "not-found"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_an_exit_code(run, store, *, arguments, code, kind):
    given = [
        argument.format(store=store.removeprefix("sqlite:") if "inside" in argument else store)
        for argument in arguments
    ]

    found, out, lines = run(*given)

    assert (found, out, fault_of(lines)["code"]) == (code, "", kind)
    assert fault_of(lines)["message"]


# --- programs of their own --------------------------------------------------------------------------------------------


def test_a_job_that_is_told_to_stop_ends_after_its_round_and_says_what_is_left(broker, store, tmp_path):
    with skip_without_peer():
        require_tools("java")
    arguments = ["purge-expired", "--store", store, "--shares", "400", "-b", broker.bootstrap_servers]
    with subprocess.Popen(
        [sys.executable, "-m", "exactlog.cli.main", "pipeline", *arguments, "--master", "local[2]"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        said = []
        for line in running.stderr:
            said.append(line)
            if line.startswith("share 2 of 400"):
                running.send_signal(signal.SIGTERM)
        out = running.stdout.read()

    assert running.returncode == 0, said
    told = json.loads(out)
    assert (told["is_stopped"], told["shares"] + told["shares_left"]) == (True, 400)
    assert told["shares_left"] > 0
    assert [line for line in said if "Exception" in line or line.startswith("\tat ")] == []


def test_spark_submit_runs_a_job_of_upkeep(broker, store):
    with skip_without_peer():
        require_tools("java")
    BrokerWriter(broker, TOPIC).plain(b"no action")
    home = spark_home()
    program = PROJECT / "src/exactlog/cli/spark_submit.py"
    job = ["verify", "--store", store, "-q", "-b", broker.bootstrap_servers]
    done = subprocess.run(
        [home / "bin" / "spark-submit", "--master", "local[2]", program, *job],
        env={**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["journals"], told["equal"], told["damage"]) == (8, 8, 0)


@pytest.mark.parametrize("job", ["purge-expired", "export-journals"])
def test_a_job_that_is_killed_half_way_is_run_again_and_all_is_done_once(run, broker, store, tmp_path, job):
    more = ["--target", tmp_path / "t"] if job == "export-journals" else []
    arguments = [job, "--store", store, *more, "-b", broker.bootstrap_servers]
    with subprocess.Popen(
        [sys.executable, "-m", "exactlog.cli.main", "pipeline", *arguments, "--shares", "12", "--master", "local[2]"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as running:
        for line in running.stderr:
            if "share 6 of 12" in line:
                os.killpg(running.pid, signal.SIGKILL)  # its JVM and its workers too

    assert running.returncode == -signal.SIGKILL
    code, out, _ = run(job, "--store", store, *more)
    replicate(broker, store, TOPIC)
    assert code == 0
    if job == "export-journals":
        events = DeltaTable(tmp_path / "t").to_pyarrow_table().select(["id", "seq_nr"]).to_pylist()
        stored = [{"id": row[1], "seq_nr": row[2]} for row in rows_in(tmp_path / "journals.db")["journal"]]
        assert sorted(events, key=repr) == sorted(stored, key=repr)
    else:
        assert json.loads(out)["due"] == 4  # the replicator has carried out none of them yet
        assert ids_in(tmp_path / "journals.db") == {f"ever-{number}" for number in range(4)}
