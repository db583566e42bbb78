"""What a machine lacks is said in one sentence, before anything of Java runs."""

import os
import socket
import sys

import pyspark
import pytest

from exactlog.core.model.errors import ConfigError, UnavailableError
from exactlog.pipeline import session
from exactlog.pipeline.spark_requirements import (
    JarMissingError,
    JavaMissingError,
    SparkMissingError,
    java_program,
    java_version,
    require_cluster,
    require_jars,
    require_java,
    require_lakehouse,
    require_spark,
)


@pytest.fixture
def java_that_says(tmp_path, monkeypatch):
    """Puts a program `java` before all others that answers `-version` so."""

    def install(words, *, code=0):
        program = tmp_path / "bin" / "java"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{words}\nEND\nexit {code}\n")
        program.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        return str(program)

    return install


@pytest.mark.parametrize(
    ("words", "release"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "25-ea" 2025-09-16', 25),
    ],
)
def test_every_java_says_its_release_somehow(java_that_says, words, release):
    assert java_version(java_that_says(words)) == release


def test_a_java_that_is_too_old_is_named(java_that_says):
    program = java_that_says('openjdk version "11.0.2" 2019-01-15')

    with pytest.raises(JavaMissingError, match=f"{program} is Java 11; Spark needs Java 17 or later"):
        require_java()


def test_a_program_that_is_no_java_is_named(java_that_says):
    program = java_that_says("what?", code=3)

    with pytest.raises(JavaMissingError, match=f"{program} does not say which version"):
        require_java()


def test_no_java_at_all_is_said(monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")

    with pytest.raises(JavaMissingError, match="there is no java on the PATH") as raised:
        require_java()
    assert "JDK, 17 or later" in raised.value.hint


def test_java_home_goes_before_the_path(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(JavaMissingError, match=f"JAVA_HOME is {tmp_path}, where there is no bin/java"):
        java_program()


def test_pyspark_that_is_not_installed_is_said_with_what_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark", None)

    with pytest.raises(SparkMissingError, match=r"Spark is not installed: PySpark 4\.2 is needed") as raised:
        session()
    assert "exactlog[spark]" in raised.value.hint


@pytest.mark.parametrize("version", ["3.5.9", "4.1.4", "5.0.0", "unknown"])
def test_a_spark_that_will_not_do_is_named(monkeypatch, version):
    monkeypatch.setattr(pyspark, "__version__", version)

    with pytest.raises(SparkMissingError, match=f"PySpark {version} is installed"):
        require_spark()


@pytest.mark.parametrize("version", ["4.2.0", "4.2.1", "4.3.0"])
def test_a_later_spark_of_its_line_will_do(monkeypatch, version):
    monkeypatch.setattr(pyspark, "__version__", version)

    require_spark()


def test_a_spark_home_of_another_version_is_named(monkeypatch, tmp_path):
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.12-3.5.1.jar").write_bytes(b"")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))

    with pytest.raises(SparkMissingError, match=f"SPARK_HOME \\({tmp_path}\\) is Spark 3.5.1, and PySpark is"):
        require_spark()


def test_missing_libraries_are_said_with_what_installs_them(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SparkMissingError, match="needs pyarrow"):
        require_spark()

    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(SparkMissingError, match="deltalake is needed") as raised:
        require_lakehouse()
    assert "lakehouse" in raised.value.hint


def test_a_jar_that_is_not_there_is_named(tmp_path):
    jar = tmp_path / "there.jar"
    jar.write_bytes(b"")

    require_jars([jar, f"file://{jar}", "hdfs://host/far.jar"])
    with pytest.raises(JarMissingError, match="there is no jar /nowhere/connector") as raised:
        require_jars([jar, "/nowhere/connector.jar"])
    assert "make spark-jars" in raised.value.hint


def test_a_cluster_that_does_not_answer_is_said_at_once():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        require_cluster(f"spark://127.0.0.1:{port}")
        require_cluster(f"spark://127.0.0.1:1,127.0.0.1:{port}")  # one of several masters is enough

    with pytest.raises(UnavailableError, match=f"no Spark master answers at 127.0.0.1:{port}"):
        require_cluster(f"spark://127.0.0.1:{port}")


def test_what_is_no_cluster_is_not_asked():
    require_cluster("local[2]")
    require_cluster("yarn")


@pytest.mark.parametrize("master", ["locl[2]", "local[x]", "spark:", "localhost:7077"])
def test_a_master_that_is_none_is_refused(master):
    with pytest.raises(ConfigError, match="is no Spark master"):
        session(master)


def test_a_connect_server_has_a_session_of_its_own():
    with pytest.raises(ConfigError, match="is a Spark Connect server") as raised:
        session("sc://localhost")
    assert "register" in raised.value.hint


def test_nothing_of_java_has_run():
    from pyspark import SparkContext

    assert SparkContext._gateway is None or "PYTEST_XDIST_WORKER" in os.environ
