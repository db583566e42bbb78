"""The records of `__transaction_state`, against bytes that the classes of Apache Kafka 4.4 wrote."""

import pytest
from msgspec.structs import replace

from exactlog.core.model.decisions import UnknownRecord
from exactlog.core.model.errors import DecodeError
from exactlog.core.model.ids import ProducerEpoch, ProducerId, TopicPartition
from exactlog.core.transaction.entry import TransactionEntry
from exactlog.core.transaction.states import TransactionState
from exactlog.core.transaction.transaction_record import TransactionRecord, decode_record

KEY = "000000087061796d656e7473"
BEGINNING = "00000000ee6b280100070000ea6001"
PLAIN = "0002000562696c6c73000000010000000300066f7264657273000000020000000000000005"
COMPACT = "030662696c6c73020000000300076f726465727303000000000000000500"
TIMES = "0000018bcfe568000000018bcfe56418"
VALUE_V0 = "0000" + BEGINNING + "0000" + PLAIN + TIMES
VALUE_V1 = "0001" + BEGINNING + COMPACT + TIMES + "00"
VALUE_V1_WITH_TAGS = "0001" + BEGINNING + COMPACT + TIMES + "03000800000000ee6b2801010800000000ee6b280202020002"
VALUE_V1_WITH_UNKNOWN_TAG = "0001" + BEGINNING + COMPACT + TIMES + "014d03010203"
EMPTY_V0 = "0000000000000000000500000000ea6000ffffffff0000018bcfe56800ffffffffffffffff"
EMPTY_V1 = "0001000000000000000500000000ea6000000000018bcfe56800ffffffffffffffff0100080000000000000005"

ONGOING = TransactionEntry(
    transactional_id="payments",
    producer_id=ProducerId(4_000_000_001),
    producer_epoch=ProducerEpoch(7),
    timeout_ms=60_000,
    state=TransactionState.ONGOING,
    partitions=(TopicPartition("bills", 3), TopicPartition("orders", 0), TopicPartition("orders", 5)),
    start_time_ms=1_699_999_999_000,
    last_update_ms=1_700_000_000_000,
)
WITH_TAGS = replace(
    ONGOING,
    previous_producer_id=ProducerId(4_000_000_001),
    next_producer_id=ProducerId(4_000_000_002),
    client_transaction_version=2,
)
EMPTY = TransactionEntry(
    transactional_id="payments",
    producer_id=ProducerId(5),
    producer_epoch=ProducerEpoch(0),
    timeout_ms=60_000,
    state=TransactionState.EMPTY,
    last_update_ms=1_700_000_000_000,
)


def decoded(value, key=KEY):
    return decode_record(bytes.fromhex(key), bytes.fromhex(value))


@pytest.mark.parametrize(
    ("value", "entry"),
    [
        (VALUE_V0, ONGOING),
        (VALUE_V1, ONGOING),
        (VALUE_V1_WITH_TAGS, WITH_TAGS),
        (VALUE_V1_WITH_UNKNOWN_TAG, ONGOING),
        (EMPTY_V0, EMPTY),
        (EMPTY_V1, replace(EMPTY, previous_producer_id=ProducerId(5))),
    ],
)
def test_what_kafka_writes_is_read_in_every_version(value, entry):
    assert decoded(value) == TransactionRecord("payments", entry)


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        (ONGOING, VALUE_V1),
        (WITH_TAGS, VALUE_V1_WITH_TAGS),
        (replace(EMPTY, previous_producer_id=ProducerId(5)), EMPTY_V1),
    ],
)
def test_what_is_written_is_what_kafka_writes(entry, value):
    record = TransactionRecord("payments", entry)

    assert record.encode_key().hex() == KEY
    assert record.encode_value().hex() == value


def test_the_epoch_that_may_be_retried_stands_in_a_tag_of_its_own():
    record = TransactionRecord("payments", replace(ONGOING, last_producer_epoch=ProducerEpoch(6)))

    value = record.encode_value().hex()
    assert value == VALUE_V1[:-2] + "01" + "904e" + "02" + "0006"
    assert decoded(value) == record


def test_no_value_says_that_the_id_is_no_more():
    record = TransactionRecord("payments", None)

    assert record.encode_value() is None
    assert decode_record(record.encode_key(), None) == record


@pytest.mark.parametrize("value", [b"anything", None])
def test_a_key_of_another_kind_is_kept_as_it_is(value):
    record = decode_record(b"\x00\x01whatever", value)

    assert record == UnknownRecord(b"\x00\x01whatever", value)
    assert (record.encode_key(), record.encode_value()) == (b"\x00\x01whatever", value)


@pytest.mark.parametrize("state", [-1, 6, 7, 8])
def test_a_state_that_is_never_written_is_refused(state):
    value = bytearray.fromhex(VALUE_V1)
    value[16:17] = state.to_bytes(1, "big", signed=True)

    with pytest.raises(DecodeError, match=f"payments: no such state: {state}"):
        decode_record(bytes.fromhex(KEY), bytes(value))


@pytest.mark.parametrize("key", ["", "00", "0000", "00000008706179"])
def test_a_key_that_is_cut_short_is_refused(key):
    with pytest.raises(DecodeError):
        decode_record(bytes.fromhex(key), None)


@pytest.mark.parametrize("value", ["", "00", "0002" + VALUE_V1[4:], "ffff" + VALUE_V1[4:]])
def test_a_value_of_no_version_that_is_known_is_refused(value):
    with pytest.raises(DecodeError):
        decoded(value)


@pytest.mark.parametrize("value", [VALUE_V0, VALUE_V1_WITH_TAGS, EMPTY_V1])
def test_a_value_that_is_cut_short_is_refused(value):
    whole = bytes.fromhex(value)
    for size in range(len(whole)):
        with pytest.raises(DecodeError):
            decode_record(bytes.fromhex(KEY), whole[:size])
