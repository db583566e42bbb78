"""One owner for each data directory, handles that share it, readers beside it, and what happens when the disk fails."""

import errno
import os
import subprocess
import sys

import pytest

from exactlog.core.model.errors import (
    DirectoryLockedError,
    NotFoundError,
    OffsetOutOfRangeError,
    VersionExpiredError,
    VersionUnknownError,
)
from exactlog.log import Committed, Conflicted, NewRecord, PayloadDiffers, Superseded, Unavailable, open_partition
from exactlog.log.errors import (
    InvalidArgumentError,
    PartitionClosedError,
    PartitionStoppedError,
    ReadOnlyError,
)
from exactlog.storage.table_reader import open_table
from exactlog.testing import Broker, FailingFilesystem
from tests.support.raw_client import RawClient, Topic, offsets_and_values

IN_MEMORY = "/data/topic=orders-part=0"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data" / "topic=orders-part=0"


def values(partition, *bounds, **options):
    return [record.value for record in partition.read(*bounds, **options)]


def files_below(directory):
    return {entry: entry.read_bytes() for entry in sorted(directory.rglob("*")) if entry.is_file()}


def opens_elsewhere(path):
    """Whether another process can open it for writing."""
    code = "import sys; from exactlog.log import open_partition; open_partition(sys.argv[1]).close()"
    return subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, check=False).returncode == 0


# --- owners ------------------------------------------------------------------------------------------------------


def test_handles_of_one_process_share_the_log_and_the_last_one_lets_go(path):
    first, second = open_partition(path), open_partition(path)
    other = open_partition(path.with_name("topic=orders-part=1"))
    assert first.append([b"a"]) == Committed(1, 0, 0)
    assert second.append([b"b"], expected_version=1) == Committed(2, 1, 1)
    assert values(first) == values(second) == [b"a", b"b"]
    first.close()
    second.close()
    assert not opens_elsewhere(path), "the data directory is still in use"
    other.close()

    assert opens_elsewhere(path)


def test_a_handle_that_is_dropped_lets_go_too(path):
    open_partition(path).append([b"a"])

    assert opens_elsewhere(path)


def test_a_closed_handle_refuses_and_the_others_go_on(path):
    first, second = open_partition(path), open_partition(path)
    first.close()
    first.close()
    for use in (first.current_version, first.load_state, lambda: first.append([b"a"]), lambda: list(first.read(0))):
        with pytest.raises(PartitionClosedError):
            use()
    with second:
        second.append([b"a"])


def test_a_fork_does_not_write_and_takes_nothing_along(path):
    with open_partition(path) as mine:
        child = os.fork()
        if child == 0:
            try:
                mine.append([b"of the fork"])
            except PartitionClosedError:
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert mine.append([b"a"]) == Committed(1, 0, 0)


@pytest.mark.parametrize("name", ["orders", "topic=orders", "topic=-part=0", "topic=a/b-part=0x"])
def test_another_name_is_no_partition(tmp_path, name):
    with pytest.raises(InvalidArgumentError, match="partition"):
        open_partition(tmp_path / name)


def test_a_partition_is_made_where_there_is_none_but_not_to_be_read(path):
    with pytest.raises(NotFoundError, match="does not exist"):
        open_partition(path, read_only=True)
    assert not path.exists()
    with open_partition(path) as made:
        assert made.current_version() == 0


# --- beside a broker ---------------------------------------------------------------------------------------------


