"""Transactions against a naive model of partitions, on virtual time, with rounds that fail and crashes.

Clients of both versions behave as real ones do: they write to partitions, end, ask again when they hear nothing, and
give up when they are fenced. A crash may keep what was written to a partition and lose that the transaction came to
know of it. At the end every transaction is whole: all of it committed, or none; and what somebody was told holds.
"""

import itertools
import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import TopicPartition
from tests.support.transaction_runtime import TransactionRuntime

IDS = ("one", "one", "one", "two")
PARTITIONS = [TopicPartition("t", number) for number in range(2)]
SOONER_OR_LATER = st.sampled_from([True, True, True, False])
TIMEOUT_MS = 30_000
FATAL = {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_TXN_STATE}
LATER = {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR}


class Partition:
    """What a partition makes of batches and markers: which transactions are open, and what became of each."""

    def __init__(self, name):
        self.name = name
        self.epochs = {}
        self.open = {}
        """Producer id to the numbers of the transactions whose data waits for its marker."""
        self.outcomes = {}
        self.batches = set()
        self.uncommitted = []

    def append(self, producer, number):
        """Whether it is taken; a batch that is there already is, and not written again."""
        producer_id, epoch = producer
        if epoch < self.epochs.get(producer_id, -1):
            return False
        if (producer, number) not in self.batches:
            self.batches.add((producer, number))
            self.epochs[producer_id] = epoch
            self.open.setdefault(producer_id, {})[number] = None
            self.uncommitted.append((producer, number))
        return True

    def take_back(self):
        """What was not committed is cut off."""
        for producer, number in self.uncommitted:
            producer_id, _ = producer
            self.batches.discard((producer, number))
            self.open.get(producer_id, {}).pop(number, None)
            if not self.open.get(producer_id):
                self.open.pop(producer_id, None)
        self.uncommitted = []

    def write_marker(self, effect):
        """Writes it, unless it is known to be of an earlier transaction (KAFKA-19446)."""
        stored = self.epochs.get(effect.producer_id, -1)
        is_of_the_one_before = effect.transaction_version >= 2 and effect.producer_id in self.open
        if effect.producer_epoch < stored or (is_of_the_one_before and effect.producer_epoch == stored):
            return
        self.epochs[effect.producer_id] = effect.producer_epoch
        for number in self.open.pop(effect.producer_id, {}):
            assert self.outcomes.setdefault(number, effect.is_commit) is effect.is_commit


class Client:
    """One producer. It has at most one transaction, whose number nobody else has."""

    def __init__(self, transactional_id, version):
        self.transactional_id = transactional_id
        self.version = version
        self.identity = None
        self.number = None
        self.partitions = set()
        self.to_resend = set()
        """Partitions whose batch was not answered before the broker went away."""
        self.is_failed = False
        """Something it wrote may be lost: it may only abort."""
        self.asked = None
        """What it waits for: ("init" or "end", the waiter, what it is to commit)."""
        self.is_fenced = False
        self.past_ends = []

    def give_up(self):
        self.is_fenced, self.asked = True, None


