"""What an audit of one partition finds, kind by kind; docs/operations.md explains each."""

import struct

import pytest
from msgspec.structs import replace

from exactlog.core.deltalog.checkpoint_format import OpenTransactionEntry, decode_checkpoint, encode_checkpoint
from exactlog.core.deltalog.version_cleanup import PackPlan
from exactlog.core.model.errors import UnavailableError
from exactlog.core.model.limits import FINDINGS_PER_TABLE_MAX
from exactlog.core.record.batch_format import CRC_POSITION, checksum
from exactlog.storage.audit_findings import MEANINGS, Kind, Severity
from exactlog.storage.filesystem import MemoryFilesystem
from exactlog.storage.packing import pack
from exactlog.storage.settings import FlushMode
from exactlog.storage.table_audit import audit_table
from exactlog.storage.table_repair import StepKind
from exactlog.testing import FailingFilesystem
from tests.architecture.tree import PROJECT
from tests.support.audits import (
    BATCHES,
    CHECKPOINTS,
    CONFIG,
    SEGMENTS,
    audit,
    change,
    checkpoint_name,
    commit_name,
    content_of,
    damage,
    flip,
    found,
    pack_name,
    path_of,
    put,
    put_version,
    remove,
    respell_commit,
    written,
)
from tests.support.counting_filesystem import CountingFilesystem
from tests.support.partitions import (
    DELTA_LOG,
    DIRECTORY,
    FIRST_MS,
    DataDirectory,
    batch_of,
    batches_of,
    copy_of,
    sequenced,
)


@pytest.fixture
def files():
    return written()


@pytest.fixture
def unsynced_files():
    return written(FlushMode.NONE)


def packed(filesystem, last=9):
    pack(filesystem, DIRECTORY, PackPlan(first_version=0, last_version=last))
    return filesystem


def finding(filesystem, kind, **options):
    """The only finding of a kind."""
    (only,) = [each for each in audit(filesystem, **options).findings if each.kind == kind]
    return only


def respell_checkpoint(filesystem, version, respell):
    name = checkpoint_name(version)
    checkpoint = decode_checkpoint(content_of(filesystem, name), path_hint=name)
    put(filesystem, name, encode_checkpoint(respell(checkpoint)))


# --- what is well ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flush_mode", FlushMode)
def test_what_was_written_and_left_alone_is_found_well_and_counted(flush_mode):
    report = audit(written(flush_mode), is_deep=True)

    assert report.findings == ()
    assert (report.topic, report.partition, report.flush_mode) == ("orders", 0, flush_mode)
    assert (report.version, report.oldest_version) == (BATCHES, 0)
    assert (report.log_start_offset, report.end_offset) == (0, BATCHES)
    assert (report.batches, report.records) == (BATCHES, BATCHES)
    assert report.bytes == sum(len(content_of(written(flush_mode), name)) for name in SEGMENTS)


def test_an_empty_partition_is_well():
    with DataDirectory() as disk:
        disk.create()
        report = audit(disk.filesystem)

    assert (report.version, report.end_offset, report.batches, report.findings) == (0, 0, 0, ())


def test_appends_on_terms_and_removals_are_well():
    with DataDirectory(config=CONFIG) as disk:
        partition = disk.make()
        for number in range(40):
            disk.commit_on_terms(partition, batch_of(b"%06d" % number), txn_id=f"t{number}", origin_id=77)
        disk.move_log_start(partition, 30)
        report = audit(disk.filesystem)

    assert report.log_start_offset == 30
    assert {str(found.kind) for found in report.findings} == {"segment-removed"}


def test_a_partition_whose_removed_segments_are_gone_is_well():
    with DataDirectory(config=CONFIG) as disk:
        partition = disk.make()
        disk.commit(partition, *(sequenced(7, number, b"%06d" % number) for number in range(30)))
        disk.move_log_start(partition, 25)
        disk.commit(partition, *(sequenced(7, number, b"%06d" % number) for number in range(30, 51)))
        files = disk.filesystem
    for name in (SEGMENTS[0], SEGMENTS[1]):
        for end in (".log", ".index", ".timeindex"):
            if files.exists(path_of(name.replace(".log", end))):
                remove(files, name.replace(".log", end))

    assert audit(files, is_deep=True).findings == ()
    remove(files, *[checkpoint_name(version) for version in (10, 20)])
    assert audit(files).findings == ()


