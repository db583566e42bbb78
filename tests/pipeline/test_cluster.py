"""On a cluster: the package travels as its wheel alone, and a worker that is lost costs nothing but time."""

import json
import os
import subprocess
import sys
import textwrap

import pytest
from deltalake import DeltaTable

from exactlog.core.model.ids import TopicPartition
from exactlog.testing import Broker
from tests.peers.gate import skip_without_peer
from tests.peers.spark_cluster import SparkCluster, python_without, spark_home, wait_for
from tests.peers.toolchain import PROJECT
from tests.support.generated_logs import write_log
from tests.support.naive_reader import naive_rows
from tests.support.written_topics import committed_in

pytestmark = pytest.mark.peer

PLACES = tuple(TopicPartition("orders", number) for number in range(6))
JOB_SECONDS = 240

JOB = """
import json, os, sys, time
from pathlib import Path

import exactlog
from exactlog.pipeline import explain, export_delta, session

log, place = sys.argv[1], Path(sys.argv[2])
spark = session(app_name="cluster")
rows = spark.read.format("exactlog").schema("topic string, partition int, offset bigint, value binary")
rows = rows.option("path", log).option("isolation", "read_committed").load()


def slowly(batches):
    from pyspark import TaskContext

    found = list(batches)
    marker = place / f"task-{TaskContext.get().partitionId()}-{TaskContext.get().attemptNumber()}-{os.getpid()}"
    marker.write_text(os.getcwd())
    while not (place / "go").exists():
        time.sleep(0.05)
    yield from found


found = sorted(tuple(row) for row in rows.mapInArrow(slowly, rows.schema).collect())
report = export_delta(spark, path=log, target=str(place / "table"))
result = {
    "home": exactlog.__file__,
    "master": spark.sparkContext.master,
    "rows": [[topic, partition, offset, bytes(value).hex() if value is not None else None]
             for topic, partition, offset, value in found],
    "exported": report.rows,
}
(place / "result.json").write_text(json.dumps(result))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The package as others install it."""
    built = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--disable-pip-version-check", "--quiet", "--no-deps"]
    subprocess.run([*command, "--no-build-isolation", "--wheel-dir", built, PROJECT], check=True)
    (found,) = built.glob("exactlog-*-py3-none-any.whl")
    return found


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    root = tmp_path_factory.mktemp("log")
    write_log(root, seed=21, places=PLACES, removes=False)
    return root


@pytest.fixture
def cluster(tmp_path):
    with skip_without_peer():
        starting = SparkCluster(tmp_path)
    with starting as running:
        yield running


