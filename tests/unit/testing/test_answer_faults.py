"""What a test orders happens to the requests it names, once for each, and to nobody else."""

import threading
import warnings

import pytest
from confluent_kafka import Consumer, Producer

from exactlog.core.model.errors import ConfigError, KafkaError
from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.messages.api_versions import ApiVersionsRequest
from exactlog.core.protocol.messages.fetch import FetchRequest, ForgottenTopic
from exactlog.core.protocol.messages.list_groups import ListGroupsRequest
from exactlog.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from exactlog.testing import Broker, BrokerNotRunningError, ErrorCode
from tests.support.raw_client import BY_ID, ConnectionClosed, RawClient, batch_of, fetch_request, produce_request
from tests.support.raw_groups import Member, commit, form_group
from tests.support.watching import wait_until

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "(read|open)_text is deprecated", DeprecationWarning)  # on 3.11
    import kafka

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def module_broker():
    with Broker(config={"in.memory": True}) as broker:
        yield broker


@pytest.fixture
def broker(module_broker):
    yield module_broker
    module_broker.faults.clear()


@pytest.fixture
def raw(broker):
    with RawClient(broker.port) as client:
        yield client


@pytest.fixture
def topic(raw):
    return raw.create_topic(partitions=2)


def produce_one(broker, topic, value=b"v", **config):
    """Sends one record as a user would; gives the error it ended with."""
    errors = []
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 0,
            "retry.backoff.ms": 1,
            "log_level": 0,
            **config,
        }
    )
    producer.produce(topic.name, value, partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    (error,) = errors
    return error


def end_of(raw, topic):
    return raw.list_offset(topic, -1).offset


# --- what real clients make of it -----------------------------------------------------------------------------------


def test_a_producer_that_is_refused_twice_delivers_exactly_once(broker, raw, topic):
    fault = broker.faults.fail("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=2)

    assert produce_one(broker, topic) is None

    assert fault.hits == 2
    assert end_of(raw, topic) == 1


def test_a_refused_request_is_not_carried_out(broker, raw, topic):
    with broker.faults.fail("Produce", ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic=topic.name):
        assert produce_one(broker, topic).name() == "TOPIC_AUTHORIZATION_FAILED"

    assert end_of(raw, topic) == 0
    assert produce_one(broker, topic) is None


@pytest.mark.parametrize("order", ["fail_after", "drop_answer"])
def test_a_batch_that_is_sent_again_since_its_answer_was_lost_is_recognised(broker, raw, topic, order):
    with {
        "fail_after": lambda: broker.faults.fail_after("Produce", ErrorCode.REQUEST_TIMED_OUT, times=1),
        "drop_answer": lambda: broker.faults.drop_answer("Produce", times=1),
    }[order]() as fault:
        assert produce_one(broker, topic) is None

    assert fault.hits == 1
    assert end_of(raw, topic) == 1


def test_without_idempotence_the_same_loss_is_a_duplicate(broker, raw, topic):
    with broker.faults.drop_answer("Produce", times=1):
        assert produce_one(broker, topic, **{"enable.idempotence": False}) is None

    assert end_of(raw, topic) == 2


def test_a_consumer_whose_fetch_is_dropped_comes_again(broker, raw, topic):
    raw.produce(topic, batch_of(b"v"))
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": topic.name,
            "auto.offset.reset": "earliest",
            "reconnect.backoff.ms": 1,
            "log_level": 0,
        }
    )
    with broker.faults.drop("Fetch", topic=topic.name, times=1) as fault:
        consumer.subscribe([topic.name])
        messages = consumer.consume(1, timeout=30)
        consumer.close()

    assert fault.hits == 1
    assert [message.value() for message in messages] == [b"v"]


def test_a_consumer_with_a_fetch_session_reads_on_behind_refusals(broker, raw, topic):
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", retry_backoff_ms=1
    )
    consumer.assign([kafka.TopicPartition(topic.name, 0)])
    raw.produce(topic, batch_of(b"before"))
    assert next(consumer).value == b"before"
    with broker.faults.fail("Fetch", ErrorCode.NOT_LEADER_OR_FOLLOWER, topic=topic.name, times=3) as fault:
        while fault.hits < 3:
            assert consumer.poll(timeout_ms=10) == {}  # it fetches in here only
        raw.produce(topic, batch_of(b"after"))
        assert next(consumer).value == b"after"
    consumer.close()

    assert fault.hits == 3


