"""Partitions are made whole, opened by whom they belong to, and taken away whole."""

import json
from uuid import UUID

import pytest

from exactlog.core.config.topic_configs import TopicConfig, validate_topic_config
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import DamageError
from exactlog.core.model.ids import TopicPartition
from exactlog.storage.filesystem import MemoryFilesystem, OsFilesystem
from exactlog.storage.round import StorageRefused
from exactlog.storage.settings import FlushMode
from tests.support.counting_filesystem import CountingFilesystem
from tests.support.partitions import (
    DELTA_LOG,
    DIRECTORY,
    FIRST_MS,
    ORDERS,
    ROOT,
    TOPIC_ID,
    DataDirectory,
    batch_of,
    batches_of,
    remove_checkpoints,
    replace_file,
    state_of,
    values_of,
)

OTHER_ID = UUID("11111111-2222-3333-4444-555555555555")
LONG = TopicPartition("x" * 249, 7)


@pytest.fixture
def disk():
    with DataDirectory() as directory:
        yield directory


def test_a_partition_begins_with_version_0_which_says_what_it_is():
    config = TopicConfig(overrides={"retention.ms": "5"}, retention_ms=5)
    with DataDirectory(config=config, flush_mode=FlushMode.INTERVAL) as disk:
        disk.create()

        document = json.loads(disk.filesystem.read_file(f"{DELTA_LOG}/{0:020d}.json"))

    assert document["metadata"] == {
        "topic": "orders",
        "partition": 0,
        "topic_id": str(TOPIC_ID),
        "created": "2025-11-07T18:15:02.883Z",
        "format_version": 1,
        "config": {"retention.ms": "5", "flush.mode": "interval"},
    }
    assert (document["version"], document["end_offset"], document["operations"]) == (0, 0, [])


def version_count(disk):
    return sum(not name.endswith(".checkpoint.json") for name in disk.filesystem.list_names(DELTA_LOG))


def configured(**overrides):
    """A configuration of a topic; keys are spelled with underscores."""
    config = validate_topic_config({key.replace("_", "."): str(value) for key, value in overrides.items()})
    assert isinstance(config, TopicConfig)
    return config


@pytest.mark.parametrize("flush_mode", FlushMode)
def test_settings_that_changed_while_a_partition_was_closed_become_a_version_when_it_is_opened(flush_mode):
    with DataDirectory(config=configured(retention_ms=5), flush_mode=flush_mode) as disk:
        disk.commit(disk.make(), batch_of(b"v"))
        disk.config = configured(segment_bytes=100)
        disk.restart()
        for _ in range(2):
            partition = disk.open()
            assert partition.table.metadata.config == {"segment.bytes": "100", "flush.mode": flush_mode}
            assert values_of(partition) == [b"v"]
            versions = version_count(disk)
            disk.restart()
        assert version_count(disk) == versions, "the second opening had nothing to say"


def test_an_open_partition_works_under_changed_settings_from_the_next_append_on(disk):
    partition = disk.make()
    disk.commit(partition, *batches_of(3))

    disk.store.apply(partition, configured(segment_bytes=100, message_timestamp_type="LogAppendTime"))
    disk.commit(partition, *batches_of(3))

    assert [segment.base_offset for segment in partition.segments] == [0, 3, 4, 5]
    assert partition.table.metadata.config["segment.bytes"] == "100"
    assert partition.segments[-1].max_timestamp == disk.clock.now_ms()


def test_a_change_of_settings_is_a_version_of_its_own_behind_what_was_decided(disk):
    partition = disk.make()
    asks = [disk.append(partition, batch) for batch in batches_of(2)]
    disk.store.apply(partition, configured(retention_ms=7))
    disk.append(partition, batch_of(b"later"))
    disk.run_round()

    assert [ask.offset for ask in asks] == [0, 1]
    documents = [json.loads(disk.filesystem.read_file(f"{DELTA_LOG}/{version:020d}.json")) for version in (1, 2, 3)]
    assert [len(document["operations"]) for document in documents] == [1, 0, 1]
    assert ["metadata" in document for document in documents] == [False, True, False]
    assert documents[1]["metadata"]["config"] == {"retention.ms": "7", "flush.mode": "commit"}


def test_a_segment_rolls_when_a_batch_comes_that_is_so_much_younger_than_its_first(disk):
    disk.config = configured(segment_ms=1_000)
    partition = disk.make()
    ages_ms = [0, 900, 1_000, 1_001, 1_500, 500, 2_001, 2_002]
    disk.commit(partition, *(batch_of(b"v", timestamp_ms=FIRST_MS + age_ms) for age_ms in ages_ms))

    assert [segment.base_offset for segment in partition.segments] == [0, 3, 7]


