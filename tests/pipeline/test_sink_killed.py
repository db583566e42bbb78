"""Micro-batches while whatever takes part in them is killed: read_committed content equals the input, exactly.

The driver, its JVM, the Python of a task or of a commit, and the broker get a SIGKILL at chance moments; each is
started again on what it has left. No row is lost, none is there twice, none out of order.
"""

import json
import os
import random
import time
import uuid
from contextlib import contextmanager
from itertools import chain

import pytest

from demo.served_broker import ServedBroker
from tests.peers.apache_kafka import ApacheKafka, kafka_jars
from tests.peers.gate import skip_without_peer
from tests.peers.toolchain import require_tools
from tests.support.spark_programs import SparkProgram
from tests.support.written_topics import committed_in, is_ongoing, recorded_offsets

pytestmark = [pytest.mark.peer, pytest.mark.slow]

PARTITIONS = 4
LINES = 15_000
KEYS = 100
PATIENCE_S = 240
PAUSE_S_MAX = 1.0
VICTIMS = ("workers", "driver", "broker", "jvm", "workers", "broker")
NEVER = {"TwoQueriesError", "SharedPartitionError", "UnlikeReportError", "InvalidRowError", "InvariantError"}
"""What no kill leads to: these would say that the sink has lost count of who writes what."""


@pytest.fixture(scope="module", autouse=True)
def java():
    with skip_without_peer():
        require_tools("java")


@contextmanager
def exactlog_served(tmp_path):
    """A broker as a process of its own, and how it is killed and started again."""
    options = ["--set", f"num.partitions={PARTITIONS}"]
    with ServedBroker(tmp_path / "data", log=tmp_path / "broker.log", options=options) as broker:

        def kill(pause_s):
            broker.kill()
            time.sleep(pause_s)
            broker.start()

        yield broker.address, kill


@contextmanager
def apache_kafka_served(tmp_path):
    with skip_without_peer():
        kafka_jars()
    with ApacheKafka(properties={"num.partitions": str(PARTITIONS)}) as broker:

        def kill(pause_s):
            broker.kill_and_restart()
            time.sleep(pause_s)

        yield broker.bootstrap_servers, kill


class Killing:
    """One run: a program that writes so many files, about one in a micro-batch, and what is killed meanwhile."""

    def __init__(self, tmp_path, bootstrap, kill_broker, *, way, files, seed=0, **more):
        self.topic = f"killed-{uuid.uuid4().hex[:8]}"
        self.files = files
        self.bootstrap = bootstrap
        self.kills = []
        self._kill_broker = kill_broker
        self._chance = random.Random(seed)
        self._checkpoint = tmp_path / "checkpoint"
        write_files(tmp_path / "in", files)
        order = {
            "master": "local[2,3]",  # a task is attempted three times, which the sink must not let happen
            "bootstrap": bootstrap,
            "topic": self.topic,
            "input": str(tmp_path / "in"),
            "checkpoint": str(self._checkpoint),
            "way": way,
            **more,
        }
        self._program = SparkProgram("tests.support.micro_batch_program", order, output=tmp_path / "driver.log")

    def run(self, kill_count):
        with self._program as program:
            for kill in range(kill_count):
                begun = 2 + kill * (self.files - 2) // kill_count
                self._wait_until(lambda begun=begun: self._files_in(self._newest("offsets")) >= begun)
                time.sleep(self._chance.random() * PAUSE_S_MAX)
                self._kill(VICTIMS[kill % len(VICTIMS)])
            self._wait_until(self._is_all_written)
            self.told = program.told()

    def wait_for(self, *kinds):
        """Run until a query has ended with one of these errors, or all is written."""
        with self._program as program:
            self._wait_until(
                lambda: self._is_all_written() or {told.get("kind") for told in program.told()} & set(kinds)
            )
            self.told = program.told()

    def _wait_until(self, is_so):
        """A program that has ended meanwhile is started again."""
        deadline = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < deadline, self._program.output.read_text(errors="replace")[-3_000:]
            if self._program.has_ended:
                self._program.start()
            time.sleep(0.02)

    def _newest(self, log):
        """The newest batch that Spark has begun (`offsets`) or done (`commits`); -1 where there is none."""
        path = self._checkpoint / log
        return (
            max((int(entry.name) for entry in path.iterdir() if entry.name.isdigit()), default=-1)
            if path.exists()
            else -1
        )

    def _files_in(self, batch):
        """How many files the batches up to this one have.

        A batch has one, but where the driver died after it had found one and before it had begun its batch, Spark gives
        the next batch two.
        """
        if batch < 0:
            return 0
        *_, of_source = (self._checkpoint / "offsets" / str(batch)).read_text().splitlines()
        return json.loads(of_source)["logOffset"] + 1

    def _is_all_written(self):
        return self._files_in(self._newest("commits")) == self.files

    def _kill(self, victim):
        if victim == "broker":
            self._kill_broker(self._chance.random() * PAUSE_S_MAX)
        elif victim == "driver":
            self._program.kill()
        else:
            self._wait_until(self._program.kill_jvm if victim == "jvm" else self._program.kill_workers)
        self.kills.append(victim)

    def check(self):
        found = committed_in(self.bootstrap, self.topic)
        values = [[consumed.record.value for consumed in records] for records in found.values()]
        assert sorted(chain.from_iterable(values)) == sorted(chain.from_iterable(map(lines_of, range(self.files))))
        for records in values:  # the files of a batch are in their order, too: one task reads them
            assert records == sorted(records)
        owner = {}
        for partition, records in found.items():
            for consumed in records:
                assert owner.setdefault(consumed.record.key, partition) == partition
        assert recorded_offsets(self.bootstrap, self.topic)[self.topic, 0][0] == self._newest("commits") + 1
        assert not is_ongoing(self.bootstrap, self.topic)
        assert {told.get("kind") for told in self.told} & NEVER == set()


