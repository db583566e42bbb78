"""`exactlog pipeline`: rows and metrics on standard output, progress on standard error, one sentence when it fails."""

import json
import os
import signal
import subprocess
import sys

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable

from exactlog.cli.main import main
from exactlog.testing import Broker
from tests.peers.gate import skip_without_peer
from tests.peers.toolchain import require_tools
from tests.support.transactions import BrokerWriter
from tests.support.written_topics import committed_in, committed_values

pytestmark = pytest.mark.peer


@pytest.fixture
def broker():
    with Broker() as running:
        running.create_topic("orders", partitions=2)
        yield running


@pytest.fixture
def writer(broker):
    return BrokerWriter(broker, "orders")


@pytest.fixture
def run(spark, capfd):
    """Runs the command in the session of the tests; returns exit code, standard output, lines of standard error."""

    def run_main(*arguments):
        capfd.readouterr()
        code = main(["pipeline", *map(str, arguments)])
        captured = capfd.readouterr()
        return code, captured.out, captured.err.splitlines()

    return run_main


def fault_of(lines):
    """What the one line of an error says, behind lines of progress."""
    assert all("Exception" not in line and "\tat " not in line for line in lines), lines
    return json.loads(lines[-1])["error"]


# --- export -----------------------------------------------------------------------------------------------------------


def test_an_export_prints_its_metrics_and_tells_how_it_goes_on(run, broker, writer, tmp_path):
    writer.plain(b"a", b"b")

    code, out, lines = run("export", "--path", broker.data_dir, "--target", tmp_path / "t", "--topic", "orders")

    metrics = json.loads(out)
    assert (code, metrics["rows"], metrics["batches"], metrics["lag"], metrics["target_version"]) == (0, 2, 1, 0, 1)
    (part,) = metrics["partitions"]
    assert part["version"] == 1
    assert part | {"rows": 2, "to_offset": 2} == part
    assert any("round 1 of 1: 2 rows in 1 files" in line for line in lines)
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().num_rows == 2


def test_an_export_reads_the_broker_that_is_named_when_no_path_is(run, broker, writer, tmp_path):
    writer.plain(b"a")

    code, out, _ = run("export", "-b", broker.bootstrap_servers, "--target", tmp_path / "t", "--format", "parquet")

    assert (code, json.loads(out)["rows"]) == (0, 1)
    assert len(list((tmp_path / "t").glob("batch=0/date=*/*.parquet"))) == 1


def test_an_export_takes_a_schema_a_version_and_no_date(run, broker, writer, tmp_path):
    writer.plain(b'{"id": 1}')
    writer.plain(b'{"id": 2}')
    given = ("--path", broker.data_dir / "topic=orders-part=0", "--as-of", "1", "--schema", "id INT", "--no-date")

    code, _, _ = run("export", "--target", tmp_path / "t", *given)

    table = DeltaTable(tmp_path / "t").to_pyarrow_table()
    assert (code, table["value"].to_pylist(), "date" in table.column_names) == (0, [{"id": 1}], False)


def test_as_a_table_metrics_and_partitions_stand_below_each_other(run, broker, writer, tmp_path):
    writer.plain(b"a")

    code, out, _ = run("export", "--path", broker.data_dir, "--target", tmp_path / "t", "-o", "table", "-q")

    assert code == 0
    assert "TOPIC   PARTITION  FROM OFFSET  TO OFFSET  VERSION  ROWS  LAG" in out
    assert out.startswith("rows            1\n")


@pytest.mark.parametrize(
    ("arguments", "code", "kind"),
    [
        (["--path", "/no/such/log"], 3, "not-found"),
        (["--path", "{data_dir}", "--as-of", "999"], 3, "version-unknown"),
        (["--path", "{data_dir}", "--as-of", "soon"], 2, "usage"),
        (["--path", "{data_dir}", "--schema", "id NOPE"], 2, "invalid-schema"),
        (["--path", "{data_dir}", "--topic", "nosuch"], 3, "not-found"),
        (["-b", "127.0.0.1:1", "--as-of", "1"], 2, "invalid-option"),
        (["--path", "{data_dir}", "--target", "{data_dir}/inside"], 2, "invalid-target"),
        (["--path", "{data_dir}", "--jar", "/no/such.jar"], 1, "jar-missing"),
        (["--path", "{data_dir}", "--master", "local[7]"], 1, "session-running"),
        (["--path", "{data_dir}", "--master", "lokal"], 2, "invalid-config"),
        (["--path", "{data_dir}", "--conf", "nonsense"], 2, "usage"),
    ],
)
def test_what_cannot_be_exported_is_one_sentence_and_an_exit_code(
    run, broker, writer, tmp_path, *, arguments, code, kind
):
    writer.plain(b"a")
    given = [argument.format(data_dir=broker.data_dir) for argument in arguments]

    found, out, lines = run("export", "--target", tmp_path / "t", *given)

    fault = fault_of(lines)
    assert (found, out, fault["code"]) == (code, "", kind)
    assert fault["message"]
    assert not (tmp_path / "t").exists()


