"""A real Apache Kafka: one KRaft node on loopback ports, in a temporary folder, stopped by its process id.

The jars come from Maven into `.cache/`. Settings are Kafka's own, except what one node alone needs.
"""

import base64
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from tests.peers.jars import jars_of_pom
from tests.peers.java_server import JavaServer, free_ports
from tests.peers.probe import StartTimes, wait_for_metadata
from tests.peers.toolchain import require_tools, run_tool

KAFKA_VERSION = "4.4.0"

JAVA_OPTIONS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
"""Those of Kafka's own start script."""

LOGGING = """\
Configuration:
  Appenders:
    File: {{name: F, fileName: "{folder}/server.log", PatternLayout: {{pattern: "[%d] %p %m (%c)%n"}}}}
  Loggers:
    Root: {{level: INFO, AppenderRef: {{ref: F}}}}
"""


def kafka_jars() -> Path:
    """The folder with Apache Kafka's jars, filled by Maven the first time.

    Raises:
        PeerMissingError: there is no Java or no Maven.
        RuntimeError: Maven failed.
    """
    require_tools("java", "mvn")
    pom = Path(__file__).with_name("apache_kafka_pom.xml")
    return jars_of_pom(f"apache-kafka-{KAFKA_VERSION}", pom, f"-Dkafka.version={KAFKA_VERSION}")


class ApacheKafka(JavaServer):
    """One running broker; a context manager.

    Attributes:
        java_options: of all of them; those of Kafka's own start script where nobody says others.
        bootstrap_servers: where clients begin.
        port: the loopback port.
        start_times: how long it took to its first answers.
    """

    name = "Apache Kafka"
    port_taken = "Address already in use"
    logs = ("stdout.log", "server.log")
    stop_seconds = 30
    java_options: ClassVar[Sequence[str]] = JAVA_OPTIONS

    bootstrap_servers: str
    port: int
    start_times: StartTimes

    def __init__(self, *, heap: str = "512m", properties: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._heap = heap
        self._properties = dict(properties or {})
        self._command: list[str] = []

    def jars(self) -> Path:
        """See `JavaServer`."""
        return kafka_jars()

    def start(self, jars: Path, folder: Path) -> None:
        """See `JavaServer`."""
        self.port, controller_port = free_ports(2)
        self.bootstrap_servers = f"127.0.0.1:{self.port}"
        properties = folder / "server.properties"
        properties.write_text(self._server_properties(controller_port))
        (folder / "log4j2.yaml").write_text(LOGGING.format(folder=folder))
        java = ["java", f"-Dlog4j2.configurationFile={folder}/log4j2.yaml", "-cp", f"{jars}/*"]
        java[1:1] = self.java_options
        run_tool([*java, "kafka.tools.StorageTool", "format", "-t", _cluster_id(), "-c", properties])
        java[1:1] = [f"-Xms{self._heap}", f"-Xmx{self._heap}"]
        self._command = [*java, "kafka.Kafka", str(properties)]
        self._run()

    def kill_and_restart(self) -> None:
        """SIGKILL, then a start on the same folder and port.

        Raises:
            NoAnswerError: it did not come up again.
        """
        self.kill()
        self._run()

    def _run(self) -> None:
        self.run(self._command)
        self.start_times = wait_for_metadata(self.port, pid=self.pid)

    def _server_properties(self, controller_port: int) -> str:
        properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": f"{self._folder}/data",
            "num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
        }
        return "".join(f"{key}={value}\n" for key, value in (properties | self._properties).items())


def _cluster_id() -> str:
    """A random id as Kafka makes them: 16 bytes in URL-safe Base64, no dash in front."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
