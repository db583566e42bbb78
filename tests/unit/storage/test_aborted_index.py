"""Which transactions were aborted: kept in memory and in `.txnindex`, found by a start, made anew when damaged."""

import pytest

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.log.aborted_index_format import (
    ABORTED_INDEX_ROW_SIZE,
    AbortedTransaction,
    decode_aborted_transactions,
)
from exactlog.core.log.index_format import TRAILER_SIZE
from exactlog.core.model.errors import DamageError
from exactlog.storage.audit_findings import summarise
from exactlog.storage.filesystem import MemoryFilesystem
from exactlog.storage.settings import FlushMode
from exactlog.storage.table_audit import audit_table
from exactlog.storage.table_repair import repair
from exactlog.testing.failing_filesystem import FailingFilesystem
from tests.support.counting_filesystem import CountingFilesystem
from tests.support.partitions import DELTA_LOG, DIRECTORY, DataDirectory, remove_checkpoints, replace_file
from tests.support.transactions import TransactionalWriter

SMALL = TopicConfig(segment_bytes=700, index_interval_bytes=200)
FIRST, SECOND = (f"{base:020d}.txnindex" for base in (0, 6))
ROWS = ((1, 0, 2, 1), (2, 1, 5, 6), (3, 7, 8, 9))


def aborted(rows=ROWS):
    return tuple(
        AbortedTransaction(
            producer_id=producer_id, first_offset=first, last_offset=last, last_stable_offset=last_stable_offset
        )
        for producer_id, first, last, last_stable_offset in rows
    )


def write_some(disk):
    """Two segments, the first one sealed; transactions of each, and one over both of them."""
    writer = TransactionalWriter(disk, disk.make())
    for name, *args in (
        ("write", 1, b"a" * 30),
        ("write", 2, b"b" * 30),
        ("abort", 1),
        ("plain", b"c" * 30),
        ("plain", b"d" * 30),
        ("abort", 2),
        ("plain", b"e" * 200),
        ("write", 3, b"f"),
        ("abort", 3),
        ("write", 4, b"g"),
    ):
        writer.in_a_round(getattr(writer, name), *args)
    assert [segment.base_offset for segment in writer.partition.segments] == [0, 6]
    return writer.partition


@pytest.fixture(params=[1, 3, 100], ids=["each version a checkpoint", "some", "none"])
def disk(request):
    with DataDirectory(config=SMALL, checkpoint_interval=request.param) as directory:
        yield directory


def found(partition):
    return partition.committed.aborted_transactions(0, partition.high_watermark)


def rows_of(disk, name):
    return disk.filesystem.read_file(f"{DIRECTORY}/{name}")


def reopen(disk):
    disk.restart()
    return disk.open()


def damage(disk, name, how):
    path = f"{DIRECTORY}/{name}"
    content = bytearray(rows_of(disk, name))
    match how:
        case "removed":
            disk.filesystem.remove(path)
            return
        case "empty":
            content.clear()
        case "cut":
            del content[ABORTED_INDEX_ROW_SIZE - 1 :]
        case "another producer":
            content[9] ^= 1
        case "zeros":
            content[:ABORTED_INDEX_ROW_SIZE] = bytes(ABORTED_INDEX_ROW_SIZE)
    replace_file(disk.filesystem, path, bytes(content))


# --- while the partition is open --------------------------------------------------------------------------------


def test_all_are_found_whichever_segment_has_their_markers(disk):
    partition = write_some(disk)

    assert found(partition) == aborted()
    assert partition.committed.aborted_transactions(3, 4) == aborted(ROWS[1:2])
    assert partition.committed.aborted_transactions(6, 7) == ()
    assert partition.committed.aborted_transactions(2, 3) == aborted(ROWS[:2])
    assert partition.committed.aborted_transactions(8, 9) == aborted(ROWS[2:])


