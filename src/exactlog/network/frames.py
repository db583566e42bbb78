"""Cuts received bytes into frames: a 4-byte big-endian size, then that many bytes.

All connections of a server receive into one shared buffer, because a read and its handling run back to back. A frame
that lies whole in it is copied out to a `bytearray` of its own. Of a frame that does not, the first part moves to a
buffer of its own, into which the rest is then received directly: a large frame is copied once at most, and whoever gets
a frame owns it.
"""

import struct
from typing import Final

from exactlog.core.model.errors import DecodeError

_SIZE: Final = struct.Struct(">i")
_EMPTY: Final = bytearray()

# A size is a claim until its bytes arrive: memory is handed out for so many times what has come, and a little more.
_GROWTH_FACTOR: Final = 4
_FIRST_CAPACITY_BYTES: Final = 16 * 1024

_TLS_HANDSHAKE: Final = b"\x16\x03"  # record type 22, major version 3 (RFC 8446 §5.1)
_FIRST_WORDS: Final = {
    b"GET ": "an HTTP request",
    b"POST": "an HTTP request",
    b"PUT ": "an HTTP request",
    b"HEAD": "an HTTP request",
    b"DELE": "an HTTP request",
    b"PATC": "an HTTP request",
    b"OPTI": "an HTTP request",
    b"CONN": "an HTTP request",
    b"PRI ": "an HTTP/2 preface",
    b"SSH-": "an SSH greeting",
    b"PROX": "a PROXY protocol header",
}


class FrameSizeError(DecodeError):
    """A size no frame may have.

    Attributes:
        foreign_protocol: what the bytes are instead, when that is known ("a TLS hello"); else None.
    """

    def __init__(self, size: int, frame_bytes_max: int, first_bytes: bytes) -> None:
        self.foreign_protocol = name_foreign_protocol(first_bytes)
        super().__init__(
            f"{self.foreign_protocol} where a frame should start"
            if self.foreign_protocol
            else f"a frame of {size} bytes; a frame has between 1 and {frame_bytes_max}"
        )


def name_foreign_protocol(first_bytes: bytes) -> str | None:
    """What the first four bytes of a connection are, when they are known not to be a frame's size.

    Read as a size each of these is above 369 MB, so any frame limit below that turns them all away.
    """
    if first_bytes[:2] == _TLS_HANDSHAKE:
        return "a TLS hello"
    return _FIRST_WORDS.get(first_bytes[:4])


class FrameReceiver:
    """The receiving half of one connection: `get_buffer`, `advance`, then `next_frame` until it gives None.

    Who stops before that calls `put_aside`: the shared buffer is about to be written by another connection.
    """

    __slots__ = ("_end", "_filled", "_frame", "_frame_bytes_max", "_frame_size", "_position", "_shared", "_source")

    def __init__(self, shared: memoryview, *, frame_bytes_max: int) -> None:
        self._shared = shared
        self._frame_bytes_max = frame_bytes_max
        self._frame: bytearray | None = None  # of a frame that has come in part; it may be shorter than the frame
        self._frame_size = 0
        self._filled = 0
        self._source = _EMPTY  # what source[position:end] holds is received and not yet cut
        self._position = 0
        self._end = 0

    def get_buffer(self) -> memoryview:
        """Where the next bytes shall go. Valid until `advance`."""
        frame = self._frame
        if frame is None:
            uncut = self._end - self._position  # part of a size: less than 4 bytes
            if not uncut:
                return self._shared
            self._shared[:uncut] = self._source[self._position : self._end]
            return self._shared[uncut:]
        if self._filled == len(frame):
            # A new buffer, not a longer one: a loop may still hold a view of the old, and then it cannot be resized.
            grown = bytearray(min(self._frame_size, self._filled * _GROWTH_FACTOR))
            grown[: self._filled] = frame
            self._frame = frame = grown
        return memoryview(frame)[self._filled :]

    def advance(self, byte_count: int) -> None:
        """So many bytes have arrived in the buffer."""
        if self._frame is not None:
            self._filled += byte_count
            return
        self._end += byte_count - self._position
        self._position = 0
        self._source = self._shared.obj  # type: ignore[assignment]  # the bytearray under the view

    def next_frame(self) -> bytearray | None:
        """The next whole frame, without its size; None when no whole one has arrived.

        Raises:
            FrameSizeError: the size is below 1 or above the limit; nothing after it can be understood.
        """
        frame = self._frame
        if frame is not None:
            if self._filled < self._frame_size:
                return None
            self._frame = None
            return frame
        start = self._position + _SIZE.size
        if start > self._end:
            if self._position < self._end:
                self.put_aside()
            return None
        (size,) = _SIZE.unpack_from(self._source, self._position)
        if not 0 < size <= self._frame_bytes_max:
            raise FrameSizeError(size, self._frame_bytes_max, bytes(self._source[self._position : start]))
        stop = start + size
        if stop > self._end:
            self._begin_frame(size, start)
            return None
        self._position = stop
        return self._source[start:stop]

    def put_aside(self) -> None:
        """Copy what is not cut yet out of the shared buffer."""
        self._source = self._source[self._position : self._end]
        self._position, self._end = 0, len(self._source)

    def clear(self) -> None:
        """Forget everything received."""
        self._frame = None
        self._source = _EMPTY
        self._position = self._end = 0

    def _begin_frame(self, size: int, start: int) -> None:
        self._filled = self._end - start
        self._frame_size = size
        self._frame = bytearray(min(size, max(_FIRST_CAPACITY_BYTES, self._filled * _GROWTH_FACTOR)))
        self._frame[: self._filled] = self._source[start : self._end]
        self._position = self._end
        self.put_aside()
