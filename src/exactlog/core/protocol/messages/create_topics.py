"""CreateTopics (key 19), versions 0 to 7; flexible from 5.

1 validation without creation, error message. 2 throttle time. 4 defaults for partitions and replicas (-1, KIP-464). 5
flexible; the settings of the new topic (KIP-525). 7 topic ids (KIP-516). Version 3 changed throttling only, 6
THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from typing import Annotated

from exactlog.core.codec.message_schema import Message, Structure
from exactlog.core.codec.wire_types import Bool, Field, Int8, Int16, Int32, String, Uuid
from exactlog.core.model.ids import ZERO_UUID


class CreatableReplicaAssignment(Structure):
    """Which brokers hold one partition."""

    partition_index: Int32 = 0
    broker_ids: tuple[Int32, ...] = ()


class CreatableTopicConfig(Structure):
    """One setting of a topic."""

    name: String = ""
    value: String | None = ""


class CreatableTopic(Structure):
    """One topic to create; -1 partitions or replicas is the broker's default."""

    name: String = ""
    num_partitions: Int32 = 0
    replication_factor: Int16 = 0
    assignments: tuple[CreatableReplicaAssignment, ...] = ()
    configs: tuple[CreatableTopicConfig, ...] = ()


class CreateTopicsRequest(Message):
    """The topics to create."""

    api_key = 19
    versions = "0-7"
    flexible = "5+"

    topics: tuple[CreatableTopic, ...] = ()
    timeout_ms: Int32 = 60000
    validate_only: Annotated[Bool, Field("1+")] = False


class CreatableTopicConfigs(Structure):
    """One setting of a new topic."""

    name: String = ""
    value: String | None = ""
    read_only: Bool = False
    config_source: Int8 = -1
    is_sensitive: Bool = False


class CreatableTopicResult(Structure):
    """What became of one topic; `topic_config_error_code` tells why its settings are not shown."""

    name: String = ""
    topic_id: Annotated[Uuid, Field("7+", ignorable=True)] = ZERO_UUID
    error_code: Int16 = 0
    error_message: Annotated[String | None, Field("1+", ignorable=True)] = ""
    topic_config_error_code: Annotated[Int16, Field("5+", tag=0, ignorable=True)] = 0
    num_partitions: Annotated[Int32, Field("5+", ignorable=True)] = -1
    replication_factor: Annotated[Int16, Field("5+", ignorable=True)] = -1
    configs: Annotated[tuple[CreatableTopicConfigs, ...] | None, Field("5+", ignorable=True)] = ()


class CreateTopicsResponse(Message):
    """What became of the topics."""

    api_key = 19
    versions = "0-7"
    flexible = "5+"

    throttle_time_ms: Annotated[Int32, Field("2+", ignorable=True)] = 0
    topics: tuple[CreatableTopicResult, ...] = ()
