import msgspec
import pytest
from msgspec import UNSET

from exactlog.core.deltalog.checkpoint_format import LeaderEpochEntry
from exactlog.core.deltalog.commit_format import DecodedCommit, encode_commit
from exactlog.core.deltalog.table_state import NO_VERSION, TableSegment, TableState
from exactlog.core.model.errors import DamageError, InvariantError
from exactlog.core.model.limits import TXN_IDS_REMEMBERED
from tests.unit.core.deltalog.histories import METADATA, History, details_of, history_of, replayed


def refused(history: History, *operations, **changes) -> str:
    """Why a commit that does not follow from a history is refused."""
    commit = history.build(*operations, **changes)
    state = replayed(history.commits)
    with pytest.raises(DamageError) as damage:
        state.replay(DecodedCommit(commit, encode_commit(commit).chain_crc))
    message = str(damage.value)
    assert message.startswith(f"orders-0: delta version {commit.version} does not follow: ")
    return message


def test_before_version_0_there_is_no_table():
    state = TableState(table="orders-0")

    assert state.version == NO_VERSION
    with pytest.raises(InvariantError, match="no table before version 0"):
        state.freeze()


def test_version_0_makes_an_empty_table():
    history = History()
    history.commit()

    snapshot = replayed(history.commits).freeze()

    assert (snapshot.version, snapshot.next_offset, snapshot.last_offset, snapshot.segments) == (0, 0, -1, ())
    assert snapshot.metadata == METADATA


def test_adds_extend_the_active_segment_and_begin_new_ones():
    history = history_of(versions=0)
    history.commit(history.add(records=3, size=30), history.add(records=2, size=20))
    history.commit(history.add(size=7), history.add(records=4, size=40, new_segment=True))

    state = replayed(history.commits)

    assert state.segments == [
        TableSegment(name="00000000000000000000.log", base=0, next_offset=6, size=57),
        TableSegment(name="00000000000000000006.log", base=6, next_offset=10, size=40),
    ]
    assert state.next_offset == 10


def test_an_origin_is_remembered_by_its_last_add():
    history = history_of(versions=0)
    history.commit(history.add(), history.add(origin_id=7001, payload_crc="00000001"), history.add())
    history.commit(history.add(origin_id=7001, records=5, payload_crc="00000002"))

    origin = replayed(history.commits).origins[7001]

    assert (origin.last_seq, origin.payload_crc, origin.version) == (2, "00000002", 2)
    assert (origin.offset_start, origin.offset_end) == (3, 7)
    assert replayed(history.commits).origins[1].payload_crc is UNSET


def test_a_clients_own_id_leads_to_the_result_of_its_add():
    history = history_of(versions=3)
    history.commit(history.add(records=2, txn_id="payment-93", payload_crc="9090a0ae"))

    entry = replayed(history.commits).txn_ids["payment-93"]

    assert (entry.payload_crc, entry.version, entry.offset_start, entry.offset_end) == ("9090a0ae", 4, 3, 4)


def test_as_many_ids_are_remembered_as_is_stated_and_the_oldest_goes_first():
    history = history_of(versions=0)
    ids = [f"id-{number}" for number in range(TXN_IDS_REMEMBERED + 2)]
    history.commit(*(history.add(txn_id=txn_id) for txn_id in ids[:-1]))
    history.commit(history.add(txn_id=ids[-1]))

    snapshot = replayed(history.commits).freeze()

    assert [entry.txn_id for entry in snapshot.txn_ids] == ids[2:]


def test_an_id_that_is_no_longer_remembered_may_come_again():
    history = history_of(versions=0)
    history.commit(*(history.add(txn_id=f"id-{number}") for number in range(TXN_IDS_REMEMBERED + 1)))
    history.commit(history.add(txn_id="id-0"))

    assert replayed(history.commits).txn_ids["id-0"].version == 2


def test_a_leader_epoch_begins_at_the_first_offset_written_under_it():
    history = history_of(versions=2)
    history.leader_epoch = 3
    history.commit(history.add(records=5))
    history.commit(history.add())

    assert replayed(history.commits).leader_epochs == [
        LeaderEpochEntry(epoch=0, start_offset=0),
        LeaderEpochEntry(epoch=3, start_offset=2),
    ]


def test_a_leader_epoch_that_wrote_nothing_leaves_no_trace():
    history = history_of(versions=2)
    history.leader_epoch = 3
    history.commit(metadata=METADATA)
    history.leader_epoch = 4
    history.commit(history.add())

    state = replayed(history.commits)

    assert state.leader_epochs == [
        LeaderEpochEntry(epoch=0, start_offset=0),
        LeaderEpochEntry(epoch=4, start_offset=2),
    ]
    assert state.leader_epoch == 4


