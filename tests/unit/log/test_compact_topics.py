"""Compacting topics by a function: what it does, refuses, and leaves alone."""

import os

import pytest

from exactlog.core.model.errors import (
    ConfigError,
    DamageError,
    DirectoryLockedError,
    NotFoundError,
    UnavailableError,
    VersionExpiredError,
)
from exactlog.core.record.batch_builder import NewRecord, build_batch
from exactlog.log import compact_topics, open_partition
from exactlog.log.compaction import CompactionRun, compact_partition, partitions_at
from exactlog.log.partition_hold import PartitionHold, holder_of
from exactlog.storage.directory_lock import DirectoryLock
from exactlog.storage.table_reader import open_table
from exactlog.testing import Broker
from tests.support.compacted_tables import committed, findings_of, newest_by_key
from tests.support.isolated_reader import read_on
from tests.support.partitions import FIRST_MS
from tests.support.raw_client import RawClient
from tests.support.transactions import BrokerWriter

NAME = "topic=keyed-part=0"


@pytest.fixture
def data_dir(tmp_path):
    """A compacted topic of two partitions, and one that is not; what groups and transactions have is there too."""
    root = tmp_path / "data"
    with Broker(root) as broker, RawClient(broker.port) as raw:
        keyed = raw.create_topic("keyed", partitions=2, cleanup_policy="compact", segment_bytes=300)
        raw.create_topic("plain")
        for number in range(40):
            record = NewRecord(b"%d" % number, b"key-%d" % (number % 5), timestamp_ms=FIRST_MS)
            raw.produce(keyed, build_batch([record]), partition=number % 2)
        BrokerWriter(broker, "plain").plain(b"a")
    return root


def test_topics_are_compacted_and_their_broker_goes_on(data_dir):
    before = [newest_by_key(committed(data_dir, f"topic=keyed-part={number}")) for number in (0, 1)]

    done = compact_topics(data_dir)

    assert [(each.topic, each.partition) for each in done] == [("keyed", 0), ("keyed", 1)]
    assert all(each.records_removed > 5 and each.bytes < each.bytes_before for each in done)
    assert [newest_by_key(committed(data_dir, f"topic=keyed-part={number}")) for number in (0, 1)] == before
    assert compact_topics(data_dir, topics=["keyed"])[0].records_removed == 0
    with Broker(data_dir) as broker:
        assert BrokerWriter(broker, "plain").plain(b"b") == 1


def test_what_cannot_be_meant_is_refused_and_does_nothing(data_dir, tmp_path):
    with pytest.raises(NotFoundError, match="no partition and no data directory"):
        compact_topics(tmp_path / "nowhere")
    with pytest.raises(NotFoundError, match="no topic nobody"):
        compact_topics(data_dir, topics=["nobody"])
    with pytest.raises(ConfigError, match=r"cleanup\.policy is delete"):
        compact_topics(data_dir, topics=["plain"])
    assert compact_topics(data_dir / "topic=plain-part=0") == ()


def test_a_directory_that_somebody_has_is_refused(data_dir):
    with Broker(data_dir), pytest.raises(DirectoryLockedError, match=str(os.getpid())):
        compact_topics(data_dir)
    with open_partition(data_dir / NAME), pytest.raises(DirectoryLockedError):
        compact_topics(data_dir)


def test_a_partition_that_is_damaged_keeps_none_of_the_others(data_dir):
    log = min((data_dir / NAME).glob("*.log"))
    content = bytearray(log.read_bytes())
    content[-1] ^= 1
    log.write_bytes(content)
    with pytest.raises(DamageError, match=log.name):
        compact_topics(data_dir)
    assert any(".g1." in path.name for path in (data_dir / "topic=keyed-part=1").glob("*.log"))
    assert not any(".g1." in path.name for path in (data_dir / NAME).iterdir())


def test_a_partition_that_another_process_compacts_is_left_to_it(data_dir):
    with CompactionRun(*partitions_at(data_dir)) as run:
        place = run.places[0]
        with PartitionHold(str(data_dir), place.name, place.holder), pytest.raises(UnavailableError, match="another"):
            compact_partition(place)
        assert compact_partition(place).records_removed > 5


