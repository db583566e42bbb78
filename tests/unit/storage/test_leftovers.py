"""What a crash leaves beside a table."""

import pytest

from exactlog.storage.filesystem import MemoryFilesystem, OsFilesystem
from exactlog.storage.leftovers import remove_temporary, sweep_leftovers
from exactlog.storage.open_files import OpenFiles
from exactlog.storage.segment import SegmentFiles

DIRECTORY = "/orders"
TABLE = [f"{4:020d}.log", f"{8:020d}.g2.log"]
END = 10


def left_of(*names, filesystem=None, directory=DIRECTORY):
    """What a sweep leaves of files of these names and of the table's own, and what it tells."""
    filesystem = filesystem or MemoryFilesystem()
    filesystem.make_directories(directory)
    for name in (*TABLE, *names):
        filesystem.open(f"{directory}/{name}", create=True)
    files = SegmentFiles(filesystem, OpenFiles(filesystem, files_max=10))
    removed = sweep_leftovers(files, directory, segments=TABLE, end_offset=END)
    return sorted(set(filesystem.list_names(directory)) - set(TABLE)), removed


@pytest.mark.parametrize("name", [".x", f".{0:020d}.log.tmp", f".{11:020d}.json.tmp"])
def test_what_never_got_its_name_goes(name):
    assert left_of(name) == ([], [])


@pytest.mark.parametrize("kind", ["log", "index", "timeindex", "txnindex"])
@pytest.mark.parametrize("base", [f"{END:020d}", f"{END + 7:020d}", f"{END:020d}.g1"])
def test_what_begins_behind_the_end_goes(base, kind):
    assert left_of(f"{base}.{kind}") == ([], [])


def test_what_is_in_the_table_stays():
    indexes = [f"{4:020d}.index", f"{4:020d}.timeindex", f"{4:020d}.txnindex", f"{8:020d}.g2.index"]

    assert left_of(*indexes) == (sorted(indexes), [])


def test_segments_that_were_removed_stay_with_their_indexes_and_are_named_in_order():
    removed = [f"{number:020d}.{kind}" for number in (0, 2) for kind in ("index", "log")]
    other_generations = [f"{4:020d}.g1.log", f"{8:020d}.log", f"{8:020d}.g1.timeindex", f"{8:020d}.g1.log"]

    left, named = left_of(*reversed(removed), *other_generations)

    assert left == sorted(removed + other_generations)
    assert named == sorted(name for name in left if name.endswith(".log"))


@pytest.mark.parametrize("kind", ["index", "timeindex", "txnindex"])
@pytest.mark.parametrize("base", [f"{0:020d}", f"{2:020d}.g1", f"{4:020d}.g1", f"{8:020d}"])
def test_an_index_whose_segment_is_not_there_goes(base, kind):
    """A power cut between the removal of a segment's files."""
    assert left_of(f"{base}.{kind}") == ([], [])


@pytest.mark.parametrize(
    "name", ["notes.txt", "12.log", f"{12:020d}.log.bak", f"{12:020d}.g0.log", f"{12:020d}.snapshot"]
)
def test_foreign_names_are_not_ours_to_judge(name):
    assert left_of(name) == ([name], [])


def test_a_directory_is_not_ours_whatever_it_is_called(tmp_path, caplog):
    """Snapshots of a network file system are seen as a directory that begins with a dot."""
    (tmp_path / ".snapshot").mkdir()

    assert left_of(filesystem=OsFilesystem(), directory=str(tmp_path)) == ([".snapshot"], [])
    assert ".snapshot" in caplog.text


def test_a_temporary_file_that_has_gone_meanwhile_is_no_surprise_to_be_hidden(tmp_path):
    with pytest.raises(FileNotFoundError):
        remove_temporary(OsFilesystem(), str(tmp_path / ".gone"))
