"""DeleteTopics (key 20), versions 0 to 6.

Does: deletes topics by name or id. From the moment of the answer nobody can use the topic, also after a crash.
Errors: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INVALID_REQUEST (both or neither of name and id, a topic named
twice), INVALID_TOPIC_EXCEPTION (a coordinator's topic), TOPIC_AUTHORIZATION_FAILED, KAFKA_STORAGE_ERROR.
Versions: 5 error messages; 6 by id.
"""

from collections import Counter

from exactlog.broker.request_context import RequestContext
from exactlog.broker.topic_creation import check_is_not_internal
from exactlog.broker.topic_registry import Topic
from exactlog.core.model.authorization import CLUSTER_NAME, Operation, ResourceType
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import KafkaError
from exactlog.core.model.ids import ZERO_UUID
from exactlog.core.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

BY_ID_SINCE = 6


async def handle(request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    """Deletes the topics in the order of the request."""
    asked = request.topics
    if context.api_version < BY_ID_SINCE:
        asked = tuple(DeleteTopicState(name=name) for name in request.topic_names)
    named = Counter(asked)
    results = []
    for state in named:
        try:
            if named[state] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "A topic to delete is named more than once.")
            topic = _find(state, context)
            check_is_not_internal(topic.name)
            await context.broker.topics.delete(topic)
            results.append(DeletableTopicResult(name=topic.name, topic_id=topic.topic_id))
        except KafkaError as error:
            name = state.name if state.name is not None else _name_to_tell(state, context)
            results.append(
                DeletableTopicResult(
                    name=name if context.api_version >= BY_ID_SINCE else name or "",
                    topic_id=state.topic_id,
                    error_code=error.error_code,
                    error_message=str(error),
                )
            )
    return DeleteTopicsResponse(responses=tuple(results))


def _find(state: DeleteTopicState, context: RequestContext) -> Topic:
    """The topic to delete.

    Raises:
        KafkaError: it is named wrongly, there is none, or who asks may not delete it.
    """
    topics = context.broker.topics
    if (state.name is None) == (state.topic_id == ZERO_UUID):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Name a topic to delete either by its name or by its id.")
    if state.name is not None and not _may(Operation.DESCRIBE, state.name, context):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)  # nor is it told whether there is one
    if state.name is None:
        topic = topics.by_id(state.topic_id)
        missing = KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"There is no topic with id {state.topic_id}.")
    else:
        topic = topics.by_name(state.name)
        missing = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{state.name}'.")
    if topic is None:
        raise missing
    if not _may(Operation.DELETE, topic.name, context):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return topic


def _may(operation: Operation, topic: str, context: RequestContext) -> bool:
    """Who may delete from the cluster may delete every topic."""
    return context.allows(Operation.DELETE, ResourceType.CLUSTER, CLUSTER_NAME) or context.allows(
        operation, ResourceType.TOPIC, topic
    )


def _name_to_tell(state: DeleteTopicState, context: RequestContext) -> str | None:
    """The name of a topic that is named by its id and stays: only for those who may know it."""
    topic = context.broker.topics.by_id(state.topic_id)
    return topic.name if topic is not None and _may(Operation.DESCRIBE, topic.name, context) else None