def test_batches_of_one_round_roll_a_segment_too(disk):
    disk.config = configured(segment_ms=1_000)
    partition = disk.make()
    for age_ms in (0, 1_001, 1_002, 5_000):
        disk.append(partition, batch_of(b"v", timestamp_ms=FIRST_MS + age_ms))
    disk.run_round()

    assert [segment.base_offset for segment in partition.segments] == [0, 1, 3]


def test_a_segment_of_an_earlier_life_rolls_by_the_age_of_its_first_batch(disk):
    disk.config = configured(segment_ms=1_000)
    disk.commit(disk.make(), batch_of(b"v", timestamp_ms=FIRST_MS), batch_of(b"v", timestamp_ms=FIRST_MS + 900))
    disk.restart()
    partition = disk.open()
    disk.commit(partition, *(batch_of(b"v", timestamp_ms=FIRST_MS + age_ms) for age_ms in (1_000, 1_001)))

    assert [segment.base_offset for segment in partition.segments] == [0, 3]


def test_a_segment_whose_first_batch_has_no_timestamp_does_not_roll_by_age(disk):
    disk.config = configured(segment_ms=1)
    partition = disk.make()
    disk.commit(partition, *(batch_of(b"v", timestamp_ms=timestamp_ms) for timestamp_ms in (-1, FIRST_MS)))

    assert len(partition.segments) == 1


def test_settings_that_are_not_the_topics_own_change_without_a_version(disk):
    partition = disk.make()
    versions = partition.table.version

    disk.store.apply(partition, TopicConfig(segment_bytes=100))  # as when the broker's default changes
    assert not partition.has_unpublished
    disk.commit(partition, *batches_of(2))

    assert partition.table.version == versions + 2
    assert len(partition.segments) == 2


def test_settings_that_go_back_and_forth_before_a_round_end_up_as_the_last(disk):
    partition = disk.make()
    for retention_ms in (1, 2, 1):
        disk.store.apply(partition, configured(retention_ms=retention_ms))
    disk.store.apply(partition, configured())
    disk.run_round()

    assert partition.table.metadata.config == {"flush.mode": "commit"}
    assert partition.table.version == 4


def test_a_change_of_settings_that_the_disk_refused_is_made_up_for_by_the_next_one_or_the_next_opening(disk):
    partition = disk.make()
    disk.store.apply(partition, configured(retention_ms=7))
    told = []
    partition.when_published(told.append)
    disk.complete_round(disk.take_round(), [StorageRefused("the disk is full", 0)])
    assert told == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert "retention.ms" not in partition.table.metadata.config

    disk.store.apply(partition, configured(retention_ms=7))
    disk.run_round()
    assert partition.table.metadata.config["retention.ms"] == "7"


def test_a_partition_appears_under_its_name_when_it_is_whole():
    filesystem = CountingFilesystem(MemoryFilesystem())
    with DataDirectory(filesystem) as disk:
        filesystem.clear()
        disk.create()

    assert [(op.name, op.path) for op in filesystem.operations if op.name in {"rename", "link", "sync_directory"}] == [
        ("link", f"{ROOT}/.creating/topic=orders-part=0/_delta_log/{0:020d}.json"),
        ("sync_directory", f"{ROOT}/.creating/topic=orders-part=0/_delta_log"),
        ("sync_directory", f"{ROOT}/.creating/topic=orders-part=0"),
        ("rename", DIRECTORY),
        ("sync_directory", ROOT),
    ]


def test_a_topic_whose_name_is_too_long_for_a_path_is_made_opened_and_removed(disk):
    partition = disk.make(LONG)
    disk.commit(partition, batch_of(b"x"))
    disk.restart()

    reopened = disk.open(LONG)

    assert values_of(reopened) == [b"x"]
    assert reopened.table.metadata.topic == LONG.topic
    disk.store.remove(LONG, TOPIC_ID)
    assert sorted(disk.filesystem.list_names(ROOT)) == [".creating", ".deleted"]


def test_what_a_crash_left_half_made_or_half_removed_is_swept_away(disk):
    for place in (".creating/topic=a-part=0/_delta_log", ".deleted/x-0/_delta_log"):
        disk.filesystem.make_directories(f"{ROOT}/{place}")
        replace_file(disk.filesystem, f"{ROOT}/{place}/file", b"x")
    deleted = disk.store.prepare()

    assert disk.filesystem.list_names(f"{ROOT}/.creating") == []
    assert deleted == [f"{ROOT}/.deleted/x-0"]


