"""Carries out what a coordinator's rules decide: records to the log, answers once they are committed, timers.

Records that are decided while a round is in flight wait together and become one batch of the next. An answer leaves
when everything that had been decided by then is committed, even where it needs no record of its own: it may tell what
an earlier, still undecided record says. When a round fails, all that was decided since is forgotten and everybody who
waits for it is sent away to ask again.

The log is bounded: once enough has been appended, all that is live is written anew at its end, and the log start moves
up to there. Replaying from there gives the same state.
"""

import logging
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Final, Generic

from msgspec import Struct

from exactlog.broker.coordinator.machine import AnyMachine
from exactlog.broker.timers import Timers
from exactlog.core.model.clock import Clock
from exactlog.core.model.decisions import NOTHING, Answer, CoordinatorRecord, Decision, SetTimer, Waiter
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import EncodeError
from exactlog.core.model.ids import TimestampMs
from exactlog.core.model.limits import COORDINATOR_LOG_BYTES_MAX
from exactlog.core.record.batch_builder import NewRecord, build_batch
from exactlog.core.record.batch_format import decode_header
from exactlog.storage.partition_log import AppendRefused, PartitionLog
from exactlog.storage.round_committer import RoundCommitter

_logger = logging.getLogger(__name__)

_REWRITE_BATCH_RECORDS: Final = 5_000  # about half a megabyte: no batch of a rewrite is too large for a reader


class _Decided(Struct, frozen=True):
    """A record that is on its way into the log, and how it is written there."""

    record: CoordinatorRecord
    encoded: NewRecord


