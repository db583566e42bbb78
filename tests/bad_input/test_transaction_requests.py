"""Whoever speaks of a transaction by a wrong id, producer id or epoch, in any state, by any API in any version, over a
real connection: the code that Kafka has for it, an answer for each, and nothing appended anywhere.

The codes are written down from KIP-98, KIP-360, KIP-588 and KIP-890, not from the code.
"""

import contextlib
import itertools
from typing import NamedTuple

import pytest

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.topic_name import CONSUMER_OFFSETS, TRANSACTION_STATE
from exactlog.core.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from exactlog.core.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from exactlog.core.protocol.messages.end_txn import EndTxnRequest
from exactlog.core.protocol.messages.init_producer_id import InitProducerIdRequest
from exactlog.core.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from exactlog.core.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from exactlog.testing import Broker
from tests.support.raw_client import RawClient, Topic, sequenced
from tests.support.raw_transactions import ABORT, COMMIT, TransactionalProducer, describe
from tests.support.transaction_steps import FLOWS, ends, no_markers, open_producer, settle, state_of

NONE = ErrorCode.NONE
INVALID_REQUEST = ErrorCode.INVALID_REQUEST  # 42
INVALID_EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH  # 47
INVALID_STATE = ErrorCode.INVALID_TXN_STATE  # 48
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING  # 49
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS  # 51
NOT_ALLOWED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED  # 53
INVALID_RECORD = ErrorCode.INVALID_RECORD  # 87
FENCED = ErrorCode.PRODUCER_FENCED  # 90
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE  # 120
TRY_AGAIN = ErrorCode.NOT_ENOUGH_REPLICAS  # 19

STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
IDS = {"own": "own", "other": "other", "nobody's": "nobody", "empty": "", "null": None}
PRODUCER_IDS = ("own", "other", "unknown", "none", "negative", "greatest")
EPOCHS = ("current", "before", "long ago", "next", "none", "negative", "for markers")
TAKEN_OVER = 12
"""How often the transactional id was taken over before: its epoch."""
OTHER_EPOCH = 2
GROUP = "group"
AT_ONCE = 200
NEVER = 1_000
"""A version in which an API tells PRODUCER_FENCED by that name: these two have none."""


class Wrong(NamedTuple):
    """Who somebody claims to be."""

    transactional_id: str
    producer_id: str
    epoch: str


EVERYBODY_WRONG = [
    claim
    for claim in itertools.starmap(Wrong, itertools.product(IDS, PRODUCER_IDS, EPOCHS))
    if claim != ("own", "own", "current")
]


class Scene:
    """A broker where a transactional id is in one state, and another one is idle.

    Attributes:
        topic: its partition 0 has records of the transaction, 1 is part of it, 2 is not.
    """

    def __init__(self, raw, state, flow):
        self.raw = raw
        self.state = state
        self.flow = flow
        self.topic = raw.create_topic("topic", partitions=3)
        self.other = self._initialise("other", OTHER_EPOCH)
        self.other.add_offsets(GROUP)  # so that there is a place for offsets
        assert TransactionalProducer(raw, "other").init() is CONCURRENT
        self.other = open_producer(raw, "other")
        self.own = self._initialise("own", TAKEN_OVER)

    def begin(self):
        """Takes the transactional id to its state."""
        if self.state != "Empty":
            self.own.add((self.topic, 0), (self.topic, 1))
            assert self.flow.write(self.own, (self.topic, 0, b"value")) == [NONE]
        if self.state.startswith(("Prepare", "Complete")):
            assert self.flow.end(self.own, self.outcome) is NONE
        if self.state.startswith("Complete"):
            settle(self.raw, "own")
        assert state_of(self.raw, "own") == self.state

    def _initialise(self, transactional_id, epoch):
        producer = TransactionalProducer(self.raw, transactional_id)
        for _ in range(epoch + 1):
            assert producer.init() is NONE
        return producer

    @property
    def outcome(self):
        return COMMIT if "Commit" in self.state else ABORT

    @property
    def is_prepared(self):
        return self.state.startswith("Prepare")

    @property
    def has_retry(self):
        """Whether the epoch before the present one is that of the transaction that ended last (KIP-890)."""
        return self.flow.version > 1 and self.state.startswith(("Prepare", "Complete"))

    def identity(self, claim):
        """What stands in a request."""
        own, epoch = self.own.identity
        producer_ids = {
            "own": own, "other": self.other.producer_id, "unknown": 2**40, "none": -1, "negative": -(2**63),
            "greatest": 2**63 - 1,
        }  # fmt: skip
        epochs = {
            "current": epoch, "before": epoch - 1, "long ago": epoch - 2, "next": epoch + 1, "none": -1,
            "negative": -32_768, "for markers": 32_767,
        }  # fmt: skip
        return IDS[claim.transactional_id], producer_ids[claim.producer_id], epochs[claim.epoch]

    def what_there_is(self):
        """Everything that a request could change: ends of all partitions, and the ids' descriptions."""
        logs = [(self.topic, index) for index in range(3)]
        logs += [(Topic(name, None), 0) for name in (TRANSACTION_STATE, CONSUMER_OFFSETS)]
        return [ends(self.raw, *log) for log in logs] + [
            describe(self.raw, name) for name in ("own", "other", "nobody")
        ]


