"""What a start puts back from the commit journal, and what it leaves as it is."""

from contextlib import suppress
from random import Random
from uuid import UUID

import pytest

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.deltalog.journal_format import HEADER_BYTES, print_journal_name
from exactlog.core.model.errors import DamageError
from exactlog.core.model.ids import TopicPartition
from exactlog.storage import journal_engine
from exactlog.storage.fault_points import JOURNAL_AFTER_WRITE
from exactlog.storage.journal_redo import redo_journal
from exactlog.storage.round import StorageRefused, Stored, SyncFailed
from exactlog.storage.settings import FlushMode
from exactlog.storage.vacuum import vacuum
from exactlog.storage.whole_files import SyncFailedError
from exactlog.testing.failing_filesystem import FailingFilesystem
from exactlog.testing.ordered_failures import Crashed
from tests.support.file_trees import files_below
from tests.support.partitions import (
    DELTA_LOG,
    DIRECTORY,
    JOURNAL,
    ORDERS,
    ROOT,
    DataDirectory,
    batch_of,
    batches_of,
    copy_of,
    replace_file,
    sequenced,
    state_of,
    values_of,
)

SEGMENT = f"{DIRECTORY}/{0:020d}.log"
CONFIG = TopicConfig(file_delete_delay_ms=0)
SHORT_SEGMENTS = TopicConfig(segment_bytes=420, file_delete_delay_ms=0)
SETTINGS = {"is_journaled": True, "checkpoint_interval": 4, "versions_keep": 2, "pack_versions": 3}
OTHER = TopicPartition("another", 0)
OTHER_DIRECTORY = f"{ROOT}/topic=another-part=0"


def commit_path(version):
    return f"{DELTA_LOG}/{version:020d}.json"


def journal_path(number):
    return f"{JOURNAL}/{print_journal_name(number)}"


def journaled(filesystem=None, *, config=CONFIG, **settings):
    return DataDirectory(filesystem, config=config, **(SETTINGS | settings))


def published(disk, partition, *batches):
    """Each batch in a round of its own, and its version in the next."""
    for batch in batches:
        disk.commit(partition, batch)
        disk.publish(partition)


def written(filesystem=None, *, versions=3, unpublished=2, config=CONFIG):
    """A partition with so many versions, and so many rounds behind them that have none; its broker was killed."""
    disk = journaled(filesystem, config=config, checkpoint_interval=1_000)
    partition = disk.make()
    published(disk, partition, *batches_of(versions))
    disk.commit(partition, *batches_of(unpublished))
    disk.close()
    return disk.filesystem


def redone(filesystem):
    """What is there when the journal has been put back."""
    content = copy_of(filesystem)
    redo_journal(content, ROOT)
    return files_below(content)


def table_files(files):
    """Segments and documents that have their names."""
    endings = (".log", ".json")
    return {path: content for path, content in files.items() if path.endswith(endings) and "/." not in path}


def opened_values(filesystem):
    """What a start finds in the partition."""
    with journaled(copy_of(filesystem)) as disk:
        return values_of(disk.open())


def values(count):
    return [b"%020d" % number for number in range(count)]


# --- done twice --------------------------------------------------------------------------------------------------


def test_without_a_journal_there_is_nothing_to_do():
    with DataDirectory(is_journaled=False) as disk:
        before = files_below(disk.filesystem)
        found = redo_journal(disk.filesystem, ROOT)

    assert (found.tails, found.files, found.next_number, found.next_sequence) == ({}, [], 1, 1)
    assert files_below(disk.filesystem) == before


def test_where_nothing_was_lost_nothing_changes():
    filesystem = written()

    assert redone(filesystem) == files_below(filesystem)


def test_the_next_file_and_the_next_round_follow_those_that_are_there():
    filesystem = written(versions=3, unpublished=2)

    found = redo_journal(filesystem, ROOT)

    assert (found.files, found.next_number, found.next_sequence) == ([1], 2, 9)
    (tail,) = found.tails.values()
    assert tail.ends == {f"{0:020d}.log": filesystem.file_size(SEGMENT)}
    assert tail.damage is None


