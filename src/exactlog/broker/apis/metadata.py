"""Metadata (key 3), versions 0 to 13.

Does: tells the brokers, the controller and the topics asked for (by name, by id, or all of them); creates a missing
topic when the client and `auto.create.topics.enable` allow it, and answers once it can be used.
Errors: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INVALID_TOPIC_EXCEPTION, INVALID_REQUEST (an id where the version
takes none), KAFKA_STORAGE_ERROR.
Versions: 0 takes an empty list as all topics; 1 null for all; 4 auto-creation can be declined; 10 topic ids; 12 by id.
Not done: authorized operations are not computed; the fields hold Kafka's "not asked" value.
"""

from collections.abc import Coroutine
from uuid import UUID

from exactlog.broker.request_context import RequestContext
from exactlog.broker.topic_creation import create_topic
from exactlog.broker.topic_registry import Topic
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import KafkaError
from exactlog.core.model.ids import ZERO_UUID
from exactlog.core.model.limits import TOPICS_AUTO_CREATED_PER_REQUEST_MAX
from exactlog.core.model.topic_name import INTERNAL_TOPICS, reason_name_is_invalid
from exactlog.core.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

BY_ID_SINCE = 12
Found = dict[str, ErrorCode]


def handle(
    request: MetadataRequest, context: RequestContext
) -> MetadataResponse | Coroutine[None, None, MetadataResponse]:
    """Answers with what there is, after creating what is missing and may be created."""
    missing = _names_to_create(request, context)
    if missing:
        return _create_and_answer(request, context, missing)
    return _answer(request, context, {})


async def _create_and_answer(request: MetadataRequest, context: RequestContext, missing: list[str]) -> MetadataResponse:
    errors: Found = {}
    for name in missing:
        try:
            await create_topic(context.broker, name)
        except KafkaError as error:
            if error.error_code is not ErrorCode.TOPIC_ALREADY_EXISTS:  # another client was faster
                errors[name] = error.error_code
    return _answer(request, context, errors)


def _names_to_create(request: MetadataRequest, context: RequestContext) -> list[str]:
    if not (request.topics and request.allow_auto_topic_creation and context.broker.config.auto_create_topics_enable):
        return []
    names = dict.fromkeys(
        topic.name for topic in request.topics if topic.name is not None and topic.topic_id == ZERO_UUID
    )
    known = context.broker.topics
    missing = [name for name in names if known.by_name(name) is None and reason_name_is_invalid(name) is None]
    return missing[:TOPICS_AUTO_CREATED_PER_REQUEST_MAX]


def _answer(request: MetadataRequest, context: RequestContext, errors: Found) -> MetadataResponse:
    broker = context.broker
    address = broker.advertised()
    if request.topics is None or (context.api_version == 0 and not request.topics):
        topics = tuple(_describe(topic, context) for topic in broker.topics.topics())
    else:
        topics = tuple(_look_up(asked, context, errors) for asked in dict.fromkeys(request.topics))
    return MetadataResponse(
        brokers=(MetadataResponseBroker(node_id=broker.node_id, host=address.host, port=address.port),),
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        topics=topics,
    )


def _look_up(asked: MetadataRequestTopic, context: RequestContext, errors: Found) -> MetadataResponseTopic:
    topics = context.broker.topics
    if context.api_version < BY_ID_SINCE and (asked.name is None or asked.topic_id != ZERO_UUID):
        return _unknown(asked.name or "", ErrorCode.INVALID_REQUEST, asked.topic_id)
    if asked.name is None:
        topic = topics.by_id(asked.topic_id)
        return _describe(topic, context) if topic else _unknown(None, ErrorCode.UNKNOWN_TOPIC_ID, asked.topic_id)
    topic = topics.by_name(asked.name)
    if topic is not None:
        return _describe(topic, context)
    if reason_name_is_invalid(asked.name) is not None:
        return _unknown(asked.name, ErrorCode.INVALID_TOPIC_EXCEPTION)
    return _unknown(asked.name, errors.get(asked.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))


def _unknown(name: str | None, error: ErrorCode, topic_id: UUID = ZERO_UUID) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=error, name=name, topic_id=topic_id)


def _describe(topic: Topic, context: RequestContext) -> MetadataResponseTopic:
    node = (context.broker.node_id,)
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=tuple(
            MetadataResponsePartition(
                partition_index=index,
                leader_id=context.broker.node_id,
                leader_epoch=context.broker.leader_epoch,
                replica_nodes=node,
                isr_nodes=node,
            )
            for index in range(topic.partition_count)
        ),
    )
