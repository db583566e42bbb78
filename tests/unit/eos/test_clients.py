"""Which library serves given objects, and what its errors mean."""

import asyncio
import subprocess
import sys

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition, errors
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, SerializingProducer

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import ConfigError
from exactlog.eos import (
    AbortableError,
    FatalError,
    FencedError,
    RebalancedError,
    RetriableError,
    transaction,
    transaction_sync,
)
from exactlog.eos.aiokafka_client import AiokafkaClient
from exactlog.eos.confluent_client import ConfluentClient, called

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


@pytest.fixture
def consumer():
    with Consumer({**NOWHERE, "group.id": "g"}) as consumer:
        yield consumer


@pytest.fixture
async def aiokafka_producer():
    producer = AIOKafkaProducer(transactional_id="t")
    yield producer
    await producer.stop()


@pytest.fixture
async def make_aiokafka_consumer():
    consumers = []

    def make(**settings):
        consumers.append(AIOKafkaConsumer("orders", **settings))
        return consumers[-1]

    yield make
    for consumer in consumers:
        await consumer.stop()


def test_nothing_is_imported_before_a_client_is_given():
    script = "import sys, exactlog.eos; print({'confluent_kafka', 'cimpl', 'aiokafka'} & set(sys.modules))"

    printed = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout

    assert printed.strip() == "set()"


def test_subclasses_are_served(consumer):
    transaction_sync(SerializingProducer(NOWHERE), consumer)


def test_other_producers_are_refused_with_the_way_out():
    with pytest.raises(
        TypeError, match=r"builtins\.int is not a producer .* give a confluent_kafka\.Producer or an aio"
    ):
        transaction(1)
    with pytest.raises(TypeError, match=r"transaction_sync\(\): builtins\.int .* give a confluent_kafka\.Producer"):
        transaction_sync(1)


def test_other_consumers_are_refused():
    with pytest.raises(TypeError, match=r"builtins\.str is not a consumer of it"):
        transaction(Producer(NOWHERE), "a consumer")


async def test_two_libraries_in_one_transaction_are_refused(aiokafka_producer, consumer):
    with pytest.raises(TypeError, match="same library"):
        transaction(aiokafka_producer, consumer)


async def test_aiokafka_has_no_blocking_twin(aiokafka_producer):
    with pytest.raises(TypeError, match=r"use `async with transaction\(\.\.\.\)`"):
        transaction_sync(aiokafka_producer)


async def test_a_consumer_that_commits_by_itself_is_refused(aiokafka_producer, make_aiokafka_consumer):
    with pytest.raises(ConfigError, match="commits offsets by itself"):
        transaction(aiokafka_producer, make_aiokafka_consumer(group_id="g"))


async def test_a_consumer_without_a_group_is_refused(aiokafka_producer, make_aiokafka_consumer):
    with pytest.raises(ConfigError, match="no group"):
        transaction(aiokafka_producer, make_aiokafka_consumer(enable_auto_commit=False))


def test_a_producer_without_a_transactional_id_is_told_so():
    def block():
        with transaction_sync(Producer(NOWHERE)):
            pass

    with pytest.raises(FatalError, match=r"transactional\.id"):
        block()


async def test_an_aiokafka_producer_without_a_transactional_id_is_told_so():
    producer = AIOKafkaProducer()

    async def block():
        async with transaction(producer):
            pass

    with pytest.raises(FatalError, match="transaction"):
        await block()
    await producer.stop()


async def test_a_step_of_aiokafka_that_takes_too_long_may_be_tried_again(aiokafka_producer, monkeypatch):
    monkeypatch.setattr(aiokafka_producer, "commit_transaction", asyncio.Event().wait)
    client = AiokafkaClient(aiokafka_producer, None)

    with pytest.raises(TimeoutError) as caught:
        await client.commit(timeout_s=0)

    assert type(client.typed(caught.value, doing="cannot commit")) is RetriableError


