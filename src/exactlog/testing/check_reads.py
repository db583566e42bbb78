"""Checks of what consumers are given, and of the offsets and lists that a broker sends along."""

from bisect import bisect_left
from collections.abc import Iterator

import msgspec

from exactlog.testing.check_facts import Facts, Fate, Value, place_of
from exactlog.testing.check_findings import Finding, Kind
from exactlog.testing.check_logs import LogView, Standing, State
from exactlog.testing.history import Operation
from exactlog.testing.history_format import (
    NOT_SAID,
    EndOffset,
    EndOffsetRead,
    LogRead,
    Place,
    Poll,
    Polled,
    ReadLog,
)


def aborted_reads(facts: Facts) -> Iterator[Finding]:
    """A reader of committed records is given none that was aborted or refused, nor one before its commit."""
    for operation, poll, polled in facts.polls():
        if not poll.is_committed:
            continue
        view = facts.views.get(place_of(operation))
        for offset, text in polled.records:
            value = facts.values.get(text) if text is not None else None
            found = _aborted_read(value, _standing_at(view, offset), operation)
            if found is not None:
                kind, what = found
                yield Finding(kind, _at(operation, offset), f"{text!r} was read: {what}", (operation.ended,))


def _aborted_read(value: Value | None, standing: Standing | None, poll: Operation) -> tuple[Kind, str] | None:
    transaction = None if value is None else value.transaction
    if value is not None and value.send.has_failed:
        return Kind.ABORTED_READ, f"it was refused in line {value.send.ended}"
    if transaction is not None and transaction.declared is Fate.ABORTED:
        return Kind.ABORTED_READ, f"transaction {transaction.name} was not committed"
    if transaction is not None and transaction.commit_asked > poll.ended:
        return Kind.EARLY_READ, f"the commit of {transaction.name} was asked for in line {transaction.commit_asked}"
    if standing is not None and standing.state is State.ABORTED:
        return Kind.ABORTED_READ, "an ABORT marker follows it"
    return None


def unstable_reads(facts: Facts) -> Iterator[Finding]:
    """A reader of committed records is given none at or behind the last stable offset it is told."""
    for operation, poll, polled in facts.polls():
        stable = polled.last_stable_offset
        beyond = [offset for offset, _ in polled.records if offset >= stable]
        if poll.is_committed and stable != NOT_SAID and beyond:
            what = f"a record was given out, though the last stable offset is {stable}"
            yield Finding(Kind.UNSTABLE_READ, _at(operation, beyond[0]), what, (operation.ended,))


# --- what lies in a poll --------------------------------------------------------------------------------------------


class _Span(msgspec.Struct, frozen=True):
    """A poll and the offsets it read: from `start` to before `end`."""

    operation: Operation
    poll: Poll
    polled: Polled
    start: int
    end: int


def skipped_records(facts: Facts) -> Iterator[Finding]:
    """A reader that passes over a record is given it, if its isolation lets it see it."""
    for span in _spans(facts):
        place = place_of(span.operation)
        given = {offset for offset, _ in span.polled.records}
        for offset, text, lines in _due(facts, span, facts.views.get(place)):
            if offset not in given:
                what = f"{text!r} stands between {span.start} and {span.end}, and was not given to who read that"
                yield Finding(Kind.SKIPPED_RECORD, f"{place}@{offset}", what, (*lines, span.operation.ended))


def _due(facts: Facts, span: _Span, view: LogView | None) -> Iterator[tuple[int, str | None, tuple[int, ...]]]:
    if view is not None:
        first = bisect_left(view.standing, span.start, key=lambda found: found.offset)
        for found in view.standing[first:]:
            if found.offset >= span.end:
                return
            if found.state.is_visible or not span.poll.is_committed:
                yield found.offset, found.value, ()
        return
    place = place_of(span.operation)
    for value in facts.values.values():
        is_due = value.is_promised if span.poll.is_committed else value.send.has_succeeded
        if is_due and value.place == place and span.start <= value.offset < span.end:
            yield value.offset, value.text, (value.send.began,)


