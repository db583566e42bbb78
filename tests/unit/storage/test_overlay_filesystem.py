"""Changes that are kept in memory on top of a file system, which stays as it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.storage.filesystem import MemoryFilesystem
from exactlog.storage.overlay_filesystem import OverlayFilesystem
from exactlog.storage.whole_files import publish_new, replace
from tests.support.file_trees import files_below

NAMES = ("a", "b", "c")

names = st.sampled_from(NAMES)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("write"), names, st.binary(max_size=6), st.integers(0, 12)),
        st.tuples(st.just("truncate"), names, st.integers(0, 12)),
        st.tuples(st.just("create"), names),
        st.tuples(st.just("remove"), names),
        st.tuples(st.just("rename"), names, names),
        st.tuples(st.just("link"), names, names),
    ),
    max_size=12,
)
contents = st.dictionaries(names, st.binary(max_size=12))


def below_of(content):
    filesystem = MemoryFilesystem()
    filesystem.make_directories("/data/sub")
    for name, each in content.items():
        filesystem.open(f"/data/{name}", create=True).write_at((each,), 0)
    return filesystem


def carry_out(filesystem, operation, name, *arguments):
    """What came of it: nothing, or the kind of the error."""
    path = f"/data/{name}"
    try:
        match operation, arguments:
            case "write", (content, position):
                filesystem.open(path).write_at((content[:2], content[2:]), position)
            case "truncate", (size,):
                filesystem.open(path).truncate(size)
            case "create", ():
                filesystem.open(path, create=True, exclusive=True)
            case "remove", ():
                filesystem.remove(path)
            case "rename", (other,):
                filesystem.rename(path, f"/data/{other}")
            case "link", (other,):
                filesystem.link(path, f"/data/{other}")
    except OSError as error:
        return type(error)
    return None


@given(contents, operations)
def test_it_is_what_it_would_be_if_the_changes_were_made(content, todo):
    below, expected = below_of(content), below_of(content)
    overlay = OverlayFilesystem(below)

    for operation in todo:
        assert carry_out(overlay, *operation) == carry_out(expected, *operation)

    assert files_below(overlay) == files_below(expected)
    assert sorted(overlay.list_names("/data")) == sorted(expected.list_names("/data"))
    for name in NAMES:
        path = f"/data/{name}"
        assert overlay.exists(path) == expected.exists(path)
        if expected.exists(path):
            assert overlay.file_size(path) == expected.file_size(path)
            for position in range(14):
                found = overlay.open(path, read_only=True).read_at(3, position)
                assert found == expected.open(path).read_at(3, position)
    assert files_below(below) == {f"/data/{name}": each for name, each in content.items()}


@given(contents, operations)
def test_what_is_not_said_to_be_changed_is_as_it_was(content, todo):
    below = below_of(content)
    overlay = OverlayFilesystem(below)
    for operation in todo:
        carry_out(overlay, *operation)

    before, after = files_below(below), files_below(overlay)
    changed = overlay.changed_paths()
    assert {path for path, each in after.items() if before.get(path) != each} <= set(changed)
    assert set(changed) <= set(after)


def test_what_is_written_as_it_is_there_is_no_change():
    overlay = OverlayFilesystem(below_of({"a": b"content"}))

    overlay.open("/data/a").write_at((b"ten",), 3)
    overlay.open("/data/a").truncate(7)

    assert overlay.changed_paths() == []


def test_documents_get_their_names_in_it():
    below = below_of({"b": b"torn"})
    overlay = OverlayFilesystem(below)

    publish_new(overlay, "/data", "a", b"new", durable=True)
    replace(overlay, "/data", "b", b"whole", durable=True)

    assert overlay.changed_paths() == ["/data/a", "/data/b"]
    assert sorted(overlay.list_names("/data")) == ["a", "b", "sub"]
    assert (overlay.read_file("/data/a"), overlay.read_file("/data/b")) == (b"new", b"whole")
    assert files_below(below) == {"/data/b": b"torn"}
    with pytest.raises(FileExistsError):
        publish_new(overlay, "/data", "a", b"other", durable=True)


def test_a_file_needs_its_directory_and_directories_stay_as_they_are():
    overlay = OverlayFilesystem(below_of({}))

    with pytest.raises(FileNotFoundError):
        overlay.open("/data/missing/a", create=True)
    overlay.make_directories("/data/sub")
    with pytest.raises(OSError, match="Read-only"):
        overlay.make_directories("/data/other")
    with pytest.raises(OSError, match="Read-only"):
        overlay.remove_directory("/data/sub")


def test_syncs_have_nothing_to_do():
    overlay = OverlayFilesystem(below_of({"a": b""}))
    file = overlay.open("/data/a")
    file.write_at((b"x",), 0)

    file.sync()
    file.sync_data()
    overlay.sync_directory("/data")
    overlay.open_tree("/data").sync_all()
