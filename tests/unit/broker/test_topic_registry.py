"""Topics come, are opened and go, whoever else does the same at the same moment."""

import asyncio
import errno
import threading
import uuid

import pytest

from exactlog.broker.topic_registry import NotOpenYet, Stopped, TopicRegistry, UnknownTopicOrPartition
from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import DamageError, KafkaError
from exactlog.core.model.metrics import Registry
from exactlog.storage.catalog import CatalogRefusedError, CatalogTopic, TopicState
from exactlog.storage.partition_log import PartitionLog

CONFIG = TopicConfig()


async def create(registry, name, partitions=1):
    return await registry.create(name, partition_count=partitions, config=CONFIG, topic_id=uuid.uuid4())


@pytest.fixture
def opens(registry, monkeypatch):
    """The partitions that were opened on disk, in order."""
    opened = []
    open_on_disk = registry._store.open

    def count_and_open(key, *rest):
        opened.append(key)
        return open_on_disk(key, *rest)

    monkeypatch.setattr(registry._store, "open", count_and_open)
    return opened


async def test_a_partition_that_is_open_is_not_opened_again(registry, opens):
    await create(registry, "t")

    await registry.open("t", 0)
    first = registry.partition("t", 0)
    await registry.open("t", 0)  # by one who looked while it was still closed

    assert registry.partition("t", 0) is first
    assert len(opens) == 1


async def test_a_partition_is_opened_once_however_many_ask_at_once(registry, opens):
    await create(registry, "t", partitions=2)

    await asyncio.gather(*(registry.open("t", index % 2) for index in range(50)))

    assert sorted(key.partition for key in opens) == [0, 1]
    assert all(isinstance(registry.partition("t", index), PartitionLog) for index in (0, 1))


async def test_what_is_not_there_is_told_apart_from_what_is_not_open(registry):
    await create(registry, "t", partitions=2)

    answers = [registry.partition(name, index) for name, index in (("t", 0), ("t", 1), ("t", 2), ("t", -1), ("u", 0))]

    assert [type(answer) for answer in answers] == [NotOpenYet] * 2 + [UnknownTopicOrPartition] * 3


async def test_a_damaged_partition_stops_alone_and_says_why(registry, monkeypatch):
    await create(registry, "t", partitions=2)
    open_on_disk = registry._store.open

    def find_damage(key, *rest):
        if key.partition == 0:
            raise DamageError("version 3 is missing")
        return open_on_disk(key, *rest)

    monkeypatch.setattr(registry._store, "open", find_damage)
    await asyncio.gather(registry.open("t", 0), registry.open("t", 1))

    assert registry.partition("t", 0) == Stopped("version 3 is missing")
    assert isinstance(registry.partition("t", 1), PartitionLog)
    assert [partition.topic_partition.partition for partition in registry.open_partitions()] == [1]


async def test_a_topic_deleted_while_a_partition_opens_is_gone(registry, monkeypatch):
    topic = await create(registry, "t")
    may_open, open_on_disk = threading.Event(), registry._store.open

    def wait_and_open(*args):
        may_open.wait(20)
        return open_on_disk(*args)

    monkeypatch.setattr(registry._store, "open", wait_and_open)
    opening = asyncio.ensure_future(registry.open("t", 0))
    await asyncio.sleep(0)
    deleting = asyncio.ensure_future(registry.delete(topic))
    await asyncio.sleep(0)
    may_open.set()
    await asyncio.gather(opening, deleting)

    assert isinstance(registry.partition("t", 0), UnknownTopicOrPartition)
    assert registry.topics() == []


async def test_of_topics_created_at_once_under_colliding_names_one_comes_to_be(registry):
    outcomes = await asyncio.gather(*(create(registry, name) for name in ("a.b", "a_b", "a.b")), return_exceptions=True)

    refused = [outcome.error_code for outcome in outcomes if isinstance(outcome, KafkaError)]
    assert refused == [ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_ALREADY_EXISTS]
    assert [topic.name for topic in registry.topics()] == ["a.b"]


async def test_a_name_is_free_again_once_its_topic_is_deleted(registry):
    first = await create(registry, "a.b")
    await registry.delete(first)

    second = await create(registry, "a_b")

    assert registry.by_id(first.topic_id) is None
    assert registry.by_id(second.topic_id) is registry.by_name("a_b") is second


async def test_a_topic_is_deleted_once(registry):
    topic = await create(registry, "t")

    outcomes = await asyncio.gather(registry.delete(topic), registry.delete(topic), return_exceptions=True)

    assert outcomes[0] is None
    assert outcomes[1].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_disk_that_refuses_leaves_no_half_topic(registry, monkeypatch):
    create_on_disk = registry._store.create

    def fill_up(key, *args, **options):
        if key.partition == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        create_on_disk(key, *args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(registry._store, "create", fill_up)
        with pytest.raises(KafkaError) as refused:
            await create(registry, "t", partitions=3)

    assert refused.value.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert registry.topics() == []
    assert registry._catalog.topics() == []
    await create(registry, "t", partitions=3)
    await registry.open("t", 1)
    assert isinstance(registry.partition("t", 1), PartitionLog)


async def test_a_catalog_that_refuses_leaves_the_topics_as_they_were(registry, monkeypatch):
    topic = await create(registry, "t")

    def refuse(*args):
        raise CatalogRefusedError("database or disk is full")

    with monkeypatch.context() as patched:
        for method in ("add_topic", "set_topic_state", "remove_topic"):
            patched.setattr(registry._catalog, method, refuse)
        outcomes = await asyncio.gather(create(registry, "u"), registry.delete(topic), return_exceptions=True)

    assert [outcome.error_code for outcome in outcomes] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    assert registry.topics() == [topic]
    await create(registry, "u")
    await registry.delete(topic)
    assert [entry.name for entry in registry._catalog.topics()] == ["u"]


async def test_a_topic_whose_files_cannot_be_removed_is_deleted_all_the_same(node, registry, monkeypatch):
    topic = await create(registry, "t")

    def refuse(*args):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(registry._store, "remove", refuse)
        await registry.delete(topic)
    assert registry.topics() == []

    restarted = TopicRegistry(
        catalog=registry._catalog, store=registry._store, topic_defaults=CONFIG, clock=node.clock, metrics=Registry()
    )
    restarted.load()
    assert registry._catalog.topics() == []
    await create(restarted, "t")
    restarted.close()


async def test_what_a_crash_left_half_created_or_half_deleted_is_removed_at_the_next_start(node, registry):
    await create(registry, "live")
    catalog, store = registry._catalog, registry._store
    for name, state in (("being-born", TopicState.CREATING), ("dying", TopicState.DELETING)):
        catalog.add_topic(CatalogTopic(name, uuid.uuid4(), 2, {}, state, 0))

    restarted = TopicRegistry(catalog=catalog, store=store, topic_defaults=CONFIG, clock=node.clock, metrics=Registry())
    restarted.load()

    assert [topic.name for topic in restarted.topics()] == ["live"]
    assert [entry.name for entry in catalog.topics()] == ["live"]
    restarted.close()


async def test_a_catalog_with_a_configuration_that_cannot_be_is_damage(node, registry):
    catalog = registry._catalog
    catalog.add_topic(CatalogTopic("t", uuid.uuid4(), 1, {"retention.ms": "soon"}, TopicState.LIVE, 0))
    restarted = TopicRegistry(
        catalog=catalog, store=registry._store, topic_defaults=CONFIG, clock=node.clock, metrics=Registry()
    )

    with pytest.raises(DamageError, match=r"topic t .*retention\.ms"):
        restarted.load()
    restarted.close()
