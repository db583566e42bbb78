"""The crash matrix: a script of all that is done to a partition, stopped at every step of the file system.

The machine stops before a write, sync, link, rename, truncation, removal or creation; what is left is what a killed
process leaves, what a power cut leaves at the least, or anything between. Then: the table is what a full replay gives,
what was acknowledged is there once, what was not is there whole or not at all, and a client that goes on where it was
ends up where it would have been. In the long run, the machine stops a second time on the way from there. Or it is the
process that dies first, and the power fails while the next one is at work: what neither has synced goes.

All of it on the plain files and through a commit journal, which is put back at each start, ends and goes in between.
"""

from random import Random
from uuid import UUID

import pytest
from msgspec.structs import replace

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.deltalog.append_terms import Committed
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import DamageError
from exactlog.core.model.ids import TopicPartition
from exactlog.storage import journal_engine
from exactlog.storage.settings import FLUSH_MODE_KEY, FlushMode
from exactlog.storage.table_reader import TableReader
from exactlog.storage.vacuum import vacuum
from exactlog.testing.failing_filesystem import FailingFilesystem
from exactlog.testing.operation_log import STEPS
from exactlog.testing.ordered_failures import Crashed
from tests.support.partitions import (
    DELTA_LOG,
    DIRECTORY,
    DataDirectory,
    batch_of,
    copy_of,
    remove_checkpoints,
    sequenced,
    state_of,
    values_of,
)

CONFIG = TopicConfig(segment_bytes=420, index_interval_bytes=150, file_delete_delay_ms=0)
SETTINGS = {"checkpoint_interval": 3, "versions_keep": 2, "pack_versions": 3}
PRODUCERS = 3
OTHER = TopicPartition("another", 0)
OTHER_DIRECTORY = "/data/topic=another-part=0"
FILES, JOURNAL = {"is_journaled": False}, {"is_journaled": True}
on_each_engine = pytest.mark.parametrize("engine", [FILES, JOURNAL], ids=["files", "journal"])

APPEND, TERMS, EXPECT, REMOVE, SWEEP, OTHER_TOPIC, RESTART, VACUUM, CONFIGURE, SETTLE = (
    "append",
    "terms",
    "expect",
    "remove",
    "sweep",
    "other topic",
    "restart",
    "vacuum",
    "configure",
    "settle",
)
SCRIPT = (
    (APPEND, 1),
    (APPEND, 3),
    (TERMS, 1),
    (EXPECT, 1),
    (OTHER_TOPIC, 0),
    (SETTLE, 0),
    (APPEND, 4),
    (CONFIGURE, 390),
    (RESTART, 0),
    (APPEND, 2),
    (SETTLE, 0),
    (REMOVE, 5),
    (SWEEP, 4),
    (TERMS, 1),
    (APPEND, 1),
    (REMOVE, -1),
    (APPEND, 2),
    (SWEEP, 4),
    (VACUUM, 4),
    (EXPECT, 1),
    (SETTLE, 0),
)
SHORT_SCRIPT = (
    (APPEND, 1),
    (EXPECT, 2),
    (APPEND, 3),
    (REMOVE, -1),
    (CONFIGURE, 390),
    (OTHER_TOPIC, 0),
    (SETTLE, 0),
    (SWEEP, 4),
    (TERMS, 1),
    (EXPECT, 1),
    (VACUUM, 1),
    (EXPECT, 1),
)


@pytest.fixture(autouse=True)
def some_runs_are_long(monkeypatch):
    """Of these a journal says only where they are; those of one or two batches are in it."""
    monkeypatch.setattr(journal_engine, "DIRECT_BYTES_MIN", 200)


def sequences_of(script):
    """The producer and the sequence of each record that an idempotent producer appends, by its offset."""
    offset, found, next_sequence = 0, {}, [0] * PRODUCERS
    for step, argument in script:
        for _ in range(argument if step in (APPEND, TERMS, EXPECT) else 0):
            if step == APPEND:
                producer = offset % PRODUCERS
                found[offset] = producer, next_sequence[producer]
                next_sequence[producer] += 1
            offset += 1
    return found


