"""The place of one frame's answer."""

import struct
from collections.abc import Sequence
from typing import Final, Protocol

from exactlog.core.model.errors import InvariantError
from exactlog.network.outgoing import Part

SIZE: Final = struct.Struct(">i")  # in front of every frame and answer
SKIPPED: Final = -SIZE.size  # the size of no answer: it leaves as 0 bytes

_ANSWER_BYTES_MAX: Final = 2**31 - 1  # the size is a signed 32-bit integer to the peer


class AnswerQueue(Protocol):
    """What a reply needs from its connection."""

    @property
    def peer(self) -> tuple[str, int]: ...

    def answered(self, size: int) -> None:
        """One of the frames has its answer, of so many bytes."""


class Reply:
    """The place of one frame's answer. Exactly one of `send` and `skip` is due, now or later."""

    __slots__ = ("_queue", "parts", "size")

    def __init__(self, queue: AnswerQueue) -> None:
        self._queue = queue
        self.parts: Sequence[Part] | None = None  # None: no answer yet
        self.size = SKIPPED

    def send(self, parts: Sequence[Part]) -> None:
        """Answer the frame with these bytes; their size is put in front here.

        Views must be of single bytes. Nothing of it may be changed afterwards. Without effect once the connection is
        closing.

        Raises:
            InvariantError: the frame has its answer already, or the answer is 2 GiB or more.
        """
        size = sum(map(len, parts))
        if size > _ANSWER_BYTES_MAX:
            raise InvariantError(f"an answer of {size} bytes to {self._queue.peer}: a size has 31 bits")
        if self.parts is not None:
            raise self._answered_twice()
        self.parts = parts
        self.size = size
        self._queue.answered(size)

    def skip(self) -> None:
        """The frame gets no answer (Produce with acks=0); later answers go ahead.

        Raises:
            InvariantError: the frame has its answer already.
        """
        if self.parts is not None:
            raise self._answered_twice()
        self.parts = ()
        self._queue.answered(SKIPPED)

    def _answered_twice(self) -> InvariantError:
        return InvariantError(f"a frame of {self._queue.peer} was answered twice")
