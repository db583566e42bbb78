"""What readers of a table see of transactions, as of any version."""

import random
from itertools import pairwise

import pytest

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.model.errors import DamageError
from exactlog.core.model.isolation_level import IsolationLevel
from exactlog.core.record.control_record_format import decode_marker
from exactlog.storage.settings import FlushMode
from exactlog.storage.table_reader import TableReader
from tests.support.audits import put_version
from tests.support.counting_filesystem import CountingFilesystem
from tests.support.partitions import DIRECTORY, DataDirectory, batch_of, replace_file
from tests.support.transactions import TransactionalWriter

UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED
SMALL = TopicConfig(segment_bytes=700, index_interval_bytes=200)


@pytest.fixture
def disk():
    with DataDirectory(config=SMALL) as directory:
        yield directory


@pytest.fixture
def writer(disk):
    return TransactionalWriter(disk, disk.make())


@pytest.fixture
def do(writer):
    """Carries out appends, each in a version of its own."""

    def do(*appends):
        for name, *args in appends:
            writer.in_a_round(getattr(writer, name), *args)

    return do


def values(records):
    return [record.value for record in records]


def reader_of(disk):
    return TableReader(disk.filesystem, DIRECTORY)


# --- what is committed --------------------------------------------------------------------------------------------


def test_aborted_records_are_left_out_and_committed_ones_are_not(disk, do):
    do(("write", 1, b"a"), ("write", 2, b"b"), ("abort", 1), ("commit", 2), ("write", 1, b"c"), ("commit", 1))

    assert values(reader_of(disk).read()) == [b"b", b"c"]
    assert values(reader_of(disk).read(isolation=UNCOMMITTED)) == [b"a", b"b", b"c"]


def test_records_of_an_open_transaction_are_withheld_with_all_that_is_behind_them(disk, do):
    do(("plain", b"a"), ("write", 1, b"b"), ("plain", b"c"), ("write", 2, b"d"), ("commit", 2))

    assert values(reader_of(disk).read()) == [b"a"]
    assert values(reader_of(disk).read(isolation=UNCOMMITTED)) == [b"a", b"b", b"c", b"d"]


def test_what_was_open_as_of_a_version_is_never_seen_there_whatever_became_of_it(disk, do):
    do(("write", 1, b"a"), ("plain", b"b"), ("commit", 1))
    table = reader_of(disk)

    assert [values(table.read(as_of_version=version)) for version in range(4)] == [[], [], [], [b"a", b"b"]]
    uncommitted = [values(table.read(as_of_version=version, isolation=UNCOMMITTED)) for version in range(4)]
    assert uncommitted == [[], [b"a"], [b"a", b"b"], [b"a", b"b"]]


def test_as_of_a_time_it_is_the_same(disk, do, writer):
    before = disk.clock.time_ms
    do(("write", 1, b"a"))
    disk.clock.time_ms += 1_000
    do(("commit", 1))
    table = reader_of(disk)

    assert values(table.read(as_of_timestamp=before)) == []
    assert values(table.read(as_of_timestamp=before + 1_000)) == [b"a"]


def test_a_producer_that_aborts_and_commits_by_turns_is_told_apart(disk, do):
    for number in range(6):
        do(("write", 1, b"%d" % number), ("write", 1, b"%d again" % number), ("abort" if number % 2 else "commit", 1))

    assert values(reader_of(disk).read()) == [
        value for number in (0, 2, 4) for value in (b"%d" % number, b"%d again" % number)
    ]


def test_any_range_of_offsets_is_read_by_what_became_of_it_later(disk, do):
    do(("write", 1, b"a"), ("write", 2, b"b"), ("write", 1, b"c"), ("plain", b"d"), ("commit", 2), ("abort", 1))
    table = reader_of(disk)

    assert values(table.read(0, 1)) == []
    assert values(table.read(0, 2)) == [b"b"]
    assert values(table.read(2)) == [b"d"]
    assert values(table.read(1, 3, isolation=UNCOMMITTED)) == [b"b", b"c"]


def test_a_range_that_begins_inside_a_batch_of_an_aborted_transaction_shows_none_of_it(disk, do):
    do(("write", 1, b"a", b"b", b"c"), ("abort", 1), ("plain", b"d"))

    for start in range(4):
        assert values(reader_of(disk).read(start)) == [b"d"]


# --- markers ------------------------------------------------------------------------------------------------------


def test_markers_come_on_request_only(disk, do):
    do(("write", 1, b"a"), ("commit", 1), ("write", 1, b"b"), ("abort", 1))
    found = list(reader_of(disk).read_stored(include_control=True))

    assert [(each.record.offset, each.batch.is_control) for each in found] == [(0, False), (1, True), (3, True)]
    assert [decode_marker(each.record).is_commit for each in found if each.batch.is_control] == [True, False]
    assert [each.delta_version for each in found] == [1, 2, 4]
    everything = reader_of(disk).read(include_control=True, isolation=UNCOMMITTED)
    assert [record.offset for record in everything] == [0, 1, 2, 3]