class Client:
    """What a client remembers over crashes: how far it has come, and what it has been told."""

    def __init__(self, script):
        self.script = script
        self.sequences = sequences_of(script)
        self.place = 0  # in the script
        self.config = CONFIG  # what the catalog says
        self.is_created = False
        self.acknowledged = 0  # records, from offset 0 on
        self.log_start = 0
        self.versions = {}  # by the id of an append on terms
        self.under_way = 0  # records that are being appended
        self.start_under_way = None
        self.others = 0  # topics of the other name

    def copy(self):
        other = Client(self.script)
        other.__dict__.update(self.__dict__, versions=dict(self.versions))
        return other

    @property
    def is_done(self):
        return self.place == len(self.script)


class Killed(BaseException):
    """The process is gone, and all that it gave to the operating system is still there."""


class Life:
    """One run of the process on some disk, from wherever the client is to the end of the script, or to its crash."""

    def __init__(self, client, content=None, **mode):
        self.client = client
        is_running = isinstance(content, FailingFilesystem)
        self.filesystem = content if is_running else FailingFilesystem(content, sector_bytes=64)
        self.disk = None
        self.mode = mode

    def kill_at(self, step):
        """Lets the process die at a step; the machine goes on."""
        left = iter(range(step))

        def before(operation):
            if operation.name in STEPS and next(left, None) is None:
                raise Killed

        self.filesystem.before = before

    def run(self, *, crash_at=None, kill_at=None):
        """Whether the script came to its end."""
        if crash_at is not None:
            self.filesystem.crash_at(crash_at)
        if kill_at is not None:
            self.kill_at(kill_at)
        try:
            self.start()
            while not self.client.is_done:
                step, argument = self.client.script[self.client.place]
                getattr(self, "do_" + step.replace(" ", "_"))(argument)
                self.client.place += 1
        except (Crashed, Killed):
            return False
        finally:
            self.filesystem.before = lambda operation: None
            if self.disk is not None:
                self.disk.close()
        return True

    def start(self):
        self.disk = DataDirectory(self.filesystem, config=self.client.config, **self.mode, **SETTINGS)
        for deleted in self.disk.store.prepare():
            self.disk.store.remove_deleted(deleted)
        if not self.client.is_created:
            self.disk.remove()  # as a start does with a topic whose creation was not known to be whole
            self.disk.create()
            self.client.is_created = True
        self.partition = self.disk.open()

    # --- the steps: each can be done again when it is not known how far it came -------------------------------------

    def do_append(self, count):
        self.disk.publish(self.partition)
        client = self.client
        client.under_way = count
        first = client.acknowledged
        numbers = range(first, first + count)
        asks = [
            self.disk.append(self.partition, sequenced(*client.sequences[number], b"%06d" % number))
            for number in numbers
        ]
        self.disk.run_round()
        assert [ask.offset for ask in asks] == list(numbers)
        client.acknowledged, client.under_way = first + count, 0

    def do_terms(self, count, **terms):
        client = self.client
        client.under_way = count
        first = client.acknowledged
        values = [b"%06d" % number for number in range(first, first + count)]
        outcome = self.disk.commit_on_terms(self.partition, batch_of(*values), txn_id=f"id-{first}", **terms)
        assert isinstance(outcome, Committed)
        assert (outcome.offset_start, outcome.offset_end) == (first, first + count - 1)
        assert client.versions.setdefault(f"id-{first}", outcome.version) == outcome.version
        client.acknowledged, client.under_way = first + count, 0

    def do_expect(self, count):
        self.disk.publish(self.partition)
        self.do_terms(count, expected_version=self.partition.table.version)

    def do_remove(self, offset):
        client = self.client
        client.start_under_way = client.acknowledged if offset == -1 else offset
        assert self.disk.move_log_start(self.partition, client.start_under_way) is ErrorCode.NONE
        client.log_start, client.start_under_way = client.start_under_way, None

    def do_configure(self, segment_bytes):
        config = replace(CONFIG, overrides={"segment.bytes": str(segment_bytes)}, segment_bytes=segment_bytes)
        self.disk.config = self.client.config = config  # the catalog comes first
        self.disk.store.apply(self.partition, config)
        self.disk.run_round()
        self.disk.publish(self.partition)
        assert settings_of(self.partition) == config.overrides

    def do_sweep(self, times):
        for _ in range(times):
            self.partition.sweep_removed(now_ms=self.disk.clock.time_ms)
            self.disk.run_round()
            self.disk.publish(self.partition)

    def do_other_topic(self, _):
        """Two topics of one name, one after the other, with the same offsets."""
        for _ in range(2):
            self.disk.remove(OTHER, UUID(int=self.client.others))
            self.client.others += 1
            partition = self.disk.make(OTHER, UUID(int=self.client.others))
            self.disk.commit(partition, sequenced(1, 0, b"of topic %d" % self.client.others))
        self.disk.remove(OTHER, UUID(int=self.client.others))
        assert not self.filesystem.exists(OTHER_DIRECTORY)

    def do_settle(self, _):
        self.disk.settle()

    def do_vacuum(self, versions_keep):
        self.disk.close()
        vacuum(self.filesystem, DIRECTORY, versions_keep=versions_keep)
        self.start()

    def do_restart(self, _):
        self.disk.close()
        self.start()


