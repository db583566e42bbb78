"""Every transactional API in every state of a transaction, asked by its producer and by others."""

from exactlog.core.codec.wire_types import parse_versions
from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from exactlog.core.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersTopic
from exactlog.core.protocol.messages.describe_transactions import DescribeTransactionsRequest
from exactlog.core.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from exactlog.core.protocol.messages.list_transactions import ListTransactionsRequest
from exactlog.core.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from exactlog.core.transaction.states import TransactionState
from tests.conformance.differential.hostile import NOBODY
from tests.conformance.differential.scenario import HANDWRITTEN, Scenario
from tests.conformance.differential.states_of_transactions import STATES
from tests.conformance.differential.transaction import (
    ABORT,
    COMMIT,
    SEVERAL_SINCE,
    Identity,
    markers_request,
)
from tests.support.raw_client import fetch_request

UNCOMMITTED, COMMITTED = 0, 1
NOBODYS_ID = 2**40
EPOCH_MAX = 2**15 - 1


def _may_begin_again(peer):
    """Whether a next transaction would not time out in the middle of the questions."""
    return not peer.state.startswith("timed out")


def asked_in_every_state(api_key, versions="0+", *, of_partitions=False):
    """Registers a script `(peer, make)` for each state; `make` brings one more transaction into it.

    What is asked `of_partitions` is not asked while a transaction is prepared: what holds it there shows in them.
    """

    def register(script):
        for name, make in STATES.items():
            if of_partitions and name.startswith("prepared"):
                continue
            run = _script_in(name, make, script)
            made = Scenario(api_key, name, parse_versions(versions), run, is_one_of_many=True)
            HANDWRITTEN[api_key].append(made)
        return script

    return register


def _script_in(name, make, script):
    def run(peer):
        peer.state = name
        peer.about(name)
        suffixes = iter(("one", "other", "third"))
        script(peer, lambda: make(peer, next(suffixes)))

    return run


def _others(transaction):
    """What to call somebody else, and who that says to be."""
    producer_id, epoch = transaction.identity
    stranger = Identity(transaction.peer.producer(), 0)
    named = {
        "another producer": stranger.at(max(epoch, 0)),
        "nobody's producer": Identity(NOBODYS_ID, epoch),
        "no producer": Identity(-1, -1),
        "no producer and an epoch": Identity(-1, epoch),
        "no epoch": Identity(producer_id, -1),
        "an epoch above": Identity(producer_id, epoch + 1),
        "two epochs above": Identity(producer_id, epoch + 2),
        "an epoch below": Identity(producer_id, epoch - 1),
        "two epochs below": Identity(producer_id, epoch - 2),
        "the highest epoch": Identity(producer_id, EPOCH_MAX),
        "the last epoch": Identity(producer_id, EPOCH_MAX - 1),
    }
    return {label: identity for label, identity in named.items() if identity != transaction.identity}.items()


def _ask_and_look(transaction, *requests):
    """Asks; takes down after each what has become of the transaction."""
    peer = transaction.peer
    for request in requests:
        peer.ask(request)
        transaction.peer.until(lambda: not _is_on_its_way(transaction))
        peer.ask(transaction.describe_request())


def _is_on_its_way(transaction):
    """Whether markers are being written that nobody holds."""
    return not transaction.peer.holds_markers and transaction.described().transaction_state.startswith("Prepare")


# --- InitProducerId ------------------------------------------------------------------------------------------------


@asked_in_every_state(ApiKey.INIT_PRODUCER_ID)
def _init(peer, make):
    transaction = make()
    if peer.version >= 3:
        for label, identity in _others(transaction):
            if identity != Identity(-1, -1) and "epochs above" not in label and "epoch below" not in label:
                peer.about(f"{peer.state}, {label}")
                _ask_and_look(transaction, transaction.init_request(identity=identity))
    peer.about(f"{peer.state}, a wrong timeout")
    for timeout_ms in (-1, 900_001):
        peer.ask(transaction.init_request(timeout_ms=timeout_ms))
    peer.about(f"{peer.state}, taken over")
    _ask_and_look(transaction, *[transaction.init_request()] * 3)
    if peer.version >= 3:
        for label in ("the producer", "an epoch below"):
            transaction = make()
            peer.about(f"{peer.state}, {label} goes on")
            identity = transaction.identity if label == "the producer" else dict(_others(transaction)).get(label)
            _ask_and_look(transaction, *[transaction.init_request(identity=identity)] * 3)