def test_markers_behind_an_open_transaction_are_withheld_too(disk, do):
    do(("write", 1, b"a"), ("write", 2, b"b"), ("commit", 2))

    assert list(reader_of(disk).read(include_control=True)) == []


# --- against a model ----------------------------------------------------------------------------------------------


class Model:
    """The log as a list: who wrote what at which offset, and what each version could know."""

    def __init__(self):
        self.log = []  # of (producer or None, value or whether it is a commit)
        self.ends = [0]

    def visible(self, version, *, is_committed_only):
        log = self.log[: self.ends[version]]
        stable, opened = len(log), {}
        for offset, (producer_id, what) in enumerate(log):
            if isinstance(what, bool):
                opened.pop(producer_id, None)
            elif producer_id is not None:
                opened.setdefault(producer_id, offset)
        stable = min(opened.values(), default=stable) if is_committed_only else len(log)
        return [
            (offset, what)
            for offset, (producer_id, what) in enumerate(log[:stable])
            if not isinstance(what, bool)
            and not (is_committed_only and producer_id is not None and self._fate(offset, producer_id) is False)
        ]

    def _fate(self, offset, producer_id):
        following = (what for other, what in self.log[offset:] if other == producer_id and isinstance(what, bool))
        return next(following, None)


def write_at_random(writer, rng, *, versions):
    model, opened = Model(), set()
    for _ in range(versions):
        for _ in range(rng.randint(1, 3)):
            producer_id = rng.choice([None, 1, 2, 3])
            if producer_id in opened and rng.random() < 0.4:
                is_commit = rng.random() < 0.5
                writer.end(producer_id, is_commit=is_commit)
                opened.discard(producer_id)
                model.log.append((producer_id, is_commit))
                continue
            written = [b"%d" % (len(model.log) + index) for index in range(rng.randint(1, 3))]
            model.log += [(producer_id, value) for value in written]
            if producer_id is None:
                writer.plain(*written)
            else:
                opened.add(producer_id)
                writer.write(producer_id, *written)
        writer.disk.run_round()
        model.ends.append(len(model.log))
    return model


@pytest.mark.parametrize("seed", range(6))
def test_every_version_shows_what_a_naive_reader_finds(seed):
    with DataDirectory(config=SMALL) as disk:
        writer = TransactionalWriter(disk, disk.make())
        model = write_at_random(writer, random.Random(seed), versions=40)
        table = reader_of(disk)

        for version in range(41):
            for isolation in IsolationLevel:
                expected = model.visible(version, is_committed_only=isolation is IsolationLevel.READ_COMMITTED)
                found = [(r.offset, r.value) for r in table.read(as_of_version=version, isolation=isolation)]
                assert found == expected, (version, isolation)
        stable = [commit.last_stable_offset for commit in table.versions()]
        assert all(earlier <= later for earlier, later in pairwise(stable))


@pytest.mark.parametrize("seed", range(3))
def test_any_range_of_it_is_the_same_records(seed):
    with DataDirectory(config=SMALL) as disk:
        writer = TransactionalWriter(disk, disk.make())
        model = write_at_random(writer, random.Random(100 + seed), versions=20)
        table = reader_of(disk)
        everything = model.visible(20, is_committed_only=True)

        for start in range(len(model.log)):
            for stop in (start, start + 1, start + 5, len(model.log)):
                found = [(record.offset, record.value) for record in table.read(start, stop)]
                assert found == [each for each in everything if start <= each[0] < stop]


# --- beside a broker, after a crash, in other modes ----------------------------------------------------------------


def test_a_reader_beside_a_writer_sees_a_transaction_once_its_marker_is_published(disk, do):
    table = reader_of(disk)
    do(("write", 1, b"a"))
    table.refresh()
    assert values(table.read()) == []
    under_way = table.read()

    do(("commit", 1))

    assert values(under_way) == []
    assert values(table.read()) == []
    table.refresh()
    assert values(table.read()) == [b"a"]


def test_no_index_of_aborted_transactions_is_needed(disk, do):
    do(("write", 1, b"a"), ("abort", 1), ("plain", b"b" * 700), ("plain", b"c"))
    disk.background.run()
    for name in disk.filesystem.list_names(DIRECTORY):
        if name.endswith(".txnindex"):
            disk.filesystem.remove(f"{DIRECTORY}/{name}")

    assert values(reader_of(disk).read()) == [b"b" * 700, b"c"]