def test_a_setting_changes_with_the_metadata():
    history = history_of(versions=1)
    changed = msgspec.structs.replace(METADATA, config={"retention.ms": "1"})
    history.commit(metadata=changed)
    history.commit(history.add())

    assert replayed(history.commits).freeze().metadata == changed


def test_the_oldest_segment_can_be_removed():
    history = history_of(versions=3)
    history.commit(history.add(records=2, new_segment=True))
    history.commit(history.remove_oldest())

    state = replayed(history.commits)

    assert [segment.base for segment in state.segments] == [3]
    assert (state.log_start_offset, state.next_offset) == (3, 5)


def test_a_version_may_remove_and_add():
    history = history_of(versions=3)
    history.commit(history.add(new_segment=True))
    history.commit(history.remove_oldest(), history.add(records=2))

    assert replayed(history.commits).segments == [
        TableSegment(name="00000000000000000003.log", base=3, next_offset=6, size=200)
    ]


def test_a_table_whose_segments_are_all_removed_goes_on_at_its_next_offset():
    history = history_of(versions=3)
    history.commit(history.remove_oldest())
    history.commit(history.add(records=2))

    state = replayed(history.commits)

    assert state.segments == [TableSegment(name="00000000000000000003.log", base=3, next_offset=5, size=100)]
    assert state.log_start_offset == 3


def test_several_segments_may_go_at_once_and_the_table_goes_on_in_the_same_version():
    history = history_of(versions=2)
    history.commit(history.add(new_segment=True), history.add(new_segment=True))
    history.commit(*(history.remove_oldest() for _ in range(3)), history.add(records=2))

    state = replayed(history.commits)

    assert state.segments == [TableSegment(name="00000000000000000004.log", base=4, next_offset=6, size=100)]
    assert (state.log_start_offset, state.next_offset) == (4, 6)


def test_the_log_start_can_move_into_a_segment():
    history = history_of(versions=5)
    history.log_start_offset = 4
    history.commit()

    state = replayed(history.commits)

    assert state.log_start_offset == 4
    assert state.leader_epochs == [LeaderEpochEntry(epoch=0, start_offset=4)]


def test_leader_epochs_below_the_log_start_are_forgotten_but_for_the_one_that_holds_it():
    history = history_of(versions=2)
    for epoch in (1, 2, 3):
        history.leader_epoch = epoch
        history.commit(history.add(records=2))
    history.log_start_offset = 5
    history.commit()

    assert replayed(history.commits).leader_epochs == [
        LeaderEpochEntry(epoch=2, start_offset=5),
        LeaderEpochEntry(epoch=3, start_offset=6),
    ]


def test_a_rewritten_name_can_begin_a_segment():
    history = history_of(versions=0)
    history.commit(history.add(generation=2))

    assert replayed(history.commits).segments[0].name == "00000000000000000000.g2.log"


def test_equal_timestamps_follow_each_other():
    history = history_of(versions=3)

    assert replayed(history.commits).timestamp == "2025-11-07T18:15:02.883Z"


def test_a_snapshot_does_not_change_while_versions_go_on():
    history = history_of(versions=2)
    state = replayed(history.commits)
    snapshot = state.freeze()
    before = snapshot.to_checkpoint(segment_details=details_of(snapshot))

    state.replay(history.commit(history.add(txn_id="later"), history.add(new_segment=True)))

    assert snapshot.version == 2
    assert snapshot.to_checkpoint(segment_details=details_of(snapshot)) == before


def test_a_version_left_out_or_given_twice_is_damage():
    assert "version 3 was to be next" in refused(history_of(versions=2), version=4)
    assert "version 3 was to be next" in refused(history_of(versions=2), version=2)
    assert "version 0 was to be next" in refused(History(), version=1)


def test_a_version_of_another_history_is_damage():
    history = history_of(versions=2)
    mine = history.chain_crc

    assert f"its prev_crc is 00000001, version 2 has {mine}" in refused(history, history.add(), prev_crc="00000001")


def test_a_clock_that_goes_back_is_damage():
    history = history_of(versions=2)

    assert "earlier than 2025-11-07T18:15:02.883Z" in refused(
        history, history.add(), timestamp="2025-11-07T18:15:02.882Z"
    )


def test_a_leader_epoch_that_goes_back_is_damage():
    history = history_of(versions=2)
    history.leader_epoch = 5
    history.commit(history.add())

    assert "leader epoch 4 is below 5" in refused(history, history.add(), leader_epoch=4)


def test_a_table_begins_with_its_metadata():
    assert "version 0 must carry the metadata" in refused(History(), metadata=UNSET)