# --- AddPartitionsToTxn, AddOffsetsToTxn ----------------------------------------------------------------------------


@asked_in_every_state(ApiKey.ADD_PARTITIONS_TO_TXN)
def _add(peer, make):
    transaction = make()

    def ask(*partitions, **fields):
        peer.ask(transaction.add_request(*partitions, version=peer.version, **fields))
        if peer.version >= SEVERAL_SINCE:
            peer.ask(transaction.add_request(*partitions, version=peer.version, verify_only=True, **fields))

    for label, identity in _others(transaction):
        peer.about(f"{peer.state}, {label}")
        ask(0, identity=identity)
    if not _may_begin_again(peer):
        return
    peer.about(f"{peer.state}, its producer")
    if peer.version >= SEVERAL_SINCE:
        peer.ask(transaction.add_request(0, 1, version=peer.version, verify_only=True))
    ask(0, 9)
    ask(-1)
    ask(0, topic=transaction.topic._replace(name=peer.name("nobody")))
    peer.ask(transaction.describe_request())
    ask(0)
    ask(0, 1)
    ask(0)
    ask(2, 2)
    peer.ask(transaction.describe_request())
    if peer.version >= SEVERAL_SINCE:
        other = make()
        peer.about(f"{peer.state}, many in one request")
        requests = [
            of.add_request(index, version=peer.version, verify_only=is_verified)
            for of, index, is_verified in ((transaction, 0, True), (other, 1, False))
        ]
        peer.ask(AddPartitionsToTxnRequest(transactions=tuple(request.transactions[0] for request in requests)))


@asked_in_every_state(ApiKey.ADD_OFFSETS_TO_TXN)
def _add_offsets(peer, make):
    transaction, group = make(), peer.name("group")
    for label, identity in _others(transaction):
        peer.about(f"{peer.state}, {label}")
        peer.ask(transaction.add_offsets_request(group, identity=identity))
    if not _may_begin_again(peer):
        return
    peer.about(f"{peer.state}, its producer")
    for name in (group, group, "", "group"):
        peer.ask(transaction.add_offsets_request(name))
    peer.ask(transaction.describe_request())


# --- EndTxn --------------------------------------------------------------------------------------------------------


@asked_in_every_state(ApiKey.END_TXN)
def _end(peer, make):
    transaction = make()
    for label, identity in _others(transaction):
        for outcome, word in ((COMMIT, "commits"), (ABORT, "aborts")):
            peer.about(f"{peer.state}, {label} {word}")
            peer.ask(transaction.end_request(outcome, identity=identity))
    for outcome, word in ((COMMIT, "commits"), (ABORT, "aborts")):
        transaction = make()
        peer.about(f"{peer.state}, its producer {word}")
        request, other = transaction.end_request(outcome), transaction.end_request(not outcome)
        _ask_and_look(transaction, request, request, other)
        if not peer.holds_markers:
            transaction.settle()
            _ask_and_look(transaction, *[transaction.end_request(of) for of in (COMMIT, ABORT)])


# --- Produce -------------------------------------------------------------------------------------------------------


@asked_in_every_state(ApiKey.PRODUCE, "10-13")
def _produce(peer, make):
    transaction = make()
    for label, identity in _others(transaction):
        if identity.producer_id >= 0 and identity.producer_epoch >= 0:
            peer.about(f"{peer.state}, {label}")
            peer.ask(transaction.produce_request(b"z", identity=identity, partition=2 if peer.holds_markers else 0))
    if peer.holds_markers:
        peer.about(f"{peer.state}, its producer")
        peer.ask(transaction.produce_request(b"z", partition=2))
    if peer.holds_markers or not _may_begin_again(peer):
        return
    peer.about(f"{peer.state}, its producer")
    for request in (
        transaction.produce_request(b"z", transactional_id=None),
        transaction.produce_request(b"z", transactional_id="another"),
        transaction.produce_request(b"z", is_transactional=False),
        transaction.produce_request(b"z", partition=9),
        transaction.produce_request(b"z"),
        transaction.produce_request(b"z"),
        transaction.produce_request(b"z", is_transactional=False),
        transaction.produce_request(b"z", partition=1),
        transaction.produce_request(b"z", partition=2, sequence=7),
    ):
        peer.ask(request)
    peer.ask(transaction.describe_request())
    read(transaction)


