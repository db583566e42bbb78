"""Compacting topics by tasks: as one process does it, with the directory in the driver's hands."""

import json
import os
import shutil

import pytest

from exactlog.cli.main import main
from exactlog.core.model.errors import ConfigError, DirectoryLockedError, NotFoundError, UnavailableError
from exactlog.core.record.batch_builder import NewRecord, build_batch
from exactlog.log.compaction import CompactionRun, compact_partition, partitions_at
from exactlog.pipeline import compact_log
from exactlog.storage.data_directory_audit import audit_data_directory
from exactlog.storage.directory_lock import DirectoryLock
from exactlog.storage.filesystem import OsFilesystem
from exactlog.storage.table_reader import find_tables, open_table
from exactlog.testing import Broker
from tests.support.raw_client import RawClient, batch_of
from tests.support.raw_client import Topic as RawTopic

pytestmark = pytest.mark.peer

PARTITIONS = 3


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """The directory of a broker that has stopped: a compacted topic of three partitions, and one that is not."""
    directory = tmp_path_factory.mktemp("log") / "data"
    with Broker(data_dir=directory) as broker, RawClient(broker.port) as raw:
        keyed = raw.create_topic("keyed", partitions=PARTITIONS, cleanup_policy="compact", segment_bytes=300)
        for number in range(60):
            record = NewRecord(b"%d" % number, b"key-%d" % (number % 7), timestamp_ms=1_700_000_000_000 + number)
            assert raw.produce(keyed, build_batch([record]), partition=number % PARTITIONS).error_code == 0
        plain: RawTopic = raw.create_topic("plain", segment_bytes=300)
        raw.produce(plain, batch_of(b"a"))
    return directory


@pytest.fixture
def directory(stopped, tmp_path):
    return shutil.copytree(stopped, tmp_path / "data")


def newest(directory):
    """The newest value of each key, partition for partition."""
    return [
        {record.key: (record.offset, record.value) for record in open_table(path).read()}
        for path in find_tables(directory)
        if path.name.startswith("topic=keyed")
    ]


def files_in(directory):
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file() and path.name != "lock"}


def sizes_of(directory):
    return [
        [(segment.name, segment.size) for segment in open_table(path).snapshot().segments]
        for path in find_tables(directory)
    ]


def test_tasks_do_what_one_process_does(spark, directory, tmp_path):
    alone = shutil.copytree(directory, tmp_path / "alone")
    before, told = newest(directory), []
    with CompactionRun(*partitions_at(alone)) as run:
        done = [compact_partition(place) for place in run.places]

    report = compact_log(spark, path=directory, progress=told.append)

    assert newest(directory) == before
    assert sizes_of(directory) == sizes_of(alone)
    assert [(outcome.topic, outcome.partition) for outcome in report.outcomes] == [("keyed", n) for n in range(3)]
    assert report.records_removed == sum(each.records_removed for each in done) > 20
    assert (report.partitions, report.compacted, report.failed, report.partitions_left) == (3, 3, 0, 0)
    assert report.bytes < report.bytes_before
    assert f"partition 3 of 3: {report.records_removed} records removed" in told[-1]
    assert audit_data_directory(OsFilesystem(), str(directory)).damage == 0
    again = compact_log(spark, path=directory)
    assert (again.records_removed, again.compacted, again.bytes) == (0, 0, report.bytes)


def test_spark_reads_what_is_left_and_what_was_there_before(spark, directory):
    before = {path.name: open_table(path).snapshot().version for path in find_tables(directory)}
    compact_log(spark, path=directory, topics=["keyed"])

    def rows(**options):
        frame = spark.read.format("exactlog").options(path=str(directory), topics="keyed", **options).load()
        return [(row.partition, row.offset, bytes(row.value)) for row in frame.collect()]

    left = rows()
    assert len(left) < 40
    assert sorted(left) == sorted(
        (number, record.offset, record.value)
        for number in range(PARTITIONS)
        for record in open_table(directory / f"topic=keyed-part={number}").read()
    )
    version = min(version for name, version in before.items() if name.startswith("topic=keyed"))
    assert len(rows(versionAsOf=str(version))) == 60


def test_a_run_that_is_told_to_stop_ends_between_rounds_and_the_next_one_goes_on(spark, directory):
    answers = iter([False, True])
    report = compact_log(spark, path=directory, is_stopping=lambda: next(answers))
    assert report.is_stopped
    assert (report.partitions, report.partitions_left) == (2, 1)
    rest = compact_log(spark, path=directory)
    assert rest.compacted == 1
    assert not rest.is_stopped


def test_a_dry_run_changes_nothing(spark, directory):
    before = files_in(directory)
    trial = compact_log(spark, path=directory, dry_run=True)
    assert files_in(directory) == before
    assert trial.is_dry_run
    assert compact_log(spark, path=directory).bytes == trial.bytes


def test_what_is_wrong_with_one_partition_keeps_none_of_the_others(spark, directory):
    log = min((directory / "topic=keyed-part=1").glob("*.log"))
    content = bytearray(log.read_bytes())
    content[-1] ^= 1
    log.write_bytes(content)

    report = compact_log(spark, path=directory)

    assert (report.partitions, report.compacted, report.failed) == (3, 2, 1)
    (failed,) = [outcome for outcome in report.outcomes if outcome.error]
    assert (failed.partition, failed.error_code) == (1, "damage")
    assert log.name in failed.error


def test_a_directory_that_is_in_use_is_refused(spark, directory):
    with DirectoryLock(str(directory)), pytest.raises(DirectoryLockedError, match=str(os.getpid())):
        compact_log(spark, path=directory)


def test_what_is_not_there_or_not_compacted_is_refused(spark, directory):
    with pytest.raises(NotFoundError):
        compact_log(spark, path=directory / "nowhere")
    with pytest.raises(NotFoundError):
        compact_log(spark, path=directory, topics=["nobody"])
    with pytest.raises(ConfigError):
        compact_log(spark, path=directory, topics=["plain"])


def test_a_task_that_outlives_its_driver_publishes_nothing(directory):
    with CompactionRun(*partitions_at(directory)) as run:
        (place, other, _) = run.places
    version = open_table(directory / place.name).snapshot().version
    (directory / "lock").write_text('{"pid": 1, "host": "elsewhere"}')
    with pytest.raises(UnavailableError, match="not held"):
        compact_partition(place)
    assert open_table(directory / place.name).snapshot().version == version
    assert other.name != place.name


def test_the_command_prints_the_report_and_asks_what_is_meant(spark, directory, capfd):
    capfd.readouterr()
    assert main(["pipeline", "compact", "--path", str(directory), "-o", "json"]) == 0
    report = json.loads(capfd.readouterr().out)
    assert (report["partitions"], report["failed"]) == (3, 0)
    assert report["outcomes"][0]["topic"] == "keyed"
    assert main(["pipeline", "compact", "--path", str(directory), "--store", "sqlite:///x.db"]) == 2
    with DirectoryLock(str(directory)):
        assert main(["pipeline", "compact", "--path", str(directory)]) == 9
