"""What a hundred thousand versions cost, in operations on files and bytes read: what grows, grows as it should."""

import math

import pytest
from crc32c import crc32c

from exactlog.core.deltalog.canonical_json import print_crc
from exactlog.core.deltalog.checkpoint_format import encode_checkpoint
from exactlog.core.deltalog.commit_format import DecodedCommit, encode_commit
from exactlog.core.deltalog.table_state import TableState
from exactlog.core.record.batch_format import decode_header, place
from exactlog.storage.delta_log_files import DeltaLogFiles
from exactlog.storage.filesystem import MemoryFilesystem
from exactlog.storage.packing import PackingProgress, pack
from exactlog.storage.table_reader import TableReader
from exactlog.storage.vacuum import vacuum
from tests.support.counting_filesystem import CountingFilesystem
from tests.support.long_tables import checkpoint_path, commit_path, listing, packs
from tests.support.partitions import DELTA_LOG, DIRECTORY, batch_of, copy_of
from tests.unit.core.deltalog.histories import FIRST_MS, History, details_of

DIGITS = 100  # bytes: numbers in the documents of a longer log have a digit more
KEEP = 1_000
PACK_BYTES_MAX = 1_000 * 500
SIZES = [(1_000, 10_000), pytest.param((10_000, 100_000), marks=[pytest.mark.slow, pytest.mark.timeout(900)])]


def written(versions):
    """A table of so many versions: a record a version, a second after the one before; a checkpoint a hundred."""
    filesystem = MemoryFilesystem()
    filesystem.make_directories(DELTA_LOG)
    history, state = History(), TableState(table="orders-0")
    segment = filesystem.open(f"{DIRECTORY}/{0:020d}.log", create=True)
    for version in range(versions + 1):
        batch = batch_of(b"%d" % (version - 1)) if version else b""
        operations = ()
        if version:
            place(batch, decode_header(batch), base_offset=version - 1, leader_epoch=0)
            operations = (history.add(size=len(batch)),)
            segment.write_at((batch,), operations[0].position)
        history.timestamp_ms += 1_000
        commit = history.build(*operations, data_crc=print_crc(crc32c(bytes(batch))))
        encoded = encode_commit(commit)
        history.commits.append(None)
        history.chain_crc = encoded.chain_crc
        state.replay(DecodedCommit(commit, encoded.chain_crc))
        write(filesystem, commit_path(version), encoded.document)
        if version and version % 100 == 0:
            snapshot = state.freeze()
            document = encode_checkpoint(snapshot.to_checkpoint(segment_details=details_of(snapshot)))
            write(filesystem, checkpoint_path(version), document)
    return filesystem


def write(filesystem, path, content):
    filesystem.open(path, create=True, exclusive=True).write_at((content,), 0)


def packed(filesystem):
    """The same, all packed that may be; in one go."""
    filesystem = copy_of(filesystem)
    pack(filesystem, DIRECTORY, *plans_of(filesystem))
    return filesystem


def plans_of(filesystem):
    delta_log = DeltaLogFiles(filesystem, DIRECTORY)
    newest = delta_log.newest_version
    progress = PackingProgress.of(delta_log)
    while plan := progress.find_pack(newest_version=newest, checkpoint_version=newest, versions_keep=KEEP):
        yield plan
        progress = progress.after(plan)


@pytest.fixture(scope="module", params=SIZES, ids=lambda sizes: f"{sizes[1]} versions")
def tables(request):
    """Two tables, one with ten times the versions, as written and packed; the newest 50 are behind the checkpoint."""
    return [(versions, loose := written(versions + 50), packed(loose)) for versions in request.param]


def cost_of(filesystem, work):
    """The operations that some work takes, and the bytes it reads."""
    watched = CountingFilesystem(filesystem)
    work(watched)
    return watched.names(), watched.bytes_read


def costs_of(tables, work, *, is_packed):
    for versions, loose, in_packs in tables:
        yield (
            versions,
            *cost_of(in_packs if is_packed else loose, lambda files, newest=versions + 50: work(files, newest)),
        )


both = pytest.mark.parametrize("is_packed", [False, True], ids=["loose", "packed"])


# --- the same, however many versions there are -------------------------------------------------------------------


def open_table(filesystem, newest):
    assert TableReader(filesystem, DIRECTORY).snapshot().version == newest


def list_newest(filesystem, newest):
    table = TableReader(filesystem, DIRECTORY)
    listed = [commit.version for commit in table.versions(limit=50, newest_first=True)]
    assert listed == list(range(newest, newest - 50, -1))


def state_oldest(filesystem, newest):
    table = TableReader(filesystem, DIRECTORY)
    for _ in range(100):
        assert table.oldest_version == 0


def follow(filesystem, newest):
    table = TableReader(filesystem, DIRECTORY)
    for _ in range(100):
        table.refresh()
    assert table.snapshot().version == newest


@both
@pytest.mark.parametrize("work", [open_table, list_newest, state_oldest, follow])
def test_this_costs_the_same_with_ten_times_the_versions(tables, is_packed, work):
    (_, operations, bytes_read), (_, operations_of_more, bytes_read_of_more) = costs_of(
        tables, work, is_packed=is_packed
    )

    assert operations_of_more == operations
    assert len(operations) < 500
    assert abs(bytes_read_of_more - bytes_read) <= DIGITS * len(operations)


