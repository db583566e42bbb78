"""A real Apache Kafka: one KRaft node on loopback ports, in a temporary folder, stopped by its process id.

The jars come from Maven into `.cache/`. Settings are Kafka's own, except what one node alone needs.
"""

import base64
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.peers.probe import NoAnswerError, StartTimes, wait_for_metadata
from tests.peers.toolchain import CACHE, only_one_at_a_time, require_tools, run_tool

KAFKA_VERSION = "4.4.0"
START_ATTEMPTS_MAX = 3  # another process may take a free port between our look and Kafka's bind
PORT_TAKEN = "Address already in use"
STOP_SECONDS = 30

# The options of Kafka's own start script.
JAVA_OPTIONS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)

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
    jars = CACHE / f"apache-kafka-{KAFKA_VERSION}"
    with only_one_at_a_time("apache-kafka"):
        if not jars.exists():
            unfinished = jars.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
            pom = Path(__file__).with_name("apache_kafka_pom.xml")
            scope = ("-DincludeScope=runtime", f"-DoutputDirectory={unfinished}", f"-Dkafka.version={KAFKA_VERSION}")
            run_tool(["mvn", "-q", "-B", "-f", pom, goal, *scope])
            unfinished.rename(jars)
    return jars


class ApacheKafka:
    """One running broker; a context manager.

    Attributes:
        bootstrap_servers: where clients begin.
        port: the loopback port.
        pid: the Java process.
        start_times: how long it took to its first answers.
    """

    bootstrap_servers: str
    port: int
    pid: int
    start_times: StartTimes

    def __init__(self, *, heap: str = "512m", properties: Mapping[str, str] | None = None) -> None:
        self._heap = heap
        self._properties = dict(properties or {})
        self._folder: Path | None = None
        self._command: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        jars = kafka_jars()
        for attempts_left in reversed(range(START_ATTEMPTS_MAX)):
            try:
                self._start(jars)
            except NoAnswerError as error:
                story = self._log_tail()
                self._remove()
                if attempts_left == 0 or PORT_TAKEN not in story:
                    raise RuntimeError(f"Apache Kafka did not start: {error}\n{story}") from error
            except BaseException:
                self._remove()
                raise
            else:
                break
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def _start(self, jars: Path) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="apache-kafka-"))
        self.port, controller_port = _free_ports(2)
        self.bootstrap_servers = f"127.0.0.1:{self.port}"
        properties = self._folder / "server.properties"
        properties.write_text(self._server_properties(controller_port))
        (self._folder / "log4j2.yaml").write_text(LOGGING.format(folder=self._folder))
        java = ["java", f"-Dlog4j2.configurationFile={self._folder}/log4j2.yaml", "-cp", f"{jars}/*"]
        run_tool([*java, "kafka.tools.StorageTool", "format", "-t", _cluster_id(), "-c", properties])
        java[1:1] = [f"-Xms{self._heap}", f"-Xmx{self._heap}", *JAVA_OPTIONS]
        self._command = [*java, "kafka.Kafka", str(properties)]
        self._run()

    def kill_and_restart(self) -> None:
        """SIGKILL, then a start on the same folder and port.

        Raises:
            NoAnswerError: it did not come up again.
        """
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._run()

    def _run(self) -> None:
        assert self._folder is not None
        with (self._folder / "stdout.log").open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # an interrupt at the terminal reaches us alone; we stop it in order
            )
        self.pid = self._process.pid
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

    def _log_tail(self) -> str:
        lines: list[str] = []
        for name in ("stdout.log", "server.log"):
            path = (self._folder or Path()) / name
            if path.exists():
                lines += path.read_text(errors="replace").splitlines()[-20:]
        return "\n".join(lines)

    def _remove(self) -> None:
        """Stop the process and delete its folder."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(timeout=STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def _free_ports(count: int) -> list[int]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


def _cluster_id() -> str:
    """A random id as Kafka makes them: 16 bytes in URL-safe Base64, no dash in front."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