@pytest.mark.parametrize("changes", [{"topic": "other"}, {"partition": 1}, {"topic_id": "other"}])
def test_metadata_of_another_partition_is_damage(changes):
    metadata = msgspec.structs.replace(METADATA, **changes)

    assert "its metadata is of another partition" in refused(history_of(versions=1), metadata=metadata)


def test_a_version_that_changes_nothing_is_damage():
    assert "no operations and changes nothing" in refused(history_of(versions=1))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"offset_start": 3, "offset_end": 3}, "an add begins at offset 3, not at 2"),
        ({"offset_start": 1, "offset_end": 1}, "an add begins at offset 1, not at 2"),
        ({"offset_end": 1}, "an add ends at offset 1, before it begins"),
        ({"position": 199}, "begins at byte 199 of 00000000000000000000.log, which ends at 200"),
        ({"position": 201}, "begins at byte 201 of 00000000000000000000.log, which ends at 200"),
        ({"segment": "segment-2"}, "'segment-2' is not the name of a segment"),
        ({"segment": "00000000000000000002.index"}, "is not the name of a segment"),
        ({"segment": "00000000000000000002.log"}, "must begin a new one: at byte 0"),
        ({"segment": "00000000000000000003.log", "position": 0}, "named after its first offset 2"),
        ({"origin_seq": 2}, "origin 1 adds its sequence 2 after 2"),
        ({"origin_seq": 1}, "origin 1 adds its sequence 1 after 2"),
    ],
)
def test_an_add_that_does_not_follow_is_damage(changes, reason):
    history = history_of(versions=2)
    operation = msgspec.structs.replace(history.add(), **changes)

    assert reason in refused(history, operation)


def test_an_add_to_a_sealed_segment_is_damage():
    history = history_of(versions=2)
    history.commit(history.add(new_segment=True))
    operation = msgspec.structs.replace(history.add(), segment="00000000000000000000.log", position=200)

    assert "is not the active segment" in refused(history, operation)


@pytest.mark.parametrize("position", [0, 1, 200])
def test_an_add_to_a_segment_that_was_removed_is_damage(position):
    history = history_of(versions=2)
    history.commit(history.remove_oldest())
    operation = msgspec.structs.replace(history.add(), segment="00000000000000000000.log", position=position)

    assert "must begin a new one: at byte 0 and named after its first offset 2" in refused(history, operation)


def test_the_same_id_added_twice_is_damage():
    history = history_of(versions=1)
    history.commit(history.add(txn_id="payment-93"))

    assert "'payment-93' was already added by version 2" in refused(history, history.add(txn_id="payment-93"))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"end_offset": 4}, "its end_offset is 4, its operations end at 3"),
        ({"end_offset": 2}, "its end_offset is 2, its operations end at 3"),
        ({"last_stable_offset": 4}, "last_stable_offset 4 is not between the one before it, 2, and its end_offset 3"),
        ({"last_stable_offset": 1}, "last_stable_offset 1 is not between the one before it, 2, and its end_offset 3"),
        ({"log_start_offset": 4}, "log_start_offset 4 is not between the one before it, 0, and its end_offset 3"),
    ],
)
def test_bounds_that_contradict_each_other_are_damage(changes, reason):
    history = history_of(versions=2)

    assert reason in refused(history, history.add(), **changes)


def test_a_log_start_that_goes_back_is_damage():
    history = history_of(versions=3)
    history.log_start_offset = 2
    history.commit()

    assert "log_start_offset 1 is not between" in refused(history, history.add(), log_start_offset=1)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"segment": "00000000000000000002.log"}, "removes 00000000000000000002.log, which is not the oldest segment"),
        ({"offset_start": 1}, "removes a part of 00000000000000000000.log; segments go whole"),
        ({"offset_end": 0}, "segments go whole"),
        ({"position": 1}, "segments go whole"),
        ({"size": 199}, "segments go whole"),
    ],
)
def test_a_remove_of_anything_but_the_oldest_segment_whole_is_damage(changes, reason):
    history = history_of(versions=2)
    history.commit(history.add(new_segment=True))
    operation = msgspec.structs.replace(history.remove_oldest(), **changes)

    assert reason in refused(history, operation)


def test_a_remove_from_an_empty_table_is_damage():
    history = history_of(versions=1)
    operation = history.remove_oldest()
    history.commit(operation)

    assert "is not the oldest segment" in refused(history, operation)


def test_a_remove_that_leaves_the_log_start_behind_is_damage():
    history = history_of(versions=2)
    history.commit(history.add(new_segment=True))
    operation = history.remove_oldest()

    assert "log_start_offset 1 lies below the first segment, 2" in refused(history, operation, log_start_offset=1)