def _spans(facts: Facts) -> Iterator[_Span]:
    position: dict[tuple[str, Place], int] = {}
    for operation, poll, polled in facts.polls():
        key = (poll.session, place_of(operation))
        records = polled.records
        start = poll.position if poll.position != NOT_SAID else position.get(key, records[0][0] if records else 0)
        behind = records[-1][0] + 1 if records else start
        end = polled.next_position if polled.next_position != NOT_SAID else behind
        # Records that the log start has passed meanwhile were not there to be given.
        yield _Span(operation, poll, polled, max(start, polled.log_start_offset), end)
        position[key] = end


def nonmonotonic_reads(facts: Facts) -> Iterator[Finding]:
    """Within a session offsets rise, from poll to poll and from record to record."""
    reached: dict[tuple[str, Place], tuple[int, int]] = {}
    for operation, poll, polled in facts.polls():
        key = (poll.session, place_of(operation))
        last, line = reached.get(key, (NOT_SAID, operation.began))
        last = max(last, poll.position - 1)
        for offset, text in polled.records:
            if offset <= last:
                what = f"{text!r} was read when the reader had come to {last + 1}"
                yield Finding(Kind.NONMONOTONIC_READ, _at(operation, offset), what, (line, operation.ended))
            last = max(last, offset)
        reached[key] = (max(last, polled.next_position - 1), operation.ended)


def values_read(facts: Facts) -> Iterator[Finding]:
    """At one offset every reader finds the same value, and it is one that was sent."""
    read: dict[tuple[Place, int], tuple[str | None, int]] = {}
    for view in facts.views.values():
        for found in view.standing:
            read[view.place, found.offset] = (found.value, view.ended)
    for operation, _, polled in facts.polls():
        place = place_of(operation)
        for offset, text in polled.records:
            other, line = read.setdefault((place, offset), (text, operation.ended))
            if other != text:
                what = f"{other!r} and {text!r} were read"
                yield Finding(Kind.REPLAY_DIFFERS, f"{place}@{offset}", what, (line, operation.ended))
            value = None if text is None else facts.values.get(text)
            if text is not None and (value is None or value.place != place):
                what = f"{text!r} was read, and was not sent to this partition"
                yield Finding(Kind.PHANTOM_RECORD, f"{place}@{offset}", what, (operation.ended,))


# --- what the broker says -------------------------------------------------------------------------------------------


class _Said(msgspec.Struct, frozen=True):
    """What an answer said of a partition; -1: nothing."""

    operation: Operation
    place: Place
    log_start: int = NOT_SAID
    stable: int = NOT_SAID
    high: int = NOT_SAID


def _sayings(facts: Facts) -> Iterator[_Said]:
    for operation in facts.history.operations:
        match operation.request, operation.outcome:
            case Poll() | ReadLog(), Polled() | LogRead() as told:
                yield _Said(
                    operation,
                    place_of(operation),
                    told.log_start_offset,
                    told.last_stable_offset,
                    told.high_watermark,
                )
            case EndOffset() as asked, EndOffsetRead(offset=offset):
                place = Place(asked.topic, asked.partition)
                yield (
                    _Said(operation, place, stable=offset)
                    if asked.is_committed
                    else _Said(operation, place, high=offset)
                )
            case _:
                pass


def offsets_going_back(facts: Facts) -> Iterator[Finding]:
    """Last stable offset, high watermark and log start never go back, as long as one answer follows another."""
    sayings = list(_sayings(facts))
    for kind, name, values in (
        (Kind.STABLE_OFFSET_BACK, "last stable offset", [said.stable for said in sayings]),
        (Kind.HIGH_WATERMARK_BACK, "high watermark", [said.high for said in sayings]),
        (Kind.LOG_START_BACK, "log start", [said.log_start for said in sayings]),
    ):
        by_end = sorted(zip(sayings, values, strict=True), key=lambda pair: pair[0].operation.ended)
        highest: dict[Place, tuple[int, int]] = {}
        done = 0
        for said, value in zip(sayings, values, strict=True):  # in the order in which they were asked
            while done < len(by_end) and by_end[done][0].operation.ended < said.operation.began:
                earlier, offset = by_end[done]
                highest[earlier.place] = max(
                    highest.get(earlier.place, (NOT_SAID, 0)), (offset, earlier.operation.ended)
                )
                done += 1
            before, line = highest.get(said.place, (NOT_SAID, 0))
            if NOT_SAID < value < before:
                what = f"the {name} was {before}, and is {value} later"
                yield Finding(kind, str(said.place), what, (line, said.operation.ended))


