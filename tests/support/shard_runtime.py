"""A coordinator's machine that is simple enough to be looked through, and a shard that runs it over a real log."""

import asyncio

from msgspec import Struct

from exactlog.broker.coordinator.loading import load_shard
from exactlog.broker.coordinator.shard_runner import ShardRunner
from exactlog.broker.timers import Timers
from exactlog.core.model.decisions import Answer, CancelTimer, Decision, ProducerIdentity, SetTimer
from exactlog.core.record.control_record_format import TransactionMarker
from tests.support.rounds_by_hand import RoundsByHand


class Put(Struct, frozen=True):
    """A record: a name and its number, None if it has none any more."""

    name: str
    number: int | None

    def encode_key(self):
        return self.name.encode()

    def encode_value(self):
        return None if self.number is None else str(self.number).encode()


class Outcome(Struct, frozen=True):
    """A number that somebody is told."""

    number: int | None


class Waiter:
    """Notes what it is told: numbers, or errors."""

    def __init__(self):
        self.told = []

    def answer(self, outcome):
        self.told.append(outcome.number)

    def fail(self, error_code):
        self.told.append(error_code)


class Numbers:
    """A machine: numbers by name. A name that is waited for is answered when its timer goes off.

    What is pending in a transaction is kept by producer; when it commits it counts, whatever was put meanwhile.
    """

    def __init__(self):
        self.head = {}
        self.committed = {}
        self.pending = {}
        self.pending_committed = {}
        self.parked = {}

    def put(self, name, number, waiter, **fields):
        return Decision(records=(Put(name, number),), answers=(Answer(waiter, Outcome(number)),), **fields)

    def get(self, name, waiter):
        return Decision(answers=(Answer(waiter, Outcome(self.head.get(name))),))

    def park(self, name, waiter, delay_ms):
        self.parked[name] = waiter
        return Decision(timers=(SetTimer(name, delay_ms),))

    def unpark(self, name):
        self.parked.pop(name)
        return Decision(timers=(CancelTimer(name),))

    def time_out(self, key, *, now_ms):
        return self.put(key, 0, self.parked.pop(key))

    def _take(self, numbers, pending, record, producer_id):
        if producer_id is not None:
            pending.setdefault(producer_id, {})[record.name] = record.number
        elif record.number is None:
            numbers.pop(record.name, None)
        else:
            numbers[record.name] = record.number

    def _end(self, numbers, pending, producer_id, is_commit):
        ended = pending.pop(producer_id, {})
        if is_commit:
            numbers |= ended

    def restore(self, key, value, *, producer_id=None):
        record = Put(key.decode(), None if value is None else int(value))
        self.replay(record, producer_id=producer_id)
        self.replay_committed(record, producer_id=producer_id)

    def replay(self, record, *, producer_id=None):
        self._take(self.head, self.pending, record, producer_id)

    def replay_committed(self, record, *, producer_id=None):
        self._take(self.committed, self.pending_committed, record, producer_id)

    def restore_marker(self, producer_id, *, is_commit):
        self.replay_marker(producer_id, is_commit=is_commit)
        self.replay_marker_committed(producer_id, is_commit=is_commit)

    def replay_marker(self, producer_id, *, is_commit):
        self._end(self.head, self.pending, producer_id, is_commit)

    def replay_marker_committed(self, producer_id, *, is_commit):
        self._end(self.committed, self.pending_committed, producer_id, is_commit)

    def loaded(self, *, now_ms):
        return Decision()

    def reset(self, *, now_ms):
        self.head = dict(self.committed)
        self.pending = {producer_id: dict(numbers) for producer_id, numbers in self.pending_committed.items()}
        parked, self.parked = self.parked, {}
        return Decision(answers=tuple(Answer(waiter, Outcome(-1)) for waiter in parked.values()))

    def resign(self):
        parked, self.parked = self.parked, {}
        return list(parked.values())

    def live_records(self):
        return [Put(name, number) for name, number in self.head.items()]

    def pending_records(self):
        return [
            (producer_id, Put(name, number))
            for producer_id, numbers in self.pending.items()
            for name, number in numbers.items()
        ]


class Shard:
    """A shard of numbers over a partition, its rounds carried out by hand."""

    def __init__(self, directory, partition, **fields):
        self.effects = []
        self.rounds = RoundsByHand(directory)
        self.machine = Numbers()
        self.clock = directory.clock
        self.timers = Timers(asyncio.get_running_loop(), self.clock)
        self.partition = partition
        self.runner = ShardRunner(
            partition,
            self.machine,
            rounds=self.rounds,
            timers=self.timers,
            clock=self.clock,
            on_effect=self.effects.append,
            **fields,
        )

    async def load(self):
        size_bytes = await load_shard(self.partition, self.machine, is_wanted=lambda: True)
        self.runner.start(loaded_bytes=size_bytes)
        return self

    def ask(self, work):
        waiter = Waiter()
        self.runner.decide(lambda machine, _: work(machine, waiter), asker=waiter)
        return waiter

    def put(self, name, number):
        return self.ask(lambda machine, waiter: machine.put(name, number, waiter))

    def get(self, name):
        return self.ask(lambda machine, waiter: machine.get(name, waiter))

    def park(self, name, delay_ms=100):
        return self.ask(lambda machine, waiter: machine.park(name, waiter, delay_ms))

    def put_pending(self, name, number, *, producer=1, epoch=0):
        identity = ProducerIdentity(producer, epoch)
        return self.ask(lambda machine, waiter: machine.put(name, number, waiter, producer=identity))

    def end(self, producer=1, epoch=0, *, is_commit=True, coordinator_epoch=0, version=1):
        """Writes a marker; gives what was told of it."""
        told = []
        marker = TransactionMarker(is_commit=is_commit, coordinator_epoch=coordinator_epoch)
        self.runner.write_marker(
            marker, ProducerIdentity(producer, epoch), transaction_version=version, then=told.append
        )
        return told
