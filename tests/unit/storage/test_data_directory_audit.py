"""What an audit of a whole data directory finds beside its partitions."""

import sqlite3
from uuid import UUID

import pytest

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.model.errors import DamageError
from exactlog.core.model.ids import TopicPartition
from exactlog.storage.catalog import Catalog, CatalogTopic, TopicState
from exactlog.storage.data_directory_audit import audit_data_directory, decode_catalog
from exactlog.testing import FailingFilesystem
from tests.support.counting_filesystem import CountingFilesystem
from tests.support.partitions import FIRST_MS, ROOT, TOPIC_ID, DataDirectory, batch_of, replace_file

OTHER_ID = UUID("9b2f6c1e-6a3f-4f0e-9f57-3c1d2e4a5b61")
ORDERS = [f"{ROOT}/topic=orders-part={index}" for index in range(2)]


def catalog_of(folder, *topics):
    """The bytes of a catalog with these topics."""
    path = folder / "made.db"
    catalog = Catalog(str(path))
    for topic in topics:
        catalog.add_topic(topic)
    catalog.close()
    content = path.read_bytes()
    path.unlink()
    return content


def topic_of(name="orders", topic_id=TOPIC_ID, partitions=2, state=TopicState.LIVE):
    return CatalogTopic(name, topic_id, partitions, {"retention.ms": "1"}, state, FIRST_MS)


@pytest.fixture
def files(tmp_path):
    """A data directory with two partitions of one topic."""
    with DataDirectory() as disk:
        for index in range(2):
            partition = disk.make(TopicPartition("orders", index))
            disk.commit(partition, batch_of(b"a"))
        replace_file(disk.filesystem, f"{ROOT}/catalog.db", catalog_of(tmp_path, topic_of()))
        replace_file(disk.filesystem, f"{ROOT}/lock", b"{}\n")
        return disk.filesystem


def found(filesystem):
    """What an audit finds beside the partitions, as kinds and files."""
    return [(str(finding.kind), finding.file) for finding in audit_data_directory(filesystem, ROOT).findings]


def put_catalog(filesystem, folder, *topics):
    replace_file(filesystem, f"{ROOT}/catalog.db", catalog_of(folder, *topics))


def test_a_data_directory_that_is_well_has_a_report_for_each_partition(files):
    report = audit_data_directory(files, ROOT)

    assert [(table.topic, table.partition, table.end_offset) for table in report.tables] == [
        ("orders", 0, 1),
        ("orders", 1, 1),
    ]
    assert (report.findings, report.damage, report.harmless, report.notes) == ((), 0, 0, 0)


def test_damage_in_a_partition_counts_for_the_whole(files):
    files.remove(f"{ORDERS[0]}/{0:020d}.log")
    replace_file(files, f"{ORDERS[1]}/_delta_log/{1:020d}.checkpoint.json", b"")
    replace_file(files, f"{ROOT}/notes.txt", b"")

    report = audit_data_directory(files, ROOT)

    assert (report.damage, report.harmless, report.notes) == (2, 1, 1)


def test_a_missing_catalog_is_noted_since_without_a_broker_there_is_none(files):
    files.remove(f"{ROOT}/catalog.db")

    assert found(files) == [("catalog-missing", "catalog.db")]
    assert audit_data_directory(files, ROOT).damage == 0


def test_a_catalog_that_cannot_be_read_is_damage(files):
    failing = FailingFilesystem(files)
    failing.fail("read_file", path_pattern="*catalog.db", times=None)

    assert found(failing) == [("file-unreadable", "catalog.db")]


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\0" + bytes(2000)])
def test_a_damaged_catalog_is_damage(files, content):
    replace_file(files, f"{ROOT}/catalog.db", content)

    assert found(files) == [("catalog-damaged", "catalog.db")]


