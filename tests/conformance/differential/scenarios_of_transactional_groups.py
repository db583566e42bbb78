"""Offsets of groups that wait for transactions: who may commit them, what they keep alive, which of them wins."""

from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.messages.delete_groups import DeleteGroupsRequest
from exactlog.core.protocol.messages.describe_groups import DescribeGroupsRequest
from exactlog.core.protocol.messages.list_groups import ListGroupsRequest
from exactlog.core.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.conformance.differential.scenario import scenario
from tests.conformance.differential.scenarios_of_transactions import (
    read_offsets,
)
from tests.conformance.differential.transaction import ABORT, COMMIT, Transaction

LONG_MS = 600_000
"""A timeout that no restart takes."""


def pending(peer, *, plain=None):
    """A group with an offset that waits for a transaction, and maybe one that does not."""
    transaction, group = Transaction(peer, timeout_ms=LONG_MS).init(), peer.name("group")
    if plain is not None:
        peer.commit(group, transaction.topic, plain, partition=1)
    return transaction.commit_offset(group, 7), group


@scenario(ApiKey.DELETE_GROUPS)
def groups_with_pending_offsets_deleted(peer):
    for number, plain in enumerate((None, 3)):
        peer.begin(f"{number} offsets that wait for nothing")
        transaction, group = pending(peer, plain=plain)
        peer.ask(DescribeGroupsRequest(groups=(group,)))
        peer.ask(DeleteGroupsRequest(groups_names=(group,)))
        read_offsets(transaction, group)
        transaction.end(COMMIT)
        read_offsets(transaction, group)
        peer.ask(DescribeGroupsRequest(groups=(group,)))
        peer.ask(DeleteGroupsRequest(groups_names=(group,)))
        read_offsets(transaction, group)


@scenario(ApiKey.LIST_GROUPS)
def groups_with_pending_offsets_listed(peer):
    transaction, group = pending(peer)
    peer.ask(ListGroupsRequest())
    peer.ask(DescribeGroupsRequest(groups=(group,)))
    transaction.end(ABORT)
    peer.ask(ListGroupsRequest())
    peer.ask(DescribeGroupsRequest(groups=(group,)))


@scenario(ApiKey.OFFSET_DELETE)
def pending_offsets_deleted(peer):
    transaction, group = pending(peer, plain=3)
    parts = tuple(OffsetDeleteRequestPartition(partition_index=index) for index in (0, 1, 2))
    of_topic = OffsetDeleteRequestTopic(name=transaction.topic.name, partitions=parts)
    peer.ask(OffsetDeleteRequest(group_id=group, topics=(of_topic,)))
    read_offsets(transaction, group)
    transaction.end(COMMIT)
    read_offsets(transaction, group)


@scenario(ApiKey.TXN_OFFSET_COMMIT)
def a_plain_commit_while_one_ispending(peer):
    for outcome in (COMMIT, ABORT):
        peer.begin(f"commit {outcome}")
        transaction, group = pending(peer)
        peer.commit(group, transaction.topic, 5)
        read_offsets(transaction, group)
        transaction.end(outcome)
        read_offsets(transaction, group)


@scenario(ApiKey.TXN_OFFSET_COMMIT)
def two_transactions_commit_the_same_partition(peer):
    one, group = pending(peer)
    other = Transaction(peer, "other").init().commit_offset(group, 9)
    for transaction, outcome in ((other, COMMIT), (one, COMMIT)):
        transaction.end(outcome)
        read_offsets(transaction, group)


@scenario(ApiKey.TXN_OFFSET_COMMIT)
def an_offset_that_is_committed_twice_in_a_transaction(peer):
    transaction, group = pending(peer)
    transaction.commit_offset(group, 3)
    read_offsets(transaction, group)
    transaction.end(COMMIT)
    read_offsets(transaction, group)


@scenario(ApiKey.TXN_OFFSET_COMMIT, "3+")
def who_may_commit_with_a_transaction(peer):
    transaction, member = Transaction(peer).init(), peer.member(peer.name("group"), instance="one")
    transaction.add_offsets(member.group)
    for generation, member_id, instance in (
        (member.generation, member.member_id, "one"),
        (member.generation, member.member_id, None),
        (member.generation, member.member_id, "other"),
        (member.generation, "nobody", "one"),
        (member.generation + 1, member.member_id, "one"),
        (member.generation - 1, member.member_id, None),
        (-1, member.member_id, None),
        (-1, "", None),
        (member.generation, "", None),
        (member.generation, "nobody", None),
        (-2, "", None),
    ):
        fields = {
            "generation_id_or_member_epoch": generation,
            "member_id": member_id,
            "group_instance_id": instance,
        }
        peer.ask(transaction.offsets_request(member.group, (0, 3), **fields))


@scenario(ApiKey.TXN_OFFSET_COMMIT, "3+")
def a_transactional_commit_before_the_assignment(peer):
    transaction, group = Transaction(peer).init(), peer.name("group")
    joined = peer.joined(group)
    transaction.add_offsets(group)
    fields = {"generation_id_or_member_epoch": joined.generation_id, "member_id": joined.member_id}
    peer.ask(transaction.offsets_request(group, (0, 3), **fields))
    transaction.end(COMMIT)
    read_offsets(transaction, group)
