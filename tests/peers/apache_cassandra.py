"""A real Apache Cassandra: one node on loopback ports, in a temporary folder, stopped by its process id.

The jars come from Maven into `.cache/`. They bring no settings and no start script: what is here is the least that a
small node needs, and the options that its own script gives Java.
"""

import socket
import time
from pathlib import Path

from tests.peers.jars import jars_of_pom
from tests.peers.java_server import JavaServer, free_ports
from tests.peers.probe import NoAnswerError
from tests.peers.toolchain import require_tools

CASSANDRA_VERSION = "5.0.8"
START_SECONDS = 180

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
    pom = Path(__file__).with_name("apache_cassandra_pom.xml")
    return jars_of_pom(f"apache-cassandra-{CASSANDRA_VERSION}", pom, f"-Dcassandra.version={CASSANDRA_VERSION}")


class ApacheCassandra(JavaServer):
    """One running node; a context manager.

    Attributes:
        port: where it speaks CQL, on 127.0.0.1.
    """

    name = "Apache Cassandra"
    port_taken = "already in use"
    logs = ("log/stdout.log", "log/server.log")
    stop_seconds = 60

    port: int

    def __init__(self, *, heap: str = "256m") -> None:
        super().__init__()
        self._heap = heap
        self._java: list[str] = []

    def jars(self) -> Path:
        """See `JavaServer`."""
        return cassandra_jars()

    def start(self, jars: Path, folder: Path) -> None:
        """See `JavaServer`."""
        self.port, storage_port = free_ports(2)
        for name in ("conf", "data", "log"):
            (folder / name).mkdir()
        settings = SETTINGS.format(folder=folder, port=self.port, storage_port=storage_port)
        (folder / "conf" / "cassandra.yaml").write_text(settings)
        (folder / "conf" / "logback.xml").write_text(LOGGING.format(folder=folder))
        self._java = self._command(jars, folder)
        self.start_again()

    def start_again(self) -> None:
        """A start on the same folder and port, after `kill`.

        Raises:
            NoAnswerError: it did not come up.
        """
        self.run(self._java)
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
            NoAnswerError: it does not, or has ended.
        """
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self.has_ended:
                raise NoAnswerError(f"process {self.pid} is gone")
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                time.sleep(0.1)
            else:
                return
        raise NoAnswerError(f"port {self.port} did not open in {START_SECONDS} s")
