"""Seed 001: its concepts, the tests of its phases 2 to 5, and its integration tests (测试策略), a test a sentence.

Its states, structures, errors and faults are in the suites beside this one.
"""

import uuid
from itertools import product

import pytest

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.topic_name import TRANSACTION_STATE
from exactlog.core.protocol.messages.init_producer_id import InitProducerIdRequest
from exactlog.core.record.control_record_format import ControlType, decode_control_type
from tests.support.isolated_reader import COMMITTED, UNCOMMITTED, read_on, values
from tests.support.raw_client import Topic
from tests.support.raw_groups import fetch_offset
from tests.support.raw_transactions import ABORT, COMMIT, TransactionalProducer, describe, produced, write_marker
from tests.support.transaction_steps import FLOWS, all_batches, ends, open_producer, settle, state_of, visible

NONE = ErrorCode.NONE
TV1, TV2 = FLOWS
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING

both = pytest.mark.parametrize("flow", FLOWS, ids=repr)


@pytest.fixture
def producer(raw, topic):
    return open_producer(raw, topic.name)


@pytest.fixture
def group():
    return f"group-{uuid.uuid4().hex[:8]}"


def committed_offset(raw, group, topic, partition=0):
    return fetch_offset(raw, group, topic, partition=partition).committed_offset


def without_id(raw, **fields):
    """The producer id and epoch of a producer that is only idempotent."""
    answer = raw.ask(InitProducerIdRequest(transactional_id=None, **fields), 5)
    assert answer.error_code == 0
    return answer.producer_id, answer.producer_epoch


# --- 概述, 核心概念 -------------------------------------------------------------------------------------------


@both
def test_a_set_of_messages_succeeds_or_fails_as_a_whole(raw, flow):
    """确保一组消息要么全部成功, 要么全部失败."""
    topics = [raw.create_topic(partitions=2) for _ in range(2)]
    places = list(product(topics, range(2)))
    producer = open_producer(raw, topics[0].name)

    for name, outcome in (b"kept", COMMIT), (b"dropped", ABORT):
        assert flow.write(producer, *[(*place, name) for place in places]) == [NONE] * 4
        flow.finish(producer, outcome)

    assert [visible(raw, *place) for place in places] == [[b"kept"]] * 4


def test_every_transactional_producer_has_its_own_transactional_id(raw, topic):
    """每个事务生产者有一个唯一的 `transactional.id`: two of them do not know of each other."""
    one, two = open_producer(raw, f"{topic.name}-1"), open_producer(raw, f"{topic.name}-2")
    one.produce((topic, 0, b"one"))
    two.produce((topic, 0, b"two"))

    TV2.finish(one)
    assert state_of(raw, two.transactional_id) == "Ongoing"
    TV2.finish(two, ABORT)

    assert visible(raw, topic) == [b"one"]


def test_the_transactional_id_identifies_a_producer_and_restores_its_state(raw, topic, producer):
    """用于识别和恢复生产者状态: who comes with the id gets its producer id, and what was left open is settled."""
    producer.produce((topic, 0, b"left open"))

    recovered = open_producer(raw, topic.name)

    assert recovered.producer_id == producer.producer_id
    assert settle(raw, topic.name) == "Empty"
    assert (visible(raw, topic), ends(raw, topic)) == ([], (2, 2))


@both
def test_it_supports_idempotence(raw, topic, producer, flow):
    """支持幂等性: a batch that is sent again is there once."""
    producer.add((topic, 0))
    request = producer.request((topic, 0, b"once"))

    answers = [produced(raw.ask(request, flow.produce_version)) for _ in range(3)]
    flow.finish(producer)

    assert (answers, visible(raw, topic)) == ([[NONE]] * 3, [b"once"])


