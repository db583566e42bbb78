"""Checks of transactions: whole or not at all, ended once, by markers that say how, and by nobody who was fenced."""

from collections.abc import Iterator

from exactlog.testing.check_facts import Facts, Fate, Transaction, is_newer
from exactlog.testing.check_findings import Finding, Kind
from exactlog.testing.check_logs import LogView, LoneMarker, State, Stretch
from exactlog.testing.history import NEVER, Operation
from exactlog.testing.history_format import NOT_SAID, Batch, End

_SEQUENCES = 2**31  # 0 follows the highest


def torn_transactions(facts: Facts) -> Iterator[Finding]:
    """All records of a transaction are seen by readers of committed records, or none."""
    for transaction in facts.transactions.values():
        seen, unseen = _parts(facts, transaction)
        if seen and unseen:
            what = f"seen is {_some(seen)}; not seen is {_some(unseen)}"
            yield Finding(Kind.TORN_TRANSACTION, _named(transaction), what, _lines_of(transaction))


def _parts(facts: Facts, transaction: Transaction) -> tuple[list[str], list[str]]:
    seen, unseen = [], []
    for send in transaction.sends:
        for text in getattr(send.request, "values", ()):
            value = facts.values[text]
            view = facts.views.get(value.place)
            if view is None:
                continue
            states = [found.state for at, found in facts.standing.get(text, ()) if at is view]
            where = f"{text!r} in {value.place}"
            if any(state.is_visible for state in states):
                seen.append(where)
            elif states:
                if State.ABORTED in states:
                    unseen.append(where)
            elif send.has_succeeded and send.ended < view.began and value.offset >= view.start:
                unseen.append(where)
    return seen, unseen


def contradicting_ends(facts: Facts) -> Iterator[Finding]:
    """A transaction that has been committed cannot be aborted, nor the other way."""
    for transaction in facts.transactions.values():
        done = [end for end in transaction.ends if end.has_succeeded]
        ways = {end.request.is_commit for end in done if isinstance(end.request, End)}
        if len(ways) > 1:
            lines = tuple(end.ended for end in done)
            yield Finding(
                Kind.CONTRADICTING_ENDS, _named(transaction), "both its commit and its abort succeeded", lines
            )


def fenced_producers(facts: Facts) -> Iterator[Finding]:
    """Once a producer has its epoch, an earlier one of the same transactional id writes and commits no more."""
    for operation, init, initialised in facts.inits():
        for transaction in facts.transactions.values():
            is_earlier = (
                transaction.begin.transactional_id == init.transactional_id
                and transaction.begun < operation.ended
                and is_newer(initialised, operation.began, transaction)
            )
            if is_earlier:
                yield from _after(operation, transaction)


def _after(init: Operation, transaction: Transaction) -> Iterator[Finding]:
    for done in (*transaction.sends, *transaction.offsets):
        if done.has_succeeded and done.began > init.ended:
            what = f"a write succeeded after a newer producer had begun in line {init.ended}"
            yield Finding(Kind.FENCED_WRITE, _named(transaction), what, (init.ended, done.ended))
    commits = [end for end in transaction.ends if isinstance(end.request, End) and end.request.is_commit]
    if commits and commits[0].began > init.ended and any(end.has_succeeded for end in commits):
        what = f"its commit succeeded after a newer producer had begun in line {init.ended}"
        yield Finding(Kind.FENCED_COMMIT, _named(transaction), what, (init.ended, commits[0].began))


# --- markers --------------------------------------------------------------------------------------------------------


def missing_markers(facts: Facts) -> Iterator[Finding]:
    """A transaction that is over has a marker in each partition it wrote to, before the next of its producer begins."""
    for view in facts.views.values():
        for stretch in view.stretches:
            first, *more = stretch.transactions or [""]
            where = f"{view.place}@{stretch.first_offset}"
            if more:
                what = f"no marker ends transaction {first} before {more[0]} begins"
                yield Finding(Kind.MISSING_MARKER, where, what, (view.ended,))
            transaction = facts.transactions.get(first)
            is_over = transaction is not None and (transaction.closed < view.began or _is_decided(transaction))
            if stretch.marker is None and view.is_final and is_over:
                yield Finding(Kind.MISSING_MARKER, where, f"no marker ends transaction {first}", (view.ended,))


def _is_decided(transaction: Transaction) -> bool:
    """Whether it shows elsewhere how it ended, though its client was not told."""
    return transaction.declared is Fate.UNKNOWN and transaction.fate is not Fate.UNKNOWN


def extra_markers(facts: Facts) -> Iterator[Finding]:
    """A transaction has one marker in a partition.

    A marker that ends no records is right for a transaction none of whose records has come so far, and where a
    coordinator or a leader that took over has written again what it could not know to be written.
    """
    for view in facts.views.values():
        ended = {name for stretch in view.stretches for name in stretch.transactions}
        empty = [
            transaction
            for transaction in facts.transactions.values()
            if transaction.name not in ended and transaction.touches(view.place)
        ]
        for lone in view.lone_markers:
            if _is_written_again(lone):
                continue
            own = next((transaction for transaction in empty if transaction.may_end_with(lone.marker)), None)
            if own is not None:
                empty.remove(own)
            elif _is_extra(lone, facts):
                yield _extra_marker(view, lone)