def test_a_catalog_cut_short_is_damage(files):
    content = files.read_file(f"{ROOT}/catalog.db")
    replace_file(files, f"{ROOT}/catalog.db", content[: len(content) // 2])

    assert found(files) == [("catalog-damaged", "catalog.db")]


def test_a_transaction_of_the_catalog_under_way_is_a_note_and_the_catalog_is_believed_if_it_can_be(files):
    replace_file(files, f"{ROOT}/catalog.db-journal", b"journal")
    assert found(files) == [("catalog-unfinished", "catalog.db")]

    replace_file(files, f"{ROOT}/catalog.db", b"half")
    assert found(files) == [("catalog-unfinished", "catalog.db")]


def test_a_missing_partition_of_a_topic_is_damage(files, tmp_path):
    put_catalog(files, tmp_path, topic_of(partitions=3))

    assert found(files) == [("partition-missing", "topic=orders-part=2")]


def test_a_topic_that_is_deleted_meanwhile_is_not_missed(files, tmp_path):
    put_catalog(files, tmp_path, topic_of(partitions=3))
    counting = CountingFilesystem(files)
    seen = []

    def delete_at_the_end(operation):
        seen.append(operation.name)
        if operation.name == "list_names" and operation.path == ROOT and seen.count("list_names") > 1:
            counting.before = lambda operation: None
            put_catalog(files, tmp_path)

    counting.before = delete_at_the_end

    assert found(counting) == []


@pytest.mark.parametrize("state", [TopicState.CREATING, TopicState.DELETING])
def test_partitions_of_a_topic_in_between_may_be_missing(files, tmp_path, state):
    put_catalog(files, tmp_path, topic_of(partitions=3, state=state))

    assert found(files) == [("partition-unfinished", "catalog.db")]


def test_a_partition_of_another_topic_of_that_name_is_damage(files, tmp_path):
    put_catalog(files, tmp_path, topic_of(topic_id=OTHER_ID))

    assert found(files) == [
        ("partition-foreign", "topic=orders-part=0"),
        ("partition-foreign", "topic=orders-part=1"),
    ]


def test_a_partition_of_no_topic_is_a_note(files, tmp_path):
    put_catalog(files, tmp_path, topic_of(partitions=1))

    assert found(files) == [("partition-unnamed", "topic=orders-part=1")]


def test_leftovers_and_foreign_names_are_notes(files):
    files.make_directories(f"{ROOT}/.creating/topic=a-part=0")
    files.make_directories(f"{ROOT}/.deleted/x-0")
    replace_file(files, f"{ROOT}/notes.txt", b"")

    assert found(files) == [
        ("foreign-file", "notes.txt"),
        ("partition-unfinished", ".creating/topic=a-part=0"),
        ("partition-unfinished", ".deleted/x-0"),
    ]


def test_a_catalog_is_decoded_without_a_file(tmp_path):
    topics = decode_catalog(catalog_of(tmp_path, topic_of(), topic_of("other", OTHER_ID, 5)))

    assert [(topic.name, topic.topic_id, topic.partition_count) for topic in topics] == [
        ("orders", TOPIC_ID, 2),
        ("other", OTHER_ID, 5),
    ]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE topics SET name = '../etc'",
        "UPDATE topics SET id = 'x'",
        "UPDATE topics SET partitions = 1000000",
        "UPDATE topics SET config = '{'",
        "DROP TABLE topics",
    ],
)
def test_a_catalog_with_rows_that_cannot_be_is_damaged(tmp_path, change):
    path = tmp_path / "catalog.db"
    path.write_bytes(catalog_of(tmp_path, topic_of()))
    connection = sqlite3.connect(path)
    connection.execute(change)
    connection.commit()
    connection.close()

    with pytest.raises(DamageError):
        decode_catalog(path.read_bytes())


def test_a_data_directory_without_topics_is_well(tmp_path):
    with DataDirectory(config=TopicConfig()) as disk:
        put_catalog(disk.filesystem, tmp_path)

        assert audit_data_directory(disk.filesystem, ROOT).damage == 0
