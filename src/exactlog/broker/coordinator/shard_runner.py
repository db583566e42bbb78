"""Carries out what a coordinator's rules decide: records to the log, answers once they are committed, timers.

Records that are decided while a round is in flight wait together and become one batch of the next; those that are part
of a transaction are a batch of their producer, at once. An answer leaves when everything that had been decided by then
is committed, even where it needs no record of its own: it may tell what an earlier, still undecided record says. When a
round fails, all that was decided since is forgotten and everybody who waits for it is sent away to ask again.

The log is bounded: once enough has been appended, all that is live is written anew at its end, and the log start moves
up to there, or to the first open transaction. Replaying from there gives the same state.
"""

import logging
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, groupby
from operator import itemgetter
from typing import Final, Generic

from msgspec import Struct

from exactlog.broker.coordinator.decided_records import DecidedRecord, batches_of, encode_records, newest_of_each
from exactlog.broker.coordinator.machine import AnyMachine
from exactlog.broker.coordinator.telling import NOT_TOLD, call_back, send_away, tell, waiters_of
from exactlog.broker.timers import Timers
from exactlog.core.model.clock import Clock
from exactlog.core.model.decisions import (
    NOTHING,
    Answer,
    CancelTimer,
    Decision,
    ProducerIdentity,
    SetTimer,
    Waiter,
)
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import EncodeError, InvariantError
from exactlog.core.model.ids import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
)
from exactlog.core.model.limits import COORDINATOR_LOG_BYTES_MAX
from exactlog.core.record.batch_builder import build_batch
from exactlog.core.record.batch_format import BATCH_OVERHEAD, decode_header
from exactlog.core.record.control_record_format import TransactionMarker
from exactlog.storage.partition_log import Appended, AppendRefused, PartitionLog
from exactlog.storage.round_committer import RoundCommitter

_logger = logging.getLogger(__name__)

_MARKER_BYTES: Final = BATCH_OVERHEAD + 17
_STOPS: Final = "%s: the coordinator stops"
_NO_PRODUCER: Final = ProducerIdentity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


def expect_no_effect(effect: Struct) -> None:
    """For rules that never decide an effect.

    Raises:
        InvariantError: always.
    """
    raise InvariantError(f"nobody carries this out: {effect!r}")


