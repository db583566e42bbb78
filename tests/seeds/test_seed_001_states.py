"""Seed 001: its state machine, its structures (数据结构), its requests and its error codes, a test a sentence or row.

Where Kafka is otherwise than the seed, Kafka holds: docs/differences.md lists it.
"""

import struct

import pytest

from exactlog.core.config.broker_configs import BrokerConfig
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.api_keys import APIS, ApiKey
from exactlog.core.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersTopic
from exactlog.core.record.control_record_format import ControlType
from exactlog.core.transaction.states import TRANSITIONS, TransactionState
from exactlog.testing import Broker
from tests.support.raw_client import RawClient, sequenced
from tests.support.raw_transactions import ABORT, COMMIT, TransactionalProducer, describe, produced, write_marker
from tests.support.transaction_steps import (
    FLOWS,
    all_batches,
    ends,
    no_markers,
    open_producer,
    settle,
    state_of,
    visible,
)

NONE = ErrorCode.NONE
TV1, TV2 = FLOWS
S = TransactionState

both = pytest.mark.parametrize("flow", FLOWS, ids=repr)


@pytest.fixture
def producer(raw, topic):
    return open_producer(raw, topic.name)


# --- 事务状态机 -------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize(
    ("outcome", "path"),
    [
        (COMMIT, ["Empty", "Ongoing", "PrepareCommit", "CompleteCommit", "Empty"]),
        (ABORT, ["Empty", "Ongoing", "PrepareAbort", "CompleteAbort", "Empty"]),
    ],
)
def test_a_transaction_goes_through_the_states_of_the_drawing(broker, raw, topic, producer, *, flow, outcome, path):
    """Empty → Ongoing → PrepareCommit / PrepareAbort → CompleteCommit / CompleteAbort → Empty (清理)."""
    seen = [state_of(raw, topic.name)]
    flow.write(producer, (topic, 0, b"value"))
    seen.append(state_of(raw, topic.name))
    with no_markers():
        assert flow.end(producer, outcome) is NONE
        seen.append(state_of(raw, topic.name))
    broker.clock.advance_ms(1_000)
    seen.append(settle(raw, topic.name))
    open_producer(raw, topic.name)
    seen.append(state_of(raw, topic.name))

    assert seen == path


def test_in_empty_no_transaction_is_under_way(raw, topic, producer):
    """Empty: 初始状态, 没有进行中的事务."""
    found = describe(raw, topic.name)

    assert (found.transaction_state, found.transaction_start_time_ms, found.topics) == ("Empty", -1, ())
    assert producer.end(COMMIT) is ErrorCode.INVALID_TXN_STATE


def test_in_ongoing_the_producer_is_sending(raw, topic, producer):
    """Ongoing: 事务进行中, 生产者正在发送消息: more and more, and readers of committed records see none."""
    for number in range(3):
        assert producer.produce((topic, 0, b"%d" % number)) == [NONE]

    assert state_of(raw, topic.name) == "Ongoing"
    assert ends(raw, topic) == (0, 3)


@both
@pytest.mark.parametrize(("outcome", "name"), [(COMMIT, "PrepareCommit"), (ABORT, "PrepareAbort")])
def test_in_a_prepared_state_the_outcome_is_final_and_not_seen_yet(broker, raw, topic, flow, *, outcome, name):
    """PrepareCommit: 准备提交, 等待所有分区确认. PrepareAbort: 准备中止, 清理事务."""
    producer = open_producer(raw, topic.name)
    before = producer.identity
    flow.write(producer, (topic, 0, b"value"))
    with no_markers():
        assert flow.end(producer, outcome) is NONE
        assert (state_of(raw, topic.name), ends(raw, topic)) == (name, (0, 1))
        other_way = TransactionalProducer(raw, topic.name).become(*before)
        is_fenced = flow is TV2 and outcome is ABORT  # KAFKA-20785: it may have been aborted for its time
        expected = ErrorCode.PRODUCER_FENCED if is_fenced else ErrorCode.INVALID_TXN_STATE
        assert flow.end(other_way, not outcome) is expected
        assert TransactionalProducer(raw, topic.name).init() is ErrorCode.CONCURRENT_TRANSACTIONS
    broker.clock.advance_ms(1_000)

    assert settle(raw, topic.name) == name.replace("Prepare", "Complete")
    assert visible(raw, topic) == ([b"value"] if outcome is COMMIT else [])


