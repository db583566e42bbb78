import msgspec
import pytest

from exactlog.core.log.producer_state import (
    Duplicate,
    Fresh,
    ProducerEntry,
    ProducerStates,
    Refused,
    RememberedBatch,
)
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import InvariantError
from exactlog.core.record.batch_builder import NewRecord, build_batch
from exactlog.core.record.batch_format import decode_header
from exactlog.core.record.control_record_format import TransactionMarker, build_marker_batch

PRODUCER = 7
SEQUENCE_MAX = 2**31 - 1


def batch(sequence, count=1, *, offset=0, epoch=0, producer_id=PRODUCER, timestamp_ms=1000, is_transactional=False):
    return decode_header(
        build_batch(
            [NewRecord(b"v", timestamp_ms=timestamp_ms)] * count,
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
    )


def marker(epoch, *, offset=0, is_commit=True, coordinator_epoch=3, timestamp_ms=2000):
    decision = TransactionMarker(is_commit=is_commit, coordinator_epoch=coordinator_epoch)
    header = decode_header(
        build_marker_batch(
            decision, producer_id=PRODUCER, producer_epoch=epoch, timestamp_ms=timestamp_ms, base_offset=offset
        )
    )
    return header, decision


def states_after(*batches):
    states = ProducerStates()
    for header in batches:
        states.replay(header)
    return states


def decide(states, header, *, log_is_empty_forever=False, **options):
    return states.decide(header, log_is_empty_forever=log_is_empty_forever, **options)


def assert_refused(decision, error_code, *said):
    assert isinstance(decision, Refused)
    assert decision.error_code is error_code
    for word in said:
        assert str(word) in decision.message


# --- producers not known here ---------------------------------------------------------------------------------


@pytest.mark.parametrize("sequence", [0, 1, 500, SEQUENCE_MAX])
def test_an_unknown_producer_may_go_on_anywhere_in_a_log_that_has_held_records(sequence):
    assert decide(ProducerStates(), batch(sequence)) == Fresh()


def test_an_unknown_producer_starts_at_zero_in_a_log_that_never_held_a_record():
    states = ProducerStates()

    assert decide(states, batch(0), log_is_empty_forever=True) == Fresh()
    decision = decide(states, batch(1), log_is_empty_forever=True)
    assert_refused(decision, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, PRODUCER, "sequence 1")


@pytest.mark.parametrize("log_is_empty_forever", [True, False])
def test_a_batch_without_a_producer_is_always_fresh(log_is_empty_forever):
    states = states_after(batch(-1, producer_id=-1), batch(-1, producer_id=-1))

    assert decide(states, batch(-1, producer_id=-1), log_is_empty_forever=log_is_empty_forever) == Fresh()
    assert len(states) == 0


# --- order ----------------------------------------------------------------------------------------------------


def test_the_next_sequence_is_fresh():
    assert decide(states_after(batch(0, 3)), batch(3)) == Fresh()


@pytest.mark.parametrize("sequence", [0, 1, 2, 4, 100])
def test_any_other_sequence_is_out_of_order(sequence):
    decision = decide(states_after(batch(0, 3)), batch(sequence))

    assert_refused(decision, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, PRODUCER, f"sequence {sequence}", "3 was due")


def test_zero_follows_the_highest_sequence():
    states = states_after(batch(SEQUENCE_MAX - 1, 2))

    assert decide(states, batch(0)) == Fresh()
    assert_refused(decide(states, batch(1)), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "0 was due")


def test_a_batch_may_straddle_the_highest_sequence():
    states = states_after(batch(SEQUENCE_MAX - 2, 1))
    straddling = batch(SEQUENCE_MAX - 1, 4, offset=1)

    assert decide(states, straddling) == Fresh()
    states.replay(straddling)
    assert decide(states, batch(2)) == Fresh()
    assert decide(states, straddling) == Duplicate(RememberedBatch(SEQUENCE_MAX - 1, 1, 1, 4, 1000))


def test_producers_do_not_disturb_each_other():
    states = states_after(batch(0, producer_id=1), batch(0, 9, producer_id=2))

    assert decide(states, batch(1, producer_id=1)) == Fresh()
    assert decide(states, batch(9, producer_id=2)) == Fresh()


def test_what_a_coordinator_writes_has_no_order():
    states = states_after(batch(0, 3))

    assert decide(states, batch(-1), is_client=False) == Fresh()
    assert decide(ProducerStates(), batch(-1), log_is_empty_forever=True, is_client=False) == Fresh()


def test_what_a_coordinator_wrote_is_not_remembered_as_a_batch():
    states = states_after(batch(-1, offset=4, timestamp_ms=500))

    assert states.get(PRODUCER) == ProducerEntry(PRODUCER, 0, last_timestamp=500)


# --- duplicates -----------------------------------------------------------------------------------------------


def test_each_of_the_last_five_batches_is_a_duplicate_with_its_first_answer():
    sent = [batch(sequence, 2, offset=100 + sequence, timestamp_ms=sequence) for sequence in range(0, 14, 2)]
    states = states_after(*sent)

    for header in sent[-5:]:
        assert decide(states, msgspec.structs.replace(header, base_offset=0, leader_epoch=-1)) == Duplicate(
            RememberedBatch(
                header.base_sequence, header.last_sequence, header.base_offset, header.last_offset, header.max_timestamp
            )
        )
    for header in sent[:-5]:
        assert_refused(decide(states, header), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)


@pytest.mark.parametrize(("sequence", "count"), [(10, 4), (10, 6), (9, 6), (11, 4)])
def test_a_batch_that_overlaps_an_old_one_is_no_duplicate(sequence, count):
    assert_refused(decide(states_after(batch(10, 5)), batch(sequence, count)), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)


def test_the_same_sequences_in_another_epoch_are_no_duplicate():
    states = states_after(batch(0, 5, epoch=3))

    assert decide(states, batch(0, 5, epoch=4)) == Fresh()
    assert_refused(decide(states, batch(0, 5, epoch=2)), ErrorCode.INVALID_PRODUCER_EPOCH)


# --- epochs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_client", [True, False])
def test_a_lower_epoch_is_fenced(is_client):
    decision = decide(states_after(batch(0, epoch=5)), batch(1, epoch=4), is_client=is_client)

    assert_refused(decision, ErrorCode.INVALID_PRODUCER_EPOCH, PRODUCER, "epoch 4", "is 5")


def test_a_higher_epoch_starts_at_zero():
    states = states_after(batch(0, 3, epoch=5))

    assert decide(states, batch(0, epoch=6)) == Fresh()
    assert decide(states, batch(0, epoch=32767)) == Fresh()
    assert_refused(decide(states, batch(3, epoch=6)), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "0 was due")


def test_a_new_epoch_forgets_the_batches_of_the_old_one():
    states = states_after(batch(0, epoch=0), batch(1, epoch=0, offset=1), batch(0, epoch=1, offset=2))

    assert states.get(PRODUCER).batches == (RememberedBatch(0, 0, 2, 2, 1000),)
    assert_refused(decide(states, batch(1, epoch=0)), ErrorCode.INVALID_PRODUCER_EPOCH)


# --- transactions ---------------------------------------------------------------------------------------------


def test_a_transaction_is_open_from_its_first_batch_to_its_marker():
    states = states_after(batch(0, 2, offset=10, is_transactional=True), batch(2, offset=12, is_transactional=True))

    assert states.get(PRODUCER).txn_start_offset == 10
    states.replay_marker(*marker(0, offset=13, coordinator_epoch=8, timestamp_ms=4000))
    assert states.get(PRODUCER) == ProducerEntry(
        PRODUCER,
        0,
        coordinator_epoch=8,
        last_timestamp=4000,
        batches=(RememberedBatch(0, 1, 10, 11, 1000), RememberedBatch(2, 2, 12, 12, 1000)),
    )
    states.replay(batch(3, offset=14, is_transactional=True))
    assert states.get(PRODUCER).txn_start_offset == 14
    assert states.get(PRODUCER).coordinator_epoch == 8


def test_a_batch_without_a_transaction_is_refused_inside_one():
    states = states_after(batch(0, offset=10, is_transactional=True))

    assert_refused(decide(states, batch(1)), ErrorCode.INVALID_TXN_STATE, "offset 10")
    assert_refused(decide(states, batch(0, epoch=1)), ErrorCode.INVALID_TXN_STATE)
    assert decide(states, batch(1, is_transactional=True)) == Fresh()
    states.replay_marker(*marker(0))
    assert decide(states, batch(1)) == Fresh()


def test_a_marker_of_a_higher_epoch_fences_and_starts_at_zero():
    states = states_after(batch(0, 3, is_transactional=True))

    states.replay_marker(*marker(1, is_commit=False))

    assert states.get(PRODUCER).batches == ()
    late = batch(3, is_transactional=True)
    assert_refused(decide(states, late, is_verified=True), ErrorCode.INVALID_PRODUCER_EPOCH)
    assert_refused(decide(states, batch(3, epoch=1)), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "0 was due")
    assert decide(states, batch(0, epoch=1)) == Fresh()


def test_a_marker_makes_an_unknown_producer_known():
    states = ProducerStates()

    states.replay_marker(*marker(4))

    assert states.get(PRODUCER) == ProducerEntry(PRODUCER, 4, coordinator_epoch=3, last_timestamp=2000)


def test_a_marker_is_not_replayed_as_data():
    header, _ = marker(0, offset=5)

    with pytest.raises(InvariantError, match="offset 5"):
        ProducerStates().replay(header)


# --- expiry ---------------------------------------------------------------------------------------------------


def test_a_silent_producer_is_forgotten_when_its_time_is_up():
    states = states_after(batch(0, timestamp_ms=1000), batch(0, producer_id=8, timestamp_ms=1001))

    assert states.expire(now_ms=1999, expiration_ms=1000) == 0
    assert states.expire(now_ms=2000, expiration_ms=1000) == 1
    assert states.get(PRODUCER) is None
    assert states.get(8) is not None
    assert decide(states, batch(500)) == Fresh()


def test_a_producer_with_an_open_transaction_is_not_forgotten():
    states = states_after(batch(0, is_transactional=True))

    assert states.expire(now_ms=10**15, expiration_ms=1) == 0
    states.replay_marker(*marker(0))
    assert states.expire(now_ms=10**15, expiration_ms=1) == 1


# --- snapshots ------------------------------------------------------------------------------------------------


def test_a_snapshot_is_what_a_checkpoint_holds():
    states = states_after(
        batch(0, 2, producer_id=9, epoch=1, offset=4, is_transactional=True), batch(5, producer_id=2, offset=6)
    )

    assert msgspec.json.decode(msgspec.json.encode(states.snapshot())) == [
        {
            "producer_id": 2,
            "producer_epoch": 0,
            "coordinator_epoch": -1,
            "last_timestamp": 1000,
            "batches": [
                {"first_sequence": 5, "last_sequence": 5, "offset_start": 6, "offset_end": 6, "timestamp": 1000}
            ],
            "txn_start_offset": None,
        },
        {
            "producer_id": 9,
            "producer_epoch": 1,
            "coordinator_epoch": -1,
            "last_timestamp": 1000,
            "batches": [
                {"first_sequence": 0, "last_sequence": 1, "offset_start": 4, "offset_end": 5, "timestamp": 1000}
            ],
            "txn_start_offset": 4,
        },
    ]


def test_states_come_back_from_a_snapshot():
    states = states_after(batch(0, 2, producer_id=9, is_transactional=True), batch(5, producer_id=2))
    encoded = msgspec.json.encode(states.snapshot())

    restored = ProducerStates(msgspec.json.decode(encoded, type=list[ProducerEntry]))

    assert restored.snapshot() == states.snapshot()
    assert isinstance(decide(restored, batch(0, 2, producer_id=9)), Duplicate)


def test_a_copy_shares_entries_and_changes_apart():
    committed = states_after(batch(0))
    head = committed.copy()
    shared = committed.get(PRODUCER)

    head.replay(batch(1, offset=1))

    assert committed.get(PRODUCER) is shared
    assert len(head.get(PRODUCER).batches) == 2
    assert committed.copy().get(PRODUCER) is shared


def test_deciding_changes_nothing():
    states = states_after(batch(0), batch(1, offset=1))
    before = states.snapshot()

    for header in (batch(0), batch(2), batch(9), batch(0, epoch=1), batch(0, producer_id=99)):
        decide(states, header)

    assert states.snapshot() == before
