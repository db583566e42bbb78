"""Topics grow and are set anew while they are used, whatever the disk says and wherever a crash comes."""

import asyncio
import errno
import threading
import uuid

import pytest

from exactlog.broker.topic_registry import NotOpenYet, TopicRegistry, UnknownTopicOrPartition
from exactlog.broker.upkeep import retention_of
from exactlog.core.config.topic_configs import TopicConfig, validate_topic_config
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import KafkaError
from exactlog.core.model.ids import TopicPartition
from exactlog.core.model.metrics import Registry
from exactlog.core.model.topic_name import CONSUMER_OFFSETS
from exactlog.storage.catalog import CatalogRefusedError
from exactlog.storage.partition_log import PartitionLog

CONFIG = TopicConfig()
SHORT = {"retention.ms": "7"}


async def create(registry, name="t", partitions=1):
    return await registry.create(name, partition_count=partitions, config=CONFIG, topic_id=uuid.uuid4())


def restart(node, registry):
    """The topics as the next start finds them."""
    registry = TopicRegistry(
        catalog=registry._catalog, store=registry._store, topic_defaults=CONFIG, clock=node.clock, metrics=Registry()
    )
    registry.load()
    return registry


def configure(overrides, defaults=CONFIG):
    return lambda topic: validate_topic_config(overrides, defaults=defaults)


def directories_of(node, name="t"):
    return [each for each in node.filesystem.list_names("/exactlog") if each.startswith(f"topic={name}-")]


# --- growing ------------------------------------------------------------------------------------------------------


async def test_a_topic_grows_and_its_partitions_open(node, registry):
    topic = await create(registry)
    await registry.open("t", 0)
    first = registry.partition("t", 0)

    await registry.grow(topic, 3)
    await registry.open("t", 2)

    assert registry.by_name("t").partition_count == registry.by_id(topic.topic_id).partition_count == 3
    assert registry.partition("t", 0) is first
    assert isinstance(registry.partition("t", 2), PartitionLog)
    assert isinstance(registry.partition("t", 1), NotOpenYet)
    assert restart(node, registry).by_name("t").partition_count == 3


async def test_a_topic_never_shrinks_and_grows_once_to_a_size(registry):
    topic = await create(registry, partitions=2)

    outcomes = await asyncio.gather(*(registry.grow(topic, count) for count in (3, 3, 2, 4)), return_exceptions=True)

    refused = [outcome.error_code for outcome in outcomes if isinstance(outcome, KafkaError)]
    assert refused == [ErrorCode.INVALID_PARTITIONS] * 2
    assert registry.by_name("t").partition_count == 4


async def test_a_topic_that_was_deleted_does_not_grow(registry):
    topic = await create(registry)
    await registry.delete(topic)

    with pytest.raises(KafkaError) as refused:
        await registry.grow(topic, 2)
    assert refused.value.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_topic_that_was_looked_up_before_it_grew_is_deleted_whole(node, registry):
    topic = await create(registry)
    await registry.grow(topic, 3)

    await registry.delete(topic)

    assert directories_of(node) == []