@both
@pytest.mark.parametrize(("outcome", "name"), [(COMMIT, "CompleteCommit"), (ABORT, "CompleteAbort")])
def test_in_a_complete_state_every_marker_is_written(raw, topic, producer, *, flow, outcome, name):
    """CompleteCommit: 提交完成, 写入 COMMIT 标记. CompleteAbort: 中止完成, 写入 ABORT 标记."""
    flow.write(producer, (topic, 0, b"value"))
    flow.finish(producer, outcome)

    assert state_of(raw, topic.name) == name
    assert ends(raw, topic) == (2, 2)


def test_behind_a_complete_state_the_next_transaction_begins(raw, topic, producer):
    """The drawing leads back to Empty (清理); Kafka, and ours, from there on to Ongoing without a new Empty."""
    for number in range(3):
        assert TV2.write(producer, (topic, 0, b"%d" % number)) == [NONE]
        assert state_of(raw, topic.name) == "Ongoing"
        TV2.finish(producer)

    assert visible(raw, topic) == [b"0", b"1", b"2"]


# --- 数据结构 ---------------------------------------------------------------------------------------------------------


def test_the_states_have_the_numbers_of_the_seed():
    """TransactionState: iota, in the order of the seed; Kafka's Dead and PrepareEpochFence follow."""
    seed = ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"]

    assert [state.kafka_name for state in TransactionState][:6] == seed
    assert [int(state) for state in TransactionState][:6] == list(range(6))


def test_the_arrows_of_the_drawing_are_in_the_table():
    """The drawing of 事务状态机, arrow by arrow."""
    arrows = [
        (S.EMPTY, S.ONGOING),
        (S.ONGOING, S.PREPARE_COMMIT),
        (S.ONGOING, S.PREPARE_ABORT),
        (S.PREPARE_COMMIT, S.COMPLETE_COMMIT),
        (S.PREPARE_ABORT, S.COMPLETE_ABORT),
        (S.COMPLETE_COMMIT, S.EMPTY),
        (S.COMPLETE_ABORT, S.EMPTY),
    ]

    assert all(after in TRANSITIONS[before] for before, after in arrows)
    assert TRANSITIONS[S.PREPARE_COMMIT] == {S.COMPLETE_COMMIT}
    assert TRANSITIONS[S.PREPARE_ABORT] == {S.COMPLETE_ABORT}


def test_the_metadata_of_a_transaction_can_be_looked_at(raw):
    """TransactionMetadata: id, producer id, epoch, state, timeout, start time, partitions by topic."""
    topic = raw.create_topic(partitions=3)
    producer = open_producer(raw, topic.name, timeout_ms=12_345)
    producer.add((topic, 0), (topic, 2))

    found = describe(raw, topic.name)

    assert (found.transactional_id, found.producer_id, found.producer_epoch) == (topic.name, *producer.identity)
    assert (found.transaction_state, found.transaction_timeout_ms) == ("Ongoing", 12_345)
    assert found.transaction_start_time_ms > 0
    assert [(of.topic, of.partitions) for of in found.topics] == [(topic.name, (0, 2))]


def test_the_metadata_of_a_producer_can_be_looked_at(broker, raw, topic, producer):
    """ProducerIDMetadata: producer id, epoch, last timestamp, the last sequence in each partition."""
    now_ms = broker.clock.now_ms()
    producer.produce((topic, 0, b"a", b"b", b"c"))
    asked = DescribeProducersTopic(name=topic.name, partition_indexes=(0,))

    ((partition,),) = [of.partitions for of in raw.ask(DescribeProducersRequest(topics=(asked,)), 0).topics]
    (found,) = partition.active_producers

    assert (found.producer_id, found.producer_epoch, found.last_sequence) == (*producer.identity, 2)
    assert found.current_txn_start_offset == 0
    assert found.last_timestamp <= now_ms


@pytest.mark.parametrize(("outcome", "kafka_type"), [(ABORT, 0), (COMMIT, 1)])
def test_a_control_record_has_a_type_a_version_and_the_coordinators_epoch(raw, topic, producer, outcome, kafka_type):
    """ControlRecord: type, version, coordinator epoch. The seed has COMMIT = 0 and ABORT = 1: Kafka's are the other
    way round, and clients read Kafka's.
    """
    producer.produce((topic, 0, b"value"))
    TV2.finish(producer, outcome)

    _, (header, (marker,)) = all_batches(raw, topic)

    assert (header.is_control, header.is_transactional, header.base_sequence) == (True, True, -1)
    assert (header.producer_id, header.producer_epoch) == producer.identity  # of the next transaction: KIP-890
    assert struct.unpack(">hh", marker.key) == (0, kafka_type)
    version, coordinator_epoch = struct.unpack(">hi", marker.value)
    assert (version, coordinator_epoch >= 0) == (0, True)
    assert (ControlType.ABORT, ControlType.COMMIT) == (0, 1)