def test_the_coordinator_gives_out_unique_producer_ids_of_64_bits(raw, topic):
    """由 Transaction Coordinator 分配的唯一 64 位整数: with and without a transactional id."""
    given = [without_id(raw)[0] for _ in range(5)]
    given += [open_producer(raw, f"{topic.name}-{number}").producer_id for number in range(5)]

    assert len(set(given)) == 10
    assert all(0 <= producer_id < 2**63 for producer_id in given)


def test_the_epoch_goes_up_with_every_initialisation_or_recovery(raw, topic):
    """每次生产者初始化或恢复时, Epoch 递增; Epoch: 生产者的版本号."""
    epochs = [open_producer(raw, topic.name).epoch for _ in range(4)]

    assert epochs == [0, 1, 2, 3]


@pytest.mark.slow
def test_the_epoch_has_16_bits_and_then_there_is_a_new_producer_id(raw, topic):
    """Epoch: 生产者的版本号 (16 位). Behind the last one the producer goes on with another producer id, from 0."""
    producer = open_producer(raw, topic.name)
    old = producer.producer_id
    epochs = [producer.epoch]
    while producer.producer_id == old:
        raw.send_all(*[(_take_over(topic.name), 5)] * 500)
        answers = [raw.receive() for _ in range(500)]
        assert {answer.error_code for answer in answers} == {0}
        epochs += [answer.producer_epoch for answer in answers if answer.producer_id == old]
        producer.become(answers[-1].producer_id, answers[-1].producer_epoch)

    assert epochs == list(range(32_767))  # 32767 is for markers only


def _take_over(transactional_id):
    return InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)


def test_the_epoch_detects_a_zombie(raw, topic, producer):
    """Epoch 用于检测僵尸生产者: from the moment the next one has its epoch, also where it has written nothing."""
    assert open_producer(raw, topic.name).epoch == 1

    assert producer.produce((topic, 0, b"zombie")) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert producer.end(COMMIT) is ErrorCode.PRODUCER_FENCED
    assert ends(raw, topic) == (0, 0)


def test_sequence_numbers_grow_one_by_one(raw, topic, producer):
    """每个消息有一个单调递增的序列号; 用于检测重复消息和顺序."""
    first, second, third = (producer.request((topic, 0, *names)) for names in ([b"1"], [b"2", b"3"], [b"4"]))

    assert produced(raw.ask(first, 12)) == [NONE]
    assert produced(raw.ask(third, 12)) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    assert [produced(raw.ask(request, 12)) for request in (second, third, second)] == [[NONE]] * 3
    TV2.finish(producer)

    assert visible(raw, topic) == [b"1", b"2", b"3", b"4"]


def test_sequences_are_kept_by_partition_producer_and_epoch(raw, topic):
    """按 `(topicPartition, pid, epoch)` 分组: each of them begins at 0 for itself."""
    places = [(made, index) for made in (raw.create_topic(partitions=2), raw.create_topic()) for index in (0,)]
    places.append((places[0][0], 1))
    producers = [open_producer(raw, f"{topic.name}-{number}") for number in range(2)]
    for producer in producers:
        assert producer.produce(*[(*place, b"a", b"b") for place in places]) == [NONE] * 3
        TV2.finish(producer)  # the next one has another epoch, and its sequences begin at 0 again
        assert producer.produce(*[(*place, b"c") for place in places]) == [NONE] * 3
        TV2.finish(producer)

    assert [visible(raw, *place) for place in places] == [[b"a", b"b", b"c"] * 2] * 3


def test_the_transaction_log_is_the_internal_topic(raw, topic, producer):
    """存储事务日志到内部 `__transaction_state` 主题: a record for each change of state."""
    log = Topic(TRANSACTION_STATE, None)
    before = raw.list_offset(log, -1).offset
    producer.produce((topic, 0, b"value"))
    TV2.finish(producer)

    found = [record for _, records in all_batches(raw, log, offset=before) for record in records]

    assert {record.key[-len(topic.name) :] for record in found} == {topic.name.encode()}
    assert [record.value[_STATUS] for record in found] == [1, 2, 4]  # Ongoing, PrepareCommit, CompleteCommit


