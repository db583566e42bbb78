"""Checks of the offsets of groups, and of copies that rest on them."""

from collections import Counter
from collections.abc import Iterator

import msgspec

from exactlog.testing.check_facts import Facts, Fate, Transaction
from exactlog.testing.check_findings import Finding, Kind
from exactlog.testing.history import NEVER, Operation
from exactlog.testing.history_format import NOT_SAID, OffsetsRead, Place, PlaceOffset, ReadOffsets, SendOffsets


class _Write(msgspec.Struct, frozen=True):
    """An offset that a group commits.

    Attributes:
        offset: the offset.
        begun: the line from which it may hold.
        asked: the line from which it may be seen.
        ended: the line by which it holds, if it ever does.
        is_done: whether it certainly has held; None: nobody knows.
    """

    offset: int
    begun: int
    asked: int
    ended: int
    is_done: bool | None
    transaction: Transaction | None


class _Read(msgspec.Struct, frozen=True):
    """An offset of a group that was read; -1: there was none."""

    offset: int
    operation: Operation
    is_stable: bool


Key = tuple[str, Place]


def group_offsets(facts: Facts) -> Iterator[Finding]:
    """A group's offset is the last that was committed: none of an aborted transaction, none that another replaced."""
    writes, reads = _writes(facts), _reads(facts)
    for key, of_key in reads.items():
        group, place = key
        where = f"group {group}, {place}"
        for read in of_key:
            found = _wrong(read, writes.get(key, []))
            if found is not None:
                kind, what, lines = found
                yield Finding(kind, where, what, (*lines, read.operation.ended))


def _wrong(read: _Read, writes: list[_Write]) -> tuple[Kind, str, tuple[int, ...]] | None:
    seen_until, asked_at = read.operation.ended, read.operation.began
    due = [
        write
        for write in writes
        if write.is_done and write.ended < asked_at and (write.transaction is None or read.is_stable)
    ]
    if read.offset == NOT_SAID:
        if due:
            return Kind.LOST_OFFSET, f"no offset was found, {due[-1].offset} had been committed", (due[-1].begun,)
        return None
    same = [write for write in writes if write.offset == read.offset and write.begun < seen_until]
    able = [write for write in same if write.is_done is not False and write.asked < seen_until]
    if not able:
        if same:
            name = _name(same[0])
            return (
                Kind.ABORTED_OFFSET,
                f"{read.offset} was found, which {name} did not commit by then",
                (same[0].begun,),
            )
        return Kind.PHANTOM_OFFSET, f"{read.offset} was found, which nobody committed", ()
    newer = [next((later for later in due if later.begun > write.ended), None) for write in able]
    replaced_by = newer[0]
    if replaced_by is not None and None not in newer:
        kind = Kind.LOST_OFFSET if replaced_by.transaction is not None else Kind.STALE_OFFSET
        what = f"{read.offset} was found, which {replaced_by.offset} had replaced"
        return kind, what, (able[0].begun, replaced_by.begun)
    return None


def _name(write: _Write) -> str:
    return "the group" if write.transaction is None else f"transaction {write.transaction.name}"


def _writes(facts: Facts) -> dict[Key, list[_Write]]:
    found: dict[Key, list[_Write]] = {}
    for operation in facts.history.operations:
        request = operation.request
        if isinstance(request, SendOffsets):
            for offset in request.offsets:
                write = _write(facts, operation, request, offset)
                found.setdefault((request.group, offset.place), []).append(write)
    return found


def _write(facts: Facts, operation: Operation, request: SendOffsets, offset: PlaceOffset) -> _Write:
    is_sent = None if operation.is_unknown else operation.has_succeeded
    begun = operation.began
    if request.transaction is None:
        return _Write(offset.offset, begun, begun, operation.ended, is_sent, None)
    transaction = facts.transactions[request.transaction]
    is_done = is_sent
    if transaction.fate is Fate.ABORTED:
        is_done = False
    elif transaction.fate is Fate.UNKNOWN and not operation.has_failed:
        is_done = None
    return _Write(offset.offset, begun, transaction.commit_asked, transaction.closed, is_done, transaction)


