"""The client of the wire adapter: one cluster, and the ports on it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Self

from exactlog.client.groups import MemberSettings
from exactlog.client.ports import ClientSettings, IsolationLevel
from exactlog.client.transactions import TRANSACTION_TIMEOUT_MS_DEFAULT, SharedTransaction
from exactlog.client.wire.addresses import Address
from exactlog.client.wire.admin import WireAdmin
from exactlog.client.wire.appender import WireAppender
from exactlog.client.wire.cluster import Cluster
from exactlog.client.wire.consumer import WireConsumer
from exactlog.client.wire.coordinators import Coordinated, Coordinators
from exactlog.client.wire.group_admin import WireGroupAdmin
from exactlog.client.wire.group_consumer import WireGroupConsumer
from exactlog.client.wire.group_membership import GroupMembership
from exactlog.client.wire.producer import WireProducer
from exactlog.client.wire.retries import retry
from exactlog.client.wire.transaction_admin import WireTransactionAdmin
from exactlog.client.wire.transaction_part import WireTransactionPart
from exactlog.client.wire.transactional_producer import WireTransactionalProducer
from exactlog.core.model.errors import NotFoundError
from exactlog.core.model.ids import Offset, TopicPartition

_CREATION_PAUSES_MS: Final = (50, 100, 200, 400, 800)  # Apache Kafka denies a topic while it creates it


class WireClient:
    """The `Client` port over the wire: each operation is that of one of its parts, and documented in the port."""

    def __init__(self, bootstrap: Sequence[Address], settings: ClientSettings) -> None:
        self._settings = settings
        self._cluster = Cluster(bootstrap, settings)
        self._coordinators = Coordinators(self._cluster)
        self._transactions = Coordinators(self._cluster, Coordinated.TRANSACTION)
        self._admin = admin = WireAdmin(self._cluster, settings)
        self.describe_cluster = admin.describe_cluster
        self.list_topics = admin.list_topics
        self.describe_topic = admin.describe_topic
        self.create_topic = admin.create_topic
        self.delete_topic = admin.delete_topic
        self.create_partitions = admin.create_partitions
        self.alter_topic_configs = admin.alter_topic_configs
        self.describe_log_dirs = admin.describe_log_dirs
        self.list_offsets = admin.list_offsets
        self.delete_records = admin.delete_records
        group_admin = WireGroupAdmin(self._cluster, self._coordinators, settings)
        self.list_groups = group_admin.list_groups
        self.describe_group = group_admin.describe_group
        self.delete_group = group_admin.delete_group
        self.list_committed_offsets = group_admin.list_committed_offsets
        self.commit_offsets = group_admin.commit_offsets
        self.delete_offsets = group_admin.delete_offsets
        transaction_admin = WireTransactionAdmin(self._cluster, self._transactions, settings)
        self.list_transactions = transaction_admin.list_transactions
        self.describe_transaction = transaction_admin.describe_transaction
        self.describe_transactions = transaction_admin.describe_transactions
        self.describe_producers = transaction_admin.describe_producers
        self.fence_producers = transaction_admin.fence_producers
        self.write_abort_marker = transaction_admin.write_abort_marker
        producer = WireProducer(self._cluster, settings)
        self.produce = producer.produce
        self.init_producer_id = producer.init_producer_id
        self.append = WireAppender(self._cluster, settings).append
        self.consume = WireConsumer(self._cluster, admin, settings).consume

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """See `Client`."""
        await self._cluster.close()

    async def partition_count(self, topic: str) -> int:
        """See `Client`."""
        pauses_ms = iter(_CREATION_PAUSES_MS)
        while True:
            try:
                found = await retry(
                    f"look at topic {topic}", lambda: self._cluster.topic(topic, may_create=True), self._settings
                )
                return len(found.partitions)
            except NotFoundError:
                pause_ms = next(pauses_ms, None)
                if pause_ms is None:
                    raise
                await asyncio.sleep(pause_ms / 1000)

    def transactional_producer(
        self, transactional_id: str, *, timeout_ms: int = TRANSACTION_TIMEOUT_MS_DEFAULT
    ) -> WireTransactionalProducer:
        """See `Client`."""
        return WireTransactionalProducer(
            self._cluster,
            self._coordinators,
            self._transactions,
            self._settings,
            transactional_id,
            timeout_ms=timeout_ms,
        )

    def join_transaction(self, transaction: SharedTransaction) -> WireTransactionPart:
        """See `Client`."""
        return WireTransactionPart(self._cluster, self._coordinators, self._transactions, self._settings, transaction)

    def resume_transaction(
        self, transaction: SharedTransaction, *, timeout_ms: int = TRANSACTION_TIMEOUT_MS_DEFAULT
    ) -> WireTransactionalProducer:
        """See `Client`."""
        producer = self.transactional_producer(transaction.transactional_id, timeout_ms=timeout_ms)
        producer.resume(transaction)
        return producer

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
    ) -> WireGroupConsumer:
        """See `Client`."""
        member = settings or MemberSettings()
        membership = GroupMembership(
            self._cluster, self._coordinators, group_id, topic, client=self._settings, member=member
        )
        return WireGroupConsumer(
            self._cluster,
            self._admin,
            membership,
            self._settings,
            starts=starts or {},
            ends=ends,
            isolation=isolation,
            include_control=include_control,
            commit_interval_ms=member.commit_interval_ms,
            before_commit=before_commit,
            find_start=find_start,
        )
