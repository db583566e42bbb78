"""The producer state of a partition against a model that is slow and obvious: it keeps every batch and looks it up."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from exactlog.core.log.producer_state import Decision, Duplicate, Fresh, ProducerStates, Refused
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.record.batch_format import BatchHeader

SEQUENCES = 2**31


class Model:
    """All batches of all producers, in the order of the log."""

    def __init__(self):
        self.log = []

    def decide(self, header, *, log_is_empty_forever):
        mine = [kept for kept in self.log if kept.producer_id == header.producer_id]
        if not mine:
            starts_well = header.base_sequence == 0 or not log_is_empty_forever
            return "fresh" if starts_well else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        epoch = mine[-1].producer_epoch
        of_this_epoch = []
        for kept in reversed(mine):
            if kept.producer_epoch != epoch:
                break
            of_this_epoch.append(kept)
        if header.producer_epoch == epoch:
            for kept in of_this_epoch[:5]:
                if sequences(kept) == sequences(header):
                    return kept.base_offset
        if header.producer_epoch < epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        due = 0 if header.producer_epoch > epoch else (sequences(mine[-1])[-1] + 1) % SEQUENCES
        return "fresh" if header.base_sequence == due else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def sequences(header):
    return [(header.base_sequence + index) % SEQUENCES for index in range(header.record_count)]


def outcome(decision: Decision):
    match decision:
        case Fresh():
            return "fresh"
        case Duplicate(batch=batch):
            return batch.offset_start
        case Refused(error_code=error_code):
            return error_code


def batch(*, producer_id, epoch, sequence, count):
    return BatchHeader(0, 61, -1, 2, 0, 0, count - 1, 1000, 1000, producer_id, epoch, sequence, count)


@st.composite
def batches(draw):
    """What a few producers send: mostly the next batch, often a resend, now and then anything."""
    sent, due, epochs = [], {}, {}
    for _ in range(draw(st.integers(1, 30))):
        producer_id = draw(st.integers(1, 3))
        mine = [header for header in sent if header.producer_id == producer_id]
        match draw(st.sampled_from(["next", "next", "next", "resend", "bump", "anything"])):
            case "resend" if mine:
                sent.append(draw(st.sampled_from(mine[-8:])))
                continue
            case "bump":
                epochs[producer_id] = epochs.get(producer_id, 0) + draw(st.integers(-1, 1))
                sequence = draw(st.sampled_from([0, 0, 0, 1]))
            case "anything":
                sequence = draw(st.sampled_from([0, 1, 2, SEQUENCES - 1, SEQUENCES - 2]))
            case _:
                sequence = due.get(producer_id, draw(st.sampled_from([0, 0, SEQUENCES - 3])))
        count = draw(st.integers(1, 5))
        due[producer_id] = (sequence + count) % SEQUENCES
        epoch = max(epochs.get(producer_id, 0), 0)
        sent.append(batch(producer_id=producer_id, epoch=epoch, sequence=sequence, count=count))
    return sent


def appended(sent, states, model):
    """Run all batches through both, check that they agree, and return the log that results."""
    log = []
    for header in sent:
        next_offset = log[-1].next_offset if log else 0
        decision = states.decide(header, log_is_empty_forever=not log)
        assert outcome(decision) == model.decide(header, log_is_empty_forever=not log)
        if decision == Fresh():
            log.append(replace(header, base_offset=next_offset, leader_epoch=0))
            states.replay(log[-1])
            model.log.append(log[-1])
    return log


@given(batches())
def test_decisions_are_those_of_the_obvious_model(sent):
    appended(sent, ProducerStates(), Model())


@given(batches())
def test_every_record_is_in_the_log_once_and_in_order(sent):
    log = appended(sent, ProducerStates(), Model())

    for producer_id in {header.producer_id for header in log}:
        mine = [header for header in log if header.producer_id == producer_id]
        for before, after in pairwise(mine):
            if after.producer_epoch == before.producer_epoch:
                assert after.base_sequence == (sequences(before)[-1] + 1) % SEQUENCES
            else:
                assert (after.producer_epoch > before.producer_epoch, after.base_sequence) == (True, 0)


@given(batches(), st.data())
def test_a_snapshot_and_the_rest_of_the_log_give_the_same_state_wherever_it_is_split(sent, data):
    states = ProducerStates()
    log = appended(sent, states, Model())
    split = data.draw(st.integers(0, len(log)))
    first = ProducerStates()
    for header in log[:split]:
        first.replay(header)

    second = ProducerStates(first.snapshot())
    for header in log[split:]:
        second.replay(header)

    assert second.snapshot() == states.snapshot()


@given(batches())
def test_sending_everything_of_late_once_more_changes_nothing(sent):
    states, model = ProducerStates(), Model()
    log = appended(sent, states, model)
    before = states.snapshot()

    for entry in before:
        mine = [header for header in log if header.producer_id == entry.producer_id]
        for header in mine[-len(entry.batches) :]:
            decision = states.decide(replace(header, base_offset=0, leader_epoch=-1), log_is_empty_forever=False)
            assert outcome(decision) == header.base_offset

    assert states.snapshot() == before
