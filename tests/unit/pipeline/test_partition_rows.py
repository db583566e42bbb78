"""Rows go where Kafka's clients would send their records, in columns instead of one by one."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.client.wire.partitioner import partition_of_key
from exactlog.core.codec.compression import Compression
from exactlog.core.model.errors import NotFoundError
from exactlog.core.model.ids import TopicPartition
from exactlog.core.record.record_format import decode_records
from exactlog.pipeline.partition_rows import PartitionedRows, partitions_of_keys
from exactlog.pipeline.record_rows import InvalidRowError, build_batch_of_rows

COUNTS = {"orders": 3, "payments": 5}
keys = st.lists(st.one_of(st.none(), st.binary(max_size=40), st.binary(min_size=7, max_size=9)), max_size=60)


def count_of(topic):
    if topic not in COUNTS:
        raise NotFoundError(f"topic {topic} does not exist")
    return COUNTS[topic]


def cut(columns, *, topic="orders", spread_from=0):
    """Values by partition, in order."""
    batch = pa.record_batch([pa.array(values, type_) for values, type_ in columns.values()], list(columns))
    partitioned = PartitionedRows(topic, count_of, spread_from=spread_from, now_ms=lambda: 7)
    found = {}
    for place, rows in partitioned.cut(batch):
        assert place not in found
        built = build_batch_of_rows(
            rows, compression=Compression.NONE, producer_id=0, producer_epoch=0, base_sequence=0
        )
        found[place] = [record.value for record in decode_records(built)]
    return found


@given(keys, st.integers(1, 100), st.integers(0, 5))
def test_keys_in_a_column_are_hashed_as_each_alone(given_, count, start):
    column = pa.array(given_, pa.binary()).slice(start)
    assert partitions_of_keys(column, partition_count=count).tolist() == [
        -1 if key is None else partition_of_key(key, partition_count=count) for key in given_[start:]
    ]


@given(st.lists(st.tuples(st.binary(max_size=9), st.one_of(st.none(), st.integers(0, 2))), max_size=40))
def test_a_row_goes_where_it_says_else_where_its_key_does_and_keeps_its_place(rows):
    expected = {}
    for number, (key, partition) in enumerate(rows):
        at = partition_of_key(key, partition_count=3) if partition is None else partition
        expected.setdefault(TopicPartition("orders", at), []).append(b"%d" % number)
    columns = {
        "value": ([b"%d" % number for number in range(len(rows))], pa.binary()),
        "key": ([key for key, _ in rows], pa.binary()),
        "partition": ([partition for _, partition in rows], pa.int32()),
    }
    assert cut(columns) == expected


def test_rows_may_go_to_several_topics():
    columns = {
        "value": ([b"a", b"b", b"c", b"d"], pa.binary()),
        "topic": (["payments", "orders", "payments", "payments"], pa.string()),
        "partition": ([4, 0, 1, 4], pa.int32()),
    }
    assert cut(columns, topic=None) == {
        TopicPartition("payments", 4): [b"a", b"d"],
        TopicPartition("payments", 1): [b"c"],
        TopicPartition("orders", 0): [b"b"],
    }


@given(st.lists(st.binary(max_size=5_000), min_size=1, max_size=40), st.integers(0, 9))
def test_rows_without_a_key_are_spread_and_stay_together_for_a_while(values, spread_from):
    found = cut({"value": (values, pa.binary())}, spread_from=spread_from)
    assert sorted(value for part in found.values() for value in part) == sorted(values)
    if sum(map(len, values)) + 32 * len(values) < 16_000:
        assert len(found) <= 2


def test_tasks_begin_to_spread_at_different_partitions():
    found = {next(iter(cut({"value": ([b"x"], pa.binary())}, spread_from=task))) for task in range(3)}
    assert found == {TopicPartition("orders", partition) for partition in range(3)}


@pytest.mark.parametrize("wrong", [-1, 3, 2**31 - 1])
def test_a_partition_that_there_is_not_is_refused(wrong):
    columns = {"value": ([b"a", b"b", b"c"], pa.binary()), "partition": ([0, None, wrong], pa.int32())}
    with pytest.raises(InvalidRowError, match=f"a row names partition {wrong} of topic orders, which has 3 partitions"):
        cut(columns)


def test_a_row_without_a_topic_is_refused():
    columns = {"value": ([b"a", b"b"], pa.binary()), "topic": (["orders", None], pa.string())}
    with pytest.raises(InvalidRowError, match="a row has NULL for its topic"):
        cut(columns, topic=None)


def test_a_topic_that_there_is_not_is_told():
    columns = {"value": ([b"a"], pa.binary()), "topic": (["refunds"], pa.string())}
    with pytest.raises(NotFoundError, match="topic refunds does not exist"):
        cut(columns, topic=None)


def test_a_batch_without_rows_has_none():
    assert cut({"value": ([], pa.binary())}) == {}
