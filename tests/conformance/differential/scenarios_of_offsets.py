"""Offsets of groups: OffsetCommit, OffsetFetch, OffsetDelete."""

from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.messages.describe_groups import DescribeGroupsRequest
from exactlog.core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from exactlog.core.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from exactlog.core.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.conformance.differential.hostile import NOBODY
from tests.conformance.differential.scenario import scenario


def _commit(group, topic, *partitions, generation=-1, member_id="", instance=None, **fields):
    """`partitions` are pairs of a partition and its offset."""
    parts = tuple(
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, **fields)
        for index, offset in partitions
    )
    of_topic = OffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id, partitions=parts)
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance,
        topics=(of_topic,),
    )


def _offsets(peer, group, topic, *partitions, **fields):
    """The question for offsets in the version it goes out in; `topic` None is all of them."""
    version = peer.version_of(OffsetFetchRequest())
    if version < 8:
        topics = None if topic is None else (OffsetFetchRequestTopic(name=topic.name, partition_indexes=partitions),)
        return OffsetFetchRequest(group_id=group, topics=topics, **fields)
    topics = None
    if topic is not None:
        topics = (OffsetFetchRequestTopics(name=topic.name, topic_id=topic.topic_id, partition_indexes=partitions),)
    return OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group, topics=topics),), **fields)


@scenario(ApiKey.OFFSET_COMMIT)
def offsets_committed_and_read(peer):
    topic, group = peer.topic(partitions=3), peer.name("group")
    peer.ask(_commit(group, topic, (0, 7), (1, 0), (2, -1), committed_metadata="noted"))
    peer.ask(_offsets(peer, group, topic, 0, 1, 2))
    peer.ask(_commit(group, topic, (0, 5), committed_metadata=None))
    peer.ask(_offsets(peer, group, topic, 0, 1, 2))
    peer.ask(_offsets(peer, group, None))


@scenario(ApiKey.OFFSET_COMMIT)
def offsets_of_partitions_good_and_bad(peer):
    topic, group = peer.topic(partitions=2), peer.name("group")
    peer.ask(_commit(group, topic, (0, 1), (2, 1), (-1, 1), (1, -7), (1, 2**62)))
    peer.ask(_commit(group, topic._replace(name=peer.name("nobody"), topic_id=NOBODY), (0, 1)))
    peer.ask(_commit("", topic, (0, 1)))
    peer.ask(_offsets(peer, group, topic, 0, 1, 2))


@scenario(ApiKey.OFFSET_COMMIT)
def metadata_of_every_length(peer):
    topic, group = peer.topic(), peer.name("group")
    for length in (0, 4_095, 4_096, 4_097):
        peer.ask(_commit(group, topic, (0, length), committed_metadata="m" * length))
    peer.ask(_commit(group, topic, (0, 9), committed_metadata="å" * 4_096))
    peer.ask(_offsets(peer, group, topic, 0))


@scenario(ApiKey.OFFSET_COMMIT)
def who_may_commit(peer):
    topic = peer.topic()
    member = peer.member(peer.name("group"))
    for generation, member_id in (
        (member.generation, member.member_id),
        (member.generation + 1, member.member_id),
        (member.generation - 1, member.member_id),
        (-1, member.member_id),
        (-1, ""),
        (member.generation, ""),
        (member.generation, "nobody"),
        (-2, ""),
    ):
        peer.ask(_commit(member.group, topic, (0, 1), generation=generation, member_id=member_id))
    for generation, member_id in ((0, "nobody"), (-1, "nobody"), (1, ""), (-1, "")):
        peer.ask(_commit(peer.name("empty"), topic, (0, 1), generation=generation, member_id=member_id))


@scenario(ApiKey.OFFSET_COMMIT)
def a_commit_before_the_assignment(peer):
    topic, group = peer.topic(), peer.name("group")
    joined = peer.joined(group)
    peer.ask(_commit(group, topic, (0, 1), generation=joined.generation_id, member_id=joined.member_id))


@scenario(ApiKey.OFFSET_COMMIT, "7+")
def a_static_member_commits(peer):
    topic, member = peer.topic(), peer.member(peer.name("group"), instance="one")
    for member_id, instance in ((member.member_id, "one"), ("nobody", "one"), (member.member_id, "other")):
        peer.ask(
            _commit(member.group, topic, (0, 1), generation=member.generation, member_id=member_id, instance=instance)
        )


@scenario(ApiKey.OFFSET_COMMIT, "6+")
def offsets_with_an_epoch(peer):
    topic, group = peer.topic(), peer.name("group")
    for epoch in (peer.epoch(), peer.epoch(5), -1):
        peer.ask(_commit(group, topic, (0, 1), committed_leader_epoch=epoch))
        peer.ask(_offsets(peer, group, topic, 0))


