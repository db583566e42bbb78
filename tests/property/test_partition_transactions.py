"""Transactions of a partition under whatever comes, against a model that is slow and obvious: a list of batches."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.log.producer_state import NO_SEQUENCE
from exactlog.core.model.error_code import ErrorCode
from exactlog.storage.partition_log import Appended, AppendRefused
from exactlog.storage.round import StorageRefused
from exactlog.storage.settings import FlushMode
from exactlog.storage.table_audit import audit_table
from tests.support.partitions import (
    DIRECTORY,
    DataDirectory,
    batch_of,
    copy_of,
    remove_checkpoints,
    replace_file,
    sequenced,
    state_of,
)
from tests.support.transaction_model import (
    REMEMBERED,
    Entry,
    aborted_transactions,
    end_of,
    open_transactions,
    producer_entries,
    producer_entry,
    stable_offset,
)

CONFIG = TopicConfig(segment_bytes=700, index_interval_bytes=150)
SETTINGS = {"checkpoint_interval": 3}
PRODUCERS = range(4)
DAMAGES = ["remove", "cut", "flip", "zero", "stretch"]


def transaction_version_of(producer):
    """Half of them raise their epoch with each transaction."""
    return 2 if producer % 2 else 1


class PartitionTransactionsMachine(RuleBasedStateMachine):
    """`log` is what head is: what is committed, then what is in flight, then what is forming."""

    def __init__(self):
        super().__init__()
        self.log = []
        self.committed = 0
        self.in_flight = 0
        self.round = None
        self.stable_offset = 0
        self.log_start = 0
        self.marks = {}  # of each producer the highest coordinator epoch that was ever used

    @initialize(flush_mode=st.sampled_from(FlushMode))
    def begin(self, flush_mode):
        self.flush_mode = flush_mode
        self.disk = DataDirectory(config=CONFIG, flush_mode=flush_mode, **SETTINGS)
        self.partition = self.disk.make()

    def teardown(self):
        if hasattr(self, "disk"):
            self.disk.close()

    # --- batches -----------------------------------------------------------------------------------------------

    def known(self, producer):
        """Epoch, next sequence, and whether a transaction is open, by head."""
        entry = producer_entry(self.log, producer)
        if entry is None:
            return 0, 0, False
        sequence = 0 if entry.last_sequence == NO_SEQUENCE else entry.last_sequence + 1
        return entry.producer_epoch, sequence, entry.txn_start_offset is not None

    def expect(self, ask, told):
        """`told` is an entry that the log has now, or had already, or an error."""
        if isinstance(told, ErrorCode):
            assert isinstance(ask.outcome, AppendRefused), ask.outcome
            assert ask.outcome.error_code is told
            return
        assert isinstance(ask.outcome, Appended), ask.outcome
        assert ask.outcome.base_offset == told.offset
        if told not in self.log:
            self.log.append(told)

    def send(self, producer, epoch, sequence, count, *, is_transactional, is_verified=False):
        values = [b"%06d" % number for number in range(count)]
        batch = sequenced(producer, sequence, *values, epoch=epoch, is_transactional=is_transactional)
        return self.disk.append(self.partition, batch, is_verified=is_verified)

    @rule(count=st.integers(1, 3))
    def plain(self, count):
        ask = self.disk.append(self.partition, batch_of(*[b"plain"] * count))
        self.expect(ask, Entry(end_of(self.log), count))

    @rule(producer=st.sampled_from(PRODUCERS))
    def without_a_transaction(self, producer):
        epoch, sequence, is_open = self.known(producer)
        ask = self.send(producer, epoch, sequence, 1, is_transactional=False)
        entry = Entry(end_of(self.log), 1, producer, epoch, sequence)
        self.expect(ask, ErrorCode.INVALID_TXN_STATE if is_open else entry)

    @rule(producer=st.sampled_from(PRODUCERS), count=st.integers(1, 3), is_verified=st.booleans())
    def in_a_transaction(self, producer, count, is_verified):
        epoch, sequence, is_open = self.known(producer)
        ask = self.send(producer, epoch, sequence, count, is_transactional=True, is_verified=is_verified)
        entry = Entry(end_of(self.log), count, producer, epoch, sequence, is_transactional=True)
        self.expect(ask, entry if is_open or is_verified else ErrorCode.INVALID_TXN_STATE)

    @rule(producer=st.sampled_from(PRODUCERS), count=st.integers(1, 2))
    def by_a_coordinator(self, producer, count):
        epoch, _, _ = self.known(producer)
        batch = sequenced(producer, NO_SEQUENCE, *[b"offset"] * count, epoch=epoch, is_transactional=True)
        ask = self.disk.append(self.partition, batch, is_client=False, is_verified=True)
        self.expect(ask, Entry(end_of(self.log), count, producer, epoch, is_transactional=True))

    @rule(producer=st.sampled_from(PRODUCERS), back=st.integers(1, REMEMBERED))
    def resend(self, producer, back):
        entry = producer_entry(self.log, producer)
        if entry is not None and len(entry.batches) >= back:
            sent = next(kept for kept in self.log if kept.offset == entry.batches[-back].offset_start)
            ask = self.send(producer, sent.epoch, sent.sequence, sent.count, is_transactional=sent.is_transactional)
            self.expect(ask, sent)

    # --- markers -----------------------------------------------------------------------------------------------

    @rule(producer=st.sampled_from(PRODUCERS), is_commit=st.booleans(), is_new_coordinator=st.booleans())
    def end(self, producer, is_commit, is_new_coordinator):
        epoch, _, is_open = self.known(producer)
        version = transaction_version_of(producer)
        marker_epoch = epoch + (version == 2 and is_open)
        self.marks[producer] = coordinator_epoch = self.marks.get(producer, 0) + is_new_coordinator
        ask = self.disk.append_marker(
            self.partition,
            producer,
            epoch=marker_epoch,
            is_commit=is_commit,
            coordinator_epoch=coordinator_epoch,
            transaction_version=version,
        )
        entry = Entry(
            end_of(self.log), 1, producer, marker_epoch, is_commit=is_commit, coordinator_epoch=coordinator_epoch
        )
        self.expect(ask, entry)

    @rule(producer=st.sampled_from(PRODUCERS), is_commit=st.booleans())
    def end_too_late(self, producer, is_commit):
        known = producer_entry(self.log, producer)
        if known is None:
            return
        is_bumped = transaction_version_of(producer) == 2 and known.txn_start_offset is not None
        ask = self.disk.append_marker(
            self.partition,
            producer,
            epoch=known.producer_epoch - (not is_bumped),
            is_commit=is_commit,
            coordinator_epoch=1000,
            transaction_version=transaction_version_of(producer),
        )
        self.expect(ask, ErrorCode.INVALID_PRODUCER_EPOCH)

    @rule(producer=st.sampled_from(PRODUCERS))
    def end_by_a_replaced_coordinator(self, producer):
        known = producer_entry(self.log, producer)
        if known is not None and known.coordinator_epoch > 0:
            ask = self.disk.append_marker(
                self.partition, producer, epoch=known.producer_epoch + 1, coordinator_epoch=known.coordinator_epoch - 1
            )
            self.expect(ask, ErrorCode.TRANSACTION_COORDINATOR_FENCED)

    @precondition(lambda self: self.round is None)
    @rule(
        begun=st.permutations(PRODUCERS), ended=st.permutations(PRODUCERS), commits=st.sets(st.sampled_from(PRODUCERS))
    )
    def some_transactions(self, begun, ended, commits):
        for producer in begun:
            self.in_a_transaction(producer, 1, is_verified=True)
        self.run_a_round()
        for producer in ended[1:]:
            self.end(producer, is_commit=producer in commits, is_new_coordinator=False)
            self.run_a_round()

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
    @rule()
    def have_the_round_refused(self):
        self.disk.complete_round(self.round[0], [StorageRefused("no room", 0)])
        del self.log[self.committed :]
        self.round, self.in_flight = None, 0

    @precondition(lambda self: self.round is None)
    @rule()
    def run_a_round(self):
        self.disk.run_round()
        self.committed = len(self.log)

    @precondition(lambda self: self.flush_mode is not FlushMode.COMMIT)
    @rule()
    def publish(self):
        self.disk.publish(self.partition)

    @rule()
    def write_checkpoints_late(self):
        self.disk.background.is_held = not self.disk.background.is_held
        if not self.disk.background.is_held:
            self.disk.background.run()

    @precondition(lambda self: self.round is None and not self.disk.background.is_held)
    @rule(data=st.data())
    def remove_records(self, data):
        self.disk.run_round()
        self.committed = len(self.log)
        offset = data.draw(st.integers(self.log_start, end_of(self.log)), "log start")
        self.disk.move_log_start(self.partition, offset)
        self.log_start = offset

    # --- crashes -----------------------------------------------------------------------------------------------

    @rule(flush_mode=st.sampled_from(FlushMode))
    def crash(self, flush_mode):
        if self.round is not None and self.round[1] is not None:  # stored, and nobody was told
            self.committed += self.in_flight
        del self.log[self.committed :]
        self.round, self.in_flight = None, 0
        replayed = copy_of(self.disk.filesystem)
        self.reopen()
        remove_checkpoints(replayed)
        with DataDirectory(replayed, config=CONFIG, flush_mode=self.flush_mode, **SETTINGS) as other:
            other.clock.time_ms = self.disk.clock.time_ms
            assert state_of(other.open()) == state_of(self.partition)
        report = audit_table(copy_of(self.disk.filesystem), DIRECTORY)
        assert [finding for finding in report.findings if finding.is_damage] == []
        if flush_mode is not self.flush_mode:
            self.flush_mode = flush_mode
            self.reopen()

    @precondition(lambda self: self.round is None and not self.log_start)
    @rule(damage=st.sampled_from(DAMAGES), place=st.integers(0, 10_000))
    def find_an_index_damaged_at_the_start(self, damage, place):
        del self.log[self.committed :]
        filesystem = self.disk.filesystem
        for name in filesystem.list_names(DIRECTORY):
            if name.endswith(".txnindex"):
                _spoil(filesystem, f"{DIRECTORY}/{name}", damage, place)
        self.reopen()

    def reopen(self):
        self.disk.restart(flush_mode=self.flush_mode)
        self.partition = self.disk.open()

    # --- what always holds -------------------------------------------------------------------------------------

    @invariant()
    def the_last_stable_offset_is_that_of_the_log_and_never_goes_back(self):
        if not hasattr(self, "disk"):
            return
        log = self.log[: self.committed]
        assert self.partition.high_watermark == end_of(log)
        assert self.partition.last_stable_offset == stable_offset(log, self.log_start)
        assert self.partition.last_stable_offset >= self.stable_offset
        self.stable_offset = self.partition.last_stable_offset

    @invariant()
    def each_version_has_the_last_stable_offset_of_its_own_end(self):
        if hasattr(self, "disk"):
            table = self.partition.table
            log = [entry for entry in self.log if entry.end <= table.next_offset]
            assert table.last_stable_offset == stable_offset(log, self.log_start)

    @invariant()
    def producers_are_those_of_the_log(self):
        if not hasattr(self, "disk"):
            return
        assert self.partition.committed.producers.snapshot() == producer_entries(self.log[: self.committed])
        undecided = open_transactions(self.log)
        assert [entry.producer_id for entry in self.partition.open_transactions()] == list(undecided)
        for producer in PRODUCERS:
            epoch, _, is_open = self.known(producer)
            assert self.partition.has_open_transaction(producer, epoch) is is_open
            assert not self.partition.has_open_transaction(producer, epoch + 1)

    @invariant()
    def all_aborted_transactions_are_known(self):
        if hasattr(self, "disk"):
            self.look(self.log_start, end_of(self.log[: self.committed]))

    @rule(data=st.data())
    def look_anywhere(self, data):
        end_offset = end_of(self.log[: self.committed])
        start = data.draw(st.integers(self.log_start, end_offset), "start")
        self.look(start, data.draw(st.integers(start, end_offset), "end"))

    def look(self, start, end):
        expected = aborted_transactions(self.log[: self.committed], start, end)
        assert self.partition.committed.aborted_transactions(start, end) == expected


def _spoil(filesystem, path, damage, place):
    content = bytearray(filesystem.read_file(path))
    match damage:
        case "remove":
            filesystem.remove(path)
            return
        case "cut":
            del content[place % (len(content) + 1) :]
        case "flip" if content:
            content[place % len(content)] ^= 1 << place % 8
        case "zero":
            content = bytearray(len(content))
        case "stretch":
            content += b"\x01" * 68
    replace_file(filesystem, path, bytes(content))


TestPartitionTransactions = PartitionTransactionsMachine.TestCase
TestPartitionTransactions.settings = settings(stateful_step_count=40, max_examples=2 * settings.default.max_examples)
