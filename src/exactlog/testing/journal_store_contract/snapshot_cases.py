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
) -> SnapshotRow:
    """A snapshot at this number."""
    return SnapshotRow(
        seq_nr=seq_nr,
        record_id=record_id,
        place=Place(partition, Offset(offset)),
        timestamp_ms=NOON_MS,
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