# --- TxnOffsetCommit -----------------------------------------------------------------------------------------------


@asked_in_every_state(ApiKey.TXN_OFFSET_COMMIT)
def _commit_offsets(peer, make):
    transaction, group = make(), peer.name("group")
    peer.commit(group, transaction.topic, 1, partition=1)
    for label, identity in _others(transaction):
        peer.about(f"{peer.state}, {label}")
        peer.ask(transaction.offsets_request(group, (0, 3), identity=identity))
    if not _may_begin_again(peer):
        return
    peer.about(f"{peer.state}, its producer")
    peer.ask(transaction.offsets_request(group, (0, 3)))
    peer.ask(transaction.offsets_request("", (0, 3)))
    peer.ask(transaction.describe_request())
    if transaction.described().transaction_state in {"Empty", "Ongoing", "CompleteCommit", "CompleteAbort"}:
        peer.about(f"{peer.state}, its producer with the group")
        answer = peer.quietly(transaction.add_offsets_request(group), 3)
        assert answer.error_code == 0, answer
    peer.ask(transaction.offsets_request(group, (0, 3), (1, 4), (9, 5), (-1, 5)))
    peer.ask(transaction.offsets_request(group, (0, -7), (2, 3), metadata=None))
    peer.ask(transaction.offsets_request(group, (0, 3), metadata="m" * 4_097))
    unknown = transaction.topic._replace(name=peer.name("nobody"), topic_id=NOBODY)
    peer.ask(transaction.offsets_request(group, (0, 3), topic=unknown))
    read_offsets(transaction, group)
    if peer.version >= 3:
        for fields in (
            {"generation_id_or_member_epoch": 1},
            {"member_id": "nobody"},
            {"generation_id_or_member_epoch": 1, "member_id": "nobody"},
            {"group_instance_id": "nobody"},
            {"generation_id_or_member_epoch": 0},
            {"generation_id_or_member_epoch": -2},
        ):
            peer.ask(transaction.offsets_request(group, (0, 3), **fields))
    if transaction.described().transaction_state == "Ongoing":
        peer.about(f"{peer.state}, aborted and committed")
        for outcome in (ABORT, COMMIT):
            transaction.commit_offset(group, 7).end(outcome)
            read_offsets(transaction, group)


def read_offsets(transaction, group):
    of_topic = OffsetFetchRequestTopics(
        name=transaction.topic.name, topic_id=transaction.topic.topic_id, partition_indexes=(0, 1, 2)
    )
    for topics, require_stable in (((of_topic,), False), ((of_topic,), True), (None, True), (None, False)):
        asked = OffsetFetchRequestGroup(group_id=group, topics=topics)
        transaction.peer.ask(OffsetFetchRequest(groups=(asked,), require_stable=require_stable))


# --- WriteTxnMarkers -----------------------------------------------------------------------------------------------


@asked_in_every_state(ApiKey.WRITE_TXN_MARKERS, of_partitions=True)
def _write_markers(peer, make):
    transaction = make()
    producer_id, epoch = transaction.identity
    present = peer.broker.coordinator_epoch
    for label, markers in {
        "places that are not there": (
            transaction.marker(ABORT, 9, -1),
            transaction.marker(ABORT, 0, topic=transaction.topic._replace(name=peer.name("nobody"))),
        ),
        "no place": (transaction.marker(ABORT),),
        "an old epoch": (transaction.marker(COMMIT, 0, identity=Identity(producer_id, epoch - 1)),),
        "an old epoch in version 2": (
            transaction.marker(COMMIT, 0, identity=Identity(producer_id, epoch - 1), transaction_version=2),
        ),
        "the epoch in version 2": (transaction.marker(COMMIT, 0, transaction_version=2),),
        "another producer": (transaction.marker(ABORT, 0, 1, identity=Identity(peer.producer(), 0)),),
        "a newer coordinator": (transaction.marker(ABORT, 0, coordinator_epoch=present + 3),),
        "an old coordinator": (transaction.marker(ABORT, 0, 1, coordinator_epoch=present + 2),),
        "the next epoch in version 2": (
            transaction.marker(
                COMMIT,
                0,
                1,
                identity=Identity(producer_id, epoch + 1),
                transaction_version=2,
                coordinator_epoch=present + 3,
            ),
        ),
        "the same again, and the other outcome": (
            transaction.marker(
                COMMIT,
                1,
                identity=Identity(producer_id, epoch + 1),
                transaction_version=2,
                coordinator_epoch=present + 3,
            ),
            transaction.marker(
                ABORT,
                1,
                identity=Identity(producer_id, epoch + 1),
                transaction_version=1,
                coordinator_epoch=present + 3,
            ),
        ),
    }.items():
        peer.about(f"{peer.state}, {label}")
        peer.ask(markers_request(*markers))
        peer.ask(producers_request(transaction))
    peer.ask(transaction.describe_request())
    read(transaction)