_STATUS = 2 + 8 + 2 + 4
"""Where the state stands in the value: behind version, producer id, epoch and timeout."""


@both
@pytest.mark.parametrize(("outcome", "control_type"), [(COMMIT, ControlType.COMMIT), (ABORT, ControlType.ABORT)])
def test_a_marker_is_written_to_every_partition_of_the_transaction(raw, flow, outcome, control_type):
    """`COMMIT` 标记, `ABORT` 标记: 写入到所有参与事务的分区, and into no other one."""
    topic = raw.create_topic(partitions=4)
    producer = open_producer(raw, topic.name)
    flow.write(producer, *[(topic, index, b"value") for index in range(3)])
    producer.add((topic, 2))
    flow.finish(producer, outcome)

    found = [all_batches(raw, topic, index) for index in range(4)]

    assert [[header.is_control for header, _ in batches] for batches in found] == [[False, True]] * 3 + [[]]
    for _, (header, (marker,)) in found[:3]:
        assert decode_control_type(marker.key) is control_type
        assert header.producer_id == producer.producer_id


# --- Phase 2: InitProducerId ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_a_new_producer_is_initialised(raw, topic, version):
    """新生产者初始化: epoch 0 of an id that nobody has; null = 仅幂等性."""
    producer = open_producer(raw, topic.name, version=version)
    assert (producer.epoch, state_of(raw, topic.name)) == (0, "Empty")

    answer = raw.ask(InitProducerIdRequest(transactional_id=None), version)

    assert (answer.error_code, answer.producer_epoch) == (0, 0)
    assert answer.producer_id != producer.producer_id


def test_producers_without_an_id_get_one_each_and_the_same_id_is_one_producer(raw, topic):
    """The seed's own system: null twice is two ids at epoch 0; one id twice one producer id, epochs 0 and 1."""
    assert without_id(raw)[0] != without_id(raw)[0]
    first, second = open_producer(raw, topic.name), open_producer(raw, topic.name)
    assert (first.identity, second.identity) == ((first.producer_id, 0), (first.producer_id, 1))

    assert open_producer(raw, f"{topic.name}-other").producer_id != first.producer_id


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_producer_recovers_by_its_id_and_epoch(raw, producer, version):
    """生产者恢复: 当前 PID, 当前 Epoch (恢复时使用): it goes on with the next epoch; who has lost them gets none."""
    identity = producer.identity

    assert producer.init(version=version, keeps=True) is NONE

    assert producer.identity == (identity[0], 1)
    open_producer(raw, producer.transactional_id)
    fenced = ErrorCode.PRODUCER_FENCED if version > 3 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert producer.init(version=version, keeps=True) is fenced


def test_producer_ids_are_given_out_side_by_side(connect, topic):
    """并发 PID 分配: over ten connections at once, no id twice; of one transactional id, no epoch twice."""
    clients = [connect() for _ in range(10)]
    requests = [(InitProducerIdRequest(transactional_id=None), 5), (_take_over(topic.name), 5)]
    for client in clients:
        client.send_all(*requests * 50)
    answers = [client.receive() for client in clients for _ in range(100)]

    assert {answer.error_code for answer in answers} == {0}
    assert len({(answer.producer_id, answer.producer_epoch) for answer in answers}) == 1_000
    of_one_id = {answer.producer_id for answer in answers if answer.producer_epoch}
    assert len(of_one_id) == 1
    assert len({answer.producer_id for answer in answers}) == 501


# --- Phase 3: AddPartitionsToTxn ------------------------------------------------------------------------------------


@both
def test_a_transaction_of_one_partition(raw, topic, producer, flow):
    """单分区事务."""
    assert flow.write(producer, (topic, 0, b"a", b"b")) == [NONE]
    assert state_of(raw, topic.name) == "Ongoing"
    assert visible(raw, topic) == []

    flow.finish(producer)

    assert visible(raw, topic) == [b"a", b"b"]


