"""Brokers that die where they are told to and are started again on what is left, for a workload that goes on."""

import asyncio
import time
from contextlib import ExitStack, suppress
from threading import Event
from typing import NamedTuple

from demo.served_broker import ServedBroker
from exactlog.core.deltalog.log_path import parse_partition_directory_name
from exactlog.core.model.topic_name import TRANSACTION_STATE
from exactlog.node.node import Node
from exactlog.storage.audit_findings import Kind
from exactlog.storage.catalog import CATALOG_NAME, Catalog
from exactlog.storage.data_directory_audit import audit_data_directory
from exactlog.storage.filesystem import OsFilesystem
from exactlog.storage.table_audit import audit_table
from exactlog.testing import Broker, FailingFilesystem
from exactlog.testing.broker import BrokerNotRunningError
from exactlog.testing.faults import armed
from exactlog.testing.ordered_failures import Crashed
from exactlog.testing.workload_wire import WireSystem
from tests.support.partitions import copy_of

SETTINGS = {
    "segment.bytes": 1_000,
    "offsets.topic.segment.bytes": 4_000,
    "delta.checkpoint.min.interval.ms": 0,
}
"""So that small loads come by new segments and checkpoints."""

LOOKS_MAX, BETWEEN_LOOKS_S = 4_000, 0.002
SYNC_SECONDS = 0.003

BETWEEN_PARTITIONS = "between two partitions of a large round"
LARGE_ROUND = 4
"""A place to die at beside the named ones, for a broker that has an order."""


class Death(NamedTuple):
    """Where a broker dies: the `at`-th time it comes by a point."""

    point: str
    at: int

    def __str__(self):
        return f"{self.point}:{self.at}"


class Dead(BaseException):
    """Nothing of the step that dies is carried on."""


class _DyingNode(Node):
    """A node on a disk that takes its time, so that rounds are as large as on a real one.

    Where there is an `order`, and the engine is not atomic across partitions, rounds go from partition to partition in
    one that side by side they could take too, and `between` is called between two partitions of a large one.
    """

    def __init__(self, config, *, order, between, **parts):
        super().__init__(config, **parts)
        self._order = order
        self._between = between

    async def start(self):
        asyncio.get_running_loop().set_exception_handler(_tell_all_but_deaths)
        await super().start()
        self._commit_really = self._parts.engine.commit
        self._parts.engine.commit = self._commit

    def _commit(self, writes):
        if any(write.durable for write in writes):
            time.sleep(SYNC_SECONDS)
        if self._order is None or self._parts.engine.is_atomic_across_partitions:
            return self._commit_really(writes)
        order = list(enumerate(writes))
        self._order.shuffle(order)
        if not any(write.durable for write in writes):  # they are written in their order, as far as that counts
            order.sort(key=lambda numbered: not numbered[1].is_leading)
        outcomes = {}
        for place, write in order:
            if outcomes and len(order) >= LARGE_ROUND:
                self._between()
            outcomes[place] = self._parts.engine._commit_partition(write)
        return [outcomes[place] for place in range(len(writes))]


def _tell_all_but_deaths(loop, context):
    if not isinstance(context.get("exception"), Dead | Crashed):
        loop.default_exception_handler(context)


class DyingBroker:
    """A broker in this process, on a disk in memory, that is dead from one step to the next.

    Its sockets break, its disk takes nothing any more, nobody tidies up. Only the catalog is a real file: SQLite's own
    business is not what is tried here.

    Args:
        deaths: one after the other, each in a life of its own; the first from `begin_to_die` on.
        leave: what the dead broker's disk has for the next one, by that disk.
        is_power_cut: whether the machine has stopped as well, and not only the process.
        order: in which the partitions of a round are written one after the other; None: side by side, as they are.
    """

    def __init__(self, directory, *, deaths, leave, is_power_cut=False, order=None, **settings):
        self._directory = str(directory)
        self._deaths = list(deaths)
        self._leave = leave
        self._is_power_cut = is_power_cut
        self._order = order
        self._is_dead = Event()
        self._between_left = 0
        self._stack = ExitStack()
        self._files = FailingFilesystem()
        self._files.make_directories(self._directory)
        for path in ("/", *map(str, directory.parents)):
            self._files.sync_directory(path)
        self._broker = Broker(directory, config=SETTINGS | settings, make_node=self._make_node)
        self.died_at = []

    def __enter__(self):
        self._broker.start()
        return self

    def __exit__(self, *error):
        self._stack.close()
        self._broker.stop()

    def address(self):
        """Where it listens; a dead one is started first."""
        if self._is_dead.is_set():
            self.crash()
        return "127.0.0.1", self._broker.port

    def begin_to_die(self):
        """The next death is due in the life that is under way."""
        if self._deaths:
            death = self._deaths[0]
            self._between_left = death.at
            if death.point == BETWEEN_PARTITIONS:
                return
            self._stack.enter_context(armed(death.point, self._die, at=death.at))

    def crash(self):
        """It dies now, if it has not yet, and starts again; where it dies at its start, once more."""
        while True:
            self._stack.close()
            self._files.crash_at(0)
            self._bury()
            self.begin_to_die()
            try:
                self._broker.start()
            except Dead:
                continue
            return

    def _bury(self):
        with suppress(BrokerNotRunningError):
            self._broker.kill()
        self._is_dead.clear()
        self._files = FailingFilesystem(self._leave(self._files))
        if self._is_power_cut:
            self._forget_boot()

    def advance_ms(self, duration_ms):
        """Lets time pass."""
        self._broker.clock.advance_ms(duration_ms)

    def unknown_transactions(self):
        """What is open in a partition and will not be ended by anybody; every partition is opened for it."""
        return self._ask(_unknown_transactions)

    def unsettled(self):
        """What stays open or unstable, though there is time for all markers."""
        return self._ask(_unsettled)

    def damage(self):
        """What an audit finds wrong on the disk of a broker that has stopped."""
        self._broker.stop()
        content = copy_of(self._files.after_kill())
        names = [name for name in content.list_names(self._directory) if parse_partition_directory_name(name)]
        reports = [audit_table(content, f"{self._directory}/{name}") for name in names]
        return [finding for report in reports for finding in report.findings if self._is_wrong(finding)]

    def _is_wrong(self, finding):
        """Sparse indexes are not synced: a power cut may leave anything of them."""
        may_be_lost = finding.kind is Kind.INDEX_DAMAGED and not finding.file.endswith(".txnindex")
        return finding.is_damage and not (self._is_power_cut and may_be_lost)

    def _ask(self, work):
        """The answer to a question; to one that dies over it, it is put again."""
        while True:
            self.address()
            try:
                return self._broker._call(lambda: self._work_or_die(work))
            except Exception:
                if not self._is_dead.is_set():
                    raise
            except Dead:
                pass

    async def _work_or_die(self, work):
        task = asyncio.ensure_future(work(self._node.services))
        while not task.done():
            await asyncio.wait({task}, timeout=BETWEEN_LOOKS_S)
            if self._is_dead.is_set():
                task.cancel()
                raise Dead
        return task.result()

    def _make_node(self, config, clock):
        self._node = _DyingNode(
            config, clock=clock, filesystem=self._files, order=self._order, between=self._pass_between
        )
        return self._node

    def _die(self):
        """From within, on whatever thread."""
        self._files.crash_at(0)
        self.died_at.append(self._deaths.pop(0))
        self._is_dead.set()
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self._node._parts._loop.call_soon_threadsafe(self._node.kill)
        else:
            self._node.kill()
        raise Dead

    def _pass_between(self):
        if self._between_left and self._deaths and self._deaths[0].point == BETWEEN_PARTITIONS:
            self._between_left -= 1
            if not self._between_left:
                self._die()

    def _forget_boot(self):
        catalog = Catalog(f"{self._directory}/{CATALOG_NAME}")
        catalog.put("boot_id", "of a life before the power cut")
        catalog.close()


