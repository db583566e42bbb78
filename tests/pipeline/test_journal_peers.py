"""Journals that Spark replicates from Apache Kafka, by its own source and by ours, and into Apache Cassandra."""

import json
import os
import subprocess
import sys

import pytest

from exactlog.core.journal.rows import SEGMENT_SIZE_DEFAULT
from exactlog.testing import Broker
from tests.peers.apache_cassandra import ApacheCassandra, cassandra_jars
from tests.peers.apache_kafka import ApacheKafka, kafka_jars
from tests.peers.gate import skip_without_peer
from tests.peers.spark_cluster import SparkCluster, python_without, spark_home
from tests.peers.spark_jars import spark_jars
from tests.peers.toolchain import PROJECT
from tests.support.journal_streams import (
    RandomWriters,
    contents_at,
    create_topic,
    replicate_embedded,
    write_actions,
)
from tests.support.replicated_store import rows_in
from tests.support.spark_programs import SparkProgram

pytestmark = [pytest.mark.peer, pytest.mark.slow]

TOPIC = "orders"
PARTITIONS = 2
PROGRAM = "tests.support.journal_replication_program"
PROGRAM_SECONDS = 400


@pytest.fixture(params=["exactlog", "Apache Kafka"])
def broker(request):
    if request.param == "exactlog":
        with Broker() as running:
            yield running
        return
    with skip_without_peer():
        kafka_jars()
    with ApacheKafka() as running:
        yield running


def test_a_broker_of_any_make_is_replicated_by_either_source(broker, tmp_path):
    """Spark's own source gives no markers and no ids of topics; pointers pass the ends of transactions too."""
    with skip_without_peer():
        jars = [str(jar) for jar in spark_jars()]
    create_topic(broker, TOPIC, PARTITIONS)
    writers = RandomWriters("peers", TOPIC, PARTITIONS)

    def run(connector):
        where = {"bootstrap": broker.bootstrap_servers, "topic_prefixes": [TOPIC]}
        name = str(tmp_path / connector)
        return {"connector": connector, "store": f"sqlite:{name}.db", "checkpoint": f"{name} checkpoint", **where}

    for _ in range(2):
        write_actions(broker, writers, 200)
        order = {"jars": jars, "runs": [run("kafka"), run("exactlog")]}
        with SparkProgram(PROGRAM, order, output=tmp_path / "driver.log") as program:
            assert program.wait(PROGRAM_SECONDS) == 0, (tmp_path / "driver.log").read_text()[-3_000:]
    (tmp_path / "embedded.db").unlink(missing_ok=True)
    replicate_embedded(broker, tmp_path / "embedded.db", TOPIC)

    assert [told["report"]["lag"] for told in program.told() if told["event"] == "done"] == [0] * 4
    assert rows_in(tmp_path / "kafka.db") == rows_in(tmp_path / "embedded.db")
    assert rows_in(tmp_path / "exactlog.db") == rows_in(tmp_path / "embedded.db")


@pytest.mark.long
def test_a_cluster_replicates_into_apache_cassandra_by_the_wheel_alone(tmp_path):
    with skip_without_peer():
        cassandra_jars()
        cluster = SparkCluster(tmp_path)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    subprocess.run([*build, tmp_path, PROJECT], check=True)
    (wheel,) = tmp_path.glob("exactlog-*-py3-none-any.whl")
    python, home = python_without("exactlog", tmp_path / "machine"), spark_home()
    with cluster, ApacheCassandra() as node, Broker() as broker:
        broker.create_topic(TOPIC, partitions=PARTITIONS)
        write_actions(broker, RandomWriters("cluster", TOPIC, PARTITIONS), 150)
        store = f"cassandra://127.0.0.1:{node.port}/journal"
        submit = [home / "bin" / "spark-submit", "--master", cluster.url, "--py-files", wheel]
        job = [PROJECT / "src/exactlog/cli/spark_submit.py", "replicate-journal", "-b", broker.bootstrap_servers]
        done = subprocess.run(
            [*submit, "--executor-memory", "512m", *job, "-s", store, "--checkpoint", tmp_path / "checkpoint"],
            env={**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=PROGRAM_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        replicate_embedded(broker, tmp_path / "embedded.db", TOPIC, segment_size=SEGMENT_SIZE_DEFAULT)
        found = contents_at(store, TOPIC)

    assert json.loads(done.stdout.splitlines()[-1])["lag"] == 0  # `spark-submit` prints both outputs as one
    wanted = contents_at(f"sqlite:{tmp_path}/embedded.db", TOPIC)
    assert found["rows"] == wanted["rows"]
    assert {key_id: head.state for key_id, head in found["heads"].items()} == {
        key_id: head.state for key_id, head in wanted["heads"].items()
    }
