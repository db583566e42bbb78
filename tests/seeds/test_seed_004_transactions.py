"""Seed 004: its end-to-end tests (Testing), life cycle, usage examples and isolation levels, a test a sentence or row.

Its configuration, persistence, API and error tables are in the suites beside this one.
"""

import uuid
from itertools import product

import pytest

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.transaction.states import TRANSITIONS, TransactionState
from exactlog.testing import Broker
from tests.support.isolated_reader import COMMITTED, UNCOMMITTED, read_on, values
from tests.support.raw_client import RawClient, batch_of, sequenced
from tests.support.raw_groups import fetch_offset
from tests.support.raw_transactions import (
    ABORT,
    COMMIT,
    TransactionalProducer,
    describe,
    list_transactions,
    produced,
)
from tests.support.transaction_steps import FLOWS, ends, no_markers, open_producer, settle, state_of, visible

NONE = ErrorCode.NONE
TV1, TV2 = FLOWS
FENCED = {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED}
BULK = 5_000

both = pytest.mark.parametrize("flow", FLOWS, ids=repr)


@pytest.fixture
def producer(raw, topic):
    return open_producer(raw, topic.name)


@pytest.fixture
def group():
    return f"group-{uuid.uuid4().hex[:8]}"


def everything(raw, topic, partition=0):
    return values(read_on(raw, topic, partition=partition, isolation=UNCOMMITTED))


# --- Testing: the end-to-end tests ----------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("outcome", [COMMIT, ABORT])
def test_bulk_produce_is_all_or_nothing(raw, flow, outcome):
    """Bulk produce + commit (all-or-nothing)."""
    topic = raw.create_topic(partitions=4)
    producer = open_producer(raw, topic.name)
    expected = [[b"%d" % number for number in range(index, BULK, 4)] for index in range(4)]
    for start in range(0, len(expected[0]), 250):
        batches = [(topic, index, *of_partition[start : start + 250]) for index, of_partition in enumerate(expected)]
        assert flow.write(producer, *batches) == [NONE] * 4
    assert [visible(raw, topic, index) for index in range(4)] == [[]] * 4

    flow.finish(producer, outcome)

    assert [visible(raw, topic, index) for index in range(4)] == (expected if outcome is COMMIT else [[]] * 4)


@both
def test_an_abort_is_verified(raw, topic, producer, flow):
    """Abort verification: nothing is left open, of the producer, of the coordinator, of the partition."""
    flow.write(producer, (topic, 0, b"value"))
    flow.finish(producer, ABORT)

    assert (visible(raw, topic), everything(raw, topic)) == ([], [b"value"])
    assert ends(raw, topic) == (2, 2)
    assert describe(raw, topic.name).topics == ()


@both
def test_a_transaction_timeout_aborts_by_itself(flow):
    """Transaction timeout → automatic abort."""
    with Broker(config={"in.memory": True}) as own, RawClient(own.port) as raw:
        topic = raw.create_topic()
        producer = open_producer(raw, "mine", timeout_ms=1_000)
        flow.write(producer, (topic, 0, b"slow"))

        own.clock.advance_ms(11_001)
        while state_of(raw, "mine") != "CompleteAbort":
            pass

        assert (visible(raw, topic), ends(raw, topic)) == ([], (2, 2))
        assert own.metrics()["exactlog_transactions_timed_out_total"] == 1


@both
def test_transactions_at_once_on_one_partition(raw, topic, flow):
    """Concurrent transactions on the same partition: two producer ids, both open, each with an end of its own."""
    one, two = (open_producer(raw, f"{topic.name}-{number}") for number in range(2))
    for number in range(3):
        flow.write(one, (topic, 0, b"one %d" % number))
        flow.write(two, (topic, 0, b"two %d" % number))
    mine = {one.transactional_id, two.transactional_id}
    open_now = list_transactions(raw, state_filters=("Ongoing",)).transaction_states
    assert {found.transactional_id for found in open_now} >= mine
    assert one.producer_id != two.producer_id

    flow.finish(two, COMMIT)
    assert visible(raw, topic) == []  # behind the first one
    flow.finish(one, ABORT)

    assert visible(raw, topic) == [b"two 0", b"two 1", b"two 2"]


