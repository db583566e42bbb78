"""The thread of the rounds: one piece of work after the other, until it is stopped."""

import threading

import pytest

from exactlog.storage.round_thread import RoundThread


def test_work_is_done_in_order_on_one_thread_and_stopping_waits_for_it():
    thread, done = RoundThread(), []
    for number in range(100):
        thread.submit(lambda number=number: done.append((number, threading.current_thread().name)))
    thread.stop()

    assert done == [(number, "exactlog-round") for number in range(100)]


def test_what_is_submitted_later_is_refused():
    thread, done = RoundThread(), []
    thread.submit(lambda: done.append("before"))
    thread.stop()
    with pytest.raises(RuntimeError, match="stopped"):
        thread.submit(lambda: done.append("after"))
    thread.stop()

    assert done == ["before"]


def test_work_that_breaks_is_told_and_the_next_is_done(caplog):
    thread, done = RoundThread(), []

    def break_down():
        raise SystemExit

    thread.submit(break_down)
    thread.submit(lambda: done.append("next"))
    thread.stop()

    assert done == ["next"]
    assert "SystemExit" in caplog.text


def test_one_that_was_never_used_stops_at_once():
    RoundThread().stop()
