"""The workers of a workload: producers, copiers and readers, each a generator of calls.

A worker yields a call and is sent the answer, None if it was lost; it yields `PAUSE` when it has recorded the outcome
of a request and lets others go first. Its choices come from a random number generator of its own, so that they do not
depend on how the workers take turns.
"""

from collections.abc import Generator, Sequence
from enum import Enum
from random import Random
from typing import Final, TypeAlias, TypeVar

from exactlog.core.model.error_code import ErrorCode
from exactlog.testing.history import Recorder
from exactlog.testing.history_format import (
    NOT_SAID,
    Batch,
    Begin,
    Done,
    End,
    EndOffset,
    EndOffsetRead,
    Failed,
    Init,
    Initialised,
    LogRead,
    OffsetsRead,
    Outcome,
    Place,
    PlaceOffset,
    Poll,
    Polled,
    ReadLog,
    ReadOffsets,
    Send,
    SendOffsets,
    Sent,
    Unknown,
)
from exactlog.testing.workload_calls import (
    NOBODY,
    AddOffsets,
    AddPartitions,
    Answer,
    Call,
    CommitOffsets,
    EndFound,
    EndTransaction,
    Fetch,
    Fetched,
    FetchOffsets,
    FindEnd,
    Identified,
    InitProducer,
    OffsetsFetched,
    Produce,
    Produced,
    Producer,
)


class Pause(Enum):
    """Let others go first."""

    PAUSE = "pause"


PAUSE: Final = Pause.PAUSE
ATTEMPTS_MAX: Final = 300
"""How often a call is sent again that is refused for now."""

Result = TypeVar("Result")
Steps: TypeAlias = Generator[Call | Pause, Answer | None, Result]

_FOR_NOW: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
    }
)
"""Refusals that have done nothing, and may not come again."""


class Worker:
    """What every worker can do.

    Attributes:
        name: of the worker.
        choose: where its choices come from.
    """

    def __init__(self, name: str, recorder: Recorder, *, seed: int, patience: float = 0.7) -> None:
        """`patience` is how likely it sends again what had no answer, rather than giving up."""
        self.name = name
        self.choose = Random(f"{seed} {name}")  # noqa: S311  a choice, not a secret
        self._recorder = recorder
        self._patience = patience

    def _attempt(self, call: Call) -> Steps[tuple[Answer | None, bool]]:
        """The answer to a call that is sent until it is not refused for now, and whether an attempt got none."""
        was_lost = False
        for _ in range(ATTEMPTS_MAX):
            answer = yield call
            if answer is None:
                was_lost = True
                if self.choose.random() > self._patience:
                    return None, True
            elif answer.error_code not in _FOR_NOW:
                return answer, was_lost
        return None, was_lost

    def _end_of(self, op: int, answer: Answer | None, *, was_lost: bool) -> Outcome | None:
        """How a request ended that did not succeed; None: it did."""
        if answer is not None and not answer.error_code:
            return None
        if was_lost:
            return Unknown(op=op, error="no answer")
        code = ErrorCode.REQUEST_TIMED_OUT if answer is None else ErrorCode(answer.error_code)
        return Failed(op=op, error=code.name)

    # --- reading ----------------------------------------------------------------------------------------------------

    def poll(self, session: str, place: Place, position: int, *, is_committed: bool, bytes_max: int) -> Steps[Polled]:
        """One poll, as a consumer does it: it leaves out what was aborted, by the list that comes with the records."""
        op = self._recorder.next_op()
        request = Poll(
            op=op,
            worker=self.name,
            session=session,
            topic=place.topic,
            partition=place.partition,
            is_committed=is_committed,
            position=position,
        )
        self._recorder.request(request)
        answer, was_lost = yield from self._attempt(Fetch(place, position, is_committed, bytes_max))
        polled = Polled(op=op, next_position=position)
        outcome = self._end_of(op, answer, was_lost=was_lost)
        if outcome is None:
            assert isinstance(answer, Fetched)
            outcome = polled = Polled(
                op=op,
                records=visible(answer, position, is_committed=is_committed),
                next_position=max([position, *(batch.next_offset for batch in answer.batches)]),
                high_watermark=answer.high_watermark,
                last_stable_offset=answer.last_stable_offset,
                log_start_offset=answer.log_start_offset,
                aborted=answer.aborted,
            )
        self._recorder.outcome(outcome)
        yield PAUSE
        return polled

    def read_offsets(self, group: str, places: Sequence[Place], *, is_stable: bool) -> Steps[dict[Place, int] | None]:
        """The offsets of a group; None if they could not be read."""
        op = self._recorder.next_op()
        self._recorder.request(
            ReadOffsets(op=op, worker=self.name, group=group, places=tuple(places), is_stable=is_stable)
        )
        answer, was_lost = yield from self._attempt(FetchOffsets(group, tuple(places), is_stable))
        outcome = self._end_of(op, answer, was_lost=was_lost)
        if outcome is not None:
            self._recorder.outcome(outcome)
            yield PAUSE
            return None
        assert isinstance(answer, OffsetsFetched)
        self._recorder.outcome(OffsetsRead(op=op, offsets=answer.offsets))
        yield PAUSE
        return {offset.place: offset.offset for offset in answer.offsets}

    def find_end(self, place: Place, *, is_committed: bool) -> Steps[int]:
        """The last stable offset or the high watermark; -1 if it was not told."""
        op = self._recorder.next_op()
        request = EndOffset(
            op=op, worker=self.name, topic=place.topic, partition=place.partition, is_committed=is_committed
        )
        self._recorder.request(request)
        answer, was_lost = yield from self._attempt(FindEnd(place, is_committed))
        outcome = self._end_of(op, answer, was_lost=was_lost)
        found = NOT_SAID
        if outcome is None:
            assert isinstance(answer, EndFound)
            found = answer.offset
            outcome = EndOffsetRead(op=op, offset=found)
        self._recorder.outcome(outcome)
        yield PAUSE
        return found

    def read_log(self, place: Place, *, start: int = 0, is_final: bool = False, bytes_max: int = 2**20) -> Steps[None]:
        """All batches from `start` to the high watermark."""
        op = self._recorder.next_op()
        request = ReadLog(op=op, worker=self.name, topic=place.topic, partition=place.partition, is_final=is_final)
        self._recorder.request(request)
        batches: list[Batch] = []
        position, first = start, NOT_SAID
        while True:
            answer, was_lost = yield from self._attempt(Fetch(place, position, False, bytes_max))  # noqa: FBT003
            outcome = self._end_of(op, answer, was_lost=was_lost)
            if outcome is not None:
                break
            assert isinstance(answer, Fetched)
            first = answer.log_start_offset if first == NOT_SAID else first
            batches += answer.batches
            position = max([position, *(batch.next_offset for batch in answer.batches)])
            if not answer.batches or position >= answer.high_watermark:
                outcome = LogRead(
                    op=op,
                    log_start_offset=first,
                    high_watermark=answer.high_watermark,
                    last_stable_offset=answer.last_stable_offset,
                    batches=tuple(batches),
                )
                break
        self._recorder.outcome(outcome)
        yield PAUSE


