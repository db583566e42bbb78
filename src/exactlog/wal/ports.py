"""What a region needs of a log, whichever backend has it; and what carries payloads that are no bytes."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Protocol, Self, TypeVar

from msgspec import Struct

from exactlog.core.model.errors import ExactlogError, UnavailableError

Payload = TypeVar("Payload")

Content = tuple[bytes, bytes]
"""The key and the value of a record to be written."""


class StoredRecord(Struct, frozen=True, gc=False):
    """A record of a topic's one partition."""

    offset: int
    key: bytes | None
    value: bytes | None


class TopicBounds(Struct, frozen=True):
    """Where a topic's one partition begins and ends.

    Attributes:
        start: the first offset there is.
        stable_end: readers come up to here: an open transaction holds them there.
        end: the offset that the next record gets.
    """

    start: int
    stable_end: int
    end: int


class WriterFencedError(ExactlogError):
    """Somebody else has taken the id of this writer since; it writes no more."""

    code = "fenced"


class AppendUnsettledError(UnavailableError):
    """Whether what was appended counts is not known; `LogWriter.settle` finds out."""

    code = "outcome-unknown"


class DamagedRecordsError(ExactlogError):
    """Records that lie together and cannot be read.

    Attributes:
        offset: where the first of them lies.
        next_offset: where the first one behind them lies.
    """

    code = "damage"

    def __init__(self, message: str, *, offset: int, next_offset: int) -> None:
        super().__init__(message)
        self.offset = offset
        self.next_offset = next_offset


class LogWriter(Protocol):
    """The one writer of a region. Its calls are one after another."""

    async def append(self, topic: str, records: Sequence[Content]) -> list[int]:
        """Append records, all of them or none, and say at which offset each lies.

        Raises:
            WriterFencedError: nothing was written, and nothing ever will be.
            AppendUnsettledError: they may be there; call `settle` before anything else.
            ExactlogError: nothing was written.
        """

    async def settle(self) -> list[int] | None:
        """What became of the append that was left open: its offsets, or None where it does not count.

        Raises:
            WriterFencedError: it was decided by whoever has the id now.
            UnavailableError: it is still not known; call again.
        """

    async def close(self) -> None:
        """Write no more."""


class WalBackend(Protocol):
    """Topics with one partition each."""

    async def list_topics(self) -> list[str]:
        """The names of all topics."""

    async def create_topic(self, topic: str, configs: Mapping[str, str]) -> None:
        """Create a topic; one that is there already stays as it is."""

    async def topic_configs(self, topic: str) -> dict[str, str | None]:
        """The settings that are in force for a topic.

        Raises:
            RegionTopicsError: the topic has more than one partition.
        """

    async def bounds(self, topic: str) -> TopicBounds:
        """Where a topic begins and ends."""

    def read(self, topic: str, start: int, end: int) -> AsyncGenerator[StoredRecord, None]:
        """The committed records from one offset up to, and without, another; waits until they are stable.

        Raises:
            OffsetOutOfRangeError: the first of them were deleted.
            DamagedRecordsError: some cannot be read; those behind them may be.
        """

    async def delete_before(self, topic: str, offset: int) -> None:
        """Delete the records below an offset; one below the beginning changes nothing."""

    async def writer(self, transactional_id: str) -> LogWriter:
        """The writer of that id. Whoever was it is fenced, and what it left open does not count."""

    async def close(self) -> None:
        """Let go of everything."""

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *exception: object) -> None: ...


class PayloadCodec(Protocol[Payload]):
    """How payloads of a type become bytes, and bytes payloads again."""

    def encode(self, payload: Payload, /) -> bytes | bytearray | memoryview:
        """The bytes of a payload."""

    def decode(self, data: bytes, /) -> Payload:
        """The payload of some bytes; what it raises is told as damage of that entry."""
