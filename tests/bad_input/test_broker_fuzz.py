"""Requests by chance: whatever comes in is answered or closes its connection; no handler fails, nobody else notices."""

import logging
import struct
from contextlib import contextmanager
from itertools import cycle

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.broker.api_table import API_TABLE
from exactlog.core.model.ids import ZERO_UUID
from exactlog.core.protocol.api_keys import APIS
from exactlog.core.protocol.messages.api_versions import ApiVersionsRequest
from exactlog.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.raw_client import ConnectionClosed, RawClient, Topic, batch_of, encode_request, frame
from tests.support.valid_requests import VALID_REQUESTS
from tests.unit.core.codec.message_strategies import messages

EACH_API = pytest.mark.parametrize("api", API_TABLE.values(), ids=lambda api: api.name)
NAMES = ["fuzz-a", "fuzz-b", "fuzz_b", "in/valid", ""]
CORRELATION_ID = 77


class FailureLog(logging.Handler):
    """Keeps what is logged with an exception: a failure of ours, not of the peer."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.failures = []

    def emit(self, record):
        if record.exc_info:
            self.failures.append(self.format(record))


@contextmanager
def nobody_else_hurt(broker):
    """Within the block no handler fails; after it another connection is served."""
    log, logger = FailureLog(), logging.getLogger("exactlog")
    logger.addHandler(log)
    try:
        yield
        with RawClient(broker.port) as bystander:
            assert bystander.ask(ApiVersionsRequest(), 0).error_code == 0
    finally:
        logger.removeHandler(log)
    assert log.failures == []


# --- damaged requests ---------------------------------------------------------------------------------------------


@st.composite
def damages(draw):
    """A function that damages bytes in a few places."""
    kinds = st.sampled_from(["set", "flip", "cut", "drop", "insert", "repeat"])
    steps = draw(st.lists(st.tuples(kinds, st.floats(0, 1), st.binary(min_size=1, max_size=8)), min_size=1, max_size=4))

    def damage(content):
        for kind, place, noise in steps:
            at = int(place * len(content))
            content = {
                "set": content[:at] + noise + content[at + len(noise) :],
                "flip": content[:at] + bytes(byte ^ noise[0] for byte in content[at : at + 1]) + content[at + 1 :],
                "cut": content[:at],
                "drop": content[:at] + content[at + len(noise) :],
                "insert": content[:at] + noise + content[at:],
                "repeat": content[:at] * 2 + content[at:],
            }[kind]
        return content

    return damage


def answers_until_the_end(client):
    """The frames that come before the connection is closed, once we have said all we had to say."""
    client.finish_sending()
    answers = []
    while True:
        try:
            answers.append(client.receive_frame())
        except ConnectionClosed:
            return answers


@EACH_API
@given(data=st.data(), damage=damages(), version_place=st.floats(0, 1, exclude_max=True))
def test_a_damaged_request_is_answered_once_or_closes_its_connection(broker, api, data, damage, version_place):
    versions = APIS[api.key].versions
    version = versions.lowest + int(version_place * (versions.highest - versions.lowest + 1))
    topic = Topic(data.draw(st.sampled_from(NAMES)), ZERO_UUID)
    request = encode_request(VALID_REQUESTS[api.key](topic, version), version, CORRELATION_ID)
    is_in_its_header = data.draw(st.booleans())
    damaged = damage(request) if is_in_its_header else request[:13] + damage(request[13:])

    with nobody_else_hurt(broker), RawClient(broker.port) as client:
        client.send_bytes(frame(damaged or b"\x00"))
        answers = answers_until_the_end(client)

    assert len(answers) <= 1
    if answers and not is_in_its_header:
        assert struct.unpack_from(">i", answers[0]) == (CORRELATION_ID,)


@given(pieces=st.lists(st.tuples(st.sampled_from(list(API_TABLE)), damages() | st.none()), min_size=1, max_size=8))
def test_damaged_requests_among_good_ones_are_answered_in_order_up_to_the_one_that_is_closed_for(broker, pieces):
    stream = b""
    for correlation_id, (api_key, damage) in enumerate(pieces):
        version = API_TABLE[api_key].max_version
        request = encode_request(VALID_REQUESTS[api_key](Topic("fuzz-a", ZERO_UUID), version), version, correlation_id)
        stream += frame(request[:13] + damage(request[13:]) if damage else request)

    with nobody_else_hurt(broker), RawClient(broker.port) as client:
        client.send_bytes(stream)
        ids = [struct.unpack_from(">i", answer)[0] for answer in answers_until_the_end(client)]

    assert ids == sorted(set(ids))


# --- well-formed requests of any content --------------------------------------------------------------------------


def plausible_numbers(name):
    """Numbers that lead somewhere, where any number would mostly lead to the first check or to a long wait."""
    return {
        "acks": st.sampled_from([-1, 1, 2]),
        "max_wait_ms": st.integers(-1, 2),
        "num_partitions": st.integers(-2, 3),
        "replication_factor": st.integers(-1, 2),
        "partition_index": st.sampled_from([0, 0, 1, -1]),
        "index": st.sampled_from([0, 0, 1, -1]),
        "partition": st.sampled_from([0, 0, 1, -1]),
        "timestamp": st.sampled_from([-1, -2, -3, -4, -5, -6, -7, 0, 1_700_000_000_000, 2**63 - 1]),
        "fetch_offset": st.integers(-1, 3),
        "session_id": st.sampled_from([0, 0, 1]),
        "current_leader_epoch": st.sampled_from([-1, -1, 0, 1]),
        "resource_type": st.integers(0, 8),
        "key_type": st.integers(-1, 3),
    }.get(name)


def aimed(value, names, topic_ids, records):
    """The message with topics that may exist, and records that may be good, in place of any text and bytes."""
    if isinstance(value, tuple):
        return tuple(aimed(item, names, topic_ids, records) for item in value)
    if not isinstance(value, msgspec.Struct):
        return value
    changes = {}
    for field in value.__struct_fields__:
        content = getattr(value, field)
        if field in {"name", "topic", "resource_name"} and content is not None:
            changes[field] = next(names, content)
        elif field == "topic_id" and content != ZERO_UUID:
            changes[field] = next(topic_ids, content)
        elif field == "records" and content is not None:
            changes[field] = next(records, content)
        else:
            changes[field] = aimed(content, names, topic_ids, records)
    return msgspec.structs.replace(value, **changes)


def ids_of_topics(client):
    """Makes the topics that are not there, and tells their ids."""
    asked = MetadataRequest(topics=tuple(MetadataRequestTopic(name=name) for name in NAMES[:2]))
    return [described.topic_id for described in client.ask(asked, 12).topics]


@EACH_API
@given(data=st.data())
def test_any_well_formed_request_is_answered_in_its_version(broker, api, data):
    api = APIS[api.key]
    version = data.draw(st.integers(api.versions.lowest, api.versions.highest))
    request = data.draw(messages(api.request, version, plausible_numbers))
    names = data.draw(st.lists(st.sampled_from([*NAMES, *NAMES[:2]]), min_size=1, max_size=6))
    batches = data.draw(st.lists(st.sampled_from([bytes(batch_of(b"v")), b"", b"\x00" * 61]), max_size=6))

    with nobody_else_hurt(broker), RawClient(broker.port) as client:
        topic_ids = cycle(ids_of_topics(client))
        response = client.ask(aimed(request, iter(names), topic_ids, iter(batches)), version)

    assert isinstance(response, api.response)
