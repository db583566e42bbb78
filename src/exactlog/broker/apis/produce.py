"""Produce (key 0), versions 3 to 13.

Does: validates each batch whole before any offset is given, appends it, and answers once what it was told is committed.
Answers an idempotent producer's repeated batch with its first offsets (KIP-98). Lets a transactional batch in once the
coordinator knows that its partition is part of the transaction. A batch with terms (the feature `exactlog.append`) is
appended if they hold, and answered once its delta version is published; who comes again with a txn_id gets the first
result.
Errors: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, TOPIC_AUTHORIZATION_FAILED, TRANSACTIONAL_ID_AUTHORIZATION_FAILED
(transactional batches without a transactional id, or with one that may not be used: for the whole request),
INVALID_PRODUCER_ID_MAPPING (transactional batches of several producers: for the whole request; or an id that is not the
transactional id's), CONCURRENT_TRANSACTIONS, TRANSACTION_ABORTABLE, INVALID_TXN_STATE (no transaction is open),
INVALID_TOPIC_EXCEPTION (a coordinator's topic), INVALID_REQUIRED_ACKS, CORRUPT_MESSAGE, MESSAGE_TOO_LARGE,
INVALID_RECORD, INVALID_TIMESTAMP, UNSUPPORTED_FOR_MESSAGE_FORMAT, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH,
NOT_ENOUGH_REPLICAS, KAFKA_STORAGE_ERROR, LEADER_NOT_AVAILABLE. With acks=0 an error closes the connection, as in Kafka.
With terms also INVALID_UPDATE_VERSION (another delta version than the expected one; the actual one is told) and
INVALID_REQUEST (terms that cannot be met; or a txn_id that came before with another payload, whose version is told).
Versions: 0 to 2 are advertised and refused (KAFKA-18659); 8 error messages; 9 flexible; 11 TRANSACTION_ABORTABLE; 12
partitions become part of the transaction by being written to, before they must be it (KIP-890); 13 topic ids (KIP-516).
"""

import logging
from collections.abc import Coroutine
from typing import assert_never

from exactlog.broker.coordinator.transaction_writes import Writer
from exactlog.broker.partition_lookup import find_partition, open_partitions
from exactlog.broker.request_context import RequestContext
from exactlog.broker.topic_registry import Stopped, Topic
from exactlog.broker.transactional_produce import (
    in_words_of_produce,
    refuse_transaction,
    transactional_producers,
    writer_of,
)
from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.deltalog.append_terms import AppendTerms, Committed, Conflicted, PayloadDiffers, Superseded
from exactlog.core.model.authorization import Operation, ResourceType
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import InvariantError, KafkaError
from exactlog.core.model.ids import TopicPartition
from exactlog.core.model.topic_name import TRANSACTION_STATE, is_internal
from exactlog.core.protocol.messages.produce import (
    NO_DELTA_VERSION,
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTerms,
    TopicProduceResponse,
)
from exactlog.core.record.batch_format import BatchHeader
from exactlog.core.record.batch_validation import InvalidRecords, validate_produced
from exactlog.storage.partition_log import Appended, AppendRefused, PartitionLog

_logger = logging.getLogger(__name__)

TOPIC_IDS_SINCE = 13
ZSTD_SINCE = 7
LEGAL_ACKS = (-1, 0, 1)
TOLD_WITH_LOG_START = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    }
)
"""Errors found in what the log knows: they come with where it starts, as in Kafka."""
INTERNAL_WRITER = "__admin_client"
"""The client id that may write to the coordinators' topics, as in Kafka."""


def handle(request: ProduceRequest, context: RequestContext) -> Coroutine[None, None, None] | None:
    """Appends what the request brings; the answer follows when the last of its partitions is committed."""
    produce = _Produce(request, context)
    producers = transactional_producers(request)
    if producers:
        refusal = refuse_transaction(request, context, producers)
        if refusal is not None:
            produce.refuse(refusal)
            return None
    closed = produce.look_up()
    if closed:
        return _handle_when_open(produce, closed)
    produce.append()
    return None


async def _handle_when_open(produce: "_Produce", closed: list[TopicPartition]) -> None:
    await open_partitions(produce.context.broker.topics, closed)
    produce.look_up()
    produce.append()


class _Share:
    """One partition's share of a request: what it brings, where it goes, what comes of it."""

    __slots__ = ("data", "lost_as", "partition", "response", "topic")

    def __init__(self, data: PartitionProduceData) -> None:
        self.data = data
        self.lost_as: tuple[ErrorCode, str] | None = None
        self.topic: Topic | None = None
        self.partition: PartitionLog | ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        self.response: PartitionProduceResponse | None = None