# --- Kafka Transaction APIs -----------------------------------------------------------------------------------------

REQUESTS = {
    22: ("InitProducerId", ["transactional_id", "transaction_timeout_ms", "producer_id", "producer_epoch"]),
    25: ("AddOffsetsToTxn", ["transactional_id", "producer_id", "producer_epoch", "group_id"]),
    26: ("EndTxn", ["transactional_id", "producer_id", "producer_epoch", "committed"]),
    28: ("TxnOffsetCommit", ["transactional_id", "group_id", "producer_id", "producer_epoch", "topics"]),
}
ANSWERS = {
    22: ["throttle_time_ms", "error_code", "producer_id", "producer_epoch"],
    25: ["throttle_time_ms", "error_code"],
    26: ["throttle_time_ms", "error_code"],
    28: ["throttle_time_ms", "topics"],
}


@pytest.mark.parametrize("key", REQUESTS)
def test_requests_and_answers_have_the_fields_of_the_seed(key):
    """请求结构, 响应结构: every field of the seed is there, under the same API key (22, 25, 26, 28)."""
    name, fields = REQUESTS[key]
    found = APIS[ApiKey(key)]

    assert found.request.__name__ == f"{name}Request"
    assert set(fields) <= set(found.request.__struct_fields__)
    assert set(ANSWERS[key]) <= set(found.response.__struct_fields__)


def test_add_partitions_to_txn_has_the_fields_of_the_seed(raw, producer):
    """AddPartitionsToTxn (24): topics with their partitions; the answer mirrors them, with a code for each."""
    one, two = raw.create_topic(partitions=2), raw.create_topic()

    assert producer.add((two, 0), (one, 1), (one, 0)) == [NONE] * 3
    assert {(of.topic, of.partitions) for of in describe(raw, producer.transactional_id).topics} == {
        (one.name, (0, 1)),
        (two.name, (0,)),
    }
    assert APIS[ApiKey(24)].request.__name__ == "AddPartitionsToTxnRequest"


@pytest.mark.parametrize("key", [22, 24, 25, 26, 28])
def test_the_oldest_version_of_every_api_is_served(raw, key):
    """协议版本: InitProducerId, AddPartitionsToTxn, EndTxn, AddOffsetsToTxn, TxnOffsetCommit: v0+."""
    versions = {each.api_key: each for each in raw.ask(_api_versions(), 3).api_keys}

    assert versions[key].min_version == 0


def _api_versions():
    return APIS[ApiKey.API_VERSIONS].request(client_software_name="raw", client_software_version="1")


# --- 常见错误码 -------------------------------------------------------------------------------------------------------


def test_45_a_sequence_that_does_not_follow(raw, topic, producer):
    """45 OutOfOrderSequenceNumber 序列号不连续; 序列号跳跃: 拒绝消息, 返回错误."""
    producer.produce((topic, 0, b"0"))
    producer.request((topic, 0, b"1"))

    assert [int(code) for code in producer.produce((topic, 0, b"2"))] == [45]
    assert ends(raw, topic) == (0, 1)


def test_46_a_sequence_that_was_there_before_is_answered_as_the_first_time(raw, topic, producer):
    """46 DuplicateSequenceNumber 重复序列号: in the protocol, and Kafka answers success with the first offset."""
    request = producer.request((topic, 0, b"once"))

    answers = [raw.ask(request, 12) for _ in range(2)]

    assert [produced(answer) for answer in answers] == [[NONE]] * 2
    assert [answer.responses[0].partition_responses[0].base_offset for answer in answers] == [0, 0]
    assert (int(ErrorCode.DUPLICATE_SEQUENCE_NUMBER), ends(raw, topic)) == (46, (0, 1))


def test_47_an_epoch_that_is_over(raw, topic, producer):
    """47 InvalidProducerEpoch Epoch 过期: of Produce always, of the coordinator in old versions (else 90)."""
    open_producer(raw, topic.name)

    assert [int(code) for code in producer.produce((topic, 0, b"late"))] == [47]
    assert [int(producer.end(COMMIT, version=version)) for version in range(6)] == [47, 47, 90, 90, 90, 90]
    assert [int(producer.add_offsets("group", version=version)) for version in range(5)] == [47, 47, 90, 90, 90]


