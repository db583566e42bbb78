"""Every state of a transaction, and what brings a new transactional id there.

The states are those of `exactlog.core.transaction.states`, more than once where what came before makes a difference.
"""

from tests.conformance.differential.transaction import ABORT, ADDED_BEFORE, COMMIT, Identity, Transaction

SHORT_MS = 50
"""A timeout that is over at once."""

STATES = {}
"""By name: what brings a new transactional id into the state."""


def state(make):
    """Registers a state under its own name."""
    STATES[make.__name__.removeprefix("_").replace("_", " ")] = make
    return make


@state
def _unknown(peer, suffix):
    return Transaction(peer, suffix).become(Identity(peer.producer(), 0))


@state
def _empty(peer, suffix):
    return Transaction(peer, suffix).init()


@state
def _empty_and_gone_on(peer, suffix):
    return _empty(peer, suffix).init(keeps=True)


@state
def _empty_and_taken_over(peer, suffix):
    return _empty(peer, suffix).init().init()


@state
def _ongoing(peer, suffix):
    return _empty(peer, suffix).write(b"a", b"b")


@state
def _ongoing_1(peer, suffix):
    return _empty(peer, suffix).add(0).write(b"a", b"b", version=ADDED_BEFORE)


@state
def _ongoing_without_data(peer, suffix):
    return _empty(peer, suffix).init().add(0)


@state
def _ongoing_after_another(peer, suffix):
    return _committed(peer, suffix).write(b"c")


@state
def _prepared_to_commit(peer, suffix):
    return _prepared(_ongoing(peer, suffix), COMMIT)


@state
def _prepared_to_abort(peer, suffix):
    return _prepared(_ongoing(peer, suffix), ABORT)


@state
def _prepared_to_commit_1(peer, suffix):
    return _prepared(_ongoing_1(peer, suffix), COMMIT, version=4)


@state
def _prepared_to_abort_1(peer, suffix):
    return _prepared(_ongoing_1(peer, suffix), ABORT, version=4)


@state
def _committed(peer, suffix):
    return _ongoing(peer, suffix).end(COMMIT)


@state
def _aborted(peer, suffix):
    return _ongoing(peer, suffix).end(ABORT)


@state
def _committed_1(peer, suffix):
    return _ongoing_1(peer, suffix).end(COMMIT, version=4)


@state
def _aborted_1(peer, suffix):
    return _ongoing_1(peer, suffix).end(ABORT, version=4)


@state
def _aborted_without_data(peer, suffix):
    return _empty(peer, suffix).end(ABORT)


@state
def _aborted_twice(peer, suffix):
    return _aborted(peer, suffix).end(ABORT)


@state
def _empty_after_a_commit(peer, suffix):
    return _committed(peer, suffix).init()


@state
def _empty_after_an_abort_and_gone_on(peer, suffix):
    return _aborted(peer, suffix).init(keeps=True)


@state
def _aborted_by_who_takes_over(peer, suffix):
    return _ongoing(peer, suffix).take_over_once()


@state
def _aborted_by_who_takes_over_1(peer, suffix):
    return _ongoing_1(peer, suffix).take_over_once()


@state
def _taken_over(peer, suffix):
    return _ongoing(peer, suffix).take_over_once().init()


@state
def _timed_out(peer, suffix):
    return Transaction(peer, suffix, timeout_ms=SHORT_MS).init().write(b"a").wait_for("CompleteAbort")


@state
def _timed_out_1(peer, suffix):
    transaction = Transaction(peer, suffix, timeout_ms=SHORT_MS).init()
    return transaction.add(0).wait_for("CompleteAbort")


def _prepared(transaction, outcome, *, version=5):
    transaction.peer.hold_markers(transaction)
    return transaction.end(outcome, version=version, is_waited_for=False)
