import pytest

from exactlog.testing import MovableClock


class StandingClock:
    def now_ms(self):
        return 1_000

    def monotonic_ms(self):
        return 5


def test_an_unmoved_clock_shows_real_time():
    clock = MovableClock(StandingClock())

    assert (clock.now_ms(), clock.monotonic_ms()) == (1_000, 5)


def test_moving_it_moves_both_times_forward():
    clock = MovableClock(StandingClock())

    clock.advance_ms(60_000)
    clock.advance_ms(1)

    assert (clock.now_ms(), clock.monotonic_ms()) == (61_001, 60_006)


def test_it_has_what_is_due_done_before_and_after_a_move():
    seen = []
    clock = MovableClock(StandingClock(), look=lambda: seen.append(clock.monotonic_ms()))

    clock.advance_ms(60_000)

    assert seen == [5, 60_005]


def test_it_does_not_go_back():
    with pytest.raises(ValueError, match="forward only"):
        MovableClock(StandingClock()).advance_ms(-1)
