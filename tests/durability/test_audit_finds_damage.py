"""An audit finds every bit that is not as it was written, and nothing where all is well, whatever happened before."""

import shutil
import threading
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from exactlog.core.deltalog.version_cleanup import PackPlan
from exactlog.core.model.errors import DamageError
from exactlog.core.record.batch_format import LEADER_EPOCH_POSITION, MAGIC_POSITION, iter_headers
from exactlog.storage.audit_findings import Severity
from exactlog.storage.delta_log_files import DeltaLogFiles
from exactlog.storage.filesystem import OsFilesystem
from exactlog.storage.packing import pack
from exactlog.storage.settings import FlushMode
from exactlog.storage.table_audit import audit_table
from exactlog.storage.vacuum import vacuum
from exactlog.testing import Broker, Crashed, FailingFilesystem
from tests.support.audits import CONFIG, SEGMENTS, audit, commit_name, content_of, damage, flip, put, written
from tests.support.partitions import (
    DIRECTORY,
    FIRST_MS,
    DataDirectory,
    batch_of,
    copy_of,
    sequenced,
    values_of,
)
from tests.support.raw_client import RawClient
from tests.support.watching import wait_until

# --- every bit -------------------------------------------------------------------------------------------------


def packed(filesystem):
    pack(filesystem, DIRECTORY, PackPlan(first_version=0, last_version=19))
    return filesystem


def vacuumed(filesystem):
    vacuum(filesystem, DIRECTORY, versions_keep=5)
    assert not filesystem.exists(f"{DIRECTORY}/{commit_name(19)}")
    return filesystem


LOGS = {
    "commit": written(),
    "interval": written(FlushMode.INTERVAL),
    "none": written(FlushMode.NONE),
    "packed": packed(written()),
    "vacuumed": vacuumed(written()),
}


def uncovered_bytes(log, name):
    """The leader epochs of batches whose versions have expired: no checksum that is left covers them."""
    if log != "vacuumed" or name not in SEGMENTS[:2]:
        return set()
    epochs = range(LEADER_EPOCH_POSITION, MAGIC_POSITION)
    return {at + byte for at, _ in iter_headers(content_of(LOGS[log], name)) for byte in epochs}


@settings(max_examples=5 * settings.default.max_examples)
@given(data=st.data())
def test_any_bit_that_turns_over_is_found_in_its_file(data):
    log = data.draw(st.sampled_from(sorted(LOGS)))
    filesystem = copy_of(LOGS[log])
    files = sorted(
        path.removeprefix(f"{DIRECTORY}/")
        for path, file in filesystem._files.items()
        if path.startswith(DIRECTORY) and file.size()
    )
    name = data.draw(st.sampled_from(files), "file")
    byte = data.draw(st.integers(0, len(content_of(filesystem, name)) - 1), "byte")
    if byte in uncovered_bytes(log, name):
        return
    flip(filesystem, name, byte, data.draw(st.integers(0, 7), "bit"))

    assert name in {file for _, file in damage(filesystem)}


@pytest.mark.long
@pytest.mark.parametrize("log", sorted(LOGS))
def test_every_single_bit_is_covered(log):
    filesystem = copy_of(LOGS[log])
    for path in [path for path in sorted(filesystem._files) if path.startswith(DIRECTORY)]:
        name = path.removeprefix(f"{DIRECTORY}/")
        content = content_of(filesystem, name)
        for byte in set(range(len(content))) - uncovered_bytes(log, name):
            for bit in range(8):
                flip(filesystem, name, byte, bit)
                assert name in {file for _, file in damage(filesystem)}, (name, byte, bit)
                put(filesystem, name, content)


@given(data=st.data())
def test_any_bytes_in_place_of_others_are_met_with_a_report(data):
    filesystem = copy_of(LOGS[data.draw(st.sampled_from(sorted(LOGS)))])
    paths = sorted(path for path in filesystem._files if path.startswith(DIRECTORY))
    for path in data.draw(st.lists(st.sampled_from(paths), min_size=1, max_size=4, unique=True)):
        content = filesystem.read_file(path)
        start = data.draw(st.integers(0, len(content)))
        end = data.draw(st.integers(start, len(content)))
        put(
            filesystem,
            path.removeprefix(f"{DIRECTORY}/"),
            content[:start] + data.draw(st.binary(max_size=100)) + content[end:],
        )

    report = audit(filesystem, is_deep=True)

    with DataDirectory(filesystem, config=CONFIG) as disk:
        try:
            disk.open()
        except DamageError:
            assert any(finding.severity is Severity.DAMAGE for finding in report.findings)


