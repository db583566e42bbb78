"""Frames: how requests and responses lie in a TCP stream.

int32   size of what follows
header  of the request or the response (`headers`)
body    the message
"""

import struct
from typing import Final

from exactlog.core.codec.message_codec import encode
from exactlog.core.codec.message_schema import Message
from exactlog.core.codec.wire_types import Buffer
from exactlog.core.protocol.headers import (
    RequestHeader,
    encode_request_header,
    encode_response_header,
    response_header_version,
)

FRAME_SIZE: Final = struct.Struct(">i")
"""The size before a frame, which does not count itself."""


def frame_request(header: RequestHeader, request: Message) -> list[Buffer]:
    """The frame of a request, in parts to be sent behind each other.

    Raises:
        EncodeError: the header or the request cannot be encoded in that version.
    """
    return _frame(encode_request_header(header), encode(request, header.api_version))


def frame_response(response: Message, *, api_version: int, correlation_id: int) -> list[Buffer]:
    """The frame of a response, in parts to be sent behind each other.

    Raises:
        EncodeError: the response cannot be encoded in that version.
    """
    header_version = response_header_version(response.api_key, api_version)
    header = encode_response_header(correlation_id, header_version=header_version)
    return _frame(header, encode(response, api_version))


def _frame(header: bytes, parts: list[Buffer]) -> list[Buffer]:
    size = len(header) + sum(map(len, parts))
    start = FRAME_SIZE.pack(size) + header
    # The first part is small (records are a part of their own), so one part less is worth a copy.
    return [start + bytes(parts[0]), *parts[1:]]
