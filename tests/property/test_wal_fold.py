"""The fold of a region: any split of the scan, any snapshot between, any duplicate give the same metadata."""

from hypothesis import given
from hypothesis import strategies as st

from exactlog.core.wal.log_entry_format import LogKey, encode_log_key
from exactlog.core.wal.recovery import Recovery, plan_recovery
from exactlog.core.wal.region_meta import RegionMeta
from exactlog.core.wal.region_snapshot_format import decode_snapshot, encode_snapshot

REGION = 1
TABLES = st.integers(0, 3)


@st.composite
def histories(draw):
    """What happens to a region: entries in the order of their offsets, marks and drops between them.

    Offsets have gaps, as markers of transactions leave them.
    """
    events, next_of, marks, offset = [], {}, {}, draw(st.integers(0, 100))
    for _ in range(draw(st.integers(0, 40))):
        table = draw(TABLES)
        if draw(st.integers(0, 3)):
            for _ in range(draw(st.integers(1, 4))):
                sequence = next_of.get(table, 1)
                events.append(("entry", table, sequence, offset))
                next_of[table], offset = sequence + 1, offset + 1
            offset += draw(st.integers(0, 2))
        elif table in next_of:
            mark = draw(st.integers(marks.get(table, 1), next_of[table]))
            events.append(("mark", table, mark))
            marks[table] = mark
    return events


def apply(meta, event):
    match event:
        case ("entry", table, sequence, offset):
            meta.replay(table, sequence, offset)
        case ("mark", table, mark):
            meta.replay_mark(table, mark)


def folded(events):
    meta = RegionMeta(REGION)
    for event in events:
        apply(meta, event)
    return meta


def recovered(snapshot, entries, *, split_at=()):
    """What recovery makes of a snapshot and the entries of the log, in pieces."""
    log_start = entries[0][3] if entries else 0
    plan = plan_recovery(snapshot, log_start=log_start, log_end=10_000)
    recovery = Recovery(REGION, snapshot, plan=plan, log_start=log_start)
    for _, table, sequence, offset in entries:
        if offset >= plan.start:
            recovery.replay(offset, encode_log_key(LogKey(REGION, table, sequence)), b"\x00")
        if offset in split_at:
            meta = recovery.meta
            recovery = Recovery(REGION, meta.snapshot(), plan=plan, log_start=log_start)
    return recovery.meta


def entries_of(events):
    return [event for event in events if event[0] == "entry"]


def stored(snapshot):
    return decode_snapshot(encode_snapshot(snapshot))


@given(histories(), st.data())
def test_a_snapshot_at_any_point_and_the_rest_are_the_whole(events, data):
    crash = data.draw(st.integers(0, len(events)))
    snapshot = stored(folded(events[:crash]).snapshot(runs_max=data.draw(st.sampled_from([0, 3, 10_000]))))
    entries_behind = [event for event in events[crash:] if event[0] == "entry"]
    expected = folded(events[:crash] + entries_behind)

    assert recovered(snapshot, entries_of(events)).snapshot() == expected.snapshot()


@given(histories(), st.data())
def test_a_scan_in_pieces_is_the_scan(events, data):
    entries = entries_of(events)
    split_at = set(data.draw(st.lists(st.sampled_from([entry[3] for entry in entries]))) if entries else ())

    assert recovered(None, entries, split_at=split_at).snapshot() == recovered(None, entries).snapshot()


@given(histories(), st.data())
def test_entries_that_are_found_again_change_nothing(events, data):
    meta = folded(events)
    before = meta.snapshot()

    for event in data.draw(st.lists(st.sampled_from(entries_of(events)))) if entries_of(events) else ():
        apply(meta, event)

    assert meta.snapshot() == before


@given(histories(), st.data())
def test_a_copy_of_an_entry_further_on_moves_the_high_watermark_alone(events, data):
    entries = entries_of(events)
    if not entries:
        return
    meta = folded(events)
    _, table, sequence, _ = data.draw(st.sampled_from(entries))
    mappings = {found.table: list(found.seq_offset_mapping) for found in meta.tables.values()}
    numbers = {found.table: (found.next_seq_num, found.latest_mark_deleted) for found in meta.tables.values()}
    behind = meta.high_watermark + 5

    meta.replay(table, sequence, behind)

    assert {found.table: list(found.seq_offset_mapping) for found in meta.tables.values()} == mappings
    assert {found.table: (found.next_seq_num, found.latest_mark_deleted) for found in meta.tables.values()} == numbers
    assert meta.high_watermark == behind + 1


@given(histories())
def test_what_is_pinned_is_the_first_entry_that_is_not_marked(events):
    marks, live = {}, {}
    for event in events:
        match event:
            case ("entry", table, sequence, offset):
                live[table, sequence] = offset
            case ("mark", table, mark):
                marks[table] = mark
    kept = [offset for (table, sequence), offset in live.items() if sequence >= marks.get(table, 1)]

    meta = folded(events)

    assert meta.safe_delete_offset == min(kept, default=meta.high_watermark)


@given(histories(), st.data())
def test_trimming_up_to_what_is_safe_loses_nothing(events, data):
    meta = folded(events)
    snapshot = stored(meta.snapshot(runs_max=data.draw(st.sampled_from([0, 10_000]))))
    left = [entry for entry in entries_of(events) if entry[3] >= meta.safe_delete_offset]
    plan = plan_recovery(snapshot, log_start=meta.safe_delete_offset, log_end=10_000)
    recovery = Recovery(REGION, snapshot, plan=plan, log_start=meta.safe_delete_offset)
    for _, table, sequence, offset in left:
        if offset >= plan.start:
            recovery.replay(offset, encode_log_key(LogKey(REGION, table, sequence)), b"\x00")

    recovery.check_nothing_is_lost()
    assert recovery.meta.snapshot() == meta.snapshot()
