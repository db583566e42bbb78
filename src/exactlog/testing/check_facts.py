"""What a history says, put in the order in which the checks ask for it: transactions, values, logs."""

from collections.abc import Iterable, Iterator
from enum import Enum

import msgspec

from exactlog.testing.check_logs import LogView, Standing, State, by_value, view_log
from exactlog.testing.history import NEVER, History, HistoryError, Operation
from exactlog.testing.history_format import (
    NOT_SAID,
    Batch,
    Begin,
    End,
    Init,
    Initialised,
    LogRead,
    Place,
    Poll,
    Polled,
    ReadLog,
    Send,
    SendOffsets,
    Sent,
)

OFFSETS_TOPIC = "__consumer_offsets"


class Fate(Enum):
    """How a transaction ended, as far as it is known."""

    COMMITTED = "committed"
    ABORTED = "aborted, or never ended"
    UNKNOWN = "not known"


class Transaction(msgspec.Struct):
    """A transaction.

    Attributes:
        begin: as it began.
        begun: in which line.
        sends: its records.
        offsets: the offsets it commits.
        ends: how it was to end.
        closed: the line by which it is over, whatever became of it; `NEVER`: it may still be open.
        declared: how it ended, by what its client was told.
        fate: the same, and where that was not known, by what logs and readers show.
    """

    begin: Begin
    begun: int
    sends: list[Operation] = []
    offsets: list[Operation] = []
    ends: list[Operation] = []
    closed: int = NEVER
    declared: Fate = Fate.UNKNOWN
    fate: Fate = Fate.UNKNOWN

    @property
    def name(self) -> str:
        """Its name."""
        return self.begin.transaction

    @property
    def commit_asked(self) -> int:
        """The line in which its commit was first asked for; `NEVER` if it was not."""
        return min((end.began for end in self.ends if _is_commit(end)), default=NEVER)

    def touches(self, place: Place) -> bool:
        """Whether it may have a part in that partition."""
        if place.topic == OFFSETS_TOPIC:
            return bool(self.offsets)
        return any(place_of(send) == place for send in self.sends)

    def may_end_with(self, marker: Batch) -> bool:
        """Whether that marker can be its own, by producer and epoch."""
        epoch = self.begin.producer_epoch
        own = {epoch + 1} if self.begin.transaction_version >= 2 else {epoch, epoch + 1}  # + 1: fenced
        return marker.producer_id == self.begin.producer_id and marker.producer_epoch in own


class Value(msgspec.Struct, frozen=True):
    """A value that was sent.

    Attributes:
        send: by which request.
        request: that request.
        index: which of its values.
        transaction: in which it was sent.
    """

    send: Operation
    request: Send
    index: int
    transaction: Transaction | None

    @property
    def text(self) -> str:
        """The value."""
        return self.request.values[self.index]

    @property
    def place(self) -> Place:
        """The partition it was sent to."""
        return Place(self.request.topic, self.request.partition)

    @property
    def offset(self) -> int:
        """Where it stands by what its client was told; -1: it was not told."""
        sent = self.send.outcome
        known = isinstance(sent, Sent) and sent.base_offset != NOT_SAID
        return sent.base_offset + self.index if isinstance(sent, Sent) and known else NOT_SAID

    @property
    def is_promised(self) -> bool:
        """Whether it must be there for ever: acknowledged, and its transaction, if any, committed."""
        return self.send.has_succeeded and (self.transaction is None or self.transaction.fate is Fate.COMMITTED)


class Facts(msgspec.Struct):
    """All that the checks look at."""

    history: History
    transactions: dict[str, Transaction]
    values: dict[str, Value]
    views: dict[Place, LogView]
    standing: dict[str, list[tuple[LogView, Standing]]]

    def polls(self) -> Iterator[tuple[Operation, Poll, Polled]]:
        """Every poll that was answered."""
        for operation in self.history.operations:
            if isinstance(operation.request, Poll) and isinstance(operation.outcome, Polled):
                yield operation, operation.request, operation.outcome

    def inits(self) -> Iterator[tuple[Operation, Init, Initialised]]:
        """Every init that succeeded."""
        yield from _inits(self.history)


def gather(history: History) -> Facts:
    """Put a history in order.

    Raises:
        HistoryError: a transaction that did not begin, or began twice; a value that was sent twice.
    """
    transactions = _transactions(history)
    values = _values(history, transactions)
    views = _views(history, transactions, values)
    facts = Facts(history, transactions, values, views, by_value(views.values()))
    _find_fates(facts)
    return facts


def place_of(operation: Operation) -> Place:
    """The partition that a request is about."""
    request = operation.request
    assert isinstance(request, Send | Poll | ReadLog)
    return Place(request.topic, request.partition)


def is_newer(init: Initialised, began: int, transaction: Transaction) -> bool:
    """Whether an init that began in that line is of a later producer than a transaction."""
    begin = transaction.begin
    if NOT_SAID in {begin.producer_id, begin.producer_epoch} or init.producer_id != begin.producer_id:
        return began > transaction.begun
    return init.producer_epoch > begin.producer_epoch


