"""One owner for each data directory, handles that share it, readers beside it, and what happens when the disk fails."""

import errno
import os
import subprocess
import sys
import threading

import pytest

from exactlog.core.model.errors import (
    DamageError,
    DirectoryLockedError,
    NotFoundError,
    OffsetOutOfRangeError,
    VersionExpiredError,
    VersionUnknownError,
)
from exactlog.log import (
    Committed,
    Compression,
    Conflicted,
    NewRecord,
    PayloadDiffers,
    Superseded,
    Unavailable,
    directory_owner,
    open_partition,
)
from exactlog.log.errors import (
    InvalidArgumentError,
    PartitionClosedError,
    PartitionStoppedError,
    ReadOnlyError,
    TransactionEndedError,
)
from exactlog.storage import fault_points
from exactlog.storage.filesystem import OsFilesystem
from exactlog.storage.table_reader import open_table
from exactlog.testing import Broker, FailingFilesystem
from tests.support.other_processes import opens_elsewhere
from tests.support.partitions import ManualClock
from tests.support.raw_client import RawClient, batch_of, offsets_and_values
from tests.support.watching import wait_published

IN_MEMORY = "/data/topic=orders-part=0"


class Interrupted(BaseException):
    """As an interrupt at the keyboard is: nobody who handles errors handles it."""


@pytest.fixture(autouse=True)
def nothing_stays_armed():
    yield
    fault_points.disarm_all()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data" / "topic=orders-part=0"


def values(partition, *bounds, **options):
    return [record.value for record in partition.read(*bounds, **options)]


def files_below(directory):
    return {entry: entry.read_bytes() if entry.is_file() else None for entry in directory.rglob("*")}


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


def test_all_paths_to_a_directory_lead_to_one_owner(path, tmp_path, monkeypatch):
    path.parent.mkdir()
    (tmp_path / "link").symlink_to(path.parent)
    monkeypatch.chdir(path.parent)
    ways = [path, str(path), f"{path}/", tmp_path / "link" / path.name, path.name, f"../data/{path.name}"]
    handles = [open_partition(way) for way in ways]
    monkeypatch.chdir(tmp_path)
    for version, handle in enumerate(handles, start=1):
        assert handle.append([b"a"], expected_version=version - 1) == Committed(version, version - 1, version - 1)
        assert len(values(handle)) == version
        handle.close()


def test_the_operating_systems_file_system_is_locked_also_when_it_is_given_by_name(path):
    with open_partition(path, filesystem=OsFilesystem()) as first, open_partition(path) as second:
        first.append([b"a"])
        assert second.append([b"b"], expected_version=1) == Committed(2, 1, 1)
        assert not opens_elsewhere(path)


def test_whoever_comes_second_is_told_the_pid_of_the_owner(path):
    code = "import sys; from exactlog.log import open_partition; open_partition(sys.argv[1])"
    with open_partition(path):
        second = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
        assert "DirectoryLockedError" in second.stderr
        assert f"process {os.getpid()} " in second.stderr
        with pytest.raises(DirectoryLockedError, match=f"process {os.getpid()} "), Broker(data_dir=path.parent):
            pass


def test_a_closed_handle_refuses_and_the_others_go_on(path):
    first, second = open_partition(path), open_partition(path)
    first.append([b"a", b"b"])
    begun, transaction = first.read(), first.append_transactional([b"c"])
    assert next(begun).value == b"a"
    first.close()
    first.close()
    for use in (
        first.current_version,
        first.load_state,
        lambda: first.append([b"a"]),
        lambda: list(first.read(0)),
        lambda: next(begun),
        lambda: first.delete_records_before(0),
        first.append_transactional,
        first.maybe_checkpoint,
        transaction.commit,
    ):
        with pytest.raises(PartitionClosedError):
            use()
    with second:
        assert second.append([b"c"]) == Committed(2, 2, 2)


