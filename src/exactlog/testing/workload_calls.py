"""What a workload asks of a broker, and the port through which it asks: a broker over a socket, or a model of one."""

from typing import Protocol, TypeAlias

import msgspec

from exactlog.testing.history_format import NOT_SAID, Batch, Place, PlaceOffset


class Producer(msgspec.Struct, frozen=True):
    """Who writes: producer id and epoch, and the transactional id; None as that: no transactions."""

    producer_id: int = NOT_SAID
    producer_epoch: int = NOT_SAID
    transactional_id: str | None = None


NOBODY = Producer()
"""A producer without an id: nothing it sends is deduplicated."""


class InitProducer(msgspec.Struct, frozen=True):
    """Asks for a producer id and an epoch; ends with `Identified`."""

    transactional_id: str | None


class AddPartitions(msgspec.Struct, frozen=True):
    """Adds a partition to the transaction, where the broker does not do that by itself; ends with `Answer`."""

    producer: Producer
    place: Place


class AddOffsets(msgspec.Struct, frozen=True):
    """Adds a group to the transaction, where the broker does not do that by itself; ends with `Answer`."""

    producer: Producer
    group: str


class Produce(msgspec.Struct, frozen=True):
    """Writes one batch; ends with `Produced`."""

    producer: Producer
    place: Place
    values: tuple[str, ...]
    base_sequence: int = NOT_SAID


class CommitOffsets(msgspec.Struct, frozen=True):
    """Commits offsets of a group, in a transaction if the producer has one; ends with `Answer`."""

    producer: Producer
    group: str
    offsets: tuple[PlaceOffset, ...]


class EndTransaction(msgspec.Struct, frozen=True):
    """Ends the transaction; ends with `Identified`: who writes the next one."""

    producer: Producer
    is_commit: bool


class Fetch(msgspec.Struct, frozen=True):
    """Reads whole batches; ends with `Fetched`."""

    place: Place
    offset: int
    is_committed: bool
    bytes_max: int


class FetchOffsets(msgspec.Struct, frozen=True):
    """Asks for the offsets of a group; ends with `OffsetsFetched`."""

    group: str
    places: tuple[Place, ...]
    is_stable: bool


class FindEnd(msgspec.Struct, frozen=True):
    """Asks for the last stable offset or the high watermark; ends with `EndFound`."""

    place: Place
    is_committed: bool


Call: TypeAlias = (
    InitProducer
    | AddPartitions
    | AddOffsets
    | Produce
    | CommitOffsets
    | EndTransaction
    | Fetch
    | FetchOffsets
    | FindEnd
)


class Answer(msgspec.Struct, frozen=True):
    """What came back; `error_code` is Kafka's."""

    error_code: int = 0


class Identified(Answer, frozen=True):
    """A producer id and an epoch; -1: none was told."""

    producer_id: int = NOT_SAID
    producer_epoch: int = NOT_SAID


class Produced(Answer, frozen=True):
    """Where the batch stands."""

    base_offset: int = NOT_SAID


class Fetched(Answer, frozen=True):
    """Whole batches, the first of which may begin before the offset asked for, and what the broker said with them."""

    batches: tuple[Batch, ...] = ()
    high_watermark: int = NOT_SAID
    last_stable_offset: int = NOT_SAID
    log_start_offset: int = NOT_SAID
    aborted: tuple[tuple[int, int], ...] | None = None


class OffsetsFetched(Answer, frozen=True):
    """The offsets of a group."""

    offsets: tuple[PlaceOffset, ...] = ()


class EndFound(Answer, frozen=True):
    """An end of a partition."""

    offset: int = NOT_SAID


class Session(Protocol):
    """A connection, with at most one call under way."""

    def start(self, call: Call) -> None:
        """Send a call. A connection that has broken shows in `finish`."""

    def finish(self) -> Answer | None:
        """Wait for the answer; None: it will not come, and the call may have been carried out or may still be."""

    def drop(self) -> None:
        """Break the connection, whatever is under way; the next call makes a new one."""


class System(Protocol):
    """A broker that a workload runs against."""

    @property
    def transaction_version(self) -> int:
        """2: a transaction takes in by itself what is written in it, and each has an epoch of its own; else 1."""

    def create_topic(self, name: str, partition_count: int) -> None:
        """Create a topic that is not there yet."""

    def connect(self) -> Session:
        """A new connection."""

    def crash(self) -> None:
        """Let the broker die and start again."""

    def close(self) -> None:
        """Close what was opened."""
