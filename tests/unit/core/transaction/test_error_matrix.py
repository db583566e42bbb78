"""Which code each request gets in each state of a transactional id, at each epoch, in one table.

Written from the tables of KIP-98, KIP-360, KIP-588 and KIP-890, not from the code: R is a retry of what was decided
before, with the epoch before the present one.
"""

from itertools import product

import pytest

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import ProducerEpoch, ProducerId, TopicPartition
from exactlog.core.transaction.entry import TransactionEntry
from exactlog.core.transaction.states import TransactionState
from tests.support.transaction_runtime import BILLS, ID, ORDERS, START_MS, TIMEOUT_MS, TransactionRuntime

OK = ErrorCode.NONE
PARKED = None
STATE = ErrorCode.INVALID_TXN_STATE  # 48
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING  # 49
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS  # 51
FENCED = ErrorCode.PRODUCER_FENCED  # 90
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE  # 120

STATES = ("none", "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")

PRODUCER = ProducerId(1_000)
EPOCH = ProducerEpoch(7)
EPOCHS = {"stale": 5, "before": 6, "current": 7, "next": 8, "none": -1, "markers only": 32_767}

# What happens: a code; "!" in front says that something is recorded.
EITHER_END = ("commit", "abort")

MATRIX = {
    # request, version, epoch            none      Empty     Ongoing  PrepCommit PrepAbort ComplCommit ComplAbort
    ("init", 2, "none"):               ("!OK",    "!OK",    "!BUSY",  "BUSY",    "BUSY",    "!OK",     "!OK"),
    ("init", 2, "current"):            ("!OK",    "!OK",    "!BUSY",  "BUSY",    "BUSY",    "!OK",     "!OK"),
    ("init", 2, "before"):             ("!OK",    "OK",     "!BUSY",  "BUSY",    "BUSY",    "!OK",     "!OK"),
    ("init", 2, "stale"):              ("!OK",    "FENCED", "!BUSY",  "BUSY",    "BUSY",    "FENCED",  "FENCED"),
    ("init", 2, "next"):               ("!OK",    "FENCED", "!BUSY",  "BUSY",    "BUSY",    "FENCED",  "FENCED"),
    ("init", 2, "markers only"):       ("!OK",    "FENCED", "!BUSY",  "BUSY",    "BUSY",    "FENCED",  "FENCED"),
    ("init, other id", 2, "current"):  ("!OK",    "FENCED", "FENCED", "FENCED",  "FENCED",  "FENCED",  "FENCED"),
    ("add", 2, "current"):             ("MAPPING", "!OK",   "OK",     "PARKED",  "PARKED",  "!OK",     "!OK"),
    ("add", 1, "current"):             ("MAPPING", "!OK",   "OK",     "PARKED",  "PARKED",  "!OK",     "!OK"),
    ("add, another", 2, "current"):    ("MAPPING", "!OK",   "!OK",    "PARKED",  "PARKED",  "!OK",     "!OK"),
    ("verify", 1, "current"):          ("MAPPING", "ABORTABLE", "OK", "PARKED",  "PARKED",  "ABORTABLE", "ABORTABLE"),
    ("verify, another", 1, "current"): ("MAPPING", *("ABORTABLE",) * 2, "PARKED", "PARKED",  *("ABORTABLE",) * 2),
    ("commit", 1, "current"):          ("MAPPING", "STATE",  "!OK",   "BUSY",    "STATE",   "OK",      "STATE"),
    ("abort", 1, "current"):           ("MAPPING", "STATE",  "!OK",   "STATE",   "BUSY",    "STATE",   "OK"),
    ("commit", 2, "current"):          ("MAPPING", "STATE",  "!OK",   "BUSY",    "BUSY",    "STATE",   "STATE"),
    ("abort", 2, "current"):           ("MAPPING", "!OK",    "!OK",   "BUSY",    "BUSY",    "!OK",     "!OK"),
    ("commit", 2, "before"):           ("MAPPING", "FENCED", "FENCED", "BUSY",   "FENCED",  "OK",      "FENCED"),
    ("abort", 2, "before"):            ("MAPPING", "FENCED", "FENCED", "STATE",  "BUSY",    "STATE",   "OK"),
}  # fmt: skip

# The version of a request to add changes no answer; whatever is not said above is fenced, or of another producer.
MATRIX["verify", 2, "current"] = MATRIX["verify", 1, "current"]
MATRIX["verify, another", 2, "current"] = MATRIX["verify, another", 1, "current"]
MATRIX["add, another", 1, "current"] = MATRIX["add, another", 2, "current"]
for row in product(("add", "add, another", "verify", "verify, another", *EITHER_END), (1, 2), EPOCHS):
    MATRIX.setdefault(row, ("MAPPING", *("FENCED",) * 6))
    MATRIX[f"{row[0]}, other id", *row[1:]] = ("MAPPING",) * 7


def entry_in(state, *, version):
    """A transactional id in a state. Where something has ended, it was by a client of this version."""
    has_epochs = version == 2
    return TransactionEntry(
        transactional_id=ID,
        producer_id=PRODUCER,
        producer_epoch=EPOCH,
        previous_producer_id=PRODUCER,
        last_producer_epoch=ProducerEpoch(6) if has_epochs else ProducerEpoch(-1),
        timeout_ms=TIMEOUT_MS,
        state=state,
        partitions=(ORDERS,) if state.is_open else (),
        start_time_ms=-1 if state is TransactionState.EMPTY else START_MS,
        last_update_ms=START_MS,
        client_transaction_version=version,
    )


