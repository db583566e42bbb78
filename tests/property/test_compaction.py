"""Compaction by key against a naive reader: what it may change of a log, and what it may not."""

from hypothesis import given
from hypothesis import strategies as st

from exactlog.core.record.batch_format import DELETE_HORIZON_BIT, decode_header
from exactlog.core.record.record_format import decode_records
from tests.support.compaction_logs import (
    FIRST_MS,
    committed_records,
    compact,
    fates_of,
    log_of,
    producers_of,
    scripts,
    stable_end,
    table_of,
)

NOW_MS = FIRST_MS + 1_000_000
RETENTION_MS = 60_000
LATER_MS = NOW_MS + RETENTION_MS

shares = st.integers(0, 100)
memories = st.sampled_from((1, 2, 3, 1_000))


def limit_of(batches, share):
    """Up to where a log is compacted: a boundary between batches, and nothing behind it is undecided."""
    end = stable_end(batches)
    bounds = [0, *(bound for batch in batches if (bound := decode_header(batch).next_offset) <= end)]
    return bounds[share * (len(bounds) - 1) // 100]


def once(batches, share, *, now_ms=NOW_MS, keys_max=1_000):
    limit = limit_of(batches, share)
    return compact(batches, limit=limit, now_ms=now_ms, retention_ms=RETENTION_MS, keys_max=keys_max)


@given(scripts, shares, memories)
def test_the_newest_committed_value_of_each_key_is_the_same_before_and_after(script, share, keys_max):
    before = log_of(script)
    after = once(before, share, keys_max=keys_max)
    assert table_of(committed_records(after)) == table_of(committed_records(before))


@given(scripts, shares, memories)
def test_a_reader_of_committed_records_sees_no_other_record_than_before(script, share, keys_max):
    before = log_of(script)
    seen = {record.offset: record for record in committed_records(before)}
    after = committed_records(once(before, share, keys_max=keys_max))
    assert [seen[record.offset] for record in after] == after


@given(scripts, memories)
def test_what_was_compacted_has_one_record_of_a_key_and_none_that_was_aborted(script, keys_max):
    before = log_of(script)
    limit = limit_of(before, 100)
    after = once(before, 100, keys_max=keys_max)
    fates = fates_of(before)
    aborted = {decode_header(before[index]).base_offset for index, is_commit in fates.items() if is_commit is False}
    keys = []
    for batch in after:
        header = decode_header(batch)
        if header.is_control or header.next_offset > limit:
            continue
        if header.base_offset in aborted:
            assert header.record_count == 0
        keys += [record.key for record in decode_records(batch)]
    assert None not in keys
    assert len(set(keys)) == len(keys)


@given(scripts, shares, memories)
def test_compacting_a_second_time_changes_nothing_until_a_delete_horizon_has_passed(script, share, keys_max):
    before = log_of(script)
    once_compacted = once(before, share, keys_max=keys_max)
    limit = limit_of(before, share)
    again = compact(
        once_compacted,
        limit=limit,
        now_ms=LATER_MS - 1,
        retention_ms=RETENTION_MS,
        keys_max=keys_max,
    )
    assert again == once_compacted


@given(scripts, shares)
def test_behind_the_horizon_tombstones_and_markers_without_data_are_gone_and_the_table_stays(script, share):
    before = log_of(script)
    limit = limit_of(before, share)
    after = once(before, share)
    without_tombstones = compact(after, limit=limit, now_ms=LATER_MS, retention_ms=RETENTION_MS)
    # What held a marker may have gone only now: from here on that has a horizon of its own.
    last = compact(without_tombstones, limit=limit, now_ms=LATER_MS + RETENTION_MS, retention_ms=RETENTION_MS)

    assert table_of(committed_records(last)) == table_of(committed_records(before))
    with_data = set()
    for batch in last:
        header = decode_header(batch)
        if header.next_offset > limit:
            break
        if header.is_control:
            entry = producers_of(before)[0].get(header.producer_id)
            tells_epoch = not entry.batches and entry.producer_epoch == header.producer_epoch
            assert tells_epoch or header.producer_id in with_data
            with_data.discard(header.producer_id)
        else:
            assert all(record.value is not None for record in decode_records(batch))
            if header.is_transactional:
                with_data.add(header.producer_id)
    assert compact(last, limit=limit, now_ms=LATER_MS, retention_ms=RETENTION_MS) == last


@given(scripts, shares, memories)
def test_what_the_log_says_of_producers_and_open_transactions_stays(script, share, keys_max):
    before = log_of(script)
    after = once(before, share, keys_max=keys_max)
    states, aborted = producers_of(before)
    states_after, aborted_after = producers_of(after)
    for entry in states.snapshot():
        found = states_after.get(entry.producer_id)
        assert found is not None
        assert (found.producer_epoch, found.last_sequence) == (entry.producer_epoch, entry.last_sequence)
        assert [batch.offset_end for batch in found.batches[-1:]] == [batch.offset_end for batch in entry.batches[-1:]]
    open_before = [entry.txn_start_offset for entry in states.open_transactions()]
    assert [entry.txn_start_offset for entry in states_after.open_transactions()] == open_before
    assert {each.last_offset for each in aborted_after} <= {each.last_offset for each in aborted}


@given(scripts, shares)
def test_a_marker_stays_as_it_is_while_its_transaction_has_data_and_has_a_horizon_from_then_on(script, share):
    before = log_of(script)
    limit = limit_of(before, share)
    after = once(before, share)
    left = set()
    for batch in after:
        header = decode_header(batch)
        if header.next_offset > limit:
            break
        has_horizon = bool(header.attributes & DELETE_HORIZON_BIT)
        if header.is_control:
            assert has_horizon is (header.producer_id not in left)
            left.discard(header.producer_id)
            assert not has_horizon or header.base_timestamp == LATER_MS
        elif header.is_transactional:
            left.add(header.producer_id)