def test_records_that_are_lost_are_an_error_until_that_is_allowed(run, broker, writer, tmp_path):
    writer.plain(b"a")
    given = ("--path", broker.data_dir, "--target", tmp_path / "t")
    assert run("export", *given)[0] == 0
    writer.plain(b"b")
    writer.plain(b"c")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.delete_records([confluent_kafka.TopicPartition("orders", 0, 2)]).values():
        future.result(30)

    code, _, lines = run("export", *given)
    assert (code, fault_of(lines)["code"]) == (3, "records-lost")
    code, out, _ = run("export", *given, "--allow-loss")
    assert (code, json.loads(out)["rows"]) == (0, 1)


# --- tables -----------------------------------------------------------------------------------------------------------


def test_tables_says_what_is_in_each_partition_and_how_its_view_is_called(run, broker, writer):
    writer.plain(b"a")
    writer.write(1, b"gone")
    writer.abort(1)
    writer.write(2, b"open")

    code, out, _ = run("tables", "--path", broker.data_dir)

    rows = json.loads(out)
    assert (code, [row["view"] for row in rows], [row["partition"] for row in rows]) == (
        0,
        ["orders", "orders"],
        [0, 1],
    )
    first = rows[0]
    assert first | {"records": 3, "committed": 1, "aborted": 1, "open": 1, "waiting": 0, "markers": 1} == first


def test_tables_of_what_is_no_log_are_one_sentence(run, tmp_path):
    code, out, lines = run("tables", "--path", tmp_path)

    assert (code, out, fault_of(lines)["code"]) == (3, "", "not-found")


# --- copy -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def other():
    with Broker() as running:
        running.create_topic("orders", partitions=2)
        yield running


def test_a_copy_prints_its_metrics_and_goes_on_where_it_was(run, broker, writer, other, tmp_path):
    writer.plain(*(b"%d" % number for number in range(50)))
    writer.write(1, b"gone")
    writer.abort(1)
    given = ("--path", broker.data_dir, "--to", other.bootstrap_servers, "--id", "c", "--checkpoint", tmp_path / "cp")

    code, out, lines = run("copy", *given)
    metrics = json.loads(out)
    assert (code, metrics["rows"], metrics["batches"], metrics["lag"]) == (0, 50, 1, 0)
    assert metrics["versions"]["orders/0"] == 3
    assert any("batch 0: 50 rows so far" in line for line in lines)

    writer.plain(b"50")
    assert json.loads(run("copy", *given)[1])["rows"] == 1
    assert json.loads(run("copy", *given)[1])["rows"] == 0
    found = committed_in(other.bootstrap_servers, "orders")[0]
    assert [each.record.value for each in found] == [b"%d" % number for number in range(51)]  # and in their order


def test_a_topic_is_not_copied_into_itself(run, broker, writer, tmp_path):
    writer.plain(b"a")
    given = ("--to", broker.bootstrap_servers, "--id", "c", "--checkpoint", tmp_path / "cp", "--path", broker.data_dir)

    code, out, lines = run("copy", *given)
    assert (code, out, fault_of(lines)["code"]) == (1, "", "copy-loop")

    broker.create_topic("copied", partitions=2)
    code, out, _ = run("copy", *given, "--topic", "orders", "--target-topic", "copied")
    assert (code, json.loads(out)["rows"]) == (0, 1)
    assert committed_values(broker.bootstrap_servers, "copied") == [b"a"]


# --- programs of their own --------------------------------------------------------------------------------------------


def command(*arguments):
    return [sys.executable, "-m", "exactlog.cli.main", "pipeline", *map(str, arguments)]


def test_without_java_a_job_says_so_and_nothing_else(tmp_path):
    done = subprocess.run(
        command("tables", "--path", tmp_path, "-q"),
        env={**os.environ, "JAVA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    fault = json.loads(line)["error"]
    assert fault["code"] == "java-missing"
    assert f"JAVA_HOME is {tmp_path}" in fault["message"]


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
def test_a_copy_that_follows_ends_well_when_it_is_told_to(broker, writer, other, tmp_path, number):
    with skip_without_peer():
        require_tools("java")
    writer.plain(b"a", b"b")
    given = ("--path", broker.data_dir, "--to", other.bootstrap_servers, "--id", "c", "--checkpoint", tmp_path / "cp")
    with subprocess.Popen(
        command("copy", *given, "--follow", "--master", "local[2]"),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        said = []
        for line in running.stderr:
            said.append(line)
            if "batch 0: 2 rows so far" in line:
                running.send_signal(number)
        out = running.stdout.read()

    assert running.returncode == 0, said
    metrics = json.loads(out)
    assert (metrics["rows"], metrics["batches"], metrics["is_stopped"]) == (2, 1, True)
    assert [line for line in said if "Exception" in line or line.startswith("\tat ")] == []
    assert committed_values(other.bootstrap_servers, "orders") == [b"a", b"b"]
    assert [path.name for path in tmp_path.iterdir()] == ["cp"]  # and nothing else is left where it ran
