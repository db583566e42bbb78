"""CreatePartitions (key 37), versions 0 to 3; flexible from 2.

2 flexible. 3 THROTTLING_QUOTA_EXCEEDED (KIP-599). Version 1 changed throttling only.
"""

from exactlog.core.codec.message_schema import Message, Structure
from exactlog.core.codec.wire_types import Bool, Int16, Int32, String


class CreatePartitionsAssignment(Structure):
    """Which brokers hold a new partition."""

    broker_ids: tuple[Int32, ...] = ()


class CreatePartitionsTopic(Structure):
    """How many partitions one topic shall have in all."""

    name: String = ""
    count: Int32 = 0
    assignments: tuple[CreatePartitionsAssignment, ...] | None = ()


class CreatePartitionsRequest(Message):
    """Topics that shall have more partitions."""

    api_key = 37
    versions = "0-3"
    flexible = "2+"

    topics: tuple[CreatePartitionsTopic, ...] = ()
    timeout_ms: Int32 = 0
    validate_only: Bool = False


class CreatePartitionsTopicResult(Structure):
    """What became of one topic."""

    name: String = ""
    error_code: Int16 = 0
    error_message: String | None = None


class CreatePartitionsResponse(Message):
    """What became of the topics."""

    api_key = 37
    versions = "0-3"
    flexible = "2+"

    throttle_time_ms: Int32 = 0
    results: tuple[CreatePartitionsTopicResult, ...] = ()
