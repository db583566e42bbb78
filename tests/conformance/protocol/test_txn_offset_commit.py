"""TxnOffsetCommit: a group's offsets that count with the transaction, and who may write them, in every version."""

import itertools

import pytest

from exactlog.core.model.authorization import Operation, ResourceType
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from exactlog.core.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from exactlog.core.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from exactlog.testing import Broker
from tests.support.denying_authorizer import DenyingAuthorizer, broker_with
from tests.support.raw_client import RawClient, Topic
from tests.support.raw_groups import (
    Member,
    commit,
    delete_group,
    delete_offset,
    describe,
    fetch_all_offsets,
    fetch_offset,
    form_group,
)
from tests.support.raw_transactions import ABORT, COMMIT, TransactionalProducer

NONE = ErrorCode.NONE
NUMBERS = itertools.count(1)
VERSIONS = range(7)
ADDS_GROUP_SINCE = 5
STABLE_SINCE = 7


@pytest.fixture
def group_id():
    return f"in-transactions-{next(NUMBERS)}"


@pytest.fixture
def producer(raw, topic):
    made = TransactionalProducer(raw, topic.name)
    assert made.init() is NONE
    return made


def offsets_request(producer, group_id, topic, *parts, version=5, **fields):
    """Each part is (partition, offset) or (partition, offset, text)."""
    partitions = tuple(
        TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=text[0] if text else ""
        )
        for index, offset, *text in parts
    )
    named = {"topic_id": topic.topic_id} if version >= 6 else {"name": topic.name}
    return TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        group_id=group_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=(TxnOffsetCommitRequestTopic(**named, partitions=partitions),),
        **fields,
    )


def errors_of(response):
    return [ErrorCode(part.error_code) for topic in response.topics for part in topic.partitions]


def commit_offsets(raw, producer, group_id, topic, *parts, version=5, **fields):
    return errors_of(raw.ask(offsets_request(producer, group_id, topic, *parts, version=version, **fields), version))


def offset_of(raw, group_id, topic, **fields):
    """What is told of partition 0: the error, the offset."""
    found = fetch_offset(raw, group_id, topic, **fields)
    return ErrorCode(found.error_code), found.committed_offset


# --- pending, and its end ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_offsets_count_once_the_transaction_commits(raw, topic, group_id, producer, version):
    if version < ADDS_GROUP_SINCE:
        assert producer.add_offsets(group_id) is NONE
    assert commit_offsets(raw, producer, group_id, topic, (0, 42, "text"), version=version) == [NONE]
    assert offset_of(raw, group_id, topic) == (NONE, -1)

    assert producer.end(COMMIT) is NONE

    found = fetch_offset(raw, group_id, topic, require_stable=True)
    while found.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:  # the answer leaves before the markers are there
        found = fetch_offset(raw, group_id, topic, require_stable=True)
    assert (found.committed_offset, found.metadata) == (42, "text")


def test_offsets_of_an_aborted_transaction_were_never_there(raw, topic, group_id, producer):
    commit(raw, group_id, topic, 5)
    commit_offsets(raw, producer, group_id, topic, (0, 42))
    producer.end(ABORT)
    while offset_of(raw, group_id, topic, require_stable=True)[0] is ErrorCode.UNSTABLE_OFFSET_COMMIT:
        pass
    assert offset_of(raw, group_id, topic) == (NONE, 5)


@pytest.mark.parametrize("version", range(11))
def test_who_asks_for_stable_offsets_is_told_where_there_are_none(raw, topic, group_id, producer, version):
    commit(raw, group_id, topic, 5)
    commit_offsets(raw, producer, group_id, topic, (0, 42))
    is_asked = version >= STABLE_SINCE
    expected = (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1) if is_asked else (NONE, 5)
    assert offset_of(raw, group_id, topic, version=version, require_stable=is_asked) == expected
    assert offset_of(raw, group_id, topic, version=version) == (NONE, 5)


def test_who_asks_for_all_offsets_is_told_which_are_not_stable(raw, topic, group_id, producer):
    commit(raw, group_id, topic, 5)
    commit_offsets(raw, producer, group_id, topic, (0, 42))
    group = OffsetFetchRequestGroup(group_id=group_id, topics=None)
    (told,) = raw.ask(OffsetFetchRequest(groups=(group,), require_stable=True), 9).groups
    ((part,),) = [found.partitions for found in told.topics]
    assert (part.error_code, part.committed_offset) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert fetch_all_offsets(raw, group_id) == {(topic.name, 0): 5}