def test_metadata_that_is_refused_tells_the_broker_still(broker, raw, topic):
    with broker.faults.fail("Metadata", ErrorCode.LEADER_NOT_AVAILABLE):
        asked = MetadataRequest(topics=(MetadataRequestTopic(name=topic.name),))
        answer = raw.ask(asked, 12)

    assert [found.port for found in answer.brokers] == [broker.port]
    assert [(found.name, found.error_code) for found in answer.topics] == [(topic.name, ErrorCode.LEADER_NOT_AVAILABLE)]


# --- which requests -------------------------------------------------------------------------------------------------


def test_an_order_is_about_one_api(broker, raw, topic):
    broker.faults.fail(ApiKey.LIST_GROUPS, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    assert raw.ask(ListGroupsRequest(), 4).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert raw.produce(topic, batch_of(b"v")).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [12, BY_ID])
def test_a_topic_is_known_by_its_name_and_by_its_id(broker, raw, topic, version):
    other = raw.create_topic()
    broker.faults.fail("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, topic=topic.name)

    assert raw.produce(topic, batch_of(b"v"), version=version).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert raw.produce(other, batch_of(b"v"), version=version).error_code == ErrorCode.NONE


def test_one_partition_of_a_topic_can_be_meant(broker, raw, topic):
    fault = broker.faults.fail("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, topic=topic.name, partition=1)

    assert raw.produce(topic, batch_of(b"v"), partition=0).error_code == ErrorCode.NONE
    assert raw.produce(topic, batch_of(b"v"), partition=1).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fault.hits == 1


def test_one_group_can_be_meant(broker, raw, topic):
    broker.faults.fail("OffsetCommit", ErrorCode.NOT_COORDINATOR, group_id="mine")

    assert commit(raw, "mine", topic, 1) == ErrorCode.NOT_COORDINATOR
    assert commit(raw, "yours", topic, 1) == ErrorCode.NONE


def test_one_client_can_be_meant(broker, raw, topic):
    broker.faults.fail("Produce", ErrorCode.INVALID_RECORD, client_id="bad")

    assert produce_one(broker, topic, **{"client.id": "bad"}).name() == "INVALID_RECORD"
    assert produce_one(broker, topic, **{"client.id": "good"}) is None


def test_a_function_can_say_which_requests_are_meant(broker, raw, topic):
    broker.faults.fail("Produce", ErrorCode.INVALID_RECORD, when=lambda request: request.timeout_ms == 10_000)

    assert raw.produce(topic, batch_of(b"v")).error_code == ErrorCode.INVALID_RECORD
    assert produce_one(broker, topic) is None


def test_a_function_that_fails_closes_the_connection_and_is_logged(broker, raw, topic, caplog):
    broker.faults.fail("Produce", ErrorCode.INVALID_RECORD, when=lambda request: request.no_such_field)

    with pytest.raises(ConnectionClosed):
        raw.produce(topic, batch_of(b"v"))
    assert "no_such_field" in caplog.text


def test_a_fetch_of_a_session_is_about_all_that_its_session_is_about(broker, raw, topic):
    first = raw.ask(
        FetchRequest(**fields_of_fetch(topic), session_id=0, session_epoch=0),
        12,
    )
    goes_on = FetchRequest(session_id=first.session_id, session_epoch=1)
    forgets = FetchRequest(
        session_id=first.session_id,
        session_epoch=1,
        forgotten_topics_data=(ForgottenTopic(topic=topic.name, partitions=(0,)),),
    )
    with broker.faults.fail("Fetch", ErrorCode.NOT_LEADER_OR_FOLLOWER, topic=topic.name, partition=0) as fault:
        refused = raw.ask(goes_on, 12)
        raw.ask(forgets, 12)

    assert first.session_id != 0
    assert fault.hits == 1
    assert refused.error_code == ErrorCode.NONE
    assert refused.session_id == 0  # a client opens another one then
    assert refused.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def fields_of_fetch(topic):
    asked = fetch_request(topic, 0)
    return {"topics": asked.topics, "max_bytes": asked.max_bytes}


# --- how long -------------------------------------------------------------------------------------------------------


def test_an_order_lasts_for_its_block(broker, raw, topic):
    with broker.faults.fail("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER) as fault:
        raw.produce(topic, batch_of(b"v"))
        raw.produce(topic, batch_of(b"v"))

    assert raw.produce(topic, batch_of(b"v")).error_code == ErrorCode.NONE
    assert fault.hits == 2
    fault.remove()


def test_an_order_that_is_done_costs_nothing_any_more(broker, raw, topic):
    broker.faults.fail("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=1)

    raw.produce(topic, batch_of(b"v"))

    assert broker.faults.orders == ()


def test_clearing_takes_all_orders_back(broker, raw, topic):
    broker.faults.fail("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER)
    broker.faults.drop("ListGroups")

    broker.faults.clear()

    assert raw.produce(topic, batch_of(b"v")).error_code == ErrorCode.NONE
    assert raw.ask(ListGroupsRequest(), 4).error_code == ErrorCode.NONE


def test_a_request_meets_one_outcome_the_first_that_is_not_done(broker, raw, topic):
    first = broker.faults.fail("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=1)
    second = broker.faults.fail("Produce", ErrorCode.REQUEST_TIMED_OUT, times=1)

    codes = [raw.produce(topic, batch_of(b"v")).error_code for _ in range(3)]

    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE]
    assert (first.hits, second.hits) == (1, 1)


def test_orders_outlive_a_crash_of_the_broker():
    with Broker() as broker:
        broker.faults.fail("ListGroups", ErrorCode.COORDINATOR_NOT_AVAILABLE)
        broker.kill()
        broker.restart()
        with RawClient(broker.port) as raw:
            assert raw.ask(ListGroupsRequest(), 4).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_two_brokers_do_not_disturb_each_other(broker, raw):
    with Broker(config={"in.memory": True}) as other, other.faults.drop("ListGroups"):
        assert raw.ask(ListGroupsRequest(), 4).error_code == ErrorCode.NONE
        with RawClient(other.port) as unlucky, pytest.raises(ConnectionClosed):
            unlucky.ask(ListGroupsRequest(), 4)


# --- answers that never come ----------------------------------------------------------------------------------------


def test_a_request_that_is_dropped_is_not_carried_out(broker, raw, topic):
    with broker.faults.drop("Produce"), RawClient(broker.port) as unlucky, pytest.raises(ConnectionClosed):
        unlucky.produce(topic, batch_of(b"v"))

    assert end_of(raw, topic) == 0


@pytest.mark.parametrize(("order", "end"), [("fail", 0), ("fail_after", 1), ("drop_answer", 1)])
def test_a_fault_of_a_request_without_an_answer_closes_the_connection(broker, raw, topic, order, end):
    error = [] if order == "drop_answer" else [ErrorCode.INVALID_RECORD]
    with getattr(broker.faults, order)("Produce", *error), RawClient(broker.port) as unlucky:
        unlucky.send(produce_request(topic, batch_of(b"v"), acks=0), 9, is_answered=False)
        assert unlucky.is_closed()

    wait_until(lambda: end_of(raw, topic) == end)  # with acks=0 the connection ends before the records are committed


# --- answers that come later ----------------------------------------------------------------------------------------


def test_a_late_answer_keeps_those_behind_it_back_and_nobody_else(broker, raw, topic):
    with RawClient(broker.port) as slow, broker.faults.delay("ListGroups", HOUR_MS, times=1) as delay:
        slow.send_all((ListGroupsRequest(), 4), (ApiVersionsRequest(), 0))
        delay.wait_for_hits()
        assert raw.ask(ListGroupsRequest(), 4).error_code == ErrorCode.NONE
        assert not slow.has_answer()

        delay.remove()

        assert slow.receive().error_code == ErrorCode.NONE  # RawClient checks that the order is right
        assert slow.receive().error_code == ErrorCode.NONE


def test_a_late_answer_leaves_when_its_time_has_come_by_the_brokers_clock():
    with Broker(config={"in.memory": True}) as broker, RawClient(broker.port) as raw:
        delay = broker.faults.delay("ListGroups", HOUR_MS)
        raw.send(ListGroupsRequest(), 4)
        delay.wait_for_hits()
        broker.clock.advance_ms(HOUR_MS - 60_000)
        assert not raw.has_answer()

        broker.clock.advance_ms(60_000)

        assert raw.receive().error_code == ErrorCode.NONE


def test_a_late_request_is_carried_out_at_once(broker, raw, topic):
    with RawClient(broker.port) as slow, broker.faults.delay("Produce", HOUR_MS, topic=topic.name) as delay:
        slow.send(produce_request(topic, batch_of(b"v")), 12)
        delay.wait_for_hits()
        assert raw.fetch(topic, 0, max_wait_ms=20_000).high_watermark == 1


def test_an_answer_that_is_given_only_when_its_delay_is_over_leaves_at_once(broker, raw, topic):
    with RawClient(broker.port) as slow, broker.faults.delay("Fetch", 1):
        slow.send(fetch_request(topic, 0, max_wait_ms=20_000), 12)
        raw.produce(topic, batch_of(b"v"))

        assert slow.receive().responses[0].partitions[0].high_watermark == 1


def test_a_delay_and_a_refusal_go_together_and_of_two_delays_the_longer_counts(broker, raw):
    with RawClient(broker.port) as slow:
        one = broker.faults.delay("ListGroups", HOUR_MS)
        two = broker.faults.delay("ListGroups", 2 * HOUR_MS)
        broker.faults.fail("ListGroups", ErrorCode.COORDINATOR_NOT_AVAILABLE)
        slow.send(ListGroupsRequest(), 4)
        two.wait_for_hits()
        two.remove()
        assert raw.ask(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE
        assert not slow.has_answer()

        one.remove()

        assert slow.receive().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_broker_that_stops_lets_late_answers_go():
    broker = Broker(config={"in.memory": True})
    broker.start()
    with RawClient(broker.port) as raw:
        delay = broker.faults.delay("ListGroups", HOUR_MS)
        raw.send(ListGroupsRequest(), 4)
        delay.wait_for_hits()

        stopping = threading.Thread(target=broker.stop)
        stopping.start()

        assert raw.receive().error_code == ErrorCode.NONE
        raw.close()
        stopping.join()
    delay.remove()


# --- groups ---------------------------------------------------------------------------------------------------------


def test_a_group_can_be_made_to_rebalance(broker, raw):
    member = Member(raw, "restless")
    form_group(member)
    assert member.heartbeat() == ErrorCode.NONE

    broker.faults.rebalance("restless")

    assert member.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_group_that_is_not_there_cannot_rebalance(broker):
    with pytest.raises(KafkaError, match="no group nobody") as caught:
        broker.faults.rebalance("nobody")

    assert caught.value.kafka_error is ErrorCode.GROUP_ID_NOT_FOUND


def test_no_group_rebalances_without_a_broker():
    with pytest.raises(BrokerNotRunningError):
        Broker().faults.rebalance("any")


# --- orders that make no sense --------------------------------------------------------------------------------------


def test_an_api_that_is_not_known_is_refused_naming_the_nearest(broker):
    with pytest.raises(ConfigError, match="no API Produces") as caught:
        broker.faults.drop("Produces")
    assert caught.value.hint == "Did you mean Produce?"


def test_an_order_for_no_request_or_no_time_is_refused(broker):
    with pytest.raises(ConfigError, match="not 0 times"):
        broker.faults.drop("Produce", times=0)
    with pytest.raises(ConfigError, match="not -1"):
        broker.faults.delay("Produce", -1)


def test_waiting_for_a_fault_that_does_not_happen_ends(broker):
    fault = broker.faults.drop("ListGroups")

    with pytest.raises(TimeoutError, match="met 0 requests"):
        fault.wait_for_hits(timeout_s=0)
