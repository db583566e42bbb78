"""Seed 001: its fault tests (故障测试), error scenarios (错误场景) and phase 6 (持久化), a test a sentence.

The seed keeps transactions in Raft; here a broker dies and comes back over its data directory, which is what a
failover is on one node.
"""

import contextlib
import itertools
import json

import pytest

from demo.served_broker import ServedBroker
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.init_producer_id import InitProducerIdRequest
from exactlog.testing import Broker
from exactlog.testing.faults import armed
from tests.support.raw_client import RawClient
from tests.support.raw_groups import fetch_offset
from tests.support.raw_transactions import ABORT, COMMIT, TransactionalProducer, list_transactions, produced
from tests.support.tcp_proxy import TcpProxy
from tests.support.transaction_steps import FLOWS, ends, no_markers, open_producer, settle, state_of, visible
from tests.support.transactional_clients import (
    AiokafkaTransactions,
    ConfluentTransactions,
    KafkaPythonTransactions,
    consume,
)

NONE = ErrorCode.NONE
TV1, TV2 = FLOWS
FENCED = {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED}

both = pytest.mark.parametrize("flow", FLOWS, ids=repr)


@pytest.fixture
def own(tmp_path):
    """A broker on a disk, for tests that kill it."""
    with Broker(tmp_path) as running:
        yield running


class Crashes:
    """Kills the broker and starts it again, and gives the producer a connection to the new one."""

    def __init__(self, broker):
        self._broker = broker
        self._client = None

    def connect(self):
        self.close()
        self._client = RawClient(self._broker.port)
        return self._client

    def crash(self, *producers):
        self.close()
        self._broker.kill()
        self._broker.restart()
        raw = self.connect()
        for producer in producers:
            producer.raw = raw
        return raw

    def close(self):
        if self._client is not None:
            self._client.close()


@pytest.fixture
def crashes(own):
    made = Crashes(own)
    yield made
    made.close()


# --- 生产者崩溃 -------------------------------------------------------------------------------------------------------


@both
def test_a_producer_that_crashed_is_recovered_by_its_transactional_id(raw, topic, connect, flow):
    """生产者崩溃: 使用 transactional.id 恢复, Epoch 递增; 生产者崩溃恢复."""
    crashed_raw = connect()
    crashed = open_producer(crashed_raw, topic.name)
    flow.write(crashed, (topic, 0, b"half of it"))
    crashed_raw.close()

    recovered = open_producer(raw, topic.name)
    flow.write(recovered, (topic, 0, b"all of it"))
    flow.finish(recovered)

    assert recovered.producer_id == crashed.producer_id
    assert recovered.epoch > crashed.epoch
    assert visible(raw, topic) == [b"all of it"]


@both
def test_a_producer_that_crashed_behind_its_commit_request_has_committed(raw, topic, connect, flow):
    """生产者崩溃恢复, where the answer was lost: what was asked for is done, whoever asks."""
    crashed_raw = connect()
    crashed = open_producer(crashed_raw, topic.name)
    flow.write(crashed, (topic, 0, b"whole"))
    crashed_raw.send(crashed.end_request(COMMIT), flow.end_version)
    assert crashed_raw.waits_for_answer()
    crashed_raw.close()

    open_producer(raw, topic.name)

    assert visible(raw, topic) == [b"whole"]


def test_a_producer_that_lost_the_answer_to_its_end_asks_again(raw, topic):
    """生产者崩溃恢复: the same end once more, by the epoch it had: the same answer, and one marker."""
    producer = open_producer(raw, topic.name)
    before = producer.identity
    producer.produce((topic, 0, b"value"))
    TV2.finish(producer)
    after = producer.identity

    producer.become(*before)

    assert (producer.end(COMMIT), producer.identity) == (NONE, after)
    assert ends(raw, topic) == (2, 2)