async def test_a_disk_that_refuses_leaves_the_topic_as_it_was(node, registry, monkeypatch):
    topic = await create(registry)
    create_on_disk = registry._store.create

    def fill_up(key, *args, **options):
        if key.partition == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        create_on_disk(key, *args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(registry._store, "create", fill_up)
        with pytest.raises(KafkaError) as refused:
            await registry.grow(topic, 4)

    assert refused.value.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert registry.by_name("t").partition_count == 1
    assert isinstance(registry.partition("t", 1), UnknownTopicOrPartition)
    assert directories_of(node) == ["topic=t-part=0"]
    assert registry._catalog.partition_plans() == {}
    await registry.grow(topic, 4)
    await registry.open("t", 1)
    assert isinstance(registry.partition("t", 1), PartitionLog)


@pytest.mark.parametrize("method", ["plan_partitions", "carry_out_plan", "drop_plan"])
async def test_a_catalog_that_refuses_leaves_the_topic_as_it_was(node, registry, monkeypatch, method):
    topic = await create(registry)

    def refuse(*args):
        raise CatalogRefusedError("database or disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(registry._catalog, method, refuse)
        if method == "drop_plan":
            patched.setattr(registry._catalog, "carry_out_plan", refuse)
        with pytest.raises(KafkaError) as refused:
            await registry.grow(topic, 3)

    assert refused.value.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert registry.by_name("t").partition_count == 1
    restarted = restart(node, registry)
    assert (restarted.by_name("t").partition_count, restarted._catalog.partition_plans()) == (1, {})
    assert directories_of(node) == ["topic=t-part=0"]
    restarted.close()


@pytest.mark.parametrize("made", [0, 1, 2])
async def test_what_a_crash_left_of_growing_is_undone_at_the_next_start(node, registry, made):
    topic = await create(registry)
    registry._catalog.plan_partitions(topic.topic_id, 3)
    for index in range(1, 1 + made):
        registry._store.create(TopicPartition("t", index), topic.topic_id, config=CONFIG, created_ms=0)

    restarted = restart(node, registry)

    assert restarted.by_name("t").partition_count == 1
    assert directories_of(node) == ["topic=t-part=0"]
    await restarted.grow(restarted.by_name("t"), 3)
    assert len(directories_of(node)) == 3
    restarted.close()


async def test_a_topic_deleted_after_its_growth_could_not_be_undone_leaves_nothing(node, registry):
    topic = await create(registry)
    registry._catalog.plan_partitions(topic.topic_id, 3)
    registry._store.create(TopicPartition("t", 1), topic.topic_id, config=CONFIG, created_ms=0)

    await registry.delete(topic)

    assert directories_of(node) == []
    assert registry._catalog.partition_plans() == {}


# --- settings -----------------------------------------------------------------------------------------------------


async def test_settings_act_and_are_kept(node, registry):
    topic = await create(registry)
    await registry.open("t", 0)

    await registry.alter_config(topic, configure(SHORT))

    assert registry.by_name("t").config.retention_ms == registry.by_id(topic.topic_id).config.retention_ms == 7
    assert registry.partition("t", 0).table.metadata.config["retention.ms"] == "7"
    assert restart(node, registry).by_name("t").overrides == SHORT


async def test_a_change_is_made_from_what_is_set_at_that_moment(registry):
    topic = await create(registry)

    def add(key):
        return lambda now: validate_topic_config({**now.overrides, key: "7"})

    await asyncio.gather(*(registry.alter_config(topic, add(key)) for key in ("retention.ms", "retention.bytes")))

    assert registry.by_name("t").overrides == {"retention.ms": "7", "retention.bytes": "7"}


async def test_a_change_that_is_refused_or_cannot_be_kept_changes_nothing(registry, monkeypatch):
    topic = await create(registry)

    def refuse(*args):
        raise CatalogRefusedError("database or disk is full")

    monkeypatch.setattr(registry._catalog, "set_topic_config", refuse)
    with pytest.raises(KafkaError) as refused:
        await registry.alter_config(topic, configure(SHORT))

    assert refused.value.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert registry.by_name("t") is topic


async def test_a_partition_that_opens_while_its_topic_is_set_anew_works_as_was_set(registry, monkeypatch):
    topic = await create(registry)
    may_open, open_on_disk = threading.Event(), registry._store.open

    def open_and_wait(*args):
        partition = open_on_disk(*args)
        may_open.wait(20)
        return partition

    monkeypatch.setattr(registry._store, "open", open_and_wait)
    opening = asyncio.ensure_future(registry.open("t", 0))
    await asyncio.sleep(0)
    await registry.alter_config(topic, configure({"segment.bytes": "100"}))
    may_open.set()
    await opening

    assert registry.partition("t", 0).settings.segment_bytes == 100


async def test_a_partition_that_opens_while_its_topic_grows_is_open_afterwards(registry, monkeypatch):
    topic = await create(registry)
    may_open, open_on_disk = threading.Event(), registry._store.open

    def wait_and_open(*args):
        may_open.wait(20)
        return open_on_disk(*args)

    monkeypatch.setattr(registry._store, "open", wait_and_open)
    opening = asyncio.ensure_future(registry.open("t", 0))
    await asyncio.sleep(0)
    await registry.grow(topic, 2)
    may_open.set()
    await opening

    assert isinstance(registry.partition("t", 0), PartitionLog)


async def test_topics_follow_the_brokers_defaults_unless_they_are_set_themselves(registry):
    own, follower = await create(registry, "own"), await create(registry, "follower")
    await registry.alter_config(own, configure(SHORT))
    await registry.open("follower", 0)

    await registry.set_defaults(TopicConfig(retention_ms=5, segment_bytes=100))

    assert [registry.by_name(name).config.retention_ms for name in ("own", "follower")] == [7, 5]
    assert registry.partition("follower", 0).settings.segment_bytes == 100
    assert registry.by_id(follower.topic_id) is registry.by_name("follower")
    assert (await create(registry, "later")).config.retention_ms == 5


# --- internal topics ----------------------------------------------------------------------------------------------


async def test_retention_is_not_for_topics_whose_coordinator_decides(registry):
    config = validate_topic_config({"cleanup.policy": "delete", "retention.ms": "1", "retention.bytes": "1"})
    for name in ("t", CONSUMER_OFFSETS):
        topic = await create(registry, name)
        await registry.alter_config(topic, lambda _: config)

    assert retention_of(registry.by_name("t")) is not None
    assert retention_of(registry.by_name(CONSUMER_OFFSETS)) is None
    assert [topic.is_internal for topic in registry.topics()] == [True, False]


async def test_who_wants_to_know_is_told_of_deleted_topics(registry):
    deleted = []
    registry.when_deleted(deleted.append)
    topic = await create(registry)
    await create(registry, "u")

    await registry.delete(topic)

    assert deleted == [topic]
