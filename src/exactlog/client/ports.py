"""What a product may ask of a broker, whichever adapter carries it.

Every operation retries what may succeed later, within `ClientSettings.deadline_ms`. Every error derives from
`ExactlogError`; those that any operation can raise are named once, here:

    UnavailableError   no broker could be reached, or it did not answer, or it kept refusing until the deadline
    NotFoundError      a topic or partition that does not exist
    UnsupportedError   the broker does not serve that
    KafkaError         any other refusal, with its code in `kafka_error`
    DecodeError        an answer or a batch that is not what it claims to be; a `DamagedBatchError` says where
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from enum import IntEnum
from types import TracebackType
from typing import Final, Protocol, Self
from uuid import UUID

import msgspec

from exactlog.client.groups import (
    CommittedOffset,
    GroupDescription,
    GroupListing,
    MemberSettings,
)
from exactlog.client.produced import ProducedRecord, ProducerIdentity
from exactlog.client.transactions import (
    TRANSACTION_TIMEOUT_MS_DEFAULT,
    SharedTransaction,
    TransactionAdmin,
    TransactionalProducer,
    TransactionPart,
)
from exactlog.core.codec.compression import Compression
from exactlog.core.deltalog.append_terms import Committed, Conflicted, PayloadDiffers, Unavailable
from exactlog.core.model.errors import DecodeError
from exactlog.core.model.ids import (
    BrokerId,
    LeaderEpoch,
    Offset,
    TimestampMs,
    TopicPartition,
)
from exactlog.core.model.isolation_level import IsolationLevel as IsolationLevel  # noqa: PLC0414  part of these ports
from exactlog.core.record.batch_builder import NewRecord
from exactlog.core.record.batch_format import BatchHeader
from exactlog.core.record.record_format import Record


class DamagedBatchError(DecodeError):
    """A stored batch that cannot be read: it fails its checksum, cannot be decompressed, or lies where it cannot lie.

    Attributes:
        offset: where it begins.
        next_offset: where what follows it begins, as far as that can be told; higher than `offset`.
    """

    def __init__(self, message: str, *, offset: int, next_offset: int) -> None:
        super().__init__(message, hint="an offset behind the batch can be read from")
        self.offset = offset
        self.next_offset = next_offset


LATEST: Final = TimestampMs(-1)
"""For `list_offsets`: behind the last record; with READ_COMMITTED, the last stable offset."""

EARLIEST: Final = TimestampMs(-2)
"""For `list_offsets`: the first record there still is."""

HIGH_WATERMARK: Final = Offset(-1)
"""For `delete_records`: behind the last committed record."""

ACKS_ALL: Final = -1
ACKS_LEADER: Final = 1
ACKS_NONE: Final = 0


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a client behaves.

    Attributes:
        client_id: what the client calls itself; brokers log it.
        connect_timeout_ms: for one attempt to connect.
        request_timeout_ms: for the answer to one request.
        deadline_ms: for one operation with all its retries.
        backoff_ms: between the first attempt and the second; it doubles from attempt to attempt.
        backoff_ms_max: where it stops doubling.
        batch_bytes_max: records that are sent together have at most so many bytes, before compression.
        fetch_bytes_max: for the answer to one Fetch.
        fetch_wait_ms_max: how long a Fetch waits for a record.
    """

    client_id: str = "exactlog"
    connect_timeout_ms: int = 5_000
    request_timeout_ms: int = 30_000
    deadline_ms: int = 30_000
    backoff_ms: int = 50
    backoff_ms_max: int = 1_000
    batch_bytes_max: int = 1_000_000
    fetch_bytes_max: int = 8 * 1024 * 1024
    fetch_wait_ms_max: int = 500


class BrokerAddress(msgspec.Struct, frozen=True):
    """A broker, and where it says it is."""

    id: BrokerId
    host: str
    port: int
    rack: str | None = None


class ClusterDescription(msgspec.Struct, frozen=True):
    """The cluster; `controller_id` is None while there is none."""

    cluster_id: str | None
    controller_id: BrokerId | None
    brokers: tuple[BrokerAddress, ...]


class TopicListing(msgspec.Struct, frozen=True):
    """A topic in short; `topic_id` is None where the broker gives none."""

    name: str
    topic_id: UUID | None
    partition_count: int
    is_internal: bool


class PartitionDescription(msgspec.Struct, frozen=True):
    """A partition and its replicas; `leader_id` is None while nobody leads it."""

    partition: int
    leader_id: BrokerId | None
    leader_epoch: LeaderEpoch
    replicas: tuple[BrokerId, ...]
    in_sync_replicas: tuple[BrokerId, ...]
    offline_replicas: tuple[BrokerId, ...]


class ConfigSource(IntEnum):
    """Where a value comes from, the strongest first (KIP-226)."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


class ConfigEntry(msgspec.Struct, frozen=True):
    """A setting, and where its value comes from. Of sensitive ones `value` is None."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool

    @property
    def is_default(self) -> bool:
        """Whether it is not set on the topic itself."""
        return self.source is not ConfigSource.DYNAMIC_TOPIC_CONFIG


