"""Leader epochs as Kafka's epoch cache keeps and answers them (`LeaderEpochFileCache`; KIP-101, KIP-279)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.core.deltalog.checkpoint_format import LeaderEpochEntry
from exactlog.core.deltalog.leader_epochs import UNKNOWN_EPOCH_END, EpochEnd, begin_epoch, find_epoch_end, trim_epochs
from tests.unit.core.deltalog.histories import METADATA, history_of, replayed


def entries_of(*pairs):
    return [LeaderEpochEntry(epoch=epoch, start_offset=start_offset) for epoch, start_offset in pairs]


def pairs_of(entries):
    return [(entry.epoch, entry.start_offset) for entry in entries]


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (-1, UNKNOWN_EPOCH_END),  # no epoch
        (0, EpochEnd(0, 11)),  # older than all: it ends where the known ones begin
        (2, EpochEnd(2, 15)),
        (3, EpochEnd(2, 15)),  # between two: the one before it (KIP-279)
        (4, EpochEnd(4, 20)),
        (5, EpochEnd(4, 20)),
        (6, EpochEnd(6, 30)),  # the newest ends with the log
        (7, UNKNOWN_EPOCH_END),  # newer than all
    ],
)
def test_an_epoch_ends_where_the_next_known_one_begins(epoch, expected):
    entries = entries_of((2, 11), (4, 15), (6, 20))

    assert find_epoch_end(entries, epoch, log_end_offset=30) == expected


def test_where_no_epoch_is_known_none_has_an_end():
    for epoch in (-1, 0, 5):
        assert find_epoch_end([], epoch, log_end_offset=7) == UNKNOWN_EPOCH_END


def test_an_epoch_that_began_where_another_begins_had_written_nothing():
    entries = entries_of((1, 0), (2, 5))
    begin_epoch(entries, 3, start_offset=5)

    assert pairs_of(entries) == [(1, 0), (3, 5)]
    assert find_epoch_end(entries, 2, log_end_offset=9) == EpochEnd(1, 5)


@pytest.mark.parametrize(
    ("log_start_offset", "left"),
    [
        (0, [(1, 0), (2, 5), (4, 9)]),
        (3, [(1, 3), (2, 5), (4, 9)]),
        (5, [(2, 5), (4, 9)]),
        (7, [(2, 7), (4, 9)]),
        (9, [(4, 9)]),
        (100, [(4, 100)]),
    ],
)
def test_of_what_lies_below_the_log_start_the_epoch_that_holds_it_stays(log_start_offset, left):
    entries = entries_of((1, 0), (2, 5), (4, 9))
    trim_epochs(entries, log_start_offset=log_start_offset)

    assert pairs_of(entries) == left


def test_trimming_what_is_not_there_is_fine():
    entries = []
    trim_epochs(entries, log_start_offset=9)
    assert entries == []


epoch_of_each_record = st.lists(st.integers(0, 6), min_size=1, max_size=30).map(sorted)


@given(epoch_of_each_record, st.data())
def test_the_end_of_an_epoch_is_what_the_records_say(epochs, data):
    """Against a plain account: the epoch of every single record."""
    log_start_offset = data.draw(st.integers(0, len(epochs) - 1), label="log start")
    asked = data.draw(st.integers(0, 7), label="epoch")
    entries = []
    for offset, epoch in enumerate(epochs):
        if not entries or entries[-1].epoch < epoch:
            begin_epoch(entries, epoch, start_offset=offset)
    trim_epochs(entries, log_start_offset=log_start_offset)

    kept = dict(enumerate(epochs[log_start_offset:], log_start_offset))
    newer = [offset for offset, epoch in kept.items() if epoch > asked]
    older = [epoch for epoch in kept.values() if epoch <= asked]
    if asked > max(kept.values()):
        expected = UNKNOWN_EPOCH_END
    else:
        expected = EpochEnd(max(older, default=asked), min(newer, default=len(epochs)))

    assert find_epoch_end(entries, asked, log_end_offset=len(epochs)) == expected


# --- as a table answers --------------------------------------------------------------------------------------------


def table_of_epochs_1_and_3():
    history = history_of(versions=0)
    for epoch, records in ((1, 4), (3, 5)):
        history.leader_epoch = epoch
        history.commit(history.add(records=records))
    return history


def test_a_table_tells_where_its_epochs_end():
    table = replayed(table_of_epochs_1_and_3().commits)

    found = {epoch: table.end_offset_for_epoch(epoch) for epoch in (-1, 0, 1, 2, 3, 4)}

    assert found == {-1: (-1, -1), 0: (0, 0), 1: (1, 4), 2: (1, 4), 3: (3, 9), 4: (-1, -1)}


def test_what_is_committed_and_not_published_yet_belongs_to_the_newest_epoch():
    table = replayed(table_of_epochs_1_and_3().commits)

    assert table.end_offset_for_epoch(3, log_end_offset=12) == (3, 12)
    assert table.end_offset_for_epoch(5, leader_epoch=5, log_end_offset=12) == (5, 12)
    assert table.end_offset_for_epoch(3, leader_epoch=5, log_end_offset=12) == (3, 9)
    assert pairs_of(table.leader_epochs) == [(1, 0), (3, 4)], "a look-up changes nothing"


def test_a_leader_that_has_changed_only_settings_is_known_until_another_begins_there():
    history = table_of_epochs_1_and_3()
    history.leader_epoch = 4
    history.commit(metadata=METADATA)
    table = replayed(history.commits)
    assert table.end_offset_for_epoch(4) == (4, 9)

    history.leader_epoch = 6
    table.replay(history.commit(history.add()))
    assert table.end_offset_for_epoch(4) == (3, 9)
    assert table.end_offset_for_epoch(6) == (6, 10)


def test_once_everything_is_removed_the_newest_epoch_is_still_known():
    history = table_of_epochs_1_and_3()
    history.commit(history.remove_oldest())
    table = replayed(history.commits)

    assert pairs_of(table.leader_epochs) == [(3, 9)]
    assert table.end_offset_for_epoch(3) == (3, 9)
    assert table.end_offset_for_epoch(1) == (1, 9)