def test_a_partition_reopened_under_later_leader_epochs_is_well():
    with DataDirectory(config=CONFIG) as disk:
        partition = disk.make()
        for leader_epoch in range(1, 5):
            disk.commit(partition, *batches_of(5))
            disk.restart(leader_epoch=leader_epoch)
            partition = disk.open()

        assert audit(disk.filesystem).findings == ()


def test_expired_producers_may_be_missing_in_a_checkpoint():
    with DataDirectory(config=CONFIG) as disk:
        partition = disk.make()
        disk.commit(partition, *(sequenced(1, number, b"a") for number in range(7)), sequenced(2, 0, b"b"))
        partition.expire_producers(now_ms=FIRST_MS + 10_000, expiration_ms=5_000)
        disk.commit(partition, *(sequenced(1, number, b"c") for number in range(7, 9)), *batches_of(5))

        assert audit(disk.filesystem).findings == ()


def test_packed_versions_are_verified_like_others(files):
    packed(files, last=19)

    report = audit(files)

    assert (report.findings, report.oldest_version, report.version) == ((), 0, BATCHES)


def test_what_vacuum_left_is_well(files):
    remove(files, *map(commit_name, range(20)), checkpoint_name(10))

    report = audit(files)

    assert (report.findings, report.oldest_version, report.batches) == ((), 20, BATCHES)


def test_what_a_broken_off_vacuum_left_is_well(files):
    remove(files, *map(commit_name, range(15)), checkpoint_name(10))

    report = audit(files)

    assert (report.findings, report.oldest_version) == ((), 15)


# --- the delta log ---------------------------------------------------------------------------------------------


def test_a_missing_delta_log_is_damage(files):
    for name in files.list_names(DELTA_LOG):
        files.remove(f"{DELTA_LOG}/{name}")
    assert damage(files) == [("delta-log-missing", "_delta_log")]

    files.remove_directory(DELTA_LOG)
    report = audit(files)
    assert [str(found.kind) for found in report.findings] == ["delta-log-missing"]
    assert (report.topic, report.version, report.end_offset) == ("orders", None, None)


@pytest.mark.parametrize("content", [b"", b"{", b"null\n", b"\xff\xff\n"])
def test_a_damaged_delta_commit_is_damage_and_the_rest_is_verified_all_the_same(files, content):
    put(files, commit_name(7), content)
    flip(files, SEGMENTS[2], 100)

    assert damage(files) == [("commit-damaged", commit_name(7)), ("batch-damaged", SEGMENTS[2])]
    assert finding(files, Kind.COMMIT_DAMAGED).version == 7


def test_a_damaged_newest_commit_leaves_the_version_before_it(files):
    flip(files, commit_name(BATCHES), 30)

    report = audit(files)

    assert (report.version, report.oldest_version, report.end_offset) == (BATCHES - 1, None, BATCHES - 1)


def test_a_damaged_line_of_a_pack_is_damage_of_its_version(files):
    packed(files)
    lines = content_of(files, pack_name(0, 9)).splitlines(keepends=True)
    position = sum(map(len, lines[:4]))
    flip(files, pack_name(0, 9), position + 20)

    found = finding(files, Kind.COMMIT_DAMAGED)
    assert (found.file, found.version, found.position) == (pack_name(0, 9), 4, position)
    assert len(damage(files)) == 1


def test_a_pack_that_lost_the_end_of_a_line_loses_two_versions(files):
    packed(files)
    lines = content_of(files, pack_name(0, 9)).splitlines(keepends=True)
    flip(files, pack_name(0, 9), sum(map(len, lines[:5])) - 1)

    assert damage(files) == [("commit-damaged", pack_name(0, 9)), ("versions-missing", "_delta_log")]
    assert finding(files, Kind.VERSIONS_MISSING).version == 5


def test_a_pack_cut_short_says_from_where_on(files):
    packed(files)
    lines = content_of(files, pack_name(0, 9)).splitlines(keepends=True)
    put(files, pack_name(0, 9), b"".join(lines[:6]))

    assert "ends before version 6" in finding(files, Kind.COMMIT_DAMAGED).message
    assert "versions 7 to 9" in finding(files, Kind.VERSIONS_MISSING).message