def test_nothing_is_known_of_a_marker_before_it_is_committed(disk):
    writer = TransactionalWriter(disk, disk.make())
    writer.in_a_round(writer.write, 1, b"a")

    writer.abort(1)

    assert (found(writer.partition), writer.partition.last_stable_offset) == ((), 0)
    disk.run_round()
    assert (found(writer.partition), writer.partition.last_stable_offset) == (aborted([(1, 0, 1, 2)]), 2)


def test_a_sealed_segment_keeps_its_rows_in_its_file_alone(disk):
    partition = write_some(disk)

    content = rows_of(disk, FIRST)
    assert decode_aborted_transactions(content[:-TRAILER_SIZE]) == aborted(ROWS[:2])
    sealed = partition.segments[0]
    assert (len(sealed.aborted), len(sealed.aborted._memory)) == (2, 0)


def test_a_segment_without_aborted_transactions_has_no_file(disk):
    writer = TransactionalWriter(disk, disk.make())
    for _ in range(8):
        writer.in_a_round(writer.write, 1, b"a" * 60)
        writer.in_a_round(writer.commit, 1)

    assert len(writer.partition.segments) > 1
    assert [name for name in disk.filesystem.list_names(DIRECTORY) if name.endswith(".txnindex")] == []


@pytest.mark.parametrize("how", ["empty", "cut"])
def test_a_file_that_is_damaged_meanwhile_is_made_anew(disk, how):
    partition = write_some(disk)
    damage(disk, FIRST, how)

    assert found(partition) == aborted()


def test_removed_segments_take_their_rows_along(disk):
    partition = write_some(disk)

    disk.move_log_start(partition, 6)

    assert found(partition) == aborted(ROWS[2:])
    assert found(reopen(disk)) == aborted(ROWS[2:])
    for _ in range(4):
        disk.clock.time_ms += 100_000
        partition.sweep_removed(now_ms=disk.clock.now_ms())
        disk.run_round()
    disk.restart()
    assert not [name for name in disk.filesystem.list_names(DIRECTORY) if name.startswith("0" * 20)]


# --- after a start --------------------------------------------------------------------------------------------------


def test_a_start_finds_all_of_them(disk):
    before = write_some(disk)

    after = reopen(disk)

    assert found(after) == aborted()
    assert after.last_stable_offset == before.last_stable_offset == 9
    assert [entry.producer_id for entry in after.open_transactions()] == [4]


def test_a_start_without_a_checkpoint_finds_all_of_them(disk):
    write_some(disk)
    remove_checkpoints(disk.filesystem)

    assert found(reopen(disk)) == aborted()


@pytest.mark.parametrize("how", ["removed", "empty", "cut", "another producer", "zeros"])
@pytest.mark.parametrize("name", [FIRST, SECOND])
def test_a_start_makes_a_damaged_one_anew(how, name, caplog):
    with DataDirectory(config=SMALL, checkpoint_interval=1) as disk:
        write_some(disk)
        before = rows_of(disk, name)
        damage(disk, name, how)

        assert found(reopen(disk)) == aborted()

        assert rows_of(disk, name) == before
        assert "was made anew" in caplog.text
        caplog.clear()
        assert found(reopen(disk)) == aborted()
        assert caplog.text == ""


def test_rows_that_no_version_counts_are_cut_off_at_the_start():
    with DataDirectory(config=SMALL, checkpoint_interval=1) as disk:
        write_some(disk)
        counted = rows_of(disk, SECOND)
        replace_file(disk.filesystem, f"{DIRECTORY}/{SECOND}", counted + bytes(ABORTED_INDEX_ROW_SIZE))

        assert found(reopen(disk)) == aborted()
        assert rows_of(disk, SECOND) == counted


def test_where_the_beginning_was_removed_a_row_that_is_made_anew_begins_with_what_is_left():
    with DataDirectory(config=SMALL, checkpoint_interval=1) as disk:
        writer = TransactionalWriter(disk, disk.make())
        for name, *args in (
            ("write", 1, b"a" * 300),
            ("plain", b"b" * 300),
            ("write", 1, b"c" * 300),
            ("abort", 1),
        ):
            writer.in_a_round(getattr(writer, name), *args)
        base = writer.partition.segments[-1].base_offset
        disk.move_log_start(writer.partition, base)
        assert found(writer.partition) == aborted([(1, 0, 3, 4)])
        for _ in range(4):
            disk.clock.time_ms += 100_000
            writer.partition.sweep_removed(now_ms=disk.clock.now_ms())
            disk.run_round()
        disk.filesystem.remove(f"{DIRECTORY}/{base:020d}.txnindex")

        assert found(reopen(disk)) == aborted([(1, 2, 3, 4)])


