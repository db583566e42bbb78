"""The headers of requests and responses, which stand before the message in every frame.

    request header   version 0  int16 api key, int16 api version, int32 correlation id
                     version 1  the same, then the client id: a nullable string, never a compact one
                     version 2  the same, then tagged fields
    response header  version 0  int32 correlation id
                     version 1  the same, then tagged fields

Flexible versions of an API have request header 2 and response header 1 (KIP-482). Two exceptions: the response header
of ApiVersions is always version 0, so that a client can read the answer to a version the broker does not know
(KIP-511); version 0 of ControlledShutdown had request header 0.
"""

import struct
from typing import Final

from msgspec import Struct

from exactlog.core.codec.varint import skip_tagged_fields
from exactlog.core.codec.wire_types import Buffer
from exactlog.core.model.errors import DecodeError, EncodeError
from exactlog.core.protocol.api_keys import APIS, ApiKey

_CONTROLLED_SHUTDOWN: Final = 7
_START: Final = struct.Struct(">hhi")
_STRING_SIZE: Final = struct.Struct(">h")
_CORRELATION_ID: Final = struct.Struct(">i")
_FLEXIBLE_FROM: Final = {int(key): api.flexible_from for key, api in APIS.items()}
"""By plain numbers, as requests have them: a look-up by `ApiKey` takes longer, and happens for every request."""
RESPONSE_HEADERS: Final = (_CORRELATION_ID, struct.Struct(">ix"))
"""What packs a correlation id into the header of a response, by the header's version: no tagged field is ever sent."""


class RequestHeader(Struct, frozen=True, kw_only=True, gc=False):
    """What stands before a request.

    Attributes:
        api_key: which API is asked.
        api_version: the version the request is written in, and the answer will be.
        correlation_id: comes back with the answer.
        client_id: what the client calls itself.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None = None


def request_header_version(api_key: int, api_version: int) -> int:
    """The version of the header before that request.

    A version above those declared is taken for a flexible one, so that it can be answered with UNSUPPORTED_VERSION.

    Raises:
        DecodeError: the API is not in the table: how its header is written is not known.
    """
    flexible_from = _FLEXIBLE_FROM.get(api_key)
    if flexible_from is not None:
        return 2 if api_version >= flexible_from else 1
    if (api_key, api_version) == (_CONTROLLED_SHUTDOWN, 0):
        return 0
    raise DecodeError(f"There is no API with the key {api_key}")


def response_header_version(api_key: int, api_version: int) -> int:
    """The version of the header before the answer to that request; the API must be in the table."""
    return 1 if api_version >= _FLEXIBLE_FROM[api_key] and api_key != ApiKey.API_VERSIONS else 0


def decode_request_header(buffer: Buffer, offset: int = 0) -> tuple[RequestHeader, int]:
    """The header at `offset`, and the offset of the request behind it.

    Raises:
        DecodeError: the header is malformed, or of an API that is not in the table.
    """
    try:
        api_key, api_version, correlation_id = _START.unpack_from(buffer, offset)
        offset += _START.size
        version = request_header_version(api_key, api_version)
        client_id = None
        if version >= 1:
            client_id, offset = _decode_client_id(buffer, offset)
        if version >= 2:
            offset = _skip_tags(buffer, offset) if buffer[offset] else offset + 1
    except (struct.error, IndexError) as error:
        raise DecodeError("A request header is cut short") from error
    except OverflowError as error:
        raise DecodeError("A request header has a varint longer than 32 bits") from error
    except UnicodeDecodeError as error:
        raise DecodeError("A request header has a client id that is not UTF-8") from error
    header = RequestHeader(api_key=api_key, api_version=api_version, correlation_id=correlation_id, client_id=client_id)
    return header, offset


def encode_request_header(header: RequestHeader) -> bytes:
    """The bytes before a request.

    Raises:
        EncodeError: a number or the client id is out of range.
    """
    version = request_header_version(header.api_key, header.api_version)
    try:
        encoded = _START.pack(header.api_key, header.api_version, header.correlation_id)
        if version >= 1:
            encoded += _encode_client_id(header.client_id)
    except (struct.error, UnicodeEncodeError) as error:
        raise EncodeError(f"A request header has a value that is out of range: {header}") from error
    return encoded + b"\x00" if version >= 2 else encoded


def decode_response_header(buffer: Buffer, *, header_version: int, offset: int = 0) -> tuple[int, int]:
    """The correlation id in the header at `offset`, and the offset of the response behind it.

    Raises:
        DecodeError: the header is malformed.
    """
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(buffer, offset)
        offset += _CORRELATION_ID.size
        if header_version >= 1:
            offset = _skip_tags(buffer, offset)
    except (struct.error, IndexError) as error:
        raise DecodeError("A response header is cut short") from error
    except OverflowError as error:
        raise DecodeError("A response header has a varint longer than 32 bits") from error
    return correlation_id, offset


def encode_response_header(correlation_id: int, *, header_version: int) -> bytes:
    """The bytes before a response."""
    return RESPONSE_HEADERS[header_version].pack(correlation_id)


def _decode_client_id(buffer: Buffer, offset: int) -> tuple[str | None, int]:
    (size,) = _STRING_SIZE.unpack_from(buffer, offset)
    offset += _STRING_SIZE.size
    if size == -1:
        return None, offset
    end = offset + size
    if not offset <= end <= len(buffer):
        raise DecodeError(f"The client id of a request claims a size of {size}, with {len(buffer) - offset} bytes left")
    return str(buffer[offset:end], "utf-8"), end


def _encode_client_id(client_id: str | None) -> bytes:
    if client_id is None:
        return _STRING_SIZE.pack(-1)
    encoded = client_id.encode()
    return _STRING_SIZE.pack(len(encoded)) + encoded


def _skip_tags(buffer: Buffer, offset: int) -> int:
    count = buffer[offset]
    return skip_tagged_fields(buffer, offset + 1, count) if count else offset + 1