@both
def test_a_transaction_of_several_partitions(raw, flow):
    """多分区事务: they are all listed, and all become visible."""
    topics = [raw.create_topic(partitions=3) for _ in range(2)]
    places = list(product(topics, range(3)))
    producer = open_producer(raw, topics[0].name)

    assert flow.write(producer, *[(*place, b"value") for place in places]) == [NONE] * 6
    listed = describe(raw, topics[0].name).topics
    assert {(of.topic, of.partitions) for of in listed} == {(made.name, (0, 1, 2)) for made in topics}
    flow.finish(producer)

    assert [visible(raw, *place) for place in places] == [[b"value"]] * 6


@both
def test_partitions_are_added_as_the_transaction_goes_on(raw, flow):
    """动态添加分区: 事务中动态添加新分区; 第一次向分区发送事务消息."""
    topic = raw.create_topic(partitions=3)
    producer = open_producer(raw, topic.name)

    for index in range(3):
        assert flow.write(producer, (topic, index, b"%d" % index)) == [NONE]
        (listed,) = describe(raw, topic.name).topics
        assert listed.partitions == tuple(range(index + 1))
    flow.finish(producer)

    assert [visible(raw, topic, index) for index in range(3)] == [[b"0"], [b"1"], [b"2"]]


def test_who_has_another_producer_id_adds_no_partition(raw, producer):
    """The seed's own system: several topics are added; with a wrong producer id each partition is answered 49."""
    topics = [raw.create_topic(partitions=2) for _ in range(2)]
    places = list(product(topics, range(2)))
    assert producer.add(*places) == [NONE] * 4

    producer.become(producer.producer_id + 10**6, producer.epoch)

    assert producer.add(*places) == [MAPPING] * 4


# --- Phase 4: EndTxn and two phases ---------------------------------------------------------------------------------


@both
def test_a_commit_succeeds(raw, topic, producer, flow):
    """成功提交事务."""
    flow.write(producer, (topic, 0, b"value"))
    assert flow.end(producer, COMMIT) is NONE

    assert settle(raw, topic.name) == "CompleteCommit"
    assert (visible(raw, topic), ends(raw, topic)) == ([b"value"], (2, 2))


@both
def test_a_transaction_is_aborted(raw, topic, producer, flow):
    """事务中止: 事务失败, 中止所有消息."""
    flow.write(producer, (topic, 0, b"value"))
    assert flow.end(producer, ABORT) is NONE

    assert settle(raw, topic.name) == "CompleteAbort"
    assert (visible(raw, topic), ends(raw, topic)) == ([], (2, 2))
    assert values(read_on(raw, topic, isolation=UNCOMMITTED)) == [b"value"]


@both
def test_who_has_another_producer_id_ends_nothing(raw, topic, producer, flow):
    """The seed's own system: EndTxn with a wrong producer id is answered 49; the transaction stays open."""
    flow.write(producer, (topic, 0, b"value"))
    other = TransactionalProducer(raw, topic.name).become(producer.producer_id + 10**6, producer.epoch)

    assert [flow.end(other, outcome) for outcome in (COMMIT, ABORT)] == [MAPPING] * 2
    assert state_of(raw, topic.name) == "Ongoing"