class _Produce:
    """One request on its way: looked up, appended, and answered when the last partition's result is known."""

    __slots__ = (
        "_has_error",
        "_in_transaction",
        "_missing",
        "_parked_bytes",
        "_queued",
        "_writer",
        "context",
        "request",
        "shares",
    )

    def __init__(self, request: ProduceRequest, context: RequestContext) -> None:
        self.request = request
        self.context = context
        self._in_transaction: list[_TransactionalShare] = []
        self._queued = 0  # of those, by now, who have neither gone nor been refused
        self._parked_bytes = 0  # of those that could not go at once
        self._writer: Writer | None = None  # of those
        self.shares = [[_Share(part) for part in data.partition_data] for data in request.topic_data]
        self._missing = 1 + sum(map(len, self.shares))  # the one more is `append` itself
        self._has_error = False

    def look_up(self) -> list[TopicPartition]:
        """Finds the partitions; returns those that must be opened first."""
        context, topics = self.context, self.context.broker.topics
        by_id = context.api_version >= TOPIC_IDS_SINCE
        closed = []
        for data, shares in zip(self.request.topic_data, self.shares, strict=True):
            topic = topics.by_id(data.topic_id) if by_id else topics.by_name(data.name)
            missing = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            name = data.name if topic is None else topic.name
            is_allowed = context.allows(Operation.WRITE, ResourceType.TOPIC, name)
            if not is_allowed and not by_id:
                missing = ErrorCode.TOPIC_AUTHORIZATION_FAILED  # nor is it told whether there is one
            for share in shares:
                if topic is None:
                    share.partition = missing
                    continue
                share.topic = topic
                if not is_allowed:
                    share.partition = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                    continue
                share.partition = find_partition(topics, topic.name, share.data.index)
                if share.partition is ErrorCode.LEADER_NOT_AVAILABLE:
                    closed.append(TopicPartition(topic.name, share.data.index))
        return closed

    def refuse(self, error_code: ErrorCode) -> None:
        """Refuses every partition."""
        for shares in self.shares:
            for share in shares:
                self._put(share, _refused(share, error_code, error_code.name))
        self._finish_request()

    def append(self) -> None:
        """Appends each partition's records; with acks=0 nobody waits for what comes of it."""
        now_ms = self.context.broker.clock.now_ms()
        for shares in self.shares:
            for share in shares:
                try:
                    self._append_records(share, now_ms=now_ms)
                except KafkaError as error:
                    self._put(share, _refused(share, error.error_code, str(error)))
        if self._in_transaction:
            writes, self._in_transaction = self._in_transaction, []  # else they and this would hold each other
            self._writer = writer_of(self.request, self.context, writes[0].header)
            self._missing += len(writes)  # each waits for the coordinator too
            self._queued = len(writes)
            self.context.broker.transactions.writes.write(self._writer, writes)
            if self._queued:
                self._parked_bytes = sum(write.size_bytes for write in writes)
                self.context.park(self._parked_bytes)
        self._finish_request()

    def _finish_request(self) -> None:
        """All partitions have been looked at; what is not known yet is on its way to the disk."""
        self._missing -= 1
        if self.request.acks != 0:
            if not self._missing:
                self._send()
        elif self._has_error:
            self.context.close("acks-0-failed")  # what else could tell the client
        elif not self._queued:  # else it is in flight until the last one has gone: so many are read, and no more
            self.context.skip()

    def _append_records(self, share: _Share, *, now_ms: int) -> None:
        """Appends one partition's records; its result follows when they are committed.

        Raises:
            KafkaError: the request itself is wrong; nothing was looked at that could change.
        """
        partition, topic = share.partition, share.topic
        if topic is None or isinstance(partition, ErrorCode):
            assert isinstance(partition, ErrorCode)
            raise KafkaError(partition, self._tell_why(share))
        self._check_request(topic)
        records = share.data.records if share.data.records is not None else b""
        validated = validate_produced(
            records,
            batch_bytes_max=topic.config.max_message_bytes,
            is_compacted="compact" in topic.config.cleanup_policy,
            is_zstd_known=self.context.api_version >= ZSTD_SINCE,
        )
        if isinstance(validated, InvalidRecords):
            self._put(
                share, _refused(share, validated.error_code, validated.message, batch_index=validated.batch_index)
            )
            return
        _check_batch(validated.header, topic.config, now_ms=now_ms)
        if share.data.terms is not None:
            batch = validated.header, memoryview(records)
            self._append_on_terms(share, partition, batch, _terms_of(share.data.terms), now_ms=now_ms)
        elif validated.header.is_transactional:
            if topic.name == TRANSACTION_STATE:
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"No transaction has a part in '{topic.name}'.")
            self._in_transaction.append(_TransactionalShare(self, share, validated.header, memoryview(records)))
        else:
            self._await(share, partition, partition.append(validated.header, memoryview(records), now_ms=now_ms))

    def _await(self, share: _Share, partition: PartitionLog, outcome: Appended | AppendRefused) -> None:
        """The result of a share is what came of its append, once that is committed."""

        def when_committed(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                self._put(share, _refused(share, error, partition.failure or "The disk refused the write."))
            elif isinstance(outcome, AppendRefused):
                self._put(share, _refused(share, outcome.error_code, outcome.message))
            else:
                response = PartitionProduceResponse(
                    index=share.data.index,
                    base_offset=outcome.base_offset,
                    log_append_time_ms=outcome.log_append_time_ms,
                    log_start_offset=partition.log_start_offset,
                )
                self._put(share, response)
            self._go_on()

        partition.when_committed(when_committed)

    def append_in_transaction(
        self, share: _Share, header: BatchHeader, records: memoryview, *, lowest_sequence: int | None
    ) -> None:
        """Appends a batch that the coordinator knows to be part of the producer's transaction.

        Also where nobody waits any more: whoever wants no answer may have gone by now.
        """
        assert isinstance(share.partition, PartitionLog)
        assert self._writer is not None
        now_ms = self.context.broker.clock.now_ms()
        outcome = share.partition.append(
            header,
            records,
            now_ms=now_ms,
            is_verified=True,
            first_sequence_max=0 if self._writer.may_add else lowest_sequence,
        )
        self._await(share, share.partition, outcome)
        self._queued -= 1
        if self._parked_bytes and not self._queued:
            self._unpark()

    def _unpark(self) -> None:
        """All have gone, or been refused."""
        self.context.unpark(self._parked_bytes)
        if self.request.acks == 0 and not self._has_error:
            self.context.skip()

    def end_wait_for_coordinator(self, share: _Share, error: ErrorCode) -> None:
        """What makes a share part of a transaction is committed, or never will be."""
        self._missing -= 1
        if error is not ErrorCode.NONE:
            share.lost_as = in_words_of_produce(error, self.context.api_version)
            self._has_error = True
            if share.response is not None:
                share.response = _refused(share, *share.lost_as)
        self._go_on()

    def refuse_share(self, share: _Share, error: ErrorCode) -> None:
        """The coordinator lets a share not in."""
        self._missing -= 1
        self._put(share, _refused(share, *in_words_of_produce(error, self.context.api_version)))
        self._queued -= 1
        if self._parked_bytes and not self._queued:
            self._unpark()
        self._go_on()

    def _append_on_terms(
        self,
        share: _Share,
        partition: PartitionLog,
        batch: tuple[BatchHeader, memoryview],
        terms: AppendTerms,
        *,
        now_ms: int,
    ) -> None:
        """Appends one partition's records if the terms hold; what came of it is told once it is published."""
        if self.request.acks == 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "An append on terms needs an answer: acks cannot be 0.")
        outcome = partition.append_on_terms(*batch, terms, now_ms=now_ms)

        def when_published(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                self._put(share, _refused(share, error, partition.failure or "The disk refused the write."))
            else:
                self._put(share, _result_on_terms(share, outcome, log_start_offset=partition.log_start_offset))
            self._go_on()

        partition.when_published(when_published)

    def _check_request(self, topic: Topic) -> None:
        acks = self.request.acks
        if acks not in LEGAL_ACKS:
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}; it can be -1, 0 or 1.")
        if is_internal(topic.name) and self.context.client_id != INTERNAL_WRITER:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Only the broker writes to '{topic.name}'.")
        if acks == -1 and topic.config.min_insync_replicas > 1:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS, "min.insync.replicas is above 1 and this broker is the only replica."
            )

    def _tell_why(self, share: _Share) -> str:
        """Why a partition cannot be used, where there is more to say than its error code does."""
        if share.topic is None:
            return ""
        found = self.context.broker.topics.partition(share.topic.name, share.data.index)
        match found:
            case Stopped(reason=reason):
                return reason
            case PartitionLog():
                return found.failure or ""
            case _:
                return ""

    def _put(self, share: _Share, response: PartitionProduceResponse) -> None:
        """One partition's result is known."""
        share.response = response if share.lost_as is None else _refused(share, *share.lost_as)
        self._has_error = self._has_error or response.error_code != ErrorCode.NONE
        self._missing -= 1

    def _go_on(self) -> None:
        """One more result is known: the last one completes the answer."""
        if self.request.acks == 0:
            if self._has_error:  # found out after the request was let go
                self.context.close("acks-0-failed")
        elif not self._missing:
            self.context.finish(self._send)

    def _send(self) -> None:
        topics = [
            TopicProduceResponse(
                name=data.name,
                topic_id=data.topic_id,
                partition_responses=tuple([share.response for share in shares if share.response is not None]),
            )
            for data, shares in zip(self.request.topic_data, self.shares, strict=True)
            if shares
        ]
        self.context.answer(ProduceResponse(responses=tuple(topics)))


