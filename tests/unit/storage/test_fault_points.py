"""Named points: passed at the step their name says, armed by name, fired once."""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from exactlog.broker.coordinator import transaction_fault_points
from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.model.errors import ConfigError, InvariantError
from exactlog.storage import fault_points
from exactlog.storage.fault_points import (
    CREATE_AFTER_RENAME,
    CREATE_BEFORE_RENAME,
    FaultPoint,
    arm,
    disarm_all,
    find,
    points,
)
from exactlog.storage.filesystem import MemoryFilesystem
from exactlog.storage.settings import FlushMode
from tests.support.counting_filesystem import CountingFilesystem
from tests.support.partitions import DIRECTORY, ORDERS, TOPIC_ID, DataDirectory, batches_of


@pytest.fixture(autouse=True)
def unarmed():
    yield
    disarm_all()


class Crash(BaseException):
    """The end of the process, as far as a test can play it."""


def crash():
    raise Crash


# --- arming ------------------------------------------------------------------------------------------------------


def test_a_point_where_nothing_is_armed_is_passed():
    CREATE_BEFORE_RENAME.reach()


@pytest.mark.parametrize("at", [1, 2, 5])
def test_what_is_armed_happens_the_nth_time_and_never_again(at):
    happened = []
    armed = arm(CREATE_BEFORE_RENAME.name, lambda: happened.append(reached), at=at)

    for reached in range(1, 10):
        assert armed.has_fired is (reached > at)
        CREATE_BEFORE_RENAME.reach()

    assert happened == [at]


def test_what_an_action_raises_comes_out_of_the_point():
    CREATE_BEFORE_RENAME.arm(crash)

    with pytest.raises(Crash):
        CREATE_BEFORE_RENAME.reach()


def test_one_point_is_armed_and_not_the_others():
    CREATE_BEFORE_RENAME.arm(crash)

    CREATE_AFTER_RENAME.reach()


def test_arming_again_replaces_what_was_armed_and_counts_anew():
    happened = []
    CREATE_BEFORE_RENAME.arm(crash, at=2)
    CREATE_BEFORE_RENAME.reach()
    CREATE_BEFORE_RENAME.arm(lambda: happened.append("second"), at=2)

    CREATE_BEFORE_RENAME.reach()
    assert happened == []
    CREATE_BEFORE_RENAME.reach()
    assert happened == ["second"]


def test_all_are_disarmed_at_once():
    for point in points():
        point.arm(crash)

    disarm_all()

    for point in points():
        point.reach()


def test_threads_are_counted_together():
    happened = []
    armed = CREATE_BEFORE_RENAME.arm(lambda: happened.append(1), at=4_000)
    with ThreadPoolExecutor(8) as threads:
        for _ in range(8):
            threads.submit(lambda: [CREATE_BEFORE_RENAME.reach() for _ in range(500)])

    assert (happened, armed.has_fired) == ([1], True)
    assert armed._left == 0


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match=r"unknown fault point storage\.publish\.before_lin") as caught:
        arm("storage.publish.before_lin", crash)
    assert caught.value.hint == "Did you mean storage.publish.before_link?"

    with pytest.raises(ConfigError) as caught:
        find("elsewhere")
    assert "points() lists them" in caught.value.hint


@pytest.mark.parametrize("at", [0, -1])
def test_a_point_is_counted_from_one(at):
    with pytest.raises(ConfigError, match=r"storage\.create\.before_rename"):
        CREATE_BEFORE_RENAME.arm(crash, at=at)


# --- the list ----------------------------------------------------------------------------------------------------


def test_every_point_says_layer_action_and_step_and_what_has_happened():
    for point in points():
        assert re.fullmatch(r"[a-z]+\.[a-z]+\.(before|after)(_[a-z]+)*", point.name)
        assert len(point.description.split()) > 3
        assert find(point.name) is point
        assert repr(point) == f"FaultPoint({point.name!r})"


@pytest.mark.parametrize(
    ("layer", "module"), [("storage.", fault_points), ("txn.", transaction_fault_points)], ids=["storage", "txn"]
)
def test_every_point_is_a_constant_of_its_name(layer, module):
    of_layer = [point for point in points() if point.name.startswith(layer)]
    assert of_layer
    for point in of_layer:
        constant = point.name.removeprefix(layer).replace(".", "_").upper()
        assert getattr(module, constant) is point


def test_a_name_is_given_once():
    with pytest.raises(InvariantError, match=r"storage\.create\.before_rename"):
        FaultPoint("storage.create.before_rename", "another one")
    assert find("storage.create.before_rename") is CREATE_BEFORE_RENAME


# --- where they are ----------------------------------------------------------------------------------------------

