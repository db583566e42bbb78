"""Idempotent producers on the wire: each batch once, whatever is lost, resent or overlapping (KIP-98, KIP-360)."""

import itertools

import pytest

from exactlog.core.model.error_code import ErrorCode
from tests.support.raw_client import BY_NAME, base_offsets, batch_of, offsets_and_values, produce_request, sequenced

SEQUENCE_MAX = 2**31 - 1

_producer_ids = itertools.count(1_000_000)


@pytest.fixture
def producer_id():
    """A producer id that no other test uses."""
    return next(_producer_ids)


def outcome(answer):
    return ErrorCode(answer.error_code), answer.base_offset


OUT_OF_ORDER = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, -1)


def appended(base_offset):
    return ErrorCode.NONE, base_offset


def receive_outcomes(client, count):
    return [outcome(client.receive().responses[0].partition_responses[0]) for _ in range(count)]


# --- five in flight -----------------------------------------------------------------------------------------------


def five_batches(topic, producer_id):
    """Batches of 1, 2, 3, 4 and 5 records."""
    starts = [0, 1, 3, 6, 10]
    return [
        (produce_request(topic, sequenced(producer_id, start, *[b"v%d" % start] * (size + 1))), BY_NAME)
        for size, start in enumerate(starts)
    ]


FIVE_OFFSETS = [0, 1, 3, 6, 10]


def test_five_batches_in_flight_whose_answers_are_lost_are_each_stored_once(connect, raw, topic, producer_id):
    """B081 (librdkafka #4953): what may have been stored is never answered as if it was not."""
    batches = five_batches(topic, producer_id)
    lost = connect()
    lost.send_all(*batches)
    assert lost.waits_for_answer()
    lost.close()

    again = connect()
    again.send_all(*batches)

    assert receive_outcomes(again, 5) == [appended(offset) for offset in FIVE_OFFSETS]
    assert base_offsets(raw.fetch(topic, 0).records) == FIVE_OFFSETS


def test_five_batches_resent_before_their_answers_have_come_are_each_stored_once(raw, topic, producer_id):
    """B080 (librdkafka #3575): a spurious OUT_OF_ORDER_SEQUENCE_NUMBER lost half a transaction."""
    batches = five_batches(topic, producer_id)

    raw.send_all(*batches, *batches)

    assert receive_outcomes(raw, 10) == [appended(offset) for offset in FIVE_OFFSETS * 2]
    assert base_offsets(raw.fetch(topic, 0).records) == FIVE_OFFSETS


@pytest.mark.parametrize("resent", range(5))
def test_any_of_the_last_five_gets_its_first_offset_again(raw, topic, producer_id, resent):
    """B062 (franz-go dced7214): a duplicate was answered with a new base offset."""
    batches = five_batches(topic, producer_id)
    raw.send_all(*batches, batches[resent])

    assert receive_outcomes(raw, 6)[-1] == appended(FIVE_OFFSETS[resent])
    assert raw.fetch(topic, 0).high_watermark == 15


def test_a_batch_older_than_the_last_five_is_out_of_order_and_not_stored_again(raw, topic, producer_id):
    for sequence in range(6):
        raw.produce(topic, sequenced(producer_id, sequence, b"v"))

    assert outcome(raw.produce(topic, sequenced(producer_id, 0, b"v"))) == OUT_OF_ORDER
    assert raw.fetch(topic, 0).high_watermark == 6


def test_a_resend_gets_the_first_append_time_again(raw, producer_id):
    topic = raw.create_topic(message_timestamp_type="LogAppendTime")
    first = raw.produce(topic, sequenced(producer_id, 0, b"v"))

    again = raw.produce(topic, sequenced(producer_id, 0, b"v"))

    assert (again.base_offset, again.log_append_time_ms) == (first.base_offset, first.log_append_time_ms)


def test_a_gap_in_flight_refuses_what_follows_and_the_producer_can_fill_it(raw, topic, producer_id):
    zero, one, two = (
        (produce_request(topic, sequenced(producer_id, sequence, b"%d" % sequence)), BY_NAME) for sequence in range(3)
    )

    raw.send_all(zero, two, one, two)

    assert receive_outcomes(raw, 4) == [appended(0), OUT_OF_ORDER, appended(1), appended(2)]
    assert offsets_and_values(raw.fetch(topic, 0).records) == [(0, b"0"), (1, b"1"), (2, b"2")]


