"""A disk that is full, cannot be read or cannot be synced: what clients are told, and who is not concerned."""

import errno

import pytest

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import DamageError
from exactlog.core.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from exactlog.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.faulty_broker import FaultyBroker
from tests.support.raw_client import ConnectionClosed, batch_of, offsets_and_values, sequenced


@pytest.fixture
def faulty():
    with FaultyBroker() as faulty:
        yield faulty


def test_a_full_disk_refuses_the_batch_and_the_resend_is_taken_when_there_is_room(faulty):
    client = faulty.connect()
    topic = client.create_topic()
    client.produce(topic, sequenced(1, 0, b"before"))

    faulty.files.capacity_bytes = faulty.files.used_bytes
    refused = client.produce(topic, sequenced(1, 1, b"v"))
    fetched = client.fetch(topic, 0)
    faulty.files.capacity_bytes = None

    assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert offsets_and_values(fetched.records) == [(0, b"before")]
    assert client.produce(topic, sequenced(1, 1, b"v")).base_offset == 1
    assert offsets_and_values(client.fetch(topic, 0).records) == [(0, b"before"), (1, b"v")]


def test_a_full_disk_refuses_a_topic_and_its_name_is_free_when_there_is_room(faulty):
    client = faulty.connect()
    request = CreateTopicsRequest(topics=(CreatableTopic(name="t", num_partitions=1, replication_factor=1),))

    faulty.files.capacity_bytes = faulty.files.used_bytes
    (refused,) = client.ask(request, 7).topics
    faulty.files.capacity_bytes = None

    assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert client.ask(request, 7).topics[0].error_code == ErrorCode.NONE


def test_a_topic_that_cannot_be_created_by_being_named_is_refused_as_such(faulty):
    client = faulty.connect()

    faulty.files.capacity_bytes = faulty.files.used_bytes
    (described,) = client.ask(MetadataRequest(topics=(MetadataRequestTopic(name="t"),)), 12).topics

    assert described.error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_what_cannot_be_read_is_refused_and_can_be_read_when_the_disk_can(faulty):
    client = faulty.connect()
    topic = client.create_topic()
    client.produce(topic, batch_of(b"v"))

    with faulty.files.fail("read_at", times=None):
        errors = [client.fetch(topic, 0, max_wait_ms=10_000).error_code, client.list_offset(topic, 0).error_code]

    assert errors == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    assert offsets_and_values(client.fetch(topic, 0).records) == [(0, b"v")]
    assert client.list_offset(topic, 0).offset == 0


@pytest.mark.parametrize("fault", [DamageError("version 3 is missing"), OSError(errno.EIO, "Input/output error")])
def test_a_partition_that_cannot_be_opened_is_refused_and_the_others_are_served(faulty, monkeypatch, fault):
    client = faulty.connect()
    topic = client.create_topic(partitions=2)
    store = faulty.broker._node._parts.topics._store
    open_on_disk = store.open

    def open_or_fail(key, *rest):
        if key.partition == 0:
            raise fault
        return open_on_disk(key, *rest)

    monkeypatch.setattr(store, "open", open_or_fail)
    errors = [
        client.produce(topic, batch_of(b"v")).error_code,
        client.fetch(topic, 0, max_wait_ms=10_000).error_code,
        client.list_offset(topic, -1).error_code,
    ]

    assert errors == [ErrorCode.KAFKA_STORAGE_ERROR] * 3
    assert client.produce(topic, batch_of(b"v"), partition=1).base_offset == 0
    assert client.fetch(topic, 0, partition=1).high_watermark == 1


def test_after_a_failed_sync_nobody_gets_an_answer_and_the_broker_stops(faulty):
    writer, reader = faulty.connect(), faulty.connect()
    topic = writer.create_topic()
    faulty.files.fail("sync", "sync_data", times=None)

    with pytest.raises(ConnectionClosed):
        writer.produce(topic, batch_of(b"v"))

    assert reader.is_closed()
    with pytest.raises(ConnectionRefusedError):
        faulty.connect()