class Transactions(RuleBasedStateMachine):
    """The rules that hypothesis puts together into stories."""

    @initialize(version=st.sampled_from([1, 2]), is_near_the_last_epoch=st.booleans())
    def begin(self, version, is_near_the_last_epoch):
        self.runtime = TransactionRuntime(commits_at_once=False, transaction_version=version)
        self.partitions = {name: Partition(name) for name in PARTITIONS}
        self.numbers = itertools.count(1)
        self.clients = []
        self.unsure = []
        self.wanted = {}
        """Number of a transaction to whether its client ever asked to commit it."""
        self.written = {}
        """Number of a transaction to the partitions that took its batches."""
        self.told = {}
        self.seen = {}
        if is_near_the_last_epoch:
            for name in dict.fromkeys(IDS):
                self.runtime.init(name)
                self.runtime.commit()
                self.runtime.log[:] = [(key, near_the_last_epoch(value)) for key, value in self.runtime.log]
                self.runtime.crash()
                self.runtime.commit()

    # --- clients ------------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(IDS), version=st.sampled_from([1, 2]), at_once=SOONER_OR_LATER)
    def start(self, name, version, at_once):
        self.clients = [client for client in self.clients if not client.is_fenced]
        if len(self.clients) < 3:
            client = Client(name, version)
            self.clients.append(client)
            self.initialise(client)
            if at_once:
                self.settle_round()

    def initialise(self, client):
        client.asked = ("init", self.runtime.init(client.transactional_id, timeout_ms=TIMEOUT_MS), None)

    @rule(index=st.integers(0, 2), name=st.sampled_from(PARTITIONS), is_told_at_once=st.booleans(), wakes=st.booleans())
    def write(self, index, name, is_told_at_once, wakes):
        client = self.idle(index)
        if client is None or client.is_failed:
            return
        if client.number is None:
            client.number = next(self.numbers)
            self.wanted[client.number], self.written[client.number] = False, set()
        name = client.to_resend.pop() if client.to_resend else name
        is_told_at_once = (
            is_told_at_once and client.version >= 2
        )  # in version 1 it asks first, and writes when it hears
        if name not in client.partitions:
            added = self.runtime.add(
                client.identity,
                name,
                transactional_id=client.transactional_id,
                is_told_at_once=is_told_at_once,
                transaction_version=client.version,
            )
            if not is_told_at_once:
                self.commit_round()
            if not added.is_done and wakes:
                self.settle_markers()
            if not added.is_done:  # it has waited for markers for long enough
                self.runtime.advance(100)
                self.commit_round()
            if added.error_code in FATAL:
                client.give_up()
                return
            if added.error_code is not ErrorCode.NONE:
                return
            client.partitions.add(name)
        if self.partitions[name].append(client.identity, client.number):
            self.unsure.append((client, name))
            self.written[client.number].add(name)
        else:
            client.is_failed = True

    @rule(index=st.integers(0, 2), is_commit=SOONER_OR_LATER, at_once=SOONER_OR_LATER)
    def end(self, index, is_commit, at_once):
        client = self.idle(index)
        if client is None or client.number is None or not client.partitions or client.to_resend:
            return
        self.commit_round()  # an end waits for what it ends
        is_commit = is_commit and not client.is_failed
        self.wanted[client.number] |= is_commit
        client.past_ends.append((client.identity, is_commit))
        self.ask_to_end(client, is_commit)
        if at_once:
            self.settle_round()

    def settle_round(self):
        """What is on its way is done, and everybody hears of it."""
        for _ in range(2):
            self.settle_markers()
            for index in range(len(self.clients)):
                self.hear(index)

    def settle_markers(self):
        self.commit_round()
        self.write_markers()
        self.commit_round()

    def ask_to_end(self, client, is_commit):
        waiting = self.runtime.end(
            client.identity,
            is_commit=is_commit,
            version=client.version,
            transactional_id=client.transactional_id,
        )
        client.asked = ("end", waiting, is_commit)

    @rule(index=st.integers(0, 2))
    def hear(self, index):
        """A client looks at what it was answered."""
        client = self.clients[index] if index < len(self.clients) else None
        if client is None or client.asked is None or not client.asked[1].is_done:
            return
        what, waiting, is_commit = client.asked
        client.asked = None
        error = waiting.error_code
        if error in FATAL:
            client.give_up()
        elif error in LATER:
            self.ask_again(client, what, is_commit)
        elif what == "init":
            assert error is ErrorCode.NONE
            client.identity = usable(waiting.outcome)
        else:
            assert error is ErrorCode.NONE
            self.told[client.number] = is_commit
            client.number, client.partitions, client.is_failed = None, set(), False
            client.to_resend.clear()
            if client.version >= 2:
                client.identity = usable(waiting.outcome)

    def ask_again(self, client, what, is_commit):
        if what == "init":
            self.initialise(client)
        else:
            self.ask_to_end(client, is_commit)

    @rule(index=st.integers(0, 2), which=st.integers(0, 5))
    def late_end(self, index, which):
        """In version 2 an end that was long on its way changes nothing (KAFKA-17754)."""
        client = self.clients[index] if index < len(self.clients) else None
        if client is None or client.version < 2 or not client.past_ends or client.asked is not None:
            return
        identity, is_commit = client.past_ends[which % len(client.past_ends)]
        if identity == client.identity:
            return
        before = self.runtime.entry(client.transactional_id)
        self.runtime.end(identity, is_commit=is_commit, transactional_id=client.transactional_id)
        assert self.runtime.entry(client.transactional_id) is before

    @rule(index=st.integers(0, 2))
    def vanish(self, index):
        if index < len(self.clients):
            self.clients.pop(index)

    def idle(self, index):
        client = self.clients[index] if index < len(self.clients) else None
        if client is None or client.is_fenced or client.asked is not None or client.identity is None:
            return None
        return client

    # --- the world ----------------------------------------------------------------------------------------------

    @rule()
    def commit_round(self):
        self.runtime.commit()
        self.unsure.clear()
        for partition in self.partitions.values():
            partition.uncommitted.clear()

    @precondition(lambda self: self.runtime.undecided)
    @rule(resends=st.booleans())
    def fail_round(self, resends):
        for partition in self.partitions.values():
            partition.take_back()
        self.lose_unsure(resends=resends)
        self.runtime.fail_round()

    @rule(kept=st.sets(st.sampled_from(PARTITIONS)), is_log_kept=st.booleans(), resends=st.booleans())
    def crash(self, kept, is_log_kept, resends):
        """A round is not whole: each partition has kept what was on its way, or has not."""
        if is_log_kept:
            for record in self.runtime.undecided:
                self.runtime.log.append((record.encode_key(), record.encode_value()))
        for name, partition in self.partitions.items():
            partition.uncommitted.clear() if name in kept else partition.take_back()
        self.lose_unsure(resends=resends)
        self.runtime.crash()
        for name, partition in self.partitions.items():
            for producer_id in list(partition.open):
                epoch = partition.epochs[producer_id]
                self.runtime.carry_out(
                    self.runtime.shard.abort_orphan(producer_id, epoch, name, now_ms=self.runtime.now_ms)
                )
        self.runtime.commit()
        for client in self.clients:
            if client.asked is not None and not client.asked[1].is_done:
                self.ask_again(client, client.asked[0], client.asked[2])

    def lose_unsure(self, *, resends):
        """Who had no answer to a batch sends it again, or gives its transaction up."""
        for client, name in self.unsure:
            if resends:
                client.to_resend.add(name)
                client.partitions.discard(name)
            else:
                client.is_failed = True
        self.unsure.clear()

    @rule()
    def write_markers(self):
        effects, self.runtime.effects = self.runtime.effects, []
        for effect in effects:
            for name in effect.partitions:
                self.partitions[name].write_marker(effect)
            self.runtime.markers_written(effect)

    @rule(duration_ms=st.sampled_from([1, 100, 10_000, TIMEOUT_MS, 3 * TIMEOUT_MS]))
    def pass_time(self, duration_ms):
        self.runtime.advance(duration_ms)

    @rule(name=st.sampled_from(IDS))
    def fence(self, name):
        self.runtime.carry_out(self.runtime.shard.fence(name, now_ms=self.runtime.now_ms))

    @rule()
    def rewrite(self):
        """What is live replaces the whole log."""
        self.commit_round()
        self.runtime.log[:] = [
            (record.encode_key(), record.encode_value()) for record in self.runtime.shard.live_records()
        ]

    @rule()
    def settle(self):
        """Whatever is open times out, and then everything is decided, each transaction as a whole."""
        for _ in range(3):
            self.settle_round()
        self.runtime.advance(2 * TIMEOUT_MS)
        for _ in range(3):
            self.settle_markers()
        assert self.runtime.shard.open_count == 0
        assert [partition.open for partition in self.partitions.values()] == [{}] * len(self.partitions)
        for number, was_wanted in self.wanted.items():
            outcomes = {
                partition.outcomes[number] for partition in self.partitions.values() if number in partition.outcomes
            }
            assert len(outcomes) <= 1, f"transaction {number} is torn"
            assert was_wanted or True not in outcomes, f"transaction {number} was committed by nobody"
            if number in self.told:
                assert outcomes <= {self.told[number]}, f"transaction {number} is not what was told"
            if self.told.get(number):
                kept = {name for name, partition in self.partitions.items() if partition.outcomes.get(number)}
                assert kept == self.written[number], f"transaction {number} has lost what it wrote"

    # --- what always holds --------------------------------------------------------------------------------------

    @invariant()
    def committed_is_what_the_log_says(self):
        shard, restored = self.runtime.shard, self.runtime.replayed(self.runtime.log)
        assert entries(shard._committed) == entries(restored._committed)
        for table in (shard._head, shard._committed):
            assert {entry.transactional_id for entry in table.entries() if entry.state.is_open} == set(table.open_ids())
            assert table.open_partitions == sum(len(table.get(each).partitions) for each in table.open_ids())
            for entry in table.entries():
                assert table.by_producer_id(entry.producer_id) is entry
        if not self.runtime.undecided:
            assert entries(shard._head) == entries(shard._committed)

    @invariant()
    def an_epoch_never_comes_again(self):
        for name, entry in entries(self.runtime.shard._committed).items():
            before = self.seen.get(name, (-1, -1))
            assert (entry.producer_id, entry.producer_epoch) >= before
            self.seen[name] = (entry.producer_id, entry.producer_epoch)


