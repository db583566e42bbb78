"""Lines from a file or a pipe, as they arrive, without holding up the event loop or an interruption."""

import asyncio
import io
import os
from collections.abc import AsyncIterator
from typing import BinaryIO, Final

from exactlog.cli.errors import InvalidUsageError

CHUNK_BYTES: Final = 256 * 1024
LINE_BYTES_MAX: Final = 64 * 1024 * 1024  # a record of more could not be sent; a file without a line end fills memory


async def read_line_chunks(stream: BinaryIO) -> AsyncIterator[list[bytes]]:
    """The lines without their ends, as many at a time as have arrived together.

    Raises:
        InvalidUsageError: a line is longer than LINE_BYTES_MAX.
    """
    rest = b""
    while chunk := await _read(stream):
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > LINE_BYTES_MAX:
            raise InvalidUsageError(f"the input has a line of more than {LINE_BYTES_MAX} bytes")
        if lines:
            yield lines
    if rest:
        yield [rest]


async def _read(stream: BinaryIO) -> bytes:
    """The next bytes, once there are some; none at the end."""
    try:
        descriptor = stream.fileno()
    except io.UnsupportedOperation:  # not of the operating system
        return stream.read(CHUNK_BYTES)
    await _wait_readable(descriptor)
    return os.read(descriptor, CHUNK_BYTES)


async def _wait_readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    is_readable = asyncio.Event()
    try:
        loop.add_reader(descriptor, is_readable.set)
    except PermissionError:  # a regular file: always readable, so nobody can wait for it
        return
    try:
        await is_readable.wait()
    finally:
        loop.remove_reader(descriptor)
