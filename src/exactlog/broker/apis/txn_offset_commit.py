"""TxnOffsetCommit (key 28), versions 0 to 6.

Does: keeps for a group how far it has read, once the producer's transaction commits; answered when it is committed that
it will be so. The partition that keeps the group's offsets becomes part of the transaction by this (5), or must be part
of it already (AddOffsetsToTxn).
Errors: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED, INVALID_GROUP_ID,
UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, OFFSET_METADATA_TOO_LARGE, UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION,
FENCED_INSTANCE_ID, GROUP_ID_NOT_FOUND; INVALID_PRODUCER_ID_MAPPING, INVALID_PRODUCER_EPOCH, CONCURRENT_TRANSACTIONS,
TRANSACTION_ABORTABLE, INVALID_TXN_STATE (the group is not part of an open transaction); NOT_COORDINATOR,
COORDINATOR_NOT_AVAILABLE, also while a coordinator is loaded, and where too much is pending.
Versions: 2 leader epochs; 3 members and generations (KIP-447), before that nobody says so; 4 TRANSACTION_ABORTABLE,
before that INVALID_TXN_STATE; 5 adds the group to the transaction (KIP-890); 6 topic ids (KIP-1319).
"""

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from exactlog.broker.asking import Later
from exactlog.broker.coordinator.groups import Runner
from exactlog.broker.coordinator.transaction_writes import Writer
from exactlog.broker.offset_lookup import OffsetsAsked
from exactlog.broker.request_context import RequestContext
from exactlog.core.group.requests import CommitAnswer, TransactionalCommitRequest
from exactlog.core.model.authorization import Operation, ResourceType
from exactlog.core.model.decisions import ProducerIdentity
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import NO_SEQUENCE, ProducerEpoch, ProducerId
from exactlog.core.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from exactlog.storage.partition_log import PartitionLog

ABORTABLE_SINCE = 4
ADDS_GROUP_SINCE = 5
TOPIC_IDS_SINCE = 6
GROUP_NOT_FOUND_SINCE = 6

_IN_WORDS_OF_OFFSETS: Final = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""Where this API tells what a coordinator says by another code, as Apache Kafka does."""


def handle(request: TxnOffsetCommitRequest, context: RequestContext) -> TxnOffsetCommitResponse | Later:
    """Commits the offsets of partitions that exist, all together; the others get their own errors."""
    refusal = _refusal(request, context)
    if refusal is not ErrorCode.NONE:
        return _respond(request, [[refusal] * len(topic.partitions) for topic in request.topics])
    asked = OffsetsAsked(request.topics, context, by_id=context.api_version >= TOPIC_IDS_SINCE)

    def respond(errors: Sequence[ErrorCode]) -> TxnOffsetCommitResponse:
        return _respond(request, asked.merge(errors))

    if not asked.offsets:
        return respond(())
    commit = TransactionalCommitRequest(
        group_id=request.group_id,
        producer=ProducerIdentity(ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch)),
        generation_id=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        understands_missing_group=context.api_version >= GROUP_NOT_FOUND_SINCE,
        offsets=asked.offsets,
    )
    runner = context.broker.groups.find(request.group_id)
    if runner is None:
        return _write_when_loaded(request, commit, context, respond)
    _write(runner, request, commit, context, respond)
    return None


_Respond = Callable[[Sequence[ErrorCode]], TxnOffsetCommitResponse]


def _refusal(request: TxnOffsetCommitRequest, context: RequestContext) -> ErrorCode:
    if not context.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not context.allows(Operation.READ, ResourceType.GROUP, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.NONE if request.group_id else ErrorCode.INVALID_GROUP_ID


def _write(
    runner: Runner,
    request: TxnOffsetCommitRequest,
    commit: TransactionalCommitRequest,
    context: RequestContext,
    respond: _Respond,
) -> None:
    writer = Writer(
        transactional_id=request.transactional_id,
        producer_id=commit.producer.producer_id,
        producer_epoch=commit.producer.producer_epoch,
        may_add=context.api_version >= ADDS_GROUP_SINCE,
    )
    context.broker.transactions.writes.write(writer, (_OffsetsInTransaction(runner, commit, context, respond),))


async def _write_when_loaded(
    request: TxnOffsetCommitRequest,
    commit: TransactionalCommitRequest,
    context: RequestContext,
    respond: _Respond,
) -> None:
    runner = await context.broker.groups.load(request.group_id)
    if isinstance(runner, ErrorCode):
        error = _in_words_of(context.api_version, runner)
        context.finish(lambda: context.answer(respond((error,) * len(commit.offsets))))
    else:
        _write(runner, request, commit, context, respond)


class _OffsetsInTransaction:
    """The offsets of one request on their way into the transaction; answered when they, and what lets them in, are."""

    __slots__ = ("_commit", "_context", "_error", "_missing", "_outcome", "_respond", "_runner")

    def __init__(
        self, runner: Runner, commit: TransactionalCommitRequest, context: RequestContext, respond: _Respond
    ) -> None:
        self._runner = runner
        self._commit = commit
        self._context = context
        self._respond = respond
        self._missing = 2
        self._error = ErrorCode.NONE
        self._outcome: Sequence[ErrorCode] = ()

    # --- a write into a partition -------------------------------------------------------------------------------

    @property
    def partition(self) -> PartitionLog:
        """The one that keeps the group's offsets."""
        return self._runner.partition

    @property
    def first_sequence(self) -> int:
        """It has none: a coordinator writes it."""
        return NO_SEQUENCE

    def go(self, *, lowest_sequence: int | None = None) -> None:
        """The coordinator of transactions knows that the group is part of the transaction."""
        del lowest_sequence
        commit = self._commit
        self._runner.decide(
            lambda shard, now_ms: shard.commit_transactional_offsets(commit, self, now_ms=now_ms), asker=self
        )

    def is_joined(self, error: ErrorCode) -> None:
        """Whether that stands is known."""
        self._end_wait(error)

    def refuse(self, error: ErrorCode) -> None:
        """It does not know so, and nothing is written."""
        self._missing = 1
        self._end_wait(error)

    # --- who waits for the group's coordinator ------------------------------------------------------------------

    def answer(self, outcome: Struct) -> None:
        """The offsets are committed, or refused one by one."""
        assert isinstance(outcome, CommitAnswer)
        self._outcome = outcome.errors
        self._end_wait(ErrorCode.NONE)

    def fail(self, error_code: ErrorCode) -> None:
        """None of them will ever be."""
        self._end_wait(error_code)

    def _end_wait(self, error: ErrorCode) -> None:
        if self._error is ErrorCode.NONE:
            self._error = error
        self._missing -= 1
        if not self._missing:
            self._context.finish(lambda: self._context.answer(self._respond(self._errors())))

    def _errors(self) -> Sequence[ErrorCode]:
        if self._error is ErrorCode.NONE:
            return self._outcome
        return (_in_words_of(self._context.api_version, self._error),) * len(self._commit.offsets)


def _in_words_of(version: int, error: ErrorCode) -> ErrorCode:
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    return _IN_WORDS_OF_OFFSETS.get(error, error)


def _respond(request: TxnOffsetCommitRequest, errors: Sequence[Sequence[ErrorCode]]) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=tuple(
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=tuple(
                    TxnOffsetCommitResponsePartition(partition_index=part.partition_index, error_code=error)
                    for part, error in zip(topic.partitions, of_topic, strict=True)
                ),
            )
            for topic, of_topic in zip(request.topics, errors, strict=True)
            if topic.partitions
        )
    )