@contextlib.contextmanager
def scene(state, flow):
    with Broker(config={"in.memory": True}) as broker, RawClient(broker.port) as raw, contextlib.ExitStack() as stack:
        place = Scene(raw, state, flow)
        if place.is_prepared:
            stack.enter_context(no_markers())
        place.begin()
        yield place


# --- the requests of each API, and what Kafka answers -----------------------------------------------------------------


class Case(NamedTuple):
    """A request, and the code for it."""

    request: object
    version: int
    expected: ErrorCode


def told_by_coordinator(claim):
    """What the coordinator says to whoever claims that, of any request but InitProducerId; None: nothing is wrong."""
    if claim.transactional_id == "empty":
        return INVALID_REQUEST
    if claim.producer_id != claim.transactional_id:
        return MAPPING  # also of an id that nobody has
    return FENCED


def of_init_producer_id(place, claim):
    transactional_id, producer_id, epoch = place.identity(claim)
    is_half = (claim.producer_id == "none") != (claim.epoch == "none")
    if claim.transactional_id == "null":
        if is_half:
            yield from _inits(transactional_id, producer_id, epoch, INVALID_REQUEST)
        return  # it gets a producer id of its own, whatever it says
    if is_half or claim.transactional_id == "empty":
        yield from _inits(transactional_id, producer_id, epoch, INVALID_REQUEST)
        return
    if claim.producer_id == "none" or claim.transactional_id == "nobody's":
        return  # takes the id over, or is its first producer
    if claim.producer_id != claim.transactional_id:
        yield from _inits(transactional_id, producer_id, epoch, FENCED)
    elif claim.transactional_id == "own" and place.state == "Ongoing":
        return  # Kafka aborts what is open at any epoch of the same producer id
    elif claim.transactional_id == "own" and place.is_prepared:
        yield from _inits(transactional_id, producer_id, epoch, CONCURRENT)
    elif not (claim.transactional_id == "own" and claim.epoch == "before" and place.has_retry):
        yield from _inits(transactional_id, producer_id, epoch, FENCED)


def _inits(transactional_id, producer_id, epoch, expected):
    for version in range(3, 6):  # those before say no producer id
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=60_000,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        yield Case(request, version, in_old_words(expected, version, fenced_since=4))


def in_old_words(code, version, *, fenced_since):
    return INVALID_EPOCH if code is FENCED and version < fenced_since else code


def of_add_partitions_to_txn(place, claim):
    transactional_id, producer_id, epoch = place.identity(claim)
    expected = told_by_coordinator(claim)
    topics = (AddPartitionsToTxnTopic(name=place.topic.name, partitions=(1, 2)),)
    for version in range(4):
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=topics,
        )
        yield Case(request, version, in_old_words(expected, version, fenced_since=2))
    for version, verify_only in itertools.product((4, 5), (False, True)):
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            verify_only=verify_only,
            topics=topics,
        )
        yield Case(AddPartitionsToTxnRequest(transactions=(transaction,)), version, expected)


def of_add_offsets_to_txn(place, claim):
    transactional_id, producer_id, epoch = place.identity(claim)
    request = AddOffsetsToTxnRequest(
        transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch, group_id=GROUP
    )
    for version in range(5):
        yield Case(request, version, in_old_words(told_by_coordinator(claim), version, fenced_since=2))


def of_end_txn(place, claim):
    transactional_id, producer_id, epoch = place.identity(claim)
    for version, outcome in itertools.product(range(6), (COMMIT, ABORT)):
        expected = in_old_words(told_by_coordinator(claim), version, fenced_since=2)
        if version == 5 and claim == ("own", "own", "before") and place.has_retry:
            expected = of_retry(place, outcome)
        request = EndTxnRequest(
            transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch, committed=outcome
        )
        yield Case(request, version, expected)


