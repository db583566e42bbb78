"""Jars from Maven Central into `.cache/`, each once."""

import shutil
from pathlib import Path

from tests.peers.toolchain import CACHE, only_one_at_a_time, require_tools, run_tool

_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"


def jars_of_pom(name: str, pom: Path, *options: str) -> Path:
    """The folder of that name with all that a POM needs at run time, filled by Maven the first time.

    Args:
        name: of the folder in the cache.
        pom: the file.
        options: for Maven.

    Raises:
        PeerMissingError: it is not there yet, and there is no Java or no Maven.
        RuntimeError: Maven failed.
    """
    jars = CACHE / name
    with only_one_at_a_time(name):
        if not jars.exists():
            require_tools("java", "mvn")
            unfinished = CACHE / f"{name}.unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            scope = ("-DincludeScope=runtime", f"-DoutputDirectory={unfinished}")
            run_tool(["mvn", "-q", "-B", "-f", pom, f"{_PLUGIN}:copy-dependencies", *scope, *options])
            unfinished.rename(jars)
    return jars


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
            run_tool(["mvn", "-q", "-B", f"{_PLUGIN}:copy", artifact, f"-DoutputDirectory={unfinished}"])
            (unfinished / jar.name).rename(jar)
            unfinished.rmdir()
    return jar