def test_only_the_partitions_of_the_transaction_are_unstable(raw, group_id, producer):
    topic = raw.create_topic(partitions=2)
    commit(raw, group_id, topic, 7, partition=1)
    commit_offsets(raw, producer, group_id, topic, (0, 42))
    asked = OffsetFetchRequestTopics(name=topic.name, partition_indexes=(0, 1))
    group = OffsetFetchRequestGroup(group_id=group_id, topics=(asked,))
    (told,) = raw.ask(OffsetFetchRequest(groups=(group,), require_stable=True), 9).groups
    assert [(part.error_code, part.committed_offset) for part in told.topics[0].partitions] == [
        (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1),
        (NONE, 7),
    ]


def test_a_plain_commit_in_between_wins(raw, topic, group_id, producer):
    commit_offsets(raw, producer, group_id, topic, (0, 42))
    commit(raw, group_id, topic, 5)
    producer.end(COMMIT)
    while offset_of(raw, group_id, topic, require_stable=True)[0] is ErrorCode.UNSTABLE_OFFSET_COMMIT:
        pass
    assert offset_of(raw, group_id, topic) == (NONE, 5)


def test_pending_offsets_survive_a_restart_and_count_after_it(tmp_path):
    with Broker(tmp_path) as broker:
        with RawClient(broker.port) as raw:
            topic = raw.create_topic()
            producer = TransactionalProducer(raw, "t")
            assert producer.init() is NONE
            commit(raw, "g", topic, 5)
            assert commit_offsets(raw, producer, "g", topic, (0, 42)) == [NONE]
        broker.kill()
        broker.restart()
        with RawClient(broker.port) as raw:
            assert offset_of(raw, "g", topic) == (NONE, 5)
            assert offset_of(raw, "g", topic, require_stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
            producer.raw = raw
            assert producer.end(COMMIT) is NONE
            while offset_of(raw, "g", topic, require_stable=True)[0] is ErrorCode.UNSTABLE_OFFSET_COMMIT:
                pass
            assert offset_of(raw, "g", topic) == (NONE, 42)


# --- the transaction --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (0, ErrorCode.INVALID_TXN_STATE),
        (3, ErrorCode.INVALID_TXN_STATE),
        (4, ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
def test_a_group_that_is_not_part_of_the_transaction_is_refused(raw, topic, producer, version, expected):
    """As AddOffsetsToTxn would have it."""
    group_id = f"{topic.name}-readers"
    assert producer.add((topic, 0)) == [NONE]
    assert commit_offsets(raw, producer, group_id, topic, (0, 42), version=version) == [expected]
    assert offset_of(raw, group_id, topic, require_stable=True) == (NONE, -1)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_producer_that_was_fenced_is_refused(raw, topic, group_id, producer, version):
    assert TransactionalProducer(raw, producer.transactional_id).init() is NONE
    refused = commit_offsets(raw, producer, group_id, topic, (0, 42), version=version)
    assert refused == [ErrorCode.INVALID_PRODUCER_EPOCH]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_producer_of_another_id_is_refused(raw, topic, group_id, producer, version):
    producer.become(producer.producer_id + 1_000_000, 0)
    refused = commit_offsets(raw, producer, group_id, topic, (0, 42), version=version)
    assert refused == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]


def test_a_fenced_producer_whose_offsets_were_dropped_brings_none_back(raw, topic, group_id, producer):
    commit_offsets(raw, producer, group_id, topic, (0, 42))
    successor = TransactionalProducer(raw, producer.transactional_id)
    while successor.init() is ErrorCode.CONCURRENT_TRANSACTIONS:
        pass
    assert commit_offsets(raw, producer, group_id, topic, (0, 43)) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert offset_of(raw, group_id, topic, require_stable=True) == (NONE, -1)
    assert commit_offsets(raw, successor, group_id, topic, (0, 44)) == [NONE]


def test_transactions_that_follow_each_other_at_once_keep_their_order(raw, topic, group_id, producer):
    for number in range(20):
        assert commit_offsets(raw, producer, group_id, topic, (0, number)) == [NONE]
        assert producer.end(COMMIT if number % 3 else ABORT) is NONE
    while offset_of(raw, group_id, topic, require_stable=True)[0] is ErrorCode.UNSTABLE_OFFSET_COMMIT:
        pass
    assert offset_of(raw, group_id, topic) == (NONE, 19)


# --- the group --------------------------------------------------------------------------------------------------


def test_only_members_of_the_generation_commit_for_it(raw, connect, topic, group_id, producer):
    member = Member(connect(), group_id)
    form_group(member)
    right = {"generation_id_or_member_epoch": member.generation_id, "member_id": member.member_id}
    for fields, expected in [
        (right, NONE),
        (right | {"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        (right | {"generation_id_or_member_epoch": member.generation_id + 1}, ErrorCode.ILLEGAL_GENERATION),
        (right | {"group_instance_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ]:
        assert commit_offsets(raw, producer, group_id, topic, (0, 42), **fields) == [expected]


@pytest.mark.parametrize(
    ("version", "expected"), [(3, ErrorCode.ILLEGAL_GENERATION), (6, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_a_generation_of_no_group_is_refused(raw, topic, producer, version, expected):
    group_id = f"{topic.name}-readers"
    producer.add_offsets(group_id)
    fields = {"generation_id_or_member_epoch": 3, "member_id": "m"}
    assert commit_offsets(raw, producer, group_id, topic, (0, 42), version=version, **fields) == [expected]


def test_a_group_has_a_name(raw, topic, producer):
    assert commit_offsets(raw, producer, "", topic, (0, 42)) == [ErrorCode.INVALID_GROUP_ID]


def test_each_partition_has_its_own_error(raw, topic, group_id, producer):
    """B061 (franz-go 60b88eaa), one of six: offsets in an unknown partition were taken."""
    parts = ((0, 42), (1, 43), (0, 44, "x" * 4_097))
    errors = commit_offsets(raw, producer, group_id, topic, *parts)
    assert errors == [NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OFFSET_METADATA_TOO_LARGE]
    nowhere = Topic("no-such-topic", topic.topic_id)
    assert commit_offsets(raw, producer, group_id, nowhere, (0, 1)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_topic_id_that_is_not_known_is_refused(raw, topic, group_id, producer):
    nowhere = Topic(topic.name, type(topic.topic_id)(int=7))
    assert commit_offsets(raw, producer, group_id, nowhere, (0, 1), version=6) == [ErrorCode.UNKNOWN_TOPIC_ID]


def test_an_operator_can_take_pending_offsets_away(raw, topic, group_id, producer):
    commit_offsets(raw, producer, group_id, topic, (0, 42))
    assert delete_offset(raw, group_id, topic) is NONE
    assert offset_of(raw, group_id, topic, require_stable=True) == (NONE, -1)
    commit_offsets(raw, producer, group_id, topic, (0, 43))
    assert delete_group(raw, group_id) is NONE
    assert producer.end(COMMIT) is NONE
    assert offset_of(raw, group_id, topic, require_stable=True) == (NONE, -1)
    assert describe(raw, group_id).group_state == "Dead"


def test_offsets_that_are_pending_in_a_deleted_topic_go_with_it(raw, group_id, producer):
    topic = raw.create_topic()
    commit_offsets(raw, producer, group_id, topic, (0, 42))
    raw.ask(DeleteTopicsRequest(topics=(DeleteTopicState(name=topic.name),)), 6)
    again = raw.create_topic(topic.name)
    assert producer.end(COMMIT) is NONE
    while offset_of(raw, group_id, again, require_stable=True)[0] is ErrorCode.UNSTABLE_OFFSET_COMMIT:
        pass
    assert offset_of(raw, group_id, again) == (NONE, -1)


# --- who may ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "resource", "expected"),
    [
        (Operation.WRITE, ResourceType.TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (Operation.READ, ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (Operation.READ, ResourceType.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ],
)
def test_who_may_not_is_refused(operation, resource, expected):
    authorizer = DenyingAuthorizer()
    with broker_with(authorizer) as broker, RawClient(broker.port) as raw:
        topic = raw.create_topic()
        producer = TransactionalProducer(raw, "t")
        assert producer.init() is NONE
        authorizer.deny(operation, resource)
        for version in VERSIONS:
            assert commit_offsets(raw, producer, "g", topic, (0, 42), version=version) == [expected]


# --- a coordinator that is away ---------------------------------------------------------------------------------


def test_a_coordinator_that_is_away_says_so():
    with Broker(config={"in.memory": True}) as broker, RawClient(broker.port) as raw:
        topic = raw.create_topic()
        producer = TransactionalProducer(raw, "t")
        assert producer.init() is NONE
        commit(raw, "g", topic, 5)
        services = broker._node.services
        services.transactions.resign()
        assert commit_offsets(raw, producer, "g", topic, (0, 42), version=6) == [ErrorCode.NOT_COORDINATOR]
        services.groups.resign()
        assert commit_offsets(raw, producer, "g", topic, (0, 43)) == [ErrorCode.NOT_COORDINATOR]
