"""DeleteRecords (key 21), versions 0 to 2; flexible from 2.

2 flexible. Version 1 changed throttling only.
"""

from exactlog.core.codec.message_schema import Message, Structure
from exactlog.core.codec.wire_types import Int16, Int32, Int64, String


class DeleteRecordsPartition(Structure):
    """From where that of one partition shall; -1 is its high watermark."""

    partition_index: Int32 = 0
    offset: Int64 = 0


class DeleteRecordsTopic(Structure):
    """From where those of one topic shall."""

    name: String = ""
    partitions: tuple[DeleteRecordsPartition, ...] = ()


class DeleteRecordsRequest(Message):
    """From where logs shall begin."""

    api_key = 21
    versions = "0-2"
    flexible = "2+"

    topics: tuple[DeleteRecordsTopic, ...] = ()
    timeout_ms: Int32 = 0


class DeleteRecordsPartitionResult(Structure):
    """From where that of one partition does."""

    partition_index: Int32 = 0
    low_watermark: Int64 = 0
    error_code: Int16 = 0


class DeleteRecordsTopicResult(Structure):
    """From where those of one topic do."""

    name: String = ""
    partitions: tuple[DeleteRecordsPartitionResult, ...] = ()


class DeleteRecordsResponse(Message):
    """From where the logs begin now."""

    api_key = 21
    versions = "0-2"
    flexible = "2+"

    throttle_time_ms: Int32 = 0
    topics: tuple[DeleteRecordsTopicResult, ...] = ()
