"""However many partitions retention takes something from, no round is one of many: the loop gets its turn between."""

import asyncio
import uuid

import pytest

from exactlog.broker import upkeep
from exactlog.core.config.topic_configs import validate_topic_config
from exactlog.core.record.batch_builder import NewRecord, build_batch
from exactlog.core.record.batch_format import decode_header
from exactlog.node.config import load_config
from exactlog.node.node import Node
from exactlog.storage.waiting import until_settled

AT_ONCE_MAX = 4
PARTITIONS = 5 * AT_ONCE_MAX + 2
OLD_MS = 1_000
MODES = {
    "in memory": [("in.memory", "true")],
    "journal": [("commit.engine", "journal")],
    "files": [("commit.engine", "files")],
    "interval": [("flush.mode", "interval")],
}


class Counted:
    """A node whose partitions are all open, with an old record each, and the sizes of its rounds."""

    def __init__(self, node):
        self.parts = node._parts
        self.sizes = []
        engine = self.parts.committer._engine
        commit = engine.commit

        def count_and_commit(writes):
            self.sizes.append(len(writes))
            return commit(writes)

        engine.commit = count_and_commit

    async def fill(self, **settings):
        registry = self.parts.topics
        config = validate_topic_config(settings, defaults=registry._defaults)
        await registry.create("t", partition_count=PARTITIONS, config=config, topic_id=uuid.uuid4())
        for index in range(PARTITIONS):
            await registry.open("t", index)
        for partition in self.partitions:
            batch = build_batch([NewRecord(b"old", timestamp_ms=OLD_MS)])
            partition.append(decode_header(batch), memoryview(batch), now_ms=OLD_MS)
        await self.until_published()
        self.sizes.clear()

    @property
    def partitions(self):
        return self.parts.topics.open_partitions()

    async def until_published(self):
        await asyncio.gather(*(until_settled(partition.when_published) for partition in self.partitions))

    async def retain(self):
        self.parts.upkeep.start_retention()
        await self.parts.upkeep._retaining
        await self.until_published()


@pytest.fixture(params=MODES)
async def counted(request, tmp_path, monkeypatch):
    monkeypatch.setattr(upkeep, "UPKEEP_PARTITIONS_AT_ONCE_MAX", AT_ONCE_MAX)
    place = [] if request.param == "in memory" else [("data.dir", str(tmp_path))]
    node = Node(load_config(overrides=[("port", "0"), *place, *MODES[request.param]]))
    await node.start()
    yield Counted(node)
    await node.stop()


async def test_retention_is_at_few_partitions_at_once(counted):
    await counted.fill(**{"retention.ms": "1"})

    await counted.retain()

    assert {partition.log_start_offset for partition in counted.partitions} == {1}
    assert max(counted.sizes) <= AT_ONCE_MAX
    assert sum(counted.sizes) >= PARTITIONS


async def test_files_of_what_was_removed_go_in_few_partitions_at_once(counted):
    await counted.fill(**{"retention.ms": "1", "file.delete.delay.ms": "0"})
    await counted.retain()
    counted.sizes.clear()
    takes_versions = 0

    while any(partition.committed.has_removed_files for partition in counted.partitions):
        counted.parts.upkeep.sweep()
        if counted.parts.upkeep._sweeping is not None:
            await counted.parts.upkeep._sweeping
        await counted.until_published()
        await counted.parts.background.wait()
        takes_versions = max(takes_versions, *counted.sizes, 0)

    assert 0 < takes_versions <= AT_ONCE_MAX


async def test_where_nothing_leaves_nothing_is_written(counted):
    await counted.fill(**{"retention.ms": "-1", "retention.bytes": "1000000"})

    await counted.retain()
    counted.parts.upkeep.sweep()

    assert counted.sizes == []
    assert counted.parts.upkeep._sweeping is None
