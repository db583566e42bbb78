"""Requests of one transactional id that come before the ones in front of them are done: they act in their order.

Whatever the order in which ends can be decided and markers are written, what each transaction holds is what came
between two ends.
"""

from hypothesis import given
from hypothesis import strategies as st

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.transaction.requests import EndRequest
from tests.support.transaction_runtime import BILLS, ID, ORDERS, TransactionRuntime

ADD_ORDERS, ADD_BILLS, COMMIT = "add orders", "add bills", "commit"
STEPS = st.lists(st.sampled_from([ADD_ORDERS, ADD_BILLS, COMMIT, "decide an end", "write markers"]), max_size=40)
PARTITIONS = {ADD_ORDERS: ORDERS, ADD_BILLS: BILLS}


class Told:
    """Who waits, and is told once."""

    def __init__(self, then=None):
        self.errors = []
        self._then = then

    def answer(self, outcome):
        self.errors.append(outcome.error_code)
        if self._then is not None and outcome.error_code is ErrorCode.NONE:
            self._then()

    def fail(self, error_code):
        self.errors.append(error_code)


class Pipeline:
    """A client that never waits, and the runtime's part of carrying it out."""

    def __init__(self):
        self.runtime = TransactionRuntime()
        self.producer_id, self.epoch = self.runtime.producer()
        self.told = []
        self.expected = []
        """Ends that may be decided."""
        self.ended = []

    def add(self, partition):
        self.told.append(self.runtime.add((self.producer_id, self.epoch), partition, transaction_version=1))

    def commit(self):
        shard, now_ms = self.runtime.shard, self.runtime.now_ms
        waiter = Told()
        self.told.append(waiter)
        request = EndRequest(
            transactional_id=ID,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            is_commit=True,
            transaction_version=1,
        )
        if ID in shard.waited_for:
            go_on = Told(lambda: self.expected.append((request, waiter)))
            self.runtime.carry_out(shard.queue_end(request, go_on, now_ms=now_ms))
        else:
            shard.expect_end(ID)
            self.expected.append((request, waiter))

    def decide_an_end(self):
        if self.expected:
            request, waiter = self.expected.pop(0)
            decision = self.runtime.shard.end(request, waiter, was_expected=True, now_ms=self.runtime.now_ms)
            self.runtime.carry_out(decision)

    def write_markers(self):
        self.ended += [set(effect.partitions) for effect in self.runtime.write_markers()]

    def finish(self):
        while self.expected or self.runtime.effects:
            self.decide_an_end()
            self.write_markers()


def transactions_of(steps):
    """What each transaction that has ended holds, and the one that is open; None: none is."""
    ended, open_now = [], None
    for step in steps:
        if step in PARTITIONS:
            open_now = (open_now or set()) | {PARTITIONS[step]}
        elif step == COMMIT and open_now is not None:
            ended.append(open_now)
            open_now = None
    return ended, open_now


@given(STEPS)
def test_each_transaction_holds_what_came_between_two_ends_and_everybody_is_told_once(steps):
    pipeline = Pipeline()
    for step in steps:
        if step in PARTITIONS:
            pipeline.add(PARTITIONS[step])
        else:
            {
                COMMIT: pipeline.commit,
                "decide an end": pipeline.decide_an_end,
                "write markers": pipeline.write_markers,
            }[step]()
    pipeline.finish()

    ended, open_now = transactions_of(steps)
    assert pipeline.ended == ended
    entry = pipeline.runtime.entry()
    assert (set(entry.partitions) if entry.state.is_open else None) == open_now
    assert ID not in pipeline.runtime.shard.waited_for
    for waiter in pipeline.told:
        assert waiter.is_done if hasattr(waiter, "is_done") else len(waiter.errors) == 1