def test_48_a_state_that_does_not_allow_it(raw, topic, producer):
    """48 InvalidTxnState 事务状态无效: an end without a beginning, data outside the transaction."""
    assert [int(producer.end(COMMIT, version=version)) for version in range(6)] == [48] * 6
    assert [int(producer.end(ABORT, version=version)) for version in range(5)] == [48] * 5
    assert [int(code) for code in producer.produce((topic, 0, b"unannounced"), version=10)] == [48]
    assert int(producer.commit_offsets("group", topic, 1, version=3)) == 48


def test_49_a_producer_id_that_is_not_the_ids(raw, topic, producer):
    """49 InvalidProducerIDMapping PID 映射无效: another producer's, or of an id that nobody has."""
    other = open_producer(raw, f"{topic.name}-other")
    for wrong in (
        TransactionalProducer(raw, topic.name).become(*other.identity),
        TransactionalProducer(raw, f"{topic.name}-nobody").become(*producer.identity),
    ):
        assert [int(code) for code in wrong.add((topic, 0))] == [49]
        assert [int(code) for code in wrong.produce((topic, 0, b"value"))] == [49]
        assert (int(wrong.add_offsets("group")), int(wrong.end(COMMIT))) == (49, 49)


@pytest.mark.parametrize("timeout_ms", [0, -1, -(2**31), 900_001, 2**31 - 1])
def test_50_a_timeout_that_is_not_valid(raw, topic, timeout_ms):
    """50 InvalidTransactionTimeout 超时参数无效."""
    assert int(TransactionalProducer(raw, topic.name, timeout_ms=timeout_ms).init()) == 50
    assert BrokerConfig().transaction_max_timeout_ms == 900_000


def test_51_a_transaction_that_is_not_over_yet(broker, raw, topic, producer):
    """51 ConcurrentTransactions 并发事务冲突."""
    producer.produce((topic, 0, b"value"))
    with no_markers():
        producer.end(COMMIT)
        codes = [int(TransactionalProducer(raw, topic.name).init()), int(producer.end(COMMIT))]
        codes += map(int, producer.add((topic, 0)))
        codes += map(int, producer.produce((topic, 0, b"next")))
        codes.append(int(producer.add_offsets("group")))
    broker.clock.advance_ms(1_000)

    assert codes == [51] * 5


def test_52_a_coordinator_that_is_no_more(raw, topic, producer):
    """52 TransactionCoordinatorFenced Coordinator 被隔离: a marker of an older coordinator's epoch changes nothing."""
    producer.produce((topic, 0, b"value"))
    producer_id, epoch = producer.identity
    assert write_marker(raw, topic, producer_id, epoch + 1, ABORT, coordinator_epoch=1_000) is NONE
    before = ends(raw, topic)

    refused = write_marker(raw, topic, producer_id, epoch + 2, COMMIT, coordinator_epoch=999)

    assert (int(refused), ends(raw, topic)) == (52, before)


# --- 优化策略, as far as they can be seen ----------------------------------------------------------------------------


def test_transactional_ids_do_not_wait_for_each_other(broker, raw, topic, producer):
    """并发: 多事务并行处理: while the markers of one wait, another begins, ends and is complete."""
    other_topic = raw.create_topic()
    producer.produce((topic, 0, b"waits"))
    with no_markers():
        producer.end(COMMIT)
        other = open_producer(raw, f"{topic.name}-other")
        assert other.produce((other_topic, 0, b"goes on")) == [NONE]
        assert state_of(raw, topic.name) == "PrepareCommit"
    TV2.finish(other)

    assert visible(raw, other_topic) == [b"goes on"]
    broker.clock.advance_ms(1_000)
    assert settle(raw, topic.name) == "CompleteCommit"


def test_a_batch_without_a_transaction_does_not_get_into_one(raw, topic, producer):
    """PID/Epoch 验证, Sequence Number 验证 (分区): the same producer outside its transaction is refused."""
    producer.produce((topic, 0, b"inside"))

    outside = raw.produce(topic, sequenced(producer.producer_id, 1, b"outside", epoch=producer.epoch))

    assert ErrorCode(outside.error_code) is ErrorCode.INVALID_TXN_STATE


def test_an_epoch_of_the_coordinator_grows_with_every_start(tmp_path):
    """ControlRecord.CoordinatorEpoch: so that the markers of a coordinator that is no more are known."""
    epochs = []
    with Broker(tmp_path) as broker:
        for _ in range(3):
            with RawClient(broker.port) as raw:
                topic = raw.create_topic()
                producer = open_producer(raw, "mine")
                producer.produce((topic, 0, b"value"))
                TV2.finish(producer)
                _, (_, (marker,)) = all_batches(raw, topic)
                epochs.append(struct.unpack(">hi", marker.value)[1])
            broker.restart()

    assert epochs == sorted(set(epochs))