@pytest.mark.parametrize("seed", range(40))
def test_done_twice_it_is_as_done_once(seed):
    filesystem = FailingFilesystem(sector_bytes=64)
    written(filesystem, versions=4, unpublished=seed % 3)
    content = filesystem.after_power_cut(Random(seed))

    first = redo_journal(content, ROOT)
    once = files_below(content)
    second = redo_journal(content, ROOT)

    assert files_below(content) == once
    assert (first.tails, first.files, first.next_number) == (second.tails, second.files, second.next_number)
    assert table_files(once) == table_files(files_below(written(versions=4, unpublished=seed % 3)))


@pytest.mark.parametrize("seed", range(10))
def test_broken_off_anywhere_it_is_as_never_begun(seed):
    """At every step, with whatever a power cut leaves of it then."""
    filesystem = FailingFilesystem(sector_bytes=64)
    written(filesystem, versions=3, unpublished=1)
    content = filesystem.after_power_cut(Random(seed))
    expected = redone(content)
    for step in range(1_000):
        machine = FailingFilesystem(content, sector_bytes=64)
        machine.crash_at(step)
        try:
            redo_journal(machine, ROOT)
        except Crashed:
            for left in (machine.after_kill(), machine.after_power_cut(), machine.after_power_cut(Random(step))):
                found = redone(left)
                assert {path: found[path] for path in expected} == expected
                assert all("/." in path for path in found.keys() - expected.keys()), "only temporary files"
                assert opened_values(left) == values_of_rounds(3, 1)
        else:
            break
    assert step > 3


def values_of_rounds(*counts):
    return [value for count in counts for value in values(count)]


# --- what a power cut takes --------------------------------------------------------------------------------------


def test_bytes_that_were_lost_are_back_wherever_the_loss_begins():
    filesystem = written()
    whole = filesystem.read_file(SEGMENT)
    for size in range(len(whole)):
        content = copy_of(filesystem)
        content.open(SEGMENT).truncate(size)
        assert redone(content) == files_below(filesystem)


def test_bytes_that_became_zeros_are_back():
    filesystem = written()
    replace_file(filesystem, SEGMENT, bytes(filesystem.file_size(SEGMENT)))

    assert opened_values(filesystem) == values_of_rounds(3, 2)


def test_a_segment_that_was_lost_is_back():
    filesystem = written()
    expected = files_below(filesystem)
    filesystem.remove(SEGMENT)

    assert redone(filesystem) == expected


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_document_that_was_lost_emptied_or_torn_is_back(version):
    filesystem = written()
    expected = files_below(filesystem)
    document = filesystem.read_file(commit_path(version))
    for left in [None, *(document[:size] for size in range(len(document))), bytes(len(document))]:
        content = copy_of(filesystem)
        content.remove(commit_path(version))
        if left is not None:
            replace_file(content, commit_path(version), left)
        assert redone(content) == expected


def test_a_document_that_has_two_names_when_it_is_torn_is_back():
    """A power cut between the two halves of a publication leaves the temporary name beside the other."""
    filesystem = written()
    expected = files_below(filesystem)
    aside = f"{DELTA_LOG}/.{2:020d}.json.tmp"
    filesystem.link(commit_path(2), aside)
    filesystem.open(commit_path(2)).truncate(3)

    redo_journal(filesystem, ROOT)

    found = files_below(filesystem)
    found.pop(aside, None)
    assert found == expected
    assert opened_values(filesystem) == values_of_rounds(3, 2)


@pytest.mark.parametrize("lost", [(1,), (2,), (3,), (1, 3), (1, 2, 3)])
def test_names_that_were_lost_in_between_are_back(lost):
    filesystem = written()
    expected = files_below(filesystem)
    for version in lost:
        filesystem.remove(commit_path(version))

    assert redone(filesystem) == expected


