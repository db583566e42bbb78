"""A table without a broker where one has left a commit journal: what that holds is put back before anybody writes."""

import pytest

from exactlog.core.deltalog.journal_format import print_journal_name
from exactlog.core.model.errors import DamageError
from exactlog.log import Committed, open_partition
from exactlog.storage.catalog import CATALOG_NAME, Catalog, CatalogTopic, TopicState
from exactlog.storage.filesystem import MemoryFilesystem, OsFilesystem
from tests.support.file_trees import files_below
from tests.support.partitions import (
    DELTA_LOG,
    DIRECTORY,
    FIRST_MS,
    JOURNAL,
    ROOT,
    TOPIC_ID,
    DataDirectory,
    batch_of,
    copy_of,
    replace_file,
    values_of,
)

JOURNALED = {"is_journaled": True, "checkpoint_interval": 1_000}


def left_behind(filesystem=None, *, root=ROOT):
    """What a killed broker leaves: two versions, and a committed round that has none."""
    disk = DataDirectory(filesystem, root=root, **JOURNALED)
    partition = disk.make()
    for value in (b"first", b"second"):
        disk.commit(partition, batch_of(value))
        disk.publish(partition)
    disk.commit(partition, batch_of(b"third, without a version"))
    disk.close()
    return disk.filesystem


ALL = [b"first", b"second", b"third, without a version"]


def values(partition):
    return [record.value for record in partition.read()]


@pytest.fixture
def filesystem():
    """The same after a power cut: the first version has lost its name, and the bytes are gone."""
    filesystem = left_behind()
    filesystem.remove(f"{DELTA_LOG}/{1:020d}.json")
    filesystem.remove(f"{DIRECTORY}/{0:020d}.log")
    return filesystem


def test_who_writes_finds_all_that_the_broker_has_acknowledged(filesystem):
    with open_partition(DIRECTORY, filesystem=filesystem) as partition:
        assert values(partition) == ALL
        assert partition.append([b"fourth"]) == Committed(4, 3, 3), "the third record has got version 3"
        assert values(partition) == [*ALL, b"fourth"]


def test_the_journal_stays_and_the_next_broker_goes_on_from_there(filesystem):
    journal = filesystem.read_file(f"{JOURNAL}/{print_journal_name(1)}")
    for value in (b"fourth", b"fifth"):
        with open_partition(DIRECTORY, filesystem=filesystem) as partition:
            partition.append([value])
    assert filesystem.list_names(JOURNAL) == [print_journal_name(1)]
    assert filesystem.read_file(f"{JOURNAL}/{print_journal_name(1)}") == journal

    with DataDirectory(filesystem, leader_epoch=9, **JOURNALED) as disk:
        partition = disk.open()
        assert values_of(partition) == [*ALL, b"fourth", b"fifth"]
        disk.commit(partition, batch_of(b"sixth"))
        disk.settle()
        disk.settle()
    assert filesystem.list_names(JOURNAL) == []
    with open_partition(DIRECTORY, filesystem=filesystem) as partition:
        assert values(partition)[-1] == b"sixth"


def test_records_that_are_removed_without_a_broker_stay_removed_when_it_starts(filesystem):
    with open_partition(DIRECTORY, filesystem=filesystem) as partition:
        partition.append([b"fourth"])
        partition.delete_records_before(2)

    with DataDirectory(filesystem, leader_epoch=9, **JOURNALED) as disk:
        partition = disk.open()
        assert (partition.log_start_offset, values_of(partition, 2)) == (2, [*ALL[2:], b"fourth"])


def test_who_only_reads_changes_nothing(filesystem):
    filesystem = left_behind()
    before = files_below(filesystem)
    with open_partition(DIRECTORY, read_only=True, filesystem=filesystem) as partition:
        assert values(partition) == ALL[:2], "as of the newest version"

    assert files_below(filesystem) == before


def test_a_damaged_journal_is_told_and_nothing_is_written(filesystem):
    replace_file(filesystem, f"{JOURNAL}/{print_journal_name(1)}", bytes(500))
    before = files_below(filesystem)

    with pytest.raises(DamageError, match="journal"):
        open_partition(DIRECTORY, filesystem=filesystem)

    assert files_below(filesystem) == before


def put_catalog(root):
    catalog = Catalog(str(root / CATALOG_NAME))
    catalog.add_topic(CatalogTopic("orders", TOPIC_ID, 1, {}, TopicState.LIVE, FIRST_MS))
    catalog.close()


def test_beside_a_catalog_too(tmp_path):
    left_behind(OsFilesystem(), root=str(tmp_path))
    put_catalog(tmp_path)
    directory = tmp_path / "topic=orders-part=0"
    (directory / "_delta_log" / f"{1:020d}.json").unlink()

    with open_partition(directory) as partition:
        assert values(partition) == ALL
        assert partition.append([b"fourth"]) == Committed(4, 3, 3)


def test_a_damaged_journal_keeps_nobody_from_trying_again(tmp_path):
    """The lock is let go of."""
    left_behind(OsFilesystem(), root=str(tmp_path))
    put_catalog(tmp_path)
    journal = tmp_path / "journal" / print_journal_name(1)
    content = journal.read_bytes()
    journal.write_bytes(bytes(len(content)))
    with pytest.raises(DamageError):
        open_partition(tmp_path / "topic=orders-part=0")
    journal.write_bytes(content)

    with open_partition(tmp_path / "topic=orders-part=0") as partition:
        assert values(partition) == ALL


def test_another_partition_of_the_directory_may_be_made_meanwhile(filesystem):
    with open_partition(f"{ROOT}/topic=mine-part=0", filesystem=filesystem) as partition:
        partition.append([b"mine"])
    with open_partition(DIRECTORY, filesystem=copy_of(filesystem)) as partition:
        assert values(partition) == ALL


def test_in_a_directory_without_a_journal_none_is_made():
    filesystem = MemoryFilesystem()
    with open_partition(DIRECTORY, filesystem=filesystem) as partition:
        partition.append([b"first"])

    assert "journal" not in filesystem.list_names(ROOT)
