"""Every fold of a journal's actions comes to what a plain dict of events comes to, however the log is cut."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from exactlog.core.journal.action_fold import apply_actions
from exactlog.core.journal.batch_optimizer import optimize_actions
from exactlog.core.journal.head_summary import add_action, empty_summary, join, settle, summarize
from exactlog.core.journal.key_journal import plan_batches
from exactlog.core.journal.key_plan import Terms
from exactlog.core.journal.purge_cuts import cut_at_purges
from exactlog.core.journal.state import JournalState
from tests.support.event_journals import (
    TOPIC_PARTITION,
    StepStore,
    histories,
    life_at,
    naive,
    plausible_histories,
)

any_history = st.one_of(histories(), plausible_histories())
states = st.one_of(
    st.none(),
    st.builds(lambda to: JournalState(to, to, is_reset=True, record_id=life_at(10_000)), st.integers(1, 12)),
    st.builds(
        lambda seq_nr, share: JournalState(seq_nr, seq_nr * share // 4, record_id=life_at(10_000)),
        st.integers(1, 12),
        st.integers(0, 4),
    ),
)


def end_of(history):
    return history[-1].offset + 1 if history else 0


def cut(draw, history):
    """The history in pieces: (records, start, end) of each, all together without a gap."""
    end = end_of(history)
    bounds = sorted({0, end, *draw(st.lists(st.integers(0, end), max_size=6))})
    return [
        ([record for record in history if start <= record.offset < stop], start, stop)
        for start, stop in pairwise(bounds)
    ]


def apply_to(store, records, *, segment_size=3, optimize=True, steps_max=None):
    """What a replicator does with one poll; it may die after so many steps."""
    terms = Terms(topic_partition=TOPIC_PARTITION, now_ms=1, segment_size=segment_size)
    groups = [records] if optimize else [[record] for record in records]
    for group in groups:
        plan = plan_batches(store.head, optimize_actions(group), terms)
        for step in plan.steps:
            if steps_max == 0:
                return False
            store.do(step)
            steps_max = None if steps_max is None else steps_max - 1
    return True


def assert_is(store, journal):
    assert store.visible() == journal.events
    assert (store.head is not None) == journal.exists
    if journal.exists:
        assert (store.head.seq_nr, store.head.is_reset) == (journal.last, journal.is_reset)
        assert store.head.record_id == life_at(journal.life)


# --- one action after the other ---------------------------------------------------------------------------------------


@given(any_history)
def test_the_plainest_fold_agrees_with_a_dict_of_events(history):
    state, journal = apply_actions(None, history), naive(history)

    assert (state is not None) == journal.exists
    if state is not None:
        assert (state.seq_nr, state.is_reset, state.record_id) == (
            journal.last,
            journal.is_reset,
            life_at(journal.life),
        )
        assert all(state.delete_to < number <= state.seq_nr for number in journal.events)


# --- summaries --------------------------------------------------------------------------------------------------------


@given(any_history, states)
def test_a_summary_makes_of_any_state_what_its_actions_make(history, before):
    summary = summarize(TOPIC_PARTITION, history, start=0, end=end_of(history))

    after = apply_actions(before, history)

    assert summary.state_after(before) == after
    assert settle(summary, before).state_after(None) == after


@given(st.data())
def test_a_summary_is_the_same_however_the_log_is_cut_and_joined(data):
    history = data.draw(any_history)
    whole = summarize(TOPIC_PARTITION, history, start=0, end=end_of(history))
    pieces = [
        summarize(TOPIC_PARTITION, records, start=start, end=end) for records, start, end in cut(data.draw, history)
    ]

    while len(pieces) > 1:  # neighbours are joined in any order
        at = data.draw(st.integers(0, len(pieces) - 2))
        pieces[at : at + 2] = [join(pieces[at], pieces[at + 1])]

    assert (pieces or [whole]) == [whole]


@given(st.data())
def test_a_summary_takes_nothing_twice(data):
    history = data.draw(any_history)
    whole = summarize(TOPIC_PARTITION, history, start=0, end=end_of(history))
    pieces = [
        summarize(TOPIC_PARTITION, records, start=start, end=end) for records, start, end in cut(data.draw, history)
    ]

    for piece in pieces:
        assert join(whole, piece) == join(piece, whole) == whole
    for record in data.draw(st.permutations(history)):
        assert add_action(whole, record) == whole


@given(st.data())
def test_what_was_settled_on_the_way_comes_to_the_same(data):
    history, before = data.draw(any_history), data.draw(states)
    after = apply_actions(before, history)
    summary, settled_at = empty_summary(TOPIC_PARTITION, 0), data.draw(st.integers(0, max(len(history), 1)))

    for number, record in enumerate(history):
        if number == settled_at:
            summary = settle(summary, before)
            assert summary.size <= 1
        summary = add_action(summary, record)

    if settled_at < len(history):
        before = None  # is not asked for any more
    assert summary.state_after(before) == after
    assert settle(summary, before).size == 1


@given(st.data())
def test_a_summary_can_be_applied_to_a_state_from_its_middle_or_says_that_it_cannot(data):
    history = data.draw(any_history)
    whole = summarize(TOPIC_PARTITION, history, start=0, end=end_of(history))
    offset = data.draw(st.integers(-1, end_of(history) + 2))
    held = apply_actions(None, [record for record in history if record.offset <= offset])
    rest = whole.since(offset)

    if rest is None:
        assert any(step.is_ahead for step in whole.steps if hasattr(step, "is_ahead"))
    else:
        assert rest.state_after(held) == apply_actions(None, history)
        assert rest.start == offset + 1


# --- the store --------------------------------------------------------------------------------------------------------


@settings(max_examples=100)
@given(st.data())
def test_a_store_holds_the_journal_however_polls_were_cut(data):
    history = data.draw(any_history)
    store, segment_size = StepStore(), data.draw(st.sampled_from([2, 3, 10_000]))

    for records, _, _ in cut(data.draw, history):
        apply_to(store, records, segment_size=segment_size, optimize=data.draw(st.booleans()))

    assert_is(store, naive(history))
    assert len(store.rows) == len(store.visible()), "a row is left that no reader sees"


@given(st.data())
def test_drawing_actions_together_changes_nothing(data):
    history = data.draw(any_history)
    pieces = cut(data.draw, history)
    one_by_one, together = StepStore(), StepStore()

    for records, _, _ in pieces:
        apply_to(one_by_one, records, optimize=False)
        apply_to(together, records)

    assert together.head == one_by_one.head
    assert together.rows == one_by_one.rows


@settings(max_examples=150)
@given(st.data())
def test_a_replicator_that_dies_anywhere_leaves_nothing_wrong_behind(data):
    """It begins anew at the pointer, with a poll of another length: shorter, or as long as the log is by now."""
    history = data.draw(any_history)
    store, pointer = StepStore(), -1

    for _ in range(30):
        poll = [record for record in history if record.offset > pointer][: data.draw(st.integers(1, 6))]
        steps_max = data.draw(st.one_of(st.none(), st.integers(0, 6)))
        optimize = data.draw(st.booleans())
        for stretch in cut_at_purges(poll):
            pointer = stretch[0].offset - 1
            if not apply_to(store, stretch, optimize=optimize, steps_max=steps_max):
                break
        else:
            pointer = poll[-1].offset if poll else pointer
    for stretch in cut_at_purges(record for record in history if record.offset > pointer):
        apply_to(store, stretch)

    assert_is(store, naive(history))
    assert len(store.rows) == len(store.visible()), "a row is left that no reader sees"


@given(any_history)
def test_what_was_applied_once_is_applied_no_second_time(history):
    store = StepStore()
    apply_to(store, history)
    head, rows = store.head, dict(store.rows)
    if head is None:  # only the pointer tells: what comes again is cut as above
        history = cut_at_purges(history)[-1] if cut_at_purges(history) else ()

    plan = plan_batches(head, optimize_actions(history), Terms(topic_partition=TOPIC_PARTITION, now_ms=2))
    store.do_all(plan)

    assert plan.steps == () or head is None
    assert (store.head, store.rows) == (head, rows)