def test_nothing_is_published_once_the_directory_is_somebody_elses(data_dir):
    with CompactionRun(*partitions_at(data_dir)) as run:
        place = run.places[0]
    files = sorted((data_dir / NAME).rglob("*"))
    (data_dir / "lock").write_text('{"pid": 1, "host": "elsewhere"}\n')
    with pytest.raises(UnavailableError, match="not held by process"):
        compact_partition(place)
    assert sorted((data_dir / NAME).rglob("*")) == files
    (data_dir / "lock").write_text("")
    assert holder_of(str(data_dir)) is None


def test_a_partition_that_is_not_mounted_here_is_not_there(data_dir):
    with CompactionRun(*partitions_at(data_dir)) as run:
        place = run.places[0]
        (data_dir / NAME).rename(data_dir.parent / "elsewhere")
        with pytest.raises(NotFoundError, match="is not there"):
            compact_partition(place)


def test_the_holder_of_a_directory_that_was_never_locked_is_nobody(tmp_path):
    assert holder_of(str(tmp_path)) is None
    with DirectoryLock(str(tmp_path)):
        assert holder_of(str(tmp_path)).pid == os.getpid()


@pytest.mark.parametrize("flush_mode", ["commit", "interval", "none"])
@pytest.mark.parametrize("engine", ["journal", "files"])
def test_what_a_killed_broker_has_left_is_compacted_and_the_next_one_serves_it(tmp_path, flush_mode, engine):
    config = {"flush.mode": flush_mode, "commit.engine": engine}
    with Broker(tmp_path, config=config) as broker:
        with RawClient(broker.port) as raw:
            keyed = raw.create_topic("keyed", cleanup_policy="compact", segment_bytes=300)
            for number in range(30):
                raw.produce(keyed, record_of(number, producer_id=5, producer_epoch=0, base_sequence=number))
        broker.kill()

        (done,) = compact_topics(tmp_path)

        assert done.records_removed > 10
        left = [(record.offset, record.value) for record in committed(tmp_path, NAME)]
        assert [value for _, value in left][-5:] == [b"%d" % number for number in range(25, 30)]
        broker.restart()
        with RawClient(broker.port) as raw:
            assert read_on(raw, keyed) == left
            following = raw.produce(keyed, record_of(30, producer_id=5, producer_epoch=0, base_sequence=30))
            assert (following.error_code, following.base_offset) == (0, 30)
        broker.kill()
        broker.restart()
        with RawClient(broker.port) as raw:
            assert read_on(raw, keyed) == [*left, (30, b"30")]
    assert findings_of(tmp_path, NAME) == []


def record_of(number, **fields):
    return build_batch([NewRecord(b"%d" % number, b"key-%d" % (number % 5), timestamp_ms=FIRST_MS)], **fields)


def test_readers_go_on_with_what_they_began_and_find_what_is_new_when_they_look(data_dir):
    table = open_table(data_dir / NAME)
    version, before = table.snapshot().version, list(table.read())
    reading = table.read()
    begun = [next(reading) for _ in range(3)]

    compact_topics(data_dir)

    assert begun + list(reading) == before
    assert list(table.read()) == before, "it has not looked"
    table.refresh()
    assert len(list(table.read())) < len(before)
    assert list(table.read(as_of_version=version)) == before
    assert table.count_records(as_of_version=version) == len(before)
    assert [stored.record for stored in table.read_stored(as_of_version=version)] == before
    assert [stored.delta_version for stored in table.read_stored()] == [
        table.version_of(record.offset).version for record in table.read()
    ]
    assert max(stored.delta_version for stored in table.read_stored()) <= version, "the versions that added them"
    with open_partition(data_dir / NAME) as partition:
        assert [record.value for record in partition.read(0, as_of_version=version)] == [r.value for r in before]
        partition.append([NewRecord(b"more", b"key")])
        assert partition.current_version() > version + 1


def test_who_reads_while_replaced_files_go_is_told_which_version_is_left(data_dir):
    table = open_table(data_dir / NAME)
    version = table.snapshot().version
    compact_topics(data_dir)
    left = open_table(data_dir / NAME)
    names = {segment.name for segment in left.snapshot().segments}
    for path in (data_dir / NAME).glob("*.log"):
        if path.name not in names:
            path.unlink()
    for reader, as_of in ((table, None), (open_table(data_dir / NAME), version)):
        with pytest.raises(VersionExpiredError) as expired:
            list(reader.read(as_of_version=as_of))
        assert expired.value.oldest == left.snapshot().version
    assert list(left.read())