class ShardRunner(Generic[AnyMachine]):
    """One shard at work. It belongs to the event loop.

    Args:
        on_effect: carries out what the rules decide to be done elsewhere.
        on_broken: called when its rules have broken; it has resigned.
        only_newest_counts: whether of records with one key that go into one batch only the last need be written.

    Attributes:
        machine: its rules and state.
    """

    def __init__(
        self,
        partition: PartitionLog,
        machine: AnyMachine,
        *,
        rounds: RoundCommitter,
        timers: Timers,
        clock: Clock,
        on_effect: Callable[[Struct], None] = expect_no_effect,
        on_broken: Callable[[], None] = lambda: None,
        only_newest_counts: bool = False,
    ) -> None:
        self.machine = machine
        self._partition = partition
        self._rounds = rounds
        self._timers = timers
        self._clock = clock
        self._on_effect = on_effect
        self._on_broken = on_broken
        self._timer_keys: set[Hashable] = set()
        self._only_newest_counts = only_newest_counts
        self._forming: list[DecidedRecord] = []
        self._is_gathering = False
        self._decided = 0
        """How many records and markers have been decided, ever; an answer waits for this count to be committed."""
        self._committed = 0
        self._waiting: deque[tuple[int, Callable[[ErrorCode], None]]] = deque()
        self._term = 0
        """Grows by one when what was decided is forgotten; what a batch of an earlier term comes to is nobody's."""
        self._end_offset: int = partition.high_watermark
        self._log_bytes = 0
        self._live_bytes = 0
        self._rewritten_from: int | None = None
        """Where the newest rewrite begins that the log start has not reached yet."""
        self._is_resigned = False

    @property
    def is_usable(self) -> bool:
        """Whether requests may be handed to it."""
        return not self._is_resigned and self._partition.failure is None

    @property
    def partition(self) -> PartitionLog:
        """Its log. Nobody else appends to it."""
        return self._partition

    def start(self, *, loaded_bytes: int) -> None:
        """The machine has been loaded from so many bytes of log."""
        self._log_bytes = loaded_bytes
        self.decide(lambda machine, now_ms: machine.loaded(now_ms=now_ms))

    # --- deciding -----------------------------------------------------------------------------------------------

    def decide(
        self,
        work: Callable[[AnyMachine, int], Decision],
        *,
        asker: Waiter | None = None,
        has_effects_now: bool = False,
    ) -> None:
        """Lets the rules decide something now, and does it. Rules that break stop this shard, and no other.

        Args:
            asker: whose request it is; it is sent away where nothing can be decided any more.
            has_effects_now: whether effects are carried out before what decided them is committed: what they bring is
                part of the same round, and that is whole or absent.
        """
        if self._is_resigned or (has_effects_now and self._partition.failure is not None):  # nothing can be recorded
            send_away([] if asker is None else [asker])
            return
        decision = NOTHING
        told_at_once: tuple[Answer, ...] = ()
        now_ms = self._clock.now_ms()
        try:
            decision = work(self.machine, now_ms)
            told_at_once = self._carry_out(decision, now_ms=now_ms, has_effects_now=has_effects_now)
        except Exception:
            _logger.critical(_STOPS, self._partition.topic_partition, exc_info=True)
            unanswered = [] if asker is None else [asker]
            self._break((*unanswered, *waiters_of(decision)))
        if told_at_once:
            tell(told_at_once, asker=asker)

    def _carry_out(self, decision: Decision, *, now_ms: TimestampMs, has_effects_now: bool) -> tuple[Answer, ...]:
        """Does what was decided just now, nothing else may have happened since; gives who is to be told at once."""
        try:
            records = encode_records(decision.records, now_ms=now_ms)
        except EncodeError as error:  # before anything of it has happened: it concerns who asked, and nobody else
            _logger.error("%s: a decision cannot be written down: %s", self._partition.topic_partition, error)
            send_away(waiters_of(decision), ErrorCode.UNKNOWN_SERVER_ERROR)
            return ()
        if records and decision.producer is not None:
            refusal = self._append_pending(records, decision.producer)
            if refusal is not ErrorCode.NONE:
                self._refuse(refusal, partial(send_away, waiters_of(decision)))
                return ()
        elif records:
            self._gather(records)
        if decision.timers:
            self._set_timers(decision.timers)
        later = () if has_effects_now else decision.effects
        if decision.answers or later:
            self.when_committed(partial(self._conclude, decision.answers, later))
        for effect in decision.effects if has_effects_now else ():
            self._have_done(effect)
        return decision.told_at_once

    def _conclude(self, answers: Sequence[Answer], effects: Sequence[Struct], error: ErrorCode) -> None:
        """What was decided is committed, or never will be."""
        if error is not ErrorCode.NONE:
            send_away([answer.waiter for answer in answers], error)
            return
        tell(answers)
        for effect in effects:
            self._have_done(effect)

    @property
    def is_settled(self) -> bool:
        """Whether all that is decided by now is committed, or never will be."""
        return self._is_resigned or self._committed == self._decided

    def when_committed(self, callback: Callable[[ErrorCode], None]) -> None:
        """Calls back when all that is decided by now is committed (NONE) or never will be; at once when it is."""
        if self._is_resigned:
            callback(ErrorCode.NOT_COORDINATOR)
        elif self._committed == self._decided:
            callback(ErrorCode.NONE)
        else:
            self._waiting.append((self._decided, callback))
            if self._forming:
                self._rounds.hurry()

    def write_marker(
        self,
        marker: TransactionMarker,
        identity: ProducerIdentity,
        *,
        transaction_version: int,
        then: Callable[[ErrorCode], None],
    ) -> bool:
        """Ends a producer's transaction in this shard: what it has pending here counts from now on, or never will.

        Gives whether the marker is on its way into the log.

        Args:
            marker: whether it commits, and which coordinator says so.
            identity: whose transaction, and the epoch that the marker carries.
            transaction_version: 2 where that epoch is above the transaction's own (KIP-890).
            then: called once: it is committed (NONE), will never be (NOT_COORDINATOR), or was refused (the error).
        """
        refusal = ErrorCode.NOT_COORDINATOR
        try:
            if not self._is_resigned:
                refusal = self._append_marker(marker, identity, transaction_version=transaction_version)
        except Exception:
            _logger.critical(_STOPS, self._partition.topic_partition, exc_info=True)
            self._break()
        if refusal is ErrorCode.NONE:
            self.when_committed(then)
            return True
        self._refuse(refusal, then)
        return False

    def _refuse(self, refusal: ErrorCode, then: Callable[[ErrorCode], None]) -> None:
        """Tells of a refusal once that by which it was judged is committed; what failed instead may be tried again."""
        self.when_committed(lambda error: then(refusal if error is ErrorCode.NONE else error))

    def _set_timers(self, changes: Iterable[SetTimer | CancelTimer]) -> None:
        for change in changes:
            if isinstance(change, SetTimer):
                self._timer_keys.add(change.key)
                self._timers.set((self, change.key), change.delay_ms, partial(self._time_out, change.key))
            else:
                self._timer_keys.discard(change.key)
                self._timers.cancel((self, change.key))

    def _time_out(self, key: Hashable) -> None:
        self._timer_keys.discard(key)
        self.decide(lambda machine, now_ms: machine.time_out(key, now_ms=now_ms))

    def _have_done(self, effect: Struct) -> None:
        """An effect is carried out; where that breaks, the next load of this shard sees that it is still to be done."""
        if self._is_resigned:
            return
        try:
            self._on_effect(effect)
        except Exception:
            _logger.critical(_STOPS, self._partition.topic_partition, exc_info=True)
            self._break()

    # --- the log ------------------------------------------------------------------------------------------------

    def _gather(self, records: list[DecidedRecord]) -> None:
        """Records of no transaction wait for the next round; who waits for them brings it about."""
        for record in records:
            self.machine.replay(record.decided)
        self._forming += records
        self._decided += len(records)
        if not self._is_gathering:
            self._is_gathering = True
            self._rounds.with_next_round(self._append_gathered)

    def _append_gathered(self) -> None:
        """A round is about to start, and goes on with what others have for it whatever happens here."""
        self._is_gathering = False
        if self._is_resigned:
            return
        try:
            self._append_forming()
        except Exception:
            _logger.critical(_STOPS, self._partition.topic_partition, exc_info=True)
            self._break()

    def _append_forming(self) -> bool:
        """What was gathered until now becomes one batch; False where it has to be forgotten."""
        records, self._forming = self._forming, []
        if not records:
            return True
        count = len(records)
        if count > 1 and self._only_newest_counts:
            records = newest_of_each(records)
        refused = self._append(records, then=partial(self._on_records_committed, records, None, count))
        if refused is not None:
            self._forget_decided(refused.error_code)
            return False
        return self._rewrite_if_due()

    def _append_pending(self, records: list[DecidedRecord], producer: ProducerIdentity) -> ErrorCode:
        """Records of a transaction are appended at once: the partition may refuse them, and then nothing happened."""
        if not self._append_forming():
            return ErrorCode.NOT_COORDINATOR
        producer_id = producer.producer_id
        then = partial(self._on_records_committed, records, producer_id, len(records))
        refused = self._append(records, producer, then=then)
        if refused is not None:
            return self._reason(refused)
        for record in records:
            self.machine.replay(record.decided, producer_id=producer_id)
        self._decided += len(records)
        return ErrorCode.NONE if self._rewrite_if_due() else ErrorCode.NOT_COORDINATOR

    def _append_marker(
        self, marker: TransactionMarker, identity: ProducerIdentity, *, transaction_version: int
    ) -> ErrorCode:
        if not self._append_forming():
            return ErrorCode.NOT_COORDINATOR
        outcome = self._partition.append_marker(
            marker,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            transaction_version=transaction_version,
            now_ms=self._clock.now_ms(),
        )
        if isinstance(outcome, AppendRefused):
            return self._reason(outcome)
        self._note_appended(outcome, count=1, size_bytes=_MARKER_BYTES)
        self._await_commit(partial(self._on_marker_committed, identity.producer_id, marker))
        self.machine.replay_marker(identity.producer_id, is_commit=marker.is_commit)
        self._decided += 1
        return ErrorCode.NONE if self._rewrite_if_due() else ErrorCode.NOT_COORDINATOR

    def _reason(self, refused: AppendRefused) -> ErrorCode:
        """What to tell who is refused: it concerns nobody else, unless the partition takes nothing any more."""
        if self._partition.failure is None:
            return refused.error_code
        self._forget_decided(refused.error_code)
        return ErrorCode.NOT_COORDINATOR

    def _append(
        self, records: list[DecidedRecord], producer: ProducerIdentity = _NO_PRODUCER, *, then: Callable[[], None]
    ) -> AppendRefused | None:
        """Appends one batch and calls `then` once it is committed; says why, where it is refused."""
        batch = build_batch(
            records,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            is_transactional=producer is not _NO_PRODUCER,
        )
        now_ms = self._clock.now_ms()
        outcome = self._partition.append(
            decode_header(batch), memoryview(batch), now_ms=now_ms, is_client=False, is_verified=True
        )
        if isinstance(outcome, AppendRefused):
            return outcome
        self._note_appended(outcome, count=len(records), size_bytes=len(batch))
        self._await_commit(then)
        return None

    def _note_appended(self, appended: Appended, *, count: int, size_bytes: int) -> None:
        self._end_offset = appended.base_offset + count
        self._log_bytes += size_bytes

    def _await_commit(self, then: Callable[[], None]) -> None:
        """Calls `then` once what was appended last is committed; forgets what was decided, where it never will be."""
        term = self._term

        def when_committed(error: ErrorCode) -> None:
            if term != self._term:
                return
            if error is ErrorCode.NONE:
                then()
            else:
                self._forget_decided(error)

        self._partition.when_committed(when_committed)

    def _on_records_committed(self, records: list[DecidedRecord], producer_id: ProducerId | None, count: int) -> None:
        for record in records:
            self.machine.replay_committed(record.decided, producer_id=producer_id)
        self._reach(self._committed + count)

    def _on_marker_committed(self, producer_id: ProducerId, marker: TransactionMarker) -> None:
        self.machine.replay_marker_committed(producer_id, is_commit=marker.is_commit)
        if self._rewritten_from is not None and self._partition.last_stable_offset >= self._rewritten_from:
            self._move_log_start()
        self._reach(self._committed + 1)

    def _reach(self, committed: int) -> None:
        self._committed = committed
        waiting = self._waiting
        while waiting and waiting[0][0] <= committed:
            try:
                waiting.popleft()[1](ErrorCode.NONE)
            except Exception:  # who waits behind it must not wait for ever
                _logger.exception(NOT_TOLD)

    def _forget_decided(self, error: ErrorCode) -> None:
        """What was decided since the last commit never happened."""
        _logger.error("%s: the log took no record (%s)", self._partition.topic_partition, error.name)
        self._term += 1
        self._decided = self._committed
        self._forming = []
        waiting, self._waiting = self._waiting, deque()
        self.decide(lambda machine, now_ms: machine.reset(now_ms=now_ms))
        call_back([callback for _, callback in waiting], ErrorCode.NOT_COORDINATOR)  # some decide on, by what is left

    # --- its bound ----------------------------------------------------------------------------------------------

    def _rewrite_if_due(self) -> bool:
        """Writes all that is live at the end of the log, once that has become long; False where the log refuses.

        Nothing of it changes any state, wherever it ends: a value that is there already is said again.
        """
        if self._log_bytes <= max(COORDINATOR_LOG_BYTES_MAX, 2 * self._live_bytes):
            return True
        start, term = self._end_offset, self._term
        self._log_bytes = 0
        live = encode_records(self.machine.live_records(), now_ms=self._clock.now_ms())
        batches = [(_NO_PRODUCER, part) for part in batches_of(live)]
        for producer, records in chain(batches, self._pending_batches()):
            refused = self._append(records, producer, then=_nothing)
            if refused is not None:
                self._forget_decided(refused.error_code)
                return False
        self._live_bytes = self._log_bytes

        def when_committed(error: ErrorCode) -> None:
            if error is ErrorCode.NONE and term == self._term:
                self._rewritten_from = start
                self._move_log_start()

        self._partition.when_committed(when_committed)
        return True

    def _pending_batches(self) -> Iterator[tuple[ProducerIdentity, list[DecidedRecord]]]:
        """What is pending, in the transactions as they stand open in the partition."""
        epochs: dict[ProducerId, ProducerEpoch] | None = None
        for producer_id, pending in groupby(self.machine.pending_records(), key=itemgetter(0)):
            if epochs is None:
                epochs = {entry.producer_id: entry.producer_epoch for entry in self._partition.open_transactions()}
            if producer_id not in epochs:
                raise InvariantError(f"producer {producer_id} has records pending, and no transaction in its partition")
            records = encode_records((record for _, record in pending), now_ms=self._clock.now_ms())
            for part in batches_of(records):
                yield ProducerIdentity(producer_id, epochs[producer_id]), part

    def _move_log_start(self) -> None:
        """Lets go of what stands before the newest rewrite; what an open transaction began stays, and all behind it."""
        if self._rewritten_from is not None:
            reached = min(self._rewritten_from, self._partition.last_stable_offset)
            self._partition.move_log_start(reached)
            if reached == self._rewritten_from:
                self._rewritten_from = None

    # --- the end ------------------------------------------------------------------------------------------------

    def _break(self, unanswered: Iterable[Waiter] = ()) -> None:
        """Its rules have broken, or what carries them out: nobody else is hurt, and who waits here is sent away."""
        self.resign(unanswered)
        self._on_broken()

    def append_decided(self) -> None:
        """Has what is decided in the log before this shard resigns: what others have written because of it stays so."""
        self._append_gathered()

    def resign(self, also: Iterable[Waiter] = ()) -> None:
        """Lets everybody go who waits here, to ask again elsewhere or later; nothing is decided any more.

        Args:
            also: who waits, and neither the machine nor an answer that was decided knows of it.
        """
        if self._is_resigned:
            return
        self._is_resigned = True
        self._term += 1
        for key in self._timer_keys:
            self._timers.cancel((self, key))
        waiting, self._waiting = self._waiting, deque()
        call_back([callback for _, callback in waiting], ErrorCode.NOT_COORDINATOR)
        send_away((*self.machine.resign(), *also))


def _nothing() -> None:
    """A rewrite changes no state."""
