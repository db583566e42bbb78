"""The records of a topic that can be read, past those that an operator lets be passed over."""

from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing

from exactlog.core.wal.errors import UnreadableRecordError
from exactlog.wal.ports import DamagedRecordsError, StoredRecord, WalBackend

OnDamage = Callable[[DamagedRecordsError], None]


async def readable_records(
    backend: WalBackend, topic: str, start: int, end: int, *, on_damage: OnDamage
) -> AsyncGenerator[StoredRecord, None]:
    """The committed records between two offsets, and behind damage those that follow it.

    Args:
        backend: where they are.
        topic: of which.
        start: the first offset.
        end: the offset behind the last one.
        on_damage: is told of each piece that cannot be read; it raises where reading is to end.
    """
    while start < end:
        try:
            async with aclosing(backend.read(topic, start, end)) as records:
                async for record in records:
                    start = record.offset + 1
                    yield record
        except DamagedRecordsError as damage:
            on_damage(damage)
            start = max(start + 1, damage.next_offset)
        else:
            return


def refuse_unless_skipped(region: int, skipped: Collection[int]) -> OnDamage:
    """Refuses damage with an `UnreadableRecordError`, unless the offset where it begins is passed over."""

    def on_damage(damage: DamagedRecordsError) -> None:
        if damage.offset not in skipped:
            raise UnreadableRecordError(
                f"region {region}: the records from offset {damage.offset} to {damage.next_offset - 1} cannot be read: "
                f"{damage}",
                region=region,
                offset=damage.offset,
                hint="restore the topic from a copy if there is one; to pass over all of them, open the region with "
                f"skip_offsets=[{damage.offset}]",
            ) from damage

    return on_damage