def settings_of(partition):
    """What was set on the topic, as the table says."""
    return {name: value for name, value in partition.table.metadata.config.items() if name != FLUSH_MODE_KEY}


def check(content, client, **mode):
    """What is left is a partition as it should be."""
    config = client.config
    if not content.exists(DIRECTORY):
        assert not client.is_created
        return
    with DataDirectory(copy_of(content), config=config, **mode, **SETTINGS) as disk:
        partition = disk.open()
        assert settings_of(partition) == config.overrides
        state, start, end = state_of(partition), partition.log_start_offset, partition.high_watermark
        assert start in (client.log_start, client.start_under_way)
        assert end in (client.acknowledged, client.acknowledged + client.under_way), "a group is whole or absent"
        assert values_of(partition, start) == [b"%06d" % number for number in range(start, end)]
        opened = copy_of(disk.filesystem)
    assert [record.value for record in TableReader(opened, DIRECTORY).read(start)] == [
        b"%06d" % number for number in range(start, end)
    ]
    newest_removed, replayed = copy_of(opened), copy_of(opened)
    checkpoints = sorted(name for name in opened.list_names(DELTA_LOG) if "checkpoint" in name)
    if checkpoints:
        newest_removed.remove(f"{DELTA_LOG}/{checkpoints[-1]}")
        with DataDirectory(newest_removed, config=config, **mode, **SETTINGS) as disk:
            assert state_of(disk.open()) == state
    remove_checkpoints(replayed)
    with DataDirectory(replayed, config=config, **mode, **SETTINGS) as disk:
        try:
            assert state_of(disk.open()) == state
        except DamageError:
            assert len(checkpoints) >= 2, "only behind two checkpoints may anything go that a full replay needs"


def steps_of(script, client=None, content=None, **options):
    life = Life(client or Client(script), content, **options)
    assert life.run()
    return life.filesystem.steps


def leftovers(filesystem, seed):
    yield filesystem.after_kill()
    yield filesystem.after_power_cut()
    yield filesystem.after_power_cut(Random(seed))


def go_on(client, content, **mode):
    """The client comes to the end of its script on what is left."""
    life = Life(client.copy(), content, **mode)
    assert life.run()
    assert life.client.is_done
    check(life.filesystem.after_power_cut(), life.client, **mode)


@on_each_engine
@pytest.mark.parametrize("part", range(8))
def test_a_crash_at_every_step(part, engine):
    for step in range(part, steps_of(SCRIPT, **engine), 8):
        life = Life(Client(SCRIPT), **engine)
        assert not life.run(crash_at=step)
        for content in leftovers(life.filesystem, step):
            check(content, life.client, **engine)
            go_on(life.client, content, **engine)


@pytest.mark.parametrize("part", range(4))
def test_a_start_with_the_other_engine_after_a_crash_at_every_step(part):
    for engine, other in ((FILES, JOURNAL), (JOURNAL, FILES)):
        for step in range(part, steps_of(SHORT_SCRIPT, **engine), 4):
            life = Life(Client(SHORT_SCRIPT), **engine)
            assert not life.run(crash_at=step)
            content = life.filesystem.after_power_cut(Random(step))
            check(content, life.client, **other)
            go_on(life.client, content, **other)


