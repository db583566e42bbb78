"""The Java programs of the client cases, built once for each version of Apache Kafka's client."""

import hashlib
import shutil
from pathlib import Path

from tests.peers.jars import jars_of_pom
from tests.peers.java_options import QUICK_START
from tests.peers.toolchain import CACHE, only_one_at_a_time, require_tools, run_tool

SOURCES = Path(__file__).with_name("java")


def java_client_cases(kafka_version: str) -> list[str]:
    """The command that runs the cases with the client of that version; the broker's address is to follow.

    Raises:
        PeerMissingError: there is no JDK or no Maven.
        RuntimeError: Maven failed, or the program does not compile.
    """
    return _program(SOURCES, "ClientCases", kafka_version, jars=f"kafka-clients-{kafka_version}")


def java_word_count(kafka_version: str) -> list[str]:
    """The command that counts words with Kafka Streams of that version; what to count is to follow.

    Raises:
        PeerMissingError: there is no JDK or no Maven.
        RuntimeError: Maven failed, or the program does not compile.
    """
    return _program(SOURCES / "streams", "WordCount", kafka_version, jars=f"kafka-streams-{kafka_version}")


def _program(folder: Path, name: str, kafka_version: str, *, jars: str) -> list[str]:
    """Compile the sources of a folder, if they have changed, and return the command that runs the class."""
    needed = jars_of_pom(jars, folder / "pom.xml", f"-Dkafka.version={kafka_version}")
    classes = CACHE / "java" / f"{name}-{kafka_version}-{_digest(folder)}"
    with only_one_at_a_time(f"java-{name}-{kafka_version}"):
        if not classes.exists():
            require_tools("javac")
            unfinished = classes.with_suffix(".building")
            shutil.rmtree(unfinished, ignore_errors=True)
            sources = sorted(folder.glob("*.java"))
            run_tool(["javac", "-Xlint:all,-classfile", "-cp", f"{needed}/*", "-d", unfinished, *sources])
            unfinished.rename(classes)
    return ["java", *QUICK_START, "-Xmx512m", "-cp", f"{classes}:{needed}/*", name]


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