def test_a_pack_with_lines_too_many_is_damage(files):
    packed(files)
    put(files, pack_name(0, 9), content_of(files, pack_name(0, 9)) + b"{}\n")

    assert damage(files) == [("copy-damaged", pack_name(0, 9))]


def test_missing_versions_are_named(files):
    remove(files, *map(commit_name, (5, 6, 8)))

    missing = [each for each in audit(files).findings if each.kind == Kind.VERSIONS_MISSING]

    assert [(each.version, each.message.split(",")[0]) for each in missing] == [
        (5, "versions 5 to 6 are missing"),
        (8, "versions 8 to 8 are missing"),
    ]


def test_a_commit_of_another_history_breaks_the_chain(files):
    respell_commit(files, 15, txn_id="broker-9:0:0")

    assert damage(files) == [("chain-broken", commit_name(16))]


def test_a_broken_chain_is_seen_where_the_table_is_not_known(files):
    remove(files, *map(commit_name, range(3)))
    respell_commit(files, 5, txn_id="broker-9:0:0")

    assert damage(files) == [("chain-broken", commit_name(6))]


def test_without_version_0_and_checkpoints_the_table_is_not_known(files):
    remove(files, commit_name(0), *map(checkpoint_name, CHECKPOINTS))

    assert damage(files) == [("table-unknown", "_delta_log")]
    assert audit(files).version is None


def test_a_second_document_of_a_version_that_says_something_else_is_damage(files):
    copy = copy_of(files)
    packed(files)
    put(files, commit_name(4), content_of(copy, commit_name(4)))
    respell_commit(files, 4, txn_id="broker-9:0:0")

    assert ("commits-differ", commit_name(4)) in damage(files)


def test_a_packing_that_was_broken_off_is_a_note(files):
    copy = copy_of(files)
    packed(files)
    for version in range(3, 10):
        put(files, commit_name(version), content_of(copy, commit_name(version)))

    assert found(files) == [("packing-unfinished", "_delta_log")]
    assert "3 to 9" in finding(files, Kind.PACKING_UNFINISHED).message


@pytest.mark.parametrize("is_pack_damaged", [True, False])
def test_one_damaged_copy_of_two_is_harmless(files, is_pack_damaged):
    copy = copy_of(files)
    packed(files)
    for version in range(10):
        put(files, commit_name(version), content_of(copy, commit_name(version)))
    name = pack_name(0, 9) if is_pack_damaged else commit_name(6)
    content = content_of(files, name)
    flip(files, name, content.index(b'"version":6,' if is_pack_damaged else b'"txn_id"') + 30)

    assert damage(files) == [("copy-damaged", name)]
    assert finding(files, Kind.COPY_DAMAGED).severity is Severity.HARMLESS
    assert audit(files).version == BATCHES


# --- checkpoints -----------------------------------------------------------------------------------------------


def test_a_damaged_checkpoint_is_harmless(files):
    put(files, checkpoint_name(20), content_of(files, checkpoint_name(20))[:-10])

    assert damage(files) == [("checkpoint-damaged", checkpoint_name(20))]
    assert finding(files, Kind.CHECKPOINT_DAMAGED).severity is Severity.HARMLESS
    assert audit(files).version == BATCHES


def change_origin(checkpoint):
    return replace(checkpoint, origins=(replace(checkpoint.origins[0], last_seq=99),))


def change_epochs(checkpoint):
    return replace(checkpoint, leader_epochs=(replace(checkpoint.leader_epochs[0], epoch=3),))


def change_timestamp(checkpoint):
    return replace(checkpoint, segments=(replace(checkpoint.segments[0], max_timestamp=5), *checkpoint.segments[1:]))


def change_producer(checkpoint):
    return replace(checkpoint, producers=(replace(checkpoint.producers[0], producer_epoch=4), checkpoint.producers[1]))


def add_producer(checkpoint):
    return replace(checkpoint, producers=(*checkpoint.producers, replace(checkpoint.producers[0], producer_id=88)))


def add_transaction(checkpoint):
    transaction = OpenTransactionEntry(producer_id=0, producer_epoch=0, first_offset=3)
    return replace(checkpoint, open_transactions=(transaction,))


