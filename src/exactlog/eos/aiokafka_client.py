"""Transactions of aiokafka.

Three things that it leaves open are done here. A record that was not delivered does not fail its commit: the futures
are looked at. It sends offsets without the member's generation (aiokafka issue 844): the group is asked for a heartbeat
once they are pending, before they are committed. It reads committed offsets without waiting for a commit that is still
being completed: what was committed last is remembered.
"""

import asyncio
from collections.abc import Awaitable, Iterator, Mapping, MutableMapping
from contextlib import suppress
from importlib import import_module
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from exactlog.core.model.errors import ConfigError
from exactlog.eos.client import Membership, Message, Place
from exactlog.eos.errors import RebalancedError, TransactionError, code_of, error_of

Result = TypeVar("Result")

_committed_last: Final[MutableMapping[Any, tuple[Membership, dict[Place, int]]]] = WeakKeyDictionary()
"""By consumer: what was committed for it, and as what member."""


class AiokafkaClient:
    """An `aiokafka.AIOKafkaProducer` and perhaps an `AIOKafkaConsumer`, both started.

    Raises:
        ConfigError: the consumer has no group, or commits by itself.
    """

    def __init__(self, producer: Any, consumer: Any) -> None:  # noqa: ANN401  the user's own objects
        self._kafka = import_module("aiokafka")  # where the objects come from, so it is there
        self._errors = import_module("aiokafka.errors")
        self._producer = producer
        self._consumer = consumer
        self._deliveries = _Deliveries()
        self._pending: tuple[Membership, dict[Place, int]] | None = None
        self.has_consumer = consumer is not None
        if self.has_consumer:
            self._check_consumer()

    def _check_consumer(self) -> None:
        if self._consumer._group_id is None:  # noqa: SLF001  there is no other way to learn it
            raise ConfigError("the consumer has no group, so there are no offsets to commit", hint="give it a group_id")
        if self._consumer._enable_auto_commit:  # noqa: SLF001
            raise ConfigError(
                "the consumer commits offsets by itself, whether or not the transaction is committed",
                hint="make it with enable_auto_commit=False",
            )

    async def begin(self, *, timeout_s: float) -> None:
        """Begins a transaction."""
        self._deliveries = _Deliveries()
        self._pending = None
        await self._moved(self._producer.begin_transaction(), timeout_s)

    async def send(self, message: Message, *, timeout_s: float) -> None:
        """Hands a record to the producer, as soon as it has room."""
        sending = self._producer.send(
            message.topic, message.value, key=message.key, partition=message.partition, headers=message.headers
        )
        self._deliveries.add(await self._in_time(sending, timeout_s))

    async def deliver(self, *, timeout_s: float) -> None:
        """Waits until all that was sent has arrived; raises what the first record that did not has met."""
        await self._deliveries.settled(timeout_s)

    async def membership(self) -> Membership:
        """The member's generation and id, and its partitions."""
        coordinator = self._consumer._coordinator  # noqa: SLF001
        generation = (coordinator.generation, coordinator.member_id)
        return Membership(generation, frozenset(tuple(place) for place in self._consumer.assignment()))

    async def positions(self, *, timeout_s: float) -> Mapping[Place, int]:
        """The next offset of each partition, but for those where it is committed already."""
        known = self._remembered(await self.membership())
        found: dict[Place, int] = {}
        for place in self._consumer.assignment():
            position = await self._in_time(self._consumer.position(place), timeout_s)
            if known.get(tuple(place)) != position:
                found[tuple(place)] = position
        return found

    async def send_offsets(self, offsets: Mapping[Place, int], membership: Membership, *, timeout_s: float) -> None:
        """Sends offsets, and then makes sure that the group still counts on this member.

        Whoever gets its partitions after that heartbeat finds the offsets pending.
        """
        places = {self._kafka.TopicPartition(*place): offset for place, offset in offsets.items()}
        coordinator = self._consumer._coordinator  # noqa: SLF001
        sending = self._producer.send_offsets_to_transaction(places, coordinator.group_id)
        await self._in_time(sending, timeout_s)
        self._pending = (membership, dict(offsets))
        if coordinator.member_id:  # else its partitions were assigned by hand
            is_alive = await self._in_time(coordinator._do_heartbeat(), timeout_s)  # noqa: SLF001
            if await self.membership() != membership:
                raise RebalancedError("the group has given this consumer's partitions away")
            if not is_alive:
                raise self._errors.GroupCoordinatorNotAvailableError

    async def commit(self, *, timeout_s: float) -> None:
        """Commits."""
        await self._moved(self._producer.commit_transaction(), timeout_s)
        if self._pending is not None:
            membership, offsets = self._pending
            _committed_last[self._consumer] = (membership, self._remembered(membership) | offsets)

    def _remembered(self, membership: Membership) -> dict[Place, int]:
        as_member, offsets = _committed_last.get(self._consumer, (None, {}))
        return offsets if as_member == membership else {}

    async def abort(self, *, timeout_s: float) -> None:
        """Aborts."""
        await self._moved(self._producer.abort_transaction(), timeout_s)

    async def rewind(self, *, timeout_s: float) -> None:
        """Seeks to the committed offsets; where there is none, `auto_offset_reset` decides, as at a start."""
        known = self._remembered(await self.membership())
        for place in self._consumer.assignment():
            committed = await self._in_time(self._consumer.committed(place), timeout_s)
            offset = max(-1 if committed is None else committed, known.get(tuple(place), -1))
            if place not in self._consumer.assignment():
                continue  # it was given away meanwhile, and comes back where it is committed, if ever
            if offset >= 0:
                self._consumer.seek(place, offset)
            elif self._consumer._auto_offset_reset == "earliest":  # noqa: SLF001
                await self._in_time(self._consumer.seek_to_beginning(place), timeout_s)
            else:
                await self._in_time(self._consumer.seek_to_end(place), timeout_s)

    async def pause(self, seconds: float) -> None:
        """Lets time pass."""
        await asyncio.sleep(seconds)

    async def _moved(self, call: Awaitable[None], timeout_s: float) -> None:
        """Moves on in aiokafka's state machine, which only asserts that it is not somewhere else."""
        try:
            await self._in_time(call, timeout_s)
        except AssertionError as error:
            raise self._errors.IllegalOperation(f"{error}; one producer has one transaction at a time") from None

    async def _in_time(self, call: Awaitable[Result], timeout_s: float) -> Result:
        return await asyncio.wait_for(call, timeout_s)

    def typed(self, error: Exception, *, doing: str) -> TransactionError | None:
        """Sorts by the state the producer is left in, then by the error and what it comes from.

        A record that was not delivered has used up sequence numbers: what follows it would be refused as out of order.
        """
        cause = self._end_of_producer()
        is_of_producer = isinstance(error, self._errors.KafkaError | self._errors.IllegalOperation | TimeoutError)
        if cause is None and not is_of_producer:
            return None
        chain = list(_chain(cause or error))
        if any(isinstance(link, self._errors.ProducerFenced) for link in chain):
            fenced = self._errors.InvalidProducerEpoch
            return error_of(f"{doing}: {chain[0]}", kafka_error=code_of(fenced.errno))
        told = next((link for link in chain if isinstance(link, self._errors.BrokerResponseError)), chain[-1])
        is_spent = error is self._deliveries.error or isinstance(told, self._errors.IllegalOperation)
        is_late = isinstance(told, TimeoutError | self._errors.KafkaTimeoutError)
        return error_of(
            f"{doing}: {str(told) or type(told).__name__}",
            kafka_error=code_of(getattr(told, "errno", None)),
            is_fatal=is_spent or cause is not None,
            is_retriable=is_late or getattr(told, "retriable", False),
        )

    def _end_of_producer(self) -> BaseException | None:
        """Why its sender has ended; None while it works. Afterwards aiokafka only asserts that it has not."""
        with suppress(AttributeError, asyncio.InvalidStateError, asyncio.CancelledError):
            error: BaseException | None = self._producer._sender.sender_task.exception()  # noqa: SLF001
            if error is not None:
                self._producer._txn_manager.wait_for_transaction_end().exception()  # noqa: SLF001  it is told by us
            return error
        return None


class _Deliveries:
    """The records of one transaction that are on their way, and the first error one of them has met."""

    def __init__(self) -> None:
        self._unfinished: set[asyncio.Future[Any]] = set()
        self.error: BaseException | None = None

    def add(self, delivery: asyncio.Future[Any]) -> None:
        self._unfinished.add(delivery)
        delivery.add_done_callback(self._finished)

    def _finished(self, delivery: asyncio.Future[Any]) -> None:
        self._unfinished.discard(delivery)
        if not delivery.cancelled() and (error := delivery.exception()) is not None:
            self.error = self.error or error

    async def settled(self, timeout_s: float) -> None:
        """Waits for all.

        Raises:
            TimeoutError: some are still on their way.
            Exception: what one of them has met.
        """
        if self._unfinished:
            await asyncio.wait(self._unfinished, timeout=timeout_s)
        if self.error is not None:
            raise self.error
        if self._unfinished:
            raise TimeoutError(f"{len(self._unfinished)} records are still on their way")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what it comes from; that a call was cancelled because time was up is no news."""
    while isinstance(error, Exception):
        yield error
        error = error.__cause__