# --- what happens to a log -------------------------------------------------------------------------------------

LIFE_CONFIG = replace(CONFIG, file_delete_delay_ms=0)
SETTINGS = {"checkpoint_interval": 3, "versions_keep": 2, "pack_versions": 3}
PRODUCERS = 3

scripts = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 5)),
        st.tuples(st.just("append"), st.integers(1, 5)),
        st.tuples(st.just("terms"), st.integers(1, 3)),
        st.tuples(st.just("remove"), st.integers(0, 100)),
        st.tuples(st.sampled_from(["sweep", "publish", "restart", "vacuum"]), st.none()),
    ),
    max_size=25,
)


class Life:
    """A partition that goes through a script, up to its end or to the crash of its machine."""

    def __init__(self, flush_mode):
        self.filesystem = FailingFilesystem()
        self.filesystem.make_directories("/data")
        self.filesystem.sync_directory("/")
        self.flush_mode = flush_mode
        self.leader_epoch = -1
        self.disk = None
        self.restart(None, is_new=True)
        self.sent = 0
        self.sequences = [0] * PRODUCERS

    def run(self, script):
        for action, argument in script:
            getattr(self, action)(argument)

    def restart(self, _, *, is_new=False):
        if self.disk is not None:
            self.disk.close()
        self.leader_epoch += 1
        self.disk = DataDirectory(
            self.filesystem,
            config=LIFE_CONFIG,
            flush_mode=self.flush_mode,
            leader_epoch=self.leader_epoch,
            **SETTINGS,
        )
        if is_new:
            self.disk.create()
        self.partition = self.disk.open()

    def append(self, count):
        for _ in range(count):
            producer = self.sent % PRODUCERS
            batch = sequenced(
                producer, self.sequences[producer], b"%06d" % self.sent, timestamp_ms=FIRST_MS + self.sent
            )
            self.disk.append(self.partition, batch)
            self.sequences[producer] += 1
            self.sent += 1
        self.disk.run_round()

    def terms(self, count):
        self.disk.publish(self.partition)
        values = [b"%06d" % number for number in range(self.sent, self.sent + count)]
        self.disk.commit_on_terms(self.partition, batch_of(*values), txn_id=f"id-{self.sent}")
        self.sent += count

    def publish(self, _):
        self.disk.publish(self.partition)

    def remove(self, percent):
        self.disk.publish(self.partition)
        self.disk.move_log_start(self.partition, self.partition.high_watermark * percent // 100)

    def sweep(self, _):
        for _ in range(4):
            self.partition.sweep_removed(now_ms=self.disk.clock.time_ms)
            self.disk.run_round()
            self.disk.publish(self.partition)

    def vacuum(self, _):
        vacuum(self.filesystem, DIRECTORY, versions_keep=3)
        self.restart(None)


def lived(flush_mode, script, *, crash_at=None):
    life = Life(flush_mode)
    if crash_at is not None:
        life.filesystem.crash_at(crash_at)
    try:
        life.run(script)
    except Crashed:
        pass
    finally:
        life.disk.close()
    return life


flush_modes = st.sampled_from(list(FlushMode))


@given(flush_mode=flush_modes, script=scripts)
def test_nothing_is_found_in_what_was_only_used(flush_mode, script):
    life = lived(flush_mode, script)

    report = audit(life.filesystem, is_deep=True)

    kinds = {str(finding.kind) for finding in report.findings}
    assert kinds <= {
        "segment-removed",
        *(() if flush_mode is FlushMode.COMMIT else ("bytes-behind", "segment-unnamed")),
    }
    assert report.version == life.partition.table.version
    assert (report.log_start_offset, report.end_offset) == (
        life.partition.log_start_offset,
        life.partition.table.next_offset,
    )
    assert report.oldest_version == DeltaLogFiles(life.filesystem, DIRECTORY).oldest_version


@given(flush_mode=flush_modes, script=scripts, crash_at=st.integers(0, 300))
def test_no_damage_is_found_after_a_kill_nor_after_the_start_that_follows(flush_mode, script, crash_at):
    left = lived(flush_mode, script, crash_at=crash_at).filesystem.after_kill()

    assert damage(left, is_deep=True) == []
    with DataDirectory(left, config=LIFE_CONFIG, flush_mode=flush_mode, leader_epoch=100, **SETTINGS) as disk:
        partition = disk.open()
        values_of(partition, partition.log_start_offset)
    assert damage(left, is_deep=True) == []


@given(script=scripts, crash_at=st.integers(0, 300), seed=st.none() | st.integers(0, 1000))
def test_a_power_cut_damages_no_more_than_indexes_which_are_not_synced(script, crash_at, seed):
    life = lived(FlushMode.COMMIT, script, crash_at=crash_at)
    left = life.filesystem.after_power_cut(None if seed is None else Random(seed))

    assert {kind for kind, _ in damage(left)} <= {"index-damaged"}


@given(flush_mode=flush_modes, script=scripts, crash_at=st.integers(0, 300), seed=st.none() | st.integers(0, 1000))
def test_what_a_start_refuses_is_damage(flush_mode, script, crash_at, seed):
    life = lived(flush_mode, script, crash_at=crash_at)
    left = life.filesystem.after_power_cut(None if seed is None else Random(seed))

    findings = audit(left).findings

    with DataDirectory(left, config=LIFE_CONFIG, flush_mode=flush_mode, leader_epoch=100, **SETTINGS) as disk:
        try:
            disk.open()
        except DamageError:
            assert any(finding.severity is Severity.DAMAGE for finding in findings)


# --- beside a broker -------------------------------------------------------------------------------------------


def copy_live(source, target):
    """A copy of a partition's directory, file by file: the delta log first, so that all it names is there, too."""
    (target / "_delta_log").mkdir(parents=True)
    names = [f"_delta_log/{path.name}" for path in (source / "_delta_log").iterdir()]
    for name in [*names, *(path.name for path in source.iterdir() if path.is_file())]:
        try:
            shutil.copy(source / name, target / name)
        except FileNotFoundError:
            assert "/." in name, "only a temporary file may have gone"


class Load:
    """Produces to a topic from a thread of its own until the block ends."""

    def __init__(self, broker):
        self._broker = broker
        self._is_over = threading.Event()
        self._has_begun = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        with RawClient(self._broker.port) as client:
            topic = client.create_topic("orders")
            for number in range(100_000):
                client.produce(topic, batch_of(b"%06d" % number * 10))
                if number == 20:
                    self._has_begun.set()
                if self._is_over.is_set():
                    return

    def __enter__(self):
        self._thread.start()
        assert self._has_begun.wait(60)
        return self

    def __exit__(self, *error):
        self._is_over.set()
        self._thread.join()


@pytest.mark.parametrize("flush_mode", FlushMode)
def test_copies_made_under_load_and_the_directory_itself_have_notes_at_the_most(tmp_path, flush_mode):
    config = {"flush.mode": flush_mode.value, "segment.bytes": 2_000, "delta.checkpoint.min.interval.ms": 0}
    reports = []
    with Broker(tmp_path / "data", config=config) as broker, Load(broker):
        partition = tmp_path / "data" / "topic=orders-part=0"
        wait_until((partition / "_delta_log" / f"{1:020d}.json").exists)
        for number in range(5):
            copy_live(partition, tmp_path / f"copy-{number}")
            reports += [audit_table(OsFilesystem(), str(partition), is_deep=True)]
    reports += [audit_table(OsFilesystem(), str(tmp_path / f"copy-{number}"), is_deep=True) for number in range(5)]

    assert [finding for report in reports for finding in report.findings if finding.is_damage] == []
    assert all(report.version > 0 for report in reports)
    assert audit_table(OsFilesystem(), str(partition)).records >= 20
