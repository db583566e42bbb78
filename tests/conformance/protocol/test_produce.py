"""Produce: acknowledgements, several partitions at once, and what the topic's configuration does."""

import uuid

import pytest

from exactlog.core.codec.compression import Compression
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.api_versions import ApiVersionsRequest
from exactlog.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from exactlog.core.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from exactlog.core.record.batch_builder import NewRecord, build_batch
from exactlog.core.record.batch_format import decode_header
from exactlog.core.record.record_format import decode_records
from tests.support.raw_client import (
    BY_ID,
    BY_NAME,
    Topic,
    base_offsets,
    batch_of,
    offsets_and_values,
    produce_request,
    sequenced,
)

DAY_MS = 86_400_000


def metadata_of(topic):
    return MetadataRequest(topics=(MetadataRequestTopic(name=topic.name),))


@pytest.mark.parametrize("acks", [1, -1])
def test_an_acknowledged_batch_can_be_read(raw, topic, acks):
    answers = [raw.produce(topic, batch_of(b"a", b"b"), acks=acks), raw.produce(topic, batch_of(b"c"), acks=acks)]

    assert [(answer.error_code, answer.base_offset) for answer in answers] == [(0, 0), (0, 2)]
    fetched = raw.fetch(topic, 0)
    assert offsets_and_values(fetched.records) == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert (fetched.high_watermark, fetched.last_stable_offset, fetched.log_start_offset) == (3, 3, 0)


def test_acks_0_gets_no_answer_and_the_next_request_of_the_connection_does(raw, topic):
    raw.send(produce_request(topic, batch_of(b"unacknowledged"), acks=0), BY_NAME, is_answered=False)

    (described,) = raw.ask(metadata_of(topic), 12).topics

    assert described.name == topic.name
    assert offsets_and_values(raw.fetch(topic, 0, max_wait_ms=10_000).records) == [(0, b"unacknowledged")]


def test_acks_0_answers_of_others_are_not_mixed_up(raw, topic):
    silent = produce_request(topic, batch_of(b"silent"), acks=0)
    loud = produce_request(topic, batch_of(b"loud"))

    for _ in range(3):
        raw.send(silent, BY_NAME, is_answered=False)
        raw.send(loud, BY_NAME)

    answers = [raw.receive().responses[0].partition_responses[0].base_offset for _ in range(3)]
    assert answers == [1, 3, 5]


def test_an_error_with_acks_0_closes_the_connection(connect, topic):
    lost = connect()
    lost.send(
        produce_request(Topic("no-such-topic", topic.topic_id), batch_of(b"a"), acks=0), BY_NAME, is_answered=False
    )

    assert lost.is_closed()


def test_a_batch_refused_for_its_sequence_with_acks_0_closes_the_connection(connect, raw, topic):
    lost = connect()
    lost.send(produce_request(topic, sequenced(7001, 5, b"a"), acks=0), BY_NAME, is_answered=False)

    assert lost.is_closed()
    assert raw.fetch(topic, 0).high_watermark == 0


def test_a_batch_refused_for_its_sequence_with_acks_0_behind_a_good_one_closes_the_connection(connect, raw, topic):
    lost = connect()
    good = produce_request(topic, sequenced(7002, 0, b"a"), acks=0)
    gap = produce_request(topic, sequenced(7002, 2, b"c"), acks=0)
    lost.send_all((good, BY_NAME), (gap, BY_NAME), is_answered=False)

    assert lost.is_closed()
    assert offsets_and_values(raw.fetch(topic, 0, max_wait_ms=10_000).records) == [(0, b"a")]


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_other_acks_are_refused(raw, topic, acks):
    answer = raw.produce(topic, batch_of(b"a"), acks=acks)

    assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_REQUIRED_ACKS, -1)
    assert raw.fetch(topic, 0).high_watermark == 0


