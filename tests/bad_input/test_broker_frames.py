"""Frames that are no requests: the broker closes their connection, as Kafka does, and nobody else notices."""

import contextlib
import struct
import tracemalloc

import pytest

from exactlog.broker.api_table import API_TABLE
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.limits import FRAME_BYTES_MAX, REQUEST_WITHOUT_RECORDS_BYTES_MAX
from exactlog.core.protocol.api_keys import APIS, ApiKey
from exactlog.core.protocol.messages.api_versions import ApiVersionsRequest
from exactlog.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.raw_client import BY_NAME, ConnectionClosed, batch_of, encode_request, frame, produce_request
from tests.support.valid_requests import VALID_REQUESTS

EACH_API = pytest.mark.parametrize("api", API_TABLE.values(), ids=lambda api: api.name)
HANDLER_ERRORS = "kafka_server_socket_server_metrics_handler_error_total"


@pytest.fixture(autouse=True)
def bystander(broker, connect):
    """Another connection, which goes on working; and no request was an error of ours."""
    other = connect()
    errors_before = broker.metrics()[HANDLER_ERRORS]
    yield other
    assert other.ask(ApiVersionsRequest(), 0).error_code == 0
    assert broker.metrics()[HANDLER_ERRORS] == errors_before


def header(api_key, version, correlation_id=1, client_id=b"\x00\x03raw"):
    return struct.pack(">hhi", api_key, version, correlation_id) + client_id


# --- what is not served -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("api_key", [4, 5, 6, 7, 17, 36, 99, 1_000, 32_767, -1, -32_768])
@pytest.mark.parametrize("version", [0, 3, -1])
def test_an_api_nobody_serves_closes_the_connection(raw, api_key, version):
    raw.send_bytes(frame(header(api_key, version) + bytes(64)))

    assert raw.is_closed()


@pytest.mark.parametrize("api", [api for api in APIS.values() if api.key not in API_TABLE], ids=lambda api: api.name)
def test_an_api_that_is_known_and_not_served_closes_the_connection(raw, api):
    raw.send_bytes(frame(header(api.key, api.versions.highest) + bytes(64)))

    assert raw.is_closed()


# An unknown version of ApiVersions is answered: see its conformance cases.
@pytest.mark.parametrize(
    "api", [api for api in API_TABLE.values() if api.key != ApiKey.API_VERSIONS], ids=lambda api: api.name
)
def test_a_version_that_is_not_served_closes_the_connection(connect, api):
    served = APIS[api.key].versions
    for version in (-1, served.lowest - 1, served.highest + 1, 32_767):
        stranger = connect()
        stranger.send_bytes(frame(header(api.key, version) + bytes(64)))
        assert stranger.is_closed()


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_versions_of_produce_that_are_only_advertised_close_the_connection(raw, version):
    raw.send_bytes(frame(header(ApiKey.PRODUCE, version) + bytes(64)))

    assert raw.is_closed()


# --- what ends too early or goes on too long ----------------------------------------------------------------------


@EACH_API
def test_a_request_cut_at_any_place_closes_the_connection(connect, raw, topic, api):
    whole = encode_request(VALID_REQUESTS[api.key](topic, api.max_version), api.max_version)

    for size in range(1, len(whole)):
        cut = connect()
        cut.send_bytes(frame(whole[:size]))
        assert cut.is_closed(), f"cut after {size} of {len(whole)} bytes"
        cut.close()


@EACH_API
def test_a_frame_that_never_comes_whole_is_not_a_request(connect, raw, topic, api):
    whole = frame(encode_request(VALID_REQUESTS[api.key](topic, api.max_version), api.max_version))
    half = connect()

    half.send_bytes(whole[:-1])
    half.finish_sending()

    assert half.is_closed()


@EACH_API
def test_bytes_behind_a_request_are_left_alone(raw, topic, api):
    whole = encode_request(VALID_REQUESTS[api.key](topic, api.max_version), api.max_version, 77)

    raw.send_bytes(frame(whole + b"more"))

    assert struct.unpack_from(">i", raw.receive_frame()) == (77,)


def test_requests_before_the_bad_one_are_answered_and_those_behind_it_are_not(raw):
    good = frame(encode_request(ApiVersionsRequest(), 0, 1))

    raw.send_bytes(good + good + frame(b"\x00") + good)

    for _ in range(2):
        assert struct.unpack_from(">i", raw.receive_frame()) == (1,)
    assert raw.is_closed()


# --- lengths that lie ---------------------------------------------------------------------------------------------