def read_as_of_versions(filesystem, newest):
    """A record as of each of ten versions all over the table; the index is another matter."""
    table = TableReader(filesystem, DIRECTORY)
    for version in range(newest // 10, newest + 1, newest // 10):
        assert table._versions.bounds(version).end_offset == version


@both
def test_a_version_is_found_by_reading_it_or_its_pack_once(tables, is_packed):
    costs = list(costs_of(tables, read_as_of_versions, is_packed=is_packed))
    opening = [cost for _, *cost in costs_of(tables, open_table, is_packed=is_packed)]

    for (versions, operations, bytes_read), (to_open, bytes_to_open) in zip(costs, opening, strict=True):
        packs_read = min(10, versions // 1_000) if is_packed else 0
        assert len(operations) - len(to_open) <= 10 + 3 * packs_read
        assert bytes_read - bytes_to_open <= 10 * 500 + packs_read * PACK_BYTES_MAX


# --- a search ----------------------------------------------------------------------------------------------------


def look_up_times(filesystem, newest):
    table = TableReader(filesystem, DIRECTORY)
    for version in (newest // 3, newest // 2, newest - 7):
        assert table.version_at(FIRST_MS + 1_000 * (version + 1) + 999) == version


def look_up_offsets(filesystem, newest):
    table = TableReader(filesystem, DIRECTORY)
    for offset in (newest // 3, newest // 2, newest - 7):
        assert table.version_of(offset).version == offset + 1


@both
@pytest.mark.parametrize("work", [look_up_times, look_up_offsets])
def test_a_search_reads_about_log2_of_the_versions_and_of_the_packs(tables, is_packed, work):
    searches = 3
    for versions, operations, bytes_read in costs_of(tables, work, is_packed=is_packed):
        halvings = searches * (2 + math.ceil(math.log2(versions)))
        packs_read = searches * (1 + math.ceil(math.log2(versions / 1_000 + 1))) if is_packed else 0
        opening = 60
        assert len(operations) <= opening + halvings + 3 * packs_read
        assert bytes_read <= 500 * (opening + halvings) + PACK_BYTES_MAX * packs_read


# --- all of it ---------------------------------------------------------------------------------------------------


def read_everything(filesystem, newest):
    table = TableReader(filesystem, DIRECTORY)
    assert sum(1 for _ in table.read()) == newest


def read_everything_with_versions(filesystem, newest):
    stored = TableReader(filesystem, DIRECTORY).read_stored()
    assert all(found.delta_version == found.record.offset + 1 for found in stored)


def list_everything(filesystem, newest):
    assert sum(1 for _ in TableReader(filesystem, DIRECTORY).versions()) == newest + 1


@both
@pytest.mark.parametrize("work", [read_everything, read_everything_with_versions, list_everything])
def test_to_read_everything_costs_ten_times_as_much_with_ten_times_the_versions(tables, is_packed, work):
    (few, operations, bytes_read), (many, operations_of_more, bytes_read_of_more) = costs_of(
        tables, work, is_packed=is_packed
    )

    assert len(operations_of_more) <= 1.1 * len(operations) * many / few
    assert len(operations_of_more) <= 2.5 * many
    twice = 2 if is_packed else 1  # a pack is read through to find its lines
    assert bytes_read_of_more <= 1.1 * twice * bytes_read * many / few
    assert operations_of_more.count("list_names") == 1


def test_to_pack_everything_reads_every_document_once_and_lists_the_names_once(tables):
    for versions, loose, expected in tables:
        filesystem = copy_of(loose)
        plans = list(plans_of(filesystem))
        watched = CountingFilesystem(filesystem)

        pack(watched, DIRECTORY, *plans)

        count = len(plans)
        assert count == (versions + 50 - KEEP + 1) // 1_000
        assert watched.names("list_names") == ["list_names"]
        assert len(watched.names("read_file")) == 1_000 * count + count + 2  # the next of each range; two checkpoints
        assert len(watched.names("remove")) <= (1_000 + 10 + 1) * count
        assert len(watched.names("write_at", "sync", "link", "sync_directory")) == 4 * count
        assert watched.bytes_read <= 500 * len(watched.names("read_file")) + 2_000
        assert listing(filesystem) == listing(expected)
        assert packs(filesystem) == [(1_000 * index, 1_000 * index + 999) for index in range(count)]


def test_one_more_pack_costs_the_same_with_ten_times_the_versions_behind_it(tables):
    few = packed_but_one(tables[1][1], packs_made=1)
    many = packed_but_one(tables[1][1], packs_made=len(list(plans_of(tables[1][1]))) - 1)

    operations = []
    for filesystem in (few, many):
        plan = next(iter(plans_of(filesystem)))
        operations.append(cost_of(filesystem, lambda files, plan=plan: pack(files, DIRECTORY, plan))[0])

    assert operations[0] == operations[1]


def packed_but_one(filesystem, *, packs_made):
    filesystem = copy_of(filesystem)
    pack(filesystem, DIRECTORY, *list(plans_of(filesystem))[:packs_made])
    return filesystem


@both
def test_a_vacuum_touches_what_goes_and_little_else(tables, is_packed):
    for versions, loose, in_packs in tables:
        filesystem = copy_of(in_packs if is_packed else loose)
        before = len(filesystem.list_names(DELTA_LOG))
        watched = CountingFilesystem(filesystem)

        report = vacuum(watched, DIRECTORY, versions_keep=100)

        gone = before - len(filesystem.list_names(DELTA_LOG))
        assert report.files_removed == gone
        assert report.versions_expired >= versions - 1_100
        assert watched.names("list_names") == ["list_names"]
        assert len(watched.operations) <= 2 * gone + 20
        assert watched.bytes_read < 10_000
        open_table(filesystem, versions + 50)
