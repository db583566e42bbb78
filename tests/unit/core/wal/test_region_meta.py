"""What a region knows of its tables, and what follows from it."""

import pytest

from exactlog.core.wal.cleaning import KeptBy, decide_cleaning, snapshot_is_due
from exactlog.core.wal.errors import (
    MarkOutOfRangeError,
    RegionDataLostError,
    TableDroppedError,
    TableNotFoundError,
    UnreadableRecordError,
)
from exactlog.core.wal.limits import SNAPSHOT_ENTRIES_DUE
from exactlog.core.wal.log_entry_format import LogKey, encode_log_key
from exactlog.core.wal.log_records import LiveEntries, read_log_record
from exactlog.core.wal.recovery import Recovery, plan_recovery
from exactlog.core.wal.region_meta import Pin, RegionMeta, known_losses, recovery_start
from exactlog.core.wal.region_snapshot_format import RegionSnapshot, TableSnapshot
from exactlog.core.wal.sequence_offsets import Run

REGION = 7


def region_of(*entries):
    meta = RegionMeta(REGION)
    for entry in entries:
        meta.replay(*entry)
    return meta


def key(table, sequence, region=REGION):
    return encode_log_key(LogKey(region, table, sequence))


# --- tables ------------------------------------------------------------------------------------------------------


def test_the_first_entry_of_a_table_has_sequence_1():
    meta = region_of((3, 1, 10))

    table = meta.table(3)
    assert (table.next_seq_num, table.latest_mark_deleted, table.current_high_watermark) == (2, 1, 11)
    assert table.safe_delete_offset == 10
    assert meta.high_watermark == 11


def test_a_mark_prunes_the_mapping():
    meta = region_of(*((3, sequence, 9 + sequence) for sequence in range(1, 6)))

    meta.replay_mark(3, 4)

    assert list(meta.table(3).seq_offset_mapping) == [(4, 13), (5, 14)]
    assert meta.table(3).safe_delete_offset == 13


def test_a_flushed_table_pins_nothing():
    meta = region_of((3, 1, 10), (4, 1, 11))
    meta.replay_mark(3, 2)

    assert meta.table(3).safe_delete_offset is None
    assert meta.pin() == Pin(4, 1, 11)
    meta.replay_mark(4, 2)
    assert meta.pin() is None
    assert meta.safe_delete_offset == 12


def test_marks_only_rise_and_stay_within_what_was_written():
    table = region_of(*((3, sequence, sequence) for sequence in range(1, 6))).table(3)
    table.replay_mark(table.decide_mark(3, region=REGION))

    assert table.decide_mark(3, region=REGION) == 4
    assert table.decide_mark(5, region=REGION) == 6
    with pytest.raises(
        MarkOutOfRangeError, match=r"region 7, table 3: cannot mark up to 6; the last entry is 5"
    ) as high:
        table.decide_mark(6, region=REGION)
    with pytest.raises(MarkOutOfRangeError, match=r"cannot mark up to 2; all up to 3 is marked already") as low:
        table.decide_mark(2, region=REGION)
    assert (high.value.region, high.value.table, high.value.sequence) == (7, 3, 6)
    assert low.value.sequence == 2


def test_a_dropped_table_pins_nothing_and_takes_nothing():
    meta = region_of((3, 1, 10))
    meta.replay_drop(3)

    assert meta.pin() is None
    with pytest.raises(TableDroppedError):
        meta.table(3).check_is_live(region=REGION)
    assert RegionMeta.of_snapshot(REGION, meta.snapshot()).table(3).is_dropped


def test_a_table_that_was_never_written_to_is_not_known():
    with pytest.raises(TableNotFoundError) as refused:
        region_of((3, 1, 10)).table(4)
    assert (refused.value.region, refused.value.table) == (REGION, 4)


# --- snapshots ---------------------------------------------------------------------------------------------------


def test_recovery_goes_on_from_the_high_watermark_of_a_whole_snapshot():
    assert recovery_start(region_of((3, 1, 10)).snapshot()) == 11


def test_recovery_reads_what_must_stay_again_after_a_snapshot_of_horaedbs_shape():
    meta = region_of((3, 1, 10), (4, 1, 11), (4, 2, 12))
    meta.replay_mark(3, 2)
    snapshot = meta.snapshot(runs_max=0)

    assert snapshot.high_watermark is None
    assert recovery_start(snapshot) == 11
    again = RegionMeta.of_snapshot(REGION, snapshot)
    assert again.table(4).safe_delete_offset == 11
    again.replay(4, 1, 11)
    again.replay(4, 2, 12)
    assert again.snapshot() == meta.snapshot()


def test_recovery_begins_at_the_first_record_where_nothing_is_known():
    assert recovery_start(None) is None
    assert recovery_start(RegionSnapshot((TableSnapshot(1, 5, 5, 9, None),))) is None


def test_runs_that_do_not_rise_are_refused():
    snapshot = RegionSnapshot((TableSnapshot(1, 9, 2, 9, 7, (Run(2, 7, 2), Run(5, 3, 1))),), high_watermark=9)

    with pytest.raises(ValueError, match="does not rise"):
        RegionMeta.of_snapshot(REGION, snapshot)


# --- cleaning ----------------------------------------------------------------------------------------------------


def test_a_clean_up_deletes_up_to_what_a_table_needs():
    meta = region_of((3, 1, 10), (4, 1, 11), (3, 2, 12))
    meta.replay_mark(3, 2)

    cleaning = decide_cleaning(meta, log_start=10)

    assert (cleaning.delete_before, cleaning.kept_by, cleaning.pin) == (11, KeptBy.TABLE, Pin(4, 1, 11))
    assert cleaning.deleted_count == 1


