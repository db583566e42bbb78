"""Fetch (key 1), versions 4 to 18.

Does: returns whole batches below the high watermark, from the batch that holds the fetch offset on; waits up to
`max_wait_ms` for `min_bytes`. The first batch of an answer may exceed the limits, so that every consumer moves on
(KIP-74). In a session (KIP-227) a request says what has changed, and its answer what is new.
With read_committed (KIP-98) it returns, and waits for, batches below the last stable offset, whoever wrote them, and
names the aborted transactions that reach into them, by first offset; the reader leaves their records out.
Errors: of the session FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR (names in a
session of ids, or the other way round). Of a partition UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID,
INCONSISTENT_TOPIC_ID (the topic was deleted and created anew inside the session), TOPIC_AUTHORIZATION_FAILED,
OFFSET_OUT_OF_RANGE, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, KAFKA_STORAGE_ERROR, LEADER_NOT_AVAILABLE,
INVALID_REQUEST (an isolation level that is none), NOT_LEADER_OR_FOLLOWER (a replica asks, and there is none besides
this one; a storage error before version 6).
What is unknown or not allowed does not end a wait for the other partitions, any other error does, as in Kafka.
Versions: 5 log start offset; 7 sessions; 9 leader epochs; 12 flexible, diverging epoch; 13 topic ids; 16 address of the
leader.
"""

import logging
from collections.abc import Coroutine, Sequence
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from exactlog.broker.delayed_fetch import DelayedFetch, Watched
from exactlog.broker.fetch_sessions import FetchScope, Partition, Read
from exactlog.broker.leader_epochs import leader_epoch_error
from exactlog.broker.partition_lookup import find_partition, open_partitions
from exactlog.broker.refusal import Refusal, refuse
from exactlog.broker.request_context import RequestContext
from exactlog.broker.topic_registry import Topic
from exactlog.core.codec.wire_types import Buffer
from exactlog.core.deltalog.leader_epochs import UNKNOWN_EPOCH_END
from exactlog.core.log.fetch_session import PartitionKey
from exactlog.core.model.authorization import CLUSTER_NAME, Operation, ResourceType
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import DamageError
from exactlog.core.model.ids import LeaderEpoch, Offset, TopicPartition
from exactlog.core.model.isolation_level import IsolationLevel
from exactlog.core.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from exactlog.storage.committed_log import CommittedLog
from exactlog.storage.partition_log import PartitionLog

_logger = logging.getLogger(__name__)

STORAGE_ERROR_SINCE = 6
TOPIC_IDS_SINCE = 13
LEADER_ADDRESS_SINCE = 16
READ_COMMITTED = IsolationLevel.READ_COMMITTED.value
ISOLATION_LEVELS = frozenset(IsolationLevel)
NO_EPOCH = -1
LETS_OTHERS_WAIT = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
)
"""Errors that are told with the others' records, whenever these come."""
LEADER_HAS_CHANGED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


class Asked(Struct, frozen=True):
    """One partition that is asked for, and what is known of it before anything is read: where it is, or an error."""

    key: PartitionKey
    request: FetchPartition
    partition: PartitionLog | ErrorCode
    topic: Topic | None


def handle(
    request: FetchRequest, context: RequestContext
) -> FetchResponse | Coroutine[None, None, FetchResponse | None] | None:
    """Answers with what there is, or waits until there is enough."""
    if request.isolation_level not in ISOLATION_LEVELS:
        return _refuse_isolation_level(request, context)
    scope = context.broker.fetch_sessions.take(request, takes_ids=context.api_version >= TOPIC_IDS_SINCE)
    if isinstance(scope, ErrorCode):
        return FetchResponse(error_code=scope)
    fetch = _Fetch(request, context, scope)
    asked = fetch.look_up()
    closed = [
        TopicPartition(part.topic.name, part.request.partition)
        for part in asked
        if part.partition is ErrorCode.LEADER_NOT_AVAILABLE and part.topic is not None
    ]
    return fetch.carry_out_when_open(closed) if closed else fetch.carry_out(asked)


def _refuse_isolation_level(request: FetchRequest, context: RequestContext) -> FetchResponse:
    message = f"{request.isolation_level} is no isolation level."
    refused = refuse(request, Refusal(ErrorCode.INVALID_REQUEST, message, context.api_version))
    assert isinstance(refused, FetchResponse)
    return refused


