"""The table of states, and its page."""

import re
from itertools import product
from pathlib import Path

import pytest

from exactlog.core.model.errors import InvariantError
from exactlog.core.transaction.entry import add, complete, create, fence, initialise, prepare, rotate
from exactlog.core.transaction.states import TRANSITIONS, TransactionState, check_transition

PAGE = Path(__file__).parents[4] / "docs" / "transaction_states.md"
S = TransactionState

# What Apache Kafka 4.4 says: TransactionState.validPreviousStates, by state.
KAFKA = {
    S.EMPTY: {S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
    S.ONGOING: {S.ONGOING, S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
    S.PREPARE_COMMIT: {S.ONGOING},
    S.PREPARE_ABORT: {S.ONGOING, S.PREPARE_EPOCH_FENCE, S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
    S.COMPLETE_COMMIT: {S.PREPARE_COMMIT},
    S.COMPLETE_ABORT: {S.PREPARE_ABORT},
    S.DEAD: {S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
    S.PREPARE_EPOCH_FENCE: {S.ONGOING},
}


def test_the_table_is_kafkas():
    assert {(before, after) for before, follow in TRANSITIONS.items() for after in follow} == {
        (before, after) for after, befores in KAFKA.items() for before in befores
    }


def test_the_numbers_and_names_are_kafkas():
    assert {state.kafka_name: int(state) for state in TransactionState} == {
        "Empty": 0,
        "Ongoing": 1,
        "PrepareCommit": 2,
        "PrepareAbort": 3,
        "CompleteCommit": 4,
        "CompleteAbort": 5,
        "Dead": 6,
        "PrepareEpochFence": 7,
    }


@pytest.mark.parametrize(("before", "after"), [*product(TransactionState, repeat=2)])
def test_a_change_that_is_not_in_the_table_is_a_bug(before, after):
    if before in KAFKA[after]:
        check_transition(before, after)
        return
    with pytest.raises(InvariantError, match=f"from {before.kafka_name} to {after.kafka_name}"):
        check_transition(before, after)


def test_every_change_of_an_entry_goes_by_the_table():
    empty = create("t", producer_id=1, timeout_ms=1, now_ms=0)
    ongoing = add(empty, (), transaction_version=2, now_ms=0)
    prepared = prepare(ongoing, is_commit=True, transaction_version=2, now_ms=0)
    fields = {"last_producer_epoch": 0, "timeout_ms": 1, "now_ms": 0}

    for illegal in (
        lambda: complete(empty, now_ms=0),
        lambda: prepare(empty, is_commit=True, transaction_version=2, now_ms=0),
        lambda: prepare(prepared, is_commit=False, transaction_version=2, now_ms=0),
        lambda: add(prepared, (), transaction_version=2, now_ms=0),
        lambda: fence(empty, last_producer_epoch=0),
        lambda: initialise(ongoing, producer_epoch=1, **fields),
        lambda: rotate(prepared, producer_id=2, **fields),
    ):
        with pytest.raises(InvariantError):
            illegal()


def test_the_page_shows_the_table():
    rows = re.findall(r"^\| ([A-Z]\w+) \| ([A-Z]\w+) \|", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    shown = set(rows)

    assert shown == {
        (before.kafka_name, after.kafka_name) for before, follow in TRANSITIONS.items() for after in follow
    }
    assert len(rows) == len(shown), "each once"


def test_the_page_names_every_state():
    numbers = re.findall(r"^\| (\d) \| (\w+) \|", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)

    assert numbers == [(str(int(state)), state.kafka_name) for state in TransactionState]
