"""What is written out by hand, for speed, is what the codec writes and reads."""

from hypothesis import given
from hypothesis import strategies as st

from exactlog.core.codec.message_codec import encode_bytes
from exactlog.core.model.ids import ProducerEpoch, ProducerId, TimestampMs, TopicPartition
from exactlog.core.record.batch_builder import NewRecord, build_batch
from exactlog.core.record.control_record_format import TransactionMarker, build_marker_batch
from exactlog.core.transaction.entry import TransactionEntry
from exactlog.core.transaction.states import TransactionState
from exactlog.core.transaction.transaction_state_format import (
    TransactionLogKey,
    TransactionLogPartitions,
    TransactionLogValue,
    decode_transaction_value,
    encode_transaction_key,
    encode_transaction_value,
)

INT64 = st.integers(-(2**63), 2**63 - 1)
PRODUCER_IDS = st.just(-1) | st.integers(-1, 2**63 - 1)  # -1, "none", often: values that lack one end otherwise
EPOCHS = st.integers(-1, 2**15 - 1)
WRITTEN = [state for state in TransactionState if state.value < TransactionState.DEAD]
TOPICS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=200)


@st.composite
def entries(draw):
    state = draw(st.sampled_from(WRITTEN))
    partitions = draw(st.dictionaries(TOPICS, st.sets(st.integers(0, 2**31 - 1), min_size=1, max_size=40), max_size=3))
    found = sorted(TopicPartition(topic, index) for topic, indexes in partitions.items() for index in indexes)
    return TransactionEntry(
        transactional_id=draw(TOPICS),
        producer_id=draw(PRODUCER_IDS),
        producer_epoch=draw(EPOCHS),
        previous_producer_id=draw(PRODUCER_IDS),
        next_producer_id=draw(PRODUCER_IDS),
        last_producer_epoch=draw(EPOCHS),
        timeout_ms=draw(st.integers(0, 2**31 - 1)),
        state=state,
        partitions=() if state is TransactionState.EMPTY else tuple(found),
        start_time_ms=draw(INT64),
        last_update_ms=draw(INT64),
        client_transaction_version=draw(st.integers(0, 2)),
    )


def as_message(entry):
    topics = dict.fromkeys(topic for topic, _ in entry.partitions)
    by_topic = tuple(
        TransactionLogPartitions(topic=topic, partition_ids=tuple(i for name, i in entry.partitions if name == topic))
        for topic in topics
    )
    return TransactionLogValue(
        producer_id=entry.producer_id,
        previous_producer_id=entry.previous_producer_id,
        next_producer_id=entry.next_producer_id,
        producer_epoch=entry.producer_epoch,
        transaction_timeout_ms=entry.timeout_ms,
        transaction_status=entry.state,
        transaction_partitions=None if entry.state is TransactionState.EMPTY else by_topic,
        transaction_last_update_timestamp_ms=entry.last_update_ms,
        transaction_start_timestamp_ms=entry.start_time_ms,
        client_transaction_version=entry.client_transaction_version,
        last_producer_epoch=entry.last_producer_epoch,
    )


@given(entries())
def test_the_record_of_a_transactional_id_is_what_its_schema_says(entry):
    value = encode_transaction_value(entry)

    assert value == b"\x00\x01" + encode_bytes(as_message(entry), 1)
    assert decode_transaction_value(entry.transactional_id, value) == entry
    key = TransactionLogKey(transactional_id=entry.transactional_id)
    assert encode_transaction_key(entry.transactional_id) == b"\x00\x00" + encode_bytes(key, 0)


@given(
    st.booleans(),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**15 - 1),
    st.integers(0, 2**50),
)
def test_a_marker_is_the_control_batch_that_any_batch_builder_makes(is_commit, coordinator_epoch, pid, epoch, time_ms):
    marker = TransactionMarker(is_commit=is_commit, coordinator_epoch=coordinator_epoch)
    key = b"\x00\x00\x00" + bytes((is_commit,))
    value = b"\x00\x00" + coordinator_epoch.to_bytes(4)

    built = build_marker_batch(
        marker, producer_id=ProducerId(pid), producer_epoch=ProducerEpoch(epoch), timestamp_ms=TimestampMs(time_ms)
    )

    assert built == build_batch(
        [NewRecord(key=key, value=value, timestamp_ms=TimestampMs(time_ms))],
        producer_id=ProducerId(pid),
        producer_epoch=ProducerEpoch(epoch),
        is_transactional=True,
        is_control=True,
    )