@both
def test_after_a_part_has_failed_the_rest_is_aborted(raw, flow):
    """部分失败处理: one partition is refused, the others hold their records; an abort takes them all."""
    topic = raw.create_topic(partitions=2)
    producer = open_producer(raw, topic.name)
    producer.add((topic, 0), (topic, 1))
    producer.request((topic, 1, b"lost on its way"))

    errors = flow.write(producer, (topic, 0, b"in"), (topic, 1, b"out of order"))

    assert errors == [NONE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    flow.finish(producer, ABORT)
    assert [visible(raw, topic, index) for index in range(2)] == [[], []]


def test_after_a_partition_could_not_be_added_none_was(raw, topic, producer):
    """部分失败处理, of AddPartitionsToTxn: one partition that is not there, and none is added."""
    errors = producer.add((topic, 0), (topic, 1))

    assert errors == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert state_of(raw, topic.name) == "Empty"


@both
def test_a_consumer_filters_what_was_aborted(raw, topic, flow):
    """消费者过滤逻辑: between committed and plain records, with several producers at once."""
    one, two = open_producer(raw, f"{topic.name}-1"), open_producer(raw, f"{topic.name}-2")
    flow.write(one, (topic, 0, b"1 dropped"))
    flow.write(two, (topic, 0, b"2 kept"))
    flow.write(one, (topic, 0, b"1 dropped too"))
    flow.finish(two, COMMIT)
    flow.finish(one, ABORT)
    flow.write(one, (topic, 0, b"1 kept"))
    flow.finish(one, COMMIT)

    assert visible(raw, topic) == [b"2 kept", b"1 kept"]
    aborted = raw.fetch(topic, 0, isolation_level=COMMITTED).aborted_transactions
    assert [(found.producer_id, found.first_offset) for found in aborted] == [(one.producer_id, 0)]
    assert not raw.fetch(topic, 0, isolation_level=UNCOMMITTED).aborted_transactions


@pytest.mark.parametrize("outcome", [COMMIT, ABORT])
def test_the_metadata_of_a_transaction_is_cleared_behind_its_end(raw, topic, producer, outcome):
    """清理: 移除事务元数据: no partition is left in it, and it is open no more."""
    producer.produce((topic, 0, b"value"))
    TV2.finish(producer, outcome)

    assert describe(raw, topic.name).topics == ()
    assert producer.verify((topic, 0)) == [ErrorCode.TRANSACTION_ABORTABLE]


# --- Phase 5: AddOffsetsToTxn and TxnOffsetCommit -------------------------------------------------------------------


@both
def test_consume_transform_produce_is_exactly_once(raw, flow, group):
    """Exactly-Once 消费-处理-生产流程: half-way aborted attempts are done again from the committed offset."""
    source, target = raw.create_topic(), raw.create_topic()
    feeder, worker = open_producer(raw, f"{source.name}-feeder"), open_producer(raw, source.name)
    flow.write(feeder, (source, 0, *[b"%d" % number for number in range(9)]))
    flow.finish(feeder)

    attempt = 0
    while (position := max(0, committed_offset(raw, group, source))) < 9:
        taken = [value for offset, value in read_on(raw, source, position) if offset < position + 3]
        assert flow.write(worker, (target, 0, *[b"<%b>" % value for value in taken])) == [NONE]
        assert flow.move(worker, group, source, position + len(taken)) is NONE
        attempt += 1
        flow.finish(worker, COMMIT if attempt % 2 else ABORT)

    assert visible(raw, target) == [b"<%d>" % number for number in range(9)]
    assert attempt == 5


@both
@pytest.mark.parametrize("outcome", [COMMIT, ABORT])
def test_offsets_and_messages_are_one(raw, topic, group, flow, outcome):
    """Offset 提交和消息生产原子性: neither shows before the end, both show with a commit, neither with an abort."""
    target, producer = raw.create_topic(), open_producer(raw, topic.name)
    flow.write(producer, (target, 0, b"value"))
    flow.move(producer, group, topic, 7)
    assert (committed_offset(raw, group, topic), visible(raw, target)) == (-1, [])

    flow.finish(producer, outcome)

    found = committed_offset(raw, group, topic), visible(raw, target)
    assert found == ((7, [b"value"]) if outcome is COMMIT else (-1, []))


def test_who_has_another_producer_id_moves_no_offset(raw, topic, producer, group):
    """The seed's own system: AddOffsetsToTxn and TxnOffsetCommit with a wrong producer id or id are answered 49."""
    assert producer.add_offsets(group) is NONE
    assert producer.commit_offsets(group, topic, 1, version=3) is NONE
    wrong = TransactionalProducer(raw, topic.name).become(producer.producer_id + 10**6, producer.epoch)
    unknown = TransactionalProducer(raw, f"{topic.name}-new").become(producer.producer_id + 10**6, 0)

    for other in (wrong, unknown):
        assert other.add_offsets(group) is MAPPING
        assert [other.commit_offsets(group, topic, 9, version=version) for version in (3, 5)] == [MAPPING] * 2
    TV1.finish(producer)

    assert committed_offset(raw, group, topic) == 1


def test_markers_are_written_for_many_partitions_and_refused_for_those_that_are_not_there(raw, producer):
    """The seed's own system: WriteTxnMarkers commits, aborts; a topic that is not there is answered 3."""
    topic = raw.create_topic(partitions=2)
    producer.produce((topic, 0, b"kept"), (topic, 1, b"dropped"))

    ends_of = {0: COMMIT, 1: ABORT}
    outcomes = [write_marker(raw, topic, *producer.identity, end, partition=index) for index, end in ends_of.items()]
    nowhere = write_marker(raw, Topic("nobody", None), *producer.identity, ABORT)

    assert (outcomes, nowhere) == ([NONE, NONE], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert [visible(raw, topic, index) for index in range(2)] == [[b"kept"], []]


# --- 集成测试 ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4))
def test_the_whole_flow_in_every_old_version(raw, topic, version, group):
    """完整事务流程 (InitProducerId → AddPartitions → Produce → EndTxn); 协议版本: v0+ of each."""
    producer = open_producer(raw, topic.name, version=version)
    for outcome in (COMMIT, ABORT, COMMIT):
        while (added := producer.add((topic, 0), version=version)) != [NONE]:
            assert added == [ErrorCode.CONCURRENT_TRANSACTIONS]
        assert producer.produce((topic, 0, b"%d" % outcome), version=11) == [NONE]
        assert producer.add_offsets(group, version=version) is NONE
        assert producer.commit_offsets(group, topic, 5, version=version) is NONE
        assert producer.end(outcome, version=version) is NONE
    settle(raw, topic.name)

    assert (visible(raw, topic), committed_offset(raw, group, topic)) == ([b"1", b"1"], 5)


@both
def test_a_transaction_that_is_open_for_too_long_is_aborted(broker, raw, topic, flow):
    """事务超时和中止; 超时检测; 事务超时: 自动中止, 清理元数据."""
    producer = open_producer(raw, topic.name, timeout_ms=5_000)
    flow.write(producer, (topic, 0, b"slow"))
    broker.clock.advance_ms(4_000)
    assert state_of(raw, topic.name) == "Ongoing"

    broker.clock.advance_ms(15_000)
    while state_of(raw, topic.name) != "CompleteAbort":
        pass

    assert (visible(raw, topic), ends(raw, topic)) == ([], (2, 2))
    assert flow.end(producer, COMMIT) is ErrorCode.PRODUCER_FENCED
    assert flow.write(producer, (topic, 0, b"late"))[0] in {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }


def test_after_a_timeout_a_producer_is_initialised_again(broker, raw, topic):
    """事务超时后重新初始化 (InitProducerId, 使用场景): and what it writes from then on counts."""
    producer = open_producer(raw, topic.name, timeout_ms=5_000)
    producer.produce((topic, 0, b"slow"))
    broker.clock.advance_ms(20_000)
    while state_of(raw, topic.name) != "CompleteAbort":
        pass

    again = open_producer(raw, topic.name)
    again.produce((topic, 0, b"again"))
    TV2.finish(again)

    assert (again.producer_id, again.epoch > producer.epoch) == (producer.producer_id, True)
    assert visible(raw, topic) == [b"again"]
