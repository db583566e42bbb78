import hashlib

import pytest

from exactlog.core.deltalog.log_path import (
    CheckpointName,
    CommitName,
    CompactedName,
    PartitionDirectoryName,
    SegmentFileKind,
    SegmentFileName,
    is_temporary_name,
    parse_delta_log_name,
    parse_partition_directory_name,
    parse_segment_file_name,
    print_checkpoint_name,
    print_commit_name,
    print_compacted_name,
    print_partition_directory_name,
    print_segment_file_name,
    print_temporary_name,
)
from exactlog.core.model.errors import InvariantError

LAST = 2**63 - 1


@pytest.mark.parametrize(
    ("printed", "expected", "parsed"),
    [
        (print_commit_name(0), "00000000000000000000.json", CommitName(0)),
        (print_commit_name(LAST), "09223372036854775807.json", CommitName(LAST)),
        (print_checkpoint_name(10), "00000000000000000010.checkpoint.json", CheckpointName(10)),
        (
            print_compacted_name(first_version=0, last_version=99),
            "00000000000000000000.00000000000000000099.compacted.json",
            CompactedName(0, 99),
        ),
        (
            print_compacted_name(first_version=7, last_version=7),
            "00000000000000000007.00000000000000000007.compacted.json",
            CompactedName(7, 7),
        ),
    ],
)
def test_a_name_in_the_delta_log_reads_back_as_what_it_was_printed_for(printed, expected, parsed):
    assert printed == expected
    assert parse_delta_log_name(expected) == parsed


@pytest.mark.parametrize(
    "name",
    [
        "",
        "0.json",
        "00000000000000000011.json.tmp",
        ".00000000000000000011.json.tmp",
        "00000000000000000011.JSON",
        "00000000000000000011.json\n",
        " 00000000000000000011.json",
        "+0000000000000000011.json",
        "0000000000000000001\u0661.json",  # a digit, but not one of ours
        "000000000000000000011.json",
        "09223372036854775808.json",  # beyond 63 bits
        "00000000000000000011.crc",
        "00000000000000000011.checkpoint.parquet",
        "_last_checkpoint",
        "00000000000000000099.00000000000000000000.compacted.json",
        "00000000000000000000.99999999999999999999.compacted.json",
        "00000000000000000000.compacted.json",
        "x/00000000000000000011.json",
    ],
)
def test_a_foreign_name_in_the_delta_log_is_none_of_ours(name):
    assert parse_delta_log_name(name) is None


@pytest.mark.parametrize(
    ("printed", "expected", "parsed"),
    [
        (print_segment_file_name(400), "00000000000000000400.log", SegmentFileName(400, 0, SegmentFileKind.LOG)),
        (
            print_segment_file_name(400, generation=2),
            "00000000000000000400.g2.log",
            SegmentFileName(400, 2, SegmentFileKind.LOG),
        ),
        (
            print_segment_file_name(0, kind=SegmentFileKind.INDEX),
            "00000000000000000000.index",
            SegmentFileName(0, 0, SegmentFileKind.INDEX),
        ),
        (
            print_segment_file_name(0, generation=10, kind=SegmentFileKind.TIME_INDEX),
            "00000000000000000000.g10.timeindex",
            SegmentFileName(0, 10, SegmentFileKind.TIME_INDEX),
        ),
        (
            print_segment_file_name(LAST, kind=SegmentFileKind.ABORTED_INDEX),
            "09223372036854775807.txnindex",
            SegmentFileName(LAST, 0, SegmentFileKind.ABORTED_INDEX),
        ),
    ],
)
def test_the_name_of_a_segments_file_reads_back_as_what_it_was_printed_for(printed, expected, parsed):
    assert printed == expected
    assert parse_segment_file_name(expected) == parsed


@pytest.mark.parametrize(
    "name",
    [
        "400.log",
        "00000000000000000400.g0.log",  # never rewritten is written without a generation
        "00000000000000000400.g02.log",
        "00000000000000000400.g.log",
        "00000000000000000400.log.deleted",
        "00000000000000000400.snapshot",
        ".00000000000000000400.log.tmp",
        "09223372036854775808.log",
        "00000000000000000400.log\n",
        "leader-epoch-checkpoint",
    ],
)
def test_a_foreign_name_beside_the_segments_is_none_of_ours(name):
    assert parse_segment_file_name(name) is None


def test_names_of_versions_sort_as_the_versions_do():
    versions = [0, 9, 10, 99, 100, 2**40, LAST]

    assert sorted(map(print_commit_name, reversed(versions))) == list(map(print_commit_name, versions))


@pytest.mark.parametrize(
    ("topic", "partition", "expected"),
    [
        ("orders", 0, "topic=orders-part=0"),
        ("__transaction_state", 49, "topic=__transaction_state-part=49"),
        ("a-part", 12, "topic=a-part-part=12"),
        ("-part-", 1, "topic=-part--part=1"),
        ("..", 0, "topic=..-part=0"),
        ("x" * 200, 3, f"topic={'x' * 200}-part=3"),
    ],
)
def test_a_partitions_directory_is_named_after_topic_and_partition(topic, partition, expected):
    assert print_partition_directory_name(topic, partition) == expected
    assert parse_partition_directory_name(expected) == PartitionDirectoryName(topic, partition)


def test_a_topic_of_more_than_200_characters_is_hashed_in_the_path():
    topic = "x" * 201

    name = print_partition_directory_name(topic, 7)

    digest = hashlib.sha256(topic.encode()).hexdigest()
    assert name == f"topic={'x' * 100}~{digest[:32]}-part=7"
    assert len(print_partition_directory_name("x" * 249, 2**31 - 1)) <= 255
    assert parse_partition_directory_name(name) == PartitionDirectoryName(None, 7)


def test_two_long_topics_that_begin_alike_get_two_directories():
    assert print_partition_directory_name("x" * 201, 0) != print_partition_directory_name("x" * 202, 0)


@pytest.mark.parametrize(
    "name",
    [
        "orders-0",
        "topic=orders",
        "topic=-part=0",
        "topic=orders-part=",
        "topic=orders-part=00",
        "topic=orders-part=-1",
        "topic=a/b-part=0",
        "topic=a=b-part=0",
        f"topic={'x' * 201}-part=0",
        f"topic=short~{'0' * 32}-part=0",
        "topic=orders-part=0\n",
        ".creating",
    ],
)
def test_a_foreign_directory_is_none_of_ours(name):
    assert parse_partition_directory_name(name) is None


@pytest.mark.parametrize(("topic", "partition"), [("", 0), ("../up", 0), ("a b", 0), ("a=b", 0), ("ü", 0), ("a", -1)])
def test_no_directory_is_named_after_what_no_topic_is_called(topic, partition):
    with pytest.raises(InvariantError, match="no directory"):
        print_partition_directory_name(topic, partition)


def test_a_temporary_name_is_known_by_its_dot_and_by_no_parser():
    name = print_temporary_name(print_commit_name(3))

    assert name == ".00000000000000000003.json.tmp"
    assert is_temporary_name(name)
    assert not is_temporary_name(print_commit_name(3))
    assert parse_delta_log_name(name) is None
