"""Requests that wait until the transaction before is over: its end decided, and its markers written.

They go on in the order in which they came: also an end that came behind one that waits.
"""

from collections.abc import Iterator

from msgspec import Struct

from exactlog.core.model.decisions import Waiter
from exactlog.core.model.limits import PARKED_REQUEST_MS_MAX, PARKED_REQUESTS_PER_TRANSACTION_MAX
from exactlog.core.transaction.draft import Draft
from exactlog.core.transaction.requests import AddPartitionsRequest, EndRequest
from exactlog.core.transaction.timer_keys import ParkTimer


class Parked(Struct, frozen=True):
    """One of them."""

    request: AddPartitionsRequest | EndRequest
    waiter: Waiter


class Parking:
    """Those of all transactional ids, in the order in which they came. They are forgotten by a restart.

    Attributes:
        by_id: those of each transactional id that has any, by their numbers.
    """

    def __init__(self) -> None:
        self.by_id: dict[str, dict[int, Parked]] = {}
        self._count = 0

    def park(self, request: AddPartitionsRequest | EndRequest, waiter: Waiter, draft: Draft) -> bool:
        """Has a request wait; False: too many do already."""
        of_id = self.by_id.setdefault(request.transactional_id, {})
        if len(of_id) >= PARKED_REQUESTS_PER_TRANSACTION_MAX:
            return False
        self._count += 1
        of_id[self._count] = Parked(request, waiter)
        draft.set_timer(ParkTimer(request.transactional_id, self._count), PARKED_REQUEST_MS_MAX)
        return True

    def leave(self, key: ParkTimer) -> Parked | None:
        """Lets the one go whose timer has gone off; None: it has gone before."""
        of_id = self.by_id.get(key.transactional_id, {})
        parked = of_id.pop(key.number, None)
        if not of_id:
            self.by_id.pop(key.transactional_id, None)
        return parked

    def leave_oldest(self, transactional_id: str, draft: Draft) -> Parked | None:
        """Lets the one go that has waited longest for a transactional id; None: there is none."""
        number = next(iter(self.by_id.get(transactional_id, ())), None)
        if number is None:
            return None
        key = ParkTimer(transactional_id, number)
        draft.cancel_timer(key)
        return self.leave(key)

    def leave_all(self, transactional_id: str, draft: Draft) -> list[Parked]:
        """Lets all go that wait for one transactional id, in order."""
        of_id = self.by_id.pop(transactional_id, {})
        for number in of_id:
            draft.cancel_timer(ParkTimer(transactional_id, number))
        return list(of_id.values())

    def transactional_ids(self) -> list[str]:
        """For whose transaction to be over somebody waits."""
        return list(self.by_id)

    def __iter__(self) -> Iterator[Parked]:
        for of_id in self.by_id.values():
            yield from of_id.values()