@both
def test_transactions_over_several_partitions_and_topics(raw, flow):
    """Multi-partition / multi-topic transactions: six partitions of three topics."""
    topics = [raw.create_topic(partitions=2) for _ in range(3)]
    places = list(product(topics, range(2)))
    producer = open_producer(raw, topics[0].name)
    assert producer.add(*places) == [NONE] * 6

    assert flow.write(producer, *[(*place, b"value") for place in places]) == [NONE] * 6
    flow.finish(producer)

    assert [visible(raw, *place) for place in places] == [[b"value"]] * 6
    assert settle(raw, topics[0].name) == "CompleteCommit"


def test_the_sequences_of_an_idempotent_producer_are_tracked(raw, topic, producer):
    """Idempotent producer sequence tracking, with the seed's own numbers: 0-4, again, 5-9, then 20-24 for 10."""
    producer_id, epoch = producer.identity

    def send(first, count, epoch=epoch):
        batch = sequenced(producer_id, first, *[b"%d" % (first + index) for index in range(count)], epoch=epoch)
        found = raw.produce(topic, batch)
        return ErrorCode(found.error_code), found.base_offset

    assert send(0, 5) == (NONE, 0)
    assert send(0, 5) == (NONE, 0)  # a duplicate: its first offset
    assert send(5, 5) == (NONE, 5)
    assert send(20, 5)[0] is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(0, 1, epoch + 1) == (NONE, 10)
    assert send(10, 5, epoch)[0] is ErrorCode.INVALID_PRODUCER_EPOCH
    assert ends(raw, topic) == (11, 11)


def test_sequences_are_tracked_for_each_producer(raw, topic):
    """Sequence numbers per (producer_id, topic, partition): two producers side by side have 0 each."""
    producers = [open_producer(raw, f"{topic.name}-{number}") for number in range(2)]

    found = [raw.produce(topic, sequenced(each.producer_id, 0, b"first")) for each in producers * 2]

    assert [(each.error_code, each.base_offset) for each in found] == [(0, 0), (0, 1)] * 2


@both
def test_read_committed_isolation(raw, topic, producer, flow):
    """READ_COMMITTED isolation semantics."""
    raw.produce(topic, batch_of(b"plain"))
    flow.write(producer, (topic, 0, b"dropped"))
    raw.produce(topic, batch_of(b"plain behind"))
    assert (visible(raw, topic), ends(raw, topic)) == ([b"plain"], (1, 3))

    flow.finish(producer, ABORT)
    flow.write(producer, (topic, 0, b"kept"))
    flow.finish(producer, COMMIT)

    assert visible(raw, topic) == [b"plain", b"plain behind", b"kept"]
    assert everything(raw, topic) == [b"plain", b"dropped", b"plain behind", b"kept"]


@both
def test_the_consume_transform_produce_pattern(raw, topic, group, flow):
    """Consume-transform-produce pattern: offsets 150 and 200 are accepted once the group is part of it."""
    target = raw.create_topic()
    producer = open_producer(raw, topic.name)
    assert producer.commit_offsets(group, topic, 150, version=3) is ErrorCode.INVALID_TXN_STATE

    for offset, outcome in (150, COMMIT), (200, COMMIT), (250, ABORT):
        assert flow.write(producer, (target, 0, b"%d" % offset)) == [NONE]
        assert flow.move(producer, group, topic, offset) is NONE
        flow.finish(producer, outcome)

    assert visible(raw, target) == [b"150", b"200"]
    assert fetch_offset(raw, group, topic).committed_offset == 200


# --- Exactly-once semantics, life cycle -----------------------------------------------------------------------------


