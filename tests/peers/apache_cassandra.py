"""A real Apache Cassandra: one node on loopback ports, in a temporary folder, stopped by its process id.

The jars come from Maven into `.cache/`. They bring no settings and no start script: what is here is the least that a
small node needs, and the options that its own script gives Java.
"""

import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

from tests.peers.toolchain import CACHE, only_one_at_a_time, require_tools, run_tool

CASSANDRA_VERSION = "5.0.8"
START_ATTEMPTS_MAX = 3  # another process may take a free port between our look and the node's bind
PORT_TAKEN = ("Address already in use", "already in use")
START_SECONDS = 180
STOP_SECONDS = 60

OPENS = (
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch",
    "java.rmi/sun.rmi.transport.tcp",
    "jdk.management/com.sun.management.internal",
)
EXPORTS = (
    "java.base/jdk.internal.misc",
    "java.base/java.lang.ref",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
    "jdk.unsupported/sun.misc",
    "jdk.attach/sun.tools.attach",
)

SETTINGS = """\
cluster_name: exactlog-tests
num_tokens: 1
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
authenticator: AllowAllAuthenticator
authorizer: AllowAllAuthorizer
hinted_handoff_enabled: false
data_file_directories: ["{folder}/data/data"]
commitlog_directory: {folder}/data/commitlog
saved_caches_directory: {folder}/data/saved_caches
hints_directory: {folder}/data/hints
cdc_raw_directory: {folder}/data/cdc_raw
commitlog_sync: periodic
commitlog_sync_period: 10000ms
commitlog_segment_size: 8MiB
commitlog_total_space: 128MiB
disk_failure_policy: stop
commit_failure_policy: stop
endpoint_snitch: SimpleSnitch
seed_provider: [{{class_name: org.apache.cassandra.locator.SimpleSeedProvider, \
parameters: [{{seeds: "127.0.0.1:{storage_port}"}}]}}]
listen_address: 127.0.0.1
rpc_address: 127.0.0.1
storage_port: {storage_port}
native_transport_port: {port}
start_native_transport: true
concurrent_reads: 4
concurrent_writes: 4
concurrent_counter_writes: 2
concurrent_compactors: 1
memtable_heap_space: 48MiB
memtable_offheap_space: 48MiB
file_cache_size: 32MiB
networking_cache_size: 32MiB
key_cache_size: 0MiB
counter_cache_size: 0MiB
auto_snapshot: false
auto_bootstrap: false
"""

LOGGING = """\
<configuration><appender name="F" class="ch.qos.logback.core.FileAppender"><file>{folder}/log/server.log</file>
<encoder><pattern>%-5level %date{{HH:mm:ss.SSS}} %logger{{20}} - %msg%n</pattern></encoder></appender>
<root level="INFO"><appender-ref ref="F"/></root></configuration>
"""


def cassandra_jars() -> Path:
    """The folder with Apache Cassandra's jars, filled by Maven the first time.

    Raises:
        PeerMissingError: there is no Java or no Maven.
        RuntimeError: Maven failed.
    """
    require_tools("java", "mvn")
    jars = CACHE / f"apache-cassandra-{CASSANDRA_VERSION}"
    with only_one_at_a_time("apache-cassandra"):
        if not jars.exists():
            unfinished = jars.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
            pom = Path(__file__).with_name("apache_cassandra_pom.xml")
            version = f"-Dcassandra.version={CASSANDRA_VERSION}"
            run_tool(
                [
                    "mvn",
                    "-q",
                    "-B",
                    "-f",
                    pom,
                    goal,
                    "-DincludeScope=runtime",
                    f"-DoutputDirectory={unfinished}",
                    version,
                ]
            )
            unfinished.rename(jars)
    return jars


class ApacheCassandra:
    """One running node; a context manager.

    Attributes:
        port: where it speaks CQL, on 127.0.0.1.
        pid: the Java process.
    """

    port: int
    pid: int

    def __init__(self, *, heap: str = "256m") -> None:
        self._heap = heap
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        jars = cassandra_jars()
        for attempts_left in reversed(range(START_ATTEMPTS_MAX)):
            try:
                self._start(jars)
            except TimeoutError as error:
                story = self._log_tail()
                self._remove()
                if attempts_left == 0 or not any(words in story for words in PORT_TAKEN):
                    raise RuntimeError(f"Apache Cassandra did not start: {error}\n{story}") from error
            except BaseException:
                self._remove()
                raise
            else:
                break
        return self

    def __exit__(self, *exception: object) -> None:
        self._remove()

    def _start(self, jars: Path) -> None:
        folder = self._folder = Path(tempfile.mkdtemp(prefix="apache-cassandra-"))
        self.port, storage_port = _free_ports(2)
        for name in ("conf", "data", "log"):
            (folder / name).mkdir()
        settings = SETTINGS.format(folder=folder, port=self.port, storage_port=storage_port)
        (folder / "conf" / "cassandra.yaml").write_text(settings)
        (folder / "conf" / "logback.xml").write_text(LOGGING.format(folder=folder))
        with (folder / "log" / "stdout.log").open("wb") as output:
            self._process = subprocess.Popen(
                self._command(jars, folder),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # an interrupt at the terminal reaches us alone; we stop it in order
            )
        self.pid = self._process.pid
        self._wait()

    def _command(self, jars: Path, folder: Path) -> list[str]:
        (jamm,) = jars.glob("jamm-*.jar")
        opened = [word for module in OPENS for word in ("--add-opens", f"{module}=ALL-UNNAMED")]
        exported = [word for module in EXPORTS for word in ("--add-exports", f"{module}=ALL-UNNAMED")]
        properties = {
            "java.net.preferIPv4Stack": "true",
            "jdk.attach.allowAttachSelf": "true",
            "cassandra.config": f"file:{folder}/conf/cassandra.yaml",
            "cassandra.storagedir": f"{folder}/data",
            "cassandra.logdir": f"{folder}/log",
            "logback.configurationFile": f"file:{folder}/conf/logback.xml",
            "cassandra-foreground": "yes",
            "cassandra.skip_wait_for_gossip_to_settle": "0",
            "cassandra.ring_delay_ms": "1",
            "cassandra.superuser_setup_delay_ms": "0",
            "cassandra.initial_token": "0",
            "cassandra.jmx.local.port": "0",
        }
        memory = [f"-Xms{self._heap}", f"-Xmx{self._heap}", "-Xss512k", "-XX:MaxDirectMemorySize=256m"]
        small = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+PerfDisableSharedMem"]
        named = [f"-D{name}={value}" for name, value in properties.items()]
        main = ["-cp", f"{folder}/conf:{jars}/*", "org.apache.cassandra.service.CassandraDaemon"]
        return ["java", f"-javaagent:{jamm}", *memory, *small, *opened, *exported, *named, *main]

    def _wait(self) -> None:
        """Until it takes connections for CQL.

        Raises:
            TimeoutError: it does not, or has ended.
        """
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise TimeoutError(f"process {self.pid} is gone")
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                time.sleep(0.1)
            else:
                return
        raise TimeoutError(f"port {self.port} did not open in {START_SECONDS} s")

    def _log_tail(self) -> str:
        lines: list[str] = []
        for name in ("stdout.log", "server.log"):
            path = (self._folder or Path()) / "log" / name
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
