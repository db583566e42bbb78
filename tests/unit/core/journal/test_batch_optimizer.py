"""Which batches the actions of a poll become; the rows are kafka-journal's, in short."""

import re

import pytest

from exactlog.core.journal.batch_optimizer import optimize_actions
from exactlog.core.journal.batches import AppendBatch, DeleteBatch, PurgeBatch
from exactlog.core.journal.expectation import EXISTS, NO_STREAM
from tests.support.event_journals import append, delete, mark, purge, seq

# "a1-3@0": append of events 1 to 3 at offset 0; "d2@4": delete to 2 at offset 4; "p@5": purge; "m@6": mark.
# Batches: "[a1@0 a2@1]": one of two appends; "d2@4": a delete to 2, which the action at offset 4 asked for; "p@5".
CASES = """
m@0                                         ->
m@0 m@1                                     ->
a1@0                                        -> [a1@0]
a1-2@0                                      -> [a1-2@0]
a1-2@0 a3-4@1                               -> [a1-2@0 a3-4@1]
a1@0 m@1                                    -> [a1@0]
m@0 a1@1                                    -> [a1@1]
a1@0 a2@1                                   -> [a1@0 a2@1]
m@0 a1@1 m@2 a2@3 m@4                       -> [a1@1 a2@3]
d1@1                                        -> d1@1
m@1 d1@2                                    -> d1@2
d1@1 m@2                                    -> d1@1
d1@1 a2@2                                   -> d1@1 [a2@2]
a2@1 d1@2                                   -> [a2@1] d1@2
a1-3@1 d1@2                                 -> [a1-3@1] d1@2
a1@1 d1@2 a2@3                              -> [a1@1] d1@2 [a2@3]
a1@1 d1@2 a2@3 d2@4                         -> [a2@3] d2@4
a1@1 a2@2 d1@3 d2@4                         -> [a2@2] d2@4
d1@2 d2@3                                   -> d2@3
d2@2 d1@3                                   -> d2@2
m@2 d1@3 m@4 d2@5 m@6                       -> d2@5
a1@0 d1@1 a2@2 d2@3 a3@4                    -> [a2@2] d2@3 [a3@4]
a1@0 a2@1 d1@2 a3@3 d3@4 a4@5               -> [a3@3] d3@4 [a4@5]
a1@0 a2@1 m@2 d1@3 a3@4 a4@5 m@6            -> [a2@1] d1@3 [a3@4 a4@5]
a1@0 a2@1 a3@2 d1@3 a4@4 a5@5 d2@6 a6@7     -> [a3@2 a4@4 a5@5] d2@6 [a6@7]
a1-2@0 a3-4@1 a5@2 d1@3 a6@4 a7@5 d3@6 a8@7 -> [a3-4@1 a5@2 a6@4 a7@5] d3@6 [a8@7]
p@0                                         -> p@0
m@0 p@1                                     -> p@1
p@0 m@1                                     -> p@0
p@0 m@1 p@2                                 -> p@2
a1@0 p@1                                    -> p@1
p@0 a1@1                                    -> p@0 [a1@1]
d1@0 p@1                                    -> p@1
p@0 d1@1                                    -> p@0 d1@1
d1@0 d2@1                                   -> d2@1
a1-2@0 a3-4@1 a5-6@2 d3@3 d5@4              -> [a5-6@2] d5@4
a1-6@0 d3@1 d6@2                            -> [a1-6@0] d6@2
a1-4@0 a5-6@1 d3@2 d6@3                     -> [a5-6@1] d6@3
a1-4@0 a5-6@1 d3@2                          -> [a1-4@0 a5-6@1] d3@2
d10@1 d6@2                                  -> d10@1
a574@9 a575@11 m@12 d575@13                 -> [a575@11] d575@13
a1-3@0 a2@1 d3@2                            -> [a1-3@0 a2@1] d3@2
d5@0 a1-2@1                                 -> d5@0 [a1-2@1]
d5@0 a6@1 d3@2                              -> d5@0 [a6@1] d3@2
"""


def actions_of(text):
    for kind, first, last, offset in re.findall(r"([amdp])(\d+)?(?:-(\d+))?@(\d+)", text):
        where = int(offset)
        match kind:
            case "a":
                yield append(where, int(first), int(last or first))
            case "d":
                yield delete(where, int(first))
            case "p":
                yield purge(where)
            case _:
                yield mark(where)


def text_of(batch):
    match batch:
        case AppendBatch(records=records):
            ranges = [(record.action.range, record.offset) for record in records]
            texts = (
                f"a{numbers.first}{'' if numbers.first == numbers.last else f'-{numbers.last}'}@{offset}"
                for numbers, offset in ranges
            )
            return f"[{' '.join(texts)}]"
        case DeleteBatch(to=to, to_offset=offset):
            return f"d{to}@{offset}"
        case PurgeBatch(offset=offset):
            return f"p@{offset}"


@pytest.mark.parametrize("case", CASES.strip().splitlines(), ids=lambda case: case.partition("->")[0].strip())
def test_actions_are_drawn_together(case):
    actions, _, batches = case.partition("->")

    assert " ".join(map(text_of, optimize_actions(actions_of(actions)))) == batches.strip()


@pytest.mark.parametrize(
    ("actions", "offsets"),
    [("a1@1 a2@5", [5]), ("d2@2 d1@3", [3]), ("a1@0 d1@1 m@2", [0, 1]), ("a1@0 a2@1 d1@2 d2@3", [1, 3])],
)
def test_a_batch_reaches_to_its_last_action(actions, offsets):
    """So a head row comes to the same offset, however the actions were drawn together."""
    assert [batch.offset for batch in optimize_actions(actions_of(actions))] == offsets


def test_batches_remember_where_what_they_leave_out_began():
    first, second = optimize_actions(actions_of("a3@7 a4@8 d4@9"))

    assert (first.first_offset, first.first_seq_nr, len(first.records)) == (7, 3, 1)
    assert second.first_offset == 7
    assert optimize_actions(actions_of("a1-9@1 d3@2 p@3"))[0].dropped_to == 9
    assert optimize_actions(actions_of("d3@2 p@3"))[0].dropped_to == 0


def test_nothing_is_drawn_together_over_an_action_with_an_expectation():
    batches = optimize_actions(
        [append(0, 1), append(1, 2, expect=seq(1)), append(2, 3), delete(3, 3, expect=EXISTS), delete(4, 3)]
    )

    assert [text_of(batch) for batch in batches] == ["[a1@0]", "[a2@1]", "[a3@2]", "d3@3", "d3@4"]
    assert [batch.expect.is_any for batch in batches] == [True, False, True, False, True]


def test_a_purge_with_an_expectation_takes_nothing_with_it_and_a_plain_one_takes_everything():
    on_terms, plain = purge(1, expect=NO_STREAM), purge(3)

    assert [batch.offset for batch in optimize_actions([append(0, 1), on_terms, append(2, 2)])] == [0, 1, 2]
    assert optimize_actions([append(0, 1), on_terms, append(2, 2, 5, expect=seq(1)), plain]) == (
        PurgeBatch(offset=3, dropped_to=5),
    )