def test_a_clean_up_deletes_everything_where_nothing_is_needed():
    meta = region_of((3, 1, 10), (4, 1, 11))
    meta.replay_mark(3, 2)
    meta.replay_mark(4, 2)

    assert decide_cleaning(meta, log_start=10).delete_before == 12


def test_a_clean_up_never_passes_a_reader():
    meta = region_of((3, 1, 10), (3, 2, 11))
    meta.replay_mark(3, 3)

    cleaning = decide_cleaning(meta, log_start=10, reader_offsets=[12, 11])

    assert (cleaning.delete_before, cleaning.kept_by) == (11, KeptBy.READER)


@pytest.mark.parametrize("log_start", [11, 20])
def test_a_clean_up_never_runs_backwards(log_start):
    cleaning = decide_cleaning(region_of((3, 1, 11)), log_start=log_start)

    assert cleaning.delete_before is None
    assert cleaning.keep_from == log_start
    assert cleaning.deleted_count == 0


def test_a_snapshot_is_due_before_anything_is_deleted_and_when_it_is_worth_one():
    assert snapshot_is_due(replayed_since=0, marks_since=0, is_cleaning=True)
    assert snapshot_is_due(replayed_since=0, marks_since=1, is_cleaning=False)
    assert snapshot_is_due(replayed_since=SNAPSHOT_ENTRIES_DUE, marks_since=0, is_cleaning=False)
    assert not snapshot_is_due(replayed_since=SNAPSHOT_ENTRIES_DUE - 1, marks_since=0, is_cleaning=False)


# --- records -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("record_key", "value", "told"),
    [
        (None, b"\x00a", "no key"),
        (key(1, 1), None, "no value"),
        (b"order-17", b"\x00a", "a key of 8 bytes"),
        (key(1, 1, region=8), b"\x00a", "of region 8"),
        (key(1, 0), b"\x00a", "sequence 0"),
        (key(1, 1), b"\x05a", "version 5"),
    ],
)
def test_a_foreign_record_is_named_with_its_offset(record_key, value, told):
    with pytest.raises(UnreadableRecordError, match=f"offset 9 is no entry.*{told}") as refused:
        read_log_record(REGION, offset=9, key=record_key, value=value)

    assert (refused.value.region, refused.value.offset) == (REGION, 9)
    assert "skip_offsets=[9]" in refused.value.hint


def test_a_reader_sees_no_sequence_twice_and_nothing_that_is_marked():
    live = LiveEntries({1: 3}.get)

    seen = [live.sees(1, sequence, offset) for offset, sequence in enumerate([1, 2, 3, 3, 4, 2, 5])]

    assert seen == [False, False, True, False, True, False, True]
    assert (live.duplicate_count, live.last_duplicate_offset) == (2, 5)


# --- losses ------------------------------------------------------------------------------------------------------


def test_what_lies_below_the_first_offset_is_known_to_be_lost():
    meta = region_of(*((3, sequence, 9 + sequence) for sequence in range(1, 6)), (4, 1, 15))

    assert known_losses(meta, log_start=10) == {}
    assert known_losses(meta, log_start=12) == {3: (1, 2)}
    assert known_losses(meta, log_start=99) == {3: (1, 5), 4: (1, 1)}


def test_a_loss_is_told_to_the_sequence():
    meta = region_of(*((3, sequence, 9 + sequence) for sequence in range(1, 6)))
    snapshot = meta.snapshot()
    plan = plan_recovery(snapshot, log_start=20, log_end=10_000)
    recovery = Recovery(REGION, snapshot, plan=plan, log_start=20)
    recovery.replay(20, key(3, 9), b"\x00")
    recovery.replay(21, key(5, 4), b"\x00")

    with pytest.raises(
        RegionDataLostError, match=r"offset 10 to 19 are gone.*table 3: 1\.\.8; table 5: 1\.\.3"
    ) as told:
        recovery.check_nothing_is_lost()

    assert told.value.lost == {3: (1, 8), 5: (1, 3)}
    assert (told.value.first_offset, told.value.log_start) == (10, 20)


def test_a_loss_of_which_no_sequence_is_known_is_told_too():
    snapshot = region_of((3, 1, 10)).snapshot()
    emptied = RegionMeta.of_snapshot(REGION, snapshot)
    emptied.replay_mark(3, 2)
    recovery = Recovery(
        REGION, emptied.snapshot(), plan=plan_recovery(emptied.snapshot(), log_start=15, log_end=10_000), log_start=15
    )

    with pytest.raises(RegionDataLostError, match="offset 11 to 14 are gone"):
        recovery.check_nothing_is_lost()


def test_an_accepted_loss_moves_the_marks():
    meta = region_of(*((3, sequence, 9 + sequence) for sequence in range(1, 6)))

    meta.replay_loss({3: (1, 5)})

    assert meta.table(3).is_flushed
    assert meta.table(3).next_seq_num == 6


def test_skipped_records_are_passed_over_until_they_are_deleted():
    meta = region_of((3, 1, 10))
    meta.replay_skip(11)
    recovery = Recovery(REGION, meta.snapshot(), plan=plan_recovery(None, log_start=10, log_end=10_000), log_start=10)

    recovery.replay(11, None, b"foreign")

    assert recovery.meta.high_watermark == 12
    recovery.meta.replay_trim(12)
    assert recovery.meta.skipped_offsets == set()
