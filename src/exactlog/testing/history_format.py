"""A history: what the clients of a log asked for, and what became of each request, in the order in which it happened.

A file of JSON lines in UTF-8, one event a line. The order of the lines is the order of time: a request's line is
written before it is sent, the line of its outcome after the answer has come. The first line is

    {"type": "history", "format": 1}

every other one an event with its `type`: a request (`init`, `begin`, `send`, `send_offsets`, `end`, `poll`,
`read_offsets`, `end_offset`, `read_log`), an outcome (`failed`, `unknown`, `done`, `initialised`, `sent`, `polled`,
`offsets_read`, `end_offset_read`, `log_read`), or a `note`. Requests have an `op`, a number used once; the outcome has
the same. `begin` is both in one, for nothing is asked of a broker. Fields that have their default may be left out;
fields that are not known are passed over.
"""

from typing import Final, TypeAlias

import msgspec

from exactlog.core.model.errors import ExactlogError

FORMAT: Final = 1
"""The version of the format that is written, and the only one that is read."""

COMMIT: Final = "commit"
ABORT: Final = "abort"
NOT_SAID: Final = -1
"""An offset, id, epoch or sequence that is not there, or that the client was not told."""


class HistoryError(ExactlogError):
    """A file that is not a history, or one that contradicts itself. The message names the line."""

    code = "not-a-history"


class _Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """One line."""


class Header(_Event, frozen=True, tag="history"):
    """The first line; its field `format` is always there."""

    format: int


class Place(msgspec.Struct, frozen=True, array_like=True):
    """A partition, written `[topic, partition]`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class PlaceOffset(msgspec.Struct, frozen=True, array_like=True):
    """An offset in a partition, written `[topic, partition, offset]`."""

    topic: str
    partition: int
    offset: int

    @property
    def place(self) -> Place:
        """The partition."""
        return Place(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"


# --- requests -------------------------------------------------------------------------------------------------------


class Init(_Event, frozen=True, tag="init"):
    """A producer asks for its producer id and epoch; what others have open under its transactional id ends."""

    op: int
    worker: str
    transactional_id: str


class Begin(_Event, frozen=True, tag="begin"):
    """A transaction begins. Its name occurs once in a history.

    `producer_id` and `producer_epoch` are those its records carry, where the client knows them; `transaction_version`
    is 2 where each transaction has an epoch of its own (KIP-890), else 1.
    """

    worker: str
    transaction: str
    transactional_id: str
    producer_id: int = NOT_SAID
    producer_epoch: int = NOT_SAID
    transaction_version: int = 2


class Send(_Event, frozen=True, tag="send"):
    """Records for one partition, retries of the client included. No value is sent twice in a history.

    `transaction` is None outside of any. `is_idempotent` is false where retries may write twice. `sources` are the
    records that the values are copies of, one for each.
    """

    op: int
    worker: str
    topic: str
    partition: int
    values: tuple[str, ...]
    transaction: str | None = None
    is_idempotent: bool = True
    sources: tuple[PlaceOffset, ...] = ()


class SendOffsets(_Event, frozen=True, tag="send_offsets"):
    """A group commits offsets: in a transaction, or at once where that is None."""

    op: int
    worker: str
    group: str
    offsets: tuple[PlaceOffset, ...]
    transaction: str | None = None


class End(_Event, frozen=True, tag="end"):
    """A transaction is to end."""

    op: int
    worker: str
    transaction: str
    is_commit: bool


class Poll(_Event, frozen=True, tag="poll"):
    """A consumer reads on in one partition.

    `session` is new whenever the consumer has moved (a seek, a rebalance, a new consumer): within one, it reads on.
    """

    op: int
    worker: str
    session: str
    topic: str
    partition: int
    is_committed: bool
    position: int = NOT_SAID


class ReadOffsets(_Event, frozen=True, tag="read_offsets"):
    """The offsets of a group are asked for; `is_stable`: only when no transaction is about to change them."""

    op: int
    worker: str
    group: str
    places: tuple[Place, ...]
    is_stable: bool = True


class EndOffset(_Event, frozen=True, tag="end_offset"):
    """The end of a partition is asked for: its last stable offset (`is_committed`) or its high watermark."""

    op: int
    worker: str
    topic: str
    partition: int
    is_committed: bool


class ReadLog(_Event, frozen=True, tag="read_log"):
    """All of a partition is read, batch by batch, markers too.

    `is_final`: every transaction that was to end has had the time for it.
    """

    op: int
    worker: str
    topic: str
    partition: int
    is_final: bool = False


# --- outcomes -------------------------------------------------------------------------------------------------------


class Failed(_Event, frozen=True, tag="failed"):
    """The request certainly has done nothing. `error` is for who reads the history."""

    op: int
    error: str = ""


class Unknown(_Event, frozen=True, tag="unknown"):
    """The request has done what it should, or nothing, or will still do it."""

    op: int
    error: str = ""


class Done(_Event, frozen=True, tag="done"):
    """`send_offsets` and `end` have been done."""

    op: int


class Initialised(_Event, frozen=True, tag="initialised"):
    """The outcome of `init`."""

    op: int
    producer_id: int
    producer_epoch: int


class Sent(_Event, frozen=True, tag="sent"):
    """The outcome of `send`: the offset of the first value, the others follow; -1 where it was not told."""

    op: int
    base_offset: int = NOT_SAID


class Polled(_Event, frozen=True, tag="polled"):
    """The outcome of `poll`.

    `records` are those an application is given, written `[offset, value]`. `next_position` is where the consumer stands
    then. The others are as the broker said; `aborted` as `[producer id, first offset]`, None where the client does not
    show it.
    """

    op: int
    records: tuple[tuple[int, str | None], ...] = ()
    next_position: int = NOT_SAID
    high_watermark: int = NOT_SAID
    last_stable_offset: int = NOT_SAID
    log_start_offset: int = NOT_SAID
    aborted: tuple[tuple[int, int], ...] | None = None


class OffsetsRead(_Event, frozen=True, tag="offsets_read"):
    """The outcome of `read_offsets`; the offset -1 is none."""

    op: int
    offsets: tuple[PlaceOffset, ...]


class EndOffsetRead(_Event, frozen=True, tag="end_offset_read"):
    """The outcome of `end_offset`."""

    op: int
    offset: int


class Batch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A record batch as it stands in the log.

    `marker` is `commit` or `abort` where the batch is one; `coordinator_epoch` is then the marker's. `values` are left
    empty where they are nobody's business, as in the topics of the broker.
    """

    base_offset: int
    last_offset: int
    leader_epoch: int = NOT_SAID
    producer_id: int = NOT_SAID
    producer_epoch: int = NOT_SAID
    base_sequence: int = NOT_SAID
    is_transactional: bool = False
    marker: str | None = None
    coordinator_epoch: int = NOT_SAID
    values: tuple[str | None, ...] = ()

    @property
    def next_offset(self) -> int:
        """Where the next batch begins."""
        return self.last_offset + 1


