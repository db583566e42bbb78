"""Topics of a cluster, over the client: exactlog, Apache Kafka, or whatever else speaks their protocol."""

import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Final, Self

from exactlog.client.ports import EARLIEST, LATEST, Client, ClientSettings, DamagedBatchError, IsolationLevel
from exactlog.client.transactions import (
    TRANSACTION_TIMEOUT_MS_DEFAULT,
    OutcomeUnknownError,
    ProducerFencedError,
    TransactionalProducer,
)
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import ExactlogError, KafkaError, UnavailableError
from exactlog.core.model.ids import Offset, TopicPartition
from exactlog.core.record.batch_builder import NewRecord
from exactlog.core.wal.errors import RegionTopicsError
from exactlog.wal.ports import (
    AppendUnsettledError,
    Content,
    DamagedRecordsError,
    StoredRecord,
    TopicBounds,
    WriterFencedError,
)

_BROKERS_DEFAULT: Final = -1
_TRANSACTION_TIMEOUT_MS_MAX: Final = 900_000  # Kafka's transaction.max.timeout.ms


class ClientBackend:
    """The `WalBackend` port over a client, which it closes at its end."""

    def __init__(
        self,
        client: Client,
        *,
        replication_factor: int | None = None,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS_DEFAULT,
    ) -> None:
        self._client = client
        self._transaction_timeout_ms = transaction_timeout_ms
        self._replication_factor = _BROKERS_DEFAULT if replication_factor is None else replication_factor

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """See `WalBackend`."""
        await self._client.close()

    async def list_topics(self) -> list[str]:
        """See `WalBackend`."""
        return [topic.name for topic in await self._client.list_topics()]

    async def create_topic(self, topic: str, configs: Mapping[str, str]) -> None:
        """See `WalBackend`."""
        try:
            await self._client.create_topic(
                topic, partition_count=1, replication_factor=self._replication_factor, configs=configs
            )
        except KafkaError as error:
            if error.error_code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    async def topic_configs(self, topic: str) -> dict[str, str | None]:
        """See `WalBackend`."""
        described = await self._client.describe_topic(topic)
        if len(described.partitions) != 1:
            raise RegionTopicsError(
                f"topic {topic} has {len(described.partitions)} partitions; that of a region has one",
                hint="it is no topic of a region, or somebody has added partitions; use another namespace",
            )
        return {config.name: config.value for config in described.configs}

    async def bounds(self, topic: str) -> TopicBounds:
        """See `WalBackend`."""
        place = TopicPartition(topic, 0)
        end = (await self._client.list_offsets({place: LATEST}))[place].offset
        stable = (await self._client.list_offsets({place: LATEST}, isolation=IsolationLevel.READ_COMMITTED))[place]
        start = (await self._client.list_offsets({place: EARLIEST}))[place].offset
        return TopicBounds(start or 0, stable.offset or 0, end or 0)

    async def read(self, topic: str, start: int, end: int) -> AsyncGenerator[StoredRecord, None]:
        """See `WalBackend`."""
        place = TopicPartition(topic, 0)
        if start >= end:
            return
        records = self._client.consume(
            {place: Offset(start)}, ends={place: Offset(end)}, isolation=IsolationLevel.READ_COMMITTED
        )
        try:
            async for found in records:
                record = found.record
                yield StoredRecord(record.offset, record.key, record.value)
        except DamagedBatchError as error:
            raise DamagedRecordsError(str(error), offset=error.offset, next_offset=error.next_offset) from error

    async def delete_before(self, topic: str, offset: int) -> None:
        """See `WalBackend`."""
        await self._client.delete_records({TopicPartition(topic, 0): Offset(offset)})

    async def writer(self, transactional_id: str) -> "_ClientWriter":
        """See `WalBackend`."""
        producer = self._client.transactional_producer(transactional_id, timeout_ms=self._transaction_timeout_ms)
        await producer.init()
        return _ClientWriter(producer)


class _ClientWriter:
    """The `LogWriter` port: one transaction for each append."""

    def __init__(self, producer: TransactionalProducer) -> None:
        self._producer = producer
        self._unsettled: list[int] | None = None
        self._must_abort = False

    async def append(self, topic: str, records: Sequence[Content]) -> list[int]:
        """See `LogWriter`."""
        if self._unsettled is not None:
            raise AppendUnsettledError("an append before has not been settled")
        try:
            await self._abort_what_is_open()
            await self._producer.begin()
        except ProducerFencedError as error:
            raise _fenced(error) from error
        offsets = await self._produce(topic, records)
        await self._commit(offsets)
        return offsets

    async def settle(self) -> list[int] | None:
        """See `LogWriter`."""
        offsets = self._unsettled
        if offsets is not None:
            try:
                await self._commit(offsets)
            except KafkaError:  # it was answered, and is refused
                return None
        return offsets

    async def close(self) -> None:
        """See `LogWriter`."""
        if self._unsettled is None:
            await self._producer.__aexit__(None, None, None)

    async def _produce(self, topic: str, records: Sequence[Content]) -> list[int]:
        contents = [NewRecord(value, key) for key, value in records]
        self._must_abort = True  # whatever ends this, a cancellation too
        try:
            produced = await self._producer.produce(topic, contents, partition=0)
        except ProducerFencedError as error:
            raise _fenced(error) from error
        except ExactlogError:
            await self._give_up()
            raise
        offsets = [int(record.offset) for record in produced if record.offset is not None]
        if len(offsets) != len(records):
            await self._give_up()
            raise UnavailableError(f"append to {topic}: the broker has forgotten where a record that came twice lies")
        return offsets

    async def _commit(self, offsets: list[int]) -> None:
        try:
            await self._producer.commit()
        except ProducerFencedError as error:
            self._unsettled = None
            raise _fenced(error) from error
        except OutcomeUnknownError as error:
            self._unsettled, self._must_abort = offsets, False
            raise AppendUnsettledError(str(error), hint=error.hint) from error
        except ExactlogError:
            self._unsettled = None
            await self._give_up()
            raise
        except BaseException:  # cancelled: the end may be under way
            self._unsettled, self._must_abort = offsets, False
            raise
        self._unsettled, self._must_abort = None, False

    async def _give_up(self) -> None:
        """Abort at once, for readers wait behind what is open; what cannot be aborted now is before the next append."""
        with contextlib.suppress(ExactlogError):
            await self._abort_what_is_open()

    async def _abort_what_is_open(self) -> None:
        if self._must_abort:
            await self._producer.abort()
            self._must_abort = False


def transaction_timeout_ms(settings: ClientSettings | None) -> int:
    """How long a transaction may be open: while a write is still being tried it is not to be taken for a dead one."""
    deadline_ms = (settings or ClientSettings()).deadline_ms
    return min(max(TRANSACTION_TIMEOUT_MS_DEFAULT, 3 * deadline_ms), _TRANSACTION_TIMEOUT_MS_MAX)


def _fenced(error: ProducerFencedError) -> WriterFencedError:
    return WriterFencedError(str(error), hint=error.hint)
