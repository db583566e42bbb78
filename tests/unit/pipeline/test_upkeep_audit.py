"""An audit of a data directory whose partitions are verified elsewhere, some at a time."""

import pytest

from exactlog.core.model.ids import TopicPartition
from exactlog.storage.data_directory_audit import audit_data_directory, audit_partitions
from exactlog.storage.filesystem import OsFilesystem
from tests.support.generated_logs import write_log

PLACES = tuple(TopicPartition("orders", number) for number in range(3))
FILES = OsFilesystem()


@pytest.fixture
def directory(tmp_path):
    write_log(tmp_path / "data", seed=3, places=PLACES, removes=False)
    (log, *_) = sorted((tmp_path / "data" / "topic=orders-part=1").glob("*.log"))
    content = bytearray(log.read_bytes())
    content[100] ^= 1
    log.write_bytes(content)
    return str(tmp_path / "data")


def test_it_finds_what_one_audit_of_all_finds(directory):
    asked = []

    def audit_tables(names):
        asked.append(list(names))
        return {name: table for name in names for table in audit_partitions(FILES, directory, [name])}

    report = audit_data_directory(FILES, directory, audit_tables=audit_tables)

    assert asked == [[f"topic=orders-part={number}" for number in range(3)]]
    assert report == audit_data_directory(FILES, directory)
    assert report.damage > 0


def test_partitions_that_nobody_came_to_are_left_out(directory):
    def audit_tables(names):
        return dict(zip(names[:2], audit_partitions(FILES, directory, names[:2]), strict=True))

    report = audit_data_directory(FILES, directory, audit_tables=audit_tables)

    assert report.tables == audit_data_directory(FILES, directory).tables[:2]
