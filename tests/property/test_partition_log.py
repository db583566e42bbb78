"""A partition under whatever comes, against a model that is slow and obvious: a list of batches."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.model.error_code import ErrorCode
from exactlog.storage.partition_log import Appended, AppendRefused
from exactlog.storage.round import StorageRefused
from exactlog.storage.settings import FlushMode
from tests.support.partitions import (
    DataDirectory,
    batch_of,
    copy_of,
    remove_checkpoints,
    sequenced,
    state_of,
    values_of,
)

CONFIG = TopicConfig(segment_bytes=500, index_interval_bytes=150)
SETTINGS = {"checkpoint_interval": 3}
PRODUCERS = range(3)
REMEMBERED = 5


class Batch:
    """A batch of the model: who sent it under which sequence, and what it holds."""

    def __init__(self, producer, sequence, values):
        self.producer = producer
        self.sequence = sequence
        self.values = values

    def encode(self):
        if self.producer is None:
            return batch_of(*self.values)
        return sequenced(self.producer, self.sequence, *self.values)


class PartitionLogMachine(RuleBasedStateMachine):
    """`log` is what head is: batches that are committed, then those in flight, then those that are forming."""

    def __init__(self):
        super().__init__()
        self.log = []
        self.committed = 0
        self.in_flight = 0
        self.round = None  # the round that is in flight, and whether the engine has carried it out
        self.waiting = []  # (ask, what it must be told, how much of the log must be committed for it)
        self.count = 0

    @initialize(flush_mode=st.sampled_from(FlushMode))
    def begin(self, flush_mode):
        self.flush_mode = flush_mode
        self.disk = DataDirectory(config=CONFIG, flush_mode=flush_mode, **SETTINGS)
        self.partition = self.disk.make()

    def teardown(self):
        if hasattr(self, "disk"):
            self.disk.close()

    # --- appends -----------------------------------------------------------------------------------------------

    def values(self, count):
        first = self.count
        self.count += count
        return [b"%06d" % number for number in range(first, self.count)]

    def next_sequence(self, producer):
        return sum(len(batch.values) for batch in self.log if batch.producer == producer)

    def offset_of(self, batch):
        return sum(len(before.values) for before in self.log[: self.log.index(batch)])

    def expect(self, batch, told):
        """Sends a batch; `told` is its offset or its error, to be told once all of head is committed."""
        ask = self.disk.append(self.partition, batch.encode())
        if isinstance(told, ErrorCode):
            assert isinstance(ask.outcome, AppendRefused)
            assert ask.outcome.error_code == told
        else:
            assert isinstance(ask.outcome, Appended)
            assert ask.outcome.base_offset == told
        self.waiting.append((ask, told, len(self.log)))

    @rule(count=st.integers(1, 4))
    def append_without_producer(self, count):
        batch = Batch(None, None, self.values(count))
        self.log.append(batch)
        self.expect(batch, self.offset_of(batch))

    @rule(producer=st.sampled_from(PRODUCERS), count=st.integers(1, 4))
    def append_of_a_producer(self, producer, count):
        batch = Batch(producer, self.next_sequence(producer), self.values(count))
        self.log.append(batch)
        self.expect(batch, self.offset_of(batch))

    @rule(producer=st.sampled_from(PRODUCERS), back=st.integers(1, REMEMBERED))
    def resend(self, producer, back):
        sent = [batch for batch in self.log if batch.producer == producer]
        if len(sent) >= back:
            self.expect(sent[-back], self.offset_of(sent[-back]))

    @rule(producer=st.sampled_from(PRODUCERS), gap=st.integers(1, 3))
    def leave_a_gap(self, producer, gap):
        is_known = any(batch.producer == producer for batch in self.log)
        if is_known or not self.log:
            batch = Batch(producer, self.next_sequence(producer) + gap, [b"never"])
            self.expect(batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)

    @rule(producer=st.sampled_from(PRODUCERS))
    def resend_what_is_no_longer_remembered(self, producer):
        sent = [batch for batch in self.log if batch.producer == producer]
        if len(sent) > REMEMBERED:
            self.expect(sent[-REMEMBERED - 1], ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)

    # --- rounds ------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.round is None)
    @rule(is_carried_out=st.booleans())
    def take_a_round(self, is_carried_out):
        taken = self.disk.take_round()
        if taken:
            outcomes = self.disk.engine.commit([write for _, write in taken]) if is_carried_out else None
            self.round = taken, outcomes
            self.in_flight = len(self.log) - self.committed

    @precondition(lambda self: self.round is not None)
    @rule()
    def end_the_round_well(self):
        taken, outcomes = self.round
        if outcomes is None:
            outcomes = self.disk.engine.commit([write for _, write in taken])
        self.disk.complete_round(taken, outcomes)
        self.committed += self.in_flight
        self.round, self.in_flight = None, 0

    @precondition(lambda self: self.round is not None and self.round[1] is None)
    @rule(data=st.data())
    def have_the_round_refused(self, data):
        ((_, write),) = taken = self.round[0]
        groups_stored = 0
        if self.flush_mode is FlushMode.COMMIT:
            groups_stored = data.draw(st.integers(0, len(write.groups) - 1), "groups stored")
            done = write.groups[:groups_stored]
            self.disk.engine.commit([type(write)(write.name, write.directory, done, 0, durable=True)])
        stored_batches = sum(
            len(group.batches) for carried in self.partition._in_flight[:groups_stored] for group in carried.groups
        )
        self.disk.complete_round(taken, [StorageRefused("no room", groups_stored)])
        self.committed += stored_batches
        self.give_up()

    @precondition(lambda self: self.round is None)
    @rule(producer=st.sampled_from(PRODUCERS), back=st.integers(1, REMEMBERED))
    def append_and_resend_behind_a_round_in_flight(self, producer, back):
        self.append_of_a_producer(producer, 2)
        self.take_a_round(is_carried_out=False)
        self.append_of_a_producer(producer, 1)
        self.resend(producer, back)
        self.end_the_round_well()

    @precondition(lambda self: self.round is None)
    @rule()
    def run_a_round(self):
        self.disk.run_round()
        self.committed = len(self.log)

    @precondition(lambda self: self.flush_mode is not FlushMode.COMMIT)
    @rule()
    def publish(self):
        self.disk.publish(self.partition)
        assert self.partition.table.next_offset == self.partition.high_watermark

    @rule()
    def write_checkpoints_late(self):
        self.disk.background.is_held = not self.disk.background.is_held
        if not self.disk.background.is_held:
            self.disk.background.run()

    def give_up(self):
        """Head goes back to committed: whoever waits for more is told that it failed."""
        self.check_told()
        for ask, _, _ in self.waiting:
            assert ask.error == ErrorCode.KAFKA_STORAGE_ERROR
        self.waiting = []
        del self.log[self.committed :]
        self.round, self.in_flight = None, 0

    # --- crashes -----------------------------------------------------------------------------------------------

    @rule(flush_mode=st.sampled_from(FlushMode))
    def crash(self, flush_mode):
        if self.round is not None and self.round[1] is not None:  # stored, and nobody was told
            self.committed += self.in_flight
        del self.log[self.committed :]
        self.waiting, self.round, self.in_flight = [], None, 0
        replayed = copy_of(self.disk.filesystem)
        self.disk.restart()
        self.partition = self.disk.open()
        remove_checkpoints(replayed)
        with DataDirectory(replayed, config=CONFIG, flush_mode=self.flush_mode, **SETTINGS) as other:
            other.clock.time_ms = self.disk.clock.time_ms
            assert state_of(other.open()) == state_of(self.partition)
        if flush_mode is not self.flush_mode:
            self.flush_mode = flush_mode
            self.disk.restart(flush_mode=flush_mode)
            self.partition = self.disk.open()

    # --- what always holds -------------------------------------------------------------------------------------

    def check_told(self):
        """Exactly those whose part of the log is committed have been told, and told the right thing."""
        still_waiting = []
        for ask, told, end in self.waiting:
            if end <= self.committed:
                assert told in (ask.offset, ask.error)
            else:
                still_waiting.append((ask, told, end))
        self.waiting = still_waiting

    @invariant()
    def what_is_committed_is_there_and_nothing_else(self):
        if not hasattr(self, "disk"):
            return
        expected = [value for batch in self.log[: self.committed] for value in batch.values]
        assert self.partition.high_watermark == len(expected)
        assert values_of(self.partition, bytes_max=300) == expected

    @invariant()
    def nobody_is_told_early_or_late(self):
        self.check_told()
        for ask, _, _ in self.waiting:
            assert ask.told is None

    @invariant()
    def the_table_is_what_has_been_published(self):
        if hasattr(self, "disk"):
            assert self.partition.table.next_offset <= self.partition.high_watermark
            if self.flush_mode is FlushMode.COMMIT:
                assert self.partition.table.next_offset == self.partition.high_watermark


TestPartitionLog = PartitionLogMachine.TestCase
TestPartitionLog.settings = settings(stateful_step_count=40, max_examples=4 * settings.default.max_examples)
