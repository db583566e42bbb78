"""What a client produces it consumes again: content, time, compression, size, from any place of the log."""

import pytest

from exactlog.core.model.ids import ZERO_UUID
from exactlog.core.record.batch_builder import NewRecord, build_batch
from tests.conformance.clients.face import Received, Sent, refused
from tests.support.raw_client import RawClient, Topic

FIRST_MS = 1_700_000_000_000
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]

RECORDS = [
    Sent(b"value " * 100, b"key", (("trace", b"\x00\xff"), ("trace", b"twice"), ("\u00e9", b"accent"))),
    Sent(b"no key", timestamp_ms=FIRST_MS + 1),
    Sent(None, b"tombstone", timestamp_ms=FIRST_MS - 86_400_000),
]
EMPTY_RECORDS = [Sent(b"", b"key"), Sent(b"value", b""), Sent(b"value", b"key", (("nothing in it", b""),))]


def as_received(records, *, base_offset=0):
    return [
        Received(base_offset + index, record.value, record.key, record.headers, record.timestamp_ms)
        for index, record in enumerate(records)
    ]


def numbered(count, **fields):
    return [Sent(b"%d" % index, timestamp_ms=FIRST_MS + 10 * index, **fields) for index in range(count)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.needs("produce", "consume")
def test_every_kind_of_record_comes_back_as_it_was(client, topic, codec):
    offsets = client.produce(topic, RECORDS, compression=codec)

    assert offsets == list(range(len(RECORDS)))
    assert client.consume(topic, 0, len(RECORDS)) == as_received(RECORDS)


@pytest.mark.needs("produce", "consume", "empty")
def test_an_empty_value_is_not_an_absent_one(client, topic):
    client.produce(topic, EMPTY_RECORDS)

    assert client.consume(topic, 0, len(EMPTY_RECORDS)) == as_received(EMPTY_RECORDS)


@pytest.mark.needs("produce", "consume")
def test_a_record_with_neither_key_nor_value_can_be_read(bootstrap_servers, client, topic):
    nothing = NewRecord(None, headers=(("only", b"headers"),), timestamp_ms=FIRST_MS)
    with RawClient(int(bootstrap_servers.rpartition(":")[2])) as raw:  # not every client can produce it
        raw.produce(Topic(topic, ZERO_UUID), build_batch([nothing]))

    assert client.consume(topic, 0, 1) == [Received(0, None, None, (("only", b"headers"),), FIRST_MS)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.needs("produce", "idempotence")
def test_an_idempotent_producer_stores_each_record_once_and_in_order(client, topic, codec):
    records = numbered(500)

    offsets = client.produce(topic, records, compression=codec, idempotent=True)

    assert offsets == list(range(500))
    assert client.ends(topic) == (0, 500)
    assert client.consume(topic, 0, 500) == as_received(records)


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@pytest.mark.needs("produce", "consume")
def test_records_arrive_whatever_the_acknowledgement(client, topic, acks):
    records = numbered(50)

    offsets = client.produce(topic, records, acks=acks)

    assert client.consume(topic, 0, 50) == as_received(records)
    if acks != "0":
        assert offsets == list(range(50))


@pytest.mark.parametrize("codec", ["none", "lz4"])
@pytest.mark.needs("produce", "consume")
def test_a_record_of_10_megabytes_comes_back(client, new_name, codec):
    client.create_topic(new_name, config={"max.message.bytes": str(16 * 1024 * 1024)})
    large = Sent(bytes(range(256)) * (10 * 1024 * 1024 // 256), b"large")

    client.produce(new_name, [Sent(b"before"), large, Sent(b"after")], compression=codec)

    assert client.consume(new_name, 0, 3) == as_received([Sent(b"before"), large, Sent(b"after")])


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.needs("produce", "consume")
def test_a_consumer_starts_anywhere_in_a_batch(client, topic, codec):
    records = numbered(100)
    client.produce(topic, records, compression=codec)

    for start in (1, 50, 99):
        assert client.consume(topic, start, 100 - start) == as_received(records)[start:]


@pytest.mark.needs("produce", "consume")
def test_several_producers_one_after_the_other_append_to_one_log(client, topic):
    for turn in range(3):
        assert client.produce(topic, numbered(4)) == [4 * turn + index for index in range(4)]

    assert [record.offset for record in client.consume(topic, 2, 10)] == list(range(2, 12))


@pytest.mark.needs("produce", "idempotence")
def test_records_stay_in_their_partitions(client, new_name):
    client.create_topic(new_name, partitions=12)
    records = [Sent(b"%d" % index, partition=index % 12) for index in range(120)]

    client.produce(new_name, records, idempotent=True)

    for partition in (0, 5, 11):
        assert client.ends(new_name, partition=partition) == (0, 10)
        assert client.consume(new_name, 0, 10, partition=partition) == as_received(records[partition::12])


@pytest.mark.needs("produce", "consume")
def test_the_ends_of_a_log_are_told(client, topic):
    assert client.ends(topic) == (0, 0)
    client.produce(topic, numbered(7))
    assert client.ends(topic) == (0, 7)


@pytest.mark.needs("produce", "consume")
def test_a_time_finds_the_first_record_that_is_not_older(client, topic):
    client.produce(topic, numbered(10))

    found = {after_ms: client.offset_at(topic, FIRST_MS + after_ms) for after_ms in (-1, 0, 1, 10, 45, 90, 91, 10**9)}

    assert found == {-1: 0, 0: 0, 1: 1, 10: 1, 45: 5, 90: 9, 91: None, 10**9: None}


@pytest.mark.needs("produce", "consume")
def test_a_consumer_goes_on_from_a_time(client, topic):
    records = numbered(10)
    client.produce(topic, records)

    assert client.consume(topic, client.offset_at(topic, FIRST_MS + 25), 7) == as_received(records)[3:]


@pytest.mark.needs("produce", "consume", "append time")
def test_append_time_takes_the_place_of_the_producers_time(client, new_name, now_ms):
    client.create_topic(new_name, config={"message.timestamp.type": "LogAppendTime"})
    before_ms = now_ms()

    client.produce(new_name, numbered(3), compression="gzip")

    received = client.consume(new_name, 0, 3)
    assert [record.value for record in received] == [b"0", b"1", b"2"]
    assert all(before_ms <= record.timestamp_ms <= now_ms() for record in received)
    assert client.offset_at(new_name, before_ms) == 0


@pytest.mark.needs("produce", "consume")
def test_a_consumer_beyond_the_end_is_told_so(client, topic):
    client.produce(topic, numbered(3))

    with refused("OFFSET_OUT_OF_RANGE"):
        client.consume(topic, 1_000, 1)


@pytest.mark.only_exactlog  # Apache Kafka has no segments so small
@pytest.mark.needs("produce", "consume")
def test_a_log_of_many_segments_is_read_to_its_end(client, new_name):
    client.create_topic(new_name, config={"segment.bytes": "2000"})
    records = [Sent(b"%d" % index * 50) for index in range(300)]
    for start in range(0, 300, 100):
        client.produce(new_name, records[start : start + 100])

    assert client.consume(new_name, 0, 300) == as_received(records)