@pytest.mark.parametrize(
    "respell",
    [change_origin, change_epochs, change_timestamp, change_producer, add_producer, add_transaction],
)
def test_a_checkpoint_that_is_not_what_replay_gives_is_damage(files, respell):
    respell_checkpoint(files, 20, respell)

    assert damage(files) == [("checkpoint-differs", checkpoint_name(20))]
    assert finding(files, Kind.CHECKPOINT_DIFFERS).severity is Severity.DAMAGE


def test_a_checkpoint_may_know_fewer_batches_of_a_producer_but_no_others(files):
    def forget(checkpoint):
        first, *others = checkpoint.producers
        return replace(checkpoint, producers=(replace(first, batches=first.batches[1:]), *others))

    respell_checkpoint(files, 20, forget)
    assert damage(files) == []

    respell_checkpoint(
        files,
        20,
        lambda checkpoint: replace(
            checkpoint,
            producers=(
                replace(checkpoint.producers[0], batches=checkpoint.producers[0].batches[:-1]),
                checkpoint.producers[1],
            ),
        ),
    )
    assert damage(files) == [("checkpoint-differs", checkpoint_name(20))]


def test_a_checkpoint_newer_than_the_last_commit_is_a_note(files):
    remove(files, *map(commit_name, range(28, BATCHES + 1)))

    assert ("checkpoint-ahead", checkpoint_name(30)) in found(files)
    assert damage(files) == []
    assert audit(files).version == 30


def test_when_no_checkpoint_knows_the_removed_producers_that_is_damage():
    with DataDirectory(config=CONFIG) as disk:
        partition = disk.make()
        disk.commit(partition, *(sequenced(7, number, b"%06d" % number) for number in range(30)))
        disk.move_log_start(partition, 25)
        files = disk.filesystem
    for version in range(10, 40, 10):
        if files.exists(path_of(checkpoint_name(version))):
            put(files, checkpoint_name(version), b"")
    remove(files, SEGMENTS[0])

    kinds = [kind for kind, _ in damage(files)]
    assert kinds.count("start-refused") == 1
    assert set(kinds) == {"start-refused", "checkpoint-damaged"}


# --- the segments ----------------------------------------------------------------------------------------------


def test_a_missing_segment_is_damage_told_once(files):
    remove(files, SEGMENTS[1])

    assert damage(files) == [("segment-missing", SEGMENTS[1])]
    assert finding(files, Kind.SEGMENT_MISSING).version == 13


def test_missing_bytes_are_damage_told_once(files):
    put(files, SEGMENTS[1], content_of(files, SEGMENTS[1])[:300])

    assert damage(files) == [("bytes-missing", SEGMENTS[1])]
    assert finding(files, Kind.BYTES_MISSING).position == 300


@pytest.mark.parametrize("offset", [8, 16, 17, 21, 40, 57, 65])
def test_a_changed_byte_of_a_batch_is_damage_at_its_place(files, offset):
    size = len(content_of(files, SEGMENTS[1])) // 12
    flip(files, SEGMENTS[1], 2 * size + offset)

    assert damage(files) == [("batch-damaged", SEGMENTS[1])]
    found = finding(files, Kind.BATCH_DAMAGED)
    assert (found.position, found.version) == (2 * size, 15)


def test_a_changed_offset_is_damage(files):
    size = len(content_of(files, SEGMENTS[1])) // 12
    flip(files, SEGMENTS[1], 2 * size + 7)

    assert damage(files) == [("offsets-broken", SEGMENTS[1])]


def test_a_later_leader_epoch_than_that_of_its_version_is_damage(files):
    change(files, SEGMENTS[0], 12, struct.pack(">i", 5))

    assert damage(files) == [("leader-epoch-wrong", SEGMENTS[0])]


def test_changed_bytes_that_no_batch_notices_are_damage(files):
    change(files, SEGMENTS[0], 12, struct.pack(">i", -1))

    assert damage(files) == [("bytes-changed", SEGMENTS[0])]
    assert finding(files, Kind.BYTES_CHANGED).version == 1


def test_bytes_whose_versions_have_expired_are_verified_by_their_batches(files):
    remove(files, *map(commit_name, range(21)), checkpoint_name(10))
    flip(files, SEGMENTS[0], 70)
    change(files, SEGMENTS[1], 12, struct.pack(">i", 5))

    assert damage(files) == [("batch-damaged", SEGMENTS[0]), ("leader-epoch-wrong", SEGMENTS[1])]
    assert finding(files, Kind.BATCH_DAMAGED).version is None


