"""A purge on terms is carried out when nothing before it can come again."""

import pytest

from exactlog.core.journal.batch_optimizer import optimize_actions
from exactlog.core.journal.expectation import Expectation
from exactlog.core.journal.key_journal import plan_batches
from exactlog.core.journal.key_plan import Terms
from exactlog.core.journal.keys import JournalKey
from exactlog.core.journal.purge_cuts import cut_at_purges
from tests.support.event_journals import TOPIC_PARTITION, StepStore, append, delete, life_at, mark, purge

A, B = JournalKey("orders", "a"), JournalKey("orders", "b")
ON_TERMS = Expectation(exists=True, seq_nr=4, record_id=life_at(3))


def offsets(*records):
    return [[record.offset for record in stretch] for stretch in cut_at_purges(records)]


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([], []),
        ([mark(0)], []),
        ([append(0, 1, key=A), purge(1, key=A), append(2, 1, key=A), mark(3)], [[0, 1, 2]]),
        ([purge(0, expect=ON_TERMS, key=A), append(1, 1, key=A)], [[0, 1]]),
        ([append(0, 1, key=A), purge(1, expect=ON_TERMS, key=A)], [[0], [1]]),
        ([append(0, 1, key=B), purge(1, expect=ON_TERMS, key=A), purge(2, expect=ON_TERMS, key=B)], [[0, 1], [2]]),
        ([purge(0, expect=ON_TERMS, key=A), purge(1, expect=ON_TERMS, key=A)], [[0], [1]]),
        (
            [append(0, 1, key=A), purge(1, expect=ON_TERMS, key=A), delete(2, 1, key=B), append(3, 1, key=A)],
            [[0], [1, 2, 3]],
        ),
    ],
)
def test_a_poll_is_cut_before_a_purge_on_terms_of_a_journal_that_was_changed(records, expected):
    assert offsets(*records) == expected


def test_without_the_cut_a_crash_would_begin_a_purged_journal_anew_out_of_its_middle():
    """The pointer stands behind event 3; the rest was carried out, and then the replicator died."""
    begun, rest = [append(3, 1, 3)], [append(4, 4), purge(9, expect=ON_TERMS), append(10, 1, 2)]
    terms = Terms(topic_partition=TOPIC_PARTITION, now_ms=7)

    def after_a_crash(stretches):
        """Dead before the next pointer: the last stretch comes again, after its purge and nothing else was done."""
        store = StepStore()
        store.do_all(plan_batches(store.head, optimize_actions(begun), terms))
        for stretch in stretches:
            store.do_all(
                plan_batches(store.head, optimize_actions(stretch[: -1 if stretch[-1].offset == 10 else None]), terms)
            )
        store.do_all(plan_batches(store.head, optimize_actions(stretches[-1]), terms))
        return store.visible()

    assert after_a_crash([rest]) != {1: "1@10", 2: "2@10"}
    assert after_a_crash(cut_at_purges(rest)) == {1: "1@10", 2: "2@10"}
