"""Transactions that no coordinator will ever end, and who waits for them (KIP-664).

A partition holds readers of committed records back from the first record of an open transaction on. Its coordinator
ends it, or times it out; one that the coordinator does not know hangs for ever.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from exactlog.client.ports import LATEST, Client, IsolationLevel
from exactlog.client.transactions import ActiveProducer, TransactionDescription
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import ExactlogError, OffsetOutOfRangeError
from exactlog.core.model.ids import Offset, ProducerId, TimestampMs, TopicPartition

WITHOUT_TRANSACTIONS: Final = "__transaction_state"
"""The topic in which coordinators write, and nobody else."""


_COORDINATOR_AWAY: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""What a broker answers that cannot tell all its transactions now."""


class OpenTransaction(msgspec.Struct, frozen=True):
    """A transaction that a partition waits for.

    Attributes:
        place: the partition.
        producer: who has it; `start_offset` is known.
        coordinated: what a coordinator knows of this producer; None if no coordinator knows it.
        is_undecided: whether no coordinator could be asked, so that it may or may not be ended by one.
    """

    place: TopicPartition
    producer: ActiveProducer
    coordinated: TransactionDescription | None
    is_undecided: bool = False

    @property
    def start_offset(self) -> Offset:
        """The offset of its first record there."""
        assert self.producer.txn_start_offset is not None, "it is open"
        return self.producer.txn_start_offset

    @property
    def hangs(self) -> bool:
        """Whether its coordinator will not end it here: it does not know of it."""
        if self.is_undecided:
            return False
        return self.coordinated is None or self.place not in self.coordinated.partitions


class HeldPartition(msgspec.Struct, frozen=True):
    """How far readers of a partition come.

    Attributes:
        last_stable_offset: where those of committed records wait.
        end_offset: where the others are.
        waiting_groups: the groups that have read everything up to there.
    """

    last_stable_offset: Offset
    end_offset: Offset
    waiting_groups: tuple[str, ...]


async def open_transactions(client: Client, places: Collection[TopicPartition]) -> tuple[OpenTransaction, ...]:
    """The open transactions of partitions, with what their coordinators know of them; in order.

    What began or ended while several brokers were asked is left out.
    """
    before = await client.describe_producers(places)
    seen = {(place, producer) for place, producers in before.items() for producer in _open(producers)}
    if not seen:
        return ()
    coordinated: dict[ProducerId, TransactionDescription] = {}
    is_undecided = False
    try:
        coordinated = await _coordinated(client, {producer.producer_id for _, producer in seen})
    except ExactlogError as error:
        if error.kafka_error not in _COORDINATOR_AWAY:
            raise
        is_undecided = True
    after = await client.describe_producers({place for place, _ in seen})
    still = {
        (place, producer.producer_id, producer.txn_start_offset)
        for place, producers in after.items()
        for producer in _open(producers)
    }
    return tuple(
        OpenTransaction(place, producer, coordinated.get(producer.producer_id), is_undecided)
        for place, producer in sorted(seen, key=lambda found: (found[0], found[1].txn_start_offset))
        if (place, producer.producer_id, producer.txn_start_offset) in still
    )


async def find_hanging(client: Client, places: Collection[TopicPartition]) -> tuple[OpenTransaction, ...]:
    """Those of the open transactions that no coordinator will end, or of which that cannot be told now."""
    return tuple(found for found in await open_transactions(client, places) if found.hangs or found.is_undecided)


async def started_at(client: Client, place: TopicPartition, start_offset: Offset) -> TimestampMs | None:
    """The timestamp of the first record of a transaction; None if it is no longer there."""
    try:
        async for found in client.consume({place: start_offset}, ends={place: Offset(start_offset + 1)}):
            return found.record.timestamp_ms
    except OffsetOutOfRangeError:
        return None
    return None


async def held_partitions(client: Client, places: Collection[TopicPartition]) -> dict[TopicPartition, HeldPartition]:
    """How far readers of each partition come, and which groups are there; a partition that is gone is left out."""
    asked = dict.fromkeys(await existing(client, places), LATEST)
    if not asked:
        return {}
    stable = await client.list_offsets(asked, isolation=IsolationLevel.READ_COMMITTED)
    ends = await client.list_offsets(asked, isolation=IsolationLevel.READ_UNCOMMITTED)
    stable_offsets = {place: listed.offset or Offset(0) for place, listed in stable.items()}
    groups = await _groups_at(client, stable_offsets)
    return {
        place: HeldPartition(offset, max(offset, ends[place].offset or Offset(0)), groups.get(place, ()))
        for place, offset in stable_offsets.items()
    }


async def existing(client: Client, places: Collection[TopicPartition]) -> list[TopicPartition]:
    """Those of the partitions that are there."""
    if not places:
        return []
    counts = {topic.name: topic.partition_count for topic in await client.list_topics(include_internal=True)}
    return [place for place in places if place.partition < counts.get(place.topic, 0)]


async def _coordinated(
    client: Client, producer_ids: Collection[ProducerId]
) -> dict[ProducerId, TransactionDescription]:
    listings = await client.list_transactions(producer_ids=sorted(producer_ids))
    described = await client.describe_transactions([listing.transactional_id for listing in listings])
    return {
        listing.producer_id: described[listing.transactional_id]
        for listing in listings
        if listing.transactional_id in described
    }


async def _groups_at(client: Client, offsets: Mapping[TopicPartition, Offset]) -> dict[TopicPartition, tuple[str, ...]]:
    """The groups whose committed offset in a partition is that one."""
    found: defaultdict[TopicPartition, list[str]] = defaultdict(list)
    for listing in await client.list_groups():
        committed = await client.list_committed_offsets(listing.group_id)
        for place, offset in offsets.items():
            if place in committed and committed[place].offset == offset:
                found[place].append(listing.group_id)
    return {place: tuple(groups) for place, groups in found.items()}


def _open(producers: Collection[ActiveProducer]) -> list[ActiveProducer]:
    return [producer for producer in producers if producer.txn_start_offset is not None]
