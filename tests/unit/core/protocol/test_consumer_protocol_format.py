"""Subscriptions and assignments, byte by byte."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.core.model.errors import DecodeError
from exactlog.core.model.ids import TopicPartition
from exactlog.core.protocol.consumer_protocol_format import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

PAGE = Path(__file__).parents[4] / "docs" / "formats" / "consumer_protocol_format.md"
ORDERS = bytes.fromhex("00000001 0006 6f7264657273")
NO_USER_DATA = bytes.fromhex("ffffffff")
topics = st.lists(st.text(max_size=9), max_size=4).map(tuple)
places = st.lists(st.builds(TopicPartition, st.text(max_size=9), st.integers(0, 2**31 - 1)), max_size=9, unique=True)


def test_what_is_written_is_the_example_of_the_page():
    (example,) = re.findall(r"^```text\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    subscription, assignment = map(bytes.fromhex, example.splitlines())

    assert encode_subscription(["orders"]) == subscription
    assert encode_assignment([TopicPartition("orders", 0), TopicPartition("orders", 2)]) == assignment


@pytest.mark.parametrize(
    ("version", "rest", "owned"),
    [
        (0, "", None),
        (1, "00000000", ()),
        (2, "00000001 0006 6f7264657273 00000001 00000003 00000007", (TopicPartition("orders", 3),)),
        (3, "00000000 ffffffff 0001 61", ()),
        (4, "00000000 ffffffff ffff deadbeef", ()),
    ],
)
def test_every_version_of_a_subscription_is_read(version, rest, owned):
    metadata = version.to_bytes(2) + ORDERS + NO_USER_DATA + bytes.fromhex(rest)

    assert decode_subscription(metadata) == Subscription(("orders",), owned)


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_every_version_of_an_assignment_is_read(version):
    written = version.to_bytes(2) + encode_assignment([TopicPartition("orders", 1)])[2:]

    assert decode_assignment(written) == (TopicPartition("orders", 1),)


def test_no_bytes_assign_nothing():
    assert decode_assignment(b"") == ()


@pytest.mark.parametrize("blob", [b"\0", b"\xff\xff" + ORDERS, b"\0\1\0\0"])
def test_what_is_malformed_is_refused(blob):
    with pytest.raises(DecodeError):
        decode_subscription(blob)
    with pytest.raises(DecodeError):
        decode_assignment(blob)


def test_a_subscription_of_no_bytes_is_malformed():
    with pytest.raises(DecodeError, match="no subscription of the consumer protocol: no bytes"):
        decode_subscription(b"")


@given(topics)
def test_topics_survive(topics):
    assert decode_subscription(encode_subscription(topics)) == Subscription(topics, ())


@given(places)
def test_partitions_survive(places):
    assert set(decode_assignment(encode_assignment(places))) == set(places)
