"""The headers, byte by byte, and which API uses which."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.core.model.errors import DecodeError, EncodeError
from exactlog.core.protocol.api_keys import APIS, ApiKey
from exactlog.core.protocol.headers import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
    request_header_version,
    response_header_version,
)

CONTROLLED_SHUTDOWN = 7


def test_a_header_of_version_1_ends_with_the_client_id():
    header = RequestHeader(api_key=ApiKey.METADATA, api_version=8, correlation_id=5, client_id="me")
    encoded = b"\x00\x03\x00\x08\x00\x00\x00\x05\x00\x02me"

    assert encode_request_header(header) == encoded
    assert decode_request_header(encoded + b"body") == (header, len(encoded))


def test_a_header_of_version_2_has_tagged_fields_and_still_no_compact_string():
    header = RequestHeader(api_key=ApiKey.METADATA, api_version=9, correlation_id=-1, client_id=None)
    encoded = b"\x00\x03\x00\x09\xff\xff\xff\xff\xff\xff\x00"

    assert encode_request_header(header) == encoded
    assert decode_request_header(b"before" + encoded, 6) == (header, 6 + len(encoded))


def test_tagged_fields_of_a_header_are_skipped():
    encoded = b"\x00\x03\x00\x09\x00\x00\x00\x00\x00\x00" + b"\x01\x05\x03abc"

    assert decode_request_header(encoded + b"body") == (
        RequestHeader(api_key=3, api_version=9, correlation_id=0, client_id=""),
        len(encoded),
    )


def test_controlled_shutdown_once_had_a_header_without_client_id():
    header = RequestHeader(api_key=CONTROLLED_SHUTDOWN, api_version=0, correlation_id=5)
    encoded = b"\x00\x07\x00\x00\x00\x00\x00\x05"

    assert encode_request_header(header) == encoded
    assert decode_request_header(encoded) == (header, 8)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_flexible_versions_have_the_longer_headers(api):
    for version in range(api.versions.lowest, api.versions.highest + 1):
        is_flexible = version >= api.flexible_from
        assert request_header_version(api.key, version) == (2 if is_flexible else 1)
        if api.key != ApiKey.API_VERSIONS:
            assert response_header_version(api.key, version) == (1 if is_flexible else 0)


def test_the_answer_to_api_versions_never_has_tagged_fields_in_its_header():
    assert {response_header_version(ApiKey.API_VERSIONS, version) for version in range(100)} == {0}


def test_the_header_of_a_version_not_known_yet_can_be_read():
    encoded = b"\x00\x12\x7f\xff\x00\x00\x00\x01\x00\x02me\x00"

    header, end = decode_request_header(encoded)

    assert (header.api_key, header.api_version, header.client_id, end) == (18, 32_767, "me", len(encoded))


def test_an_api_that_never_became_flexible_has_the_shorter_headers_for_ever():
    assert request_header_version(ApiKey.OFFSET_DELETE, 32_767) == 1


@pytest.mark.parametrize("api_key", [CONTROLLED_SHUTDOWN, 999, -1])
def test_an_api_that_is_not_in_the_table_is_refused_by_number(api_key):
    encoded = api_key.to_bytes(2, "big", signed=True) + b"\x00\x01" + bytes(10)

    with pytest.raises(DecodeError, match=f"no API with the key {api_key}$"):
        decode_request_header(encoded)


@pytest.mark.parametrize(
    ("encoded", "reason"),
    [
        (b"\x00\x03\x00\x08\x00\x00\x00\x05\x00\x03me", "client id .* size of 3, with 2 bytes left"),
        (b"\x00\x03\x00\x08\x00\x00\x00\x05\xff\xfeme", "client id .* size of -2"),
        (b"\x00\x03\x00\x08\x00\x00\x00\x05\x00\x01\xff", "client id that is not UTF-8"),
        (b"\x00\x03\x00\x09\x00\x00\x00\x05\x00\x00" + b"\xff" * 6, "varint longer than 32 bits"),
    ],
)
def test_a_malformed_header_is_refused_with_the_reason(encoded, reason):
    with pytest.raises(DecodeError, match=reason):
        decode_request_header(encoded)


@given(
    st.sampled_from(sorted(APIS)).flatmap(
        lambda key: st.builds(
            RequestHeader,
            api_key=st.just(key),
            api_version=st.integers(0, 32_767),
            correlation_id=st.integers(-(2**31), 2**31 - 1),
            client_id=st.none() | st.text(st.characters(exclude_categories=("Cs",))),
        )
    )
)
def test_any_header_is_read_as_it_was_written_and_never_from_less(header):
    encoded = encode_request_header(header)

    assert decode_request_header(encoded) == decode_request_header(memoryview(encoded)) == (header, len(encoded))
    for size in range(len(encoded)):
        with pytest.raises(DecodeError):
            decode_request_header(encoded[:size])


@given(st.binary(max_size=30))
def test_no_bytes_raise_anything_else(encoded):
    for decode in (decode_request_header, lambda buffer: decode_response_header(buffer, header_version=1)):
        with suppress(DecodeError):
            decode(encoded)


def test_a_header_with_a_number_out_of_range_cannot_be_encoded():
    with pytest.raises(EncodeError):
        encode_request_header(RequestHeader(api_key=3, api_version=8, correlation_id=2**31))


def test_response_headers_are_a_correlation_id_and_perhaps_tagged_fields():
    assert encode_response_header(5, header_version=0) == b"\x00\x00\x00\x05"
    assert encode_response_header(5, header_version=1) == b"\x00\x00\x00\x05\x00"
    assert decode_response_header(b"\x00\x00\x00\x05body", header_version=0) == (5, 4)
    assert decode_response_header(b"\x00\x00\x00\x05\x01\x00\x02abbody", header_version=1) == (5, 9)


@pytest.mark.parametrize(
    "encoded", [b"", b"\x00\x00\x00", b"\x00\x00\x00\x05", b"\x00\x00\x00\x05\x01", b"\x00" * 4 + b"\xff" * 6]
)
def test_a_malformed_response_header_is_refused(encoded):
    with pytest.raises(DecodeError):
        decode_response_header(encoded, header_version=1)
