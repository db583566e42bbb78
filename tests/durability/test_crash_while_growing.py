"""A crash, or a power cut, at every operation on files while a topic is given more partitions: all of them, or none."""

import uuid
from random import Random

import pytest

from exactlog.broker.topic_registry import TopicRegistry
from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.model.metrics import Registry
from exactlog.storage.catalog import Catalog
from exactlog.storage.partition_log import PartitionLog
from exactlog.testing import Crashed, FailingFilesystem
from tests.support.partitions import DataDirectory, batch_of, values_of

CONFIG = TopicConfig()
BEFORE, AFTER = 1, 3


class Life:
    """The topics of one run of the process."""

    def __init__(self, filesystem, catalog):
        self.filesystem = filesystem
        self.disk = DataDirectory(filesystem, config=CONFIG)
        self.registry = TopicRegistry(
            catalog=catalog,
            store=self.disk.store,
            topic_defaults=CONFIG,
            clock=self.disk.clock,
            metrics=Registry(),
        )
        self.registry.load()

    def end(self):
        self.registry.close()
        self.disk.close()

    async def open_all(self):
        for index in range(self.registry.by_name("t").partition_count):
            await self.registry.open("t", index)
            partition = self.registry.partition("t", index)
            assert isinstance(partition, PartitionLog), partition
            yield partition


async def crash_at(step):
    """What is left of a life that ends at a step of growing: files, and the catalog; None when it did not end there."""
    catalog = Catalog(None)
    life = Life(FailingFilesystem(sector_bytes=64), catalog)
    topic = await life.registry.create("t", partition_count=BEFORE, config=CONFIG, topic_id=uuid.uuid4())
    async for partition in life.open_all():
        life.disk.commit(partition, batch_of(b"v"))
    life.filesystem.clear()
    life.filesystem.crash_at(step)
    try:
        await life.registry.grow(topic, AFTER)
    except Crashed:
        return life.filesystem, catalog
    finally:
        life.end()
    return None


@pytest.mark.parametrize("leave", ["kill", "power cut", "something between"])
async def test_after_a_crash_at_any_operation_a_topic_has_grown_or_not(leave):
    step = 0
    while (left := await crash_at(step)) is not None:
        filesystem, catalog = left
        content = {
            "kill": filesystem.after_kill,
            "power cut": filesystem.after_power_cut,
            "something between": lambda files=filesystem, seed=step: files.after_power_cut(Random(seed)),
        }[leave]()

        life = Life(content, catalog)

        assert life.registry.by_name("t").partition_count in (BEFORE, AFTER)
        assert catalog.partition_plans() == {}
        if life.registry.by_name("t").partition_count == BEFORE:
            await life.registry.grow(life.registry.by_name("t"), AFTER)
        found = [values_of(partition) async for partition in life.open_all()]
        assert found == [[b"v"], [], []]
        life.end()
        step += 1
    assert step > 10
