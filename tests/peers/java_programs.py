"""The Java program of the client cases, built once for each version of Apache Kafka's client."""

import hashlib
import shutil
from pathlib import Path

from tests.peers.toolchain import CACHE, only_one_at_a_time, require_tools, run_tool

SOURCES = Path(__file__).with_name("java")
PROGRAM = "ClientCases"
_COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx512m")


def java_client_cases(kafka_version: str) -> list[str]:
    """The command that runs the program with the client of that version; the broker's address is to follow.

    Raises:
        PeerMissingError: there is no JDK or no Maven.
        RuntimeError: Maven failed, or the program does not compile.
    """
    jars = _client_jars(kafka_version)
    classes = CACHE / "java" / f"{PROGRAM}-{kafka_version}-{_digest()}"
    with only_one_at_a_time(f"java-{kafka_version}"):
        if not classes.exists():
            require_tools("javac")
            unfinished = classes.with_suffix(".building")
            shutil.rmtree(unfinished, ignore_errors=True)
            source = SOURCES / f"{PROGRAM}.java"
            run_tool(["javac", "-Xlint:all,-classfile", "-cp", f"{jars}/*", "-d", unfinished, source])
            unfinished.rename(classes)
    return ["java", *_QUICK_START, "-cp", f"{classes}:{jars}/*", PROGRAM]


def _client_jars(kafka_version: str) -> Path:
    """The folder with the client of that version and what it needs, filled by Maven the first time."""
    jars = CACHE / f"kafka-clients-{kafka_version}"
    with only_one_at_a_time(f"kafka-clients-{kafka_version}"):
        if not jars.exists():
            require_tools("java", "mvn")
            unfinished = jars.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            scope = ("-DincludeScope=runtime", f"-DoutputDirectory={unfinished}", f"-Dkafka.version={kafka_version}")
            run_tool(["mvn", "-q", "-B", "-f", SOURCES / "pom.xml", _COPY_GOAL, *scope])
            unfinished.rename(jars)
    return jars


def _digest() -> str:
    digest = hashlib.sha256()
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
