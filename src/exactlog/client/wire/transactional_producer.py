"""The one producer of a transactional id: takes the id, begins transactions, and ends them (KIP-98, KIP-890)."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from enum import Enum
from typing import Final, Self

from exactlog.client.groups import CommittedOffset
from exactlog.client.ports import ClientSettings
from exactlog.client.produced import ProducedRecord, ProducerIdentity
from exactlog.client.transactions import (
    EMPTY,
    OutcomeUnknownError,
    ProducerFencedError,
    SharedTransaction,
    TransactionStateError,
)
from exactlog.client.wire.cluster import Cluster
from exactlog.client.wire.coordinators import Coordinators
from exactlog.client.wire.producer import IdempotentSession
from exactlog.client.wire.record_distributor import RecordDistributor
from exactlog.client.wire.retries import retry
from exactlog.client.wire.transaction_descriptions import describe_with_coordinator
from exactlog.client.wire.transaction_part import (
    ADDS_BY_WRITING,
    WireTransactionPart,
    failed,
    transaction_version_of,
)
from exactlog.client.wire.transaction_refusals import check_transaction
from exactlog.core.codec.compression import Compression
from exactlog.core.codec.wire_types import Buffer
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import ExactlogError, KafkaError, UnavailableError
from exactlog.core.model.ids import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    Offset,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)
from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from exactlog.core.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from exactlog.core.record.batch_builder import NewRecord

_log = logging.getLogger(__name__)

_NOBODY: Final = ProducerIdentity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
_FIRST_INIT_WITH_IDENTITY: Final = 3
_FIRST_END_WITH_NEXT_EPOCH: Final = 5


class _Stage(Enum):
    """How far the producer is."""

    NEW = "it has not taken the transactional id yet"
    READY = "no transaction is open"
    OPEN = "a transaction is open"
    COMMITTING = "a commit was sent whose outcome is not known; call commit again"
    ABORTING = "an abort was sent whose outcome is not known; call abort again"


class WireTransactionalProducer:
    """The `TransactionalProducer` port over the wire. Its calls are one after another, but for those that write."""

    def __init__(
        self,
        cluster: Cluster,
        groups: Coordinators,
        transactions: Coordinators,
        settings: ClientSettings,
        transactional_id: str,
        *,
        timeout_ms: int,
    ) -> None:
        self._cluster = cluster
        self._groups = groups
        self._transactions = transactions
        self._settings = settings
        self._transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._distributor = RecordDistributor(cluster, settings)
        self._stage = _Stage.NEW
        self._session = IdempotentSession(_NOBODY)
        self._part: WireTransactionPart | None = None
        self._is_shared = False
        self._needs_new_epoch = False  # what was sent in this one may still arrive, or nobody knows its sequences
        self._end_is_unanswered = False
        self._fenced: ProducerFencedError | None = None
        self._turn = asyncio.Lock()

    @property
    def identity(self) -> ProducerIdentity | None:
        """See `TransactionalProducer`."""
        return None if self._stage is _Stage.NEW else self._session.identity

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        if self._stage is not _Stage.OPEN or self._fenced is not None:
            return
        try:
            await self._end_at_exit()
        except ExactlogError as error:  # the coordinator does it when the transaction times out
            _log.warning("transaction %s was left open: %s", self._transactional_id, error)

    # --- the producer's life ---------------------------------------------------------------------------------

    async def init(self) -> ProducerIdentity:
        """See `TransactionalProducer`."""
        async with self._alone():
            await self._init(_NOBODY)
            return self._session.identity

    async def begin(self) -> None:
        """See `TransactionalProducer`."""
        async with self._alone():
            await self._begin(is_shared=False)

    async def begin_shared(self) -> SharedTransaction:
        """See `TransactionalProducer`."""
        async with self._alone():
            # Those who share it count their records from 0: that needs an epoch in which nothing was written.
            self._needs_new_epoch |= bool(self._session.next_sequences)
            return await self._begin(is_shared=True)

    def resume(self, transaction: SharedTransaction) -> None:
        """Be the producer of a transaction that is open already, begun by another one of this transactional id."""
        self._session = IdempotentSession(transaction.identity)
        self._open(transaction, is_shared=True)

    async def commit(self) -> None:
        """See `TransactionalProducer`."""
        async with self._alone():
            part = self._open_part(_Stage.COMMITTING)
            if part.failure is not None:
                raise failed(part.failure)
            await self._end(part, is_commit=True)

    async def abort(self) -> None:
        """See `TransactionalProducer`."""
        async with self._alone():
            await self._end(self._open_part(_Stage.ABORTING), is_commit=False)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """See `TransactionalProducer`."""
        await self.begin()
        try:
            yield self
        except BaseException:
            if self._stage is _Stage.OPEN and self._fenced is None:
                with contextlib.suppress(ExactlogError):  # what came first is what is told
                    await self._end_at_exit()
            raise
        await self.commit()

    async def produce(
        self,
        topic: str,
        records: Sequence[NewRecord],
        *,
        partition: int | None = None,
        compression: Compression = Compression.NONE,
    ) -> tuple[ProducedRecord, ...]:
        """See `TransactionPart`."""
        return await self._writable().produce(topic, records, partition=partition, compression=compression)

    async def send_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, Offset],
        *,
        member_id: str = "",
        generation_id: int = -1,
        group_instance_id: str | None = None,
        metadata: str = "",
    ) -> None:
        """See `TransactionPart`."""
        await self._writable().send_offsets(
            group_id,
            offsets,
            member_id=member_id,
            generation_id=generation_id,
            group_instance_id=group_instance_id,
            metadata=metadata,
        )

    async def send_batch(self, place: TopicPartition, batch: Buffer) -> Offset | None:
        """See `TransactionPart`."""
        return await self._writable().send_batch(place, batch)

    async def stable_offsets(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """See `TransactionPart`."""
        return await self._writable().stable_offsets(group_id)

    # --- whether ---------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """One call that changes the stage. Once fenced, every one of them says so."""
        async with self._turn:
            if self._fenced is not None:
                raise failed(self._fenced)
            if self._part is not None and self._part.is_busy:
                raise TransactionStateError("records are still on their way", hint="wait for produce first")
            try:
                yield
            except ProducerFencedError as error:
                self._fenced = error
                raise

    def _writable(self) -> WireTransactionPart:
        if self._fenced is not None:
            raise failed(self._fenced)
        if self._stage is not _Stage.OPEN or self._part is None:
            raise TransactionStateError(self._stage.value, hint="begin a transaction first")
        return self._part

    def _open_part(self, same_end: _Stage) -> WireTransactionPart:
        """What is to be ended: what is open, or what is being ended this way already."""
        if self._part is None or self._stage not in {_Stage.OPEN, same_end}:
            raise TransactionStateError(self._stage.value)
        if isinstance(self._part.failure, ProducerFencedError):
            raise self._part.failure
        return self._part

    # --- InitProducerId --------------------------------------------------------------------------------------

    async def _init(self, identity: ProducerIdentity) -> None:
        """Take the id with its next epoch; with an `identity`, only from whoever has that."""
        what = f"take the transactional id {self._transactional_id}"
        request = InitProducerIdRequest(
            transactional_id=self._transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
        )
        at_least = 0 if identity is _NOBODY else _FIRST_INIT_WITH_IDENTITY

        async def attempt() -> ProducerIdentity:
            connection = await self._transactions.connection(self._transactional_id)
            version = connection.versions.pick(ApiKey.INIT_PRODUCER_ID, at_least=at_least)
            response = await self._transactions.request(
                self._transactional_id, request, InitProducerIdResponse, version=version
            )
            self._transactions.note(self._transactional_id, response.error_code)
            check_transaction(response.error_code, what)
            return ProducerIdentity(ProducerId(response.producer_id), ProducerEpoch(response.producer_epoch))

        taken = await retry(what, attempt, self._settings)
        self._let_go(IdempotentSession(taken))

    def _let_go(self, session: IdempotentSession) -> None:
        """There is no transaction any more; the next one is signed like that."""
        if self._part is not None:
            self._part.end()
        self._part = None
        if session is not self._session:
            self._needs_new_epoch = False
        self._session = session
        self._end_is_unanswered = False
        self._stage = _Stage.READY

    async def _begin(self, *, is_shared: bool) -> SharedTransaction:
        if self._stage not in {_Stage.NEW, _Stage.READY}:
            raise TransactionStateError(self._stage.value)
        if self._stage is _Stage.NEW:
            await self._init(_NOBODY)
        elif self._needs_new_epoch:
            await self._init(self._session.identity)
        connection = await retry(
            f"begin a transaction of {self._transactional_id}",
            lambda: self._transactions.connection(self._transactional_id),
            self._settings,
        )
        identity = self._session.identity
        transaction = SharedTransaction(
            transactional_id=self._transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            transaction_version=transaction_version_of(connection.versions),
        )
        self._open(transaction, is_shared=is_shared)
        return transaction

    def _open(self, transaction: SharedTransaction, *, is_shared: bool) -> None:
        self._part = WireTransactionPart(
            self._cluster,
            self._groups,
            self._transactions,
            self._settings,
            transaction,
            session=self._session,
            distributor=self._distributor,
        )
        self._is_shared = is_shared
        self._stage = _Stage.OPEN

    # --- EndTxn ----------------------------------------------------------------------------------------------

    async def _end_at_exit(self) -> None:
        """Abort, whatever is still under way: nothing of it counts."""
        async with self._turn:
            if self._part is not None and self._stage is _Stage.OPEN and self._part.failure is None:
                self._needs_new_epoch |= self._part.is_busy
            if self._part is not None and not isinstance(self._part.failure, ProducerFencedError):
                await self._end(self._part, is_commit=False)

    async def _end(self, part: WireTransactionPart, *, is_commit: bool) -> None:
        if not part.has_written and not self._is_shared:
            self._let_go(self._session)
            return
        self._stage = _Stage.COMMITTING if is_commit else _Stage.ABORTING
        try:
            session = await self._send_end(part.transaction, is_commit=is_commit)
        except KafkaError as error:
            if not await self._had_not_begun(part.transaction, error, is_commit=is_commit):
                self._stage = _Stage.OPEN
                part.fail(error)
                raise
            session = self._session
        except UnavailableError as error:
            if self._end_is_unanswered:
                told = "commit" if is_commit else "abort"
                raise OutcomeUnknownError(str(error), hint=f"whether it was done is not known; {told} again") from error
            self._stage = _Stage.OPEN
            raise
        if session is self._session:
            # What is still on its way in this epoch could become part of the next transaction.
            self._needs_new_epoch |= part.failure is not None or self._is_shared
        self._let_go(session)

    async def _send_end(self, transaction: SharedTransaction, *, is_commit: bool) -> IdempotentSession:
        """Send EndTxn until it is answered; what the next transaction is signed with."""
        what = f"{'commit' if is_commit else 'abort'} transaction {transaction.transactional_id}"
        ends_epoch = transaction.transaction_version >= ADDS_BY_WRITING
        request = EndTxnRequest(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            committed=is_commit,
        )

        async def attempt() -> EndTxnResponse:
            connection = await self._transactions.connection(transaction.transactional_id)
            version = connection.versions.pick(
                ApiKey.END_TXN,
                at_least=_FIRST_END_WITH_NEXT_EPOCH if ends_epoch else 0,
                at_most=_FIRST_END_WITH_NEXT_EPOCH if ends_epoch else _FIRST_END_WITH_NEXT_EPOCH - 1,
            )
            # One that was sent and not answered may arrive late, and end the next transaction of this epoch.
            self._needs_new_epoch |= self._end_is_unanswered
            self._end_is_unanswered = True
            response = await self._transactions.request(
                transaction.transactional_id, request, EndTxnResponse, version=version
            )
            self._end_is_unanswered = False
            self._transactions.note(transaction.transactional_id, response.error_code)
            check_transaction(response.error_code, what)
            return response

        response = await retry(what, attempt, self._settings)
        if response.producer_id < 0:
            return self._session
        return IdempotentSession(
            ProducerIdentity(ProducerId(response.producer_id), ProducerEpoch(response.producer_epoch))
        )

    async def _had_not_begun(self, transaction: SharedTransaction, error: KafkaError, *, is_commit: bool) -> bool:
        """Whether there is nothing to end, for nothing was written: what others have who share it is not known here."""
        if error.error_code is not ErrorCode.INVALID_TXN_STATE or (is_commit and not self._is_shared):
            return False
        described = await describe_with_coordinator(
            self._transactions, transaction.transactional_id, settings=self._settings
        )
        identity = ProducerIdentity(described.producer_id, described.producer_epoch)
        if identity != transaction.identity or described.is_open:
            return False
        # Had it begun and ended, the epoch would be another one now, or the state that of its end.
        return not is_commit or described.state == EMPTY or transaction.transaction_version >= ADDS_BY_WRITING
