"""A session has everything set, says in one sentence what is wrong, and lets nothing of Java onto the screen."""

import os
import subprocess
import sys
import textwrap

import pytest

from exactlog.pipeline import explain, register, session
from exactlog.pipeline.errors import (
    ConnectorMissingError,
    ExecutorLostError,
    SparkFailedError,
    SparkRefusedError,
    WorkerFailedError,
)
from exactlog.pipeline.spark_session import SETTINGS, SessionRunningError
from tests.peers.gate import skip_without_peer
from tests.peers.toolchain import require_tools

pytestmark = pytest.mark.peer

PROGRAM_SECONDS = 240


def run_program(text, **environment):
    """A program of its own; Java and Python say nothing on their own behalf."""
    with skip_without_peer():
        require_tools("java")
    script = textwrap.dedent(text)
    return subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS,
        check=False,
    )


# --- a program of its own --------------------------------------------------------------------------------------------


def test_a_session_starts_works_fails_and_stops_without_a_word():
    done = run_program(
        """
        import os, sys
        from exactlog.pipeline import explain, session

        spark = session("local[2]", app_name="quiet")
        assert spark.sparkContext.appName == "quiet"
        python = spark.range(1).mapInArrow(lambda rows: rows, "id long").count()
        seen = spark.sparkContext.parallelize([0]).map(lambda _: __import__("sys").executable).collect()
        assert seen == [sys.executable], seen
        assert spark.sparkContext.getConf().get("spark.driver.host") in ("localhost", "127.0.0.1")
        for query in ("select nosuch from range(1)", "selekt"):
            try:
                spark.sql(query).collect()
            except Exception as error:
                explain(error)
        def fail(rows):
            raise ValueError("on purpose")
        try:
            spark.range(1).mapInArrow(fail, "id long").collect()
        except Exception as error:
            assert str(explain(error)) == "a task failed: ValueError: on purpose"
        spark.stop()
        other = session("local[1]")  # the same Java, another session
        assert other.sparkContext.master == "local[1]"
        assert other.range(3).count() == 3
        other.stop()
        """
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"spark.driver.memory": "1k"}, "Too small maximum heap"),
        ({"spark.driver.memory": "lots"}, "lots"),
        ({"spark.serializer": "no.such.Serializer"}, "no.such.Serializer"),
    ],
)
def test_a_session_that_cannot_start_says_why_in_one_sentence(config, told):
    done = run_program(
        f"""
        from exactlog.pipeline import session
        from exactlog.pipeline.spark_session import SparkStartError
        try:
            session("local[1]", config={config!r})
        except SparkStartError as error:
            print(error)
        """
    )

    assert (done.returncode, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()
    assert line.startswith("Spark does not start: ")
    assert told in line


def test_a_log_level_lets_spark_speak():
    done = run_program(
        """
        from exactlog.pipeline import session
        session("local[1]", config={"spark.log.level": "INFO"}).stop()
        """
    )

    assert done.returncode == 0
    assert "Running Spark version" in done.stderr


# --- the session of the tests ----------------------------------------------------------------------------------------


def test_everything_is_set(spark):
    assert {name: spark.conf.get(name) for name in SETTINGS} == dict(SETTINGS)
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert int(spark.conf.get("spark.sql.shuffle.partitions")) == os.cpu_count()


def test_the_format_is_known(spark, tmp_path):
    with pytest.raises(Exception, match="is no partition and no data directory"):
        spark.read.format("exactlog").option("path", str(tmp_path)).load().collect()
    register(spark)  # doing it again changes nothing


def test_a_second_session_is_the_first(spark):
    assert session().sparkContext is spark.sparkContext
    assert session("local[2]").sparkContext is spark.sparkContext


def test_what_can_be_set_later_is_set_in_the_session_that_runs(spark):
    before = spark.conf.get("spark.sql.shuffle.partitions")
    session(config={"spark.sql.shuffle.partitions": "3"})
    assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
    spark.conf.set("spark.sql.shuffle.partitions", before)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"master": "local[7]"}, r"a Spark session runs already, on local\[2\]; one on local\[7\] cannot"),
        ({"config": {"spark.driver.memory": "9g"}}, "spark.driver.memory cannot be changed in it"),
        ({"jars": [__file__]}, "it loads jars only when it starts"),
    ],
)
def test_what_can_be_set_only_at_the_start_is_refused_later(spark, asked, told):
    with pytest.raises(SessionRunningError, match=told):
        session(**asked)


def dies(rows):
    os.kill(os.getpid(), 9)
    yield from rows


def fails(rows):
    yield from rows
    raise LookupError("not on my shelf")


@pytest.mark.parametrize(
    ("job", "kind", "told"),
    [
        (lambda spark: spark.sql("select nosuch from range(1)"), SparkRefusedError, "`nosuch` cannot be resolved"),
        (lambda spark: spark.sql("selekt 1"), SparkRefusedError, "Syntax error at or near 'selekt'"),
        (lambda spark: spark.read.parquet("/no/such/place"), SparkRefusedError, "Path does not exist"),
        (lambda spark: spark.sql("select cast('x' as int)").collect(), SparkFailedError, "cannot be cast"),
        (lambda spark: spark.read.format("kafka").load(), ConnectorMissingError, "does not know the format kafka"),
        (lambda spark: spark.read.format("nosuch").load(), ConnectorMissingError, "the format nosuch"),
        (lambda spark: spark.range(1).mapInArrow(fails, "id long").collect(), WorkerFailedError, "not on my shelf"),
        (lambda spark: spark.range(1).mapInArrow(dies, "id long").collect(), ExecutorLostError, "ended unexpectedly"),
    ],
)
def test_what_spark_raises_becomes_one_sentence(spark, job, kind, told):
    with pytest.raises(Exception) as raised:
        job(spark)

    found = explain(raised.value)

    assert type(found) is kind
    assert told in str(found)
    assert "\n" not in str(found)
