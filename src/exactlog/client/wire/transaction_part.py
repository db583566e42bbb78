"""Writing in one transaction, in the process that began it or in another.

At level 1 of the feature `transaction.version` partitions and groups are added to the transaction before they are
written to (KIP-98); from level 2 on that is done by writing (KIP-890). To add is idempotent, and needs no more than the
transactional id, the producer id and its epoch, which is what lets processes share a transaction.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from exactlog.client.groups import CommittedOffset
from exactlog.client.ports import ACKS_ALL, ClientSettings
from exactlog.client.produced import ProducedRecord
from exactlog.client.transactions import (
    TOO_LARGE,
    ProducerFencedError,
    SharedTransaction,
    TransactionFailedError,
    TransactionStateError,
)
from exactlog.client.wire.broker_versions import VERSION_MAX, BrokerVersions
from exactlog.client.wire.cluster import Cluster
from exactlog.client.wire.coordinators import Coordinators
from exactlog.client.wire.offsets import committed_offsets
from exactlog.client.wire.produce_exchange import FIRST_VERSION_WITH_ZSTD, detail_of, exchange_produce
from exactlog.client.wire.producer import IdempotentSession
from exactlog.client.wire.record_distributor import RecordDistributor
from exactlog.client.wire.refusals import as_error_code
from exactlog.client.wire.retries import retry
from exactlog.client.wire.transaction_refusals import check_transaction, transaction_refusal
from exactlog.core.codec.compression import Compression
from exactlog.core.codec.wire_types import Buffer
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import ExactlogError, KafkaError
from exactlog.core.model.ids import Offset, TopicPartition
from exactlog.core.model.sequences import add_to_sequence
from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from exactlog.core.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from exactlog.core.protocol.messages.produce import PartitionProduceData
from exactlog.core.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from exactlog.core.record.batch_builder import NewRecord, build_batch
from exactlog.core.record.batch_format import decode_header

ADDS_BY_WRITING: Final = 2
"""The level of `transaction.version` from which on writing to a partition adds it."""

_TRANSACTION_VERSION: Final = "transaction.version"
_NEEDED_FOR_ADDING_BY_WRITING: Final = {ApiKey.END_TXN: 5, ApiKey.TXN_OFFSET_COMMIT: 5, ApiKey.PRODUCE: 12}
_FIRST_PRODUCE: Final = 3
_LAST_ADD_PARTITIONS_OF_CLIENTS: Final = 3
_FIRST_OFFSET_COMMIT_WITH_MEMBERS: Final = 3
_LAST_OFFSET_COMMIT_WITH_NAMES: Final = 5


def transaction_version_of(versions: BrokerVersions) -> int:
    """Which level of `transaction.version` to work at: what the cluster has settled on, not what brokers could do."""
    level = versions.finalized.get(_TRANSACTION_VERSION, 0)
    if level < ADDS_BY_WRITING:
        return level
    served = versions.served
    is_served = all(
        key in served and served[key].highest >= needed for key, needed in _NEEDED_FOR_ADDING_BY_WRITING.items()
    )
    return ADDS_BY_WRITING if is_served else ADDS_BY_WRITING - 1


class WireTransactionPart:
    """The `TransactionPart` port over the wire, for one transaction.

    Attributes:
        transaction: which one.
        failure: the first error of a call; from then on the transaction can only be aborted.
        has_written: whether anything was sent that lets the transaction begin.
    """

    def __init__(
        self,
        cluster: Cluster,
        groups: Coordinators,
        transactions: Coordinators,
        settings: ClientSettings,
        transaction: SharedTransaction,
        *,
        session: IdempotentSession | None = None,
        distributor: RecordDistributor | None = None,
    ) -> None:
        self.transaction = transaction
        self.failure: ExactlogError | None = None
        self.has_written = False
        self._cluster = cluster
        self._groups = groups
        self._transactions = transactions
        self._settings = settings
        self._session = session or IdempotentSession(transaction.identity)
        self._distributor = distributor or RecordDistributor(cluster, settings)
        self._added: set[TopicPartition] = set()
        self._add_turn = asyncio.Lock()
        self._under_way = 0
        self._is_over = False

    @property
    def is_busy(self) -> bool:
        """Whether a call is under way."""
        return self._under_way > 0

    def end(self) -> None:
        """Nothing can be written in it any more."""
        self._is_over = True

    def fail(self, error: ExactlogError) -> None:
        """From now on the transaction can only be aborted."""
        if self.failure is None:
            self.failure = error

    async def produce(
        self,
        topic: str,
        records: Sequence[NewRecord],
        *,
        partition: int | None = None,
        compression: Compression = Compression.NONE,
    ) -> tuple[ProducedRecord, ...]:
        """See `TransactionPart`."""

        async def produce_batch(place: TopicPartition, batch: Sequence[NewRecord]) -> Offset | None:
            return await self._append(place, batch, compression)

        with self._doing():
            return await self._distributor.produce(
                topic, records, produce_batch, partition=partition, prepare=self._add_partitions
            )

    async def send_batch(self, place: TopicPartition, batch: Buffer) -> Offset | None:
        """See `TransactionPart`."""
        with self._doing():
            await self._add_partitions([place])
            try:
                return await self._send(place, batch, decode_header(batch).compression)
            except KafkaError as error:
                if error.kafka_error not in TOO_LARGE:
                    raise
                too_large = error
        raise too_large

    async def stable_offsets(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """See `TransactionPart`."""
        what = f"list the offsets of group {group_id}"
        return await retry(
            what, lambda: committed_offsets(self._groups, group_id, what=what, is_stable=True), self._settings
        )

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
        if not offsets:
            return
        request = TxnOffsetCommitRequest(
            transactional_id=self.transaction.transactional_id,
            group_id=group_id,
            producer_id=self.transaction.producer_id,
            producer_epoch=self.transaction.producer_epoch,
            member_id=member_id,
            generation_id_or_member_epoch=generation_id,
            group_instance_id=group_instance_id,
            topics=_offsets_by_topic(offsets, metadata),
        )
        is_member = bool(member_id) or generation_id >= 0 or group_instance_id is not None
        with self._doing():
            if not self._adds_by_writing:
                await self._add_offsets(group_id)
            await self._commit_offsets(group_id, request, is_member=is_member)

    @contextlib.contextmanager
    def _doing(self) -> Iterator[None]:
        """One call: what goes wrong in it is the end of the transaction."""
        if self._is_over:
            raise TransactionStateError("the transaction is over", hint="begin another one")
        if self.failure is not None:
            raise failed(self.failure)
        self._under_way += 1
        try:
            yield
        except ExactlogError as error:
            self.fail(error)
            raise
        except BaseException as error:
            self.fail(TransactionFailedError(f"a call was given up: {error!r}"))
            raise
        finally:
            self._under_way -= 1

    @property
    def _adds_by_writing(self) -> bool:
        return self.transaction.transaction_version >= ADDS_BY_WRITING

    # --- records ---------------------------------------------------------------------------------------------

    async def _append(
        self, place: TopicPartition, records: Sequence[NewRecord], compression: Compression
    ) -> Offset | None:
        session = self._session
        batch = build_batch(
            records,
            compression=compression,
            producer_id=session.identity.producer_id,
            producer_epoch=session.identity.producer_epoch,
            base_sequence=session.next_sequences[place],
            is_transactional=True,
        )
        base_offset = await self._send(place, batch, compression)
        session.next_sequences[place] = add_to_sequence(session.next_sequences[place], len(records))
        return base_offset

    async def _send(self, place: TopicPartition, batch: Buffer, compression: Compression) -> Offset | None:
        first_capable = FIRST_VERSION_WITH_ZSTD if compression is Compression.ZSTD else _FIRST_PRODUCE
        first_adding = _NEEDED_FOR_ADDING_BY_WRITING[ApiKey.PRODUCE]

        async def attempt() -> Offset | None:
            leader_id = await self._cluster.leader_of(place)
            connection = await self._cluster.connection_to(leader_id)
            topic = await self._cluster.topic(place.topic)
            self.has_written = True
            try:
                answer = await exchange_produce(
                    connection,
                    topic,
                    PartitionProduceData(index=place.partition, records=batch),
                    acks=ACKS_ALL,
                    timeout_ms=self._settings.request_timeout_ms,
                    at_least=first_adding if self._adds_by_writing else first_capable,
                    at_most=VERSION_MAX if self._adds_by_writing else first_adding - 1,
                    transactional_id=self.transaction.transactional_id,
                )
            except ExactlogError:
                self._cluster.forget(place.topic)
                raise
            assert answer is not None, "all acknowledgements were asked for"
            code = as_error_code(answer.error_code)
            if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                return None  # appended by an earlier attempt, too long ago for the broker to know where
            if code is not ErrorCode.NONE:
                if code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                    self._cluster.forget(place.topic)
                raise transaction_refusal(answer.error_code, f"produce to {place}", detail_of(answer))
            return Offset(answer.base_offset)

        return await retry(f"produce to {place}", attempt, self._settings)

    async def _add_partitions(self, places: Collection[TopicPartition]) -> None:
        """Tell the coordinator what will be written to, where writing does not tell it."""
        if self._adds_by_writing:
            return
        async with self._add_turn:
            new = sorted(set(places) - self._added)
            if not new:
                return
            transaction = self.transaction
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=transaction.transactional_id,
                v3_and_below_producer_id=transaction.producer_id,
                v3_and_below_producer_epoch=transaction.producer_epoch,
                v3_and_below_topics=_partitions_by_topic(new),
            )

            async def attempt() -> None:
                connection = await self._transactions.connection(transaction.transactional_id)
                version = connection.versions.pick(
                    ApiKey.ADD_PARTITIONS_TO_TXN, at_most=_LAST_ADD_PARTITIONS_OF_CLIENTS
                )
                self.has_written = True
                response = await self._transactions.request(
                    transaction.transactional_id, request, AddPartitionsToTxnResponse, version=version
                )
                self._check_added(response)

            await retry(f"add partitions to transaction {transaction.transactional_id}", attempt, self._settings)
            self._added.update(new)

    def _check_added(self, response: AddPartitionsToTxnResponse) -> None:
        refused = [
            (partition.partition_error_code, TopicPartition(topic.name, partition.partition_index))
            for topic in response.results_by_topic_v3_and_below
            for partition in topic.results_by_partition
            if partition.partition_error_code
        ]
        if not refused:
            return
        # All are refused together; those that were not at fault say only that they were not attempted.
        at_fault = [found for found in refused if found[0] != ErrorCode.OPERATION_NOT_ATTEMPTED]
        number, place = (at_fault or refused)[0]
        self._transactions.note(self.transaction.transactional_id, number)
        raise transaction_refusal(number, f"add {place} to transaction {self.transaction.transactional_id}")

    # --- offsets ---------------------------------------------------------------------------------------------

    async def _add_offsets(self, group_id: str) -> None:
        transaction = self.transaction
        what = f"add group {group_id} to transaction {transaction.transactional_id}"
        request = AddOffsetsToTxnRequest(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            group_id=group_id,
        )

        async def attempt() -> None:
            connection = await self._transactions.connection(transaction.transactional_id)
            version = connection.versions.pick(ApiKey.ADD_OFFSETS_TO_TXN)
            self.has_written = True
            response = await self._transactions.request(
                transaction.transactional_id, request, AddOffsetsToTxnResponse, version=version
            )
            self._transactions.note(transaction.transactional_id, response.error_code)
            check_transaction(response.error_code, what)

        await retry(what, attempt, self._settings)

    async def _commit_offsets(self, group_id: str, request: TxnOffsetCommitRequest, *, is_member: bool) -> None:
        what = f"send offsets of group {group_id} to transaction {self.transaction.transactional_id}"
        first_adding = _NEEDED_FOR_ADDING_BY_WRITING[ApiKey.TXN_OFFSET_COMMIT]
        at_least = _FIRST_OFFSET_COMMIT_WITH_MEMBERS if is_member else 0

        async def attempt() -> None:
            connection = await self._groups.connection(group_id)
            version = connection.versions.pick(
                ApiKey.TXN_OFFSET_COMMIT,
                at_least=first_adding if self._adds_by_writing else at_least,
                at_most=_LAST_OFFSET_COMMIT_WITH_NAMES if self._adds_by_writing else first_adding - 1,
            )
            self.has_written = True
            response = await self._groups.request(group_id, request, TxnOffsetCommitResponse, version=version)
            for topic in response.topics:
                for partition in topic.partitions:
                    self._groups.note(group_id, partition.error_code)
                    place = TopicPartition(topic.name, partition.partition_index)
                    check_transaction(partition.error_code, what, str(place))

        await retry(what, attempt, self._settings)


def failed(failure: ExactlogError) -> ExactlogError:
    """The exception for a transaction that has failed before."""
    if isinstance(failure, ProducerFencedError):
        return ProducerFencedError(failure.error_code, str(failure), hint=failure.hint)
    return TransactionFailedError(
        f"the transaction has failed before: {failure}", hint="abort it, and do all of it again"
    )


def _partitions_by_topic(places: Sequence[TopicPartition]) -> tuple[AddPartitionsToTxnTopic, ...]:
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for place in places:
        by_topic[place.topic].append(place.partition)
    return tuple(AddPartitionsToTxnTopic(name=name, partitions=tuple(found)) for name, found in by_topic.items())


def _offsets_by_topic(
    offsets: Mapping[TopicPartition, Offset], metadata: str
) -> tuple[TxnOffsetCommitRequestTopic, ...]:
    by_topic: defaultdict[str, list[TxnOffsetCommitRequestPartition]] = defaultdict(list)
    for place, offset in offsets.items():
        partition = TxnOffsetCommitRequestPartition(
            partition_index=place.partition, committed_offset=offset, committed_metadata=metadata
        )
        by_topic[place.topic].append(partition)
    return tuple(TxnOffsetCommitRequestTopic(name=name, partitions=tuple(found)) for name, found in by_topic.items())
