"""The starter of real Apache Kafka starts a real Apache Kafka."""

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.peers.apache_kafka import ApacheKafka

pytestmark = pytest.mark.peer


def test_a_record_sent_to_apache_kafka_comes_back(apache_kafka: ApacheKafka) -> None:
    producer = Producer({"bootstrap.servers": apache_kafka.bootstrap_servers})
    consumer = Consumer({"bootstrap.servers": apache_kafka.bootstrap_servers, "group.id": "unused"})

    producer.produce("greetings", key=b"k", value=b"hello")
    assert producer.flush(30) == 0
    consumer.assign([TopicPartition("greetings", 0, 0)])
    record = consumer.poll(30)
    consumer.close()

    assert record is not None
    assert (record.error(), record.key(), record.value()) == (None, b"k", b"hello")


def test_apache_kafka_tells_how_long_it_took_to_answer(apache_kafka: ApacheKafka) -> None:
    assert 0 < apache_kafka.start_times.api_versions_ms <= apache_kafka.start_times.metadata_ms