def visible(fetched: Fetched, position: int, *, is_committed: bool) -> tuple[tuple[int, str | None], ...]:
    """The records that a consumer hands out."""
    to_come = sorted(fetched.aborted or (), key=lambda entry: entry[1])
    aborted: set[int] = set()
    found: list[tuple[int, str | None]] = []
    for batch in fetched.batches:
        while to_come and to_come[0][1] <= batch.last_offset:
            aborted.add(to_come.pop(0)[0])
        if batch.marker is not None:
            if batch.marker == "abort":
                aborted.discard(batch.producer_id)
            continue
        if is_committed and batch.is_transactional and batch.producer_id in aborted:
            continue
        found += [pair for pair in enumerate(batch.values, start=batch.base_offset) if pair[0] >= position]
    return tuple(found)


class Writer(Worker):
    """A worker that writes; what it writes is numbered."""

    def __init__(self, name: str, recorder: Recorder, *, seed: int, version: int, patience: float = 0.7) -> None:
        super().__init__(name, recorder, seed=seed, patience=patience)
        self._version = version
        self._producer = NOBODY
        self._sequences: dict[Place, int] = {}
        self._is_doubtful = False
        self._written = 0
        self._begun = 0

    def new_values(self, count: int) -> tuple[str, ...]:
        """Values that nobody has sent."""
        first = self._written + 1
        self._written += count
        return tuple(f"{self.name}:{number}" for number in range(first, self._written + 1))

    def give_up_producer(self) -> None:
        """The next transaction needs a new epoch."""
        self._producer, self._sequences, self._is_doubtful = NOBODY, {}, False

    def doubt(self, *, was_lost: bool) -> None:
        """A request without an answer may still be under way, and arrive when another has answered and all is over.

        Without an epoch for each transaction it would then count for the next one (KAFKA-17754).
        """
        self._is_doubtful = self._is_doubtful or (was_lost and self._version < 2)

    def init(self, transactional_id: str | None) -> Steps[bool]:
        """Gets a producer id and an epoch; false: not now."""
        op = self._recorder.next_op()
        self.give_up_producer()
        if transactional_id is not None:
            self._recorder.request(Init(op=op, worker=self.name, transactional_id=transactional_id))
        answer, was_lost = yield from self._attempt(InitProducer(transactional_id))
        outcome = self._end_of(op, answer, was_lost=was_lost)
        if outcome is None:
            assert isinstance(answer, Identified)
            self._producer = Producer(answer.producer_id, answer.producer_epoch, transactional_id)
            outcome = Initialised(op=op, producer_id=answer.producer_id, producer_epoch=answer.producer_epoch)
        if transactional_id is not None:
            self._recorder.outcome(outcome)
        yield PAUSE
        return self._producer is not NOBODY

    def begin(self) -> str:
        """Begins a transaction; returns its name."""
        self._begun += 1
        name = f"{self.name}/{self._begun}"
        self._recorder.begin(
            Begin(
                worker=self.name,
                transaction=name,
                transactional_id=self._producer.transactional_id or "",
                producer_id=self._producer.producer_id,
                producer_epoch=self._producer.producer_epoch,
                transaction_version=self._version,
            )
        )
        return name

    def send(
        self,
        place: Place,
        values: tuple[str, ...],
        *,
        transaction: str | None = None,
        sources: tuple[PlaceOffset, ...] = (),
    ) -> Steps[bool]:
        """Sends values, again and again with the same sequence while nobody answers; false: they are not all there."""
        op = self._recorder.next_op()
        producer = self._producer
        is_idempotent = producer.producer_id != NOT_SAID
        request = Send(
            op=op,
            worker=self.name,
            topic=place.topic,
            partition=place.partition,
            values=values,
            transaction=transaction,
            is_idempotent=is_idempotent,
            sources=sources,
        )
        self._recorder.request(request)
        sequence = self._sequences.get(place, 0) if is_idempotent else NOT_SAID
        answer: Answer | None = Answer()
        was_lost = False
        if transaction is not None and self._version < 2:
            answer, was_lost = yield from self._attempt(AddPartitions(producer, place))
        if answer is not None and not answer.error_code:
            answer, was_lost = yield from self._attempt(Produce(producer, place, values, sequence))
        outcome = self._end_of(op, answer, was_lost=was_lost)
        if outcome is None:
            assert isinstance(answer, Produced)
            outcome = Sent(op=op, base_offset=answer.base_offset)
            self._sequences[place] = (sequence + len(values)) % 2**31
        self._recorder.outcome(outcome)
        yield PAUSE
        return isinstance(outcome, Sent)

    def send_offsets(self, group: str, offsets: tuple[PlaceOffset, ...], *, transaction: str | None) -> Steps[bool]:
        """Commits offsets; false: perhaps not."""
        op = self._recorder.next_op()
        producer = self._producer if transaction is not None else NOBODY
        request = SendOffsets(op=op, worker=self.name, group=group, offsets=offsets, transaction=transaction)
        self._recorder.request(request)
        answer: Answer | None = Answer()
        was_lost = False
        if transaction is not None and self._version < 2:
            answer, was_lost = yield from self._attempt(AddOffsets(producer, group))
        if answer is not None and not answer.error_code:
            answer, was_lost = yield from self._attempt(CommitOffsets(producer, group, offsets))
        self.doubt(was_lost=was_lost)
        outcome = self._end_of(op, answer, was_lost=was_lost) or Done(op=op)
        self._recorder.outcome(outcome)
        yield PAUSE
        return isinstance(outcome, Done)

    def end(self, transaction: str, *, is_commit: bool) -> Steps[bool]:
        """Ends a transaction; false: it has not, or nobody knows, and the producer has to be made anew."""
        op = self._recorder.next_op()
        self._recorder.request(End(op=op, worker=self.name, transaction=transaction, is_commit=is_commit))
        answer, was_lost = yield from self._attempt(EndTransaction(self._producer, is_commit))
        outcome = self._end_of(op, answer, was_lost=was_lost) or Done(op=op)
        self.doubt(was_lost=was_lost)
        if not isinstance(outcome, Done) or self._is_doubtful:
            self.give_up_producer()
        elif isinstance(answer, Identified) and answer.producer_id != NOT_SAID:
            self._producer = Producer(answer.producer_id, answer.producer_epoch, self._producer.transactional_id)
            self._sequences = {}
        self._recorder.outcome(outcome)
        yield PAUSE
        return isinstance(outcome, Done)
