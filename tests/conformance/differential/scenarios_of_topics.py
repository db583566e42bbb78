"""Topics and the cluster: Metadata, CreateTopics and their like, and what a client asks first."""

from exactlog.core.model.ids import ZERO_UUID
from exactlog.core.protocol.api_keys import APIS, ApiKey
from exactlog.core.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from exactlog.core.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from exactlog.core.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from exactlog.core.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from exactlog.core.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from exactlog.core.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsTopic,
)
from exactlog.core.protocol.messages.find_coordinator import FindCoordinatorRequest
from exactlog.core.protocol.messages.init_producer_id import InitProducerIdRequest
from exactlog.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.conformance.differential.hostile import NOBODY
from tests.conformance.differential.scenario import scenario
from tests.conformance.differential.scenarios_of_configs import CONFIGS
from tests.conformance.differential.valid import topic_with_records
from tests.support.raw_client import batch_of, encode_request

# --- Metadata, DescribeTopicPartitions ----------------------------------------------------------------------------


@scenario(ApiKey.METADATA)
def all_topics(peer):
    peer.topic("one")
    peer.topic("other", partitions=3)
    peer.ask(MetadataRequest(topics=() if peer.version == 0 else None))


@scenario(ApiKey.METADATA, "1+")
def no_topics(peer):
    peer.ask(MetadataRequest(topics=()))


@scenario(ApiKey.METADATA)
def topics_good_and_bad(peer):
    names = (peer.topic("one").name, peer.topic("other").name, "bad/name", "", ".", "..", "x" * 250)
    if peer.version < 4:  # it may not be asked not to make topics
        names = names[:2]
    topics = tuple(MetadataRequestTopic(name=name) for name in names)
    peer.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False))


@scenario(ApiKey.METADATA, "4+")
def bad_names_that_may_be_made(peer):
    topics = tuple(MetadataRequestTopic(name=name) for name in ("bad/name", "", ".", "..", "x" * 250))
    peer.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=True))


@scenario(ApiKey.METADATA, "12+")
def topics_by_id(peer):
    topic = peer.topic()
    ids = (topic.topic_id, NOBODY, ZERO_UUID)
    for topic_id in ids[:2]:
        peer.ask(MetadataRequest(topics=(MetadataRequestTopic(topic_id=topic_id, name=None),)))
    peer.ask(MetadataRequest(topics=tuple(MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in ids[:2])))


@scenario(ApiKey.METADATA, "12+")
def topics_by_id_and_by_name(peer):
    one, other = peer.topic("one"), peer.topic("other")
    topics = (
        MetadataRequestTopic(topic_id=one.topic_id, name=None),
        MetadataRequestTopic(name=other.name),
        MetadataRequestTopic(name=peer.name("nobody")),
    )
    peer.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False))


@scenario(ApiKey.METADATA)
def a_deleted_topic(peer):
    topic = peer.topic()
    peer.delete_topic(topic)
    if peer.version >= 4:
        topics = (MetadataRequestTopic(name=topic.name),)
        peer.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False))
    if peer.version >= 12:
        peer.ask(MetadataRequest(topics=(MetadataRequestTopic(topic_id=topic.topic_id, name=None),)))


@scenario(ApiKey.METADATA, "8+")
def authorized_operations(peer):
    topics = (MetadataRequestTopic(name=peer.topic().name), MetadataRequestTopic(name="bad/name"))
    peer.ask(
        MetadataRequest(
            topics=topics,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=peer.version <= 10,
            include_topic_authorized_operations=True,
        )
    )