LYING_BODIES = {
    "a client id longer than the frame": (ApiKey.METADATA, 1, b"\x7f\xff", b""),
    "a client id of negative length": (ApiKey.METADATA, 1, b"\xff\xfe", bytes(8)),
    "a client id that is not UTF-8": (ApiKey.METADATA, 1, b"\x00\x02\xff\xfe", bytes(8)),
    "more header tags than there are": (ApiKey.METADATA, 9, b"\xff\xff", b"\xff\xff\xff\xff\x07"),
    "an array of two billion": (ApiKey.METADATA, 1, b"\xff\xff", b"\x7f\xff\xff\xff"),
    "an array of negative length": (ApiKey.METADATA, 1, b"\xff\xff", b"\xff\xff\xff\xfe"),
    "null where there may be no null": (ApiKey.METADATA, 0, b"\xff\xff", b"\xff\xff\xff\xff"),
    "a string longer than the frame": (ApiKey.METADATA, 1, b"\xff\xff", b"\x00\x00\x00\x01\x7f\xff" + b"abc"),
    "a string of negative length": (ApiKey.METADATA, 1, b"\xff\xff", b"\x00\x00\x00\x01\xff\xfe" + b"abc"),
    "a string that is not UTF-8": (ApiKey.METADATA, 1, b"\xff\xff", b"\x00\x00\x00\x01\x00\x01\xff"),
    "a compact array of four billion": (ApiKey.METADATA, 9, b"\xff\xff", b"\x00\xff\xff\xff\xff\x0f"),
    "a varint without an end": (ApiKey.METADATA, 9, b"\xff\xff", b"\x00" + b"\xff" * 20),
    "records longer than the frame": (
        ApiKey.PRODUCE,
        3,
        b"\xff\xff",
        b"\xff\xff\xff\xff" + bytes(4) + b"\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x01" + bytes(4) + b"\x7f\xff\xff\xff",
    ),
}


@pytest.mark.parametrize(("api_key", "version", "client_id", "body"), LYING_BODIES.values(), ids=LYING_BODIES)
def test_a_length_that_lies_closes_the_connection(raw, api_key, version, client_id, body):
    raw.send_bytes(frame(header(api_key, version, client_id=client_id) + body))

    assert raw.is_closed()


def test_claims_that_are_never_made_good_take_no_memory(connect, bystander):
    connections = [connect() for _ in range(30)]
    bystander.ask(ApiVersionsRequest(), 0)

    tracemalloc.start()
    try:
        for connection in connections:
            connection.send_bytes(struct.pack(">i", FRAME_BYTES_MAX) + b"a few bytes")
        bystander.ask(ApiVersionsRequest(), 0)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak_bytes < FRAME_BYTES_MAX / 10


@pytest.mark.parametrize("size", [0, -1, FRAME_BYTES_MAX + 1, 2**31 - 1, -(2**31)])
def test_a_size_no_frame_may_have_closes_the_connection(raw, size):
    raw.send_bytes(struct.pack(">i", size) + bytes(16))

    assert raw.is_closed()


def test_a_request_that_brings_no_records_may_not_be_as_large_as_one_that_does(raw, connect):
    name = "x" * 1_000
    count = REQUEST_WITHOUT_RECORDS_BYTES_MAX // len(name) + 1
    large = MetadataRequest(topics=(MetadataRequestTopic(name=name),) * count)

    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it may close before it has all
        raw.send_bytes(frame(encode_request(large, 12)))
    assert raw.is_closed()

    topic = connect().create_topic(max_message_bytes=2 * REQUEST_WITHOUT_RECORDS_BYTES_MAX)
    batch = batch_of(bytes(REQUEST_WITHOUT_RECORDS_BYTES_MAX))
    assert connect().produce(topic, batch).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    "hello", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"]
)
def test_another_protocol_closes_the_connection(raw, hello):
    raw.send_bytes(hello)

    assert raw.is_closed()


# --- many of them -------------------------------------------------------------------------------------------------


def test_a_thousand_bad_connections_leave_the_good_one_as_it_was(connect, bystander):
    topic = bystander.create_topic()
    request = (produce_request(topic, batch_of(b"v")), BY_NAME)

    for turn in range(1_000):
        bad = connect()
        bad.send_bytes(frame(header(turn, turn)))
        bad.close()
        if turn % 100 == 0:
            bystander.ask(*request)

    assert bystander.fetch(topic, 0).high_watermark == 10


def test_a_connection_closed_for_a_bad_frame_is_closed_for_its_good_ones_too(raw):
    raw.send_bytes(frame(b"\x00"))
    assert raw.is_closed()

    with pytest.raises((ConnectionClosed, BrokenPipeError, ConnectionResetError)):
        raw.ask(ApiVersionsRequest(), 0)