@both
def test_every_message_of_a_transaction_is_seen_or_none_is(raw, flow):
    """Either every message in a transaction is committed and visible to consumers, or none are: at every moment."""
    topic = raw.create_topic(partitions=3)
    producer = open_producer(raw, topic.name)
    for number in range(6):
        flow.write(producer, *[(topic, index, b"%d" % number, b"%d" % number) for index in range(3)])
        whole = [b"%d" % (each // 2 * 2) for each in range(number + number % 2)]
        assert [visible(raw, topic, index) for index in range(3)] == [whole] * 3
        flow.finish(producer, ABORT if number % 2 else COMMIT)


def test_duplicate_writes_are_suppressed(raw, topic, producer):
    """Sequence numbers detect and suppress duplicate writes: also inside a transaction, of five batches back."""
    requests = [producer.request((topic, 0, b"%d" % number)) for number in range(5)]

    answers = [produced(raw.ask(request, 12)) for request in requests * 2]
    TV2.finish(producer)

    assert answers == [[NONE]] * 10
    assert visible(raw, topic) == [b"0", b"1", b"2", b"3", b"4"]


@both
@pytest.mark.parametrize(
    ("outcome", "path"),
    [(COMMIT, ["PrepareCommit", "CompleteCommit"]), (ABORT, ["PrepareAbort", "CompleteAbort"])],
)
def test_the_life_cycle(broker, raw, topic, flow, *, outcome, path):
    """InitProducerId → Ongoing → produce, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit → EndTxn → Prepare →
    Complete → (removed): the transaction is; its id stays until it expires.
    """
    producer = open_producer(raw, topic.name)
    seen = []
    for step in (
        lambda: producer.add((topic, 0)),
        lambda: producer.produce((topic, 0, b"value"), version=11),
        lambda: producer.add_offsets(topic.name),
        lambda: producer.commit_offsets(topic.name, topic, 1, version=3),
    ):
        assert step() in (NONE, [NONE])
        seen.append(state_of(raw, topic.name))
    assert seen == ["Ongoing"] * 4
    with no_markers():
        assert flow.end(producer, outcome) is NONE
        assert state_of(raw, topic.name) == path[0]
    broker.clock.advance_ms(1_000)

    assert settle(raw, topic.name) == path[1]
    assert describe(raw, topic.name).topics == ()


# --- State machine --------------------------------------------------------------------------------------------------

S = TransactionState
STATES = {
    # state            can add, can end, is terminal
    S.ONGOING:         (True,   True,    False),
    S.PREPARE_COMMIT:  (False,  False,   False),
    S.PREPARE_ABORT:   (False,  False,   False),
    S.COMPLETE_COMMIT: (False,  False,   True),
    S.COMPLETE_ABORT:  (False,  False,   True),
    S.DEAD:            (False,  False,   True),
}  # fmt: skip


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.kafka_name)
def test_the_table_of_states_allows_what_the_seeds_does(state):
    """State Machine, row by row. In a complete state what may be added is the next transaction, as in Kafka."""
    can_add, can_end, is_terminal = STATES[state]
    follow = TRANSITIONS[state]

    assert (S.ONGOING in follow and state.is_open) == can_add
    assert (S.PREPARE_COMMIT in follow) == can_end
    assert (not follow & {S.PREPARE_COMMIT, S.COMPLETE_COMMIT, S.COMPLETE_ABORT}) == is_terminal


@pytest.mark.parametrize("outcome", [COMMIT, ABORT])
def test_a_prepared_transaction_takes_no_partition_and_no_other_end(broker, raw, topic, producer, outcome):
    """PrepareCommit, PrepareAbort: cannot add partitions, cannot end, are not terminal."""
    flow = TV1
    flow.write(producer, (topic, 0, b"value"))
    with no_markers():
        flow.end(producer, outcome)
        assert producer.add((topic, 0)) == [ErrorCode.CONCURRENT_TRANSACTIONS]
        assert flow.end(producer, not outcome) is ErrorCode.INVALID_TXN_STATE
        assert flow.end(producer, outcome) is ErrorCode.CONCURRENT_TRANSACTIONS
    broker.clock.advance_ms(1_000)

    assert settle(raw, topic.name) == ("CompleteCommit" if outcome is COMMIT else "CompleteAbort")


@both
@pytest.mark.parametrize("outcome", [COMMIT, ABORT])
def test_a_complete_transaction_takes_nothing_more(raw, topic, producer, flow, *, outcome):
    """CompleteCommit, CompleteAbort: terminal: what comes behind is another transaction, and ends for itself."""
    flow.write(producer, (topic, 0, b"first"))
    flow.finish(producer, outcome)
    assert flow.end(producer, not outcome) is (
        NONE if flow is TV2 and outcome is COMMIT else ErrorCode.INVALID_TXN_STATE
    )
    settle(raw, topic.name)

    flow.write(producer, (topic, 0, b"second"))
    flow.finish(producer, ABORT)

    assert visible(raw, topic) == ([b"first"] if outcome is COMMIT else [])


@pytest.fixture
def forgetful():
    """A broker that forgets transactional ids after a minute, and aborts nothing for its time."""
    config = {"in.memory": True, "transactional.id.expiration.ms": 60_000, "write_abort_markers": False}
    with Broker(config=config) as running:
        yield running


AN_HOUR_MS = 3_600_001
"""The check is hourly, as in Kafka; a connection does not last so long."""


def test_a_dead_id_takes_nothing(forgetful):
    """Dead: terminal; an id that has expired is no more, and its producer is answered 49."""
    with RawClient(forgetful.port) as raw:
        topic = raw.create_topic(retention_ms=-1)
        producer = open_producer(raw, "mine")
        producer.produce((topic, 0, b"value"))
        TV2.finish(producer)
    forgetful.clock.advance_ms(AN_HOUR_MS)

    with RawClient(forgetful.port) as raw:
        while list_transactions(raw).transaction_states:
            pass
        producer.raw = raw
        assert ErrorCode(describe(raw, "mine").error_code) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert producer.add((topic, 0)) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
        assert producer.end(COMMIT) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        again = open_producer(raw, "mine")
        assert (again.producer_id > producer.producer_id, again.epoch) == (True, 0)
        assert visible(raw, topic) == [b"value"]


def test_an_id_with_an_open_transaction_does_not_expire(forgetful):
    """Only what has ended expires: an open transaction keeps its id."""
    with RawClient(forgetful.port) as raw:
        topic = raw.create_topic(retention_ms=-1)
        producer = open_producer(raw, "mine")
        open_producer(raw, "idle")
        producer.produce((topic, 0, b"value"))
    forgetful.clock.advance_ms(AN_HOUR_MS)

    with RawClient(forgetful.port) as raw:
        while len(list_transactions(raw).transaction_states) > 1:
            pass
        producer.raw = raw
        assert state_of(raw, "mine") == "Ongoing"
        TV2.finish(producer)
        assert visible(raw, topic) == [b"value"]


# --- Usage examples -------------------------------------------------------------------------------------------------


@both
def test_the_example_of_a_single_partition(raw, flow):
    """Single-Partition Transaction: begin with 60,000 ms, register ("orders", 0), produce, commit."""
    orders = raw.create_topic()
    producer = open_producer(raw, f"{orders.name}-my-txn", timeout_ms=60_000)
    assert producer.add((orders, 0)) == [NONE]
    assert flow.write(producer, (orders, 0, b"order")) == [NONE]
    flow.finish(producer)

    assert visible(raw, orders) == [b"order"]


@both
def test_the_example_of_several_topics(raw, flow):
    """Multi-Partition / Multi-Topic: orders 0 and 1, audit-log 0; all-or-nothing commit."""
    orders, audit_log = raw.create_topic(partitions=2), raw.create_topic()
    places = [(orders, 0), (orders, 1), (audit_log, 0)]
    producer = open_producer(raw, f"{orders.name}-my-txn")
    assert producer.add(*places) == [NONE] * 3
    flow.write(producer, *[(*place, b"value") for place in places])
    flow.finish(producer)

    assert [visible(raw, *place) for place in places] == [[b"value"]] * 3


def test_the_example_of_consume_transform_produce(raw, group):
    """Consume-Transform-Produce: its five steps, with offset 150 of input-topic."""
    source, target = raw.create_topic(), raw.create_topic()
    producer = open_producer(raw, f"{source.name}-ctp-txn")
    assert producer.add((target, 0)) == [NONE]
    assert producer.produce((target, 0, b"out"), version=11) == [NONE]
    assert producer.add_offsets(group) is NONE
    assert producer.commit_offsets(group, source, 150, version=3) is NONE
    assert fetch_offset(raw, group, source).committed_offset == -1
    TV1.finish(producer)

    assert (visible(raw, target), fetch_offset(raw, group, source).committed_offset) == ([b"out"], 150)


# --- Isolation levels -----------------------------------------------------------------------------------------------


def test_who_reads_uncommitted_sees_everything(raw, topic, producer):
    """READ_UNCOMMITTED, 0: consumer sees all messages including in-flight transaction data."""
    producer.produce((topic, 0, b"in flight"))

    found = raw.fetch(topic, 0, isolation_level=0)

    assert (UNCOMMITTED, found.high_watermark, everything(raw, topic)) == (0, 1, [b"in flight"])
    assert not found.aborted_transactions


def test_who_reads_committed_sees_what_is_below_the_last_stable_offset(raw, topic, producer):
    """READ_COMMITTED, 1: consumer only sees data up to the Last Stable Offset."""
    raw.produce(topic, batch_of(b"below"))
    producer.produce((topic, 0, b"in flight"))

    found = raw.fetch(topic, 0, isolation_level=1)

    assert (COMMITTED, found.last_stable_offset, visible(raw, topic)) == (1, 1, [b"below"])


@both
def test_the_last_stable_offset_is_the_least_first_offset_of_what_is_open(raw, topic, flow):
    """The LSO is the minimum base offset of any ongoing transaction on a partition; without one it is the high
    watermark.
    """
    assert ends(raw, topic) == (0, 0)
    raw.produce(topic, batch_of(b"plain"))
    assert ends(raw, topic) == (1, 1)
    producers = [open_producer(raw, f"{topic.name}-{number}") for number in range(3)]
    for each in producers:
        flow.write(each, (topic, 0, b"value"))
    assert ends(raw, topic) == (1, 4)

    expected = [(1, 5), (3, 6), (7, 7)]
    for number, then in zip((1, 0, 2), expected, strict=True):
        flow.finish(producers[number], ABORT if number == 1 else COMMIT)
        assert ends(raw, topic) == then


def test_answers_name_the_aborted_transactions(raw, topic, producer):
    """Fetch responses include an aborted_transactions list so that READ_COMMITTED consumers can filter."""
    aborted = []
    for number in range(4):
        offset = ends(raw, topic)[1]
        producer.produce((topic, 0, b"%d" % number))
        aborted += [(producer.producer_id, offset)] if number % 2 else []
        TV2.finish(producer, ABORT if number % 2 else COMMIT)

    listed = set()
    for offset in range(8):
        found = raw.fetch(topic, offset, isolation_level=1)
        listed |= {(each.producer_id, each.first_offset) for each in found.aborted_transactions}

    assert listed == set(aborted)
    assert visible(raw, topic) == [b"0", b"2"]


# --- Performance considerations, as far as they can be seen ---------------------------------------------------------


def test_adding_partitions_to_one_transaction_does_not_block_another(broker, raw, topic, producer):
    """Different transactional IDs operate independently; adding partitions to one does not block another."""
    other_topic = raw.create_topic()
    other = open_producer(raw, f"{topic.name}-other")
    producer.produce((topic, 0, b"held"))
    with no_markers():
        producer.end(COMMIT)
        assert other.add((topic, 0), (other_topic, 0)) == [NONE] * 2
        assert other.produce((other_topic, 0, b"value")) == [NONE]
    broker.clock.advance_ms(1_000)
    settle(raw, topic.name)
    TV2.finish(other)

    assert (visible(raw, topic), visible(raw, other_topic)) == ([b"held"], [b"value"])


@both
def test_a_zombie_is_fenced_by_the_epoch(raw, topic, flow):
    """Epoch fencing: bumps fence zombie producers: everywhere, also where the new one has never written."""
    places = [(made, 0) for made in (topic, raw.create_topic(), raw.create_topic())]
    zombie = open_producer(raw, topic.name)
    flow.write(zombie, (*places[0], b"zombie"))
    successor = open_producer(raw, topic.name)
    flow.write(successor, (*places[1], b"successor"))

    assert all(set(flow.write(zombie, (*place, b"zombie"))) <= FENCED for place in places)
    assert zombie.add_offsets("group") is ErrorCode.PRODUCER_FENCED
    assert zombie.commit_offsets("group", topic, 1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert [flow.end(zombie, outcome) for outcome in (COMMIT, ABORT)] == [ErrorCode.PRODUCER_FENCED] * 2
    assert zombie.init(keeps=True) is ErrorCode.CONCURRENT_TRANSACTIONS  # as in Kafka: it aborts what is open
    last = open_producer(raw, topic.name)
    flow.write(last, (*places[2], b"last"))
    flow.finish(last)

    assert [visible(raw, *place) for place in places] == [[], [], [b"last"]]


def test_who_comes_with_the_id_of_an_open_transaction_does_not_rejoin_it(raw, topic, producer):
    """The seed's own system lets a second begin rejoin the open transaction with its id and epoch: two producers with
    one identity. Here, as in Kafka, the second aborts it and has a higher epoch.
    """
    producer.produce((topic, 0, b"first"))

    second = TransactionalProducer(raw, topic.name)

    assert second.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    assert open_producer(raw, topic.name).epoch > producer.epoch
    assert producer.end(COMMIT) is ErrorCode.PRODUCER_FENCED