def test_records_that_cannot_be_decoded_are_found_when_asked_for(files):
    batch = bytearray(batch_of(b"value"))
    batch[61] ^= 0x40
    struct.pack_into(">I", batch, CRC_POSITION, checksum(batch, 0, len(batch)))
    put_version(files, batch, segment=SEGMENTS[2])

    assert found(files) == []
    assert damage(files, is_deep=True) == [("records-damaged", SEGMENTS[2])]


def test_a_file_that_cannot_be_read_is_damage(files):
    failing = FailingFilesystem(files)
    failing.fail("read_at", path_pattern=f"*{SEGMENTS[1]}", times=None)
    failing.fail("read_file", path_pattern=f"*{commit_name(33)}", times=None)

    assert [kind for kind, _ in damage(failing)] == ["commit-damaged", "file-unreadable"]


def test_bytes_behind_the_last_version_are_a_note(files):
    put(files, SEGMENTS[2], content_of(files, SEGMENTS[2]) + b"torn")

    assert found(files) == [("bytes-behind", SEGMENTS[2])]
    assert "4 bytes" in finding(files, Kind.BYTES_BEHIND).message


def test_segments_and_indexes_of_no_version_are_notes(files):
    names = [f"{40:020d}.log", f"{40:020d}.index", f"{50:020d}.timeindex"]
    for name in names:
        put(files, name, b"something")

    assert found(files) == [("segment-unnamed", names[0]), ("segment-unnamed", names[2])]


def test_temporary_and_foreign_files_are_notes(files):
    for name in (".x.tmp", "notes.txt", "_delta_log/.y.tmp", "_delta_log/5.json"):
        put(files, name, b"something")

    assert found(files) == [
        ("temporary-file", "_delta_log/.y.tmp"),
        ("foreign-file", "_delta_log/5.json"),
        ("temporary-file", ".x.tmp"),
        ("foreign-file", "notes.txt"),
    ]


# --- what was not synced ---------------------------------------------------------------------------------------


def test_versions_that_a_power_cut_took_without_promise_are_notes(unsynced_files):
    put(unsynced_files, commit_name(32), content_of(unsynced_files, commit_name(32))[:-5])
    put(unsynced_files, commit_name(25), b"")
    put(unsynced_files, commit_name(22), bytes(100))
    remove(unsynced_files, commit_name(15))

    assert damage(unsynced_files) == []
    assert [name for kind, name in found(unsynced_files) if kind == "versions-lost"] == [
        "_delta_log",
        commit_name(22),
        commit_name(25),
        commit_name(32),
    ]


def test_bytes_that_a_power_cut_took_without_promise_are_notes(unsynced_files):
    put(unsynced_files, SEGMENTS[2], content_of(unsynced_files, SEGMENTS[2])[:-5])
    assert found(unsynced_files) == [("bytes-lost", SEGMENTS[2])]

    remove(unsynced_files, SEGMENTS[2])
    assert found(unsynced_files) == [("bytes-lost", SEGMENTS[2])]


def test_what_was_changed_is_damage_in_every_flush_mode(unsynced_files):
    flip(unsynced_files, commit_name(32), 40)
    flip(unsynced_files, SEGMENTS[2], 70)

    assert damage(unsynced_files) == [("commit-damaged", commit_name(32)), ("batch-damaged", SEGMENTS[2])]


# --- beside a broker, on large logs, on many findings ----------------------------------------------------------


class Interfering(CountingFilesystem):
    """Does something once, at the first operation of a kind on a file."""

    def __init__(self, filesystem, name, path, action):
        super().__init__(filesystem)
        actions = [action]

        def before(operation):
            if actions and (operation.name, operation.path) == (name, path):
                actions.pop()()

        self.before = before


def test_what_a_packing_takes_away_meanwhile_is_found_in_the_pack(files):
    interfering = Interfering(files, "read_file", path_of(commit_name(5)), lambda: packed(files))

    assert audit(interfering).findings == ()


