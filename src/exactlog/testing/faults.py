"""Faults a test can order: the process dies, or a step fails, at a named point."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from exactlog.storage import fault_points
from exactlog.storage.fault_points import ArmedAction, FaultPoint

__all__ = ["ArmedAction", "FaultPoint", "Faults", "armed", "points"]


class Faults:
    """What can be made to go wrong in one broker. `Broker.kill` is the one fault so far; hooks are added here."""


def points() -> tuple[FaultPoint, ...]:
    """Every point there is: its `name`, as `EXACTLOG_KILL_AT` takes it, and a `description` of what has happened there.

    Names are `layer.action.step`; they stay.
    """
    return fault_points.points()


@contextmanager
def armed(name: str, action: Callable[[], None] | BaseException, *, at: int = 1) -> Iterator[ArmedAction]:
    """Within the block, lets something happen the `at`-th time this process reaches a point, on whatever thread.

    Points belong to the process: every broker in it passes them. Only one action is armed at a point at a time.

    Args:
        name: of the point.
        action: an exception to raise there, or what to call. At a point `before_...` an `OSError` is what the disk
            answers to that step. A class of your own that derives from `BaseException` plays the end of the process:
            nobody handles it, nothing is tidied up.
        at: 1 for the first time, 2 for the second.

    Yields:
        An object whose `has_fired` tells whether it has happened.

    Raises:
        ConfigError: there is no such point, or `at` is less than 1.
    """

    def fail(error: BaseException) -> None:
        raise error

    found = fault_points.find(name)
    armed_action = found.arm(action if callable(action) else lambda: fail(action), at=at)
    try:
        yield armed_action
    finally:
        found.disarm()
