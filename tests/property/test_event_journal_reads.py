"""Reading journals from a store that lags, a cache and a log, beside plain dicts of events.

A replicator polls, writes a few steps, dies, and begins anew at its pointer. A cache reads the log at its own pace and
hears of the pointer late. Whenever somebody reads, by whichever path, and whatever the replicator does between the
steps of the read: they see each event that was in the log by then, and none that was deleted.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from exactlog.core.journal.action_fold import apply_actions
from exactlog.core.journal.batch_optimizer import optimize_actions
from exactlog.core.journal.errors import Retriable
from exactlog.core.journal.expectation import ANY, NO_STREAM, Expectation
from exactlog.core.journal.head_summary import settle, summarize
from exactlog.core.journal.judgement import Appended, NotAsExpected, judge_append
from exactlog.core.journal.key_journal import plan_batches
from exactlog.core.journal.key_plan import Terms
from exactlog.core.journal.keys import SEQ_NR_MAX, JournalKey, SeqRange
from exactlog.core.journal.partition_cache import Ahead, Found, PartitionCache
from exactlog.core.journal.purge_cuts import cut_at_purges
from exactlog.core.journal.read_plan import (
    LogReader,
    ReadPath,
    Stretch,
    held_offset,
    needed_stretch,
    plan_read,
)
from tests.support.event_journals import (
    TOPIC_PARTITION,
    NaiveJournal,
    StepStore,
    actions,
    append,
    delete,
    life_at,
    mark,
    purge,
    seq,
)

KEYS = [JournalKey("orders", "a"), JournalKey("orders", "b")]
keys = st.sampled_from(KEYS)
steps = st.one_of(st.none(), st.integers(0, 5))


class Replicator:
    """A pointer, a store of each journal, and steps that are carried out one at a time."""

    def __init__(self, log):
        self.log = log
        self.pointer = -1
        self.stores = {key: StepStore() for key in KEYS}
        self._steps = iter(())

    def start(self, poll_size):
        """Anew, from the pointer on."""
        start = self.pointer + 1
        self._steps = self._work(self.log[start : start + poll_size])

    def go_on(self, step_count):
        for _ in range(step_count):
            next(self._steps, None)

    def finish(self):
        for _ in self._steps:
            pass

    def _work(self, poll):
        for stretch in cut_at_purges(poll):
            self.pointer = stretch[0].offset - 1
            for key in KEYS:
                of_key = [record for record in stretch if record.key == key]
                terms = Terms(topic_partition=TOPIC_PARTITION, now_ms=1, segment_size=2)
                for step in plan_batches(self.stores[key].head, optimize_actions(of_key), terms).steps:
                    self.stores[key].do(step)
                    yield
        if poll:
            self.pointer = poll[-1].offset


class EventJournalReads(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.log = []
        self.journals = {key: NaiveJournal() for key in KEYS}
        self.replicator = Replicator(self.log)
        self.cache = PartitionCache(TOPIC_PARTITION, start=0, steps_max=4, dropped_share=0.5)

    # --- writing ------------------------------------------------------------------------------------------------------

    def write(self, record):
        before = apply_actions(None, self.of_key(record.key))
        was_as_expected = self.journals[record.key].apply(record)
        self.log.append(record)
        return before, was_as_expected

    def of_key(self, key):
        return [record for record in self.log if record.key == key]

    @rule(key=keys, count=st.integers(1, 3), gap=st.sampled_from([0, 0, 0, 2]), is_careful=st.booleans())
    def a_writer_appends_behind_the_last_event(self, key, count, gap, is_careful):
        last = self.journals[key].last or 0
        expect = ANY if not is_careful else seq(last) if last else NO_STREAM
        first = last + 1 + gap
        record = append(len(self.log), first, first + count - 1, expect=expect, key=key)

        before, _ = self.write(record)

        assert judge_append(record, before) == Appended(first + count - 1, 0, record.offset)

    @rule(key=keys, behind=st.integers(1, 3))
    def a_writer_that_is_behind_loses(self, key, behind):
        last = self.journals[key].last or 0
        record = append(len(self.log), max(last, 1), expect=seq(last + behind), key=key)

        before, was_as_expected = self.write(record)

        assert not was_as_expected
        assert judge_append(record, before) == NotAsExpected(seq(last + behind), last or None)

    @rule(key=keys, data=st.data())
    def anybody_writes_anything(self, key, data):
        self.write(data.draw(actions(len(self.log), key=key)))

    @rule(key=keys, to=st.integers(1, 20))
    def a_writer_deletes(self, key, to):
        self.write(delete(len(self.log), min(to, self.journals[key].last or 1), key=key))

    @rule(key=keys)
    def a_writer_purges(self, key):
        self.write(purge(len(self.log), key=key))

    @precondition(lambda self: any(store.head for store in self.replicator.stores.values()))
    @rule(data=st.data(), late=st.booleans())
    def a_journal_is_purged_for_its_time(self, data, late):
        """By who saw it in the store. An append that came first wins."""
        key = data.draw(st.sampled_from([key for key in KEYS if self.replicator.stores[key].head]))
        head = self.replicator.stores[key].head
        if late:
            self.a_writer_appends_behind_the_last_event(key, count=1, gap=0, is_careful=False)
        on_terms = Expectation(exists=True, seq_nr=head.seq_nr, record_id=head.record_id)
        self.write(purge(len(self.log), expect=on_terms, key=key))
        if late:
            assert self.journals[key].exists

    # --- what goes on beside ------------------------------------------------------------------------------------------

    @rule(poll_size=st.integers(1, 12), step_count=steps)
    def the_replicator_polls(self, poll_size, step_count):
        self.replicator.start(poll_size)
        if step_count is None:
            self.replicator.finish()
        else:
            self.replicator.go_on(step_count)

    @rule(step_count=st.integers(1, 4))
    def the_replicator_goes_on(self, step_count):
        self.replicator.go_on(step_count)

    @rule(poll_size=st.integers(1, 8))
    def the_cache_polls(self, poll_size):
        end = min(self.cache.end + poll_size, len(self.log))
        self.cache.add(self.log[self.cache.end : end], end=end)

    @rule()
    def the_cache_hears_of_the_pointer(self):
        self.cache.remove(self.replicator.pointer)

    # --- reading ------------------------------------------------------------------------------------------------------

    @rule(
        key=keys,
        first=st.integers(1, 8),
        length=st.sampled_from([1, 4, SEQ_NR_MAX]),
        uses_cache=st.booleans(),
        gives_back=st.booleans(),
        pauses=st.lists(st.integers(0, 3), min_size=4, max_size=4),
    )
    def a_reader_sees_what_is_in_the_log(self, *, key, first, length, uses_cache, gives_back, pauses):
        """Between the steps of the read the replicator goes on for a bit."""
        self.write(mark(len(self.log), key=key))
        end = len(self.log) - 1
        wanted = SeqRange(first, min(first + length - 1, SEQ_NR_MAX))
        expected = {number: text for number, text in self.journals[key].events.items() if number in wanted}

        for _ in range(20):  # more than the replicator can disturb
            try:
                seen, last = self.read(key, wanted, end, uses_cache=uses_cache, gives_back=gives_back, pauses=pauses)
            except Retriable:
                self.replicator.go_on(1)
                if self.replicator.pointer < end:
                    self.replicator.start(100)
                    self.replicator.finish()
                continue
            if seen is not None:
                break
        else:
            raise AssertionError("it never came to an answer")

        assert seen == expected
        assert last == self.journals[key].last

    def read(self, key, wanted, end, *, uses_cache, gives_back, pauses):
        """What a reader sees, and the last number; None: it was disturbed, and begins anew."""
        pointer = self.replicator.pointer
        self.replicator.go_on(pauses[0])
        head = self.replicator.stores[key].head
        self.replicator.go_on(pauses[1])
        held = held_offset(TOPIC_PARTITION, pointer=pointer, head=head)
        needed = needed_stretch(TOPIC_PARTITION, pointer=pointer, end=end, log_start=0)
        before = None if head is None else head.state
        summary = self.ask_cache(key, end, held) if uses_cache else None
        if summary is None:
            stretch = needed or Stretch(held + 1, held + 1)
            records = (record for record in self.of_key(key) if record.offset < end)
            summary = summarize(TOPIC_PARTITION, records, start=stretch.start, end=stretch.end).since(held)
        if summary is None:  # the stretch was drawn together across the head row's offset: read on from there
            summary = summarize(TOPIC_PARTITION, self.of_key(key), start=held + 1, end=end)
        if gives_back and summary.doubt_at(before) is None:
            self.cache.put_settled(key.id, settle(summary, before))

        plan = plan_read(key, wanted, head=head, summary=summary)
        last = None if plan.state is None else plan.state.seq_nr
        if plan.wanted is None:
            return {}, last
        seen = []
        if plan.store is not None:
            seen += self.rows_of_the_store(key, plan, head, pause=pauses[2])
            if self.was_disturbed(key, plan):
                return None, None
        self.replicator.go_on(pauses[3])
        part = plan.log_after(seen[-1].seq_nr if seen else None)
        if part is not None:
            seen += self.stream(key, plan, part, seen)
        assert plan.path is not ReadPath.NOTHING
        numbers = [row.seq_nr for row in seen]
        assert numbers == sorted(set(numbers))
        return {row.seq_nr: row.event.payload.content for row in seen}, last

    def was_disturbed(self, key, plan):
        """Whether rows may have gone before they were read."""
        head = self.replicator.stores[key].head
        return head is None or head.record_id != plan.state.record_id or head.state.delete_to >= plan.store.first

    def rows_of_the_store(self, key, plan, head, *, pause):
        """The first half, and later the second one."""
        store, middle = self.replicator.stores[key], (plan.store.first + plan.store.last) // 2

        def stored(first, last):
            rows = [row for _, row in sorted(store.rows.items()) if first <= row.seq_nr <= last]
            return [row for row in rows if row.record_id == head.record_id]

        first_half = stored(plan.store.first, middle)
        self.replicator.go_on(pause)
        return first_half + stored(middle + 1, plan.store.last)

    def ask_cache(self, key, end, held):
        match self.cache.get(key.id, end=end):
            case Found(summary):
                return summary.since(held)
            case Ahead():
                assert self.replicator.pointer + 1 >= end
                return None
            case _:
                return None

    def stream(self, key, plan, part, seen):
        reader = LogReader(plan, part, next_seq_nr=seen[-1].seq_nr + 1 if seen else 1)
        found = []
        for record in self.of_key(key):
            if record.offset >= part.stretch.start:
                found += [row for _ in range(2) for row in reader.take(record)]  # each is delivered twice
        return found

    @invariant()
    def the_store_is_no_further_than_the_log(self):
        for key, store in self.replicator.stores.items():
            if store.head is not None:
                assert any(record.offset == store.head.offset for record in self.of_key(key))
                assert store.head.record_id in {life_at(record.offset) for record in self.of_key(key)}


EventJournalReads.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestEventJournalReads = EventJournalReads.TestCase