def test_what_is_removed_meanwhile_is_not_missed():
    with DataDirectory(config=CONFIG) as disk:
        partition = disk.make()
        disk.commit(partition, *(sequenced(7, number, b"%06d" % number) for number in range(30)))
        files = disk.filesystem

        def remove_records():
            disk.move_log_start(partition, 25)
            disk.commit(partition, *(sequenced(7, number, b"x") for number in range(30, 50)))
            remove(files, SEGMENTS[0], SEGMENTS[1])

        interfering = Interfering(files, "open", path_of(SEGMENTS[0]), remove_records)

        report = audit(interfering)

    assert [str(each.kind) for each in report.findings if each.is_damage] == []
    assert report.log_start_offset == 25


def test_a_directory_that_never_stands_still_is_given_up(files):
    class Vanishing(CountingFilesystem):
        def read_file(self, path):
            if path.endswith(commit_name(5)):
                raise FileNotFoundError(path)
            return super().read_file(path)

    with pytest.raises(UnavailableError, match="keeps changing"):
        audit(Vanishing(files))


def test_an_audit_changes_nothing(files):
    flip(files, SEGMENTS[1], 70)
    put(files, SEGMENTS[2], content_of(files, SEGMENTS[2]) + b"torn")
    before = {path: file.read_at(file.size(), 0) for path, file in files._files.items()}
    counting = CountingFilesystem(files)

    audit(counting, is_deep=True)

    assert {path: file.read_at(file.size(), 0) for path, file in files._files.items()} == before
    assert {operation.name for operation in counting.operations} <= {
        "exists",
        "file_size",
        "list_names",
        "open",
        "read_at",
        "read_file",
        "size",
    }


def operations_of_an_audit(versions):
    with DataDirectory(config=CONFIG) as disk:
        partition = disk.make()
        disk.commit(partition, *(sequenced(7, number, b"%06d" % number) for number in range(versions)))
        counting = CountingFilesystem(disk.filesystem)
        assert audit(counting).findings == ()
    return counting.operations


def test_an_audit_of_twice_as_much_takes_twice_as_many_operations():
    operations, twice = operations_of_an_audit(200), operations_of_an_audit(400)

    assert len(twice) < 2.1 * len(operations)
    assert sum(each.size for each in twice) < 2.6 * sum(each.size for each in operations)


def test_a_large_batch_is_read_in_pieces_and_is_well():
    with DataDirectory() as disk:
        partition = disk.make()
        disk.commit(partition, *batches_of(3), batch_of(bytes(3 << 20)), *batches_of(2))
        counting = CountingFilesystem(disk.filesystem)

        assert audit(counting).findings == ()
    assert max(operation.size for operation in counting.operations) <= 1 << 20
    flip(disk.filesystem, SEGMENTS[0], 2 << 20)
    assert damage(disk.filesystem) == [("batch-damaged", SEGMENTS[0])]


def test_more_findings_than_anybody_reads_are_counted(files):
    for number in range(FINDINGS_PER_TABLE_MAX + 5):
        put(files, f"foreign-{number}", b"")
    flip(files, SEGMENTS[2], 70)

    findings = audit(files).findings

    assert str(findings[0].kind) == "batch-damaged"
    assert len(findings) == FINDINGS_PER_TABLE_MAX + 2
    assert findings[-1].message.startswith("5 findings more")


def test_another_directory_than_a_partition_has_no_delta_log():
    filesystem = MemoryFilesystem()
    filesystem.make_directories("/empty")

    report = audit_table(filesystem, "/empty")

    assert (report.topic, [str(each.kind) for each in report.findings]) == (None, ["delta-log-missing"])


# --- the words -------------------------------------------------------------------------------------------------


def test_every_kind_of_finding_and_of_step_has_its_row_in_the_documentation():
    rows = (PROJECT / "docs" / "operations.md").read_text().splitlines()

    assert list(MEANINGS) == list(Kind)
    for kind, meaning in MEANINGS.items():
        assert sum(row.startswith(f"| `{kind}` | {meaning.severity} | ") for row in rows) == 1, kind
    for step in StepKind:
        assert sum(row.startswith(f"| `{step}` | ") for row in rows) == 1, step


def test_a_finding_says_what_why_and_what_next(files):
    flip(files, SEGMENTS[0], 70)

    found = finding(files, Kind.BATCH_DAMAGED)

    assert found.message.startswith("the batch at offset 0 has CRC ")
    assert found.message.endswith("; whoever reads these records gets an error")
    assert found.next_step == "restore the segment from a copy"