class _Fetch:
    """One request on its way."""

    __slots__ = ("context", "is_replica", "request", "scope")

    def __init__(self, request: FetchRequest, context: RequestContext, scope: FetchScope) -> None:
        self.request = request
        self.context = context
        self.scope = scope
        self.is_replica = max(request.replica_id, request.replica_state.replica_id) >= 0

    # --- what is asked --------------------------------------------------------------------------------------------

    def look_up(self) -> list[Asked]:
        """Finds the partitions, in the order in which they are to be read."""
        found: list[Asked] = []
        topic: Topic | ErrorCode = ErrorCode.NONE
        current: str | UUID | None = None
        for key, entry in self.scope.partitions.items():
            if key[0] is not current:
                current = key[0]
                topic = self._find_topic(current, entry)
            if isinstance(topic, ErrorCode):
                found.append(Asked(key, entry.asked, topic, None))
                continue
            if entry.topic_name is None:
                entry.topic_name = topic.name
            found.append(Asked(key, entry.asked, self._find_partition(topic, entry.asked), topic))
        return found

    def _find_topic(self, place: str | UUID, entry: Partition) -> Topic | ErrorCode:
        topics = self.context.broker.topics
        by_name = isinstance(place, str)
        topic = topics.by_name(place) if isinstance(place, str) else topics.by_id(place)
        name = entry.topic_name if topic is None else topic.name
        if name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if not self._may_read(name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if topic is not None:
            return topic
        if by_name or topics.by_name(name) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.INCONSISTENT_TOPIC_ID

    def _may_read(self, topic: str) -> bool:
        if self.is_replica:
            return self.context.allows(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
        return self.context.allows(Operation.READ, ResourceType.TOPIC, topic)

    def _find_partition(self, topic: Topic, part: FetchPartition) -> PartitionLog | ErrorCode:
        found = find_partition(self.context.broker.topics, topic.name, part.partition)
        if isinstance(found, ErrorCode):
            return found
        epoch = part.current_leader_epoch
        refused = leader_epoch_error(self.context, epoch) if epoch >= 0 else None
        if refused is not None:
            return refused
        if self.is_replica:
            return ErrorCode.UNKNOWN_LEADER_EPOCH if epoch >= 0 else ErrorCode.NOT_LEADER_OR_FOLLOWER
        return found

    # --- what there is --------------------------------------------------------------------------------------------

    async def carry_out_when_open(self, closed: list[TopicPartition]) -> FetchResponse | None:
        """Opens partitions first."""
        await open_partitions(self.context.broker.topics, closed)
        return self.carry_out(self.look_up())

    def carry_out(self, asked: Sequence[Asked]) -> FetchResponse | None:
        """The answer, or None: it comes when there is enough, or the time is over."""
        request = self.request
        bytes_wanted = min(request.min_bytes, request.max_bytes)
        found = self._read(asked)
        if found.bytes_read >= bytes_wanted or found.is_urgent or request.max_wait_ms <= 0:
            return self._response(found)
        is_committed_only = request.isolation_level == READ_COMMITTED
        watched = [
            Watched(part.partition, max(part.request.fetch_offset, part.partition.last_stable_offset))
            for part in asked
            if isinstance(part.partition, PartitionLog)
        ]
        if not watched:
            return self._response(found)
        DelayedFetch(
            watched,
            bytes_wanted=bytes_wanted - found.bytes_read,
            wait_ms=request.max_wait_ms,
            is_committed_only=is_committed_only,
            then=lambda: self.context.answer(self._response(self._read(self.look_up()))),
            context=self.context,
        )
        return None

    def _read(self, asked: Sequence[Asked]) -> "_Found":
        """Reads what every partition has, within the limits of the request and of the broker."""
        bytes_left = self.context.broker.fetch_budget.clip(self.request.max_bytes)
        bytes_read = 0
        is_urgent = False
        read: list[Read] = []
        unknown: list[Read] = []
        for part in asked:
            partition = part.partition
            if isinstance(partition, ErrorCode):
                waits = partition in LETS_OTHERS_WAIT
                (unknown if waits else read).append((part.key, self._failed(part.request, partition)))
                is_urgent = is_urgent or not waits
                continue
            data = self._read_partition(partition, part.request, bytes_left=bytes_left, is_first=bytes_read == 0)
            size = len(data.records) if data.records is not None else 0
            bytes_read += size
            bytes_left = max(0, bytes_left - size)
            is_urgent = is_urgent or data.error_code != ErrorCode.NONE or data.diverging_epoch.epoch != NO_EPOCH
            read.append((part.key, data))
        return _Found(read + unknown, bytes_read, is_urgent)

    def _read_partition(
        self, partition: PartitionLog, part: FetchPartition, *, bytes_left: int, is_first: bool
    ) -> PartitionData:
        offset = part.fetch_offset
        if part.last_fetched_epoch >= 0:
            diverged = self._check_history(partition, part)
            if diverged is not None:
                return diverged
        committed, log_start_offset = partition.committed, partition.log_start_offset
        high_watermark, stable_offset = committed.end_offset, committed.last_stable_offset
        if not log_start_offset <= offset <= high_watermark:
            return self._failed(part, ErrorCode.OFFSET_OUT_OF_RANGE)
        is_committed_only = self.request.isolation_level == READ_COMMITTED
        aborted = None
        try:
            records: Buffer = committed.read(
                offset,
                end_offset=stable_offset if is_committed_only else high_watermark,
                bytes_max=min(bytes_left, part.partition_max_bytes),
                at_least_one_batch=is_first,
            )
            if is_committed_only:
                is_clean = not committed.has_aborted_transactions or not len(records)
                aborted = () if is_clean else _aborted_in(committed, Offset(offset), records)
        except (DamageError, OSError) as fault:
            _logger.error("%s cannot be read at offset %d: %s", partition.topic_partition, offset, fault)
            return self._failed(part, ErrorCode.KAFKA_STORAGE_ERROR)
        return PartitionData(
            partition_index=part.partition,
            high_watermark=high_watermark,
            last_stable_offset=stable_offset,
            log_start_offset=log_start_offset,
            aborted_transactions=aborted,
            records=records,
        )

    def _check_history(self, partition: PartitionLog, part: FetchPartition) -> PartitionData | None:
        """What to tell a reader whose last records are not those of this log (KIP-595); None where they are."""
        end = partition.table.end_offset_for_epoch(
            part.last_fetched_epoch,
            leader_epoch=LeaderEpoch(self.context.broker.leader_epoch),
            log_end_offset=partition.high_watermark,
        )
        if end == UNKNOWN_EPOCH_END:
            return self._failed(part, ErrorCode.OFFSET_OUT_OF_RANGE)
        if end.epoch == part.last_fetched_epoch and end.end_offset >= part.fetch_offset:
            return None
        return PartitionData(
            partition_index=part.partition,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log_start_offset,
            diverging_epoch=EpochEndOffset(epoch=end.epoch, end_offset=end.end_offset),
            aborted_transactions=None,
            records=b"",
        )

    def _failed(self, part: FetchPartition, error: ErrorCode) -> PartitionData:
        version, broker = self.context.api_version, self.context.broker
        if error is ErrorCode.KAFKA_STORAGE_ERROR and version < STORAGE_ERROR_SINCE:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        leader = LeaderIdAndEpoch()
        if version >= LEADER_ADDRESS_SINCE and error in LEADER_HAS_CHANGED:
            leader = LeaderIdAndEpoch(leader_id=broker.node_id, leader_epoch=broker.leader_epoch)
        return PartitionData(
            partition_index=part.partition,
            error_code=error,
            high_watermark=-1,
            last_stable_offset=-1,
            log_start_offset=-1,
            current_leader=leader,
            aborted_transactions=() if error in LETS_OTHERS_WAIT else None,
            records=b"",
        )

    def _response(self, found: "_Found") -> FetchResponse:
        response = self.scope.answer(found.partitions)
        if (
            found.is_urgent
            and not self.is_replica
            and any(data.current_leader.leader_id >= 0 for _, data in found.partitions)
        ):
            broker, address = self.context.broker, self.context.broker.advertised()
            endpoint = NodeEndpoint(node_id=broker.node_id, host=address.host, port=address.port)
            return replace(response, node_endpoints=(endpoint,))
        return response


def _aborted_in(committed: CommittedLog, offset: Offset, records: Buffer) -> tuple[AbortedTransaction, ...]:
    """The aborted transactions that reach into batches that were read from an offset on, by first offset."""
    end_offset = Offset(committed.end_of_batches(offset, records))
    return tuple(
        [
            AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
            for aborted in committed.aborted_transactions(offset, end_offset)
        ]
    )


class _Found(Struct, frozen=True):
    """What could be answered now, and whether it is worth answering before there are enough bytes."""

    partitions: list[Read]
    bytes_read: int
    is_urgent: bool
