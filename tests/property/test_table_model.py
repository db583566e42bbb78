"""A table beside a naive model of it: appends on all terms, transactions, removals, crashes, full disks, reopenings."""

from random import Random
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.model.errors import ExactlogError, OffsetOutOfRangeError, VersionUnknownError
from exactlog.log import Committed, Conflicted, PayloadDiffers, Superseded, Unavailable, directory_owner, open_partition
from exactlog.log.errors import PartitionStoppedError
from exactlog.testing import Crashed, FailingFilesystem
from tests.support.partitions import DIRECTORY, DataDirectory, ManualClock

ORIGINS = (7, 8)
LONG_EXAMPLES = 2_000
"""A run of thirty steps is worth several of the other examples: the long run makes so many."""
SMALL = TopicConfig(segment_bytes=420, index_interval_bytes=150, file_delete_delay_ms=0)
"""Segments of a few batches, whose files go as soon as they may."""
SYNCS = ("sync_data", "sync", "sync_directory")
LUCK = st.none() | st.integers(0, 2**32)
"""What is left after a crash: None, all that was handed to the operating system; else what that seed leaves."""


class TableMachine(RuleBasedStateMachine):
    """The model: the values of all records by offset, the bounds of every version, and the result of every id."""

    @initialize(config=st.sampled_from([None, SMALL]), steps=st.none() | st.integers(0, 40), luck=LUCK)
    def make(self, config, steps, luck):
        self.clock = ManualClock()
        self.patch = mock.patch.object(directory_owner, "SystemClock", return_value=self.clock)
        self.patch.start()
        self.files = FailingFilesystem()
        self.values = []
        self.log_start = 0
        self.version = 0
        self.bounds = [(0, 0)]  # log start and end of every version
        self.txn_ids = {}  # id -> (values, outcome)
        self.origins = {}  # id -> (last sequence, values, outcome)
        self.numbers = iter(range(10**9))
        self.luck = luck
        self.has_failing_sync = False
        if config is not None:
            with DataDirectory(self.files, config=config) as disk:
                disk.create()
        elif steps is not None:
            self.files.crash_at(steps)
        self.open()

    def teardown(self):
        if hasattr(self, "table"):
            self.table.close()
        if hasattr(self, "patch"):
            self.patch.stop()

    def open(self):
        try:
            self.table = open_partition(DIRECTORY, filesystem=self.files)
        except (OSError, ExactlogError):
            assert self.has_trouble
            self.files.capacity_bytes = None
            self.come_back([], {})
        except Crashed:
            self.come_back([], {})

    @property
    def has_trouble(self):
        return self.has_failing_sync or self.files.capacity_bytes is not None

    def try_to(self, do, *, values=(), terms=None, start=None):
        """What comes of it; None when it broke off, which is lived through."""
        try:
            return do()
        except Crashed:
            self.come_back(list(values), terms or {}, start=start)
        except PartitionStoppedError:
            assert self.has_failing_sync
            self.come_back(list(values), terms or {}, start=start)
        return None

    def now_is(self, outcome_version):
        assert outcome_version == self.version + 1 == len(self.bounds)
        self.version = outcome_version
        self.bounds.append((self.log_start, len(self.values)))

    def fresh(self, count):
        return [b"%d" % next(self.numbers) for _ in range(count)]

    # --- appends -------------------------------------------------------------------------------------------------

    def append(self, values, **terms):
        """The outcome of an append that is new to the table; None when it broke off, or the disk is full."""
        return self.carry_out(values, lambda: self.table.append(values, **terms), terms)

    def carry_out(self, values, append, terms):
        outcome = self.try_to(append, values=values, terms=terms)
        if isinstance(outcome, Committed):
            assert outcome == Committed(self.version + 1, len(self.values), len(self.values) + len(values) - 1)
            self.take_in(values, outcome, terms)
        if isinstance(outcome, Unavailable):
            assert self.files.capacity_bytes is not None
            return None
        return outcome

    def take_in(self, values, outcome, terms):
        self.values += values
        self.now_is(outcome.version)
        if terms.get("txn_id") is not None:
            self.txn_ids[terms["txn_id"]] = values, outcome
        if terms.get("origin_id") is not None:
            last = self.origins.get(terms["origin_id"], (0, None, None))[0]
            sequence = terms.get("origin_seq") or last + 1
            self.origins[terms["origin_id"]] = sequence, values, outcome

    @rule(counts=st.lists(st.integers(1, 4), min_size=1, max_size=12))
    def append_blindly(self, counts):
        for count in counts:
            self.append(self.fresh(count))

    @rule(offset=st.integers(-2, 2))
    def expect_a_version(self, offset):
        expected = max(0, self.version + offset)
        is_right = expected == self.version
        outcome = self.append(self.fresh(1), expected_version=expected)
        if outcome is not None:
            assert is_right == isinstance(outcome, Committed)
            if not is_right:
                assert outcome == Conflicted(expected, self.version)

    @rule(count=st.integers(1, 3))
    def append_under_an_id(self, count):
        self.append(self.fresh(count), txn_id=f"id-{len(self.txn_ids)}-{next(self.numbers)}")

    @precondition(lambda self: self.txn_ids)
    @rule(data=st.data(), is_changed=st.booleans(), is_stale=st.booleans())
    def come_again_with_an_id(self, data, is_changed, is_stale):
        txn_id = data.draw(st.sampled_from(sorted(self.txn_ids)))
        values, first = self.txn_ids[txn_id]
        expected = 0 if is_stale else None
        if is_changed:
            outcome = self.table.append([*values, b"more"], txn_id=txn_id, expected_version=expected)
            assert isinstance(outcome, PayloadDiffers)
            assert outcome.version == first.version
        else:
            assert self.table.append(values, txn_id=txn_id, expected_version=expected) == first

    @rule(origin=st.sampled_from(ORIGINS), gap=st.integers(0, 2), is_numbered=st.booleans())
    def append_of_an_origin(self, origin, gap, is_numbered):
        last = self.origins.get(origin, (0, None, None))[0]
        self.append(self.fresh(1), origin_id=origin, origin_seq=last + 1 + gap if is_numbered else None)

    @rule(origin=st.sampled_from(ORIGINS), offset=st.integers(-1, 1))
    def expect_an_origin_sequence(self, origin, offset):
        last = self.origins.get(origin, (0, None, None))[0]
        expected = max(0, last + offset)
        outcome = self.append(self.fresh(1), origin_id=origin, expected_origin_seq=expected)
        if outcome is not None and expected != last:
            assert outcome == Conflicted(expected, last)

    @precondition(lambda self: self.origins)
    @rule(data=st.data(), back=st.integers(0, 2), is_changed=st.booleans())
    def come_again_with_a_sequence(self, data, back, is_changed):
        origin = data.draw(st.sampled_from(sorted(self.origins)))
        last, values, first = self.origins[origin]
        sequence = last - back
        if sequence < 1:
            return
        outcome = self.table.append([b"another"] if is_changed else values, origin_id=origin, origin_seq=sequence)
        if back:
            assert outcome == Superseded(origin, sequence, last)
        elif is_changed:
            assert isinstance(outcome, PayloadDiffers)
        else:
            assert outcome == first

    # --- transactions --------------------------------------------------------------------------------------------

    @rule(parts=st.lists(st.integers(1, 2), min_size=1, max_size=3), is_committed=st.booleans(), is_stale=st.booleans())
    def run_a_transaction(self, parts, is_committed, is_stale):
        transaction = self.table.append_transactional()
        values = []
        for count in parts:
            more = self.fresh(count)
            transaction.append(more)
            values += more
        if not is_committed:
            transaction.abort()
            return
        terms = {"expected_version": self.version + 1} if is_stale else {}
        outcome = self.carry_out(values, lambda: transaction.commit(**terms), terms)
        if outcome is not None:
            assert isinstance(outcome, Conflicted if is_stale else Committed)

    # --- removal and upkeep --------------------------------------------------------------------------------------

    @rule(data=st.data())
    def remove_the_oldest(self, data):
        offset = data.draw(st.integers(0, len(self.values)))
        state = self.try_to(lambda: self.table.delete_records_before(offset), start=offset)
        if isinstance(state, Unavailable):
            assert self.files.capacity_bytes is not None
        elif state is not None:
            self.move_log_start(max(offset, self.log_start), version=state.version)

    def move_log_start(self, offset, *, version):
        """A version of its own; before it may come one by which files of an earlier removal can go."""
        is_moved = offset > self.log_start
        assert version - self.version - is_moved in (0, 1)
        if version > self.version + is_moved:
            self.now_is(self.version + 1)
        if is_moved:
            self.log_start = offset
            self.now_is(version)

    @rule()
    def write_a_checkpoint(self):
        self.try_to(self.table.maybe_checkpoint)

    @rule(seconds=st.sampled_from([1, 10, 100_000]))
    def let_time_pass(self, seconds):
        self.clock.time_ms += 1_000 * seconds

    # --- reading -------------------------------------------------------------------------------------------------

    @rule(data=st.data(), is_read_only=st.booleans())
    def read_the_past(self, data, is_read_only):
        version = data.draw(st.integers(0, self.version + 1))
        from_offset = data.draw(st.integers(0, len(self.values)))

        def read():
            with open_partition(DIRECTORY, filesystem=self.files, read_only=is_read_only) as table:
                return [record.value for record in table.read(from_offset, as_of_version=version)]

        if version > self.version:
            with pytest.raises(VersionUnknownError):
                read()
            return
        start, end = self.bounds[version]
        first = max(start, from_offset)
        if first < min(end, self.log_start):
            with pytest.raises(OffsetOutOfRangeError):
                read()
        else:
            assert read() == self.values[first:end]

    # --- trouble -------------------------------------------------------------------------------------------------

    @rule(steps=st.integers(0, 30), luck=LUCK)
    def crash_soon(self, steps, luck):
        """The machine stops after so many steps."""
        self.luck = luck
        self.files.crash_at(steps)

    @rule(operation=st.sampled_from(SYNCS), after=st.integers(0, 5), luck=st.integers(0, 2**32))
    def fail_a_sync(self, operation, after, luck):
        """What it was to make durable is lost, and the power fails as soon as the table has noticed."""
        self.luck = luck
        self.has_failing_sync = True
        self.files.fail(operation, after=after)

    @rule(room_bytes=st.integers(0, 2_000))
    def fill_the_disk(self, room_bytes):
        self.files.capacity_bytes = self.files.used_bytes + room_bytes

    @rule()
    def make_room(self):
        self.files.capacity_bytes = None

    @rule()
    def reopen(self):
        self.table.close()
        self.open()

    def come_back(self, values, terms, *, start=None):
        """What was acknowledged is there, what was under way is there whole or not at all."""
        if hasattr(self, "table"):
            self.table.close()
        left = self.files.after_kill() if self.luck is None else self.files.after_power_cut(Random(self.luck))
        self.files = FailingFilesystem(left)
        self.has_failing_sync = False
        self.table = open_partition(DIRECTORY, filesystem=self.files)
        state = self.table.load_state()
        assert state.next_offset in (len(self.values), len(self.values) + len(values))
        if values and state.next_offset > len(self.values):
            outcome = Committed(self.version + 1, len(self.values), len(self.values) + len(values) - 1)
            if terms.get("txn_id") is not None:
                assert self.table.append(values, txn_id=terms["txn_id"]) == outcome
            self.take_in(values, outcome, terms)
        if start is not None:
            assert state.log_start_offset in (self.log_start, start)
            self.move_log_start(state.log_start_offset, version=state.version)
        assert state.version == self.version

    # --- what always holds ---------------------------------------------------------------------------------------

    @invariant()
    def the_table_is_what_the_model_says(self):
        if not hasattr(self, "table"):
            return
        state = self.table.load_state()
        found = [record.value for record in self.table.read(self.log_start)]
        assert (state.version, state.next_offset, state.log_start_offset) == (
            self.version,
            len(self.values),
            self.log_start,
        )
        assert found == self.values[self.log_start :]
        sequences = {entry.origin_id: entry.last_seq for entry in state.origins if entry.origin_id in ORIGINS}
        assert sequences == {origin: last for origin, (last, _, _) in self.origins.items()}


TestTable = TableMachine.TestCase
TestTable.settings = settings(
    stateful_step_count=30, max_examples=min(LONG_EXAMPLES, 2 * settings.default.max_examples)
)