def test_a_removed_partition_is_gone_and_one_that_is_not_there_is_fine(disk):
    partition = disk.make()
    disk.commit(partition, *batches_of(3))
    deleted = disk.store.remove(ORDERS, TOPIC_ID)
    assert disk.store.remove(ORDERS, TOPIC_ID) is None
    assert not disk.filesystem.exists(DIRECTORY)
    assert disk.filesystem.exists(f"{deleted}/_delta_log/{3:020d}.json"), "readers that are at it keep it for a while"

    disk.store.remove_deleted(deleted)
    disk.store.remove_deleted(deleted)

    assert disk.filesystem.list_names(f"{ROOT}/.deleted") == []
    assert len(disk.open_files) == 0
    with pytest.raises(DamageError):
        disk.open()


def test_a_removed_partition_leaves_its_name_before_its_files_go():
    filesystem = CountingFilesystem(MemoryFilesystem())
    with DataDirectory(filesystem) as disk:
        disk.commit(disk.make(), batch_of(b"x"))
        filesystem.clear()
        disk.store.remove(ORDERS, TOPIC_ID)

    done = [(op.name, op.path) for op in filesystem.operations]
    renamed = done.index(("rename", f"{ROOT}/.deleted/{TOPIC_ID}-0"))
    assert done[renamed + 1] == ("sync_directory", ROOT)
    assert all(name != "remove" for name, _ in done[:renamed])


def test_a_name_may_be_used_again(disk):
    disk.commit(disk.make(), batch_of(b"old"))
    disk.store.remove(ORDERS, TOPIC_ID)

    partition = disk.make()

    assert values_of(partition) == []
    assert disk.commit(partition, batch_of(b"new")) == 0


@pytest.mark.parametrize("without_version_0", [False, True])
def test_the_directory_of_another_topic_of_that_name_is_not_removed(disk, caplog, without_version_0):
    """The catalog was lost or is an old copy, and somebody makes a topic of the same name: the records stay."""
    disk.commit(disk.make(), *batches_of(12))
    if without_version_0:
        disk.filesystem.remove(f"{DELTA_LOG}/{0:020d}.json")
    disk.restart()

    disk.store.remove(ORDERS, OTHER_ID)

    assert len(values_of(disk.open())) == 12
    assert str(OTHER_ID) in caplog.text


def test_a_directory_that_cannot_be_read_is_removed_all_the_same(disk):
    disk.make()
    replace_file(disk.filesystem, f"{DELTA_LOG}/{0:020d}.json", b"")

    disk.store.remove(ORDERS, TOPIC_ID)

    assert not disk.filesystem.exists(DIRECTORY)


@pytest.mark.parametrize("make_filesystem", [MemoryFilesystem, OsFilesystem])
def test_a_partition_is_never_made_over_one_that_is_there(make_filesystem, tmp_path):
    with DataDirectory(make_filesystem(), root=str(tmp_path)) as disk:
        disk.commit(disk.make(), batch_of(b"precious"))

        with pytest.raises(OSError, match="not empty"):
            disk.store.create(ORDERS, OTHER_ID, config=disk.config, created_ms=FIRST_MS)
        disk.restart()
        assert values_of(disk.open()) == [b"precious"]


def test_a_directory_of_another_topic_is_not_opened(disk):
    disk.commit(disk.make(), batch_of(b"x"))
    disk.restart()

    with pytest.raises(DamageError, match=f"belongs to topic id {TOPIC_ID}, not to {OTHER_ID}"):
        disk.store.open(ORDERS, OTHER_ID, disk.config)


def test_a_catalog_older_than_the_partition_is_noticed_before_anything_is_written(disk):
    """Its epochs would go back, and no version can follow from one of a later epoch."""
    disk.restart(leader_epoch=5)
    partition = disk.make()
    disk.commit(partition, batch_of(b"x"))
    disk.restart(leader_epoch=4)

    with pytest.raises(DamageError, match=r"leader epoch 5.*only 4"):
        disk.open()
    disk.restart(leader_epoch=6)
    reopened = disk.open()
    assert disk.commit(reopened, batch_of(b"y")) == 1
    assert [(entry.epoch, entry.start_offset) for entry in reopened.table.leader_epochs] == [(5, 0), (6, 1)]


@pytest.mark.parametrize("flush_mode", [FlushMode.INTERVAL, FlushMode.NONE])
def test_a_catalog_older_than_a_tail_without_a_version_is_noticed_and_the_tail_stays(flush_mode):
    disk = DataDirectory(flush_mode=flush_mode, leader_epoch=3)
    disk.commit(disk.make(), batch_of(b"x"))
    disk.restart(leader_epoch=5)
    disk.commit(disk.open(), batch_of(b"y"))
    disk.restart(leader_epoch=4)

    with pytest.raises(DamageError, match=r"leader epoch 5.*only 4"):
        disk.open()
    disk.restart(leader_epoch=6)
    assert values_of(disk.open()) == [b"x", b"y"]


