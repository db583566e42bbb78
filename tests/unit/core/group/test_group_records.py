"""The records of `__consumer_offsets`, against bytes that Apache Kafka 4.4 wrote."""

from uuid import UUID

import pytest

from exactlog.core.group.group_metadata_format import GroupMetadata, GroupMetadataMember
from exactlog.core.group.group_record import GroupMetadataRecord, OffsetCommitRecord, decode_record
from exactlog.core.group.requests import CommittedOffset
from exactlog.core.model.decisions import UnknownRecord
from exactlog.core.model.errors import DecodeError
from exactlog.core.model.ids import TopicPartition

OFFSET_KEYS = [
    "000000087061796d656e747300066f726465727300000003",
    "000100087061796d656e747300066f726465727300000003",
]
OFFSET_VALUES = [
    "0000000000000000002a00046e6f74650000018bcfe56800",
    "0001000000000000002a00046e6f74650000018bcfe568000000018bcfe65260",
    "0002000000000000002a00046e6f74650000018bcfe56800",
    "0003000000000000002a0000000700046e6f74650000018bcfe56800",
    "0004000000000000002a00000007056e6f74650000018bcfe5680000",
]
OFFSET_VALUE_WITH_TOPIC_ID = (
    "0004000000000000002a00000007056e6f74650000018bcfe5680001001000112233445566778899aabbccddeeff"
)
GROUP_KEY = "000200087061796d656e7473"
GROUP_VALUES = [
    (
        "00000008636f6e73756d657200000005000572616e67650003632d31000000010003632d31000163000a2f3132372e302e302e31"
        "000027100000000201020000000103"
    ),
    (
        "00010008636f6e73756d657200000005000572616e67650003632d31000000010003632d31000163000a2f3132372e302e302e31"
        "00007530000027100000000201020000000103"
    ),
    (
        "00020008636f6e73756d657200000005000572616e67650003632d310000018bcfe56800000000010003632d31000163000a2f31"
        "32372e302e302e3100007530000027100000000201020000000103"
    ),
    (
        "00030008636f6e73756d657200000005000572616e67650003632d310000018bcfe56800000000010003632d3100016900016300"
        "0a2f3132372e302e302e3100007530000027100000000201020000000103"
    ),
    (
        "000409636f6e73756d6572000000050672616e676504632d310000018bcfe568000204632d31026902630b2f3132372e302e302e"
        "31000075300000271003010202030000"
    ),
]
EMPTY_GROUP_VALUE = "00030008636f6e73756d657200000006ffffffff0000018bcfe5680000000000"

TIMESTAMP_MS = 1_700_000_000_000
TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
PARTITION = TopicPartition("orders", 3)


def committed(**fields):
    return CommittedOffset(
        **{"offset": 42, "leader_epoch": 7, "metadata": "note", "commit_timestamp_ms": TIMESTAMP_MS, **fields}
    )


def generation(**fields):
    member = {
        "member_id": "c-1",
        "group_instance_id": "i",
        "client_id": "c",
        "client_host": "/127.0.0.1",
        "rebalance_timeout": 30_000,
        "session_timeout": 10_000,
        "subscription": b"\x01\x02",
        "assignment": b"\x03",
        **fields.pop("member", {}),
    }
    return GroupMetadata(
        **{
            "protocol_type": "consumer",
            "generation": 5,
            "protocol": "range",
            "leader": "c-1",
            "current_state_timestamp": TIMESTAMP_MS,
            "members": (GroupMetadataMember(**member),),
            **fields,
        }
    )


@pytest.mark.parametrize("key", OFFSET_KEYS)
def test_both_versions_of_an_offsets_key_say_the_same(key):
    assert decode_record(bytes.fromhex(key), None) == OffsetCommitRecord("payments", PARTITION, None)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (0, committed(leader_epoch=-1)),
        (1, committed(leader_epoch=-1, expire_timestamp_ms=TIMESTAMP_MS + 60_000)),
        (2, committed(leader_epoch=-1)),
        (3, committed()),
        (4, committed()),
    ],
)
def test_every_version_of_an_offset_is_read(version, expected):
    record = decode_record(bytes.fromhex(OFFSET_KEYS[1]), bytes.fromhex(OFFSET_VALUES[version]))

    assert record == OffsetCommitRecord("payments", PARTITION, expected)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (committed(), OFFSET_VALUES[4]),
        (committed(topic_id=TOPIC_ID), OFFSET_VALUE_WITH_TOPIC_ID),
        (committed(expire_timestamp_ms=TIMESTAMP_MS + 60_000), OFFSET_VALUES[1]),
    ],
)
def test_an_offset_is_written_as_kafka_writes_it(value, expected):
    record = OffsetCommitRecord("payments", PARTITION, value)

    assert record.encode_key().hex() == OFFSET_KEYS[1]
    assert record.encode_value().hex() == expected


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (0, generation(current_state_timestamp=-1, member={"group_instance_id": None, "rebalance_timeout": -1})),
        (1, generation(current_state_timestamp=-1, member={"group_instance_id": None})),
        (2, generation(member={"group_instance_id": None})),
        (3, generation()),
        (4, generation()),
    ],
)
def test_every_version_of_a_generation_is_read(version, expected):
    record = decode_record(bytes.fromhex(GROUP_KEY), bytes.fromhex(GROUP_VALUES[version]))

    assert record == GroupMetadataRecord("payments", expected)


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (generation(), GROUP_VALUES[3]),
        (generation(generation=6, protocol=None, leader=None, members=()), EMPTY_GROUP_VALUE),
    ],
)
def test_a_generation_is_written_as_kafka_writes_it(metadata, expected):
    record = GroupMetadataRecord("payments", metadata)

    assert record.encode_key().hex() == GROUP_KEY
    assert record.encode_value().hex() == expected


@pytest.mark.parametrize(
    "record", [OffsetCommitRecord("payments", PARTITION, None), GroupMetadataRecord("payments", None)]
)
def test_a_tombstone_has_no_value(record):
    assert record.encode_value() is None
    assert decode_record(record.encode_key(), None) == record


@pytest.mark.parametrize("value", [b"whatever", None])
@pytest.mark.parametrize("version", [3, 16, -1])
def test_a_record_of_another_kind_is_kept_as_it_is(version, value):
    key = version.to_bytes(2, "big", signed=True) + b"some key"
    record = decode_record(key, value)

    assert record == UnknownRecord(key, value)
    assert (record.encode_key(), record.encode_value()) == (key, value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("", None),
        ("00", None),
        (OFFSET_KEYS[1][:-2], None),
        (GROUP_KEY[:-2], None),
        (OFFSET_KEYS[1], ""),
        (OFFSET_KEYS[1], OFFSET_VALUES[4][:-2]),
        (OFFSET_KEYS[1], "0005" + OFFSET_VALUES[4][4:]),
        (GROUP_KEY, "00"),
        (GROUP_KEY, GROUP_VALUES[3][:-2]),
        (GROUP_KEY, "0005" + GROUP_VALUES[3][4:]),
    ],
)
def test_malformed_bytes_are_refused(key, value):
    with pytest.raises(DecodeError):
        decode_record(bytes.fromhex(key), None if value is None else bytes.fromhex(value))