CREATION = {
    "storage.publish.after_write": "write_at",
    "storage.publish.before_link": "sync",
    "storage.publish.after_link": "link",
    "storage.publish.after_unlink": "remove",
    "storage.publish.after_directory_sync": "sync_directory",
    "storage.create.before_rename": "sync_directory",
    "storage.create.after_rename": "rename",
}
ROUND = {
    "storage.round.after_segment_write": "write_at",
    "storage.round.after_segment_sync": "sync_data",
    "storage.round.after_directory_sync": "sync_directory",
}
CHECKPOINT = {
    "storage.checkpoint.before_rename": "sync",
    "storage.checkpoint.after_rename": "rename",
    "storage.checkpoint.after_directory_sync": "sync_directory",
}
DELETION = {
    "storage.delete.after_rename": "rename",
    "storage.delete.before_files": "sync_directory",
}


class Steps:
    """A data directory that notes, for each point, the operation on files right before it and right behind it."""

    def __init__(self):
        self.filesystem = CountingFilesystem(MemoryFilesystem())
        self.disk = DataDirectory(self.filesystem, config=TopicConfig(segment_bytes=200), checkpoint_interval=2)
        self._reached = {}

    def watch(self):
        """Notes the next time each point is reached."""
        self._reached.clear()
        self.filesystem.clear()
        for point in points():
            point.arm(lambda name=point.name: self._reached.setdefault(name, len(self.filesystem.operations)))

    @property
    def before(self):
        names = self.filesystem.names()
        return {name: names[index - 1] for name, index in self._reached.items() if index > 0}

    @property
    def behind(self):
        names = self.filesystem.names()
        return {name: names[index] for name, index in self._reached.items() if index < len(names)}


@pytest.fixture
def steps():
    steps = Steps()
    with steps.disk:
        yield steps


def test_a_creation_passes_its_points_in_order(steps):
    steps.watch()

    steps.disk.create()

    assert steps.before == CREATION
    assert list(steps.before) == list(CREATION)
    assert steps.behind["storage.create.before_rename"] == "rename"


def test_a_round_with_a_new_segment_passes_its_points_in_order(steps):
    partition = steps.disk.make()
    steps.watch()

    steps.disk.commit(partition, *batches_of(1))

    assert steps.behind["storage.round.before_write"] == "create"
    assert steps.before.items() >= ROUND.items()
    assert [name for name in steps.before if name in ROUND] == list(ROUND)


def test_a_round_in_a_segment_that_is_there_syncs_no_directory_for_it(steps):
    partition = steps.disk.make()
    steps.disk.commit(partition, *batches_of(1))
    steps.watch()

    steps.disk.commit(partition, *batches_of(1))

    assert steps.behind["storage.round.before_write"] == "write_at"
    assert "storage.round.after_segment_sync" in steps.before
    assert "storage.round.after_directory_sync" not in steps.before


def test_a_checkpoint_passes_its_points_in_order(steps):
    partition = steps.disk.make()
    steps.watch()

    steps.disk.commit(partition, *batches_of(2))

    assert steps.before.items() >= CHECKPOINT.items()
    assert [name for name in steps.before if name in CHECKPOINT] == list(CHECKPOINT)


def test_a_deletion_passes_its_points_in_order(steps):
    steps.disk.make()
    steps.watch()

    steps.disk.store.remove_deleted(steps.disk.store.remove(ORDERS, TOPIC_ID))

    assert steps.before.items() >= DELETION.items()
    assert list(steps.before) == ["storage.delete.before_rename", *DELETION]
    assert steps.behind["storage.delete.before_rename"] == "rename"


def test_a_recovery_passes_its_points_around_what_it_changes(steps):
    partition = steps.disk.make()
    steps.disk.commit(partition, *batches_of(1))
    path = f"{DIRECTORY}/{partition.segments[-1].name}"
    steps.filesystem.open(path).write_at((b"torn",), partition.segments[-1].size)
    steps.disk.restart(flush_mode=FlushMode.NONE)
    steps.watch()

    steps.disk.open()

    assert steps.behind["storage.recovery.before_truncate"] == "truncate"
    assert steps.before["storage.recovery.after_truncate"] == "truncate"
    assert steps.behind["storage.recovery.before_publish"] == "create"


def test_a_crash_at_a_point_of_a_round_leaves_it_to_recovery(steps):
    partition = steps.disk.make()
    steps.disk.commit(partition, *batches_of(1))
    arm("storage.publish.before_link", crash)
    asked = steps.disk.append(partition, batches_of(2)[1])

    with pytest.raises(Crash):
        steps.disk.run_round()

    assert asked.offset is None
    steps.disk.restart()
    assert steps.disk.open().high_watermark == 1