# --- Coordinator 故障 -------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("outcome", [COMMIT, ABORT])
def test_a_transaction_that_was_open_goes_on_over_a_failover(crashes, flow, outcome):
    """Coordinator 故障: 恢复状态; Leader 故障转移; 事务恢复: what was written before counts with what comes after."""
    raw = crashes.connect()
    topic = raw.create_topic(partitions=2)
    producer = open_producer(raw, "mine")
    flow.write(producer, (topic, 0, b"before"))
    flow.move(producer, "group", topic, 5)

    raw = crashes.crash(producer)
    assert flow.write(producer, (topic, 0, b"behind"), (topic, 1, b"new")) == [NONE] * 2
    assert visible(raw, topic) == []
    flow.finish(producer, outcome)

    is_commit = outcome is COMMIT
    assert [visible(raw, topic, index) for index in range(2)] == (
        [[b"before", b"behind"], [b"new"]] if is_commit else [[], []]
    )
    assert fetch_offset(raw, "group", topic).committed_offset == (5 if is_commit else -1)


@both
@pytest.mark.parametrize("outcome", [COMMIT, ABORT])
def test_an_outcome_that_was_decided_is_carried_out_by_the_next_coordinator(own, crashes, flow, outcome):
    """崩溃恢复 (Phase 4): killed between the two phases: prepared is final, never turned into an abort."""
    raw = crashes.connect()
    topic = raw.create_topic(partitions=2)
    producer = open_producer(raw, "mine")
    flow.write(producer, (topic, 0, b"a"), (topic, 1, b"b"))
    with no_markers():
        assert flow.end(producer, outcome) is NONE
        own.kill()
    own.restart()

    raw = crashes.connect()
    assert settle(raw, "mine") == ("CompleteCommit" if outcome is COMMIT else "CompleteAbort")
    assert [visible(raw, topic, index) for index in range(2)] == ([[b"a"], [b"b"]] if outcome is COMMIT else [[], []])


@pytest.mark.parametrize("step", ["txn.marker.after_some", "txn.marker.after_all", "txn.end.before_complete"])
def test_markers_that_were_half_way_are_completed_by_the_next_coordinator(own, crashes, step):
    """崩溃恢复, 部分失败处理: killed among the markers: no partition is left out, and readers see one outcome."""
    raw = crashes.connect()
    topic = raw.create_topic(partitions=3)
    producer = open_producer(raw, "mine")
    producer.produce(*[(topic, index, b"value") for index in range(3)])
    with armed(step, OSError("the power is gone")) as order:
        assert producer.end(COMMIT) is NONE
        while not order.has_fired:
            state_of(raw, "mine")
        own.kill()
    own.restart()

    raw = crashes.connect()
    assert settle(raw, "mine") == "CompleteCommit"
    assert [visible(raw, topic, index) for index in range(3)] == [[b"value"]] * 3
    assert [stable == end for stable, end in (ends(raw, topic, index) for index in range(3))] == [True] * 3


def test_no_producer_id_is_given_twice_over_restarts(own, crashes):
    """PID 一致性; PID 生成器, 保证唯一性: also after a kill, also those that nobody used."""
    raw = crashes.connect()
    given = []
    for number in range(4):
        answers = [raw.ask(InitProducerIdRequest(transactional_id=None), 5) for _ in range(20)]
        given += [answer.producer_id for answer in answers]
        given.append(open_producer(raw, f"mine-{number}").producer_id)
        raw = crashes.crash()

    assert len(set(given)) == len(given) == 84


def test_what_the_coordinator_knows_is_there_after_a_restart(crashes):
    """持久化事务元数据: ids, producer ids, epochs, states."""
    raw = crashes.connect()
    topic = raw.create_topic()
    for number in range(5):
        for _ in range(number + 1):
            producer = open_producer(raw, f"mine-{number}")
        producer.produce((topic, 0, b"value"))
        if number:
            TV2.finish(producer, number % 2 == 0)
    before = list_transactions(raw).transaction_states

    assert list_transactions(crashes.crash()).transaction_states == before
    assert len(before) == 5


@both
def test_a_retry_over_a_failover_is_no_duplicate(crashes, flow):
    """支持幂等性和崩溃恢复: a batch that is sent again to the next broker is there once."""
    raw = crashes.connect()
    topic = raw.create_topic()
    producer = open_producer(raw, "mine")
    producer.add((topic, 0))
    request = producer.request((topic, 0, b"once"))
    assert produced(raw.ask(request, flow.produce_version)) == [NONE]

    raw = crashes.crash(producer)

    assert produced(raw.ask(request, flow.produce_version)) == [NONE]
    flow.finish(producer)
    assert visible(raw, topic) == [b"once"]


