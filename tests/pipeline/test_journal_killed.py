"""Journals that Spark replicates while driver, JVM, workers and broker are killed: nothing is missing or doubled."""

import random
import time

import pytest

from demo.served_broker import ServedBroker
from tests.peers.gate import skip_without_peer
from tests.peers.toolchain import require_tools
from tests.support.journal_streams import (
    RandomWriters,
    create_topic,
    log_ends,
    pointers_in,
    replicate_embedded,
    write_actions,
)
from tests.support.replicated_store import rows_in
from tests.support.spark_programs import SparkProgram

pytestmark = [pytest.mark.peer, pytest.mark.slow]

TOPIC = "orders"
PARTITIONS = 3
PATIENCE_S = 300
PAUSE_S_MAX = 1.0
VICTIMS = ("driver", "workers", "broker", "jvm")
NEVER = {"HeadLost", "OtherLogError", "Repartitioned", "OtherQueryError", "InvariantError"}
"""What no kill leads to: these would say that the job has lost count of where it is."""


class Broker:
    """A broker as a process of its own, as what writes to it wants it."""

    def __init__(self, served):
        self.served = served

    @property
    def bootstrap_servers(self):
        return self.served.address


class Killing:
    """One run: a job that follows, records that come, and what is killed meanwhile."""

    def __init__(self, tmp_path, broker, seed):
        self.broker = broker
        self.random = random.Random(seed)
        self.writers = RandomWriters(seed, TOPIC, PARTITIONS)
        self.store = tmp_path / "spark.db"
        self.log = tmp_path / "driver.log"
        run = {
            "bootstrap": broker.bootstrap_servers,
            "topics": [TOPIC],
            "store": f"sqlite:{self.store}",
            "checkpoint": str(tmp_path / "checkpoint"),
            "follow": True,
        }
        settings = {"bytes_per_batch": 10_000}
        self.program = SparkProgram(
            "tests.support.journal_replication_program", {"runs": [run], "settings": settings}, output=self.log
        )

    def run(self, kill_count):
        create_topic(self.broker, TOPIC, PARTITIONS)
        with self.program:
            for kill in range(kill_count):
                write_actions(self.broker, self.writers, 150)
                begun = self.replicated()
                self.wait_until(lambda begun=begun: self.replicated() > begun)
                write_actions(self.broker, self.writers, 150)
                time.sleep(self.random.random() * PAUSE_S_MAX)
                self.kill(VICTIMS[kill % len(VICTIMS)])
            ends = log_ends(self.broker, TOPIC)
            self.wait_until(lambda: pointers_in(self.store) == ends)
        assert {told.get("kind") for told in self.program.told()} & NEVER == set()

    def wait_until(self, is_so):
        """A program that has ended meanwhile is started again."""
        deadline = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < deadline, self.log.read_text(errors="replace")[-3_000:]
            if self.program.has_ended:
                self.program.start()
            time.sleep(0.05)

    def kill(self, victim):
        if victim == "broker":
            self.broker.served.kill()
            time.sleep(self.random.random() * PAUSE_S_MAX)
            self.broker.served.start()
        elif victim == "driver":
            self.program.kill()
        else:
            self.wait_until(self.program.kill_jvm if victim == "jvm" else self.program.kill_workers)

    def replicated(self):
        return sum(pointers_in(self.store).values())


def check(tmp_path, kill_count, seed):
    with skip_without_peer():
        require_tools("java")
    with ServedBroker(tmp_path / "data", log=tmp_path / "broker.log") as served:
        killing = Killing(tmp_path, Broker(served), seed)
        killing.run(kill_count)
        replicate_embedded(killing.broker, tmp_path / "embedded.db", TOPIC)
    assert rows_in(tmp_path / "spark.db") == rows_in(tmp_path / "embedded.db")


def test_what_is_replicated_while_everything_dies_equals_the_embedded_run(tmp_path):
    check(tmp_path, len(VICTIMS), seed=11)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_what_is_replicated_while_everything_dies_often_equals_the_embedded_run(tmp_path, seed):
    check(tmp_path, 24, seed=seed)
