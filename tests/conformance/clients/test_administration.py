"""Topics come, are described and go by way of each client's administration, or by being written to."""

import pytest

from tests.conformance.clients.adapters import Received, Sent, TopicExists


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


def test_writing_to_an_unknown_topic_makes_it(client, new_name):
    sent = Sent(b"first", b"k")

    assert client.produce(new_name, [sent]) == [0]

    assert client.partition_counts()[new_name] == 1
    assert client.consume(new_name, 0, 1) == [Received(0, sent.value, sent.key, (), sent.timestamp_ms)]