# --- 网络分区和僵尸生产者 -------------------------------------------------------------------------------------


@pytest.fixture
def network():
    """A broker, and a network to it that can be cut: what is advertised is the way through it."""
    with TcpProxy() as proxy, Broker(config={"in.memory": True, "advertised": proxy.address}) as broker:
        proxy.target_port = broker.port
        yield proxy, broker


def wait_for_timeout(broker, raw, transactional_id):
    """Lets the time of an open transaction pass, and waits until it is aborted."""
    broker.clock.advance_ms(90_000)
    while state_of(raw, transactional_id) != "CompleteAbort":
        pass


@both
def test_behind_a_network_partition_a_producer_is_a_zombie(network, flow):
    """网络分区: 使用 Epoch 检测僵尸生产者; 网络分区和僵尸生产者.

    Cut off for longer than its timeout, with a batch and a commit under way, which arrive late: both are refused, and
    nothing of the transaction is ever seen.
    """
    proxy, broker = network
    with RawClient(proxy.port) as cut_off, RawClient(broker.port) as raw:
        topic = raw.create_topic(partitions=2)
        zombie = open_producer(cut_off, "mine")
        zombie.add((topic, 1))
        flow.write(zombie, (topic, 0, b"before the cut"))

        proxy.cut()
        late = (zombie.request((topic, 0, b"cut off")), flow.produce_version)
        cut_off.send_all(late, (zombie.end_request(COMMIT), flow.end_version))
        wait_for_timeout(broker, raw, "mine")
        proxy.heal()

        assert set(produced(cut_off.receive())) == {ErrorCode.INVALID_PRODUCER_EPOCH}
        assert cut_off.receive().error_code == ErrorCode.PRODUCER_FENCED
        assert set(flow.write(zombie, (topic, 1, b"healed"))) <= FENCED
        assert flow.end(zombie, COMMIT) is ErrorCode.PRODUCER_FENCED
        assert [visible(raw, topic, index) for index in range(2)] == [[], []]
        assert ends(raw, topic) == (2, 2)


@both
def test_behind_a_network_partition_another_producer_has_taken_over(network, flow):
    """网络分区和僵尸生产者: before the time is up: the next one with the id goes on at once, and alone."""
    proxy, broker = network
    with RawClient(proxy.port) as cut_off, RawClient(broker.port) as raw:
        topic = raw.create_topic()
        zombie = open_producer(cut_off, "mine")
        flow.write(zombie, (topic, 0, b"zombie"))

        proxy.cut()
        cut_off.send(zombie.end_request(COMMIT), flow.end_version)
        successor = open_producer(raw, "mine")
        flow.write(successor, (topic, 0, b"successor"))
        proxy.heal()

        assert cut_off.receive().error_code == ErrorCode.PRODUCER_FENCED
        flow.finish(successor)
        assert visible(raw, topic) == [b"successor"]


def test_a_cut_shorter_than_the_timeout_costs_nothing(network):
    """网络分区, healed in time: what was under way arrives, and the transaction goes on."""
    proxy, broker = network
    with RawClient(proxy.port) as cut_off, RawClient(broker.port) as raw:
        topic = raw.create_topic()
        producer = open_producer(cut_off, "mine")
        producer.produce((topic, 0, b"before"))

        proxy.cut()
        cut_off.send(producer.request((topic, 0, b"meanwhile")), 12)
        broker.clock.advance_ms(30_000)
        assert not cut_off.has_answer()
        proxy.heal()

        assert produced(cut_off.receive()) == [NONE]
        TV2.finish(producer)
        assert visible(raw, topic) == [b"before", b"meanwhile"]