def test_a_transaction_over_several_segments_is_left_out_in_all_of_them(disk, do):
    do(*(("write", 1, b"%d" % number * 300) for number in range(6)), ("abort", 1), ("plain", b"x"))
    assert len(disk.open().segments) > 3

    assert values(reader_of(disk).read()) == [b"x"]


@pytest.mark.parametrize("flush_mode", [FlushMode.INTERVAL, FlushMode.NONE])
def test_a_version_that_is_published_later_tells_the_stable_offset_of_its_own_end(flush_mode):
    with DataDirectory(flush_mode=flush_mode) as disk:
        writer = TransactionalWriter(disk, disk.make())
        writer.in_a_round(writer.write, 1, b"a")
        writer.in_a_round(writer.plain, b"b")
        disk.publish(writer.partition)
        writer.in_a_round(writer.commit, 1)
        assert values(reader_of(disk).read()) == []

        disk.publish(writer.partition)

        assert values(reader_of(disk).read()) == [b"a", b"b"]
        assert values(reader_of(disk).read(as_of_version=1)) == []


# --- what is damaged ----------------------------------------------------------------------------------------------


def test_nothing_behind_the_end_of_a_version_is_looked_at(disk, writer):
    """A version reads all its records though the batch behind its last one is not a batch any more."""
    for value in (b"a", b"b", b"c"):
        writer.in_a_round(writer.plain, value)
    (segment,) = writer.partition.segments
    position = segment.size * 2 // 3
    replace_file(disk.filesystem, segment.path, segment.read_file(0)[:position] + bytes(segment.size - position))

    table = reader_of(disk)

    assert values(table.read(as_of_version=2)) == [b"a", b"b"]
    assert values(table.read(1, 2)) == [b"b"]
    with pytest.raises(DamageError):
        list(table.read())


def test_a_reader_that_follows_looks_at_nothing_behind_the_end_of_a_version_either(disk, writer):
    writer.in_a_round(writer.plain, b"a")
    table = reader_of(disk)
    assert values(table.read()) == [b"a"]
    writer.in_a_round(writer.plain, b"b")
    writer.in_a_round(writer.plain, b"c")
    table.refresh()
    (segment,) = writer.partition.segments
    position = segment.size * 2 // 3
    replace_file(disk.filesystem, segment.path, segment.read_file(0)[:position] + bytes(segment.size - position))

    assert values(table.read(as_of_version=2)) == [b"a", b"b"]
    with pytest.raises(DamageError):
        list(table.read())
    assert values(table.read(as_of_version=2)) == [b"a", b"b"]


def test_a_marker_whose_bytes_are_damaged_is_damage_not_a_guess(disk, do, writer):
    do(("write", 1, b"a"), ("commit", 1), ("plain", b"b"))
    (segment,) = writer.partition.segments
    positions = [position for position, header in segment.headers_from(0) if header.is_control]
    content = bytearray(segment.read_file(0))
    content[positions[0] + 70] ^= 1
    replace_file(disk.filesystem, segment.path, content)

    with pytest.raises(DamageError, match=rf"{segment.name}: the batch at byte {positions[0]} does not match"):
        list(reader_of(disk).read())
    assert values(reader_of(disk).read(isolation=UNCOMMITTED)) == [b"a", b"b"]


def test_a_transaction_that_should_be_decided_and_has_no_marker_is_damage(disk, do, writer):
    do(("write", 1, b"a"))
    put_version(disk.filesystem, batch_of(b"b"), segment=writer.partition.segments[0].name, last_stable_offset=2)

    table = reader_of(disk)

    with pytest.raises(DamageError, match="the transaction of producer 1 at offset 0 has no marker"):
        list(table.read())
    assert values(table.read(as_of_version=1)) == []
    assert values(table.read(isolation=UNCOMMITTED)) == [b"a", b"b"]


# --- what it costs ------------------------------------------------------------------------------------------------


def bytes_read(filesystem, isolation):
    files = CountingFilesystem(filesystem)
    table = TableReader(files, DIRECTORY)
    files.clear()
    assert len(list(table.read(isolation=isolation))) == 30
    return files.bytes_read


def test_a_table_without_transactions_costs_no_second_walk(disk, writer):
    for number in range(30):
        writer.in_a_round(writer.plain, b"%d" % number * 200)

    costs = [bytes_read(disk.filesystem, isolation) for isolation in IsolationLevel]

    assert costs[0] == costs[1]


def test_one_with_transactions_costs_one_walk_more_however_many_there_are(disk, writer):
    for number in range(30):
        writer.in_a_round(writer.write, number, b"%d" % number * 200)
    for number in range(30):
        writer.in_a_round(writer.commit, number)

    costs = [bytes_read(disk.filesystem, isolation) for isolation in IsolationLevel]

    assert costs[0] < costs[1] < 2.5 * costs[0]
