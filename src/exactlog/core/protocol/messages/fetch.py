"""Fetch (key 1), versions 4 to 18; flexible from 12.

4 isolation level, last stable offset and aborted transactions (KIP-98). 5 log start offset. 7 fetch sessions
(KIP-227). 9 leader epoch of the reader (KIP-320). 10 zstd (KIP-110). 11 rack and preferred read replica (KIP-392). 12
flexible; diverging epoch (KIP-595). 13 topic ids in place of names (KIP-516). 15 the replica's state in a tagged field
(KIP-903). 16 addresses of new leaders (KIP-951). 17 directory id (KIP-853). 18 the replica's high watermark
(KIP-1166). Versions 6, 8 and 14 changed errors and throttling only.
"""

from typing import Annotated

from exactlog.core.codec.message_schema import Message, Structure
from exactlog.core.codec.wire_types import Field, Int8, Int16, Int32, Int64, Records, String, Uuid
from exactlog.core.model.ids import ZERO_UUID


class ReplicaState(Structure):
    """Which replica reads, where a replica does."""

    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


class FetchPartition(Structure):
    """From where to read one partition."""

    partition: Int32 = 0
    current_leader_epoch: Annotated[Int32, Field("9+", ignorable=True)] = -1
    fetch_offset: Int64 = 0
    last_fetched_epoch: Annotated[Int32, Field("12+")] = -1
    log_start_offset: Annotated[Int64, Field("5+", ignorable=True)] = -1
    partition_max_bytes: Int32 = 0
    replica_directory_id: Annotated[Uuid, Field("17+", tag=0, ignorable=True)] = ZERO_UUID
    high_watermark: Annotated[Int64, Field("18+", tag=1, ignorable=True)] = 2**63 - 1


class FetchTopic(Structure):
    """What to read of one topic."""

    topic: Annotated[String, Field("4-12", ignorable=True)] = ""
    topic_id: Annotated[Uuid, Field("13+", ignorable=True)] = ZERO_UUID
    partitions: tuple[FetchPartition, ...] = ()


class ForgottenTopic(Structure):
    """Partitions to drop from the fetch session."""

    topic: Annotated[String, Field("7-12", ignorable=True)] = ""
    topic_id: Annotated[Uuid, Field("13+", ignorable=True)] = ZERO_UUID
    partitions: tuple[Int32, ...] = ()


class FetchRequest(Message):
    """What to read, and how long to wait for how much of it; `replica_id` is -1 for a consumer."""

    api_key = 1
    versions = "4-18"
    flexible = "12+"

    cluster_id: Annotated[String | None, Field("12+", tag=0, ignorable=True)] = None
    replica_id: Annotated[Int32, Field("4-14")] = -1
    replica_state: Annotated[ReplicaState, Field("15+", tag=1)] = ReplicaState()
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Int32 = 2**31 - 1
    isolation_level: Int8 = 0
    session_id: Annotated[Int32, Field("7+", ignorable=True)] = 0
    session_epoch: Annotated[Int32, Field("7+", ignorable=True)] = -1
    topics: tuple[FetchTopic, ...] = ()
    forgotten_topics_data: Annotated[tuple[ForgottenTopic, ...], Field("7+")] = ()
    rack_id: Annotated[String, Field("11+", ignorable=True)] = ""


class EpochEndOffset(Structure):
    """Where the reader's log parts from the leader's."""

    epoch: Int32 = -1
    end_offset: Int64 = -1


class LeaderIdAndEpoch(Structure):
    """Who leads a partition now."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class SnapshotId(Structure):
    """The snapshot to load in place of records."""

    end_offset: Int64 = -1
    epoch: Int32 = -1


class AbortedTransaction(Structure):
    """A producer whose records from there to its abort marker are to be left out."""

    producer_id: Int64 = 0
    first_offset: Int64 = 0


class PartitionData(Structure):
    """What was read of one partition."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    high_watermark: Int64 = 0
    last_stable_offset: Int64 = -1
    log_start_offset: Annotated[Int64, Field("5+", ignorable=True)] = -1
    diverging_epoch: Annotated[EpochEndOffset, Field("12+", tag=0)] = EpochEndOffset()
    current_leader: Annotated[LeaderIdAndEpoch, Field("12+", tag=1)] = LeaderIdAndEpoch()
    snapshot_id: Annotated[SnapshotId, Field("12+", tag=2)] = SnapshotId()
    aborted_transactions: tuple[AbortedTransaction, ...] | None = ()
    preferred_read_replica: Annotated[Int32, Field("11+")] = -1
    records: Records | None = b""


class FetchableTopicResponse(Structure):
    """What was read of one topic."""

    topic: Annotated[String, Field("4-12", ignorable=True)] = ""
    topic_id: Annotated[Uuid, Field("13+", ignorable=True)] = ZERO_UUID
    partitions: tuple[PartitionData, ...] = ()


class NodeEndpoint(Structure):
    """Where a leader named in the answer is found."""

    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None


class FetchResponse(Message):
    """Records, whole batches; the first may begin before the offset asked for."""

    api_key = 1
    versions = "4-18"
    flexible = "12+"

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, Field("7+", ignorable=True)] = 0
    session_id: Annotated[Int32, Field("7+")] = 0
    responses: tuple[FetchableTopicResponse, ...] = ()
    node_endpoints: Annotated[tuple[NodeEndpoint, ...], Field("16+", tag=0)] = ()