@scenario(ApiKey.OFFSET_FETCH)
def offsets_that_nobody_committed(peer):
    topic, group = peer.topic(partitions=2), peer.name("group")
    peer.ask(_offsets(peer, peer.name("nobody"), topic, 0, 1, 9, -1))
    peer.commit(group, topic, 3)
    peer.ask(_offsets(peer, group, topic, 0, 1, 9, -1))
    peer.ask(_offsets(peer, group, topic._replace(name=peer.name("nobody"), topic_id=NOBODY), 0))
    peer.ask(_offsets(peer, "", topic, 0))
    peer.ask(_offsets(peer, group, topic))


@scenario(ApiKey.OFFSET_FETCH, "2+")
def all_offsets_of_a_group(peer):
    one, other, group = peer.topic("one", partitions=2), peer.topic("other"), peer.name("group")
    peer.ask(_offsets(peer, group, None))
    for topic, partition in ((one, 1), (one, 0), (other, 0)):
        peer.commit(group, topic, 3, partition=partition)
    peer.ask(_offsets(peer, group, None))


@scenario(ApiKey.OFFSET_FETCH, "7+")
def stable_offsets(peer):
    topic, group = peer.topic(), peer.name("group")
    peer.commit(group, topic, 3)
    peer.ask(_offsets(peer, group, topic, 0, require_stable=True))


@scenario(ApiKey.OFFSET_FETCH, "8+")
def offsets_of_many_groups(peer):
    topic, one, other = peer.topic(), peer.name("one"), peer.name("other")
    peer.commit(one, topic, 3)
    peer.commit(other, topic, 4)
    of_topic = OffsetFetchRequestTopics(name=topic.name, topic_id=topic.topic_id, partition_indexes=(0,))
    groups = tuple(
        OffsetFetchRequestGroup(group_id=group, topics=topics)
        for group, topics in ((one, (of_topic,)), (other, None), (peer.name("nobody"), None), ("", (of_topic,)))
    )
    peer.ask(OffsetFetchRequest(groups=groups))
    peer.ask(OffsetFetchRequest(groups=()))


@scenario(ApiKey.OFFSET_FETCH, "9+")
def offsets_for_a_member(peer):
    topic, member = peer.topic(), peer.member(peer.name("group"))
    of_topic = OffsetFetchRequestTopics(name=topic.name, topic_id=topic.topic_id, partition_indexes=(0,))
    for member_id, epoch in ((member.member_id, member.generation), ("nobody", 7), (None, 3), (member.member_id, -1)):
        group = OffsetFetchRequestGroup(
            group_id=member.group, member_id=member_id, member_epoch=epoch, topics=(of_topic,)
        )
        peer.ask(OffsetFetchRequest(groups=(group,)))


@scenario(ApiKey.OFFSET_FETCH)
def offsets_of_a_deleted_topic(peer):
    topic, group = peer.topic(), peer.name("group")
    peer.commit(group, topic, 3)
    peer.delete_topic(topic)
    peer.until(lambda: _is_uncommitted(peer, group, topic))
    peer.ask(_offsets(peer, group, topic, 0))


def _is_uncommitted(peer, group, topic):
    of_topic = OffsetFetchRequestTopic(name=topic.name, partition_indexes=(0,))
    answer = peer.quietly(OffsetFetchRequest(group_id=group, topics=(of_topic,)), 5)
    return answer.topics[0].partitions[0].committed_offset == -1


@scenario(ApiKey.OFFSET_DELETE)
def offsets_deleted(peer):
    topic, group = peer.topic(partitions=2), peer.name("group")
    peer.commit(group, topic, 3)
    peer.commit(group, topic, 4, partition=1)
    for of, partitions in ((topic, (0, 7)), (topic, (0,)), (topic._replace(name=peer.name("nobody")), (0,))):
        peer.ask(_delete_offsets(group, of, *partitions))
    peer.ask(_offsets(peer, group, topic, 0, 1))
    peer.ask(_delete_offsets(peer.name("none"), topic, 0))
    peer.ask(_delete_offsets(group, topic, 1))
    peer.ask(DescribeGroupsRequest(groups=(group,)))


@scenario(ApiKey.OFFSET_DELETE)
def offsets_deleted_of_a_group_that_lives(peer):
    topic, other = peer.topic(), peer.topic("other")
    member = peer.member(peer.name("group"))
    for of in (topic, other):
        peer.quietly(_commit(member.group, of, (0, 3), generation=member.generation, member_id=member.member_id), 9)
    peer.ask(_delete_offsets(member.group, topic, 0))


def _delete_offsets(group, topic, *partitions):
    parts = tuple(OffsetDeleteRequestPartition(partition_index=index) for index in partitions)
    return OffsetDeleteRequest(group_id=group, topics=(OffsetDeleteRequestTopic(name=topic.name, partitions=parts),))
