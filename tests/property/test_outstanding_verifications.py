"""The lowest sequence of a producer that is being verified: what Apache Kafka's `VerificationStateEntry` keeps."""

from hypothesis import given
from hypothesis import strategies as st

from exactlog.broker.coordinator import outstanding_verifications
from exactlog.broker.coordinator.outstanding_verifications import OutstandingVerifications

KEYS = st.sampled_from(["a", "b", "c"])
EPOCHS = st.integers(0, 2)
SEQUENCES = st.integers(-1, 6)
NOTES = st.tuples(st.just("note"), KEYS, EPOCHS, SEQUENCES)
STEPS = st.lists(NOTES | st.tuples(st.sampled_from(["let in", "end"]), KEYS, EPOCHS, SEQUENCES), max_size=30)


class Entry:
    """Line by line what Apache Kafka's class does."""

    def __init__(self, sequence, epoch):
        self.lowest, self.epoch = sequence, epoch

    def update(self, sequence, epoch):
        if epoch == self.epoch and sequence < self.lowest:
            self.lowest = sequence
        if epoch > self.epoch:
            self.epoch, self.lowest = epoch, sequence


def lowest_of(kept, key):
    """Without any consequence: no batch begins so high."""
    return kept.let_in(key, first_sequence=2**31)


@given(STEPS)
def test_it_is_what_apache_kafka_keeps(steps):
    kept, model = OutstandingVerifications(), {}
    for step, key, epoch, sequence in steps:
        if step == "end":
            kept.end(key)
            model.pop(key, None)
        elif step == "let in":
            assert kept.let_in(key, first_sequence=sequence) == (model[key].lowest if key in model else None)
            if key in model and sequence <= model[key].lowest:  # appended, and so it is cleared
                del model[key]
        else:
            kept.note(key, producer_epoch=epoch, first_sequence=sequence)
            if sequence >= 0:
                model.setdefault(key, Entry(sequence, epoch)).update(sequence, epoch)
        assert {name: lowest_of(kept, name) for name in "abc"} == {
            name: model[name].lowest if name in model else None for name in "abc"
        }


@given(st.integers(1, 5), st.integers(0, 12))
def test_however_many_producers_come_so_many_are_kept_and_the_newest_always(most, count):
    before = outstanding_verifications.OUTSTANDING_VERIFICATIONS_MAX
    outstanding_verifications.OUTSTANDING_VERIFICATIONS_MAX = most
    try:
        kept = OutstandingVerifications()
        for number in range(count):
            kept.note(number, producer_epoch=0, first_sequence=number)
    finally:
        outstanding_verifications.OUTSTANDING_VERIFICATIONS_MAX = before

    found = [number for number in range(count) if lowest_of(kept, number) is not None]
    assert found == list(range(max(0, count - most), count))