def test_the_versions_that_an_opening_replays_are_counted(disk):
    def replayed():
        return disk.metrics.snapshot()["exactlog_recovery_versions_replayed_total"]

    partition = disk.make()
    assert replayed() == 1
    for number in range(12):
        disk.commit(partition, batch_of(b"%d" % number))
        disk.publish(partition)
    for more in (1, 2):
        disk.restart()
        disk.open()
        assert replayed() == 1 + 2 * more, "the two behind the checkpoint of version 10"


def test_the_real_file_system_and_the_one_in_memory_end_up_the_same(tmp_path):
    """One scenario on both; every byte of every file is compared."""
    trees = []
    for filesystem, root in ((OsFilesystem(), str(tmp_path)), (MemoryFilesystem(), ROOT)):
        config = TopicConfig(segment_bytes=500, index_interval_bytes=100)
        with DataDirectory(filesystem, root=root, config=config) as disk:
            partition = disk.make()
            disk.commit(partition, *batches_of(17))
            disk.restart()
            partition = disk.open()
            disk.commit(partition, *batches_of(16))
            assert len(values_of(partition)) == 33
            trees.append(tree_of(filesystem, f"{root}/topic=orders-part=0"))

    assert trees[0] == trees[1]
    assert len(trees[0]) > 40


def tree_of(filesystem, directory):
    found = {}
    for name in filesystem.list_names(directory):
        path = f"{directory}/{name}"
        if name == "_delta_log":
            found |= {f"{name}/{inner}": content for inner, content in tree_of(filesystem, path).items()}
        else:
            found[name] = filesystem.read_file(path)
    return found


# --- checkpoints -------------------------------------------------------------------------------------------------


def checkpoints(disk):
    names = disk.filesystem.list_names(DELTA_LOG)
    return sorted(int(name[:20]) for name in names if name.endswith(".checkpoint.json"))


def test_every_tenth_version_gets_a_checkpoint_when_nothing_speaks_against_it(disk):
    disk.commit(disk.make(), *batches_of(35))

    assert checkpoints(disk) == [10, 20, 30]


def test_a_checkpoint_that_is_due_too_soon_is_left_out(disk):
    disk.restart(checkpoint_min_interval_ms=1_000)
    partition = disk.make()
    for batch in batches_of(60):
        disk.commit(partition, batch)
        disk.clock.time_ms += 45
    assert checkpoints(disk) == [10, 40]

    disk.restart()
    partition = disk.open()
    disk.commit(partition, *batches_of(10))
    assert checkpoints(disk) == [10, 40], "the last one is remembered over a restart"
    disk.clock.time_ms += 1_000
    disk.commit(partition, *batches_of(10))
    assert checkpoints(disk) == [10, 40, 80]


def test_writers_do_not_wait_for_checkpoints_and_each_is_of_its_own_version(disk):
    partition = disk.make()
    disk.background.is_held = True
    disk.commit(partition, *batches_of(25))
    assert checkpoints(disk) == []

    disk.background.run()

    assert checkpoints(disk) == [10, 20]
    for version in (10, 20):
        document = disk.filesystem.read_file(f"{DELTA_LOG}/{version:020d}.checkpoint.json")
        assert json.loads(document)["next_offset"] == version


def test_a_checkpoint_that_could_not_be_written_is_made_at_the_next_opportunity():
    filesystem = CountingFilesystem(MemoryFilesystem())
    with DataDirectory(filesystem) as disk:
        partition = disk.make()

        def refuse(operation):
            if operation.name == "write_at" and "checkpoint" in operation.path:
                raise OSError(28, "No space left on device")

        filesystem.before = refuse
        disk.commit(partition, *batches_of(12))
        filesystem.before = lambda operation: None
        assert checkpoints(disk) == []

        disk.commit(partition, *batches_of(8))

        assert checkpoints(disk) == [20]
        before = state_of(partition)
        disk.restart()
        assert state_of(disk.open()) == before


def test_a_checkpoint_whose_sync_failed_is_final():
    filesystem = CountingFilesystem(MemoryFilesystem())
    with DataDirectory(filesystem) as disk:
        partition = disk.make()

        def fail(operation):
            if operation.name == "sync" and "checkpoint" in operation.path:
                raise OSError(5, "Input/output error")

        filesystem.before = fail
        disk.commit(partition, *batches_of(12))

        assert "Input/output error" in disk.background.failed_sync


def test_checkpoints_are_of_use_only_and_never_the_truth(disk):
    partition = disk.make()
    disk.commit(partition, *batches_of(25))
    before = state_of(partition)
    remove_checkpoints(disk.filesystem)
    disk.restart()

    assert state_of(disk.open()) == before
