"""A client that sends several requests of one transactional id before any is answered: they act in their order.

In the protocol whose epoch stays the same over transactions, where nothing else tells one from the next.
"""

from itertools import product

import pytest

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from exactlog.core.transaction import parking
from exactlog.testing import Broker
from tests.support.isolated_reader import UNCOMMITTED, read_on, values
from tests.support.raw_client import RawClient
from tests.support.raw_transactions import WITHOUT_IMPLICIT_ADD, TransactionalProducer, describe, produced
from tests.support.transaction_steps import settle

NONE = ErrorCode.NONE
ADD, COMMIT, ABORT = "add", True, False
ENGINES = {
    "files": {"commit.engine": "files"},
    "journal": {"commit.engine": "journal"},
    "none": {"flush.mode": "none"},
}


@pytest.fixture(params=ENGINES)
def raw(request, tmp_path, monkeypatch):
    monkeypatch.setattr(parking, "PARKED_REQUEST_MS_MAX", 60_000)  # however slow the disk is
    with Broker(data_dir=tmp_path, config=ENGINES[request.param]) as broker, RawClient(broker.port) as raw:
        yield raw


class Model:
    """One request after the other, each once all of the one before is done.

    An end that repeats the one before comes back before its markers are written, or behind them: both are told apart.
    """

    def __init__(self):
        self.is_open, self.outcome, self.ended = True, None, []

    def expected(self, step):
        if step == ADD:
            self.is_open = True
            return {NONE}
        if self.is_open:
            self.is_open, self.outcome = False, step
            self.ended.append(step)
            return {NONE}
        return {NONE, ErrorCode.CONCURRENT_TRANSACTIONS} if step is self.outcome else {ErrorCode.INVALID_TXN_STATE}

    @property
    def state(self):
        return "Ongoing" if self.is_open else "CompleteCommit" if self.outcome is COMMIT else "CompleteAbort"


def request_of(producer, step, topic):
    if step != ADD:
        return producer.end_request(step), 4
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=producer.transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=(AddPartitionsToTxnTopic(name=topic.name, partitions=(1,)),),
    )
    return request, 3


def error_of(response):
    if hasattr(response, "error_code"):
        return ErrorCode(response.error_code)
    (topic,) = response.results_by_topic_v3_and_below
    return ErrorCode(topic.results_by_partition[0].partition_error_code)


@pytest.mark.parametrize("outcomes", list(product((COMMIT, ABORT), repeat=4)), ids=str)
def test_what_is_written_is_part_of_the_transaction_that_it_was_sent_in_or_refused(raw, outcomes):
    topic = raw.create_topic("topic", partitions=2)
    producer = TransactionalProducer(raw, "mine")
    assert producer.init() is NONE
    requests = []
    for number, outcome in enumerate(outcomes):
        write = producer.request((topic, 1, b"%d" % number))
        requests += [request_of(producer, ADD, topic), (write, WITHOUT_IMPLICIT_ADD)]
        requests.append(request_of(producer, outcome, topic))

    raw.send_all(*requests)

    told = []
    for _ in outcomes:
        assert error_of(raw.receive()) is NONE
        told += produced(raw.receive())
        assert error_of(raw.receive()) is NONE
    assert told[0] is NONE
    assert settle(raw, "mine") == ("CompleteCommit" if outcomes[-1] is COMMIT else "CompleteAbort")
    taken = [number for number, error in enumerate(told) if error is NONE]
    committed = [b"%d" % number for number in taken if outcomes[number] is COMMIT]
    assert values(read_on(raw, topic, partition=1)) == committed
    everything = read_on(raw, topic, partition=1, isolation=UNCOMMITTED)
    assert sorted(set(values(everything))) == [b"%d" % number for number in taken]


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_they_act_as_if_each_had_waited_for_the_one_before(raw, length):
    topic = raw.create_topic("topic", partitions=2)
    for number, steps in enumerate(product((ADD, COMMIT, ABORT), repeat=length)):
        producer = TransactionalProducer(raw, f"{length}-{number}")
        assert producer.init() is NONE
        assert producer.add((topic, 0)) == [NONE]
        write = producer.request((topic, 0, b"value")), WITHOUT_IMPLICIT_ADD

        raw.send_all(write, *[request_of(producer, step, topic) for step in steps])

        assert produced(raw.receive()) == [NONE]
        model = Model()
        for step in steps:
            assert error_of(raw.receive()) in model.expected(step), steps
        assert settle(raw, producer.transactional_id) == model.state, steps
        partitions = [index for found in describe(raw, producer.transactional_id).topics for index in found.partitions]
        has_ended = COMMIT in steps or ABORT in steps
        assert partitions == ([*([] if has_ended else [0]), *([1] if ADD in steps else [])] if model.is_open else [])