class _TransactionalShare:
    """A share that is part of a transaction: a `coordinator.transaction_writes.Write`."""

    __slots__ = ("_produce", "_records", "_share", "first_sequence", "header", "partition")

    def __init__(self, produce: _Produce, share: _Share, header: BatchHeader, records: memoryview) -> None:
        assert isinstance(share.partition, PartitionLog)
        self.partition = share.partition
        self.header = header
        self.first_sequence = header.base_sequence
        self._produce = produce
        self._share = share
        self._records = records

    @property
    def size_bytes(self) -> int:
        """Of its records."""
        return len(self._records)

    def go(self, *, lowest_sequence: int | None = None) -> None:
        """Appends it."""
        try:
            self._produce.append_in_transaction(
                self._share, self.header, self._records, lowest_sequence=lowest_sequence
            )
        except Exception:  # the request would never be answered: its connection ends, and nobody else is hurt
            _logger.exception("a batch of a transaction could not be appended to %s", self.partition.topic_partition)
            self._produce.context.close("handler-error")

    def is_joined(self, error: ErrorCode) -> None:
        """What makes it part of the transaction is committed, or never will be."""
        self._produce.end_wait_for_coordinator(self._share, error)

    def refuse(self, error: ErrorCode) -> None:
        """It may not be appended."""
        self._produce.refuse_share(self._share, error)