async def _unknown_transactions(services):
    runners = await services.transactions.load_all()
    found = []
    for log in await _open_all(services):
        for producer in log.open_transactions():
            entries = [runner.machine.find_by_producer(producer.producer_id) for runner in runners]
            if not any(entry and entry.ends(log.topic_partition, producer.producer_epoch) for entry in entries):
                found.append((log.topic_partition, producer))
    return found


async def _unsettled(services):
    logs = await _open_all(services)
    found = None
    for _ in range(LOOKS_MAX):
        unstable = [log for log in logs if log.last_stable_offset != log.high_watermark]
        found = [(log.topic_partition, log.last_stable_offset, log.high_watermark) for log in unstable]
        found += [each for each in services.transactions.descriptions() if each.partitions]
        if not found:
            break
        await asyncio.sleep(BETWEEN_LOOKS_S)
    return found


async def _open_all(services):
    logs = []
    for topic in services.topics.topics():
        for index in range(topic.partition_count):
            if topic.name != TRANSACTION_STATE:
                await services.topics.open(topic.name, index)
                logs.append(services.topics.partition(topic.name, index))
    return logs


class ServedDyingBroker:
    """The same as a process of its own, on real files, that dies by SIGKILL."""

    def __init__(self, directory, *, deaths, **settings):
        settings = settings | SETTINGS
        options = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
        self._data_directory = directory / "data"
        self._broker = ServedBroker(self._data_directory, log=directory / "broker.log", options=options)
        self._deaths = list(deaths)
        self._dying_of = None
        self.died_at = []

    def __enter__(self):
        self._broker.start()
        return self

    def __exit__(self, *error):
        self._broker.kill()

    def address(self):
        """Where it listens; a dead one is started first."""
        if self._broker.has_ended:
            self._broker.wait_killed()
            self.died_at.append(self._dying_of)
            self.crash()
        return "127.0.0.1", self._broker.port

    def begin_to_die(self):
        """A new life begins, in which the next death is due."""
        self.crash()

    def crash(self):
        """It dies now, if it has not yet, and starts again."""
        self._broker.kill()
        self._dying_of = self._deaths.pop(0) if self._deaths else None
        self._broker.start(kill_at=self._dying_of and str(self._dying_of))

    def damage(self):
        """What an audit finds wrong on the disk of a broker that has stopped."""
        self._broker.stop()
        report = audit_data_directory(OsFilesystem(), str(self._data_directory))
        findings = [*report.findings, *(finding for table in report.tables for finding in table.findings)]
        return [finding for finding in findings if finding.is_damage]


class DyingSystem(WireSystem):
    """A workload's view of such a broker, which begins to die when the topics of the workload are made."""

    def __init__(self, broker, *, topics=2, transaction_version=2, after_crash=lambda: None):
        super().__init__(self._find, crash=broker.crash, transaction_version=transaction_version)
        self._dying = broker
        self._topics_to_come = topics
        self._after_crash = after_crash
        self._deaths_seen = 0

    def create_topic(self, name, partition_count):
        super().create_topic(name, partition_count)
        self._topics_to_come -= 1
        if not self._topics_to_come:
            self._dying.begin_to_die()

    def _find(self):
        found = self._dying.address()
        if len(self._dying.died_at) > self._deaths_seen:
            self._deaths_seen = len(self._dying.died_at)
            self._after_crash()
        return found
