"""Files of the commit journal end and go beside what goes on, on a real event loop."""

import asyncio
import errno
from concurrent.futures import ThreadPoolExecutor

import pytest

from exactlog.core.deltalog.journal_format import print_journal_name
from exactlog.core.model.ids import TopicPartition
from exactlog.core.model.metrics import Registry
from exactlog.core.record.batch_format import decode_header
from exactlog.storage import journal_engine, journal_remainder
from exactlog.storage.journal_upkeep import FILE_AGE_MS_MAX, JournalUpkeep
from exactlog.storage.round_committer import RoundCommitter
from exactlog.storage.settings import FlushMode
from exactlog.testing.failing_filesystem import FailingFilesystem
from tests.support.partitions import (
    JOURNAL,
    ORDERS,
    ROOT,
    Ask,
    DataDirectory,
    batch_of,
    batches_of,
    values_of,
)


class Upkept:
    """A partition whose rounds go through a journal that is looked after."""

    def __init__(self):
        self.filesystem = FailingFilesystem()
        self.disk = DataDirectory(self.filesystem, is_journaled=True)
        self.clock = self.disk.clock
        self.executor = ThreadPoolExecutor(1)
        self.failed_syncs = []
        self.rounds = RoundCommitter(
            self.disk.engine,
            flush_mode=FlushMode.COMMIT,
            publishes_in_round=False,
            loop=asyncio.get_running_loop(),
            clock=self.clock,
            metrics=Registry(),
            on_sync_failed=self.failed_syncs.append,
        )
        self.disk.store._mark_dirty = self.rounds.mark_dirty
        self.upkeep = JournalUpkeep(
            self.disk.engine,
            self.rounds,
            filesystem=self.filesystem,
            root=ROOT,
            unopened=lambda: self.unopened,
            executor=self.executor,
            clock=self.clock,
            on_sync_failed=self.failed_syncs.append,
        )
        self.unopened = []
        self.partition = self.disk.make()

    async def append(self, *batches, to=None):
        """Each in a round of its own."""
        partition = to or self.partition
        for batch in batches:
            ask = Ask(partition.append(decode_header(batch), memoryview(batch), now_ms=self.clock.now_ms()))
            partition.when_committed(ask.tell)
            while ask.offset is None:  # noqa: ASYNC110  the loop under test is what turns
                await asyncio.sleep(0)

    async def look(self):
        """Looks once, and waits until what that began has ended."""
        self.upkeep.look()
        if self.upkeep._running is not None:
            await asyncio.wait([self.upkeep._running])

    @property
    def files(self):
        return sorted(self.filesystem.after_kill().list_names(JOURNAL))

    def left(self, key=ORDERS):
        """What a start finds after a power cut."""
        with DataDirectory(self.filesystem.after_power_cut(), is_journaled=True) as disk:
            return values_of(disk.open(key))

    async def age(self):
        """Lets the present file go, if it may."""
        await self.look()
        self.clock.time_ms += FILE_AGE_MS_MAX
        await self.look()

    def close(self):
        self.rounds.stop()
        self.executor.shutdown()
        self.disk.close()


@pytest.fixture
async def upkept():
    made = Upkept()
    yield made
    made.close()


def names(*numbers):
    return [print_journal_name(number) for number in numbers]


VALUES = [b"%020d" % number for number in range(3)]


async def test_a_file_stays_until_it_is_old_or_long(upkept):
    await upkept.append(*batches_of(3))
    await upkept.look()
    upkept.clock.time_ms += FILE_AGE_MS_MAX - 1
    await upkept.look()

    assert upkept.files == names(1)


async def test_an_old_file_goes_and_all_that_it_held_is_in_its_place(upkept):
    await upkept.append(*batches_of(3))
    await upkept.look()
    upkept.clock.time_ms += FILE_AGE_MS_MAX
    await upkept.look()

    assert upkept.files == names(2), "versions were published meanwhile"
    assert upkept.left() == VALUES
    assert upkept.failed_syncs == []


async def test_a_file_is_as_old_as_its_first_look_not_as_the_time_before_it(upkept):
    upkept.clock.time_ms += 10 * FILE_AGE_MS_MAX
    await upkept.look()
    await upkept.append(batch_of(b"first"))
    await upkept.look()

    assert upkept.files == names(1)


async def test_a_long_file_goes_however_young_it_is(upkept, monkeypatch):
    monkeypatch.setattr(journal_engine, "JOURNAL_FILE_BYTES", 200)
    await upkept.append(*batches_of(3))
    await upkept.look()

    assert names(1)[0] not in upkept.files
    assert upkept.left() == VALUES