def of_retry(place, outcome):
    """The answer to the end of a transaction, asked for once more, or turned round."""
    if outcome is place.outcome:
        return CONCURRENT if place.is_prepared else NONE
    return FENCED if outcome is COMMIT else INVALID_STATE  # KAFKA-20785


def of_txn_offset_commit(place, claim):
    transactional_id, producer_id, epoch = place.identity(claim)
    part = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    for version in range(7):
        named = {"topic_id": place.topic.topic_id} if version >= 6 else {"name": place.topic.name}
        request = TxnOffsetCommitRequest(
            transactional_id=transactional_id,
            group_id=GROUP,
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=(TxnOffsetCommitRequestTopic(**named, partitions=(part,)),),
        )
        yield Case(request, version, in_old_words(told_by_coordinator(claim), version, fenced_since=NEVER))


def of_produce(place, claim):
    transactional_id, producer_id, epoch = place.identity(claim)
    if claim.transactional_id == "null":
        expected = NOT_ALLOWED
    elif producer_id < 0 or epoch < 0:
        expected = INVALID_RECORD
    else:
        expected = in_old_words(told_by_coordinator(claim), 0, fenced_since=NEVER)
    records = sequenced(producer_id, 0, b"wrong", epoch=epoch, is_transactional=True)
    data = tuple(PartitionProduceData(index=index, records=records) for index in (1, 2))
    topic = TopicProduceData(name=place.topic.name, topic_id=place.topic.topic_id, partition_data=data)
    for version in range(3, 14):
        yield Case(ProduceRequest(transactional_id=transactional_id, acks=-1, topic_data=(topic,)), version, expected)


APIS = {
    "InitProducerId": of_init_producer_id,
    "AddPartitionsToTxn": of_add_partitions_to_txn,
    "AddOffsetsToTxn": of_add_offsets_to_txn,
    "EndTxn": of_end_txn,
    "TxnOffsetCommit": of_txn_offset_commit,
    "Produce": of_produce,
}
NULLABLE = {"InitProducerId", "Produce"}


def codes_of(answer):
    """Every error code in an answer."""
    match type(answer).__name__:
        case "ProduceResponse":
            return {part.error_code for topic in answer.responses for part in topic.partition_responses}
        case "TxnOffsetCommitResponse":
            return {part.error_code for topic in answer.topics for part in topic.partitions}
        case "AddPartitionsToTxnResponse":
            results = [
                answer.results_by_topic_v3_and_below,
                *[of.topic_results for of in answer.results_by_transaction],
            ]
            parts = [part for topics in results for topic in topics for part in topic.results_by_partition]
            return {part.partition_error_code for part in parts}
        case _:
            return {answer.error_code}


def cases_of(place):
    for name, make in APIS.items():
        for claim in EVERYBODY_WRONG:
            if claim.transactional_id != "null" or name in NULLABLE:
                for case in make(place, claim):
                    yield f"{name} {case.version} of {claim}", case


def ask_all(raw, cases):
    """Sends them in pieces, and pairs each with the codes of its answer; the connection must last."""
    for start in range(0, len(cases), AT_ONCE):
        piece = cases[start : start + AT_ONCE]
        raw.send_all(*[(case.request, case.version) for _, case in piece])
        for told, case in piece:
            yield told, case, codes_of(raw.receive())


@pytest.mark.slow
@pytest.mark.parametrize("flow", FLOWS, ids=repr)
@pytest.mark.parametrize("state", STATES)
def test_whoever_is_wrong_gets_kafkas_code_and_changes_nothing(state, flow):
    with scene(state, flow) as place:
        before = place.what_there_is()
        cases = list(cases_of(place))
        wrongly = [
            f"{told}: {sorted(found)}, not {case.expected!r}"
            for told, case, found in ask_all(place.raw, cases)
            if found != {case.expected}
        ]

        assert wrongly == []
        assert place.what_there_is() == before
        assert len(cases) > 5_000


# --- the right producer at the wrong time -----------------------------------------------------------------------------

RIGHT = Wrong("own", "own", "current")


