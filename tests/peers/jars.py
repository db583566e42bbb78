"""The client jars of Apache Kafka, from Maven Central into `.cache/jars/`, each once."""

import shutil
from pathlib import Path

from tests.peers.toolchain import CACHE, only_one_at_a_time, require_tools, run_tool

_COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"


def kafka_clients_jar(version: str) -> Path:
    """The jar of the Java client of that version.

    Raises:
        PeerMissingError: there is no Java or no Maven.
        RuntimeError: Maven failed.
    """
    jars = CACHE / "jars"
    jar = jars / f"kafka-clients-{version}.jar"
    with only_one_at_a_time("jars"):
        if not jar.exists():
            require_tools("java", "mvn")
            unfinished = jars / f".unfinished-{version}"
            shutil.rmtree(unfinished, ignore_errors=True)
            artifact = f"-Dartifact=org.apache.kafka:kafka-clients:{version}"
            run_tool(["mvn", "-q", "-B", _COPY_GOAL, artifact, f"-DoutputDirectory={unfinished}"])
            (unfinished / jar.name).rename(jar)
            unfinished.rmdir()
    return jar
