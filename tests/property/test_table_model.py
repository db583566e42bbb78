"""A table beside a naive model of it: appends on all terms, transactions, removals, crashes and reopenings."""

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from exactlog.log import Committed, Conflicted, PayloadDiffers, Superseded, open_partition
from exactlog.testing import Crashed, FailingFilesystem

PATH = "/data/topic=orders-part=0"
ORIGINS = (7, 8)
LONG_EXAMPLES = 2_000
"""A run of a hundred steps is worth several of the other examples: the long run makes so many."""


class TableMachine(RuleBasedStateMachine):
    """The model: the values of all records by offset, the log start, and the result of every id."""

    @initialize()
    def make(self):
        self.files = FailingFilesystem()
        self.values = []
        self.log_start = 0
        self.version = 0
        self.txn_ids = {}  # id -> (values, outcome)
        self.origins = {}  # id -> (last sequence, values, outcome)
        self.numbers = iter(range(10**9))
        self.table = open_partition(PATH, filesystem=self.files)
        self.crash_in = None

    def teardown(self):
        if hasattr(self, "table"):
            self.table.close()

    def fresh(self, count):
        return [b"%d" % next(self.numbers) for _ in range(count)]

    # --- appends -------------------------------------------------------------------------------------------------

    def append(self, values, **terms):
        """The outcome of an append that is new to the table; a crash in it is lived through."""
        return self.carry_out(values, lambda: self.table.append(values, **terms), terms)

    def carry_out(self, values, append, terms):
        try:
            outcome = append()
        except Crashed:
            self.come_back(values, terms)
            return None
        if isinstance(outcome, Committed):
            assert outcome == Committed(self.version + 1, len(self.values), len(self.values) + len(values) - 1)
            self.take_in(values, outcome, terms)
        return outcome

    def take_in(self, values, outcome, terms):
        self.values += values
        self.version = outcome.version
        if terms.get("txn_id") is not None:
            self.txn_ids[terms["txn_id"]] = values, outcome
        if terms.get("origin_id") is not None:
            last = self.origins.get(terms["origin_id"], (0, None, None))[0]
            sequence = terms.get("origin_seq") or last + 1
            self.origins[terms["origin_id"]] = sequence, values, outcome

    @rule(count=st.integers(1, 4))
    def append_blindly(self, count):
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
        try:
            self.table.delete_records_before(offset)
        except Crashed:
            self.come_back([], {}, start=offset)
            return
        self.version += offset > self.log_start
        self.log_start = max(self.log_start, offset)

    @rule()
    def write_a_checkpoint(self):
        try:
            self.table.maybe_checkpoint()
        except Crashed:
            self.come_back([], {})

    # --- crashes and reopenings ----------------------------------------------------------------------------------

    @rule(steps=st.integers(0, 30), seed=st.none() | st.integers(0, 2**32))
    def crash_soon(self, steps, seed):
        """The machine stops after so many steps; with a seed the power fails, else the process is killed."""
        self.crash_in = seed
        self.is_cut = seed is not None
        self.files.crash_at(steps)

    @rule()
    def reopen(self):
        self.table.close()
        try:
            self.table = open_partition(PATH, filesystem=self.files)
        except Crashed:
            self.come_back([], {})

    def come_back(self, values, terms, *, start=None):
        """After a crash: what was acknowledged is there, what was under way is there whole or not at all."""
        left = self.files.after_power_cut(Random(self.crash_in)) if self.is_cut else self.files.after_kill()
        self.files = FailingFilesystem(left)
        self.table = open_partition(PATH, filesystem=self.files)
        state = self.table.load_state()
        assert state.next_offset in (len(self.values), len(self.values) + len(values))
        if values and state.next_offset > len(self.values):
            outcome = Committed(self.version + 1, len(self.values), len(self.values) + len(values) - 1)
            if terms.get("txn_id") is not None:
                assert self.table.append(values, txn_id=terms["txn_id"]) == outcome
            self.take_in(values, outcome, terms)
        if start is not None and state.log_start_offset > self.log_start:
            assert state.log_start_offset == start
            self.version += 1
            self.log_start = start
        assert state.version == self.version

    # --- what always holds ---------------------------------------------------------------------------------------

    @invariant()
    def the_table_is_what_the_model_says(self):
        if not hasattr(self, "table"):
            return
        try:
            state = self.table.load_state()
            found = [record.value for record in self.table.read(self.log_start)]
        except Crashed:
            self.come_back([], {})
            return
        assert (state.version, state.next_offset, state.log_start_offset) == (
            self.version,
            len(self.values),
            self.log_start,
        )
        assert found == self.values[self.log_start :]


TestTable = TableMachine.TestCase
TestTable.settings = settings(
    stateful_step_count=30, max_examples=min(LONG_EXAMPLES, 2 * settings.default.max_examples)
)