class ShardRunner(Generic[AnyMachine]):
    """One shard at work. It belongs to the event loop.

    Attributes:
        machine: its rules and state.
    """

    def __init__(
        self, partition: PartitionLog, machine: AnyMachine, *, rounds: RoundCommitter, timers: Timers, clock: Clock
    ) -> None:
        self.machine = machine
        self._partition = partition
        self._rounds = rounds
        self._timers = timers
        self._clock = clock
        self._timer_keys: set[Hashable] = set()
        self._forming: list[_Decided] = []
        self._is_gathering = False
        self._decided = 0
        """How many records have been decided, ever; an answer waits for this count to be committed."""
        self._committed = 0
        self._waiting: deque[tuple[int, Callable[[ErrorCode], None]]] = deque()
        self._term = 0
        """Grows by one when what was decided is forgotten; what a batch of an earlier term comes to is nobody's."""
        self._log_bytes = 0
        self._live_bytes = 0
        self._is_resigned = False

    @property
    def is_usable(self) -> bool:
        """Whether requests may be handed to it."""
        return not self._is_resigned and self._partition.failure is None

    def start(self, *, loaded_bytes: int) -> None:
        """The machine has been loaded from so many bytes of log."""
        self._log_bytes = loaded_bytes
        self.carry_out(self.machine.loaded(now_ms=self._clock.now_ms()))

    # --- deciding -----------------------------------------------------------------------------------------------

    def decide(self, work: Callable[[AnyMachine, int], Decision], *, asker: Waiter | None = None) -> None:
        """Lets the rules decide something now, and does it. Rules that break stop this shard, and no other.

        Args:
            asker: whose request it is; it is sent away where nothing can be decided any more.
        """
        unanswered = [] if asker is None else [asker]
        if self._is_resigned:
            _send_away(unanswered)
            return
        decision = NOTHING
        try:
            decision = work(self.machine, self._clock.now_ms())
            self.carry_out(decision)
        except Exception:  # nobody else is hurt, and whoever waits here is sent away
            _logger.critical("%s: the coordinator stops", self._partition.topic_partition, exc_info=True)
            unanswered += [answer.waiter for answer in decision.answers]
            self.resign(unanswered)

    def carry_out(self, decision: Decision) -> None:
        """Does what was decided just now; nothing else may have happened since."""
        try:
            records = self._encode(decision.records)
        except EncodeError as error:  # before anything of it has happened: it concerns who asked, and nobody else
            _logger.error("%s: a decision cannot be written down: %s", self._partition.topic_partition, error)
            for answer in decision.answers:
                answer.waiter.fail(ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        for record in decision.records:
            self.machine.replay(record)
        if records:
            self._forming += records
            self._decided += len(records)
            if not self._is_gathering:
                self._is_gathering = True
                self._rounds.before_next_round(self._append_forming)
        for change in decision.timers:
            if isinstance(change, SetTimer):
                self._timer_keys.add(change.key)
                self._timers.set((self, change.key), change.delay_ms, partial(self._time_out, change.key))
            else:
                self._timer_keys.discard(change.key)
                self._timers.cancel((self, change.key))
        for answer in decision.answers:
            self.when_committed(partial(_give, answer))

    def when_committed(self, callback: Callable[[ErrorCode], None]) -> None:
        """Calls back when all that is decided by now is committed (NONE) or never will be; at once when it is."""
        if self._is_resigned:
            callback(ErrorCode.NOT_COORDINATOR)
        elif self._committed == self._decided:
            callback(ErrorCode.NONE)
        else:
            self._waiting.append((self._decided, callback))

    def _time_out(self, key: Hashable) -> None:
        self._timer_keys.discard(key)
        self.decide(lambda machine, now_ms: machine.time_out(key, now_ms=now_ms))

    # --- the log ------------------------------------------------------------------------------------------------

    def _append_forming(self) -> None:
        """A round is about to start: what was decided until now becomes one batch of it."""
        self._is_gathering = False
        records, self._forming = self._forming, []
        if records and not self._is_resigned:
            try:
                self._append_batch(records)
            except Exception:  # the round goes on with what others have for it
                _logger.critical("%s: the coordinator stops", self._partition.topic_partition, exc_info=True)
                self.resign()

    def _append_batch(self, records: list[_Decided]) -> None:
        end_offset = self._append(records, then=partial(self._on_committed, records))
        if end_offset is not None and self._log_bytes > max(COORDINATOR_LOG_BYTES_MAX, 2 * self._live_bytes):
            self._rewrite(end_offset)

    def _encode(self, records: Iterable[CoordinatorRecord]) -> list[_Decided]:
        now_ms = TimestampMs(self._clock.now_ms())
        return [
            _Decided(record, NewRecord(key=record.encode_key(), value=record.encode_value(), timestamp_ms=now_ms))
            for record in records
        ]

    def _append(self, records: list[_Decided], *, then: Callable[[], None]) -> int | None:
        """Appends one batch and calls `then` once it is committed; gives the offset behind it, None if refused."""
        now_ms = self._clock.now_ms()
        batch = build_batch([decided.encoded for decided in records])
        self._log_bytes += len(batch)
        outcome = self._partition.append(decode_header(batch), memoryview(batch), now_ms=now_ms)
        term = self._term

        def when_committed(error: ErrorCode) -> None:
            if term != self._term:
                return
            if error is ErrorCode.NONE:
                then()
            else:
                self._forget_decided(error)

        if isinstance(outcome, AppendRefused):
            when_committed(outcome.error_code)
            return None
        self._partition.when_committed(when_committed)
        return outcome.base_offset + len(records)

    def _on_committed(self, records: list[_Decided]) -> None:
        for decided in records:
            self.machine.replay_committed(decided.record)
        self._committed += len(records)
        while self._waiting and self._waiting[0][0] <= self._committed:
            self._waiting.popleft()[1](ErrorCode.NONE)

    def _forget_decided(self, error: ErrorCode) -> None:
        """What was decided since the last commit never happened."""
        _logger.error("%s: the log took no record (%s)", self._partition.topic_partition, error.name)
        self._term += 1
        self._decided = self._committed
        self._forming = []
        waiting, self._waiting = self._waiting, deque()
        for _, callback in waiting:
            callback(ErrorCode.NOT_COORDINATOR)
        self.decide(lambda machine, now_ms: machine.reset(now_ms=now_ms))

    def _rewrite(self, start: int) -> None:
        """Writes all that is live at the end of the log, which is `start`, and lets go of what stands before."""
        self._log_bytes = 0
        term = self._term
        live = self._encode(self.machine.live_records())
        for at in range(0, len(live), _REWRITE_BATCH_RECORDS):
            if self._append(live[at : at + _REWRITE_BATCH_RECORDS], then=_nothing) is None:
                return
        self._live_bytes = self._log_bytes

        def move_log_start(error: ErrorCode) -> None:
            if error is ErrorCode.NONE and term == self._term:
                self._partition.move_log_start(min(start, self._partition.last_stable_offset))

        self._partition.when_committed(move_log_start)

    # --- the end ------------------------------------------------------------------------------------------------

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
        for _, callback in waiting:
            callback(ErrorCode.NOT_COORDINATOR)
        _send_away((*self.machine.resign(), *also))


def _send_away(waiters: Iterable[Waiter]) -> None:
    for waiter in dict.fromkeys(waiters):  # each once
        waiter.fail(ErrorCode.NOT_COORDINATOR)


def _give(answer: Answer, error: ErrorCode) -> None:
    if error is ErrorCode.NONE:
        answer.waiter.answer(answer.outcome)
    else:
        answer.waiter.fail(error)


def _nothing() -> None:
    """A rewrite changes no state."""