def _check_batch(header: BatchHeader, config: TopicConfig, *, now_ms: int) -> None:
    """What the topic's configuration asks of a batch.

    Raises:
        KafkaError: INVALID_TIMESTAMP.
    """
    if config.message_timestamp_type == "LogAppendTime":
        return
    latest = now_ms + config.message_timestamp_after_max_ms
    earliest = now_ms - config.message_timestamp_before_max_ms
    if header.max_timestamp > latest or 0 <= header.base_timestamp < earliest:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            f"Timestamps {header.base_timestamp} to {header.max_timestamp} of the batch are out of range. "
            f"They should be within [{earliest}, {latest}].",
        )


def _terms_of(terms: ProduceTerms) -> AppendTerms:
    return AppendTerms(
        expected_version=None if terms.expected_version == NO_DELTA_VERSION else terms.expected_version,
        txn_id=terms.txn_id,
        payload_crc=f"{terms.payload_crc:08x}",
    )


def _result_on_terms(
    share: _Share,
    outcome: Committed | Conflicted | Superseded | PayloadDiffers | AppendRefused,
    *,
    log_start_offset: int,
) -> PartitionProduceResponse:
    match outcome:
        case Committed():
            return PartitionProduceResponse(
                index=share.data.index,
                base_offset=outcome.offset_start,
                log_start_offset=log_start_offset,
                delta_version=outcome.version,
            )
        case Conflicted(expected=expected, actual=actual):
            message = f"The append expects delta version {expected}; the newest one is {actual}."
            return _refused(share, ErrorCode.INVALID_UPDATE_VERSION, message, delta_version=actual)
        case PayloadDiffers(message=message, version=version):
            return _refused(share, ErrorCode.INVALID_REQUEST, message, delta_version=version)
        case AppendRefused(error_code=error_code, message=message):
            return _refused(share, error_code, message)
        case Superseded():
            raise InvariantError("no sequence of an origin travels in a request")
        case unreachable:
            assert_never(unreachable)


def _refused(
    share: _Share,
    error_code: ErrorCode,
    message: str,
    *,
    batch_index: int | None = None,
    delta_version: int = NO_DELTA_VERSION,
) -> PartitionProduceResponse:
    log_start_offset = -1
    if error_code in TOLD_WITH_LOG_START and isinstance(share.partition, PartitionLog):
        log_start_offset = share.partition.log_start_offset
    faults: tuple[BatchIndexAndErrorMessage, ...] = ()
    if batch_index is not None:
        faults = (BatchIndexAndErrorMessage(batch_index=batch_index, batch_index_error_message=message),)
    return PartitionProduceResponse(
        index=share.data.index,
        error_code=error_code,
        base_offset=-1,
        log_append_time_ms=-1,
        log_start_offset=log_start_offset,
        record_errors=faults,
        error_message=message,
        delta_version=delta_version,
    )
