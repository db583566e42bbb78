"""Transactions of confluent-kafka. Its calls block, so whoever has an event loop makes them in a thread."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from importlib import import_module
from time import monotonic, sleep
from typing import Any, Final

from exactlog.core.model.error_code import ErrorCode
from exactlog.eos.client import Membership, Message, Place
from exactlog.eos.errors import TransactionError, code_of, error_of

Call = Callable[..., Awaitable[Any]]
"""How a blocking function is called: called, or called in a thread and awaited."""

_ROOM_POLL_S: Final = 0.1


class ConfluentClient:
    """A `confluent_kafka.Producer` and perhaps a `Consumer`."""

    def __init__(self, producer: Any, consumer: Any, call: Call) -> None:  # noqa: ANN401  the user's own objects
        self._kafka = import_module("confluent_kafka")  # where the objects come from, so it is there
        self._producer = producer
        self._consumer = consumer
        self._call = call
        self._delivery_errors: list[Any] = []
        self.has_consumer = consumer is not None

    async def begin(self, *, timeout_s: float) -> None:
        """Begins a transaction; a producer that has not been initialised is, which is the usual first step."""
        self._delivery_errors = []  # reports of what was aborted may still come, into the old list
        try:
            self._producer.begin_transaction()
        except self._kafka.KafkaException as refused:
            if refused.args[0].code() != self._kafka.KafkaError._STATE:  # noqa: SLF001  local codes are spelt so
                raise
            if not await self._was_initialised(timeout_s):
                raise
            self._producer.begin_transaction()

    async def _was_initialised(self, timeout_s: float) -> bool:
        """False where that was not what was missing."""
        try:
            await self._call(self._producer.init_transactions, timeout_s)
        except self._kafka.KafkaException as error:
            if error.args[0].code() != self._kafka.KafkaError._STATE:  # noqa: SLF001
                raise
            return False
        return True

    async def send(self, message: Message, *, timeout_s: float) -> None:
        """Hands a record to librdkafka, as soon as its queue has room."""
        optional: dict[str, Any] = {"key": message.key, "headers": message.headers, "partition": message.partition}
        given = {name: value for name, value in optional.items() if value is not None}
        given["on_delivery"] = partial(_note_error, self._delivery_errors)
        deadline = monotonic() + timeout_s
        while True:
            try:
                self._producer.produce(message.topic, message.value, **given)
            except BufferError:
                if monotonic() >= deadline:
                    raise self._timed_out("its queue has been full all the time") from None
                await self._call(self._producer.poll, _ROOM_POLL_S)
            else:
                self._producer.poll(0)
                return

    async def deliver(self, *, timeout_s: float) -> None:
        """Waits until all that was sent has arrived; raises what the first record that did not has met."""
        left = await self._call(self._producer.flush, timeout_s)
        if self._delivery_errors:
            raise self._kafka.KafkaException(self._delivery_errors[0])
        if left:
            raise self._timed_out(f"{left} records are still on their way")

    def _timed_out(self, reason: str) -> Exception:
        timed_out = self._kafka.KafkaError._TIMED_OUT  # noqa: SLF001
        error: Exception = self._kafka.KafkaException(self._kafka.KafkaError(timed_out, reason, retriable=True))
        return error

    async def membership(self) -> Membership:
        """The member's metadata (generation and member id, as librdkafka writes them) and its partitions."""
        partitions = frozenset((place.topic, place.partition) for place in self._consumer.assignment())
        return Membership(self._consumer.consumer_group_metadata(), partitions)

    async def positions(self, *, timeout_s: float) -> Mapping[Place, int]:  # noqa: ARG002  nobody is asked
        """The next offset of each partition that was read from."""
        return {(place.topic, place.partition): place.offset for place in self._read_from()}

    def _read_from(self) -> list[Any]:
        return [place for place in self._consumer.position(self._consumer.assignment()) if place.offset >= 0]

    async def send_offsets(self, offsets: Mapping[Place, int], membership: Membership, *, timeout_s: float) -> None:
        """Sends offsets with the generation they were read in: the group's coordinator compares it (KIP-447)."""
        places = [
            self._kafka.TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()
        ]
        await self._call(self._producer.send_offsets_to_transaction, places, membership.generation, timeout_s)

    async def commit(self, *, timeout_s: float) -> None:
        """Commits."""
        await self._call(self._producer.commit_transaction, timeout_s)

    async def abort(self, *, timeout_s: float) -> None:
        """Aborts."""
        await self._call(self._producer.abort_transaction, timeout_s)

    async def rewind(self, *, timeout_s: float) -> None:
        """Seeks to the committed offsets; where there is none, `auto.offset.reset` decides, as at a start.

        A consumer that is read_committed, as by default, waits here for a commit that is not complete yet.
        """
        read_from = self._read_from()
        if not read_from:
            return
        for place in await self._call(self._consumer.committed, read_from, timeout_s):
            if place.error is not None:
                raise self._kafka.KafkaException(place.error)
            beginning = self._kafka.TopicPartition(place.topic, place.partition, place.offset)
            await self._call(self._consumer.seek, beginning)

    async def pause(self, seconds: float) -> None:
        """Lets time pass."""
        await self._call(sleep, seconds)

    def typed(self, error: Exception, *, doing: str) -> TransactionError | None:
        """Sorts by what librdkafka says of an error itself: fatal, retriable, or to be aborted."""
        if not isinstance(error, self._kafka.KafkaException):
            return None
        told = error.args[0]
        if told.code() == self._kafka.KafkaError._FATAL:  # noqa: SLF001
            told = self._first_fatal_error() or told
        return error_of(
            f"{doing}: {told.str()}",
            kafka_error=self._code_of(told.code()),
            is_fatal=told.fatal() or told.code() in self._misuse(),
            is_retriable=told.retriable(),
        )

    def _first_fatal_error(self) -> Any:  # noqa: ANN401  KafkaError | None
        """Why the producer is dead: a call that does nothing but say so."""
        try:
            self._producer.begin_transaction()
        except self._kafka.KafkaException as error:
            return error.args[0]
        return None

    def _misuse(self) -> frozenset[int]:
        names = self._kafka.KafkaError
        return frozenset({names._STATE, names._NOT_CONFIGURED, names._CONFLICT})  # noqa: SLF001

    def _code_of(self, number: int) -> ErrorCode | None:
        names = self._kafka.KafkaError
        local = {
            names._FENCED: ErrorCode.PRODUCER_FENCED,  # noqa: SLF001
            names._TIMED_OUT: ErrorCode.REQUEST_TIMED_OUT,  # noqa: SLF001
            names._MSG_TIMED_OUT: ErrorCode.REQUEST_TIMED_OUT,  # noqa: SLF001
        }
        return local.get(number) or code_of(number)


def _note_error(errors: list[Any], error: object, _message: object) -> None:
    """A delivery report; the first error is all that is wanted."""
    if error is not None and not errors:
        errors.append(error)


async def called(function: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401  what the function returns
    """Calls a function and waits for it: for whoever has no event loop."""
    return function(*arguments)