@scenario(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
def page_by_page(peer):
    names = [peer.topic(suffix, partitions=partitions).name for suffix, partitions in (("c", 1), ("a", 3), ("b", 2))]
    cursor = None
    for _ in range(5):
        answer = peer.ask(_partitions_of(*names, limit=2, cursor=cursor))
        peer.take_down("order", [topic.name[-1] for topic in answer.topics])
        cursor = answer.next_cursor
        if cursor is None:
            break


@scenario(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
def pages_of_topics_good_and_bad(peer):
    good = peer.topic(partitions=2).name
    peer.ask(_partitions_of(good, peer.name("nobody"), "bad/name"))
    peer.ask(_partitions_of(good, good))
    for limit in (0, -1, 1, 2**31 - 1):
        peer.ask(_partitions_of(good, limit=limit))


@scenario(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
def a_nameless_topic(peer):
    peer.ask(_partitions_of(peer.topic().name, ""))


@scenario(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
def pages_from_every_cursor(peer):
    first, second = peer.topic("a", partitions=2).name, peer.topic("b", partitions=2).name
    for topic_name, partition in (
        (first, 0),
        (first, 1),
        (first, 2),
        (second, 1),
        (peer.name("aa"), 0),
        (peer.name("z"), 0),
        (peer.name("0"), 1),
        (first, -1),
    ):
        peer.ask(_partitions_of(first, second, cursor=Cursor(topic_name=topic_name, partition_index=partition)))


def _partitions_of(*names, limit=2_000, cursor=None):
    return DescribeTopicPartitionsRequest(
        topics=tuple(DescribeTopicPartitionsTopic(name=name) for name in names),
        response_partition_limit=limit,
        cursor=cursor,
    )


# --- CreateTopics, DeleteTopics, CreatePartitions -----------------------------------------------------------------


def _create(*topics, validate_only=False):
    return CreateTopicsRequest(topics=topics, timeout_ms=10_000, validate_only=validate_only)


def _new(name, *, partitions=1, replicas=1, assignments=(), configs=()):
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=tuple(
            CreatableReplicaAssignment(partition_index=index, broker_ids=broker_ids)
            for index, broker_ids in assignments
        ),
        configs=tuple(CreatableTopicConfig(name=name, value=value) for name, value in configs),
    )


@scenario(ApiKey.CREATE_TOPICS)
def a_topic_that_is_there(peer):
    peer.ask(_create(_new(peer.topic().name, partitions=3)))


@scenario(ApiKey.CREATE_TOPICS)
def a_topic_whose_name_differs_in_dots(peer):
    peer.ask(_create(_new(peer.name("a.b"))))
    peer.ask(_create(_new(peer.name("a_b"))))
    peer.ask(_create(_new(peer.name("x.y")), _new(peer.name("x_y"))))


@scenario(ApiKey.CREATE_TOPICS)
def topics_with_every_number_of_partitions(peer):
    for partitions, replicas in ((0, 1), (-2, 1), (1, 0), (1, -2), (1, 2), (1, 32_767), (-1, -1), (3, -1), (-1, 1)):
        name = peer.name(f"topic{partitions}.{replicas}".replace("-", "m"))
        peer.ask(_create(_new(name, partitions=partitions, replicas=replicas)))


@scenario(ApiKey.CREATE_TOPICS)
def topics_with_assignments(peer):
    for index, assignments in enumerate(
        (
            ((0, (1,)), (1, (1,))),
            ((0, (1,)), (2, (1,))),
            ((1, (1,)),),
            ((0, (1,)), (0, (1,))),
            ((0, ()),),
            ((0, (7,)),),
            ((0, (1, 1)),),
            ((-1, (1,)),),
            ((0, (1,)), (1, ())),
        )
    ):
        peer.ask(_create(_new(peer.name(f"t{index}"), partitions=-1, replicas=-1, assignments=assignments)))
    peer.ask(_create(_new(peer.name("both"), partitions=1, replicas=1, assignments=((0, (1,)),))))


@scenario(ApiKey.CREATE_TOPICS)
def topics_with_settings_good_and_bad(peer):
    for index, configs in enumerate(CONFIGS):
        peer.ask(_create(_new(peer.name(f"t{index}"), configs=configs)))


@scenario(ApiKey.CREATE_TOPICS)
def a_policy_named_twice(peer):
    peer.ask(_create(_new(peer.name("topic"), configs=(("cleanup.policy", "delete,delete"),))))


@scenario(ApiKey.CREATE_TOPICS, "1+")
def topics_only_validated(peer):
    existing = peer.topic("existing").name
    name = peer.name("new")
    peer.ask(_create(_new(name, partitions=2), _new(existing), validate_only=True))
    peer.ask(MetadataRequest(topics=(MetadataRequestTopic(name=name),), allow_auto_topic_creation=False))
    peer.ask(_create(_new(name, partitions=0), validate_only=True))


@scenario(ApiKey.CREATE_TOPICS)
def topics_good_and_bad_in_one_request(peer):
    good = peer.name("good")
    peer.ask(_create(_new(good), _new("bad/name"), _new(peer.name("none"), partitions=0), _new(peer.topic().name)))


@scenario(ApiKey.DELETE_TOPICS)
def topics_deleted_good_and_bad(peer):
    names = (peer.topic("one").name, peer.topic("other").name, peer.name("nobody"), "bad/name", "")
    if peer.version < 6:
        peer.ask(DeleteTopicsRequest(topic_names=names, timeout_ms=10_000))
    else:
        states = tuple(DeleteTopicState(name=name) for name in names)
        peer.ask(DeleteTopicsRequest(topics=states, timeout_ms=10_000))


@scenario(ApiKey.DELETE_TOPICS)
def a_topic_deleted_twice(peer):
    topic = peer.topic()
    peer.delete_topic(topic)
    if peer.version < 6:
        peer.ask(DeleteTopicsRequest(topic_names=(topic.name,), timeout_ms=10_000))
    else:
        for state in (DeleteTopicState(name=topic.name), DeleteTopicState(topic_id=topic.topic_id)):
            peer.ask(DeleteTopicsRequest(topics=(state,), timeout_ms=10_000))


@scenario(ApiKey.DELETE_TOPICS, "6+")
def topics_deleted_by_id(peer):
    one, other, third = peer.topic("one"), peer.topic("other"), peer.topic("third")
    for states in (
        (DeleteTopicState(topic_id=one.topic_id), DeleteTopicState(topic_id=NOBODY)),
        (DeleteTopicState(name=other.name, topic_id=other.topic_id),),
        (DeleteTopicState(name=other.name), DeleteTopicState(topic_id=other.topic_id)),
        (DeleteTopicState(),),
        (DeleteTopicState(name=third.name), DeleteTopicState(name=third.name)),
    ):
        peer.ask(DeleteTopicsRequest(topics=states, timeout_ms=10_000))


@scenario(ApiKey.CREATE_PARTITIONS)
def more_partitions(peer):
    topic = peer.topic()
    peer.produce(topic, batch_of(b"a"))
    for count in (3, 3, 2, 0, -1, 4):
        peer.ask(_partitions(topic.name, count))
    peer.wait_for_leaders(topic)
    peer.ask(MetadataRequest(topics=(MetadataRequestTopic(name=topic.name),)))


@scenario(ApiKey.CREATE_PARTITIONS)
def more_partitions_where_they_are_assigned(peer):
    topic = peer.topic()
    for count, assignments in (
        (2, ()),
        (2, ((1,), (1,))),
        (2, ((7,),)),
        (2, ((1, 1),)),
        (2, ((),)),
        (3, ((1,),)),
        (2, ((1,),)),
        (4, ((1,), (1,))),
    ):
        peer.ask(_partitions(topic.name, count, assignments=assignments))


@scenario(ApiKey.CREATE_PARTITIONS)
def more_partitions_only_validated(peer):
    topic = peer.topic()
    for count in (2, 1, 0):
        peer.ask(_partitions(topic.name, count, validate_only=True))
    peer.ask(MetadataRequest(topics=(MetadataRequestTopic(name=topic.name),)))


@scenario(ApiKey.CREATE_PARTITIONS)
def more_partitions_of_topics_good_and_bad(peer):
    names = (peer.topic().name, peer.name("nobody"), "bad/name", "")
    topics = tuple(CreatePartitionsTopic(name=name, count=2, assignments=None) for name in names)
    peer.ask(CreatePartitionsRequest(topics=topics, timeout_ms=10_000))


def _partitions(name, count, *, assignments=None, validate_only=False):
    topic = CreatePartitionsTopic(
        name=name,
        count=count,
        assignments=None
        if assignments is None
        else tuple(CreatePartitionsAssignment(broker_ids=broker_ids) for broker_ids in assignments),
    )
    return CreatePartitionsRequest(topics=(topic,), timeout_ms=10_000, validate_only=validate_only)


# --- the cluster --------------------------------------------------------------------------------------------------


@scenario(ApiKey.DESCRIBE_LOG_DIRS)
def directories_of_topics_good_and_bad(peer):
    topic, empty = topic_with_records(peer), peer.topic("empty", partitions=2)
    topics = (
        DescribableLogDirTopic(topic=topic.name, partitions=(0, 1, -1)),
        DescribableLogDirTopic(topic=empty.name, partitions=(1,)),
        DescribableLogDirTopic(topic=peer.name("nobody"), partitions=(0,)),
        DescribableLogDirTopic(topic="bad/name", partitions=(0,)),
    )
    peer.ask(DescribeLogDirsRequest(topics=topics))
    peer.ask(DescribeLogDirsRequest(topics=None))
    peer.ask(DescribeLogDirsRequest(topics=()))


@scenario(ApiKey.FIND_COORDINATOR)
def coordinators_of_every_type(peer):
    for key_type in (0, 1, 2, 3, -1):
        if peer.version == 0 and key_type:
            continue
        if peer.version < 4:
            peer.ask(FindCoordinatorRequest(key=peer.name("key"), key_type=key_type))
        else:
            peer.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=(peer.name("key"), "")))


@scenario(ApiKey.INIT_PRODUCER_ID, "3+")
def a_producer_that_has_an_id(peer):
    producer = peer.producer()
    for producer_id, epoch in ((producer, 0), (producer, -1), (-1, 0), (producer, 32_767), (-2, -1), (2**62, 3)):
        peer.ask(
            InitProducerIdRequest(
                transactional_id=None,
                transaction_timeout_ms=60_000,
                producer_id=producer_id,
                producer_epoch=epoch,
            )
        )


@scenario(ApiKey.INIT_PRODUCER_ID)
def an_empty_transactional_id(peer):
    peer.ask(InitProducerIdRequest(transactional_id="", transaction_timeout_ms=60_000))


@scenario(ApiKey.API_VERSIONS)
def versions_that_nobody_has(peer):
    """Answered in version 0, so that any client can read it (KIP-511)."""
    if peer.version == 0:
        for version in (APIS[ApiKey.API_VERSIONS].versions.highest + 1, 100, 32_767):
            request = bytearray(encode_request(ApiVersionsRequest(), 4))
            request[2:4] = version.to_bytes(2, "big")
            peer.ask_bytes(bytes(request), ApiVersionsResponse, 0, 4)


@scenario(ApiKey.API_VERSIONS, "5+")
def the_cluster_and_the_node_that_are_meant(peer):
    """KIP-1242."""
    cluster_id = peer.broker.own["cluster_id"]
    for cluster, node in (
        (cluster_id, 1),
        (cluster_id, 7),
        ("another", 1),
        (cluster_id, -1),
        (None, 1),
        ("another", -1),
        (cluster_id, -2),
        (None, -2),
    ):
        peer.ask(
            ApiVersionsRequest(
                client_software_name="raw", client_software_version="1", cluster_id=cluster, node_id=node
            )
        )


@scenario(ApiKey.METADATA)
def a_version_that_nobody_has(peer):
    if peer.version == 0:
        request = bytearray(encode_request(MetadataRequest(topics=()), 12))
        request[2:4] = (100).to_bytes(2, "big")
        peer.ask_bytes(bytes(request), ApiVersionsResponse, 0, 4)


@scenario(ApiKey.METADATA)
def an_api_that_nobody_has(peer):
    if peer.version == 0:
        request = bytearray(encode_request(MetadataRequest(topics=()), 12))
        request[0:2] = (9_999).to_bytes(2, "big")
        peer.ask_bytes(bytes(request), ApiVersionsResponse, 0, 4)


@scenario(ApiKey.METADATA)
def a_request_cut_short_and_one_with_bytes_behind(peer):
    whole = encode_request(MetadataRequest(topics=()), peer.version)
    response, body = APIS[ApiKey.METADATA].response, 5 if peer.version >= 9 else 4
    for content in (whole[:-1], whole[:8], whole[:3], whole + b"\x00\x01"):
        peer.ask_bytes(content, response, peer.version, body)