def _reads(facts: Facts) -> dict[Key, list[_Read]]:
    found: dict[Key, list[_Read]] = {}
    for operation in facts.history.operations:
        request, outcome = operation.request, operation.outcome
        if isinstance(request, ReadOffsets) and isinstance(outcome, OffsetsRead):
            for offset in outcome.offsets:
                read = _Read(offset.offset, operation, request.is_stable)
                found.setdefault((request.group, offset.place), []).append(read)
    return found


# --- copies ---------------------------------------------------------------------------------------------------------


def copies(facts: Facts) -> Iterator[Finding]:
    """What a group has read, by its offset, its transactions have copied: every record that is seen, once, no other.

    It rests on the last stable reading of the group's offset, the logs of both sides and `sources` in the sends.
    """
    copied = _copied(facts)
    reads = _reads(facts)
    for (group, place), counts in copied.items():
        stable = [read for read in reads.get((group, place), []) if read.is_stable]
        view = facts.views.get(place)
        if not stable or view is None or not _is_settled(facts, group, stable[-1]):
            continue
        end = max(stable[-1].offset, 0)
        start = _first_offset(facts, group, place)
        lines = (stable[-1].operation.ended, view.ended)
        due = {found.offset for found in view.standing if found.state.is_visible and start <= found.offset < end}
        for offset in sorted(due | counts.keys()):
            found = _copy_finding(counts[offset], offset, end, is_due=offset in due, is_known=offset >= view.start)
            if found is not None:
                kind, what = found
                yield Finding(kind, f"{place}@{offset}", f"{what} (group {group})", lines)


def _copy_finding(count: int, offset: int, end: int, *, is_due: bool, is_known: bool) -> tuple[Kind, str] | None:
    if count > 1:
        return Kind.COPY_TWICE, f"it was copied {count} times"
    if not count:
        return (Kind.COPY_MISSING, f"it was not copied, and the offset is {end}") if is_due else None
    if is_due:
        return None
    if offset >= end:
        return Kind.COPY_UNCOUNTED, f"it was copied, and the offset is {end}"
    return (Kind.COPY_OF_NOTHING, "it was copied, and no committed record stands there") if is_known else None


def _copied(facts: Facts) -> dict[Key, Counter[int]]:
    """How often each record was copied by the transactions of each group that are seen."""
    found: dict[Key, Counter[int]] = {}
    for value in facts.values.values():
        if value.transaction is None or not value.request.sources:
            continue
        source = value.request.sources[value.index]
        seen = sum(standing.state.is_visible for _, standing in facts.standing.get(value.text, ()))
        for group in {request.group for request in _offset_requests(value.transaction)}:
            found.setdefault((group, source.place), Counter())[source.offset] += seen
    return found


def _offset_requests(transaction: Transaction) -> list[SendOffsets]:
    return [sent.request for sent in transaction.offsets if isinstance(sent.request, SendOffsets)]


def _is_settled(facts: Facts, group: str, read: _Read) -> bool:
    """Whether nothing was left to end when the offset was read."""
    asked = [end.began for end in _ends(facts, group) if end.began > read.operation.began]
    open_still = [
        transaction
        for transaction in facts.transactions.values()
        if transaction.closed == NEVER and transaction.fate is not Fate.ABORTED and _is_of(transaction, group)
    ]
    return not asked and not open_still


def _ends(facts: Facts, group: str) -> list[Operation]:
    return [
        end for transaction in facts.transactions.values() if _is_of(transaction, group) for end in transaction.ends
    ]


def _is_of(transaction: Transaction, group: str) -> bool:
    return any(request.group == group for request in _offset_requests(transaction))


def _first_offset(facts: Facts, group: str, place: Place) -> int:
    """Where the group began: at what it committed outside of transactions first, else at the first record."""
    for operation in facts.history.operations:
        request = operation.request
        if isinstance(request, SendOffsets) and request.transaction is None and request.group == group:
            for offset in request.offsets:
                if offset.place == place:
                    return offset.offset
    return 0