def test_a_marker_in_a_version_that_cannot_be_read_is_damage():
    with DataDirectory(config=SMALL, checkpoint_interval=100) as disk:
        write_some(disk)
        path = f"{DIRECTORY}/{0:020d}.log"
        content = bytearray(disk.filesystem.read_file(path))
        content[-1] ^= 1
        replace_file(disk.filesystem, path, bytes(content))

        with pytest.raises(DamageError):
            reopen(disk)


@pytest.mark.parametrize("flush_mode", FlushMode)
def test_rows_that_a_checkpoint_counts_survive_a_power_cut(flush_mode, caplog):
    filesystem = FailingFilesystem()
    with DataDirectory(filesystem, config=SMALL, checkpoint_interval=1, flush_mode=flush_mode) as disk:
        partition = disk.make()
        writer = TransactionalWriter(disk, partition)
        for _ in range(6):
            writer.in_a_round(writer.write, 1, b"a" * 60)
            writer.in_a_round(writer.abort, 1)
            disk.publish(partition)
        expected = found(partition)
        left = filesystem.after_power_cut()

    with DataDirectory(left, config=SMALL, checkpoint_interval=1, flush_mode=flush_mode, leader_epoch=9) as disk:
        assert found(disk.open()) == expected
        assert "made anew" not in caplog.text


# --- repair ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [FIRST, SECOND])
def test_repair_makes_a_damaged_one_anew(name):
    with DataDirectory(config=SMALL, checkpoint_interval=1) as disk:
        write_some(disk)
        before = rows_of(disk, name)
        damage(disk, name, "another producer")

        report = repair(disk.filesystem, summarise((audit_table(disk.filesystem, DIRECTORY),)), dry_run=False)

        (table,) = report.tables
        segment = name.replace(".txnindex", ".log")
        assert [(str(step.kind), step.file) for step in table.steps] == [("rebuild-aborted-index", segment)]
        assert (table.remaining, report.damage) == ((), 0)
        assert rows_of(disk, name) == before


def test_the_checkpoint_counts_them_and_lists_what_is_open():
    with DataDirectory(config=SMALL, checkpoint_interval=1) as disk:
        write_some(disk)
        document = disk.filesystem.read_file(f"{DELTA_LOG}/{10:020d}.checkpoint.json")

        assert b'"aborted_entries":2' in document
        assert b'"open_transactions":[{"producer_id":4,"producer_epoch":0,"first_offset":9}]' in document


def test_behind_a_long_transaction_many_rows_are_read_with_few_reads():
    """While it is open the last stable offset stands, so no row ends the search before that of its own marker."""
    config = TopicConfig(segment_bytes=100_000)
    filesystem = CountingFilesystem(MemoryFilesystem())
    with DataDirectory(filesystem, config=config, checkpoint_interval=1000) as disk:
        writer = TransactionalWriter(disk, disk.make())
        writer.write(1, b"long")
        for _ in range(300):
            writer.write(2, b"short")
            writer.abort(2)
        writer.abort(1)
        writer.write(3, b"fills the segment" * 2000)
        writer.write(3, b"fills the segment" * 2000)
        disk.run_round()
        sealed = writer.partition.segments[0]
        assert (len(sealed.aborted), len(sealed.aborted._memory)) == (301, 0)
        before = reads_of(filesystem)

        assert len(writer.partition.committed.aborted_transactions(0, 602)) == 301

        assert reads_of(filesystem) - before <= 12


def reads_of(filesystem):
    return sum(operation.name == "read_at" for operation in filesystem.operations)