def test_a_broker_that_runs_is_not_disturbed_and_what_it_publishes_can_be_read(tmp_path):
    with Broker(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        topic = client.create_topic("orders")
        directory = tmp_path / "topic=orders-part=0"
        with pytest.raises(DirectoryLockedError):
            open_partition(directory)
        with open_partition(directory, read_only=True) as reader:
            for version in range(1, 4):
                client.produce(topic, batch(b"%d" % version))
                assert reader.current_version() == version
                assert values(reader) == [b"%d" % number for number in range(1, version + 1)]


def batch(*records):
    from tests.support.raw_client import batch_of

    return batch_of(*records)


def test_what_is_appended_without_the_broker_is_served_by_it_and_the_other_way_round(tmp_path):
    directory = tmp_path / "topic=orders-part=0"
    with Broker(data_dir=tmp_path) as broker:
        with RawClient(broker.port) as client:
            topic = client.create_topic("orders")
            client.produce(topic, batch(b"through the broker"))
        broker.kill()
        with pytest.raises(NotFoundError, match="unknown"):
            open_partition(tmp_path / "topic=unknown-part=0")
        with open_partition(directory) as table:
            assert values(table) == [b"through the broker"]
            assert isinstance(table.append([b"without it"], txn_id="t"), Committed)
            assert [entry.start_offset for entry in table.load_state().leader_epochs] == [0, 1]
        broker.restart()
        with RawClient(broker.port) as client:
            served = offsets_and_values(client.fetch(Topic("orders", topic.topic_id), 0).records)
            served += offsets_and_values(client.fetch(Topic("orders", topic.topic_id), 1).records)
            client.produce(topic, batch(b"through the broker again"))
    assert (0, b"through the broker") in served
    assert (1, b"without it") in served
    assert [record.value for record in open_table(directory).read()][-1] == b"through the broker again"


# --- readers -----------------------------------------------------------------------------------------------------


def test_a_reader_changes_nothing_and_follows_the_writer(path):
    with open_partition(path) as writer:
        writer.append([b"a"])
        before = files_below(path.parent)
        with open_partition(path, read_only=True) as reader:
            assert (reader.is_read_only, reader.current_version(), values(reader)) == (True, 1, [b"a"])
            for change in (
                lambda: reader.append([b"b"]),
                lambda: reader.append_transactional([b"b"]),
                lambda: reader.delete_records_before(1),
                reader.maybe_checkpoint,
            ):
                with pytest.raises(ReadOnlyError):
                    change()
            assert files_below(path.parent) == before
            writer.append([b"b", b"c"])
            assert (reader.current_version(), values(reader)) == (2, [b"a", b"b", b"c"])
            writer.delete_records_before(2)
            assert values(reader) == [b"c"]


def test_the_past_is_read_by_version_and_by_time_and_what_is_gone_is_said(path):
    with open_partition(path) as table:
        table.append([b"a"])
        first = table.load_state()
        table.append([b"b"])
        assert values(table, as_of_version=1) == [b"a"]
        assert values(table, 1, 2) == [b"b"]
        moment = next(record.timestamp_ms for record in table.read(0, as_of_version=1))
        assert values(table, as_of_timestamp=moment + 3_600_000) == [b"a", b"b"]
        with pytest.raises(VersionExpiredError):
            values(table, as_of_timestamp=0)
        with pytest.raises(VersionUnknownError, match="2"):
            values(table, as_of_version=3)
        table.delete_records_before(1)
        with pytest.raises(OffsetOutOfRangeError, match="3"):
            values(table, as_of_version=1)
        assert values(table) == [b"b"]
        assert first.next_offset == 1, "a state never changes"


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_both_isolations_read_the_same_where_there_are_no_transactions(path, isolation):
    with open_partition(path) as table:
        table.append([b"a"])
        assert values(table, isolation=isolation) == [b"a"]
        with pytest.raises(InvalidArgumentError, match="dirty"):
            values(table, isolation="dirty")


# --- appends -----------------------------------------------------------------------------------------------------


def test_records_are_values_pairs_or_whole_records(path):
    with open_partition(path) as table:
        table.append(["text", b"bytes", ("key", None), NewRecord(b"v", b"k", (("h", b"x"),), timestamp_ms=5)])
        found = list(table.read(0))

    assert [(record.key, record.value) for record in found] == [
        (None, b"text"),
        (None, b"bytes"),
        (b"key", None),
        (b"k", b"v"),
    ]
    assert (found[3].headers, found[3].timestamp_ms) == ((("h", b"x"),), 5)


@pytest.mark.parametrize("records", [b"one value", "one text", 5, [5], [("a", "b", "c")], [None]], ids=repr)
def test_what_is_no_list_of_records_is_refused(path, records):
    with open_partition(path) as table:
        with pytest.raises((InvalidArgumentError, TypeError)):
            table.append(records)
        assert table.current_version() == 0


@pytest.mark.parametrize(
    "terms",
    [
        {"origin_seq": 1},
        {"expected_origin_seq": 1},
        {"origin_id": 1, "origin_seq": 1},
        {"expected_version": -1},
        {"expected_version": "1"},
        {"origin_id": -1},
        {"txn_id": ""},
        {"txn_id": 5},
    ],
    ids=repr,
)
def test_terms_that_cannot_be_meant_are_refused(path, terms):
    with open_partition(path) as table:
        with pytest.raises(InvalidArgumentError):
            table.append([b"a"], **terms)
        assert table.current_version() == 0


def test_ids_and_sequences_are_remembered_whatever_timestamps_a_retry_would_get(path):
    with open_partition(path) as table:
        first = table.append([b"a"], txn_id="t", origin_id=9, origin_seq=4)
        assert table.append([b"a"], txn_id="t") == first
        assert isinstance(table.append([b"b"], txn_id="t"), PayloadDiffers)
        assert table.append([b"a"], origin_id=9, origin_seq=4) == first
        table.append([b"c"], origin_id=9)
        assert table.append([b"a"], origin_id=9, origin_seq=4) == Superseded(9, 4, 5)
        assert table.append([b"d"], origin_id=9, expected_origin_seq=4) == Conflicted(4, 5)


# --- a disk that fails -------------------------------------------------------------------------------------------


def test_a_full_disk_is_unavailable_and_works_again_when_there_is_room():
    files = FailingFilesystem()
    with open_partition(IN_MEMORY, filesystem=files) as table:
        table.append([b"a"])
        files.capacity_bytes = files.used_bytes
        refused = table.append([b"b"], txn_id="t")
        assert isinstance(refused, Unavailable)
        assert os.strerror(errno.ENOSPC) in refused.reason
        assert values(table) == [b"a"]
        files.capacity_bytes = None
        assert table.append([b"b"], txn_id="t", expected_version=1) == Committed(2, 1, 1)


@pytest.mark.parametrize("operation", ["sync_data", "sync", "sync_directory"])
def test_after_a_failed_sync_every_handle_refuses_with_the_first_reason(operation):
    files = FailingFilesystem()
    first, second = (open_partition(IN_MEMORY, filesystem=files) for _ in range(2))
    first.append([b"acknowledged"])
    files.fail(operation, times=1)
    with pytest.raises(PartitionStoppedError, match="sync failed"):
        first.append([b"b"])
    for use in (lambda: second.append([b"c"]), second.current_version, lambda: first.append([b"d"])):
        with pytest.raises(PartitionStoppedError, match="sync failed"):
            use()
    first.close()
    second.close()

    with open_partition(IN_MEMORY, filesystem=FailingFilesystem(files.after_power_cut())) as again:
        assert values(again)[:1] == [b"acknowledged"]
