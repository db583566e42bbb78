"""Checks of records: that each stands where it was acknowledged, once, in order, the same for every reading."""

from collections.abc import Iterator

from exactlog.testing.check_facts import Facts, Value, place_of
from exactlog.testing.check_findings import Finding, Kind
from exactlog.testing.check_logs import LogView, Standing, State
from exactlog.testing.history import Operation
from exactlog.testing.history_format import NOT_SAID, Batch, LogRead, Place, Send


def lost_writes(facts: Facts) -> Iterator[Finding]:
    """What was acknowledged, and its transaction committed, is in the log and is seen."""
    for value in facts.values.values():
        view = facts.views.get(value.place)
        if view is None or not value.is_promised:
            continue
        lines = (value.send.began, value.send.ended)
        standing = [found for at, found in facts.standing.get(value.text, ()) if at is view]
        if standing:
            if all(found.state is State.ABORTED for found in standing):
                what = f"{value.text!r} was committed, but an ABORT marker follows it"
                yield Finding(Kind.LOST_WRITE, _at(view, standing[0].offset), what, lines)
        elif value.send.ended < view.began and not _is_removed(value, view):
            what = f"{value.text!r} was acknowledged, and is not in the log"
            yield Finding(Kind.LOST_WRITE, _at(view, value.offset), what, lines)


def _is_removed(value: Value, view: LogView) -> bool:
    # Where it was acknowledged without an offset, nobody can tell whether the log start has passed it.
    return value.offset < view.start and (value.offset != NOT_SAID or view.start > 0)


def duplicates(facts: Facts) -> Iterator[Finding]:
    """What an idempotent producer sends once stands in one place, retries or not."""
    for text, standing in facts.standing.items():
        value = facts.values.get(text)
        if len(standing) > 1 and (value is None or value.request.is_idempotent):
            places = ", ".join(_at(view, found.offset) for view, found in standing)
            lines = () if value is None else (value.send.began,)
            yield Finding(
                Kind.DUPLICATE, _at(*_first(standing)), f"{text!r} was sent once and stands at {places}", lines
            )


def _first(standing: list[tuple[LogView, Standing]]) -> tuple[LogView, int]:
    view, found = standing[0]
    return view, found.offset


def phantom_records(facts: Facts) -> Iterator[Finding]:
    """What stands in a log has been sent to that partition."""
    for text, standing in facts.standing.items():
        value = facts.values.get(text)
        for view, found in standing:
            if value is None or value.place != view.place:
                what = f"{text!r} was not sent to this partition"
                yield Finding(Kind.PHANTOM_RECORD, _at(view, found.offset), what, (view.ended,))


def refused_writes(facts: Facts) -> Iterator[Finding]:
    """What was refused is not in the log."""
    for text, standing in facts.standing.items():
        value = facts.values.get(text)
        if value is not None and value.send.has_failed:
            view, found = standing[0]
            what = f"{text!r} was refused, and stands in the log"
            yield Finding(Kind.REFUSED_WRITE, _at(view, found.offset), what, (value.send.ended,))


def wrong_offsets(facts: Facts) -> Iterator[Finding]:
    """A record stands at the offset that was acknowledged."""
    for text, standing in facts.standing.items():
        value = facts.values.get(text)
        if value is None or value.offset == NOT_SAID:
            continue
        offsets = [found.offset for view, found in standing if view.place == value.place]
        if offsets and value.offset not in offsets:
            what = f"{text!r} was acknowledged at offset {value.offset} and stands at {offsets[0]}"
            yield Finding(Kind.WRONG_OFFSET, f"{value.place}@{value.offset}", what, (value.send.ended,))


def reordered_records(facts: Facts) -> Iterator[Finding]:
    """What an idempotent producer sends to one partition stands there in the order in which it was sent."""
    last: dict[tuple[str, Place], tuple[int, Operation]] = {}
    for operation in facts.history.operations:
        request = operation.request
        if not isinstance(request, Send) or not request.is_idempotent:
            continue
        place = Place(request.topic, request.partition)
        for text in request.values:
            offsets = [found.offset for view, found in facts.standing.get(text, ()) if view.place == place]
            if not offsets:
                continue
            before, by = last.get((request.worker, place), (NOT_SAID, operation))
            if offsets[0] <= before:
                what = f"{text!r} of {request.worker} stands before what it sent earlier, at {before}"
                yield Finding(Kind.REORDERED, f"{place}@{offsets[0]}", what, (by.began, operation.began))
            last[request.worker, place] = (max(before, offsets[-1]), operation)


def replay_differences(facts: Facts) -> Iterator[Finding]:
    """Two readings of a log find the same where both have read."""
    latest: dict[Place, tuple[Operation, LogRead]] = {}
    for operation in sorted(facts.history.operations, key=lambda found: found.ended):
        read = operation.outcome
        if not isinstance(read, LogRead):
            continue
        place = place_of(operation)
        if place in latest:
            yield from _differences(place, latest[place], (operation, read))
        latest[place] = (operation, read)


def _differences(
    place: Place, first: tuple[Operation, LogRead], second: tuple[Operation, LogRead]
) -> Iterator[Finding]:
    (earlier, one), (later, other) = first, second
    start = max(one.log_start_offset, other.log_start_offset)
    end = min(one.high_watermark, other.high_watermark)
    lines = (earlier.ended, later.ended)
    ones, others = _between(one, start, end), _between(other, start, end)
    for offset in sorted(ones.keys() | others.keys()):
        if ones.get(offset) != others.get(offset):
            what = f"{_shown(ones.get(offset))} was read first, {_shown(others.get(offset))} later"
            yield Finding(Kind.REPLAY_DIFFERS, f"{place}@{offset}", what, lines)
            return  # what follows differs as well


def _between(read: LogRead, start: int, end: int) -> dict[int, Batch]:
    return {
        batch.base_offset: batch for batch in read.batches if start <= batch.base_offset and batch.last_offset < end
    }


def _shown(batch: Batch | None) -> str:
    if batch is None:
        return "no batch"
    kind = f"{batch.marker} marker" if batch.marker else f"batch of {list(batch.values)}"
    return f"a {kind} of producer {batch.producer_id} epoch {batch.producer_epoch} up to {batch.last_offset}"


def offsets_of_batches(facts: Facts) -> Iterator[Finding]:
    """Batches follow each other: no offset is in two of them, none is left out, and none lies behind the end."""
    for view in facts.views.values():
        expected = view.start
        for batch in view.batches:
            # The first one may begin before the log start, which can lie inside of it.
            is_first_cut = batch is view.batches[0] and batch.base_offset <= expected <= batch.last_offset
            if batch.base_offset != expected and not is_first_cut:
                what = f"a batch begins here, where {expected} comes next"
                yield Finding(Kind.OFFSETS_BROKEN, _at(view, batch.base_offset), what, (view.ended,))
            if batch.values and len(batch.values) != batch.last_offset - batch.base_offset + 1:
                what = f"a batch of {len(batch.values)} values ends at {batch.last_offset}"
                yield Finding(Kind.OFFSETS_BROKEN, _at(view, batch.base_offset), what, (view.ended,))
            expected = batch.next_offset
        if expected != view.end:
            what = f"the last batch ends here, the high watermark is {view.end}"
            yield Finding(Kind.OFFSETS_BROKEN, _at(view, expected), what, (view.ended,))


def _at(view: LogView, offset: int) -> str:
    return f"{view.place}@{offset}" if offset != NOT_SAID else str(view.place)
