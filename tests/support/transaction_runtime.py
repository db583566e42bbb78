"""A transaction coordinator's runtime for tests: a log in a list, timers on virtual time, rounds, markers to write."""

from itertools import count

from msgspec.structs import replace

from exactlog.core.model.decisions import SetTimer
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import ProducerEpoch, ProducerId, TopicPartition
from exactlog.core.transaction.requests import AddPartitionsRequest, EndRequest, InitRequest
from exactlog.core.transaction.shard import TransactionLimits, TransactionShard
from exactlog.core.transaction.transaction_record import TransactionRecord, decode_record
from tests.support.group_runtime import Waiting

START_MS = 1_700_000_000_000
TIMEOUT_MS = 60_000
ID = "payments"
ORDERS = TopicPartition("orders", 0)
BILLS = TopicPartition("bills", 3)


class TransactionRuntime:
    """Carries decisions out. Every round commits at once, unless `commits_at_once` is taken away.

    Markers are written by `write_markers`; before that they stand in `effects`.
    """

    def __init__(self, *, commits_at_once=True, **limits):
        self.limits = TransactionLimits(**limits)
        self.commits_at_once = commits_at_once
        self.now_ms = START_MS
        self.log = []
        self.undecided = []
        self.unsent = []
        self.effects = []
        self.due = {}
        self.is_out_of_ids = False
        self._ids = count(1)
        self._epochs = count(1)
        self.shard = self._empty_shard()
        self.carry_out(self.shard.loaded(now_ms=self.now_ms))

    def _empty_shard(self):
        return TransactionShard(self.limits, coordinator_epoch=next(self._epochs), new_producer_id=self._new_id)

    def _new_id(self):
        return None if self.is_out_of_ids else ProducerId(next(self._ids))

    # --- carrying out -------------------------------------------------------------------------------------------

    def carry_out(self, decision):
        for record in decision.records:
            assert decode_record(record.encode_key(), record.encode_value()) == record
            self.shard.replay(record)
            self.undecided.append(record)
        for change in decision.timers:
            if isinstance(change, SetTimer):
                self.due[change.key] = self.now_ms + change.delay_ms
            else:
                self.due.pop(change.key, None)
        for answer in decision.told_at_once:
            answer.waiter.answer(answer.outcome)
        self.unsent.append(decision)
        if self.commits_at_once or not self.undecided:  # nothing is on its way: there is nothing to wait for
            self.commit()
        return decision

    def decide(self, work, label=""):
        waiting = Waiting(label)
        self.carry_out(work(waiting))
        return waiting

    def commit(self):
        """The round is good: what was decided stands in the log, is told, and its effects are handed out."""
        for record in self.undecided:
            self.log.append((record.encode_key(), record.encode_value()))
            self.shard.replay_committed(record)
        self.undecided = []
        unsent, self.unsent = self.unsent, []
        for decision in unsent:
            for answer in decision.answers:
                answer.waiter.answer(answer.outcome)
            self.effects += decision.effects

    def fail_round(self):
        """The log took nothing: what was decided is forgotten."""
        self.undecided = []
        unsent, self.unsent = self.unsent, []
        for decision in unsent:
            for answer in decision.answers:
                answer.waiter.fail(ErrorCode.NOT_COORDINATOR)
        self.carry_out(self.shard.reset(now_ms=self.now_ms))

    def crash(self):
        """The process dies; another one loads what is committed. Who waited hears nothing any more."""
        self.undecided, self.unsent, self.effects, self.due = [], [], [], {}
        self.shard = self.replayed(self.log)
        self.carry_out(self.shard.loaded(now_ms=self.now_ms))

    def replayed(self, log):
        """A shard that has read a log."""
        shard = self._empty_shard()
        for key, value in log:
            shard.restore(key, value)
        return shard

    def advance(self, duration_ms):
        """Time passes, and timers go off in their order."""
        end_ms = self.now_ms + duration_ms
        while self.due and min(self.due.values()) <= end_ms:
            key = min(self.due, key=self.due.get)
            self.now_ms = max(self.now_ms, self.due.pop(key))
            self.carry_out(self.shard.time_out(key, now_ms=self.now_ms))
        self.now_ms = end_ms

    def write_markers(self):
        """All markers that are to be written are; gives what they were."""
        effects, self.effects = self.effects, []
        for effect in effects:
            self.markers_written(effect)
        return effects

    def markers_written(self, effect):
        return self.carry_out(
            self.shard.markers_written(
                effect.transactional_id,
                producer_id=effect.producer_id,
                producer_epoch=effect.producer_epoch,
                now_ms=self.now_ms,
            )
        )

    # --- requests -----------------------------------------------------------------------------------------------

    def init(self, transactional_id=ID, *, timeout_ms=TIMEOUT_MS, producer_id=-1, epoch=-1):
        request = InitRequest(
            transactional_id=transactional_id,
            timeout_ms=timeout_ms,
            producer_id=ProducerId(producer_id),
            producer_epoch=ProducerEpoch(epoch),
        )
        return self.decide(lambda waiter: self.shard.init_producer_id(request, waiter, now_ms=self.now_ms), "init")

    def add(self, producer, *partitions, transactional_id=ID, **fields):
        producer_id, producer_epoch = producer
        request = AddPartitionsRequest(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            partitions=partitions or (ORDERS,),
            **fields,
        )
        return self.decide(lambda waiter: self.shard.add_partitions(request, waiter, now_ms=self.now_ms), "add")

    def end(self, producer, *, is_commit=True, version=2, transactional_id=ID):
        producer_id, producer_epoch = producer
        request = EndRequest(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            is_commit=is_commit,
            transaction_version=version,
        )
        return self.decide(lambda waiter: self.shard.end(request, waiter, now_ms=self.now_ms), "end")

    def fence(self, transactional_id=ID):
        return self.decide(lambda waiter: self.shard.fence(transactional_id, waiter, now_ms=self.now_ms)).error_code

    # --- whole stories ------------------------------------------------------------------------------------------

    def put(self, entry):
        """Has an entry in the log, as if it had come to it."""
        record = TransactionRecord(entry.transactional_id, entry)
        self.log.append((record.encode_key(), record.encode_value()))
        self.crash()

    def producer(self, transactional_id=ID, **fields):
        """A producer that has just been initialised: its id and epoch."""
        return identity(self.init(transactional_id, **fields))

    def last_epoch(self, epoch=32_766):
        """A producer at the last epoch that a client can have, with nothing open."""
        self.producer()
        self.put(replace(self.entry(), producer_epoch=ProducerEpoch(epoch)))
        return self.entry().producer_id, self.entry().producer_epoch

    def run_transaction(self, producer, *, is_commit=True, version=2):
        """A whole one in one partition; gives who the producer is for the next one."""
        assert self.add(producer, transaction_version=version).error_code is ErrorCode.NONE
        ended = self.end(producer, is_commit=is_commit, version=version)
        assert ended.error_code is ErrorCode.NONE
        self.write_markers()
        return identity(ended) if version >= 2 else producer

    def entry(self, transactional_id=ID):
        return self.shard.entry(transactional_id)

    def state(self, transactional_id=ID):
        entry = self.entry(transactional_id)
        return None if entry is None else entry.state.kafka_name


def identity(waiting):
    """Producer id and epoch of an answer that is one."""
    assert waiting.error_code is ErrorCode.NONE, waiting.error_code
    return waiting.outcome.producer_id, waiting.outcome.producer_epoch