class LogRead(_Event, frozen=True, tag="log_read"):
    """The outcome of `read_log`: every batch from the log start to the high watermark."""

    op: int
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    batches: tuple[Batch, ...]


class Note(_Event, frozen=True, tag="note"):
    """Something that happened around it, as a crash: for who reads the history."""

    text: str


Request: TypeAlias = Init | Send | SendOffsets | End | Poll | ReadOffsets | EndOffset | ReadLog
Outcome: TypeAlias = Failed | Unknown | Done | Initialised | Sent | Polled | OffsetsRead | EndOffsetRead | LogRead
Event: TypeAlias = Request | Outcome | Begin | Note

OUTCOMES: Final[dict[type[Request], type[Outcome]]] = {
    Init: Initialised,
    Send: Sent,
    SendOffsets: Done,
    End: Done,
    Poll: Polled,
    ReadOffsets: OffsetsRead,
    EndOffset: EndOffsetRead,
    ReadLog: LogRead,
}
"""What a request that succeeds ends with."""

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Header | Event)


def encode_event(event: Header | Event) -> bytes:
    """One line, its newline included."""
    return _encoder.encode(event) + b"\n"


def decode_event(line: bytes, *, number: int) -> Header | Event:
    """The event of a line; `number` is for the message, and counts from 1.

    Raises:
        HistoryError: it is none.
    """
    try:
        event: Header | Event = _decoder.decode(line)
    except msgspec.DecodeError as error:
        raise HistoryError(f"line {number}: {error}") from None
    return event