async def test_a_step_that_aiokafka_only_asserts_against_is_told(aiokafka_producer, monkeypatch):
    async def begin_transaction():
        raise AssertionError("Invalid state transition")

    monkeypatch.setattr(aiokafka_producer, "begin_transaction", begin_transaction)

    with pytest.raises(FatalError, match="one transaction at a time"):
        await transaction(aiokafka_producer).__aenter__()


def confluent_error(code, **flags):
    return KafkaException(KafkaError(code, "told", **flags))


@pytest.mark.parametrize(
    ("error", "expected", "kafka_error"),
    [
        (confluent_error(KafkaError._FENCED, fatal=True), FencedError, ErrorCode.PRODUCER_FENCED),
        (confluent_error(KafkaError.INVALID_PRODUCER_EPOCH), FencedError, ErrorCode.INVALID_PRODUCER_EPOCH),
        (confluent_error(KafkaError.INVALID_TXN_STATE, fatal=True), FatalError, ErrorCode.INVALID_TXN_STATE),
        (confluent_error(KafkaError._STATE), FatalError, None),
        (confluent_error(KafkaError._TIMED_OUT, retriable=True), RetriableError, ErrorCode.REQUEST_TIMED_OUT),
        (confluent_error(22, txn_requires_abort=True), RebalancedError, ErrorCode.ILLEGAL_GENERATION),
        (confluent_error(113, txn_requires_abort=True), RebalancedError, ErrorCode.STALE_MEMBER_EPOCH),
        (confluent_error(120, txn_requires_abort=True), AbortableError, ErrorCode.TRANSACTION_ABORTABLE),
        (confluent_error(KafkaError._INCONSISTENT, txn_requires_abort=True), AbortableError, None),
    ],
)
def test_what_librdkafka_says_of_an_error_decides(error, expected, kafka_error):
    typed = ConfluentClient(Producer(NOWHERE), None, called).typed(error, doing="cannot commit")

    assert type(typed) is expected
    assert typed.kafka_error is kafka_error
    assert str(typed) == "cannot commit: told"


@pytest.mark.parametrize(
    ("error", "expected", "kafka_error"),
    [
        (errors.ProducerFenced(), FencedError, ErrorCode.INVALID_PRODUCER_EPOCH),
        (TimeoutError(), RetriableError, None),
        (errors.KafkaTimeoutError(), RetriableError, None),
        (errors.NotLeaderForPartitionError(), RetriableError, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (errors.TopicAuthorizationFailedError("t"), AbortableError, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (errors.IllegalGenerationError(), RebalancedError, ErrorCode.ILLEGAL_GENERATION),
        (errors.IllegalOperation("not started"), FatalError, None),
    ],
)
async def test_errors_of_aiokafka_are_sorted_by_what_they_are(aiokafka_producer, error, expected, kafka_error):
    typed = AiokafkaClient(aiokafka_producer, None).typed(error, doing="cannot commit")

    assert type(typed) is expected
    assert typed.kafka_error is kafka_error
    assert str(typed).startswith("cannot commit: ")


@pytest.mark.parametrize("error", [ValueError("mine"), AssertionError()])
async def test_errors_that_are_not_the_library_s_are_not_sorted(aiokafka_producer, error):
    assert AiokafkaClient(aiokafka_producer, None).typed(error, doing="cannot commit") is None
    assert ConfluentClient(Producer(NOWHERE), None, called).typed(error, doing="cannot commit") is None


@pytest.mark.parametrize(
    ("code", "is_retryable"), [(ErrorCode.MESSAGE_TOO_LARGE, False), (ErrorCode.TRANSACTION_ABORTABLE, True)]
)
def test_what_would_be_refused_again_is_not_retryable(code, is_retryable):
    assert AbortableError("no", kafka_error=code).retryable is is_retryable


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("transaction-retriable", RetriableError),
        ("transaction-aborted", AbortableError),
        ("group-rebalanced", RebalancedError),
        ("producer-unusable", FatalError),
        ("producer-fenced", FencedError),
    ],
)
def test_codes_stay_as_they_are(code, kind):
    assert kind.code == code


