"""Topics come, are described and go by way of each client's administration, or by being written to."""

import pytest

from tests.conformance.clients.adapters import OffsetOutOfRange, Received, Sent, TopicExists


def test_a_topic_is_created_listed_described_and_deleted(client, new_name):
    client.create_topic(new_name, partitions=3, config={"retention.ms": "12345", "cleanup.policy": "compact"})

    assert client.partition_counts()[new_name] == 3
    settings = client.settings(new_name)
    assert (settings["retention.ms"], settings["cleanup.policy"]) == ("12345", "compact")
    assert settings["segment.bytes"] == "1073741824"

    client.delete_topic(new_name)
    assert new_name not in client.partition_counts()


def test_a_topic_that_is_there_is_not_created_again(client, topic):
    client.produce(topic, [Sent(b"v")])

    with pytest.raises(TopicExists):
        client.create_topic(topic, partitions=5)

    assert client.partition_counts()[topic] == 1
    assert client.ends(topic) == (0, 1)


def test_a_topic_that_was_deleted_can_be_made_anew_and_is_empty(client, topic):
    client.produce(topic, [Sent(b"old")] * 5, idempotent=True)
    client.delete_topic(topic)

    client.create_topic(topic, partitions=2)

    assert client.partition_counts()[topic] == 2
    assert client.ends(topic) == (0, 0)
    assert client.produce(topic, [Sent(b"new")], idempotent=True) == [0]


def test_records_below_an_offset_are_deleted_and_the_rest_is_read_on(client, topic):
    client.produce(topic, [Sent(b"%d" % index) for index in range(5)])

    assert client.delete_records(topic, 3) == 3

    assert client.ends(topic) == (3, 5)
    assert [record.value for record in client.consume(topic, 3, 2)] == [b"3", b"4"]
    with pytest.raises(OffsetOutOfRange):
        client.consume(topic, 2, 1)


def test_all_records_are_deleted_and_the_next_one_follows(client, topic):
    client.produce(topic, [Sent(b"old")] * 5)
    high_watermark = -1

    assert client.delete_records(topic, high_watermark) == 5

    assert client.ends(topic) == (5, 5)
    assert client.produce(topic, [Sent(b"new")]) == [5]


def test_records_that_are_not_there_cannot_be_deleted(client, topic):
    client.produce(topic, [Sent(b"v")])

    with pytest.raises(OffsetOutOfRange):
        client.delete_records(topic, 2)
    assert client.ends(topic) == (0, 1)


def test_writing_to_an_unknown_topic_makes_it(client, new_name):
    sent = Sent(b"first", b"k")

    assert client.produce(new_name, [sent]) == [0]

    assert client.partition_counts()[new_name] == 1
    assert client.consume(new_name, 0, 1) == [Received(0, sent.value, sent.key, (), sent.timestamp_ms)]
