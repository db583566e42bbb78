"""Metadata (key 3), versions 0 to 13.

Does: tells the brokers, the controller and the topics asked for (by name, by id, or all of them); creates a missing
topic when the client and `auto.create.topics.enable` allow it, and answers once it can be used.
Where ids are given, names are not looked at, as in Kafka. Topics that may not be described are left out of all topics.
Errors: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INVALID_TOPIC_EXCEPTION, TOPIC_AUTHORIZATION_FAILED,
KAFKA_STORAGE_ERROR; INVALID_REQUEST (an id where the version takes none), which refuses the whole request.
Versions: 0 takes an empty list as all topics; 1 null for all; 4 auto-creation can be declined; 8 authorized operations
(KIP-430), of the cluster until 10; 10 topic ids; 12 by id.
"""

from collections.abc import Coroutine, Iterable
from uuid import UUID

from exactlog.broker.authorized_operations import NOT_ASKED, authorized_operations, cluster_authorized_operations
from exactlog.broker.request_context import RequestContext
from exactlog.broker.topic_creation import create_topic
from exactlog.broker.topic_registry import Topic
from exactlog.core.model.authorization import CLUSTER_NAME, Operation, ResourceType
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import KafkaError
from exactlog.core.model.ids import ZERO_UUID
from exactlog.core.model.limits import TOPICS_AUTO_CREATED_PER_REQUEST_MAX
from exactlog.core.model.topic_name import is_internal, reason_name_is_invalid
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
    if context.api_version < BY_ID_SINCE and any(
        topic.name is None or topic.topic_id != ZERO_UUID for topic in request.topics or ()
    ):
        return _refuse(request)
    missing = _names_to_create(request, context)
    if missing:
        return _create_and_answer(request, context, missing)
    return _answer(request, context, {})


def _refuse(request: MetadataRequest) -> MetadataResponse:
    code = ErrorCode.INVALID_REQUEST
    return MetadataResponse(
        topics=tuple([_unknown(topic.name or "", code, topic.topic_id) for topic in request.topics or ()]),
        error_code=code,
    )


async def _create_and_answer(request: MetadataRequest, context: RequestContext, missing: list[str]) -> MetadataResponse:
    errors: Found = {}
    for name in missing:
        try:
            if not _may_create(name, context):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            await create_topic(context.broker, name)
        except KafkaError as error:
            if error.error_code is not ErrorCode.TOPIC_ALREADY_EXISTS:  # another client was faster
                errors[name] = error.error_code
    return _answer(request, context, errors)


def _names_to_create(request: MetadataRequest, context: RequestContext) -> list[str]:
    if not (request.topics and request.allow_auto_topic_creation and context.broker.config.auto_create_topics_enable):
        return []
    known = context.broker.topics
    missing = [
        topic.name
        for topic in _asked(request.topics)
        if topic.name is not None
        and known.by_name(topic.name) is None
        and reason_name_is_invalid(topic.name) is None
        and _may_describe(topic.name, context)
    ]
    return missing[:TOPICS_AUTO_CREATED_PER_REQUEST_MAX]


def _may_create(name: str, context: RequestContext) -> bool:
    return context.allows(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME) or context.allows(
        Operation.CREATE, ResourceType.TOPIC, name
    )


def _may_describe(name: str, context: RequestContext) -> bool:
    return context.allows(Operation.DESCRIBE, ResourceType.TOPIC, name)


def _asked(topics: Iterable[MetadataRequestTopic]) -> list[MetadataRequestTopic]:
    """Each topic that is asked for, once."""
    named = dict.fromkeys(topics)
    by_id = [topic for topic in named if topic.topic_id != ZERO_UUID]
    return by_id or list(named)


def _answer(request: MetadataRequest, context: RequestContext, errors: Found) -> MetadataResponse:
    broker = context.broker
    address = broker.advertised()
    if request.topics is None or (context.api_version == 0 and not request.topics):
        found = [topic for topic in broker.topics.topics() if _may_describe(topic.name, context)]
        topics = tuple([_describe(topic, request, context) for topic in found])
    else:
        topics = tuple([_look_up(asked, request, context, errors) for asked in _asked(request.topics)])
    return MetadataResponse(
        brokers=(MetadataResponseBroker(node_id=broker.node_id, host=address.host, port=address.port),),
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        topics=topics,
        cluster_authorized_operations=(
            cluster_authorized_operations(context) if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def _look_up(
    asked: MetadataRequestTopic, request: MetadataRequest, context: RequestContext, errors: Found
) -> MetadataResponseTopic:
    topics = context.broker.topics
    if asked.topic_id != ZERO_UUID or asked.name is None:
        topic = topics.by_id(asked.topic_id)
        if topic is None:
            return _unknown(None, ErrorCode.UNKNOWN_TOPIC_ID, asked.topic_id)
        if not _may_describe(topic.name, context):
            return _unknown(None, ErrorCode.TOPIC_AUTHORIZATION_FAILED, asked.topic_id)
        return _describe(topic, request, context)
    if not _may_describe(asked.name, context):
        return _unknown(asked.name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    topic = topics.by_name(asked.name)
    if topic is not None:
        return _describe(topic, request, context)
    error = errors.get(asked.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if reason_name_is_invalid(asked.name) is not None:
        error = ErrorCode.INVALID_TOPIC_EXCEPTION
    is_refused = error is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return _unknown(
        asked.name, error, operations=NOT_ASKED if is_refused else _operations(asked.name, request, context)
    )


def _unknown(
    name: str | None, error: ErrorCode, topic_id: UUID = ZERO_UUID, *, operations: int = NOT_ASKED
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=error,
        name=name,
        topic_id=topic_id,
        is_internal=error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and name is not None and is_internal(name),
        topic_authorized_operations=operations,
    )


def _operations(topic: str, request: MetadataRequest, context: RequestContext) -> int:
    if not request.include_topic_authorized_operations:
        return NOT_ASKED
    return authorized_operations(context, ResourceType.TOPIC, topic)


def _describe(topic: Topic, request: MetadataRequest, context: RequestContext) -> MetadataResponseTopic:
    node = (context.broker.node_id,)
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
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
        topic_authorized_operations=_operations(topic.name, request, context),
    )