def lines_of(batch):
    return [b"%08d %s %02d" % (batch * LINES + line, b"x" * 100, line % KEYS) for line in range(LINES)]


def write_files(path, count):
    path.mkdir()
    for number in range(count):
        file = path / f"{number:05d}"
        file.write_bytes(b"\n".join(lines_of(number)))
        os.utime(file, (1_000 + number, 1_000 + number))  # the order in which Spark takes them


@pytest.mark.parametrize(("way", "kills"), [("foreachBatch", 6), ("format", 4)])
def test_what_is_written_while_everything_dies_equals_the_input(tmp_path, way, kills):
    with exactlog_served(tmp_path) as (bootstrap, kill_broker):
        killing = Killing(tmp_path, bootstrap, kill_broker, way=way, files=18, seed=kills)
        killing.run(kills)
        assert len(killing.kills) == kills
        killing.check()


@pytest.mark.long
@pytest.mark.parametrize("way", ["foreachBatch", "format"])
def test_two_hundred_micro_batches_while_everything_dies_equal_the_input(tmp_path, way):
    with exactlog_served(tmp_path) as (bootstrap, kill_broker):
        killing = Killing(tmp_path, bootstrap, kill_broker, way=way, files=200, seed=200)
        killing.run(60)
        killing.check()


def test_what_is_written_to_apache_kafka_while_everything_dies_equals_the_input(tmp_path):
    with apache_kafka_served(tmp_path) as (bootstrap, kill_broker):
        killing = Killing(tmp_path, bootstrap, kill_broker, way="foreachBatch", files=12, seed=4)
        killing.run(4)
        killing.check()


@pytest.mark.long
def test_two_hundred_micro_batches_to_apache_kafka_while_everything_dies_equal_the_input(tmp_path):
    with apache_kafka_served(tmp_path) as (bootstrap, kill_broker):
        killing = Killing(tmp_path, bootstrap, kill_broker, way="foreachBatch", files=200, seed=201)
        killing.run(40)
        killing.check()


@pytest.mark.parametrize(("way", "kinds"), [("format", {"RetriedTaskError"}), ("foreachBatch", set())])
def test_a_write_that_is_attempted_again_fails_its_batch_and_a_stage_before_it_does_not(tmp_path, way, kinds):
    """With foreachBatch the Python that dies is of the stage before the shuffle, which may be run again."""
    flag = str(tmp_path / "has died")
    with exactlog_served(tmp_path) as (bootstrap, kill_broker):
        killing = Killing(tmp_path, bootstrap, kill_broker, way=way, files=3, dies_once=flag)
        killing.run(0)
        assert {told["kind"] for told in killing.told if "kind" in told} == kinds
        killing.check()


def test_what_a_task_fails_with_is_told_though_spark_would_attempt_it_again(tmp_path):
    with exactlog_served(tmp_path) as (bootstrap, kill_broker):
        killing = Killing(tmp_path, bootstrap, kill_broker, way="format", files=1, partition=99)
        killing.wait_for("InvalidRowError", "RetriedTaskError")
        (told, *_) = [told for told in killing.told if "kind" in told]
        assert (
            told["message"] == f"a row names partition 99 of topic {killing.topic}, which has {PARTITIONS} partitions"
        )
