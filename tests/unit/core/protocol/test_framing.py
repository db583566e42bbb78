"""Frames: the size, the header, the message."""

from exactlog.core.codec.message_codec import encode_bytes
from exactlog.core.protocol.framing import FRAME_SIZE, frame_request, frame_response
from exactlog.core.protocol.headers import RequestHeader, encode_request_header
from exactlog.core.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from exactlog.core.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from exactlog.core.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def test_a_request_frame_is_size_header_and_body():
    header = RequestHeader(api_key=12, api_version=3, correlation_id=5, client_id="me")
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    content = encode_request_header(header) + encode_bytes(request, 3)

    assert frame_request(header, request) == [FRAME_SIZE.pack(len(content)) + content]


def test_a_response_frame_has_the_header_of_its_version():
    response = HeartbeatResponse(error_code=27)

    assert frame_response(response, api_version=3, correlation_id=5) == [
        b"\x00\x00\x00\x0a" + b"\x00\x00\x00\x05" + b"\x00\x00\x00\x00\x00\x1b"
    ]
    assert frame_response(response, api_version=4, correlation_id=5) == [
        b"\x00\x00\x00\x0c" + b"\x00\x00\x00\x05\x00" + b"\x00\x00\x00\x00\x00\x1b\x00"
    ]


def test_api_versions_is_answered_without_tagged_fields_in_the_header():
    (frame,) = frame_response(ApiVersionsResponse(error_code=35), api_version=3, correlation_id=5)

    assert frame[4:10] == b"\x00\x00\x00\x05" + b"\x00\x23"


def test_api_versions_is_asked_with_them():
    header = RequestHeader(api_key=18, api_version=3, correlation_id=5)

    (frame,) = frame_request(header, ApiVersionsRequest(client_software_name="x", client_software_version="1"))

    assert frame[4:] == b"\x00\x12\x00\x03\x00\x00\x00\x05\xff\xff\x00" + b"\x02x\x021\x00"


def test_large_records_stay_parts_of_their_own_and_count():
    records = memoryview(b"x" * 10_000)
    response = FetchResponse(
        responses=(FetchableTopicResponse(topic="t", partitions=(PartitionData(records=records),)),)
    )

    first, second, third = frame_response(response, api_version=12, correlation_id=5)

    assert second is records
    assert FRAME_SIZE.unpack(first[:4]) == (len(first) - 4 + len(second) + len(third),)
