"""The coordinators' topics: clients may read them, and only the broker writes them."""

import pytest

from exactlog.core.codec.message_codec import decode
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import ZERO_UUID
from exactlog.core.model.topic_name import CONSUMER_OFFSETS
from exactlog.core.protocol.headers import decode_response_header
from exactlog.core.protocol.messages.find_coordinator import FindCoordinatorRequest
from exactlog.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from exactlog.core.protocol.messages.produce import ProduceResponse
from tests.support.raw_client import (
    BY_NAME,
    Topic,
    base_offsets,
    batch_of,
    encode_request,
    frame,
    produce_request,
)

KEYLESS = batch_of(b"v")
EARLIEST = -2


@pytest.fixture
def offsets_topic(raw):
    """The groups' topic, which comes into being when the first group is looked for."""
    assert raw.ask(FindCoordinatorRequest(key="some-group", key_type=0), 1).error_code == 0
    (found,) = raw.ask(MetadataRequest(topics=(MetadataRequestTopic(name=CONSUMER_OFFSETS),)), 12).topics
    assert found.topic_id != ZERO_UUID
    return Topic(CONSUMER_OFFSETS, found.topic_id)


def test_a_client_may_not_write_to_it(raw, offsets_topic):
    produced = raw.produce(offsets_topic, KEYLESS)

    assert (produced.error_code, produced.base_offset) == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)


def test_only_the_client_id_that_kafka_lets_pass_may_try(raw, offsets_topic):
    request = produce_request(offsets_topic, KEYLESS)

    raw.send_bytes(frame(encode_request(request, BY_NAME, client_id="__admin_client")))

    received = raw.receive_frame()
    _, body = decode_response_header(received, header_version=1)
    response = decode(ProduceResponse, BY_NAME, received, body)
    error = response.responses[0].partition_responses[0].error_code
    assert error == ErrorCode.INVALID_RECORD  # a compacted topic needs keys


def test_it_is_told_that_acks_are_wrong_before_that(raw, offsets_topic):
    assert raw.produce(offsets_topic, KEYLESS, acks=7).error_code == ErrorCode.INVALID_REQUIRED_ACKS


def test_its_records_may_not_be_deleted(raw, offsets_topic):
    deleted = raw.delete_records(offsets_topic, 0)

    assert (deleted.error_code, deleted.low_watermark) == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
    assert raw.delete_records(offsets_topic, 0, partition=10_000).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_it_may_be_read(raw, offsets_topic):
    start = raw.list_offset(offsets_topic, EARLIEST).offset  # what was rewritten has left

    data = raw.fetch(offsets_topic, start)

    assert data.error_code == ErrorCode.NONE
    assert base_offsets(data.records) == sorted(base_offsets(data.records))


def test_it_is_told_to_be_internal(raw, offsets_topic, topic):
    asked = tuple(MetadataRequestTopic(name=name) for name in (offsets_topic.name, topic.name))

    told = {found.name: found.is_internal for found in raw.ask(MetadataRequest(topics=asked), 12).topics}

    assert told == {offsets_topic.name: True, topic.name: False}