# --- what no version names yet -----------------------------------------------------------------------------------


def test_committed_bytes_without_a_version_get_one_when_their_partition_is_opened():
    filesystem = written(versions=3, unpublished=2)
    with journaled(filesystem) as disk:
        partition = disk.open()
        assert disk.redone.tails == {}

    assert (partition.table.version, partition.table.next_offset, partition.high_watermark) == (4, 5, 5)
    assert values_of(partition) == values_of_rounds(3, 2)


def test_a_committed_round_without_any_version_gets_the_first_one():
    filesystem = written(versions=0, unpublished=7, config=SHORT_SEGMENTS)
    with journaled(filesystem, config=SHORT_SEGMENTS) as disk:
        partition = disk.open()

    assert len(partition.segments) > 1
    assert (partition.table.version, values_of(partition)) == (1, values_of_rounds(0, 7))


def test_bytes_that_the_journal_does_not_have_are_cut_off():
    """Their round was never told of: the crash came before it was in the journal."""
    filesystem = written()
    end = filesystem.file_size(SEGMENT)
    written_on = batch_of(b"never told of")
    filesystem.open(SEGMENT).write_at((written_on,), end)

    assert opened_values(filesystem) == values_of_rounds(3, 2)


def test_of_a_round_that_is_torn_in_the_journal_nothing_is_there():
    filesystem = written()
    journal = filesystem.read_file(journal_path(1))
    filesystem.open(journal_path(1)).truncate(len(journal) - 40)

    assert opened_values(filesystem) == values_of_rounds(3, 1)


def test_bytes_that_the_journal_has_and_that_cannot_be_put_back_keep_the_partition_closed():
    """The segment began in a file of the journal that has gone since; somebody has removed it."""
    disk = journaled(checkpoint_interval=1_000)
    partition = disk.make()
    published(disk, partition, *batches_of(1))
    disk.settle()
    disk.commit(partition, *batches_of(1))
    disk.close()
    disk.filesystem.remove(SEGMENT)

    with journaled(disk.filesystem) as again, pytest.raises(DamageError, match=r"version 1.*is missing"):
        again.open()


def test_bytes_that_are_not_all_there_keep_the_partition_closed():
    disk = journaled(checkpoint_interval=1_000)
    partition = disk.make()
    published(disk, partition, *batches_of(1))
    disk.settle()
    disk.commit(partition, *batches_of(1))
    disk.close()
    replace_file(disk.filesystem, SEGMENT, b"")
    disk.filesystem.remove(commit_path(1))

    with journaled(disk.filesystem) as again, pytest.raises(DamageError, match="commit journal has acknowledged"):
        again.open()


# --- long runs ---------------------------------------------------------------------------------------------------


@pytest.fixture
def every_run_is_long(monkeypatch):
    monkeypatch.setattr(journal_engine, "DIRECT_BYTES_MIN", 1)


@pytest.fixture
def runs_of_two_batches_are_long(monkeypatch):
    monkeypatch.setattr(journal_engine, "DIRECT_BYTES_MIN", 100)


def test_a_long_run_that_is_damaged_keeps_its_partition_closed_and_no_other(every_run_is_long):
    disk = journaled(checkpoint_interval=1_000)
    partition, other = disk.make(), disk.make(OTHER)
    for each in (partition, other):
        disk.append(each, batch_of(b"long"))
    disk.run_round()
    disk.close()
    filesystem = FailingFilesystem(disk.filesystem)
    filesystem.flip_bit(SEGMENT, 70, 0)

    with journaled(filesystem) as again:
        assert values_of(again.open(OTHER)) == [b"long"]
        with pytest.raises(DamageError, match=r"orders-0: .*0\.log, bytes 0 to \d+: they are not what the journal"):
            again.open()


