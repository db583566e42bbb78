"""Topics in memory: for tests of what is built on a region. Offsets are those of the records alone, without gaps."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Self

from exactlog.core.model.errors import NotFoundError, OffsetOutOfRangeError
from exactlog.wal.ports import Content, StoredRecord, TopicBounds, WriterFencedError


class MemoryBackend:
    """The `WalBackend` port in memory. It outlives its closing: who opens it again finds what was there."""

    def __init__(self) -> None:
        self._topics: dict[str, _Topic] = {}
        self._epochs: dict[str, int] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """See `WalBackend`."""

    async def list_topics(self) -> list[str]:
        """See `WalBackend`."""
        return sorted(self._topics)

    async def create_topic(self, topic: str, configs: Mapping[str, str]) -> None:
        """See `WalBackend`."""
        self._topics.setdefault(topic, _Topic(dict(configs)))

    async def topic_configs(self, topic: str) -> dict[str, str | None]:
        """See `WalBackend`."""
        return dict(self._topic(topic).configs)

    async def bounds(self, topic: str) -> TopicBounds:
        """See `WalBackend`."""
        found = self._topic(topic)
        return TopicBounds(found.start, found.end, found.end)

    async def read(self, topic: str, start: int, end: int) -> AsyncGenerator[StoredRecord, None]:
        """See `WalBackend`."""
        found = self._topic(topic)
        for offset in range(start, min(end, found.end)):
            if offset < found.start:
                raise OffsetOutOfRangeError(f"{topic} at offset {offset}", oldest=found.start)
            key, value = found.records[offset - found.start]
            yield StoredRecord(offset, key, value)

    async def delete_before(self, topic: str, offset: int) -> None:
        """See `WalBackend`."""
        self._topic(topic).delete_before(offset)

    async def writer(self, transactional_id: str) -> "_MemoryWriter":
        """See `WalBackend`."""
        epoch = self._epochs[transactional_id] = self._epochs.get(transactional_id, -1) + 1
        return _MemoryWriter(self, transactional_id, epoch)

    # --- for those that write what is no entry ---------------------------------------------------------------

    def put(self, topic: str, key: bytes | None, value: bytes | None) -> int:
        """Append any record, as a stranger would, and say at which offset."""
        found = self._topic(topic)
        found.records.append((key, value))
        return found.end - 1

    def check_epoch(self, transactional_id: str, epoch: int) -> None:
        """Refuse a writer that another one has followed; raises `WriterFencedError`."""
        if self._epochs[transactional_id] != epoch:
            raise WriterFencedError(f"somebody else has taken {transactional_id}")

    def _topic(self, topic: str) -> "_Topic":
        found = self._topics.get(topic)
        if found is None:
            raise NotFoundError(f"topic {topic} does not exist")
        return found


class _Topic:
    def __init__(self, configs: dict[str, str]) -> None:
        self.configs = configs
        self.start = 0
        self.records: list[tuple[bytes | None, bytes | None]] = []

    @property
    def end(self) -> int:
        return self.start + len(self.records)

    def delete_before(self, offset: int) -> None:
        if offset > self.start:
            del self.records[: offset - self.start]
            self.start = offset


class _MemoryWriter:
    """The `LogWriter` port in memory."""

    def __init__(self, backend: MemoryBackend, transactional_id: str, epoch: int) -> None:
        self._backend = backend
        self._transactional_id = transactional_id
        self._epoch = epoch

    async def append(self, topic: str, records: Sequence[Content]) -> list[int]:
        """See `LogWriter`."""
        self._backend.check_epoch(self._transactional_id, self._epoch)
        return [self._backend.put(topic, key, value) for key, value in records]

    async def settle(self) -> list[int] | None:
        """See `LogWriter`."""
        self._backend.check_epoch(self._transactional_id, self._epoch)
        return None

    async def close(self) -> None:
        """See `LogWriter`."""