def untimely(place):
    """What the producer itself may not do in a state: (request, version, code); what it may is left out."""
    ends_refused, writes_refused = UNTIMELY[place.state, place.flow.version]
    for told, case in _named(of_end_txn, place):
        refused = ends_refused.get((case.version == 5, case.request.committed))
        if refused is not None:
            yield told, case._replace(expected=refused)
    for make, abortable_since in (of_produce, 11), (of_txn_offset_commit, 4):
        for told, case in _named(make, place):
            if writes_refused is CONCURRENT:
                is_told_so = make is of_txn_offset_commit or case.version >= 12
                yield told, case._replace(expected=CONCURRENT if is_told_so else TRY_AGAIN)
            elif case.version < (12 if make is of_produce else 5):  # from then on it adds what it writes to
                expected = ABORTABLE if case.version >= abortable_since else INVALID_STATE
                yield told, case._replace(expected=expected)
    for make in of_add_partitions_to_txn, of_add_offsets_to_txn:
        for told, case in _named(make, place):
            if writes_refused is CONCURRENT:
                yield told, case._replace(expected=CONCURRENT)


def _named(make, place):
    for case in make(place, RIGHT):
        yield f"{make.__name__} {case.version}", case


# (from version 5 on, commits) -> the code, and the one of writes
_NOTHING_IS_OPEN = {(False, COMMIT): INVALID_STATE, (False, ABORT): INVALID_STATE, (True, COMMIT): INVALID_STATE}
_HAS_COMMITTED = {(False, ABORT): INVALID_STATE, (False, COMMIT): NONE, (True, COMMIT): INVALID_STATE}
_HAS_ABORTED = {(False, COMMIT): INVALID_STATE, (False, ABORT): NONE, (True, COMMIT): INVALID_STATE}
_COMMITS = {
    (False, COMMIT): CONCURRENT,
    (False, ABORT): INVALID_STATE,
    (True, COMMIT): CONCURRENT,
    (True, ABORT): CONCURRENT,
}
_ABORTS = {
    (False, ABORT): CONCURRENT,
    (False, COMMIT): INVALID_STATE,
    (True, COMMIT): CONCURRENT,
    (True, ABORT): CONCURRENT,
}
UNTIMELY = {
    (state, version): row
    for version in (1, 2)
    for state, row in {
        "Empty": (_NOTHING_IS_OPEN, INVALID_STATE),
        "PrepareCommit": (_COMMITS, CONCURRENT),
        "PrepareAbort": (_ABORTS, CONCURRENT),
        "CompleteCommit": (_HAS_COMMITTED, INVALID_STATE),
        "CompleteAbort": (_HAS_ABORTED, INVALID_STATE),
    }.items()
}


@pytest.mark.parametrize("flow", FLOWS, ids=repr)
@pytest.mark.parametrize("state", [state for state in STATES if state != "Ongoing"])
def test_whoever_is_right_at_the_wrong_time_gets_kafkas_code_and_changes_nothing(state, flow):
    with scene(state, flow) as place:
        before = place.what_there_is()
        cases = list(untimely(place))
        wrongly = [
            f"{told}: {sorted(found)}, not {case.expected!r}"
            for told, case, found in ask_all(place.raw, cases)
            if found != {case.expected}
        ]

        assert wrongly == []
        assert place.what_there_is() == before
        assert len(cases) > 15


@pytest.mark.parametrize("flow", FLOWS, ids=repr)
def test_partitions_that_were_not_added_take_nothing(flow):
    with scene("Ongoing", flow) as place:
        before = place.what_there_is()
        records = sequenced(*place.own.identity[:1], 0, b"wrong", epoch=place.own.epoch, is_transactional=True)
        data = (PartitionProduceData(index=2, records=records),)
        topic = TopicProduceData(name=place.topic.name, topic_id=place.topic.topic_id, partition_data=data)
        request = ProduceRequest(transactional_id="own", acks=-1, topic_data=(topic,))

        found = [codes_of(place.raw.ask(request, version)) for version in range(3, 12)]

        assert found == [{INVALID_STATE}] * 8 + [{ABORTABLE}]
        assert place.what_there_is() == before


@pytest.mark.parametrize("version", [3, 11, 12, 13])
def test_data_of_a_transaction_vouches_for_its_producer_as_in_kafka(version):
    """Where a partition has records of the transaction nobody asks the coordinator: so the transactional id may be a
    wrong one, if the producer id and the epoch are right. What is written is part of that transaction all the same.
    """
    with scene("Ongoing", FLOWS[1]) as place:
        own = place.own.request((place.topic, 0, b"more"))
        request = ProduceRequest(transactional_id="nobody", acks=-1, topic_data=own.topic_data)

        assert codes_of(place.raw.ask(request, version)) == {NONE}
        assert ends(place.raw, place.topic) == (0, 2)
        assert place.flow.end(place.own, ABORT) is NONE
        assert settle(place.raw, "own") == "CompleteAbort"
        assert ends(place.raw, place.topic) == (3, 3)
