"""What readers of committed records find in a topic, and what a sink has recorded of itself."""

import asyncio
import contextlib

from exactlog.client.adapters import connect
from exactlog.client.ports import EARLIEST, LATEST, ClientSettings, IsolationLevel
from exactlog.client.transactions import ONGOING
from exactlog.core.model.ids import TopicPartition

SETTINGS = ClientSettings(deadline_ms=60_000)
PATIENCE_S = 120


def committed_in(bootstrap, topic, *, while_open=False):
    """All records that readers of committed ones see, each with the header of its batch, by partition.

    The markers of a transaction may come a little after its end was answered: they are waited for, unless a transaction
    is open that is not to end.
    """
    return asyncio.run(_committed_in(bootstrap, topic, while_open=while_open))


def committed_values(bootstrap, topic, *, while_open=False):
    """The values of all of them, in order of their bytes."""
    return sorted(
        consumed.record.value
        for found in committed_in(bootstrap, topic, while_open=while_open).values()
        for consumed in found
    )


def recorded_offsets(bootstrap, txn_app_id):
    """What stands in the group of a sink: offset and metadata, by topic and partition."""

    async def ask():
        async with connect(f"kafka://{bootstrap}", SETTINGS) as client:
            found = await client.list_committed_offsets(f"exactlog-sink-{txn_app_id}")
            return {tuple(place): (committed.offset, committed.metadata) for place, committed in found.items()}

    return asyncio.run(ask())


def is_ongoing(bootstrap, txn_app_id):
    """Whether a transaction of the sink is open and its outcome not decided."""

    async def ask():
        async with connect(f"kafka://{bootstrap}", SETTINGS) as client:
            return (await client.describe_transaction(f"exactlog-sink-{txn_app_id}")).state == ONGOING

    return asyncio.run(ask())


async def _committed_in(bootstrap, topic, *, while_open):
    async with connect(f"kafka://{bootstrap}", SETTINGS) as client:
        places = [TopicPartition(topic, number) for number in range(await client.partition_count(topic))]
        latest = dict.fromkeys(places, LATEST)
        starts = await client.list_offsets(dict.fromkeys(places, EARLIEST))
        async with asyncio.timeout(PATIENCE_S):
            while True:
                stable = await client.list_offsets(latest, isolation=IsolationLevel.READ_COMMITTED)
                if while_open or stable == await client.list_offsets(latest):
                    break
                await asyncio.sleep(0.01)
        found = {place.partition: [] for place in places}
        reading = client.consume(
            {place: listed.offset for place, listed in starts.items()},
            ends={place: listed.offset for place, listed in stable.items()},
            isolation=IsolationLevel.READ_COMMITTED,
        )
        async with asyncio.timeout(PATIENCE_S), contextlib.aclosing(reading):
            async for consumed in reading:
                found[consumed.place.partition].append(consumed)
        return found
