"""Groups fall on the partitions that Kafka's own formula gives them."""

import pytest

from exactlog.core.model.coordinator_partition import coordinator_partition, java_string_hash


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99_162_322),
        ("polygenelubricants", -(2**31)),
        ("my.group_42", -1_634_666_944),
        ("zażółć", -701_064_989),
        ("\N{GRINNING FACE}", 1_772_899),
    ],
)
def test_the_hash_is_that_of_javas_strings(text, value):
    assert java_string_hash(text) == value


def test_the_least_hash_falls_on_the_first_partition():
    assert coordinator_partition("polygenelubricants", 50) == 0


@pytest.mark.parametrize(
    ("group_id", "partition"),
    [("console-consumer-1", 24), ("flights-readers", 42), ("my.group_42", 44), ("zażółć", 39)],
)
def test_a_group_falls_where_kafka_puts_it(group_id, partition):
    assert coordinator_partition(group_id, 50) == partition