def test_a_long_run_behind_a_short_one_that_began_the_segment_survives_a_power_cut(runs_of_two_batches_are_long):
    """The name of the segment must be durable with the run, whichever round gave it."""
    filesystem = FailingFilesystem()
    disk = journaled(filesystem, config=TopicConfig())
    partition = disk.make()
    disk.commit(partition, batch_of(b"short"))
    for _ in range(2):
        disk.append(partition, batch_of(b"long"))
    disk.run_round()
    disk.close()

    assert opened_values(filesystem.after_power_cut()) == [b"short", b"long", b"long"]


def test_what_was_refused_of_a_long_run_does_not_hide_the_segment_behind_it(every_run_is_long):
    """Its bytes were synced before the journal was full, and a power cut brings them back."""
    filesystem = FailingFilesystem()
    disk = journaled(filesystem, config=TopicConfig(segment_ms=10))
    partition = disk.make()
    disk.commit(partition, batch_of(b"first"))
    with filesystem.fail("write_at", path_pattern=f"{JOURNAL}/*"):
        disk.append(partition, batch_of(b"refused"))
        (outcome,) = disk.run_round()
    assert isinstance(outcome, StorageRefused)
    disk.commit(partition, batch_of(b"in another segment", timestamp_ms=disk.clock.time_ms + 1_000))
    assert len(partition.segments) == 2
    disk.close()

    assert opened_values(filesystem.after_power_cut()) == [b"first", b"in another segment"]


# --- what has gone since stays away ------------------------------------------------------------------------------


def trimmed():
    """A partition whose oldest segments have been removed, and their files too, while the journal has them still."""
    disk = journaled(config=SHORT_SEGMENTS)
    partition = disk.make()
    published(disk, partition, *batches_of(12))
    disk.move_log_start(partition, 6)
    for _ in range(5):
        published(disk, partition, batch_of(b"later"))
        partition.sweep_removed(now_ms=disk.clock.time_ms)
        disk.run_round()
    assert f"{0:020d}.log" not in disk.filesystem.list_names(DIRECTORY)
    return disk, partition


def test_a_removed_segment_stays_away():
    disk, partition = trimmed()
    state = state_of(partition)
    disk.close()

    assert redone(disk.filesystem) == files_below(disk.filesystem)
    with journaled(disk.filesystem) as again:
        assert state_of(again.open()) == state


def test_a_removed_segment_with_long_runs_stays_away(runs_of_two_batches_are_long):
    disk = journaled()
    partition = disk.make()
    disk.commit(partition, batch_of(b"short"))
    for _ in range(2):
        disk.append(partition, batch_of(b"long"))
    disk.run_round()
    disk.move_log_start(partition, 3)
    for _ in range(6):
        disk.clock.time_ms += 1
        published(disk, partition, batch_of(b"later"))
        partition.sweep_removed(now_ms=disk.clock.time_ms)
        disk.run_round()
        disk.publish(partition)
    assert not disk.filesystem.exists(SEGMENT)
    state = state_of(partition)
    disk.close()

    assert redone(disk.filesystem) == files_below(disk.filesystem)
    with journaled(disk.filesystem) as again:
        assert state_of(again.open()) == state


def test_what_is_packed_stays_packed():
    disk = journaled(checkpoint_interval=3)
    published(disk, disk.make(), *batches_of(14))
    disk.close()
    names = disk.filesystem.list_names(DELTA_LOG)
    assert any("compacted" in name for name in names)
    assert f"{2:020d}.json" not in names

    assert redone(disk.filesystem) == files_below(disk.filesystem)


def test_a_version_whose_own_file_came_back_empty_when_it_was_packed_is_mended():
    disk = journaled(checkpoint_interval=3)
    published(disk, disk.make(), *batches_of(14))
    disk.close()
    replace_file(disk.filesystem, commit_path(2), b"")

    assert opened_values(disk.filesystem) == values_of_rounds(14)


def test_what_was_vacuumed_stays_away():
    disk = journaled(checkpoint_interval=3)
    published(disk, disk.make(), *batches_of(14))
    disk.close()
    report = vacuum(disk.filesystem, DIRECTORY, versions_keep=2)
    assert report.versions_expired > 3

    assert redone(disk.filesystem) == files_below(disk.filesystem)


