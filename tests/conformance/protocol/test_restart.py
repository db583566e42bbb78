"""What a broker that was stopped or killed still knows: its topics, its records, its producers and its past epochs."""

import pytest

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.delete_topics import DeleteTopicsRequest
from exactlog.core.protocol.messages.init_producer_id import InitProducerIdRequest
from exactlog.core.protocol.messages.metadata import MetadataRequest
from exactlog.core.record.batch_format import decode_header
from exactlog.testing import Broker
from tests.support.raw_client import BY_NAME, RawClient, batch_of, offsets_and_values, produce_request, sequenced

LATEST, EARLIEST = -1, -2


class Restartable:
    """A broker on disk, whose connection follows it over its ends."""

    def __init__(self, broker):
        self._broker = broker
        self.client = RawClient(broker.port)

    def end(self, ending):
        """Stops or kills the broker, and starts it again."""
        if ending == "kill":
            self._broker.kill()
        self._broker.restart()
        self.close()
        self.client = RawClient(self._broker.port)
        return self.client

    def close(self):
        self.client.close()


@pytest.fixture
def restartable():
    with Broker() as broker:
        restartable = Restartable(broker)
        yield restartable
        restartable.close()


EITHER_END = pytest.mark.parametrize("ending", ["stop", "kill"])


@EITHER_END
def test_acknowledged_records_and_the_five_batches_of_their_producers_are_still_there(restartable, ending):
    """B083 (librdkafka #3584, confluent-kafka-python #1128): a restart made producers fail for good."""
    topic = restartable.client.create_topic()
    batches = [sequenced(9, 2 * index, b"%d" % index, b"+") for index in range(7)]
    for batch in batches:
        restartable.client.produce(topic, batch)

    client = restartable.end(ending)

    resent = [client.produce(topic, batch) for batch in batches]
    out_of_order = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert [(answer.error_code, answer.base_offset) for answer in resent] == [out_of_order] * 2 + [
        (ErrorCode.NONE, 2 * index) for index in range(2, 7)
    ]
    assert client.produce(topic, sequenced(9, 14, b"next")).base_offset == 14
    values = [value for index in range(7) for value in (b"%d" % index, b"+")]
    assert offsets_and_values(client.fetch(topic, 0).records) == list(enumerate([*values, b"next"]))


def test_a_batch_whose_answer_the_crash_swallowed_is_stored_once(restartable):
    topic = restartable.client.create_topic()
    request = (produce_request(topic, sequenced(9, 0, b"v")), BY_NAME)
    restartable.client.send(*request)

    client = restartable.end("kill")
    client.send(*request)

    answer = client.receive().responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (0, 0)
    assert offsets_and_values(client.fetch(topic, 0).records) == [(0, b"v")]


@EITHER_END
def test_a_new_start_is_a_new_leader_and_every_record_keeps_the_epoch_it_was_written_in(restartable, ending):
    topic = restartable.client.create_topic()
    restartable.client.produce(topic, batch_of(b"old"))
    first_epoch = restartable.client.list_offset(topic, LATEST).leader_epoch

    client = restartable.end(ending)
    client.produce(topic, batch_of(b"new"))

    epoch = client.list_offset(topic, LATEST).leader_epoch
    assert epoch > first_epoch
    assert client.list_offset(topic, EARLIEST).leader_epoch == first_epoch
    assert client.list_offset(topic, 0).leader_epoch == first_epoch
    assert decode_header(client.fetch(topic, 0).records).leader_epoch == first_epoch
    assert decode_header(client.fetch(topic, 1).records).leader_epoch == epoch
    assert client.fetch(topic, 0, leader_epoch=first_epoch).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert client.list_offset(topic, LATEST, leader_epoch=first_epoch).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert client.fetch(topic, 0, leader_epoch=epoch).error_code == ErrorCode.NONE


@EITHER_END
def test_topics_keep_their_ids_and_settings_and_deleted_ones_stay_deleted(restartable, ending):
    kept = restartable.client.create_topic(partitions=2, max_message_bytes=100)
    deleted = restartable.client.create_topic()
    restartable.client.ask(DeleteTopicsRequest(topic_names=(deleted.name,)), 5)
    cluster_id = restartable.client.ask(MetadataRequest(topics=()), 12).cluster_id

    client = restartable.end(ending)

    described = client.ask(MetadataRequest(topics=None), 12)
    assert described.cluster_id == cluster_id
    assert [(topic.name, topic.topic_id, len(topic.partitions)) for topic in described.topics] == [
        (kept.name, kept.topic_id, 2)
    ]
    assert client.produce(kept, batch_of(b"x" * 1_000)).error_code == ErrorCode.MESSAGE_TOO_LARGE


@EITHER_END
def test_producer_ids_are_not_given_again(restartable, ending):
    request = (InitProducerIdRequest(transactional_id=None), 0)
    before = {restartable.client.ask(*request).producer_id for _ in range(3)}

    client = restartable.end(ending)

    assert not before & {client.ask(*request).producer_id for _ in range(3)}
