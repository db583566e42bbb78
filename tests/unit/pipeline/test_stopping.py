"""A job that is told to stop ends what it has begun; told again, it ends at once."""

import os
import signal

import pytest

from exactlog.pipeline.stopping import STOP_SIGNALS, StopOnSignal


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_the_first_signal_is_noted_and_the_second_ends_the_program(number):
    heard = []
    with StopOnSignal(lambda: heard.append("once")) as stop:
        assert not stop.is_asked()
        os.kill(os.getpid(), number)
        assert stop.wait(10)
        assert heard == ["once"]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)


def test_afterwards_signals_do_what_they_did_before():
    before = [signal.getsignal(number) for number in STOP_SIGNALS]
    with StopOnSignal():
        assert [signal.getsignal(number) for number in STOP_SIGNALS] != before
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == before
