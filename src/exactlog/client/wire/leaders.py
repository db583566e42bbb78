"""Asking the leaders of partitions, each for what it leads."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from exactlog.client.ports import ClientSettings
from exactlog.client.wire.cluster import Cluster
from exactlog.client.wire.connection import WireConnection
from exactlog.client.wire.retries import retry
from exactlog.core.model.errors import DecodeError, KafkaError
from exactlog.core.model.ids import BrokerId, TopicPartition


async def ask_leaders(
    cluster: Cluster,
    what: str,
    places: Collection[TopicPartition],
    found: Mapping[TopicPartition, object],
    ask: Callable[[WireConnection, Sequence[TopicPartition]], Awaitable[list[KafkaError]]],
    *,
    settings: ClientSettings,
) -> None:
    """Asks the leader of each partition until all are found.

    Args:
        cluster: knows who leads what.
        what: for messages.
        places: the partitions.
        found: what is known of them; those in it need not be asked for any more.
        ask: asks one leader for some; what it says goes into `found`, what it refuses is given back.
        settings: how long to try.

    Raises:
        ExactlogError: a refusal that is not retryable, or the deadline has passed.
    """

    async def attempt() -> None:
        by_leader: defaultdict[BrokerId, list[TopicPartition]] = defaultdict(list)
        for place in places:
            if place not in found:
                by_leader[await cluster.leader_of(place)].append(place)
        errors: list[KafkaError] = []
        for leader_id, led in by_leader.items():
            errors += await ask(await cluster.connection_to(leader_id), led)
        if errors:
            raise errors[0]
        missing = [place for place in places if place not in found]
        if missing:
            raise DecodeError(f"{what}: the brokers left {min(missing)} out of their answers")

    await retry(what, attempt, settings)
