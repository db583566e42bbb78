"""A checkpoint and the commits after it are as good as all commits, wherever the cut is."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from exactlog.core.deltalog.checkpoint_format import decode_checkpoint, encode_checkpoint
from exactlog.core.deltalog.commit_format import DecodedCommit, decode_commit, encode_commit
from exactlog.core.deltalog.table_state import TableState
from exactlog.core.model.errors import DamageError
from tests.unit.core.deltalog.histories import METADATA, History, details_of, replayed


@st.composite
def histories(draw: Any, *, versions_min: int = 1) -> History:
    """Versions as a partition may write them: groups of appends, settings, epochs, trimming, removal."""
    history = History()
    history.commit()
    last_stable_offset = 0
    for number in range(draw(st.integers(versions_min, 12))):
        history.timestamp_ms += draw(st.integers(0, 3))
        history.leader_epoch += draw(st.sampled_from([0, 0, 0, 1]))
        operations = []
        changes = {}
        kinds = ["add", "add", "add", "configure", "trim", "remove", "remove all", "remove and add", "everything"]
        match draw(st.sampled_from(kinds)):
            case "trim" if history.log_start_offset < history.next_offset and history.segments:
                history.log_start_offset = draw(st.integers(history.log_start_offset + 1, history.next_offset))
            case "configure":
                unknown = draw(st.sampled_from([UNSET, {"owner": "sales"}]))
                config = {"retention.ms": str(number)}
                changes["metadata"] = msgspec.structs.replace(METADATA, config=config, unknown=unknown)
            case "remove" if history.segments:
                count = draw(st.integers(1, len(history.segments)))
                operations = [history.remove_oldest() for _ in range(count)]
            case "remove all":
                operations = [history.remove_oldest() for _ in list(history.segments)]
                operations.append(draw_add(draw, history, label=f"{number}-first"))
            case "remove and add" if history.segments:
                operations = [history.remove_oldest(), draw_add(draw, history, label=f"{number}-r")]
            case "everything" if len(history.segments) > 1:
                operations = [history.remove_oldest(), draw_add(draw, history, label=f"{number}-e")]
                history.log_start_offset = draw(st.integers(history.log_start_offset, history.next_offset))
                changes["metadata"] = msgspec.structs.replace(METADATA, config={"retention.ms": f"{number}"})
            case _:
                count = draw(st.integers(1, 4))
                operations = [draw_add(draw, history, label=f"{number}-{index}") for index in range(count)]
        last_stable_offset = draw(st.integers(last_stable_offset, history.next_offset))
        history.commit(*operations, last_stable_offset=last_stable_offset, **changes)
    return history


def draw_add(draw: Any, history: History, *, label: str) -> Any:
    return history.add(
        records=draw(st.integers(1, 5)),
        size=draw(st.integers(1, 1000)),
        origin_id=draw(st.sampled_from([1, 7001, 7002])),
        new_segment=draw(st.sampled_from([False, False, True])),
        txn_id=draw(st.sampled_from([UNSET, f"txn-{label}"])),
        payload_crc=draw(st.sampled_from([UNSET, "9090a0ae"])),
        unknown=draw(st.sampled_from([UNSET, {"codec": "zstd"}])),
    )


@given(histories(), st.data())
def test_a_checkpoint_at_any_version_and_the_rest_replayed_equal_a_full_replay(history, data):
    cut = data.draw(st.integers(0, history.version), label="checkpoint at version")
    snapshot = replayed(history.commits[: cut + 1]).freeze()
    document = encode_checkpoint(snapshot.to_checkpoint(segment_details=details_of(snapshot)))

    checkpoint = decode_checkpoint(document, path_hint=f"{cut:020d}.checkpoint.json")
    state = replayed(history.commits[cut + 1 :], onto=TableState.from_checkpoint(checkpoint, table="orders-0"))

    assert state.freeze() == replayed(history.commits).freeze()


@given(histories())
def test_replay_gives_what_a_plain_account_of_the_versions_gives(history):
    state = replayed(history.commits)

    adds = [
        (decoded.commit.version, operation)
        for decoded in history.commits
        for operation in decoded.commit.operations
        if operation.type == "add"
    ]
    assert state.version == history.version
    assert state.next_offset == history.next_offset
    assert state.log_start_offset == history.log_start_offset
    assert state.last_stable_offset == history.commits[-1].commit.last_stable_offset
    assert [msgspec.structs.asdict(segment) for segment in state.segments] == history.segments
    assert {origin.origin_id: origin.last_seq for origin in state.origins.values()} == history.sequences
    assert {
        origin_id: (entry.version, entry.offset_start, entry.offset_end) for origin_id, entry in state.origins.items()
    } == {operation.origin_id: (version, operation.offset_start, operation.offset_end) for version, operation in adds}
    assert list(state.txn_ids) == [operation.txn_id for _, operation in adds if operation.txn_id is not UNSET]
    assert sum(operation.offset_end - operation.offset_start + 1 for _, operation in adds) == state.next_offset


@given(histories())
def test_leader_epochs_are_what_a_plain_account_of_the_records_gives(history):
    """The cache kept entries past where the log had been cut off (KAFKA-10706): here it always fits the versions."""
    epoch_of = {
        offset: decoded.commit.leader_epoch
        for decoded in history.commits
        for operation in decoded.commit.operations
        if operation.type == "add"
        for offset in range(operation.offset_start, operation.offset_end + 1)
    }
    state = replayed(history.commits)

    found = {entry.epoch: entry.start_offset for entry in state.leader_epochs}
    kept = {offset: epoch for offset, epoch in epoch_of.items() if offset >= state.log_start_offset}
    first_offsets = {epoch: min(offset for offset in kept if kept[offset] == epoch) for epoch in set(kept.values())}
    newest = found.pop(state.leader_epoch)  # known even where it has written nothing, or nothing is left of it
    assert newest == first_offsets.pop(state.leader_epoch, newest)
    assert found == first_offsets
    assert [entry.epoch for entry in state.leader_epochs] == sorted(found | {state.leader_epoch: newest})


@given(histories())
def test_live_and_recovered_are_one(history):
    """What was built and encoded, and what is read back, replay to the same table."""
    live = TableState(table="orders-0")
    for decoded in history.commits:
        live.replay(DecodedCommit(decoded.commit, encode_commit(decoded.commit).chain_crc))

    recovered = replayed([decode_commit(document, path_hint="orders-0") for document in history.documents])

    assert live.freeze() == recovered.freeze()


@given(histories(versions_min=2), st.data())
def test_a_version_left_out_repeated_or_swapped_is_named(history, data):
    commits = list(history.commits)
    place = data.draw(st.integers(0, len(commits) - 2))
    match data.draw(st.sampled_from(["left out", "repeated", "swapped"])):
        case "left out":
            del commits[place]
            expected = place + 1
        case "repeated":
            commits.insert(place, commits[place])
            expected = place
        case _:
            commits[place], commits[place + 1] = commits[place + 1], commits[place]
            expected = place + 1

    with pytest.raises(DamageError, match=f"delta version {expected} does not follow"):
        replayed(commits)


@given(histories(versions_min=2), st.data())
def test_a_version_rewritten_afterwards_breaks_the_chain(history, data):
    """Even where every document by itself is good."""
    commits = list(history.commits)
    place = data.draw(st.integers(0, len(commits) - 2))
    rewritten = msgspec.structs.replace(commits[place].commit, txn_id="somebody else")
    commits[place] = decode_commit(encode_commit(rewritten).document, path_hint="x")

    with pytest.raises(DamageError, match=f"delta version {place + 1} does not follow: its prev_crc"):
        replayed(commits)