@pytest.mark.parametrize("name", ["orders", "topic=orders", "topic=-part=0", "topic=a/b-part=0x"])
def test_another_name_is_no_partition(tmp_path, name):
    with pytest.raises(InvalidArgumentError, match="partition"):
        open_partition(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_partition_is_made_where_there_is_none_but_not_to_be_read(path):
    with pytest.raises(NotFoundError, match="does not exist"):
        open_partition(path, read_only=True)
    assert not path.parent.exists()
    with open_partition(path) as made:
        assert made.current_version() == 0
        assert list(made.read()) == []


def test_an_empty_directory_becomes_a_partition_and_one_of_other_files_does_not(path):
    path.mkdir(parents=True)
    (path.with_name("topic=other-part=0")).mkdir()
    (path.with_name("topic=other-part=0") / "holiday.jpg").write_bytes(b"dear")
    with pytest.raises(DamageError, match="_delta_log is missing"):
        open_partition(path, read_only=True)
    with pytest.raises(DamageError, match="_delta_log is missing"):
        open_partition(path.with_name("topic=other-part=0"))
    with open_partition(path) as made:
        assert made.append([b"a"]) == Committed(1, 0, 0)


def test_a_partition_that_cannot_be_opened_keeps_no_lock_even_while_its_error_is_kept(path):
    path.mkdir(parents=True)
    (path / "holiday.jpg").write_bytes(b"dear")
    another = path.with_name("topic=another-part=0")
    with pytest.raises(DamageError) as kept:
        open_partition(path)
    assert opens_elsewhere(another)
    (path.parent / "catalog.db").write_bytes(b"no catalog" * 1_000)
    with pytest.raises(DamageError, match=r"catalog\.db"):
        open_partition(another)
    with pytest.raises(DamageError, match=r"catalog\.db") as kept_too:
        open_partition(another)
    (path.parent / "catalog.db").unlink()
    assert opens_elsewhere(another)
    assert kept.value is not kept_too.value


# --- beside a broker ---------------------------------------------------------------------------------------------


def test_a_broker_that_runs_is_not_disturbed_and_what_it_publishes_can_be_read(tmp_path):
    with Broker(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        topic = client.create_topic("orders")
        directory = tmp_path / "topic=orders-part=0"
        with pytest.raises(DirectoryLockedError):
            open_partition(directory)
        with open_partition(directory, read_only=True) as reader:
            for version in range(1, 4):
                client.produce(topic, batch_of(b"%d" % version))
                wait_published(broker)
                assert reader.current_version() == version
                assert values(reader) == [b"%d" % number for number in range(1, version + 1)]


def test_what_is_appended_without_the_broker_is_served_by_it_and_the_other_way_round(tmp_path):
    directory = tmp_path / "topic=orders-part=0"
    with Broker(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        topic = client.create_topic("orders", segment_ms=2**62)  # its batches come from different years
        client.produce(topic, batch_of(b"through the broker"))

    with open_partition(directory) as table:
        assert values(table) == [b"through the broker"]
        first = table.append([b"without it"], txn_id="t", expected_version=1)
        assert first == Committed(2, 1, 1)
        epochs = [(entry.epoch, entry.start_offset) for entry in table.load_state().leader_epochs]
        assert len(epochs) == 2
        assert epochs[1][0] > epochs[0][0], "the next leader epoch"
        assert epochs[1][1] == 1

    with Broker(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        served = offsets_and_values(client.fetch(topic, 0).records)
        assert served == [(0, b"through the broker"), (1, b"without it")]
        client.produce(topic, batch_of(b"through the broker again"))
    assert [record.value for record in open_table(directory).read()][-1] == b"through the broker again"

    with open_partition(directory) as table:
        assert table.append([b"without it"], txn_id="t") == first, "the id outlives the broker's turn"
        assert table.load_state().leader_epoch > epochs[1][0]


def test_a_partition_that_the_catalog_does_not_know_is_refused_and_not_made(tmp_path):
    with Broker(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        client.create_topic("orders", partitions=2)

    for name in ("topic=unknown-part=0", "topic=orders-part=2"):
        with pytest.raises(NotFoundError, match=name):
            open_partition(tmp_path / name)
        assert not (tmp_path / name).exists()
    with open_partition(tmp_path / "topic=orders-part=1") as known:
        assert known.current_version() == 0


def test_the_configuration_of_the_topic_holds_without_the_broker_too(tmp_path):
    with Broker(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        client.create_topic("orders", segment_bytes=1_000, max_message_bytes=600)

    with open_partition(tmp_path / "topic=orders-part=0") as table:
        with pytest.raises(InvalidArgumentError, match=r"max\.message\.bytes is 600"):
            table.append([bytes(600)])
        for _ in range(4):
            assert isinstance(table.append([bytes(450)]), Committed)
        assert [segment.base for segment in table.load_state().segments] == [0, 1, 2, 3]


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
            with pytest.raises(VersionUnknownError):
                values(reader, as_of_version=2)
            writer.append([b"b", b"c"])
            assert (reader.current_version(), values(reader)) == (2, [b"a", b"b", b"c"])
            writer.delete_records_before(2)
            assert values(reader) == [b"c"]
            for number in range(30):  # over checkpoints
                writer.append([b"%d" % number])
                assert reader.current_version() == writer.current_version() == number + 4
            assert reader.load_state() == writer.load_state()
        written = files_below(path.parent)
    with open_partition(path, read_only=True) as reader:
        assert len(values(reader)) == 31
    assert files_below(path.parent) == written


def test_a_reader_reads_from_a_disk_that_takes_nothing():
    files = FailingFilesystem()
    with open_partition(IN_MEMORY, filesystem=files) as writer:
        writer.append([b"a"])
    files.fail("create", "write_at", "sync", "sync_data", "sync_directory", "link", "rename", "remove", times=None)
    with open_partition(IN_MEMORY, read_only=True, filesystem=files) as reader:
        assert values(reader) == [b"a"]


def test_a_read_that_has_begun_stays_as_of_its_version_whatever_happens_meanwhile(path):
    with open_partition(path) as table:
        table.append([b"a", b"b"])
        begun, again = table.read(), table.read(1)
        assert next(begun).value == b"a"
        table.append([b"c"])
        table.delete_records_before(2)
        assert values(table) == [b"c"]
        assert [record.value for record in begun] == [b"b"]
        assert [record.value for record in again] == [b"b"]


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
        with pytest.raises(OffsetOutOfRangeError, match="3") as gone:
            values(table, as_of_version=1)
        assert (gone.value.oldest, gone.value.oldest_version) == (1, 3)
        assert values(table, as_of_version=0) == [], "it had none"
        assert values(table, 1, as_of_version=2) == values(table) == values(table, 0) == [b"b"]
        assert first.next_offset == 1, "a state never changes"


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_both_isolations_read_the_same_where_there_are_no_transactions(path, isolation):
    with open_partition(path) as table:
        table.append([b"a"])
        assert values(table, isolation=isolation) == [b"a"]
        with pytest.raises(InvalidArgumentError, match="dirty"):
            values(table, isolation="dirty")


def test_records_below_an_offset_are_taken_away_for_good(path):
    with open_partition(path) as table:
        table.append([b"a", b"b"])
        table.append([b"c"])
        moved = table.delete_records_before(1)
        assert (moved.version, moved.log_start_offset) == (3, 1)
        assert table.delete_records_before(1) == table.delete_records_before(0) == moved, "nothing more to take"
        assert values(table) == [b"b", b"c"]
        for beyond in (4, -1, 2**63):
            with pytest.raises(InvalidArgumentError):
                table.delete_records_before(beyond)
        assert table.delete_records_before(3).log_start_offset == 3
        assert values(table) == []
        assert table.append([b"d"]) == Committed(5, 3, 3)
    with open_partition(path) as again:
        assert [(record.offset, record.value) for record in again.read()] == [(3, b"d")]


@pytest.mark.parametrize(
    "bounds",
    [
        {"from_offset": -1},
        {"to_offset": -1},
        {"as_of_version": -1},
        {"as_of_timestamp": -1},
        {"from_offset": 1.0},
        {"as_of_version": True},
        {"as_of_version": 0, "as_of_timestamp": 0},
    ],
    ids=repr,
)
def test_bounds_that_cannot_be_meant_are_refused_before_anything_is_read(path, bounds):
    with open_partition(path) as table, pytest.raises(InvalidArgumentError):
        table.read(**bounds)


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


@pytest.mark.parametrize(
    "records",
    [
        b"one value",
        "one text",
        {"a": "b"},
        NewRecord(b"one record"),
        [],
        [5],
        [b"good", 5],
        [("a", "b", "c")],
        [None],
        [("a", 5)],
        [NewRecord(b"", headers=(("name", 5),))],
        [NewRecord(b"", headers=((b"name", b""),))],
        [NewRecord(b"", timestamp_ms=-2)],
        [NewRecord(b"", timestamp_ms=2**63 - 1)],
        ["\ud800"],
        [bytes(2_000_000)],
    ],
    ids=lambda records: repr(records)[:40],
)
def test_what_is_no_list_of_records_is_refused(path, records):
    with open_partition(path) as table:
        with pytest.raises(InvalidArgumentError):
            table.append(records)
        with pytest.raises(InvalidArgumentError):
            table.append_transactional(records).commit()
        assert table.current_version() == 0
        assert table.append([b"good"]) == Committed(1, 0, 0)


def test_records_may_come_from_a_generator_and_its_error_appends_nothing(path):
    def numbers(count):
        for number in range(count):
            yield b"%d" % number
        if count > 3:
            raise LookupError("no more")

    with open_partition(path) as table:
        assert table.append(numbers(3)) == Committed(1, 0, 2)
        with pytest.raises(LookupError):
            table.append(numbers(4))
        assert values(table) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("compression", Compression)
def test_compression_changes_nothing_that_is_read_or_remembered(path, compression):
    records = [(b"key", b"value" * 100)] * 5
    with open_partition(path) as table:
        first = table.append(records, compression=compression, txn_id="t")
        assert table.append(records, txn_id="t") == first
        assert [(record.key, record.value) for record in table.read()] == records


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
        {"txn_id": "x" * 257},
        {"txn_id": "\ud800"},
        {"expected_version": 2**63},
        {"expected_version": True},
        {"origin_id": 9, "origin_seq": 0},
    ],
    ids=lambda terms: repr(terms)[:40],
)
def test_terms_that_cannot_be_meant_are_refused(path, terms):
    with open_partition(path) as table:
        with pytest.raises(InvalidArgumentError):
            table.append([b"a"], **terms)
        assert table.current_version() == 0


def test_ids_and_sequences_are_remembered_whatever_timestamps_a_retry_would_get(path, monkeypatch):
    clock = ManualClock()
    monkeypatch.setattr(directory_owner, "SystemClock", lambda: clock)
    with open_partition(path) as table:
        first = table.append([b"a"], txn_id="t", origin_id=9, origin_seq=4)
        clock.time_ms += 60_000
        assert table.append([b"a"], txn_id="t") == first
        assert table.append([b"a"], origin_id=9, origin_seq=4) == first
        assert isinstance(table.append([NewRecord(b"a", timestamp_ms=clock.time_ms)], txn_id="t"), PayloadDiffers)
        assert next(table.read()).timestamp_ms == clock.time_ms - 60_000


@pytest.mark.parametrize("txn_id", ["\0", '\u2028"\\\n', "😀", " ", "x" * 256, "_delta_log/../.."], ids=repr)
def test_any_text_is_an_id_and_is_the_same_after_reopening(path, txn_id):
    for _ in range(2):
        with open_partition(path) as table:
            assert table.append([b"a"], txn_id=txn_id) == Committed(1, 0, 0)


def test_ids_and_sequences_are_judged_before_expectations(path):
    with open_partition(path) as table:
        first = table.append([b"a"], txn_id="t", origin_id=9, origin_seq=4)
        assert table.append([b"a"], txn_id="t") == first
        assert isinstance(table.append([b"b"], txn_id="t"), PayloadDiffers)
        assert table.append([b"a"], origin_id=9, origin_seq=4) == first
        table.append([b"c"], origin_id=9)
        assert table.append([b"a"], origin_id=9, origin_seq=4) == Superseded(9, 4, 5)
        assert table.append([b"d"], origin_id=9, expected_origin_seq=4) == Conflicted(4, 5)


def test_a_transaction_is_seen_as_a_whole_once_it_is_committed(path):
    with open_partition(path) as table, open_partition(path) as other:
        transaction = table.append_transactional([b"a"])
        transaction.append([("key", b"b")])
        assert (table.current_version(), values(other)) == (0, [])
        other.append([b"first"])
        assert transaction.commit(expected_version=0) == Conflicted(0, 1)
        assert transaction.commit(expected_version=1, txn_id="t") == Committed(2, 1, 2)
        assert values(other) == [b"first", b"a", b"b"]
        for use in (transaction.commit, transaction.abort, lambda: transaction.append([b"c"])):
            with pytest.raises(TransactionEndedError, match="committed"):
                use()
        again = table.append_transactional([b"a", ("key", b"b")])
        assert again.commit(txn_id="t") == Committed(2, 1, 2), "a retry"


def test_threads_that_share_a_handle_each_get_a_version_of_their_own(path):
    outcomes = []

    def work(name):
        for number in range(10):
            outcomes.append(table.append([b"%d-%d" % (name, number)] * 2))
            assert len(values(table)) >= 2

    with open_partition(path) as table:
        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = values(table)
    assert sorted(outcomes, key=lambda outcome: outcome.version) == [
        Committed(n + 1, 2 * n, 2 * n + 1) for n in range(40)
    ]
    assert all(found[n] == found[n + 1] for n in range(0, 80, 2))


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
        assert isinstance(table.delete_records_before(1), Unavailable)
        assert isinstance(table.append_transactional([b"c"]).commit(), Unavailable)
        assert table.load_state().log_start_offset == 0
        files.capacity_bytes = None
        assert table.append([b"b"], txn_id="t", expected_version=1) == Committed(2, 1, 1)
        assert table.delete_records_before(1).log_start_offset == 1
    with open_partition(IN_MEMORY, filesystem=FailingFilesystem(files.after_power_cut())) as again:
        assert values(again) == [b"b"]


def test_a_disk_too_full_for_a_partition_is_an_error_and_leaves_room_for_a_second_try():
    files = FailingFilesystem(capacity_bytes=0)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        open_partition(IN_MEMORY, filesystem=files)
    files.capacity_bytes = None
    with open_partition(IN_MEMORY, filesystem=files) as table:
        assert table.append([b"a"]) == Committed(1, 0, 0)


@pytest.mark.parametrize("operation", ["sync_data", "sync", "sync_directory"])
def test_after_a_failed_sync_every_handle_refuses_with_the_first_reason(operation):
    files = FailingFilesystem()
    first, second = (open_partition(IN_MEMORY, filesystem=files) for _ in range(2))
    first.append([b"acknowledged"])
    files.fail(operation, times=1)
    with pytest.raises(PartitionStoppedError, match="sync failed"):
        first.append([b"b"])
    for use in (
        lambda: second.append([b"c"]),
        second.current_version,
        second.load_state,
        second.read,
        second.maybe_checkpoint,
        lambda: second.delete_records_before(0),
        lambda: second.append_transactional([b"c"]).commit(),
        lambda: first.append([b"d"]),
        lambda: open_partition(IN_MEMORY, filesystem=files),
        lambda: open_partition("/data/topic=another-part=0", filesystem=files),
    ):
        with pytest.raises(PartitionStoppedError, match="sync failed"):
            use()
    first.close()
    second.close()

    with open_partition(IN_MEMORY, filesystem=FailingFilesystem(files.after_power_cut())) as again:
        assert values(again)[:1] == [b"acknowledged"]


@pytest.mark.parametrize(
    "point", ["storage.round.after_segment_write", "storage.publish.before_link", "storage.publish.after_link"]
)
def test_an_append_that_is_interrupted_stops_the_partition_and_reopening_it_tells(path, point):
    def interrupt():
        raise Interrupted

    with open_partition(path) as table, open_partition(path.with_name("topic=another-part=0")) as another:
        fault_points.arm(point, interrupt)
        with pytest.raises(Interrupted):
            table.append([b"a"], txn_id="t")
        with pytest.raises(PartitionStoppedError, match="broken off"):
            table.append([b"a"], txn_id="t")
        assert another.append([b"b"]) == Committed(1, 0, 0), "no sync failed, so the others go on"
    with open_partition(path) as again:
        assert again.append([b"a"], txn_id="t") == Committed(1, 0, 0)
        assert values(again) == [b"a"]


@pytest.mark.parametrize(
    "operation",
    [
        "sync_data",
        "sync",
        pytest.param(
            "sync_directory",
            marks=pytest.mark.xfail(
                strict=True, reason="a name whose sync failed is taken over by recovery, and never written again"
            ),
        ),
    ],
)
def test_after_a_failed_sync_reopening_in_place_finds_what_is_good_and_goes_on_for_good(operation):
    files = FailingFilesystem()
    with open_partition(IN_MEMORY, filesystem=files) as table:
        table.append([b"acknowledged"])
        files.fail(operation, times=1)
        with pytest.raises(PartitionStoppedError, match="sync failed"):
            table.append([b"b"])
    with open_partition(IN_MEMORY, filesystem=files) as again:
        assert isinstance(again.append([b"c"]), Committed)
        found = values(again)
    assert found in ([b"acknowledged", b"c"], [b"acknowledged", b"b", b"c"])
    with open_partition(IN_MEMORY, filesystem=FailingFilesystem(files.after_power_cut())) as survivor:
        assert values(survivor) == found


@pytest.mark.parametrize(
    "point",
    [
        "storage.round.after_segment_write",
        "storage.publish.before_link",
        "storage.publish.after_link",
    ],
)
def test_what_a_retry_is_told_after_a_kill_outlives_a_power_cut(point):
    def die():
        raise Interrupted

    files = FailingFilesystem()
    with open_partition(IN_MEMORY, filesystem=files) as table:
        fault_points.arm(point, die)
        with pytest.raises(Interrupted):
            table.append([b"a"], txn_id="t")
    with open_partition(IN_MEMORY, filesystem=files) as again:
        assert again.append([b"a"], txn_id="t") == Committed(1, 0, 0)
    with open_partition(IN_MEMORY, filesystem=FailingFilesystem(files.after_power_cut())) as survivor:
        assert values(survivor) == [b"a"]
