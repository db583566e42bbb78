"""What a transaction asks of the client libraries, and which of them serves given objects."""

from collections.abc import Hashable, Mapping
from typing import Final, NamedTuple, Protocol, TypeAlias

from exactlog.eos.errors import TransactionError

Place: TypeAlias = tuple[str, int]
"""A topic and a partition."""

Headers: TypeAlias = list[tuple[str, bytes]]


class Membership(NamedTuple):
    """What a consumer has been given by its group. While it stays the same, nobody else reads the same records."""

    generation: Hashable
    partitions: frozenset[Place]


class Message(NamedTuple):
    """What is to be sent; `partition` None lets the producer choose."""

    topic: str
    value: object
    key: object
    headers: Headers | None
    partition: int | None


class TransactionalClient(Protocol):
    """A producer and perhaps a consumer, of one library.

    Methods raise the library's own errors, which `typed` sorts. A call that runs out of time may be made again: it goes
    on where it was.
    """

    has_consumer: bool

    async def begin(self, *, timeout_s: float) -> None:
        """Begins a transaction."""

    async def send(self, message: Message, *, timeout_s: float) -> None:
        """Hands a record to the producer, as soon as it has room."""

    async def deliver(self, *, timeout_s: float) -> None:
        """Waits until all that was sent has arrived; raises what the first record that did not has met."""

    async def membership(self) -> Membership:
        """What the consumer has now."""

    async def positions(self, *, timeout_s: float) -> Mapping[Place, int]:
        """The next offset of each partition that the consumer has read from."""

    async def send_offsets(self, offsets: Mapping[Place, int], membership: Membership, *, timeout_s: float) -> None:
        """Makes offsets part of the transaction, if the consumer still is what it was; RebalancedError if not."""

    async def commit(self, *, timeout_s: float) -> None:
        """Commits."""

    async def abort(self, *, timeout_s: float) -> None:
        """Aborts."""

    async def rewind(self, *, timeout_s: float) -> None:
        """Puts the consumer where it would begin after a restart."""

    async def pause(self, seconds: float) -> None:
        """Lets time pass."""

    def typed(self, error: Exception, *, doing: str) -> TransactionError | None:
        """What an error of the library means; None for any other error."""


_CONFLUENT: Final = "confluent-kafka"
_AIOKAFKA: Final = "aiokafka"
_PRODUCERS: Final = {("cimpl", "Producer"): _CONFLUENT, ("aiokafka", "AIOKafkaProducer"): _AIOKAFKA}
_CONSUMERS: Final = {("cimpl", "Consumer"): _CONFLUENT, ("aiokafka", "AIOKafkaConsumer"): _AIOKAFKA}


def library_of(producer: object, consumer: object | None, *, is_sync: bool) -> str:
    """The library that both come from.

    Raises:
        TypeError: they come from no library we serve, or not from the same one; or it has no blocking calls.
    """
    library = _found(_PRODUCERS, producer)
    caller = "transaction_sync()" if is_sync else "transaction()"
    choices = "a confluent_kafka.Producer" if is_sync else "a confluent_kafka.Producer or an aiokafka.AIOKafkaProducer"
    if is_sync and library == _AIOKAFKA:
        raise TypeError(f"{caller}: aiokafka has no blocking calls; use `async with transaction(...)`, or {choices}")
    if library is None:
        raise TypeError(f"{caller}: {_named(producer)} is not a producer that is served; give {choices}")
    if consumer is not None and _found(_CONSUMERS, consumer) != library:
        raise TypeError(
            f"{caller}: the producer is one of {library} and {_named(consumer)} is not a consumer of it; "
            "both must come from the same library"
        )
    return library


def _found(classes: Mapping[tuple[str, str], str], thing: object) -> str | None:
    """Subclasses count: SerializingProducer is a Producer."""
    names = ((base.__module__.partition(".")[0], base.__qualname__) for base in type(thing).__mro__)
    return next((classes[name] for name in names if name in classes), None)


def _named(thing: object) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"
