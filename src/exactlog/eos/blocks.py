"""A transaction as a block: it commits at its end, or takes everything back."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from time import sleep
from types import TracebackType
from typing import Any, Self, TypeVar

from exactlog.core.model.errors import ConfigError
from exactlog.eos.aiokafka_client import AiokafkaClient
from exactlog.eos.client import Headers, Message, Place, TransactionalClient, library_of
from exactlog.eos.confluent_client import ConfluentClient, called
from exactlog.eos.errors import TransactionError
from exactlog.eos.steps import Steps, finished

Result = TypeVar("Result")


def transaction(
    producer: object, consumer: object | None = None, *, timeout_ms: int = 30_000, retries: int = 0
) -> "Transaction":
    """What is sent in the block, and what the consumer has read, is committed as one at its end, or not at all.

        async with transaction(producer, consumer) as txn:
            await txn.send("invoices", value, key=key)

    On an error, the block's own or one met on the way, the transaction is aborted, the consumer is put back to its
    committed offsets, and the error is raised. Of confluent-kafka, what blocks is done in a thread.

    Args:
        producer: a `confluent_kafka.Producer` with a `transactional.id`, or a started `aiokafka.AIOKafkaProducer` with
            a `transactional_id`. One transaction at a time.
        consumer: of the same library, in a group, without automatic commits; None: nothing is read.
        timeout_ms: for each step. Shorter than the transaction's own timeout, or its coordinator gives up first.
        retries: how often `run` does its work again; not for a `with` block, whose body runs once.

    Raises:
        TypeError: the objects are of no library that is served, or of two.
        ConfigError: the consumer has no group or commits by itself.
        TransactionError: from the block: one of `exactlog.eos.errors`.
    """
    client: TransactionalClient
    if library_of(producer, consumer, is_sync=False) == "aiokafka":
        client = AiokafkaClient(producer, consumer)
    else:
        client = ConfluentClient(producer, consumer, asyncio.to_thread)
    return Transaction(client, timeout_ms=timeout_ms, retries=retries)


def transaction_sync(
    producer: object, consumer: object | None = None, *, timeout_ms: int = 30_000, retries: int = 0
) -> "SyncTransaction":
    """The same without asyncio, for confluent-kafka alone.

        with transaction_sync(producer, consumer) as txn:
            txn.send("invoices", value, key=key)

    Raises:
        TypeError: the objects are not confluent-kafka's.
        TransactionError: from the block: one of `exactlog.eos.errors`.
    """
    library_of(producer, consumer, is_sync=True)
    return SyncTransaction(ConfluentClient(producer, consumer, called), timeout_ms=timeout_ms, retries=retries)


class _Block:
    """What both kinds have in common."""

    def __init__(self, client: TransactionalClient, *, timeout_ms: int, retries: int) -> None:
        if timeout_ms <= 0 or retries < 0:
            raise ConfigError(
                f"timeout_ms={timeout_ms}, retries={retries}: a time above 0, and no fewer than 0 retries"
            )
        self._client = client
        self._timeout_ms = timeout_ms
        self._retries = retries
        self._steps = self._new_steps()

    def use_offsets(self, offsets: Mapping[Place, int]) -> None:
        """Commits these for the consumer, in place of its positions: the next offset by topic and partition.

        May be called several times; the latest offset of a partition counts. With none at all, none is committed.
        """
        self._steps.offsets = {**(self._steps.offsets or {}), **offsets}

    def _new_steps(self) -> Steps:
        return Steps(self._client, timeout_s=self._timeout_ms / 1000)

    def _refuse_retries(self) -> None:
        if self._retries:
            raise ConfigError("the body of a `with` block cannot be run again", hint="use run(work), or retries=0")

    def _may_run_again(self, error: TransactionError, attempt: int) -> bool:
        return error.retryable and attempt < self._retries


class Transaction(_Block):
    """An asynchronous block. It can be used again once it has ended."""

    async def send(
        self,
        topic: str,
        value: object = None,
        *,
        key: object = None,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> None:
        """Sends a record: bytes, or whatever the producer serialises. That it has arrived, the commit makes sure."""
        await self._steps.send(Message(topic, value, key, headers, partition))

    async def run(self, work: Callable[[Self], Awaitable[Result]]) -> Result:
        """Runs `work(txn)` in a block and returns its result; up to `retries` times again if that may help.

        What `work` itself raises is not tried again. Each time the consumer is where it was, and `work` reads anew.
        Between two attempts there is a pause, first of 100 ms, then twice as long each time, up to 3 s.
        """
        attempt = 0
        while True:
            try:
                async with type(self)(self._client, timeout_ms=self._timeout_ms, retries=0) as txn:
                    return await work(txn)
            except TransactionError as error:
                if not self._may_run_again(error, attempt):
                    raise
            attempt += 1
            await asyncio.sleep(_pause_s(attempt))

    async def __aenter__(self) -> Self:
        self._refuse_retries()
        self._steps = self._new_steps()
        try:
            await _uninterrupted(self._steps.begin())
        except asyncio.CancelledError as error:
            await _uninterrupted(self._steps.end(error))
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _uninterrupted(self._steps.end(error))


class SyncTransaction(_Block):
    """A blocking block. It can be used again once it has ended."""

    def send(
        self,
        topic: str,
        value: object = None,
        *,
        key: object = None,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> None:
        """Sends a record: bytes, or whatever the producer serialises. That it has arrived, the commit makes sure."""
        finished(self._steps.send(Message(topic, value, key, headers, partition)))

    def run(self, work: Callable[[Self], Result]) -> Result:
        """Runs `work(txn)` in a block and returns its result; up to `retries` times again if that may help.

        What `work` itself raises is not tried again. Each time the consumer is where it was, and `work` reads anew.
        Between two attempts there is a pause, first of 100 ms, then twice as long each time, up to 3 s.
        """
        attempt = 0
        while True:
            try:
                with type(self)(self._client, timeout_ms=self._timeout_ms, retries=0) as txn:
                    return work(txn)
            except TransactionError as error:
                if not self._may_run_again(error, attempt):
                    raise
            attempt += 1
            sleep(_pause_s(attempt))

    def __enter__(self) -> Self:
        self._refuse_retries()
        self._steps = self._new_steps()
        finished(self._steps.begin())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        finished(self._steps.end(error))


def _pause_s(attempt: int) -> float:
    """A member of a group may need a heartbeat, by default every 3 s, to learn that it has to join again."""
    return min(0.05 * 2.0**attempt, 3.0)


async def _uninterrupted(steps: Coroutine[Any, Any, None]) -> None:
    """Takes steps to their end even if whoever waits is cancelled meanwhile: half an ending helps nobody."""
    task = asyncio.ensure_future(steps)
    is_cancelled = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            is_cancelled = True
    task.result()
    if is_cancelled:
        raise asyncio.CancelledError