def _inits(history: History) -> Iterator[tuple[Operation, Init, Initialised]]:
    for operation in history.operations:
        if isinstance(operation.request, Init) and isinstance(operation.outcome, Initialised):
            yield operation, operation.request, operation.outcome


# --- transactions ---------------------------------------------------------------------------------------------------


def _transactions(history: History) -> dict[str, Transaction]:
    found: dict[str, Transaction] = {}
    for begun in history.begun:
        name = begun.begin.transaction
        if name in found:
            raise HistoryError(f"line {begun.line}: transaction {name} has begun in line {found[name].begun} already")
        found[name] = Transaction(begun.begin, begun.line)
    for operation in history.operations:
        match operation.request:
            case Send(transaction=str(name)):
                _find(found, name, operation).sends.append(operation)
            case SendOffsets(transaction=str(name)):
                _find(found, name, operation).offsets.append(operation)
            case End(transaction=name):
                _find(found, name, operation).ends.append(operation)
            case _:
                pass
    inits = list(_inits(history))
    for transaction in found.values():
        transaction.closed = _closed(transaction, inits)
        transaction.declared = transaction.fate = _declared(transaction)
    return found


def _find(transactions: dict[str, Transaction], name: str, operation: Operation) -> Transaction:
    transaction = transactions.get(name)
    if transaction is None or transaction.begun > operation.began:
        raise HistoryError(f"line {operation.began}: transaction {name} has not begun")
    return transaction


def _closed(transaction: Transaction, inits: Iterable[tuple[Operation, Init, Initialised]]) -> int:
    ended = (end.ended for end in transaction.ends if end.has_succeeded)
    taken_over = (
        operation.ended
        for operation, init, initialised in inits
        if init.transactional_id == transaction.begin.transactional_id
        and operation.ended > transaction.begun
        and is_newer(initialised, operation.began, transaction)
    )
    return min((*ended, *taken_over), default=NEVER)


def _declared(transaction: Transaction) -> Fate:
    first = next((end for end in transaction.ends if end.has_succeeded), None)
    if first is not None:
        return Fate.COMMITTED if _is_commit(first) else Fate.ABORTED
    may_commit = any(_is_commit(end) and end.is_unknown for end in transaction.ends)
    return Fate.UNKNOWN if may_commit else Fate.ABORTED


def _is_commit(end: Operation) -> bool:
    return isinstance(end.request, End) and end.request.is_commit


def _find_fates(facts: Facts) -> None:
    """Where its client was not told how a transaction ended, what it left behind tells."""
    committed, aborted = _ends_that_show(facts)
    for transaction in facts.transactions.values():
        if transaction.declared is Fate.UNKNOWN:
            if transaction.name in committed:
                transaction.fate = Fate.COMMITTED
            elif transaction.name in aborted:
                transaction.fate = Fate.ABORTED


def _ends_that_show(facts: Facts) -> tuple[set[str], set[str]]:
    committed, aborted = set(), set()
    for view in facts.views.values():
        for stretch in view.stretches:
            if stretch.state is State.COMMITTED:
                committed.update(stretch.transactions)
            elif stretch.state is State.ABORTED:
                aborted.update(stretch.transactions)
    for _, poll, polled in facts.polls():
        if poll.is_committed:
            values = (facts.values.get(value) for _, value in polled.records if value is not None)
            committed.update(value.transaction.name for value in values if value and value.transaction)
    return committed, aborted


# --- values and logs ------------------------------------------------------------------------------------------------


def _values(history: History, transactions: dict[str, Transaction]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for operation in history.operations:
        request = operation.request
        if not isinstance(request, Send):
            continue
        if request.sources and len(request.sources) != len(request.values):
            raise HistoryError(f"line {operation.began}: {len(request.values)} values, {len(request.sources)} sources")
        transaction = None if request.transaction is None else transactions[request.transaction]
        for index, text in enumerate(request.values):
            if text in found:
                raise HistoryError(f"line {operation.began}: {text!r} was sent in line {found[text].send.began} too")
            found[text] = Value(operation, request, index, transaction)
    return found


def _views(history: History, transactions: dict[str, Transaction], values: dict[str, Value]) -> dict[Place, LogView]:
    alone: dict[tuple[int, int], str | None] = {}  # None: there are several of one producer and epoch
    for transaction in transactions.values():
        if transaction.begin.producer_id != NOT_SAID:
            key = (transaction.begin.producer_id, transaction.begin.producer_epoch)
            alone[key] = None if key in alone else transaction.name

    def transaction_of(batch: Batch) -> str | None:
        for text in batch.values:
            value = None if text is None else values.get(text)
            if value is not None:
                return None if value.transaction is None else value.transaction.name
        return alone.get((batch.producer_id, batch.producer_epoch))

    reads: dict[Place, list[Operation]] = {}
    for operation in history.operations:
        if isinstance(operation.outcome, LogRead):
            reads.setdefault(place_of(operation), []).append(operation)
    return {place: view_log(place, of_place, transaction_of) for place, of_place in reads.items()}
