"""DescribeLogDirs (key 35), versions 0 to 5; flexible from 2.

2 flexible. 3 an error for the whole answer. 4 bytes of the disk (KIP-827). 5 directories that take no new partitions
(KIP-1066). Version 1 changed throttling only.
"""

from typing import Annotated

from exactlog.core.codec.message_schema import Message, Structure
from exactlog.core.codec.wire_types import Bool, Field, Int16, Int32, Int64, String


class DescribableLogDirTopic(Structure):
    """Partitions of one topic."""

    topic: String = ""
    partitions: tuple[Int32, ...] = ()


class DescribeLogDirsRequest(Message):
    """The partitions asked about; null is all of them."""

    api_key = 35
    versions = "0-5"
    flexible = "2+"

    topics: tuple[DescribableLogDirTopic, ...] | None = ()


class DescribeLogDirsPartition(Structure):
    """One partition in it."""

    partition_index: Int32 = 0
    partition_size: Int64 = 0
    offset_lag: Int64 = 0
    is_future_key: Bool = False


class DescribeLogDirsTopic(Structure):
    """One topic in it."""

    name: String = ""
    partitions: tuple[DescribeLogDirsPartition, ...] = ()


class DescribeLogDirsResult(Structure):
    """One directory."""

    error_code: Int16 = 0
    log_dir: String = ""
    topics: tuple[DescribeLogDirsTopic, ...] = ()
    total_bytes: Annotated[Int64, Field("4+", ignorable=True)] = -1
    usable_bytes: Annotated[Int64, Field("4+", ignorable=True)] = -1
    is_cordoned: Annotated[Bool, Field("5+", ignorable=True)] = False


class DescribeLogDirsResponse(Message):
    """The directories."""

    api_key = 35
    versions = "0-5"
    flexible = "2+"

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, Field("3+", ignorable=True)] = 0
    results: tuple[DescribeLogDirsResult, ...] = ()
