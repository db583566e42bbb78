"""What a power cut may leave of a `FailingFilesystem`, against models that keep a copy of every state there was."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from exactlog.testing import FailingFilesystem
from tests.support.file_trees import files_below, make_directories, tree, written

SECTOR = 8
positions = st.integers(0, 40)
changes_of_a_file = st.lists(
    st.one_of(
        st.tuples(st.just("write_at"), positions, st.binary(min_size=1, max_size=20)),
        st.tuples(st.just("truncate"), positions),
        st.tuples(st.just("sync")),
    ),
    max_size=20,
)


class BytesModel:
    """What a file, each of its sectors and its size have been since the last sync: copies of all of it, every time."""

    def __init__(self):
        self.content = b""
        self.states = [b""]
        self.sizes = {0}

    def write_at(self, position, content):
        size = len(self.content)
        padded = self.content.ljust(position, b"\0")
        self.content = padded[:position] + content + padded[position + len(content) :]
        bounds = range(0, len(self.content), SECTOR)
        self.change({bound for bound in bounds if bound > max(size, position)} | {len(self.content)})

    def truncate(self, size):
        self.content = self.content[:size].ljust(size, b"\0")
        self.change({size})

    def change(self, sizes):
        self.states.append(self.content)
        self.sizes |= sizes

    def sync(self):
        self.states = [self.content]
        self.sizes = {len(self.content)}

    def check(self, found):
        assert len(found) in self.sizes
        for start in range(0, len(found), SECTOR):
            sector = found[start : start + SECTOR]
            assert any(
                state[start : start + len(sector)].ljust(len(sector), b"\0") == sector for state in self.states
            ), (start, sector, self.states)


@given(changes=changes_of_a_file, seed=st.integers())
def test_a_power_cut_finds_each_sector_and_the_size_as_they_were_at_some_time_since_the_last_sync(changes, seed):
    files, model = FailingFilesystem(sector_bytes=SECTOR), BytesModel()
    file = files.open("/a", create=True)
    files.sync_directory("/")
    for name, *arguments in changes:
        getattr(model, name)(*arguments)
        match name:
            case "write_at":
                file.write_at(arguments[1:], arguments[0])
            case _:
                getattr(file, name)(*arguments)

        assert files.read_file("/a") == model.content
        assert files.after_power_cut().read_file("/a") == model.states[0]
        model.check(files.after_power_cut(Random(seed)).read_file("/a"))


PLACES = ["/d/a", "/d/b", "/e/a", "/e/b"]
places = st.sampled_from(PLACES)
changes_of_names = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["create", "remove"]), places),
        st.tuples(st.sampled_from(["rename", "rename", "link"]), places, places),
        st.tuples(st.just("sync_directory"), st.sampled_from(["/d", "/e"])),
    ),
    max_size=20,
)


class NamesModel:
    """What each name has stood for since the last sync of its directory: the number of a file, or None."""

    def __init__(self):
        self.states = {place: [None] for place in PLACES}
        self.created = 0

    @property
    def live(self):
        return {place: states[-1] for place, states in self.states.items() if states[-1] is not None}

    def carry_out(self, files, name, *paths):
        live, source, target = self.live, paths[0], paths[-1]
        match name:
            case "create" if source not in live:
                self.created += 1
                written(files, source, b"%d" % self.created)
                self.states[source].append(b"%d" % self.created)
            case "remove" if source in live:
                files.remove(source)
                self.states[source].append(None)
            case "rename" if source in live and live[source] != live.get(target):
                files.rename(source, target)
                self.states[target].append(live[source])
                self.states[source].append(None)
            case "link" if source in live and target not in live:
                files.link(source, target)
                self.states[target].append(live[source])
            case "sync_directory":
                files.sync_directory(source)
                for place in PLACES:
                    if place.startswith(source):
                        self.states[place] = self.states[place][-1:]

    def check(self, found):
        for place, states in self.states.items():
            assert found.get(place) in states
        certain = {states[0] for states in self.states.values()} - {None}
        assert certain & set(self.live.values()) <= set(found.values()), "a file that had a name and has one is there"


@given(changes=changes_of_names, seed=st.integers())
def test_a_power_cut_finds_each_name_as_it_was_at_some_time_since_the_last_sync_and_loses_no_file(changes, seed):
    files, model = FailingFilesystem(), NamesModel()
    make_directories(files, "/d", "/e")
    for change in changes:
        model.carry_out(files, *change)

        certain = {place: states[0] for place, states in model.states.items() if states[0] is not None}
        assert files_below(files.after_power_cut()) == certain
        assert files_below(files.after_kill()) == model.live
        model.check(files_below(files.after_power_cut(Random(seed))))


DIRECTORIES = ["/a", "/b", "/a/a", "/a/b", "/b/a", "/b/b"]
directories = st.sampled_from(DIRECTORIES)
changes_of_directories = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["make_directories", "remove_directory"]), directories),
        st.tuples(st.just("sync_directory"), st.sampled_from(["/", *DIRECTORIES])),
        st.tuples(st.just("rename"), directories, directories),
        st.tuples(st.sampled_from(["write", "write_and_sync"]), directories),
    ),
    max_size=25,
)


def carry_out(files, name, path, *target):
    """One of these changes, or nothing; what is written to a file is written to no other one."""
    try:
        if name.startswith("write"):
            written(files, f"{path}/file", b"%03d" % len(files.operations), synced=name == "write_and_sync")
        else:
            getattr(files, name)(path, *target)
    except OSError:
        pass


def sync_everything(files):
    files.sync_directory("/")
    for path, content in tree(files).items():
        if content is None:
            files.sync_directory(path)
        else:
            files.open(path).sync()


@given(before=changes_of_directories, after=changes_of_directories, seed=st.integers())
def test_once_everything_is_synced_any_power_cut_finds_all_of_it(before, after, seed):
    files = FailingFilesystem()
    for change in before:
        carry_out(files, *change)
    sync_everything(files)

    assert tree(files.after_power_cut()) == tree(files.after_power_cut(Random(seed))) == tree(files.after_kill())
    synced = tree(files)
    for change in after:
        if "sync" not in change[0]:
            carry_out(files, *change)
    assert tree(files.after_power_cut()) == synced, "nothing is certain but what was"


@given(changes=changes_of_directories, seed=st.integers())
def test_a_power_cut_finds_each_directory_once_and_none_gone_that_was_only_renamed(changes, seed):
    files = FailingFilesystem()
    for change in changes:
        carry_out(files, *change)
    certain, found = (files_below(files.after_power_cut(chance)) for chance in (None, Random(seed)))
    for names in (certain, found):
        contents = [content for content in names.values() if content]
        assert len(contents) == len(set(contents))
    still_there = set(files_below(files).values())
    assert {content for content in certain.values() if content} & still_there <= set(found.values())
