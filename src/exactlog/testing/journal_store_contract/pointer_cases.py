"""Pointers: how far each partition is replicated."""

from exactlog.core.journal.rows import PointerRow
from exactlog.core.model.ids import TopicPartition
from exactlog.testing.journal_store_contract.opened_store import Opened, OpenedStore


class PointerCases(Opened):
    """Per topic and partition."""

    async def test_a_partition_has_no_pointer_before_it_is_replicated(self, opened: OpenedStore, topic: str) -> None:
        assert await opened.store.pointer(TopicPartition(topic, 0)) is None
        assert await opened.store.topic(topic).partition(0).pointer() is None
        assert await opened.store.pointers(topic) == {}
        assert topic not in await opened.store.topics()

    async def test_a_pointer_is_created_and_moved(self, opened: OpenedStore, topic: str) -> None:
        partition = opened.store.topic(topic).partition(3)

        await partition.create_pointer(0, now_ms=100)
        assert await partition.pointer() == PointerRow(offset=0, created_ms=100, updated_ms=100)

        await partition.move_pointer(2**40, now_ms=200)
        moved = PointerRow(offset=2**40, created_ms=100, updated_ms=200)
        assert await partition.pointer() == moved
        assert await opened.store.pointer(TopicPartition(topic, 3)) == moved
        assert await opened.store.pointers(topic) == {3: moved}

    async def test_a_pointer_does_not_go_back(self, opened: OpenedStore, topic: str) -> None:
        partition = opened.store.topic(topic).partition(0)
        await partition.create_pointer(10, now_ms=100)

        await partition.move_pointer(9, now_ms=200)
        await partition.create_pointer(8, now_ms=300)

        assert await partition.pointer() == PointerRow(offset=10, created_ms=100, updated_ms=100)
        other = opened.store.topic(topic).partition(0)
        await other.move_pointer(9, now_ms=400)
        assert await other.pointer() == PointerRow(offset=10, created_ms=100, updated_ms=100)

    async def test_a_pointer_that_is_there_is_not_created_anew(self, opened: OpenedStore, topic: str) -> None:
        await opened.store.topic(topic).partition(0).create_pointer(10, now_ms=100)

        await opened.store.topic(topic).partition(0).create_pointer(12, now_ms=200)

        found = await opened.store.pointer(TopicPartition(topic, 0))
        assert found == PointerRow(offset=12, created_ms=100, updated_ms=200)

    async def test_each_partition_of_each_topic_has_its_own(self, opened: OpenedStore, topic: str) -> None:
        other = f"{topic}-b"
        for number, place in enumerate([(topic, 0), (topic, 1), (topic, 12), (other, 1)], start=1):
            name, partition = place
            await opened.store.topic(name).partition(partition).create_pointer(number, now_ms=0)

        assert {partition: row.offset for partition, row in (await opened.store.pointers(topic)).items()} == {
            0: 1,
            1: 2,
            12: 3,
        }
        assert {partition: row.offset for partition, row in (await opened.store.pointers(other)).items()} == {1: 4}
        assert {topic, other} <= await opened.store.topics()
