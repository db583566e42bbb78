"""The order of a transaction's steps, and what follows when one of them fails."""

import asyncio

import pytest

from exactlog.core.model.errors import ConfigError, InvariantError
from exactlog.eos import (
    AbortableError,
    FatalError,
    FencedError,
    OutcomeUnknownError,
    RebalancedError,
    RetriableError,
    SyncTransaction,
    Transaction,
    steps,
)
from exactlog.eos.client import Membership
from exactlog.eos.steps import RETRY_PAUSE_S, finished
from tests.unit.eos.scripted_client import PLACE, ScriptedClient

TIMEOUT_MS = 1_000
COMMITTED = ["begin", ("send", b"v"), "deliver", "positions", ("send_offsets", {PLACE: 17}), "commit"]
TAKEN_BACK = ["abort", "rewind"]


@pytest.fixture
def client(monkeypatch):
    client = ScriptedClient()
    monkeypatch.setattr(steps, "monotonic", lambda: client.now_s)
    return client


def run_block(client, body=lambda txn: txn.send("invoices", b"v")):
    with SyncTransaction(client, timeout_ms=TIMEOUT_MS, retries=0) as txn:
        body(txn)


def test_a_block_begins_sends_waits_for_delivery_adds_offsets_and_commits(client):
    run_block(client)

    assert client.asked == COMMITTED


def test_without_a_consumer_there_are_no_offsets():
    client = ScriptedClient(has_consumer=False)

    run_block(client)

    assert client.asked == ["begin", ("send", b"v"), "deliver", "commit"]


def test_given_offsets_take_the_place_of_positions(client):
    run_block(client, lambda txn: (txn.use_offsets({PLACE: 3}), txn.use_offsets({PLACE: 4})))

    assert client.asked == ["begin", "deliver", ("send_offsets", {PLACE: 4}), "commit"]


def test_no_offsets_at_all_can_be_given(client):
    run_block(client, lambda txn: txn.use_offsets({}))

    assert client.asked == ["begin", "deliver", "commit"]


def test_given_offsets_are_those_of_one_block(client):
    txn = SyncTransaction(client, timeout_ms=TIMEOUT_MS, retries=0)
    with txn:
        txn.use_offsets({PLACE: 3})
    with txn:
        pass

    assert ("send_offsets", {PLACE: 17}) in client.asked


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt(), RetriableError("mine")])
def test_an_error_of_the_block_aborts_rewinds_and_comes_back_as_it_is(client, error):
    def fail(_txn):
        raise error

    with pytest.raises(type(error)) as caught:
        run_block(client, fail)

    assert caught.value is error
    assert client.asked == ["begin", *TAKEN_BACK]


@pytest.mark.parametrize("step", ["deliver", "positions", "send_offsets", "commit"])
def test_an_abortable_error_of_any_step_takes_everything_back(client, step):
    client.fail(step, AbortableError)

    with pytest.raises(AbortableError) as caught:
        run_block(client)

    assert type(caught.value.__cause__).__name__ == "ClientError"
    assert client.asked[-2:] == TAKEN_BACK


@pytest.mark.parametrize("meaning", [FencedError, OutcomeUnknownError])
def test_what_is_no_longer_ours_is_not_aborted(client, meaning):
    client.fail("commit", meaning)

    with pytest.raises(meaning):
        run_block(client)

    assert "abort" not in client.asked


def test_the_consumer_of_a_fenced_producer_is_put_back(client):
    client.fail("commit", FencedError)

    with pytest.raises(FencedError):
        run_block(client)

    assert client.asked[-1] == "rewind"


def test_a_dead_producer_is_asked_to_abort_all_the_same(client):
    client.fail("deliver", FatalError)
    client.fail("abort", FatalError)

    with pytest.raises(FatalError, match="was not delivered"):
        run_block(client)

    assert client.asked[-2:] == TAKEN_BACK


@pytest.mark.parametrize("step", ["begin", "send_offsets", "commit"])
def test_what_cannot_be_done_for_now_is_tried_again(client, step):
    client.fail(step, RetriableError, times=3)

    run_block(client)

    assert [asked for asked in client.asked if step in asked] != []
    assert client.asked.count("commit") == (4 if step == "commit" else 1)
    assert client.now_s == pytest.approx(3 * RETRY_PAUSE_S)


def test_a_beginning_that_fails_for_the_whole_time_is_told(client):
    client.fail("begin", RetriableError, times=100)

    with pytest.raises(RetriableError):
        run_block(client)

    assert set(client.asked) == {"begin"}
    assert client.now_s < TIMEOUT_MS / 1000


def test_a_commit_without_an_answer_is_neither_aborted_nor_rewound(client):
    client.fail("commit", RetriableError, times=100)

    with pytest.raises(OutcomeUnknownError) as caught:
        run_block(client)

    assert not caught.value.retryable
    assert "committed offsets of the group" in caught.value.hint
    assert set(client.asked[5:]) == {"commit"}