def test_one_request_may_bring_many_partitions_and_a_bad_one_harms_no_other(raw):
    topic, other = raw.create_topic(partitions=3), raw.create_topic()
    corrupt = batch_of(b"corrupt")
    corrupt[-1] ^= 1
    data = (
        TopicProduceData(
            name=topic.name,
            partition_data=(
                PartitionProduceData(index=2, records=batch_of(b"two")),
                PartitionProduceData(index=1, records=corrupt),
                PartitionProduceData(index=3, records=batch_of(b"no such partition")),
                PartitionProduceData(index=0, records=batch_of(b"zero", b"nil")),
            ),
        ),
        TopicProduceData(
            name="no-such-topic", partition_data=(PartitionProduceData(index=0, records=batch_of(b"nowhere")),)
        ),
        TopicProduceData(
            name=other.name, partition_data=(PartitionProduceData(index=0, records=batch_of(b"elsewhere")),)
        ),
    )

    response = raw.ask(ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=data), BY_NAME)

    assert [
        (of_topic.name, answer.index, answer.error_code, answer.base_offset)
        for of_topic in response.responses
        for answer in of_topic.partition_responses
    ] == [
        (topic.name, 2, 0, 0),
        (topic.name, 1, ErrorCode.CORRUPT_MESSAGE, -1),
        (topic.name, 3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (topic.name, 0, 0, 0),
        ("no-such-topic", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (other.name, 0, 0, 0),
    ]
    assert [raw.fetch(topic, 0, partition=index).high_watermark for index in range(3)] == [2, 0, 1]
    assert raw.fetch(other, 0).high_watermark == 1


def test_a_topic_named_by_id_is_found_by_its_id(raw, topic):
    nameless = Topic("", topic.topic_id)

    response = raw.ask(produce_request(nameless, batch_of(b"a")), BY_ID)

    (of_topic,) = response.responses
    assert (of_topic.topic_id, of_topic.partition_responses[0].base_offset) == (topic.topic_id, 0)


def test_an_unknown_topic_id_is_refused_as_such(raw, topic):
    answer = raw.produce(topic._replace(topic_id=uuid.uuid4()), batch_of(b"a"), version=BY_ID)

    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_batch_as_large_as_the_topic_allows_is_taken_and_one_byte_more_is_not(raw):
    """B053 (nisshi, compatibility findings): max.message.bytes was not enforced."""
    batch = batch_of(b"x" * 1_000)
    fits = raw.create_topic(max_message_bytes=len(batch))
    short_by_one = raw.create_topic(max_message_bytes=len(batch) - 1)

    assert raw.produce(fits, batch).error_code == 0
    assert raw.produce(short_by_one, batch).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert raw.fetch(short_by_one, 0).high_watermark == 0


def test_the_bytes_that_were_produced_come_back_but_for_offset_and_leader_epoch(raw, topic):
    raw.produce(topic, batch_of(b"first"))
    batch = build_batch(
        [NewRecord(b"v" * 500, key=b"k", headers=(("h", b"1"), ("h", None)), timestamp_ms=1_700_000_000_000)],
        compression=Compression.LZ4,
    )

    raw.produce(topic, batch)

    stored = bytes(raw.fetch(topic, 1).records)
    assert stored[8:12] + stored[16:] == batch[8:12] + batch[16:]


def test_append_time_is_told_to_the_producer_and_to_every_reader(raw):
    topic = raw.create_topic(message_timestamp_type="LogAppendTime")
    records = [NewRecord(b"a", timestamp_ms=5), NewRecord(b"b", timestamp_ms=DAY_MS * 100_000)]

    answer = raw.produce(topic, build_batch(records, compression=Compression.GZIP))

    assert answer.error_code == 0
    assert answer.log_append_time_ms > 1_700_000_000_000
    stored = raw.fetch(topic, 0).records
    assert decode_header(stored).is_log_append_time
    assert {record.timestamp_ms for record in decode_records(stored)} == {answer.log_append_time_ms}


def test_a_topic_with_create_time_tells_no_append_time(raw, topic):
    assert raw.produce(topic, batch_of(b"a")).log_append_time_ms == -1


@pytest.mark.parametrize("ahead_ms", [2 * 3_600_000, DAY_MS * 3_650])
def test_a_timestamp_too_far_in_the_future_is_refused(broker, raw, topic, ahead_ms):
    now_ms = broker.clock.now_ms()

    answer = raw.produce(topic, build_batch([NewRecord(b"a", timestamp_ms=now_ms + ahead_ms)]))

    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP


def test_a_timestamp_older_than_the_topic_allows_is_refused(broker, raw):
    topic = raw.create_topic(message_timestamp_before_max_ms=60_000)
    now_ms = broker.clock.now_ms()

    answers = [
        raw.produce(topic, build_batch([NewRecord(b"a", timestamp_ms=now_ms - age_ms)])) for age_ms in (0, 120_000)
    ]

    assert [answer.error_code for answer in answers] == [0, ErrorCode.INVALID_TIMESTAMP]


def test_a_compacted_topic_names_the_record_without_a_key(raw):
    """B053 (nisshi, compatibility findings): a record without a key was taken on a compacted topic."""
    topic = raw.create_topic(cleanup_policy="compact")
    records = [NewRecord(b"a", key=b"k"), NewRecord(b"b"), NewRecord(b"c", key=b"k")]

    answer = raw.produce(topic, build_batch(records, compression=Compression.ZSTD))

    assert answer.error_code == ErrorCode.INVALID_RECORD
    (fault,) = answer.record_errors
    assert fault.batch_index == 1
    assert "key" in fault.batch_index_error_message
    assert raw.produce(topic, build_batch([NewRecord(b"a", key=b"k")])).base_offset == 0


def test_zstd_is_refused_from_clients_that_cannot_know_it(raw, topic):
    batch = batch_of(b"z" * 100, compression=Compression.ZSTD)

    answers = [raw.produce(topic, batch, version=version) for version in (3, 6, 7)]

    unsupported = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert [answer.error_code for answer in answers] == [unsupported, unsupported, 0]


def test_acks_all_is_refused_where_more_replicas_are_demanded_than_there_are(raw):
    topic = raw.create_topic(min_insync_replicas=2)

    answers = [raw.produce(topic, batch_of(b"a"), acks=acks) for acks in (-1, 1)]

    assert [answer.error_code for answer in answers] == [ErrorCode.NOT_ENOUGH_REPLICAS, 0]


def test_a_request_without_partitions_is_answered(raw):
    assert raw.ask(ProduceRequest(acks=-1), BY_NAME).responses == ()


def test_many_requests_in_one_piece_are_answered_in_their_order(raw, topic):
    produce = produce_request(topic, batch_of(b"v"))

    raw.send_all(*[request for _ in range(20) for request in ((produce, BY_NAME), (metadata_of(topic), 9))])

    offsets = []
    for _ in range(20):
        offsets.append(raw.receive().responses[0].partition_responses[0].base_offset)
        assert raw.receive().topics[0].name == topic.name
    assert offsets == list(range(20))
    assert base_offsets(raw.fetch(topic, 0).records) == list(range(20))


def test_more_requests_in_flight_than_the_broker_reads_ahead_are_all_answered(raw, topic):
    raw.send_all(*[(produce_request(topic, batch_of(b"v")), BY_NAME)] * 500, (ApiVersionsRequest(), 0))

    offsets = [raw.receive().responses[0].partition_responses[0].base_offset for _ in range(500)]

    assert offsets == list(range(500))
    assert raw.receive().error_code == 0


def test_acks_that_do_not_exist_are_refused_where_there_is_a_partition(raw, topic):
    nowhere = topic._replace(name="no-such-topic")
    damaged = bytes(batch_of(b"a")[:-1]) + b"?"

    errors = [
        raw.produce(each, batch, acks=2).error_code
        for each, batch in ((topic, batch_of(b"a")), (topic, damaged), (nowhere, batch_of(b"a")))
    ]

    invalid = ErrorCode.INVALID_REQUIRED_ACKS
    assert errors == [invalid, invalid, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_transactional_batch_without_a_transactional_id_refuses_the_whole_request(raw, topic):
    other = raw.create_topic()
    batches = (
        (other, batch_of(b"a")),
        (topic, batch_of(b"b", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)),
    )
    data = tuple(
        TopicProduceData(name=each.name, partition_data=(PartitionProduceData(index=0, records=records),))
        for each, records in batches
    )

    answer = raw.ask(ProduceRequest(acks=-1, topic_data=data), BY_NAME)

    errors = [part.error_code for of_topic in answer.responses for part in of_topic.partition_responses]
    assert errors == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    assert base_offsets(raw.fetch(other, 0).records) == []
