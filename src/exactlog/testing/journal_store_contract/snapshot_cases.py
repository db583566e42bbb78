"""Snapshots: the greatest of a life, and gone with it."""

from uuid import UUID

from exactlog.core.journal.keys import JournalKey, Place
from exactlog.core.journal.payload import BinaryPayload, JsonPayload, Payload, TextPayload
from exactlog.core.journal.rows import SnapshotRow
from exactlog.core.model.ids import Offset
from exactlog.testing.journal_store_contract.action_script import NOON_MS, ActionScript, apply, head_of
from exactlog.testing.journal_store_contract.opened_store import Opened, OpenedStore

LIFE, OTHER_LIFE = UUID(int=1), UUID(int=2)


def snapshot(
    seq_nr: int,
    *,
    record_id: UUID | None = LIFE,
    offset: int = 0,
    partition: int = 0,
    payload: Payload | None = None,
    metadata: str | None = None,
    timestamp_ms: int = NOON_MS,
) -> SnapshotRow:
    """A snapshot at this number."""
    return SnapshotRow(
        seq_nr=seq_nr,
        record_id=record_id,
        place=Place(partition, Offset(offset)),
        timestamp_ms=timestamp_ms,
        payload=payload,
        metadata=metadata,
    )


class SnapshotCases(Opened):
    """Saving, finding and dropping them."""

    async def test_there_is_none_before_one_is_saved(self, opened: OpenedStore, key: JournalKey) -> None:
        assert await opened.store.latest_snapshot(key, record_id=LIFE) is None

    async def test_the_latest_is_that_with_the_greatest_number(self, opened: OpenedStore, key: JournalKey) -> None:
        for number in (3, 11, 7):
            await opened.store.save_snapshot(key, snapshot(number))

        assert await opened.store.latest_snapshot(key, record_id=LIFE) == snapshot(11)
        assert await opened.store.latest_snapshot(key, record_id=LIFE, to_seq_nr=10) == snapshot(7)
        assert await opened.store.latest_snapshot(key, record_id=LIFE, to_seq_nr=7) == snapshot(7)
        assert await opened.store.latest_snapshot(key, record_id=LIFE, to_seq_nr=2) is None
        assert await opened.store.latest_snapshot(JournalKey(key.topic, "other"), record_id=LIFE) is None

    async def test_every_field_of_a_snapshot_is_kept(self, opened: OpenedStore, key: JournalKey) -> None:
        payloads = (None, TextPayload(""), TextPayload("ü"), JsonPayload('{"a": 1.0}'), BinaryPayload(b"\x00\xff"))
        for number, payload in enumerate(payloads, start=1):
            saved = snapshot(number, payload=payload, metadata='{"by": "ü"}', offset=2**40, partition=7)
            await opened.store.save_snapshot(key, saved)
            assert await opened.store.latest_snapshot(key, record_id=LIFE) == saved

    async def test_one_of_the_same_life_and_number_is_replaced(self, opened: OpenedStore, key: JournalKey) -> None:
        await opened.store.save_snapshot(key, snapshot(3, payload=TextPayload("old"), metadata="1"))
        new = snapshot(3, payload=BinaryPayload(b"new"), offset=5)
        await opened.store.save_snapshot(key, new)

        assert await opened.store.latest_snapshot(key, record_id=LIFE) == new

    async def test_a_snapshot_of_another_life_is_not_taken(self, opened: OpenedStore, key: JournalKey) -> None:
        await opened.store.save_snapshot(key, snapshot(9, record_id=OTHER_LIFE))
        await opened.store.save_snapshot(key, snapshot(8, record_id=None))
        await opened.store.save_snapshot(key, snapshot(3, record_id=LIFE))
        await opened.store.save_snapshot(key, snapshot(9, record_id=None))

        for life, number in ((LIFE, 3), (OTHER_LIFE, 9), (None, 9)):
            found = await opened.store.latest_snapshot(key, record_id=life)
            assert found == snapshot(number, record_id=life)

    async def test_snapshots_are_dropped_up_to_a_number_of_whichever_life(
        self, opened: OpenedStore, key: JournalKey
    ) -> None:
        for number, life in ((1, LIFE), (2, OTHER_LIFE), (3, LIFE), (4, None)):
            await opened.store.save_snapshot(key, snapshot(number, record_id=life))

        await opened.store.delete_snapshots(key, to_seq_nr=2)
        assert await opened.store.latest_snapshot(key, record_id=OTHER_LIFE) is None
        assert await opened.store.latest_snapshot(key, record_id=LIFE) == snapshot(3)

        await opened.store.delete_snapshots(key, to_seq_nr=3)
        assert await opened.store.latest_snapshot(key, record_id=LIFE) is None
        assert await opened.store.latest_snapshot(key, record_id=None) == snapshot(4, record_id=None)

    async def test_the_latest_up_to_a_time_is_found(self, opened: OpenedStore, key: JournalKey) -> None:
        kept = [snapshot(number, timestamp_ms=NOON_MS + at) for number, at in ((1, 10), (2, 30), (3, 20))]
        for one in kept:
            await opened.store.save_snapshot(key, one)

        for to_seq_nr, at, expected in (
            (None, 9, None),
            (None, 10, kept[0]),
            (None, 29, kept[2]),
            (2, 29, kept[0]),
            (2, 30, kept[1]),
            (3, 2**63 - 1 - NOON_MS, kept[2]),
        ):
            found = await opened.store.latest_snapshot(
                key, record_id=LIFE, to_seq_nr=to_seq_nr, to_timestamp_ms=NOON_MS + at
            )
            assert found == expected

    async def test_snapshots_between_two_numbers_and_up_to_a_time_are_dropped_and_no_others(
        self, opened: OpenedStore, key: JournalKey
    ) -> None:
        async def left() -> list[int]:
            found = [
                await opened.store.latest_snapshot(key, record_id=LIFE, to_seq_nr=number) for number in range(1, 6)
            ]
            return sorted({one.seq_nr for one in found if one is not None})

        for number in range(1, 6):
            await opened.store.save_snapshot(key, snapshot(number, timestamp_ms=NOON_MS + number))

        await opened.store.delete_snapshots(key, from_seq_nr=3, to_seq_nr=3)
        assert await left() == [1, 2, 4, 5]
        await opened.store.delete_snapshots(key, to_seq_nr=4, to_timestamp_ms=NOON_MS + 3)
        assert await left() == [4, 5]
        await opened.store.delete_snapshots(key, from_seq_nr=5, to_seq_nr=2**63 - 1)
        assert await left() == [4]

    async def test_a_purge_takes_the_snapshots_from_before_it(self, opened: OpenedStore, key: JournalKey) -> None:
        script = ActionScript(key, offset=10)
        await apply(opened.store, script.append(1, 2, 3))
        life = (await head_of(opened.store, key)).record_id
        other = JournalKey(key.topic, "other")
        for saved_in, saved in (
            (key, snapshot(3, record_id=life, offset=10)),
            (key, snapshot(2, record_id=OTHER_LIFE, offset=11)),
            (key, snapshot(9, record_id=OTHER_LIFE, offset=12)),
            (key, snapshot(4, record_id=None, offset=0, partition=1)),
            (other, snapshot(1, record_id=life, offset=0)),
        ):
            await opened.store.save_snapshot(saved_in, saved)

        await apply(opened.store, script.purge())

        assert await opened.store.latest_snapshot(key, record_id=life) is None
        assert await opened.store.latest_snapshot(key, record_id=OTHER_LIFE, to_seq_nr=8) is None
        behind = await opened.store.latest_snapshot(key, record_id=OTHER_LIFE)
        assert behind == snapshot(9, record_id=OTHER_LIFE, offset=12)
        elsewhere = await opened.store.latest_snapshot(key, record_id=None)
        assert elsewhere == snapshot(4, record_id=None, partition=1)
        assert await opened.store.latest_snapshot(other, record_id=life) is not None

    async def test_a_delete_leaves_the_snapshots(self, opened: OpenedStore, key: JournalKey) -> None:
        script = ActionScript(key)
        await apply(opened.store, script.append(1, 2, 3))
        life = (await head_of(opened.store, key)).record_id
        await opened.store.save_snapshot(key, snapshot(3, record_id=life))

        await apply(opened.store, script.delete(3))

        assert await opened.store.latest_snapshot(key, record_id=life) == snapshot(3, record_id=life)