# --- bounds of a batch --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sequence", "count"),
    [(0, 5), (0, 9), (5, 5), (9, 1), (0, 11), (5, 10)],
    ids=["head", "all but one", "tail", "last", "one more", "half new"],
)
def test_a_batch_that_overlaps_a_stored_one_is_out_of_order(raw, topic, producer_id, sequence, count):
    """B087 (librdkafka #4736, #4750): a retried batch is not always built with the same bounds."""
    raw.produce(topic, sequenced(producer_id, 0, *[b"v"] * 10))

    assert outcome(raw.produce(topic, sequenced(producer_id, sequence, *[b"v"] * count))) == OUT_OF_ORDER
    assert raw.fetch(topic, 0).high_watermark == 10


# --- the first sequence -------------------------------------------------------------------------------------------


def test_a_log_that_never_held_a_record_takes_a_new_producer_at_0_only(raw, topic, producer_id):
    """B059 (franz-go PR#1398 to #1417): which first sequence an unknown producer may use."""
    assert outcome(raw.produce(topic, sequenced(producer_id, 17, b"late"))) == OUT_OF_ORDER

    answers = [raw.produce(topic, sequenced(producer_id, sequence, *[b"v"] * 17)) for sequence in (0, 17)]

    assert [outcome(answer) for answer in answers] == [appended(0), appended(17)]


@pytest.mark.parametrize("sequence", [0, 7, SEQUENCE_MAX])
def test_a_log_with_records_takes_an_unknown_producer_at_any_sequence(raw, topic, producer_id, sequence):
    """B059 (franz-go PR#1398 to #1417): which first sequence an unknown producer may use."""
    raw.produce(topic, batch_of(b"somebody else's"))

    assert outcome(raw.produce(topic, sequenced(producer_id, sequence, b"v"))) == appended(1)


@pytest.mark.parametrize(("first", "count"), [(SEQUENCE_MAX - 7, 20), (SEQUENCE_MAX - 1, 2), (SEQUENCE_MAX, 1)])
def test_after_the_last_sequence_comes_0(raw, topic, producer_id, first, count):
    """B071 (kfake): sequences wrap at 2^31, not at 2^31 - 1."""
    following = count - (SEQUENCE_MAX - first) - 1
    raw.produce(topic, batch_of(b"somebody else's"))
    wrapping = sequenced(producer_id, first, *[b"v"] * count)

    assert outcome(raw.produce(topic, wrapping)) == appended(1)
    assert outcome(raw.produce(topic, sequenced(producer_id, following + 1, b"gap"))) == OUT_OF_ORDER
    assert outcome(raw.produce(topic, sequenced(producer_id, following, b"next"))) == appended(1 + count)
    assert outcome(raw.produce(topic, wrapping)) == appended(1)


# --- epochs -------------------------------------------------------------------------------------------------------


def test_a_higher_epoch_starts_at_0_and_fences_the_lower_one(raw, topic, producer_id):
    raw.produce(topic, sequenced(producer_id, 0, b"a", b"b", epoch=3))

    assert outcome(raw.produce(topic, sequenced(producer_id, 2, b"c", epoch=4))) == OUT_OF_ORDER
    assert outcome(raw.produce(topic, sequenced(producer_id, 0, b"c", epoch=4))) == appended(2)
    assert outcome(raw.produce(topic, sequenced(producer_id, 2, b"zombie", epoch=3))) == FENCED
    assert outcome(raw.produce(topic, sequenced(producer_id, 0, b"a", b"b", epoch=3))) == FENCED
    assert outcome(raw.produce(topic, sequenced(producer_id, 1, b"d", epoch=4))) == appended(3)


# --- whose state it is --------------------------------------------------------------------------------------------


def test_partitions_and_producers_number_by_themselves(raw, producer_id):
    topic = raw.create_topic(partitions=2)
    other_producer = next(_producer_ids)

    answers = [
        raw.produce(topic, sequenced(who, sequence, b"v"), partition=partition)
        for sequence in (0, 1)
        for who in (producer_id, other_producer)
        for partition in (0, 1)
    ]

    assert [outcome(answer) for answer in answers] == [appended(offset) for offset in (0, 0, 1, 1, 2, 2, 3, 3)]


def test_batches_of_no_producer_between_them_do_not_count(raw, topic, producer_id):
    raw.produce(topic, sequenced(producer_id, 0, b"a"))
    raw.produce(topic, batch_of(b"x"))
    raw.produce(topic, batch_of(b"x"))

    assert outcome(raw.produce(topic, sequenced(producer_id, 1, b"b"))) == appended(3)


def test_a_refused_batch_leaves_the_producer_where_it_was(raw, producer_id):
    topic = raw.create_topic(max_message_bytes=1_000)
    raw.produce(topic, sequenced(producer_id, 0, b"a"))

    assert raw.produce(topic, sequenced(producer_id, 1, b"x" * 2_000)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert outcome(raw.produce(topic, sequenced(producer_id, 1, b"b"))) == appended(1)