# --- topics ------------------------------------------------------------------------------------------------------


def test_a_topic_that_was_deleted_stays_away():
    disk = journaled()
    published(disk, disk.make(), *batches_of(2))
    disk.remove()
    disk.close()

    assert redone(disk.filesystem) == files_below(disk.filesystem)
    assert redo_journal(disk.filesystem, ROOT).tails == {}


@pytest.mark.parametrize(
    "known_by", ["its creation", "a checkpoint", "its creation, which is damaged, or a checkpoint"]
)
def test_a_topic_that_was_deleted_and_made_again_is_untouched(known_by):
    disk = journaled(checkpoint_interval=2)
    published(disk, disk.make(), *batches_of(5))
    disk.remove()
    second = UUID(int=2)
    published(disk, disk.make(ORDERS, second), *(batch_of(b"of the second") for _ in range(3)))
    disk.close()
    if known_by == "a checkpoint":
        disk.filesystem.remove(commit_path(0))
    elif known_by != "its creation":
        replace_file(disk.filesystem, commit_path(0), b"{}")

    assert redone(disk.filesystem) == files_below(disk.filesystem)
    with journaled(disk.filesystem) as again:
        assert values_of(again.open(ORDERS, second)) == [b"of the second"] * 3


def test_where_it_cannot_be_told_whose_a_directory_is_nothing_is_put_into_it_and_it_stays_closed():
    filesystem = written()
    replace_file(filesystem, commit_path(0), b"{}")
    filesystem.open(SEGMENT).truncate(10)
    before = files_below(filesystem)

    with journaled(filesystem) as disk:
        assert {path: content for path, content in files_below(filesystem).items() if path in before} == before
        with pytest.raises(DamageError, match="orders-0"):
            disk.open()


# --- what does not fit -------------------------------------------------------------------------------------------


def test_another_document_under_the_name_of_a_version_keeps_its_partition_closed_and_no_other():
    filesystem = written()
    stranger = written(versions=3, unpublished=0)
    with DataDirectory(stranger, config=CONFIG, **SETTINGS) as disk:  # the same offsets at another time
        disk.clock.time_ms += 5
        disk.remove()
        published(disk, disk.make(), *batches_of(3))
    before = filesystem.read_file(commit_path(2))
    replace_file(filesystem, commit_path(2), stranger.read_file(commit_path(2)))

    with journaled(filesystem) as disk:
        disk.make(OTHER)
        with pytest.raises(DamageError, match=r"2\.json is not what the journal says of version 2"):
            disk.open()
    assert filesystem.read_file(commit_path(2)) != before


def test_a_missing_delta_log_keeps_its_partition_closed_and_no_other():
    disk = journaled()
    for key in (ORDERS, OTHER):
        published(disk, disk.make(key), *batches_of(2))
    disk.close()
    for name in disk.filesystem.list_names(DELTA_LOG):
        disk.filesystem.remove(f"{DELTA_LOG}/{name}")
    disk.filesystem.remove_directory(DELTA_LOG)

    with journaled(disk.filesystem) as again:
        assert values_of(again.open(OTHER)) == values(2)
        with pytest.raises(DamageError):
            again.open()


def several_files():
    """A partition whose rounds are in three files of the journal."""
    disk = journaled(checkpoint_interval=1_000)
    partition = disk.make()
    for batch in batches_of(3):
        published(disk, partition, batch)
        assert disk.engine.end_file() is not None
    disk.close()
    return disk.filesystem


def test_all_files_are_put_back_in_order():
    filesystem = several_files()
    expected = files_below(filesystem)
    for version in (1, 2, 3):
        filesystem.remove(commit_path(version))
    filesystem.remove(SEGMENT)

    assert redone(filesystem) == expected


def test_the_first_files_may_have_gone():
    filesystem = several_files()
    filesystem.remove(journal_path(1))

    assert redo_journal(filesystem, ROOT).files == [2, 3]


