"""Faults a test can order: of one broker, that its answers go wrong; of this process, that a step fails or it dies."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from exactlog.broker.answer_faults import AnswerFaults, Fault
from exactlog.broker.services import BrokerServices
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import KafkaError
from exactlog.storage import fault_points
from exactlog.storage.fault_points import ArmedAction, FaultPoint

__all__ = ["ArmedAction", "Fault", "FaultPoint", "Faults", "armed", "points"]


class Faults(AnswerFaults):
    """What can be made to go wrong in one broker. Orders outlive `kill` and `restart`; any thread may give them."""

    def __init__(self, do_in_broker: Callable[[Callable[[BrokerServices], None]], None]) -> None:
        """`do_in_broker` lets something be done with the parts of the broker, on its event loop, and waits for it."""
        super().__init__()
        self._do_in_broker = do_in_broker

    def rebalance(self, group_id: str) -> None:
        """Makes the members of a group join again, as if another had come; when this returns it has begun.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND: there is no such group.
            BrokerNotRunningError: there is no broker.
        """

        def begin(services: BrokerServices) -> None:
            if not services.groups.force_rebalance(group_id):
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")

        self._do_in_broker(begin)

    def fence(self, transactional_id: str) -> None:
        """Fences the producer that has a transactional id, as if another had taken it over; its transaction is aborted.

        Raises:
            KafkaError: TRANSACTIONAL_ID_NOT_FOUND: nobody has used it; CONCURRENT_TRANSACTIONS: the outcome of its
                transaction is decided, and not everywhere yet.
            BrokerNotRunningError: there is no broker.
        """

        def begin(services: BrokerServices) -> None:
            error = services.transactions.fence(transactional_id)
            if error is not ErrorCode.NONE:
                raise KafkaError(error, f"transactional id {transactional_id} cannot be fenced: {error.name}")

        self._do_in_broker(begin)


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