@pytest.mark.parametrize("meaning", [RetriableError, AbortableError])
def test_an_abort_that_does_not_succeed_ends_the_producer(client, meaning):
    client.fail("deliver", AbortableError)
    client.fail("abort", meaning, times=100)

    with pytest.raises(FatalError, match="could not be aborted") as caught:
        run_block(client)

    assert "AbortableError" in caught.value.__notes__[0]
    assert client.asked[-1] == "rewind"


def test_a_consumer_that_cannot_be_put_back_is_told(client):
    client.fail("deliver", AbortableError)
    client.fail("rewind", AbortableError)

    with pytest.raises(FatalError, match="could not be put back") as caught:
        run_block(client)

    assert "close the consumer" in caught.value.hint


def test_an_interrupt_stays_an_interrupt_and_is_told_what_else_went_wrong(client):
    client.fail("abort", FencedError)

    def interrupt(_txn):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        run_block(client, interrupt)

    assert "cannot abort" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    "has", [Membership("generation 2", frozenset({PLACE})), Membership("generation 1", frozenset())]
)
def test_whoever_has_something_else_at_the_end_does_not_commit(client, has):
    def rebalance(_txn):
        client.has = has

    with pytest.raises(RebalancedError):
        run_block(client, rebalance)

    assert client.asked == ["begin", "deliver", *TAKEN_BACK]


def test_offsets_of_what_the_consumer_does_not_have_are_refused(client):
    with pytest.raises(RebalancedError, match="payments"):
        run_block(client, lambda txn: txn.use_offsets({("payments", 0): 1}))

    assert client.asked[-2:] == TAKEN_BACK


def test_work_runs_again_while_that_may_help_and_there_are_retries(client, monkeypatch):
    monkeypatch.setattr("exactlog.eos.blocks.sleep", lambda _: None)
    client.fail("commit", AbortableError, times=3)

    with pytest.raises(AbortableError):
        SyncTransaction(client, timeout_ms=TIMEOUT_MS, retries=1).run(lambda txn: txn.send("invoices", b"v"))
    result = SyncTransaction(client, timeout_ms=TIMEOUT_MS, retries=1).run(lambda _txn: "result")

    assert result == "result"
    assert client.asked.count("begin") == 4


@pytest.mark.parametrize("error", [ValueError, FencedError])
def test_work_does_not_run_again_where_that_would_not_help(client, error):
    def fail(_txn):
        raise error("no")

    with pytest.raises(error):
        SyncTransaction(client, timeout_ms=TIMEOUT_MS, retries=5).run(fail)

    assert client.asked.count("begin") == 1


async def test_the_asynchronous_block_takes_the_same_steps(client):
    async def work(txn):
        await txn.send("invoices", b"v")
        return "result"

    result = await Transaction(client, timeout_ms=TIMEOUT_MS, retries=1).run(work)

    assert result == "result"
    assert client.asked == COMMITTED


async def test_an_ending_is_finished_before_the_cancelled_block_ends(client):
    is_committing, may_commit = asyncio.Event(), asyncio.Event()

    async def commit(*, timeout_s):
        is_committing.set()
        await may_commit.wait()
        client.asked.append("commit")

    client.commit = commit

    async def block():
        async with Transaction(client, timeout_ms=TIMEOUT_MS, retries=0):
            pass

    task = asyncio.ensure_future(block())
    await is_committing.wait()
    task.cancel()
    await asyncio.sleep(0)
    may_commit.set()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert client.asked[-1] == "commit"


async def test_a_block_that_is_cancelled_while_it_begins_leaves_nothing_open(client):
    has_begun, may_begin = asyncio.Event(), asyncio.Event()

    async def begin(*, timeout_s):
        has_begun.set()
        await may_begin.wait()

    client.begin = begin
    task = asyncio.ensure_future(Transaction(client, timeout_ms=TIMEOUT_MS, retries=0).__aenter__())
    await has_begun.wait()
    task.cancel()
    await asyncio.sleep(0)
    may_begin.set()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert client.asked == TAKEN_BACK


def test_a_block_cannot_run_its_body_again(client):
    with pytest.raises(ConfigError, match="cannot be run again"):
        SyncTransaction(client, timeout_ms=TIMEOUT_MS, retries=1).__enter__()


@pytest.mark.parametrize("arguments", [{"timeout_ms": 0, "retries": 0}, {"timeout_ms": 1, "retries": -1}])
def test_times_and_retries_that_make_no_sense_are_refused(client, arguments):
    with pytest.raises(ConfigError):
        SyncTransaction(client, **arguments)


def test_a_blocking_client_that_waits_for_an_event_loop_is_a_bug():
    with pytest.raises(InvariantError):
        finished(asyncio.sleep(0))