def producers_request(transaction):
    asked = DescribeProducersTopic(name=transaction.topic.name, partition_indexes=(0, 1, 2))
    return DescribeProducersRequest(topics=(asked,))


# --- what can be seen ----------------------------------------------------------------------------------------------


@asked_in_every_state(ApiKey.DESCRIBE_TRANSACTIONS)
def _describe(peer, make):
    one, other = make(), make()
    nobody = peer.name("nobody")
    peer.ask(one.describe_request())
    peer.ask(DescribeTransactionsRequest(transactional_ids=(other.id, nobody, "", one.id, one.id)))


@asked_in_every_state(ApiKey.LIST_TRANSACTIONS)
def _list(peer, make):
    one = make()
    peer.ask(ListTransactionsRequest())
    for state_of in TransactionState:
        peer.ask(ListTransactionsRequest(state_filters=(state_of.kafka_name,)))
    for names in (("nobody",), ("", "Empty", "ongoing"), ("Empty", "Ongoing")):
        peer.ask(ListTransactionsRequest(state_filters=names))
    for producer_ids in ((one.identity.producer_id,), (NOBODYS_ID,), (-1, one.identity.producer_id)):
        peer.ask(ListTransactionsRequest(producer_id_filters=producer_ids))
    peer.ask(ListTransactionsRequest(producer_id_filters=(one.identity.producer_id,), state_filters=("Dead",)))
    if peer.version >= 1:
        for duration_ms in (-7, 0, 3_600_000, 2**62):
            peer.ask(ListTransactionsRequest(duration_filter=duration_ms))
    if peer.version >= 2:
        for pattern in ("", one.id, one.id[:-1], f"{one.id[:-1]}.*", ".*", "(", f"{one.id}|x", "[", "nobody"):
            peer.ask(ListTransactionsRequest(transactional_id_pattern=pattern))


@asked_in_every_state(ApiKey.DESCRIBE_PRODUCERS, of_partitions=True)
def _describe_producers(peer, make):
    peer.ask(producers_request(make()))


@asked_in_every_state(ApiKey.FETCH, "4+", of_partitions=True)
def _fetch(peer, make):
    transaction = make()
    for isolation in (UNCOMMITTED, COMMITTED):
        for offset in range(5):
            peer.ask(fetch_request(transaction.topic, offset, isolation_level=isolation))


@asked_in_every_state(ApiKey.LIST_OFFSETS, "2+", of_partitions=True)
def _list_offsets(peer, make):
    transaction = make()
    ask_times(transaction, -1, -2, -3, 0, 1_700_000_000_001)


def ask_times(transaction, *timestamps):
    """Takes down, for readers of both kinds, what is found at times."""
    state_of = transaction.peer.part
    for timestamp in timestamps:
        kind = {-1: "the end", -2: "the start", -3: "of the greatest time"}.get(timestamp, "by time")
        transaction.peer.about(f"{state_of}, {kind}" if state_of else kind)
        for isolation in (UNCOMMITTED, COMMITTED):
            part = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
            topic = ListOffsetsTopic(name=transaction.topic.name, partitions=(part,))
            transaction.peer.ask(ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=(topic,)))


def read(transaction):
    """Takes down what is in the first two partitions."""
    for partition in (0, 1):
        for isolation in (UNCOMMITTED, COMMITTED):
            transaction.peer.ask(
                fetch_request(transaction.topic, 0, partition=partition, isolation_level=isolation), 12
            )