def test_a_file_that_is_missing_in_between_is_damage():
    filesystem = several_files()
    filesystem.remove(journal_path(2))

    with pytest.raises(DamageError, match=r"3\.journal: it begins with round 5, and round 3 is missing") as caught:
        redo_journal(filesystem, ROOT)
    assert caught.value.hint


def test_a_file_that_lost_its_last_round_is_damage_if_another_follows():
    filesystem = several_files()
    filesystem.open(journal_path(2)).truncate(filesystem.file_size(journal_path(2)) - 100)

    with pytest.raises(DamageError, match=r"3\.journal: it begins with round 5, and round 4 is missing"):
        redo_journal(filesystem, ROOT)


def test_a_damaged_record_with_good_ones_behind_is_damage_and_the_file_is_named():
    filesystem = FailingFilesystem(written())
    filesystem.flip_bit(journal_path(1), HEADER_BYTES + 25, 3)

    with pytest.raises(DamageError, match=r"/data/journal/0+1\.journal: record 1 at byte 32 is damaged"):
        redo_journal(filesystem, ROOT)


@pytest.mark.parametrize("bit", range(0, HEADER_BYTES * 8, 7))
def test_a_damaged_header_before_rounds_is_damage(bit):
    filesystem = FailingFilesystem(written())
    filesystem.flip_bit(journal_path(1), bit // 8, bit % 8)

    with pytest.raises(DamageError, match=r"/data/journal/0+1\.journal: ") as caught:
        redo_journal(filesystem, ROOT)
    assert caught.value.hint


def test_a_file_under_another_name_is_damage():
    filesystem = several_files()
    filesystem.rename(journal_path(3), journal_path(4))

    with pytest.raises(DamageError, match="it says that it is file 3"):
        redo_journal(filesystem, ROOT)


@pytest.mark.parametrize("left", [b"", b"exlj", bytes(HEADER_BYTES)])
def test_a_last_file_whose_header_was_never_synced_is_empty_and_may_stay_there(left):
    """The crash came while the file was being made; so it may, in the next one."""
    filesystem = several_files()
    replace_file(filesystem, journal_path(4), left)

    found = redo_journal(filesystem, ROOT)
    assert (found.files, found.next_number, found.next_sequence) == ([1, 2, 3, 4], 5, 7)
    with journaled(filesystem) as disk:
        disk.commit(disk.open(), batch_of(b"after the first crash"))
    replace_file(filesystem, journal_path(6), left)

    found = redo_journal(filesystem, ROOT)
    assert (found.files, found.next_number, found.next_sequence) == ([1, 2, 3, 4, 5, 6], 7, 8)
    assert opened_values(filesystem)[-1] == b"after the first crash"


def test_a_first_file_without_a_header_may_be_followed_by_any():
    filesystem = several_files()
    replace_file(filesystem, journal_path(2), b"")
    filesystem.remove(journal_path(1))

    assert redo_journal(filesystem, ROOT).next_sequence == 7


def test_foreign_names_in_the_directory_of_the_journal_are_passed_over():
    filesystem = written()
    for name in ("notes.txt", "1.journal", f"{0:020d}.journal", f"{10**20 - 1}.journal", f"{1:020d}.journal.tmp"):
        replace_file(filesystem, f"{JOURNAL}/{name}", b"not of the journal")

    assert redo_journal(filesystem, ROOT).files == [1]


# --- one crash after the other -----------------------------------------------------------------------------------


class Killed(BaseException):
    """The process is gone; what the operating system has is still there."""


def _die():
    raise Killed


def test_a_power_cut_after_a_start_that_found_an_unsynced_round_is_no_damage():
    """A killed process leaves a record that the operating system has and the disk has not; others follow it."""
    filesystem = FailingFilesystem()
    disk = journaled(filesystem)
    partition = disk.make()
    disk.commit(partition, batch_of(b"first"))
    disk.append(partition, batch_of(b"killed on its way"))
    JOURNAL_AFTER_WRITE.arm(_die)
    with pytest.raises(Killed):
        disk.run_round()
    disk.close()

    with journaled(filesystem) as again:
        again.commit(again.make(OTHER), batch_of(b"not of the same partition"))

    assert opened_values(filesystem.after_power_cut())[:1] == [b"first"]


def test_after_a_failed_sync_of_the_journal_the_next_start_goes_on_for_good():
    """What such a sync was to write counts as written, and is not on the disk: another sync alone would not help."""
    filesystem = FailingFilesystem()
    disk = journaled(filesystem)
    partition = disk.make()
    disk.commit(partition, batch_of(b"first"))
    disk.append(partition, batch_of(b"whose sync failed"))
    filesystem.fail("sync_data", path_pattern=f"{JOURNAL}/*")
    assert isinstance(disk.run_round()[0], SyncFailed)
    disk.close()

    with journaled(filesystem) as again:
        again.commit(again.make(OTHER), batch_of(b"not of the same partition"))

    assert opened_values(filesystem.after_power_cut()) == [b"first", b"whose sync failed"]


@pytest.mark.parametrize(("name", "path_pattern"), [("sync", f"{DELTA_LOG}/*"), ("sync_data", f"{DIRECTORY}/*.log")])
def test_after_a_failed_sync_while_a_file_was_to_go_the_next_start_goes_on_for_good(name, path_pattern):
    filesystem = FailingFilesystem()
    disk = journaled(filesystem)
    published(disk, disk.make(), *batches_of(2))
    filesystem.fail(name, path_pattern=path_pattern)
    with pytest.raises(SyncFailedError):
        disk.settle()
    disk.close()

    with journaled(filesystem) as again:
        again.open()
        again.settle()
    assert f"{1:020d}" not in "".join(filesystem.list_names(JOURNAL))

    assert opened_values(filesystem.after_power_cut()) == values(2)


def test_a_start_on_plain_files_puts_the_journal_back_too():
    filesystem = written()
    filesystem.remove(commit_path(2))
    with DataDirectory(filesystem, config=CONFIG, is_journaled=False) as disk:
        assert values_of(disk.open()) == values_of_rounds(3, 2)
        disk.settle()

    assert filesystem.list_names(JOURNAL) == []


@pytest.mark.parametrize("flush_mode", [FlushMode.INTERVAL, FlushMode.NONE])
def test_a_start_without_syncs_puts_the_journal_back_too(flush_mode):
    filesystem = FailingFilesystem()
    written(filesystem)
    content = filesystem.after_power_cut()
    with DataDirectory(content, config=CONFIG, flush_mode=flush_mode) as disk:
        partition = disk.open()
        assert values_of(partition) == values_of_rounds(3, 2)
        disk.commit(partition, batch_of(b"not synced"))
        disk.publish(partition)

    with DataDirectory(content, config=CONFIG, flush_mode=flush_mode) as disk:
        assert values_of(disk.open())[:5] == values_of_rounds(3, 2)


def test_a_round_is_there_for_all_its_partitions_or_for_none():
    """Whatever a power cut leaves, wherever it comes."""
    keys = [TopicPartition("orders", index) for index in range(3)]
    for step in range(1_000):
        filesystem = FailingFilesystem(sector_bytes=64)
        disk = journaled(filesystem)
        partitions = [disk.make(key) for key in keys]
        told = 0
        filesystem.crash_at(step)
        with suppress(Crashed):
            for number in range(3):
                for partition in partitions:
                    disk.append(partition, sequenced(1, number, b"%d" % number))
                assert disk.run_round() == [Stored()] * 3
                told = number + 1
        disk.close()
        for content in (filesystem.after_kill(), filesystem.after_power_cut(Random(step))):
            with journaled(content) as again:
                ends = {again.open(key).high_watermark for key in keys}
            assert len(ends) == 1
            assert told <= ends.pop() <= told + 1
        if told == 3:
            break
    assert step > 20