@pytest.mark.slow
@pytest.mark.parametrize("client", [ConfluentTransactions, KafkaPythonTransactions, AiokafkaTransactions])
def test_real_clients_behind_a_network_partition_are_fenced(network, client):
    """网络分区和僵尸生产者, with real clients: nothing of the transaction appears, and a new instance goes on."""
    proxy, broker = network
    with RawClient(broker.port) as raw:
        topic = raw.create_topic()
        with closing(client(proxy.address, "mine", timeout_ms=60_000)) as zombie:
            zombie.begin()
            zombie.send(topic.name, 0, b"zombie")
            proxy.cut()
            wait_for_timeout(broker, raw, "mine")
            proxy.heal()
            with pytest.raises(Exception, match=r"(?i)fenced|epoch|abort|state"):
                zombie.commit()
        with closing(client(proxy.address, "mine")) as fresh:
            fresh.begin()
            fresh.send(topic.name, 0, b"fresh")
            fresh.commit()

        settle(raw, "mine")
        assert visible(raw, topic) == [b"fresh"]
    assert consume(proxy.address, topic.name) == [[b"fresh"]]


@contextlib.contextmanager
def closing(producer):
    """Closes a producer; some do not like to end in the middle of something."""
    try:
        yield producer
    finally:
        with contextlib.suppress(Exception):
            producer.close()


# --- 并发事务冲突 -----------------------------------------------------------------------------------------------------


@both
def test_of_two_instances_only_the_last_one_commits(raw, topic, flow):
    """并发事务冲突: whichever order two instances of one id begin, write and end in."""
    for number, late in enumerate(itertools.product([False, True], repeat=2)):
        writes_late, ends_late = late
        transactional_id = f"{topic.name}-{number}"
        first = open_producer(raw, transactional_id)
        if not writes_late:
            flow.write(first, (topic, 0, b"first"))
        second = open_producer(raw, transactional_id)
        if writes_late:
            assert set(flow.write(first, (topic, 0, b"first"))) <= FENCED
        flow.write(second, (topic, 0, b"%d" % number))
        if not ends_late:
            assert flow.end(first, COMMIT) is ErrorCode.PRODUCER_FENCED
        flow.finish(second)
        assert flow.end(first, COMMIT) is ErrorCode.PRODUCER_FENCED

    assert visible(raw, topic) == [b"0", b"1", b"2", b"3"]


@both
def test_transactions_of_many_ids_at_once_in_one_partition(raw, topic, connect, flow):
    """并发事务冲突: several transactional ids in the same partitions do not disturb each other."""
    producers = [open_producer(connect(), f"{topic.name}-{number}") for number in range(8)]
    for batch in range(3):
        for number, producer in enumerate(producers):
            assert flow.write(producer, (topic, 0, b"%d.%d" % (number, batch))) == [NONE]
    assert visible(raw, topic) == []

    for number, producer in enumerate(producers):
        flow.finish(producer, COMMIT if number % 3 else ABORT)

    kept = [number for number in range(8) if number % 3]
    assert visible(raw, topic) == [b"%d.%d" % (number, batch) for batch in range(3) for number in kept]


# --- Phase 6, with a process that is really killed --------------------------------------------------------------------


@both
def test_a_committed_transaction_outlives_the_process(tmp_path, flow):
    """事务持久化: a commit that was told is there after SIGKILL, an open transaction is not seen."""
    served = ServedBroker(tmp_path / "data", log=tmp_path / "broker.log")
    with served:
        with RawClient(served.port) as raw:
            topic = raw.create_topic("topic", partitions=2)
            told, open_one = open_producer(raw, "told"), open_producer(raw, "open")
            flow.write(told, (topic, 0, b"told"), (topic, 1, b"told"))
            flow.write(open_one, (topic, 0, b"open"), (topic, 1, b"open"))
            assert flow.end(told, COMMIT) is NONE
        served.kill()
        served.start()
        with RawClient(served.port) as raw:
            assert settle(raw, "told") == "CompleteCommit"
            assert [visible(raw, topic, index) for index in range(2)] == [[b"told"], [b"told"]]
            assert state_of(raw, "open") == "Ongoing"
            successor = TransactionalProducer(raw, "open")
            assert successor.init() is ErrorCode.CONCURRENT_TRANSACTIONS
        served.stop()
    export = json.loads((tmp_path / "data" / "transactions" / "transactions.json").read_bytes())
    assert [found["transactional_id"] for found in export["transactions"]] == ["open", "told"]