def test_a_log_is_read_by_the_wheel_alone_while_a_worker_is_lost(cluster, wheel, log, tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    program = tmp_path / "job.py"
    program.write_text(textwrap.dedent(JOB))
    home = spark_home()
    command = [home / "bin" / "spark-submit", "--master", cluster.url, "--py-files", wheel]
    python = python_without("exactlog", tmp_path / "machine")
    environment = {**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"}
    with (tmp_path / "job.log").open("w") as said:
        job = subprocess.Popen(
            [*command, "--executor-memory", "512m", "--conf", "spark.log.level=ERROR", program, log, place],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
    try:
        # One task on each worker has read its part of the log, and waits.
        assert wait_for(lambda: len(list(place.glob("task-*"))) == 2 or job.poll() is not None, seconds=JOB_SECONDS)
        assert job.poll() is None, (tmp_path / "job.log").read_text()
        workers = {marker.read_text().split("/work-")[1][0] for marker in place.glob("task-*")}
        assert workers == {"0", "1"}
        cluster.kill_worker(0)
        (place / "go").touch()
        code = job.wait(JOB_SECONDS)
    finally:
        job.kill()
        job.wait()

    assert code == 0, (tmp_path / "job.log").read_text()
    result = json.loads((place / "result.json").read_text())
    wanted = [
        [row["topic"], row["partition"], row["offset"], None if row["value"] is None else row["value"].hex()]
        for row in naive_rows(log)
    ]
    assert sorted(result["rows"]) == sorted(wanted)
    assert str(wheel) in result["home"]
    assert result["master"] == cluster.url
    tries = {tuple(marker.name.split("-")[1:3]) for marker in place.glob("task-*")}
    assert any(attempt != "0" for _, attempt in tries), "the task of the lost worker ran again"
    table = DeltaTable(place / "table").to_pyarrow_table()
    found = zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True)
    assert sorted(found) == sorted((row["partition"], row["offset"]) for row in naive_rows(log))
    assert result["exported"] == len(wanted)


@pytest.mark.parametrize("way", [pytest.param("exactlog pipeline", marks=pytest.mark.long), "spark-submit"])
def test_a_job_of_the_command_line_runs_on_a_cluster_too(cluster, wheel, log, tmp_path, way):
    python = python_without("exactlog", tmp_path / "machine")
    home = spark_home()
    job = ["tables", "--path", log]
    if way == "spark-submit":
        given = ["--master", cluster.url, "--py-files", wheel, "--executor-memory", "512m"]
        command = [home / "bin" / "spark-submit", *given, PROJECT / "src/exactlog/cli/spark_submit.py", *job]
    else:
        given = ["--master", cluster.url, "--conf", f"spark.submit.pyFiles={wheel}"]
        memory = ["--conf", "spark.executor.memory=512m"]
        command = [sys.executable, "-m", "exactlog.cli.main", "pipeline", *job, *given, *memory]
    done = subprocess.run(
        command,
        env={**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=JOB_SECONDS,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout.splitlines()[-1])  # `spark-submit` prints both outputs as one
    assert [row["partition"] for row in rows] == list(range(6))
    assert sum(row["committed"] - row["waiting"] for row in rows) == len(naive_rows(log))
    assert "Exception" not in done.stderr


def test_topics_are_copied_on_a_cluster_by_the_wheel_alone(cluster, wheel, log, tmp_path):
    """A stream is planned by a Python of the driver that has to find the package, too."""
    python, home = python_without("exactlog", tmp_path / "machine"), spark_home()
    given = ["--master", cluster.url, "--py-files", wheel, "--executor-memory", "512m"]
    with Broker() as target:
        target.create_topic("orders", partitions=len(PLACES))
        job = ["copy", "--path", log, "--to", target.bootstrap_servers, "--id", "c", "--checkpoint", tmp_path / "cp"]
        done = subprocess.run(
            [home / "bin" / "spark-submit", *given, PROJECT / "src/exactlog/cli/spark_submit.py", *job],
            env={**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=JOB_SECONDS,
            check=False,
        )
        copied = committed_in(target.bootstrap_servers, "orders") if not done.returncode else {}

    assert done.returncode == 0, done.stdout
    wanted = [(row["partition"], row["value"]) for row in naive_rows(log)]
    assert json.loads(done.stdout.splitlines()[-1])["rows"] == len(wanted) > 0
    found = [(partition, each.record.value) for partition, several in copied.items() for each in several]
    assert sorted(found, key=repr) == sorted(wanted, key=repr)


def test_a_worker_without_the_package_is_one_sentence(cluster, log, tmp_path):
    python = python_without("exactlog", tmp_path / "machine")
    done = subprocess.run(
        [sys.executable, "-m", "exactlog.cli.main", "pipeline", "tables", "--path", log, "--master", cluster.url],
        env={**os.environ, "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=JOB_SECONDS,
        check=False,
    )

    fault = json.loads(done.stderr.splitlines()[-1])["error"]
    assert (done.returncode, fault["code"]) == (1, "package-missing")
    assert fault["message"] == "the Python of a Spark worker has no module exactlog"
    assert "--py-files" in fault["hint"]
    assert "\tat " not in done.stderr