class LogDirectory(msgspec.Struct, frozen=True):
    """A directory in which a broker keeps partitions, and how many bytes each of them has there.

    `bytes_total` and `bytes_usable` are of its volume; None where the broker does not tell.
    """

    broker_id: BrokerId
    path: str
    bytes_total: int | None
    bytes_usable: int | None
    partitions: Mapping[TopicPartition, int]


class TopicDescription(msgspec.Struct, frozen=True):
    """A topic with its partitions in ascending order, and its settings by name."""

    name: str
    topic_id: UUID | None
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]
    configs: tuple[ConfigEntry, ...]


class ListedOffset(msgspec.Struct, frozen=True):
    """The first record not older than the time asked for; `offset` is None when there is none."""

    offset: Offset | None
    timestamp_ms: TimestampMs
    leader_epoch: LeaderEpoch


class ConsumedRecord(msgspec.Struct, frozen=True):
    """A record, the partition it lies in, and the header of the batch it came in."""

    place: TopicPartition
    record: Record
    batch: BatchHeader


class Admin(Protocol):
    """Topics and the cluster."""

    async def describe_cluster(self) -> ClusterDescription:
        """The brokers that the cluster knows."""

    async def list_topics(self, *, include_internal: bool = False) -> tuple[TopicListing, ...]:
        """The topics, by name."""

    async def describe_topic(self, name: str) -> TopicDescription:
        """One topic. Raises `NotFoundError`."""

    async def create_topic(
        self,
        name: str,
        *,
        partition_count: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> TopicListing:
        """Create a topic; any client can use it when this returns. -1 takes the broker's default.

        Raises `KafkaError` with TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_CONFIG, ...
        """

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and what is in it. Raises `NotFoundError`."""

    async def create_partitions(self, name: str, partition_count: int) -> TopicListing:
        """Let a topic have so many partitions in all; any client can use them when this returns.

        Raises `NotFoundError`, `KafkaError` with INVALID_PARTITIONS where that is not more than it has.
        """

    async def alter_topic_configs(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Set settings of a topic, or with None take back what was set. All of it happens, or nothing.

        Raises `NotFoundError`, `KafkaError` with INVALID_CONFIG.
        """

    async def describe_log_dirs(self) -> tuple[LogDirectory, ...]:
        """Where each broker keeps its partitions."""

    async def list_offsets(
        self,
        timestamps: Mapping[TopicPartition, TimestampMs],
        *,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, ListedOffset]:
        """For each partition the offset at a time: `EARLIEST`, `LATEST`, or milliseconds since 1970."""

    async def delete_records(self, offsets: Mapping[TopicPartition, Offset]) -> dict[TopicPartition, Offset]:
        """Delete the records of each partition below an offset, or below `HIGH_WATERMARK`; where each begins now.

        An offset below the first record that there is changes nothing. When some partitions fail, the hint of the
        error says for how many it was done.

        Raises `KafkaError` with OFFSET_OUT_OF_RANGE above the end, POLICY_VIOLATION for a topic that is compacted only.
        """


class GroupAdmin(Protocol):
    """Consumer groups, seen from outside."""

    async def list_groups(self) -> tuple[GroupListing, ...]:
        """The groups of every coordinator, by name."""

    async def describe_group(self, group_id: str) -> GroupDescription:
        """One group. Raises `NotFoundError`."""

    async def delete_group(self, group_id: str) -> None:
        """Delete a group with its offsets. Raises `NotFoundError`, `KafkaError` with NON_EMPTY_GROUP."""

    async def list_committed_offsets(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """Every offset that a group has committed; none, if there is no such group."""

    async def commit_offsets(self, group_id: str, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Set offsets of a group that has no members, or is not there yet.

        Raises `KafkaError` with NON_EMPTY_GROUP.
        """

    async def delete_offsets(self, group_id: str, places: Collection[TopicPartition]) -> None:
        """Let a group forget offsets. Raises `KafkaError` with GROUP_SUBSCRIBED_TO_TOPIC where they are read."""


class Producer(Protocol):
    """Writing."""

    async def produce(
        self,
        topic: str,
        records: Sequence[NewRecord],
        *,
        partition: int | None = None,
        acks: int = ACKS_ALL,
        compression: Compression = Compression.NONE,
    ) -> tuple[ProducedRecord, ...]:
        """Append records and say where each went, in the order given.

        Without a partition, a key decides (murmur2, as Kafka's Java client); records without a key stay together on
        one partition for a while. Records of one partition keep their order. A record without a timestamp gets the
        time of now. The broker may create the topic, if it is set to.

        With `ACKS_ALL` the producer is idempotent: nothing is appended twice, however often it must be sent. Otherwise
        a connection lost on the way leaves it open whether the records were appended: an `UnavailableError` that is
        not retryable. When some partitions fail, the hint of the error says how many records were appended.
        """

    async def append(
        self,
        topic: str,
        partition: int,
        records: Sequence[NewRecord],
        *,
        expected_version: int | None = None,
        txn_id: str | None = None,
        compression: Compression = Compression.NONE,
    ) -> Committed | Conflicted | PayloadDiffers | Unavailable:
        """Append records to one partition, all in one delta version, if the terms hold.

        Args:
            topic: that exists; an append on terms creates none.
            partition: of it.
            records: one or more; together they are one batch, which the topic's `max.message.bytes` must allow.
            expected_version: the newest delta version as the caller knows it; another one is a conflict.
            txn_id: an id of the caller's own: the same records under the same id are appended once, and their first
                result is told again (of the last 10,000 ids of a partition).
            compression: of the batch.

        Returns:
            `Committed`; or why nothing was appended: `Conflicted` when another version is the newest, `PayloadDiffers`
            when the id came before with other records, `Unavailable` while the broker's disk refuses.

        With a txn_id whatever may have been lost on the way is sent again. Without one an answer that is lost leaves
        it open whether the records were appended: an `UnavailableError` that is not retryable.

        Raises `UnsupportedError` where the broker does not have the feature `exactlog.append`, `ValueError` without a
        record or with a negative version.
        """

    async def partition_count(self, topic: str) -> int:
        """How many partitions a topic has; the broker may create it, if it is set to. Raises `NotFoundError`."""

    async def init_producer_id(self) -> ProducerIdentity:
        """A new producer id, for whoever builds batches himself."""


class Consumer(Protocol):
    """Reading."""

    def consume(
        self,
        starts: Mapping[TopicPartition, Offset],
        *,
        ends: Mapping[TopicPartition, Offset] | None = None,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        include_control: bool = False,
    ) -> AsyncIterator[ConsumedRecord]:
        """The records from each start up to, and without, each end; without an end a partition is followed for ever.

        Within a partition they come in order. With READ_COMMITTED, records of aborted transactions are left out and
        those of open ones waited for. Control records, the markers of transactions, come only if asked for.

        Raises `OffsetOutOfRangeError` where an offset is below the first record or behind the last.
        """

    def join_group(
        self,
        group_id: str,
        topic: str,
        *,
        starts: Mapping[TopicPartition, Offset] | None = None,
        ends: Mapping[TopicPartition, Offset] | None = None,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        include_control: bool = False,
        settings: MemberSettings | None = None,
        before_commit: Callable[[], None] = lambda: None,
        find_start: Callable[[TopicPartition], Awaitable[Offset]] | None = None,
    ) -> "GroupConsumer":
        """A member of a group that shares a topic, by the assignor `range`, with members of any make.

        Args:
            group_id: the group; it comes into being with its first member.
            topic: what to read.
            starts: where to begin in a partition of which the group has no offset; else at its first record.
            ends: where to stop before; partitions without an end are not read then. None: nowhere.
            isolation: as for `consume`.
            include_control: as for `consume`.
            settings: None: as Kafka's consumer.
            before_commit: called before each commit; what it raises prevents the commit.
            find_start: asked for each partition as it is given to the member: where to begin, whatever the group has
                committed. For those who keep their progress elsewhere.
        """


class GroupConsumer(Protocol):
    """A member of a consumer group. It joins when first read from; leaving the context commits, and leaves the group.

    A record is done when the next one is asked for, or with `done`. What is done is committed now and then, before
    partitions go to another member, and at the end.
    """

    def records(self) -> AsyncIterator[ConsumedRecord]:
        """The records of the partitions that the group gives this member, whichever they are at the time.

        It ends when there are ends and the partitions have reached them. What others of the group read after a member
        was lost may come again.
        """

    def done(self) -> None:
        """The record that came last is done too, though no other is asked for."""

    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


class Transactional(Protocol):
    """Writing in transactions."""

    def transactional_producer(
        self, transactional_id: str, *, timeout_ms: int = TRANSACTION_TIMEOUT_MS_DEFAULT
    ) -> TransactionalProducer:
        """The producer of a transactional id, to be used as a context.

        Args:
            transactional_id: whoever takes the same id fences the one before.
            timeout_ms: a transaction that is open for longer is aborted, and its producer fenced.
        """

    def join_transaction(self, transaction: SharedTransaction) -> TransactionPart:
        """Write in a transaction that another process has begun, and will end (`begin_shared`)."""

    def resume_transaction(
        self, transaction: SharedTransaction, *, timeout_ms: int = TRANSACTION_TIMEOUT_MS_DEFAULT
    ) -> TransactionalProducer:
        """The producer of a transaction that another process has begun and left open (`begin_shared`), to end it here.

        Nothing is taken over: whoever has taken the transactional id since has fenced this producer too.

        Args:
            transaction: that is open.
            timeout_ms: of the transactions that come after it.
        """


class Client(Admin, GroupAdmin, TransactionAdmin, Producer, Transactional, Consumer, Protocol):
    """A client of one cluster. It connects when first used; leaving the context closes it."""

    async def close(self) -> None:
        """Close every connection."""

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *exception: object) -> None: ...
