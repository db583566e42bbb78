"""Places in a topic, as offsets of its partitions."""

from collections.abc import Collection, Mapping

from exactlog.cli.positions import AtOffset, AtTime, End, Position, Start
from exactlog.client.ports import EARLIEST, LATEST, Client, IsolationLevel
from exactlog.core.model.errors import NotFoundError
from exactlog.core.model.ids import Offset, TimestampMs, TopicPartition


async def find_places(client: Client, topic: str, partitions: Collection[int]) -> list[TopicPartition]:
    """These partitions of a topic; none named: all of them.

    Raises:
        NotFoundError: there is no such topic, or it has no such partition.
    """
    described = await client.describe_topic(topic)
    known = [partition.partition for partition in described.partitions]
    for partition in partitions:
        if partition not in known:
            raise NotFoundError(
                f"topic {topic} has no partition {partition}", hint=f"It has {len(known)}, counted from 0."
            )
    return [TopicPartition(topic, partition) for partition in partitions or known]


async def starts_of(client: Client, places: Collection[TopicPartition]) -> dict[TopicPartition, Offset]:
    """The offset of the first record that each partition still has."""
    return await _offsets_at(client, EARLIEST, places)


async def ends_of(
    client: Client, places: Collection[TopicPartition], *, isolation: IsolationLevel
) -> dict[TopicPartition, Offset]:
    """The offset behind the last record that can be read of each partition."""
    return await _offsets_at(client, LATEST, places, isolation=isolation)


async def resolve(
    client: Client, position: Position, ends: Mapping[TopicPartition, Offset]
) -> dict[TopicPartition, Offset]:
    """The offset that a position is in each partition; `ends` are where they end now."""
    match position:
        case Start():
            return await starts_of(client, ends)
        case End():
            return dict(ends)
        case AtOffset(offset=offset):
            return dict.fromkeys(ends, offset)
        case AtTime(timestamp_ms=timestamp_ms):
            found = await client.list_offsets(dict.fromkeys(ends, timestamp_ms))
            return {place: ends[place] if listed.offset is None else listed.offset for place, listed in found.items()}


async def _offsets_at(
    client: Client,
    time: TimestampMs,
    places: Collection[TopicPartition],
    *,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[TopicPartition, Offset]:
    found = await client.list_offsets(dict.fromkeys(places, time), isolation=isolation)
    return {place: Offset(0) if listed.offset is None else listed.offset for place, listed in found.items()}