class Coordinator:
    group_id = "g"
    generation = 1
    member_id = "m"

    async def _do_heartbeat(self):
        return True


class ConsumerByHand:
    """As much of an aiokafka consumer as is asked; its group lags behind what was committed."""

    _group_id = "g"
    _enable_auto_commit = False
    _auto_offset_reset = "earliest"

    def __init__(self):
        self._coordinator = Coordinator()
        self.committed_offset = None
        self.position_now = 5
        self.sought = []

    def assignment(self):
        return frozenset({TopicPartition("orders", 0)})

    async def position(self, _place):
        return self.position_now

    async def committed(self, _place):
        return self.committed_offset

    def seek(self, _place, offset):
        self.sought.append(offset)

    async def seek_to_beginning(self, _place):
        self.sought.append("beginning")

    async def seek_to_end(self, _place):
        self.sought.append("end")


@pytest.fixture
def committing_client(aiokafka_producer, monkeypatch):
    """A client of a consumer by hand, with a producer that agrees to everything."""

    async def agree(*_arguments):
        return None

    for step in ("begin_transaction", "send_offsets_to_transaction", "commit_transaction", "abort_transaction"):
        monkeypatch.setattr(aiokafka_producer, step, agree)
    return AiokafkaClient(aiokafka_producer, ConsumerByHand())


async def commit_position(client):
    membership = await client.membership()
    await client.send_offsets(await client.positions(timeout_s=1), membership, timeout_s=1)
    await client.commit(timeout_s=1)


async def test_a_commit_that_the_group_does_not_show_yet_is_not_undone(committing_client):
    await commit_position(committing_client)

    await committing_client.rewind(timeout_s=1)

    assert committing_client._consumer.sought == [5]


async def test_what_an_earlier_member_has_committed_says_nothing(committing_client):
    await commit_position(committing_client)
    committing_client._consumer._coordinator.generation = 2

    await committing_client.rewind(timeout_s=1)

    assert committing_client._consumer.sought == ["beginning"]


async def test_a_position_that_is_committed_is_not_committed_again(committing_client):
    await commit_position(committing_client)
    assert await committing_client.positions(timeout_s=1) == {}

    committing_client._consumer.position_now = 6

    assert await committing_client.positions(timeout_s=1) == {("orders", 0): 6}


async def test_what_the_group_shows_may_be_newer(committing_client):
    await commit_position(committing_client)
    committing_client._consumer.committed_offset = 9

    await committing_client.rewind(timeout_s=1)

    assert committing_client._consumer.sought == [9]


async def test_a_member_that_gets_no_heartbeat_through_does_not_commit(committing_client, monkeypatch):
    async def fail():
        return False

    monkeypatch.setattr(committing_client._consumer._coordinator, "_do_heartbeat", fail)

    with pytest.raises(errors.GroupCoordinatorNotAvailableError) as caught:
        await commit_position(committing_client)

    assert type(committing_client.typed(caught.value, doing="cannot send offsets")) is RetriableError


async def test_a_transaction_without_offsets_says_nothing_of_earlier_ones(committing_client):
    membership = await committing_client.membership()
    await committing_client.send_offsets({("orders", 0): 7}, membership, timeout_s=1)
    await committing_client.abort(timeout_s=1)
    await committing_client.begin(timeout_s=1)
    await committing_client.commit(timeout_s=1)

    await committing_client.rewind(timeout_s=1)

    assert committing_client._consumer.sought == ["beginning"]


class FencedProducer:
    """As much of a confluent-kafka producer as is asked once it has been fenced."""

    def begin_transaction(self):
        raise confluent_error(KafkaError._FENCED, fatal=True)


def test_why_a_producer_is_dead_is_asked_of_it():
    client = ConfluentClient(FencedProducer(), None, called)

    typed = client.typed(confluent_error(KafkaError._FATAL), doing="cannot send")

    assert type(typed) is FencedError