def usable(answer):
    assert answer.producer_epoch <= 32_766, "an epoch for markers only"
    return answer.producer_id, answer.producer_epoch


def entries(table):
    return {entry.transactional_id: entry for entry in table.entries()}


def near_the_last_epoch(value):
    """The same value, one at epoch 0, two epochs before the last one; others as they are."""
    return value[:10] + (32_764).to_bytes(2, "big") + value[12:] if value[10:12] == b"\x00\x00" else value


Transactions.TestCase.settings = settings(stateful_step_count=50, deadline=None)
test_transactions = Transactions.TestCase


def long_story(seed, *, steps=600):
    """Mostly clients that write and end; now and then something happens to them."""
    chance = random.Random(seed)
    story = Transactions()
    story.begin(version=chance.choice([1, 2]), is_near_the_last_epoch=chance.random() < 0.5)

    def maybe():
        return chance.random() < 0.5

    def client():
        return chance.randrange(3)

    def write_and_crash():
        story.write(client(), chance.choice(PARTITIONS), is_told_at_once=True, wakes=True)
        story.crash({name for name in PARTITIONS if maybe()}, is_log_kept=False, resends=maybe())

    happenings = {
        write_and_crash: 5,
        lambda: story.write(client(), chance.choice(PARTITIONS), is_told_at_once=maybe(), wakes=maybe()): 40,
        lambda: story.end(client(), is_commit=chance.random() < 0.8, at_once=chance.random() < 0.6): 20,
        lambda: story.start(chance.choice(IDS), chance.choice([1, 2]), at_once=maybe()): 4,
        lambda: story.hear(client()): 10,
        lambda: story.late_end(client(), chance.randrange(6)): 5,
        story.commit_round: 10,
        story.write_markers: 6,
        lambda: story.pass_time(chance.choice([1, 100])): 5,
        lambda: story.pass_time(TIMEOUT_MS): 1,
        lambda: story.vanish(client()): 2,
        lambda: story.fence("one"): 1,
        lambda: story.fail_round(resends=maybe()): 3,
        lambda: story.crash({name for name in PARTITIONS if maybe()}, is_log_kept=maybe(), resends=maybe()): 2,
        story.rewrite: 1,
        story.settle: 1,
    }
    for happen in chance.choices([*happenings], weights=[*happenings.values()], k=steps):
        happen()
        story.committed_is_what_the_log_says()
        story.an_epoch_never_comes_again()
    story.settle()
    return story


@pytest.mark.parametrize("seed", range(25))
def test_long_stories(seed):
    assert True in long_story(seed).told.values()