def named(state):
    return next((known for known in TransactionState if known.kafka_name == state), None)


def runtime_in(state, *, version=2):
    runtime = TransactionRuntime()
    if named(state) is not None:
        runtime.put(entry_in(named(state), version=version))
    assert (runtime.state() or "none") == state
    return runtime


def ask(runtime, request, version, epoch):
    producer_id = ProducerId(PRODUCER + 1) if request.endswith("other id") else PRODUCER
    producer = (producer_id, ProducerEpoch(EPOCHS[epoch]))
    kind = request.removesuffix(", other id")
    match kind:
        case "init":
            return runtime.init(producer_id=-1 if epoch == "none" else producer_id, epoch=producer[1])
        case "add" | "verify":
            return runtime.add(producer, ORDERS, verify_only=kind == "verify", transaction_version=version)
        case "add, another" | "verify, another":
            return runtime.add(producer, BILLS, verify_only=kind.startswith("verify"), transaction_version=version)
        case _:
            return runtime.end(producer, is_commit=kind == "commit", version=version)


@pytest.mark.parametrize(
    ("request_of", "state", "expected"),
    [
        pytest.param(row, state, expected, id=f"{row[0]}, version {row[1]}, epoch {row[2]}, {state}")
        for row, codes in MATRIX.items()
        for state, expected in zip(STATES, codes, strict=True)
    ],
)
def test_every_request_has_its_answer_in_every_state(request_of, state, expected):
    runtime = runtime_in(state)
    before, log = runtime.entry(), list(runtime.log)
    known = runtime.shard.open_count

    told = ask(runtime, *request_of)

    assert told.error_code is globals()[expected.removeprefix("!")]
    if expected.startswith("!"):
        assert len(runtime.log) == len(log) + 1
    else:
        assert runtime.entry() == before
        assert runtime.log == log
        assert runtime.shard.open_count == known


def test_the_table_has_every_request_at_every_epoch_in_both_versions():
    kinds = ("add", "add, another", "verify", "verify, another", *EITHER_END)
    every = {
        (kind + other, version, epoch)
        for kind, other, version, epoch in product(kinds, ("", ", other id"), (1, 2), EPOCHS)
    }

    assert every <= set(MATRIX)
    assert {("init", 2, epoch) for epoch in EPOCHS} <= set(MATRIX)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(
    ("producer_id", "epoch"), [(PRODUCER, -1), (-1, EPOCH), (PRODUCER + 1, -1), (-1, 32_767), (-1, -2)]
)
def test_an_id_without_an_epoch_and_an_epoch_without_an_id_are_no_request(state, producer_id, epoch):
    runtime = runtime_in(state)
    log = list(runtime.log)

    assert runtime.init(producer_id=producer_id, epoch=epoch).error_code is ErrorCode.INVALID_REQUEST
    assert runtime.log == log


@pytest.mark.parametrize("state", STATES[1:])
@pytest.mark.parametrize(("request_of", "version"), [*product((*EITHER_END, "init", "add"), (1, 2))])
@pytest.mark.parametrize("epoch", [-32_768, -1, 0, 5, 6, 7, 8, 32_765, 32_766, 32_767])
def test_no_answer_is_an_unknown_error_whatever_the_number(state, request_of, version, epoch):
    for ended_by in (1, 2):
        runtime = runtime_in(state, version=ended_by)
        producer = (PRODUCER, ProducerEpoch(epoch))
        match request_of:
            case "init":
                told = runtime.init(producer_id=PRODUCER, epoch=epoch)
            case "add":
                told = runtime.add(producer, TopicPartition("other", 1), transaction_version=version)
            case _:
                told = runtime.end(producer, is_commit=request_of == "commit", version=version)
        assert told.error_code is not ErrorCode.UNKNOWN_SERVER_ERROR
        runtime.advance(101)  # a parked one has its answer then
        assert told.is_done
        assert runtime.entry().producer_epoch >= EPOCH


@pytest.mark.parametrize("direction", EITHER_END)
@pytest.mark.parametrize("state", ["CompleteCommit", "CompleteAbort", "PrepareCommit", "PrepareAbort"])
def test_the_epoch_before_is_no_retry_where_the_end_raised_none(direction, state):
    """Ended by a client of version 1: who comes with a lower epoch has been fenced, and gets nobody's identity."""
    runtime = runtime_in(state, version=1)

    told = ask(runtime, direction, 2, "before")

    assert told.error_code is FENCED
    assert (told.outcome.producer_id, told.outcome.producer_epoch) == (-1, -1)


@pytest.mark.parametrize("told_at_once", [True, False])
def test_an_empty_transactional_id_is_no_request(told_at_once):
    runtime, transactional_id = TransactionRuntime(), ""
    producer = (PRODUCER, EPOCH)

    added = runtime.add(producer, transactional_id=transactional_id, is_told_at_once=told_at_once)

    assert added.error_code is ErrorCode.INVALID_REQUEST
    for version in (1, 2):
        assert (
            runtime.end(producer, version=version, transactional_id=transactional_id).error_code
            is ErrorCode.INVALID_REQUEST
        )
    assert runtime.init(transactional_id).error_code is ErrorCode.INVALID_REQUEST
    assert runtime.init("x" * 1_001).error_code is ErrorCode.INVALID_REQUEST
