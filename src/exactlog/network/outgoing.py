"""How the parts of answers reach a transport: few writes, and no copy of what is large."""

import asyncio
from collections.abc import Sequence
from typing import Final, TypeAlias

Part: TypeAlias = bytes | bytearray | memoryview

JOIN_BYTES_MAX: Final = 16 * 1024  # below this a copy is cheaper than a system call or another vector entry


def write_parts(
    transport: asyncio.WriteTransport, parts: Sequence[Part], *, byte_count: int, is_vectored: bool
) -> None:
    """Write all parts in order.

    Args:
        transport: where to.
        parts: byte strings, or views of single bytes. Not to be changed afterwards: the transport may keep them.
        byte_count: how many bytes they have together.
        is_vectored: whether `transport.writelines` hands several buffers to one system call. uvloop's does; asyncio's
            joins them first (Python 3.11) or misses its flow control (3.12.0 to 3.12.8).
    """
    if byte_count < JOIN_BYTES_MAX:
        transport.write(b"".join(parts))
        return
    chunks = join_small_parts(parts)
    if is_vectored and len(chunks) > 1:
        transport.writelines(chunks)
        return
    for chunk in chunks:
        transport.write(chunk)


def join_small_parts(parts: Sequence[Part]) -> list[Part]:
    """The same bytes in fewer pieces: neighbours below `JOIN_BYTES_MAX` are joined, larger ones stay as they are."""
    chunks: list[Part] = []
    small: list[Part] = []
    for part in parts:
        if len(part) < JOIN_BYTES_MAX:
            small.append(part)
            continue
        if small:
            chunks.append(b"".join(small))
            small = []
        chunks.append(memoryview(part))  # so that a transport which sends a piece of it need not copy the rest
    if small:
        chunks.append(b"".join(small))
    return chunks