async def test_without_rounds_no_file_is_made(upkept):
    for _ in range(3):
        upkept.clock.time_ms += FILE_AGE_MS_MAX
        await upkept.look()

    assert upkept.files == []


async def test_a_file_does_not_go_before_all_that_it_holds_has_its_version(upkept):
    """Else nothing would tell a start that the bytes are committed."""
    upkept.rounds._publication_is_due = True  # so none begins
    await upkept.append(*batches_of(2))
    await upkept.look()
    upkept.clock.time_ms += FILE_AGE_MS_MAX
    upkept.upkeep.look()
    for _ in range(20):
        await asyncio.sleep(0.005)
    assert upkept.files == names(1)
    assert upkept.left() == VALUES[:2]
    upkept.rounds._publication_is_due = False
    upkept.rounds._note_unpublished([upkept.partition])
    await asyncio.wait([upkept.upkeep._running])

    assert names(1)[0] not in upkept.files
    assert upkept.left() == VALUES[:2]


async def test_while_one_file_cannot_go_others_do_not_end_before_their_time(upkept):
    await upkept.append(*batches_of(2))
    await upkept.look()
    upkept.clock.time_ms += FILE_AGE_MS_MAX
    upkept.filesystem.fail("remove", path_pattern=f"{JOURNAL}/*", times=2)
    await upkept.look()
    await upkept.append(batch_of(b"more"))
    files = upkept.files
    await upkept.look()
    await upkept.append(batch_of(b"and more"))
    assert upkept.files == files == names(1, 2)

    await upkept.look()

    assert upkept.files == names(2)
    assert upkept.failed_syncs == []
    assert upkept.left() == [*VALUES[:2], b"more", b"and more"]


async def test_a_failed_sync_is_told_and_never_tried_again(upkept):
    await upkept.append(*batches_of(3))
    await upkept.look()
    await upkept.rounds.published()
    upkept.clock.time_ms += FILE_AGE_MS_MAX
    upkept.filesystem.fail("sync_data", path_pattern="*.log")
    await upkept.look()
    upkept.filesystem.clear()
    for _ in range(3):
        upkept.clock.time_ms += FILE_AGE_MS_MAX
        await upkept.look()
    await upkept.upkeep.finish()

    assert len(upkept.failed_syncs) == 1
    assert "the commit journal" in upkept.failed_syncs[0]
    assert upkept.filesystem.names("sync", "sync_data", "sync_directory", "remove") == []
    assert upkept.files[:1] == names(1)
    assert upkept.left() == VALUES


async def test_at_the_end_no_file_is_left_and_the_tables_are_whole(upkept):
    await upkept.append(*batches_of(3))
    await upkept.rounds.flush()
    await upkept.upkeep.finish()

    assert upkept.files == []
    with DataDirectory(upkept.filesystem.after_power_cut(), is_journaled=False) as disk:
        partition = disk.open()
        assert (values_of(partition), partition.table.next_offset) == (VALUES, 3)


async def test_at_the_end_what_is_under_way_is_waited_for(upkept):
    await upkept.append(*batches_of(2))
    upkept.upkeep.look()
    upkept.clock.time_ms += FILE_AGE_MS_MAX
    upkept.upkeep.look()
    await upkept.append(batch_of(b"while a file goes"))
    await upkept.rounds.flush()
    await upkept.upkeep.finish()

    assert upkept.files == []
    assert upkept.left() == [*VALUES[:2], b"while a file goes"]


async def test_rounds_go_on_while_files_go(upkept, monkeypatch):
    monkeypatch.setattr(journal_engine, "JOURNAL_FILE_BYTES", 300)
    batches = batches_of(40)
    for batch in batches:
        await upkept.append(batch)
        upkept.upkeep.look()
    await upkept.rounds.flush()
    await upkept.upkeep.finish()

    assert upkept.files == []
    assert upkept.left() == [b"%020d" % number for number in range(40)]
    assert upkept.failed_syncs == []


# --- partitions that stand still ----------------------------------------------------------------------------------

OTHER = TopicPartition("another", 0)


async def stopped(upkept):
    """The partition has stopped, with three rounds that have no version, and another one goes on."""
    other = upkept.disk.make(OTHER)
    upkept.rounds._publication_is_due = True  # so none begins
    await upkept.append(*batches_of(3))
    upkept.partition.fail("somebody else writes there")
    upkept.rounds._publication_is_due = False
    return other


async def test_a_partition_that_has_stopped_keeps_its_rounds_and_no_file(upkept):
    other = await stopped(upkept)
    values = []
    for number in range(1, 4):
        values.append(b"%d" % number * 1_000)
        await upkept.append(batch_of(values[-1]), to=other)
        await upkept.age()

        assert names(number)[0] not in upkept.files
        assert len(upkept.files) == 1
        assert upkept.left() == VALUES
        assert upkept.left(OTHER) == values
    assert upkept.failed_syncs == []