@pytest.mark.parametrize("flush_mode", [FlushMode.INTERVAL, FlushMode.NONE])
def test_a_kill_at_every_step_where_nothing_is_synced(flush_mode):
    for step in range(steps_of(SCRIPT, flush_mode=flush_mode)):
        life = Life(Client(SCRIPT), flush_mode=flush_mode)
        assert not life.run(crash_at=step)
        content = life.filesystem.after_kill()
        resumed = Life(life.client.copy(), content, flush_mode=flush_mode)
        assert resumed.run()
        assert values_of(resumed.partition, resumed.client.log_start) == [
            b"%06d" % number for number in range(resumed.client.log_start, resumed.client.acknowledged)
        ]


@on_each_engine
@pytest.mark.parametrize("part", range(16))
def test_a_second_crash_at_every_step_after_the_first(part, engine, request):
    """Every pair in the long run, some of them always."""
    chance = Random(part)
    is_long_run = request.config.getoption("--long")
    for first in range(part, steps_of(SHORT_SCRIPT, **engine), 16):
        life = Life(Client(SHORT_SCRIPT), **engine)
        assert not life.run(crash_at=first)
        content = life.filesystem.after_kill() if chance.random() < 0.3 else life.filesystem.after_power_cut(chance)
        second_steps = range(steps_of(SHORT_SCRIPT, life.client.copy(), content, **engine))
        for second in second_steps if is_long_run else chance.sample(second_steps, min(2, len(second_steps))):
            again = Life(life.client.copy(), content, **engine)
            assert not again.run(crash_at=second)
            left = again.filesystem.after_power_cut(chance)
            check(left, again.client, **engine)
            go_on(again.client, left, **engine)


@on_each_engine
@pytest.mark.parametrize("part", range(16))
def test_a_power_cut_while_the_next_process_is_at_work_after_a_kill_at_every_step(part, engine, request):
    """Every pair in the long run, some of them always."""
    chance = Random(part)
    is_long_run = request.config.getoption("--long")
    for first in range(part, steps_of(SHORT_SCRIPT, **engine), 16):
        life = Life(Client(SHORT_SCRIPT), **engine)
        assert not life.run(kill_at=first)
        after_kill = Life(life.client.copy(), copy_of(life.filesystem.after_kill()), **engine)
        assert after_kill.run()
        second_steps = range(after_kill.filesystem.steps)
        for second in second_steps if is_long_run else chance.sample(second_steps, min(2, len(second_steps))):
            life = Life(Client(SHORT_SCRIPT), **engine)
            assert not life.run(kill_at=first)
            again = Life(life.client.copy(), life.filesystem, **engine)
            assert not again.run(crash_at=second)
            for left in (again.filesystem.after_power_cut(), again.filesystem.after_power_cut(chance)):
                check(left, again.client, **engine)
                go_on(again.client, left, **engine)


@on_each_engine
@pytest.mark.parametrize("script", [SCRIPT, SHORT_SCRIPT], ids=["script", "short script"])
def test_the_script_does_all_that_is_done_to_a_partition(script, engine):
    life = Life(Client(script), **engine)
    assert life.run()
    done = {(operation.name, kind_of(operation.path)) for operation in life.filesystem.operations}

    assert done >= {
        ("rename", "partition"),  # creation
        ("write_at", "segment"),
        ("sync_data", "segment"),
        ("link", "commit"),
        ("rename", "checkpoint"),
        ("link", "pack"),
        ("remove", "commit"),  # packed
        ("remove", "pack"),  # vacuum
        ("remove", "checkpoint"),
        ("remove", "segment"),  # removed records
        ("rename", "deleted partition"),
        ("remove_directory", "deleted partition"),
        ("sync_directory", "partition"),
        ("sync_directory", "delta log"),
    }


def kind_of(path):
    """What a path is, in a word."""
    name = path.rpartition("/")[2]
    parent = path.rpartition("/")[0]
    if parent.endswith("/.deleted"):
        return "deleted partition"
    for ending, kind in (
        (".checkpoint.json", "checkpoint"),
        (".compacted.json", "pack"),
        (".json", "commit"),
        (".log", "segment"),
        ("_delta_log", "delta log"),
    ):
        if name.endswith(ending):
            return kind
    return "partition" if name.startswith("topic=") else name