def _is_written_again(lone: LoneMarker) -> bool:
    before = lone.before
    return (
        before is not None
        and (before.producer_epoch, before.marker) == (lone.marker.producer_epoch, lone.marker.marker)
        and (lone.marker.coordinator_epoch > before.coordinator_epoch or lone.marker.leader_epoch > before.leader_epoch)
    )


def _is_extra(lone: LoneMarker, facts: Facts) -> bool:
    known = {transaction.begin.producer_id for transaction in facts.transactions.values()}
    if lone.marker.producer_id in known:
        return True
    # Of another's producer: only where each transaction has an epoch of its own it is certain.
    before = lone.before
    return (
        before is not None
        and before.producer_epoch == lone.marker.producer_epoch
        and lone.before_epoch == before.producer_epoch - 1
    )


def _extra_marker(view: LogView, lone: LoneMarker) -> Finding:
    before = (
        "" if lone.before is None else f"; the one before, {lone.before.marker}, stands at {lone.before.base_offset}"
    )
    what = f"a marker ({lone.marker.marker}) of {_producer(lone.marker)} ends nothing{before}"
    return Finding(Kind.EXTRA_MARKER, f"{view.place}@{lone.marker.base_offset}", what, (view.ended,))


def wrong_markers(facts: Facts) -> Iterator[Finding]:
    """A marker says how its transaction ended, and its epoch is not below that of the records."""
    for view in facts.views.values():
        for stretch in view.stretches:
            marker = stretch.marker
            if marker is None:
                continue
            where = f"{view.place}@{marker.base_offset}"
            if marker.producer_epoch < stretch.producer_epoch:
                what = f"the marker of {_producer(marker)} is older than its records, of epoch {stretch.producer_epoch}"
                yield Finding(Kind.WRONG_MARKER, where, what, (view.ended,))
            yield from _contradictions(facts, stretch, marker, where)


def _contradictions(facts: Facts, stretch: Stretch, marker: Batch, where: str) -> Iterator[Finding]:
    for name in stretch.transactions:
        transaction = facts.transactions[name]
        wrong = Fate.ABORTED if stretch.state is State.COMMITTED else Fate.COMMITTED
        if transaction.declared is wrong:
            what = f"a marker ({marker.marker}) ends transaction {name}, which was {wrong.value}"
            yield Finding(Kind.WRONG_MARKER, where, what, _lines_of(transaction))


def epochs_and_sequences(facts: Facts) -> Iterator[Finding]:
    """In one log the epoch of a producer does not go back, and its sequences follow each other."""
    for view in facts.views.values():
        last: dict[int, Batch] = {}  # the last batch of each producer, markers included
        sequences: dict[int, tuple[int, int]] = {}  # its epoch and the sequence that comes next
        for batch in view.batches:
            if batch.producer_id == NOT_SAID:
                continue
            before = last.get(batch.producer_id, batch)
            if batch.producer_epoch < before.producer_epoch:
                what = f"a batch of {_producer(batch)} follows one of epoch {before.producer_epoch}"
                yield Finding(Kind.EPOCH_BACK, f"{view.place}@{batch.base_offset}", what, (view.ended,))
            last[batch.producer_id] = batch
            yield from _sequence(view, batch, sequences)


def _sequence(view: LogView, batch: Batch, sequences: dict[int, tuple[int, int]]) -> Iterator[Finding]:
    if batch.base_sequence == NOT_SAID or view.place.topic.startswith("__"):
        return  # what the broker writes itself needs no sequence, and Kafka gives it any
    count = batch.last_offset - batch.base_offset + 1
    known = sequences.get(batch.producer_id)
    if known is not None:
        epoch, expected = known
        expected = expected if epoch == batch.producer_epoch else 0
        if batch.base_sequence != expected:
            what = f"a batch of {_producer(batch)} has sequence {batch.base_sequence}, where {expected} comes next"
            yield Finding(Kind.SEQUENCE_BROKEN, f"{view.place}@{batch.base_offset}", what, (view.ended,))
    sequences[batch.producer_id] = (batch.producer_epoch, (batch.base_sequence + count) % _SEQUENCES)


# --- words ----------------------------------------------------------------------------------------------------------


def _named(transaction: Transaction) -> str:
    return f"transaction {transaction.name}"


def _lines_of(transaction: Transaction) -> tuple[int, ...]:
    return (transaction.begun, *(end.ended if end.ended != NEVER else end.began for end in transaction.ends))


def _producer(batch: Batch) -> str:
    return f"producer {batch.producer_id} epoch {batch.producer_epoch}"


def _some(parts: list[str]) -> str:
    return ", ".join(parts[:3]) + (f" and {len(parts) - 3} more" if len(parts) > 3 else "")