def stable_offsets(facts: Facts) -> Iterator[Finding]:
    """The last stable offset is not above the first record of an open transaction, and below it only for a while."""
    for said in _sayings(facts):
        if NOT_SAID in {said.stable, said.high}:
            continue
        view = facts.views.get(said.place)
        highest = said.high if view is None else view.stable_at.get(said.high, said.high)
        if said.stable > highest:
            what = f"the last stable offset is {said.stable} at a high watermark of {said.high}, and may be {highest}"
            yield Finding(Kind.STABLE_OFFSET_TOO_HIGH, str(said.place), what, (said.operation.ended,))
        is_final = isinstance(said.operation.request, ReadLog) and said.operation.request.is_final
        if is_final and said.stable < highest:
            what = f"the last stable offset is {said.stable} at the end, where no transaction before {highest} is open"
            yield Finding(Kind.STABLE_OFFSET_BEHIND, str(said.place), what, (said.operation.ended,))


def aborted_lists(facts: Facts) -> Iterator[Finding]:
    """With the records of a fetch come all aborted transactions that reach into them, by first offset, and no others.

    It may name some more that begin behind the records, as Kafka does, whose index is sparse. Without records it need
    not name any.
    """
    for span in _spans(facts):
        told = span.polled.aborted
        view = facts.views.get(place_of(span.operation))
        if told is None or view is None:
            continue
        for what in _wrong_entries(view, span, told):
            where = f"{view.place}@{span.start}"
            yield Finding(Kind.ABORTED_LIST_WRONG, where, what, (span.operation.ended, view.ended))


def aborted_list_order(facts: Facts) -> Iterator[Finding]:
    """Aborted transactions come in the order of their first offsets.

    Apache Kafka names them in the order of their markers, and its clients sort them.
    """
    for operation, _, polled in facts.polls():
        firsts = [first for _, first in polled.aborted or ()]
        if firsts != sorted(firsts):
            what = f"the list is not in the order of first offsets: {list(polled.aborted or ())}"
            yield Finding(Kind.ABORTED_LIST_UNSORTED, str(place_of(operation)), what, (operation.ended,))


def _wrong_entries(view: LogView, span: _Span, told: tuple[tuple[int, int], ...]) -> Iterator[str]:
    if not span.poll.is_committed:
        if told:
            yield f"who reads all records was sent aborted transactions: {list(told)}"
        return
    reaching = [
        (stretch.producer_id, stretch.first_offset)
        for stretch in view.stretches
        if stretch.state is State.ABORTED and stretch.marker is not None and stretch.marker.last_offset >= span.start
    ]
    for entry in reaching:
        if entry not in told and entry[1] < span.end and span.start < span.end:
            yield f"producer {entry[0]} aborted what it began at {entry[1]}, which the fetch up to {span.end} left out"
    for entry in told:
        # Of one that began before anything that is known, nobody can tell where.
        if entry not in reaching and entry[1] >= view.start:
            yield f"producer {entry[0]} is said to have aborted what it began at {entry[1]}, and has not"
    if len(set(told)) != len(told):
        yield f"the list names a transaction twice: {list(told)}"


def _standing_at(view: LogView | None, offset: int) -> Standing | None:
    if view is None:
        return None
    index = bisect_left(view.standing, offset, key=lambda found: found.offset)
    found = view.standing[index] if index < len(view.standing) else None
    return found if found is not None and found.offset == offset else None


def _at(operation: Operation, offset: int) -> str:
    return f"{place_of(operation)}@{offset}"
