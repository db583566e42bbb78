"""Requests that wait until the transaction before is over: its end decided, and its markers written."""

from collections.abc import Iterator

from msgspec import Struct

from exactlog.core.model.decisions import Waiter
from exactlog.core.model.limits import PARKED_REQUEST_MS_MAX, PARKED_REQUESTS_PER_TRANSACTION_MAX
from exactlog.core.transaction.draft import Draft
from exactlog.core.transaction.requests import AddPartitionsRequest
from exactlog.core.transaction.timer_keys import ParkTimer


class Parked(Struct, frozen=True):
    """One of them."""

    request: AddPartitionsRequest
    waiter: Waiter


class Parking:
    """Those of all transactional ids, in the order in which they came. They are forgotten by a restart."""

    def __init__(self) -> None:
        self._parked: dict[str, dict[int, Parked]] = {}
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._parked)

    def park(self, request: AddPartitionsRequest, waiter: Waiter, draft: Draft) -> bool:
        """Has a request wait; False: too many do already."""
        of_id = self._parked.setdefault(request.transactional_id, {})
        if len(of_id) >= PARKED_REQUESTS_PER_TRANSACTION_MAX:
            return False
        self._count += 1
        of_id[self._count] = Parked(request, waiter)
        draft.set_timer(ParkTimer(request.transactional_id, self._count), PARKED_REQUEST_MS_MAX)
        return True

    def leave(self, key: ParkTimer) -> Parked | None:
        """Lets the one go whose timer has gone off; None: it has gone before."""
        of_id = self._parked.get(key.transactional_id, {})
        parked = of_id.pop(key.number, None)
        if not of_id:
            self._parked.pop(key.transactional_id, None)
        return parked

    def leave_all(self, transactional_id: str, draft: Draft) -> list[Parked]:
        """Lets all go that wait for one transactional id, in order."""
        of_id = self._parked.pop(transactional_id, {})
        for number in of_id:
            draft.cancel_timer(ParkTimer(transactional_id, number))
        return list(of_id.values())

    def transactional_ids(self) -> list[str]:
        """For whose transaction to be over somebody waits."""
        return list(self._parked)

    def __iter__(self) -> Iterator[Parked]:
        for of_id in self._parked.values():
            yield from of_id.values()