async def test_what_is_kept_makes_no_file_long_or_old(upkept, monkeypatch):
    await stopped(upkept)
    await upkept.age()
    monkeypatch.setattr(journal_engine, "JOURNAL_FILE_BYTES", 200)
    files = upkept.files
    for _ in range(3):
        await upkept.age()

    assert upkept.files == files
    assert upkept.left() == VALUES


async def test_what_is_kept_goes_into_as_many_records_as_it_takes(upkept, monkeypatch):
    monkeypatch.setattr(journal_remainder, "REMAINDER_RECORD_BYTES", 100)
    await stopped(upkept)
    for _ in range(2):
        await upkept.append(batch_of(b"x"), to=upkept.disk.opened[OTHER])
        await upkept.age()

    assert upkept.left() == VALUES


async def test_what_is_kept_outlives_a_power_cut_at_any_step(upkept, monkeypatch):
    """Also where only a part of it has been written once more: what it says first is not the end of it."""
    monkeypatch.setattr(journal_remainder, "REMAINDER_RECORD_BYTES", 1)
    await stopped(upkept)
    cuts = []
    keep = upkept.disk.engine.keep

    def keep_and_look(journaled, content):
        cuts.append(upkept.left())
        keep(journaled, content)
        cuts.append(upkept.left())

    monkeypatch.setattr(upkept.disk.engine, "keep", keep_and_look)
    await upkept.age()

    assert cuts == [VALUES] * 6
    assert upkept.left() == VALUES


async def test_what_was_never_opened_is_kept_too(upkept):
    await upkept.append(*batches_of(3))
    upkept.unopened = [upkept.partition.directory.removeprefix(f"{ROOT}/")]
    await upkept.age()

    assert upkept.files == names(2)
    await upkept.upkeep.finish()
    assert upkept.files == names(3)
    assert upkept.left() == VALUES
    upkept.unopened = []
    await upkept.upkeep.finish()
    assert upkept.files == []


async def test_where_there_is_no_room_for_what_is_kept_the_file_stays_until_there_is(upkept):
    await stopped(upkept)
    upkept.filesystem.fail("write_at", path_pattern=f"{JOURNAL}/*", times=1)
    await upkept.age()
    assert upkept.files == names(1)

    await upkept.age()

    assert upkept.files == names(3), "the second one could not be begun"
    assert upkept.left() == VALUES
    assert upkept.failed_syncs == []


@pytest.mark.parametrize("kept_before", [1, 2])
async def test_what_has_been_kept_is_not_kept_again_when_the_rest_could_not_be(upkept, monkeypatch, kept_before):
    monkeypatch.setattr(journal_remainder, "REMAINDER_RECORD_BYTES", 1)
    other = await stopped(upkept)
    await upkept.append(batch_of(b"b"), to=other)
    kept = []
    keep = upkept.disk.engine.keep

    def keep_until_the_disk_is_full(journaled, content):
        if is_full and len(kept) == kept_before:
            raise OSError(errno.ENOSPC, "no space left")
        keep(journaled, content)
        kept.extend(journaled.partitions)

    is_full = True
    monkeypatch.setattr(upkept.disk.engine, "keep", keep_until_the_disk_is_full)
    await upkept.age()
    assert names(1)[0] in upkept.files
    upkept.unopened = [other.directory.removeprefix(f"{ROOT}/")]  # meanwhile another one stands still too
    is_full = False
    await upkept.look()

    assert names(1)[0] not in upkept.files
    assert len(kept) == len({(part.directory, part.bytes) for part in kept}) == 4, "each once"
    assert (upkept.left(), upkept.left(OTHER)) == (VALUES, [b"b"])


async def test_what_has_been_kept_is_not_kept_again_while_its_file_cannot_be_removed(upkept):
    await stopped(upkept)
    upkept.filesystem.fail("remove", path_pattern=f"{JOURNAL}/*", times=2)
    sizes = []
    for _ in range(3):
        await upkept.age()
        sizes.append(upkept.disk.engine._journal.size_bytes)

    assert len(set(sizes)) == 1
    assert upkept.files == names(2)
    assert upkept.left() == VALUES


async def test_at_the_end_only_what_is_kept_is_left(upkept):
    other = await stopped(upkept)
    await upkept.append(batch_of(b"b"), to=other)
    await upkept.rounds.flush()
    await upkept.upkeep.finish()

    assert upkept.files == names(2)
    assert (upkept.left(), upkept.left(OTHER)) == (VALUES, [b"b"])
