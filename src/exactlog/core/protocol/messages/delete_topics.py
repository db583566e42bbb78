"""DeleteTopics (key 20), versions 0 to 6; flexible from 4.

1 throttle time. 4 flexible. 5 error message; THROTTLING_QUOTA_EXCEEDED (KIP-599). 6 topics by name or id (KIP-516).
Versions 2 and 3 changed errors and throttling only.
"""

from typing import Annotated

from exactlog.core.codec.message_schema import Message, Structure
from exactlog.core.codec.wire_types import Field, Int16, Int32, String, Uuid
from exactlog.core.model.ids import ZERO_UUID


class DeleteTopicState(Structure):
    """A topic to delete, by name or id."""

    name: String | None = None
    topic_id: Uuid = ZERO_UUID


class DeleteTopicsRequest(Message):
    """The topics to delete: `topic_names`, or from version 6 `topics`."""

    api_key = 20
    versions = "0-6"
    flexible = "4+"

    topics: Annotated[tuple[DeleteTopicState, ...], Field("6+")] = ()
    topic_names: Annotated[tuple[String, ...], Field("0-5", ignorable=True)] = ()
    timeout_ms: Int32 = 0


class DeletableTopicResult(Structure):
    """What became of one topic."""

    name: Annotated[String | None, Field(nullable="6+")] = ""
    topic_id: Annotated[Uuid, Field("6+", ignorable=True)] = ZERO_UUID
    error_code: Int16 = 0
    error_message: Annotated[String | None, Field("5+", ignorable=True)] = None


class DeleteTopicsResponse(Message):
    """What became of the topics."""

    api_key = 20
    versions = "0-6"
    flexible = "4+"

    throttle_time_ms: Annotated[Int32, Field("1+", ignorable=True)] = 0
    responses: tuple[DeletableTopicResult, ...] = ()
