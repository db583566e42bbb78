"""One partition as the readings of its log show it: transactions from their first record to their marker."""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum

import msgspec

from exactlog.testing.history import Operation
from exactlog.testing.history_format import COMMIT, NOT_SAID, Batch, LogRead, Place, ReadLog


class State(Enum):
    """What became of a record that stands in a log."""

    PLAIN = "outside of transactions"
    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"

    @property
    def is_visible(self) -> bool:
        """Whether a reader of committed records sees it."""
        return self in {State.PLAIN, State.COMMITTED}


class Stretch(msgspec.Struct):
    """The part that a transaction has in one log.

    Attributes:
        producer_id: of its batches.
        producer_epoch: of the last of them.
        first_offset: of its first record.
        marker: by which it ends; None while it is open.
        transactions: whose records these are, as far as that is known; more than one if a marker is missing.
    """

    producer_id: int
    producer_epoch: int
    first_offset: int
    marker: Batch | None
    transactions: list[str]

    @property
    def state(self) -> State:
        """What became of its records."""
        if self.marker is None:
            return State.OPEN
        return State.COMMITTED if self.marker.marker == COMMIT else State.ABORTED


class Standing(msgspec.Struct):
    """A value that stands in a log."""

    offset: int
    value: str | None
    batch: Batch
    stretch: Stretch | None

    @property
    def state(self) -> State:
        """What became of it."""
        return State.PLAIN if self.stretch is None else self.stretch.state


class LoneMarker(msgspec.Struct, frozen=True):
    """A marker that ends nothing: its producer has nothing open. `before` is the producer's marker before it."""

    marker: Batch
    before: Batch | None
    before_epoch: int
    """The epoch of the data that `before` ended."""


class LogView(msgspec.Struct):
    """A log as its last reading shows it; what was removed from its start meanwhile, as the readings before do.

    Attributes:
        start: the first offset that is known.
        end: the high watermark of the last reading.
        began: the line of the last reading.
        ended: the line of its outcome.
        last: the last reading.
        is_final: whether it is one in which all transactions have ended that were to.
        batches: in order.
        standing: every value, in the order of offsets.
        stretches: of transactions, in the order of their first offsets.
        lone_markers: those that end nothing.
        stable_at: the last stable offset at each high watermark at which a batch ends.
    """

    place: Place
    start: int
    end: int
    began: int
    ended: int
    last: LogRead
    is_final: bool
    batches: list[Batch]
    standing: list[Standing] = []
    stretches: list[Stretch] = []
    lone_markers: list[LoneMarker] = []
    stable_at: dict[int, int] = {}


def view_log(place: Place, reads: Sequence[Operation], transaction_of: Callable[[Batch], str | None]) -> LogView:
    """Put the readings of one log together; there is at least one, in the order in which they began.

    `transaction_of` tells whose transaction a batch belongs to.
    """
    *earlier, latest = [_outcome(read) for read in reads]
    batches = list(latest.batches)
    start = latest.log_start_offset
    for read in reversed(earlier):
        removed = [batch for batch in read.batches if batch.last_offset < start]
        if read.log_start_offset < start <= read.high_watermark:
            batches[:0] = removed
            start = read.log_start_offset
    request = reads[-1].request
    view = LogView(
        place=place,
        start=start,
        end=latest.high_watermark,
        began=reads[-1].began,
        ended=reads[-1].ended,
        last=latest,
        is_final=isinstance(request, ReadLog) and request.is_final,
        batches=batches,
    )
    _follow(view, transaction_of)
    return view


def _outcome(read: Operation) -> LogRead:
    assert isinstance(read.outcome, LogRead)
    return read.outcome


def _follow(view: LogView, transaction_of: Callable[[Batch], str | None]) -> None:
    opened: dict[int, Stretch] = {}
    markers: dict[int, tuple[Batch, int]] = {}  # the last of each producer, and the epoch of what it ended
    view.stable_at[view.start] = view.start
    for batch in view.batches:
        if batch.marker is not None:
            _end(view, batch, opened, markers)
        else:
            _stand(view, batch, opened, transaction_of)
        view.stable_at[batch.next_offset] = min(
            (stretch.first_offset for stretch in opened.values()), default=batch.next_offset
        )


def _end(view: LogView, batch: Batch, opened: dict[int, Stretch], markers: dict[int, tuple[Batch, int]]) -> None:
    stretch = opened.pop(batch.producer_id, None)
    if stretch is not None:
        stretch.marker = batch
        markers[batch.producer_id] = (batch, stretch.producer_epoch)
        return
    before, before_epoch = markers.get(batch.producer_id, (None, NOT_SAID))
    view.lone_markers.append(LoneMarker(batch, before, before_epoch))
    markers[batch.producer_id] = (batch, before_epoch)


def _stand(
    view: LogView, batch: Batch, opened: dict[int, Stretch], transaction_of: Callable[[Batch], str | None]
) -> None:
    stretch = None
    if batch.is_transactional:
        stretch = opened.get(batch.producer_id)
        if stretch is None:
            stretch = Stretch(batch.producer_id, batch.producer_epoch, batch.base_offset, None, [])
            opened[batch.producer_id] = stretch
            view.stretches.append(stretch)
        stretch.producer_epoch = batch.producer_epoch
        name = transaction_of(batch)
        if name is not None and name not in stretch.transactions:
            stretch.transactions.append(name)
    view.standing += (
        Standing(offset, value, batch, stretch) for offset, value in enumerate(batch.values, start=batch.base_offset)
    )


def by_value(views: Iterable[LogView]) -> dict[str, list[tuple[LogView, Standing]]]:
    """Where each value stands."""
    found: dict[str, list[tuple[LogView, Standing]]] = {}
    for view in views:
        for standing in view.standing:
            if standing.value is not None:
                found.setdefault(standing.value, []).append((view, standing))
    return found
