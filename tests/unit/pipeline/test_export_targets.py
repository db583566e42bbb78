"""What makes an export exactly once: files and how far they reach become part of the target together, or not at all."""

import datetime as dt
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import BinaryType, DateType, IntegerType, LongType, StringType, StructType, TimestampType

from exactlog.core.model.errors import DamageError, DirectoryLockedError
from exactlog.pipeline import delta_export, parquet_export
from exactlog.pipeline.export_columns import ExportColumns
from exactlog.pipeline.export_files import decode_written, write_rows
from exactlog.pipeline.export_plan import ExportedUpTo
from exactlog.pipeline.export_run import ExportConflictError, SchemaDiffersError, TargetError, local_target
from exactlog.pipeline.read_options import InvalidOptionError

PLAIN = (
    StructType()
    .add("topic", StringType())
    .add("partition", IntegerType())
    .add("offset", LongType())
    .add("timestamp", TimestampType())
    .add("delta_version", LongType())
)
ARROW = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("delta_version", pa.int64()),
    ]
)
COLUMNS = ExportColumns(ARROW, PLAIN, StructType([*PLAIN.fields]).add("date", DateType()), None)
WHEN = dt.datetime(2026, 11, 27, 10, tzinfo=dt.UTC)


def write(target, first, count):
    """Lets a task write `count` rows from offset `first` on."""
    batch = pa.RecordBatch.from_pylist(
        [
            {"topic": "t", "partition": 0, "offset": offset, "timestamp": WHEN, "delta_version": 1}
            for offset in range(first, first + count)
        ],
        schema=ARROW,
    )
    told = write_rows([batch] if count else [], root=str(target.root()), is_by_date=True)
    return [decode_written(text) for each in told for text in each.column("written").to_pylist()]


def upto(offset, version=1):
    return {("id", 0): ExportedUpTo(offset, version)}


def commit(target, files, reached, *, before=...):
    """Commits on top of what the target knows, unless something else is said to have been there."""
    if before is ...:
        known = {key: target.exported(*key) for key in reached}
        before = {key: None if done is None else done.offset for key, done in known.items()}
    target.commit(files, reached, before=before)


class Delta:
    """A Delta table as a target."""

    def target(self, path, columns=COLUMNS):
        target = delta_export._Table(path)
        target.open(columns)
        return target

    def offsets(self, path):
        return sorted(DeltaTable(path).to_pyarrow_table()["offset"].to_pylist())


class Parquet:
    """A directory of Parquet files as a target."""

    def target(self, path, columns=COLUMNS):
        target = parquet_export._Directory(path)
        target.open(columns)
        return target

    def offsets(self, path):
        found = ds.dataset(path, format="parquet", partitioning="hive")
        return sorted(found.to_table(columns=["offset"])["offset"].to_pylist()) if found.files else []


@pytest.fixture(params=[Delta(), Parquet()], ids=["delta", "parquet"])
def kind(request):
    return request.param


@pytest.fixture
def path(tmp_path):
    return tmp_path / "target"


def test_a_new_target_has_nothing_and_knows_of_nothing(kind, path):
    target = kind.target(path)

    assert target.exported("id", 0) is None
    assert kind.offsets(path) == []
    target.close()


def test_rows_and_how_far_they_reach_are_there_for_the_next_run(kind, path):
    target = kind.target(path)
    commit(target, write(target, 0, 3), upto(3, 7))
    target.close()

    again = kind.target(path)
    assert again.exported("id", 0) == ExportedUpTo(3, 7)
    assert again.exported("id", 1) is None
    assert again.exported("other", 0) is None
    commit(again, write(again, 3, 2), upto(5, 9))
    again.close()
    assert kind.offsets(path) == [0, 1, 2, 3, 4]


def test_a_version_that_is_not_told_leaves_the_one_before(kind, path):
    target = kind.target(path)
    commit(target, write(target, 0, 1), upto(1, 7))
    commit(target, write(target, 1, 1), upto(2, None))

    assert target.exported("id", 0) == ExportedUpTo(2, 7)
    target.close()


def test_a_step_without_rows_is_remembered_too(kind, path):
    """All its records were aborted."""
    target = kind.target(path)
    commit(target, [], upto(4, 2))
    target.close()

    again = kind.target(path)
    assert again.exported("id", 0) == ExportedUpTo(4, 2)
    assert kind.offsets(path) == []
    again.close()


def test_files_that_were_not_committed_are_not_read(kind, path):
    target = kind.target(path)
    commit(target, write(target, 0, 2), upto(2))
    write(target, 2, 5)

    assert kind.offsets(path) == [0, 1]
    target.close()
    again = kind.target(path)
    assert again.exported("id", 0) == ExportedUpTo(2, 1)
    assert kind.offsets(path) == [0, 1]
    again.close()


def test_what_an_attempt_wrote_that_was_given_up_does_not_come_along(kind, path):
    """An executor was lost; its task ran again elsewhere, perhaps while the first one was still writing."""
    target = kind.target(path)
    write(target, 0, 3)
    commit(target, write(target, 0, 3), upto(3))
    target.close()

    assert kind.offsets(path) == [0, 1, 2]


def test_other_columns_than_before_are_refused(kind, path):
    kind.target(path).close()
    other = ExportColumns(ARROW, PLAIN, StructType([*COLUMNS.written_type.fields]).add("extra", BinaryType()), None)
    if isinstance(kind, Parquet):  # it learns its columns with its first rows
        target = kind.target(path)
        commit(target, write(target, 0, 1), upto(1))
        target.close()

    with pytest.raises(SchemaDiffersError):
        kind.target(path, other)
    with pytest.raises(SchemaDiffersError):
        kind.target(path, ExportColumns(ARROW, PLAIN, PLAIN, None))


def test_a_directory_with_other_things_in_it_is_refused(kind, path):
    path.mkdir()
    (path / "thesis.txt").write_text("important")

    with pytest.raises(TargetError, match="has files in it"):
        kind.target(path)
    assert [each.name for each in path.iterdir()] == ["thesis.txt"]


def test_a_directory_that_cannot_be_made_is_refused_in_a_sentence(kind, tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(TargetError, match="cannot be made"):
        kind.target(tmp_path / "file" / "target")


# --- two at once -----------------------------------------------------------------------------------------------------


def test_of_two_exports_into_one_table_the_second_changes_nothing(path):
    first, second = Delta().target(path), Delta().target(path)
    files = write(second, 0, 3)
    commit(first, write(first, 0, 3), upto(3))

    with pytest.raises(ExportConflictError, match="another export has written"):
        commit(second, files, upto(3))

    assert Delta().offsets(path) == [0, 1, 2]
    assert not any((path / file.path).exists() for file in files)


def test_a_conflict_is_seen_however_much_else_was_committed_in_between(path):
    first, second = Delta().target(path), Delta().target(path)
    commit(first, write(first, 0, 3), upto(3))
    for offset in range(5):
        commit(first, [], {("other", 0): ExportedUpTo(offset)})

    with pytest.raises(ExportConflictError):
        commit(second, write(second, 0, 3), upto(3))
    assert Delta().offsets(path) == [0, 1, 2]


def test_a_run_that_was_overtaken_between_its_steps_is_turned_away(kind, path):
    """It has planned all its steps before the first; what it sees of the target afterwards may be another run's."""
    target = kind.target(path)
    commit(target, write(target, 0, 3), upto(3))

    files = write(target, 3, 2)
    commit(target, write(target, 3, 4), upto(7))  # the other run, seen already
    with pytest.raises(ExportConflictError):
        commit(target, files, upto(5), before={("id", 0): 3})

    assert kind.offsets(path) == list(range(7))
    target.close()


def test_exports_of_different_topics_may_share_a_table(path):
    first, second = Delta().target(path), Delta().target(path)
    commit(first, write(first, 0, 3), upto(3))
    commit(second, write(second, 10, 2), {("other", 0): ExportedUpTo(2)})

    assert Delta().offsets(path) == [0, 1, 2, 10, 11]
    assert Delta().target(path).exported("id", 0) == ExportedUpTo(3, 1)


def test_a_second_export_into_a_directory_of_files_is_turned_away(path):
    first = Parquet().target(path)

    with pytest.raises(DirectoryLockedError):
        Parquet().target(path)
    first.close()
    Parquet().target(path).close()


def test_without_the_lock_the_name_of_the_manifest_decides(path, monkeypatch):
    """On file systems of several machines a lock may hold nobody back."""

    class Unlocked:
        def __init__(self, directory):
            pass

        def release(self):
            pass

    monkeypatch.setattr(parquet_export, "DirectoryLock", Unlocked)
    first = Parquet().target(path)
    second = Parquet().target(path)
    first_files = write(second, 0, 3)
    first._begin()  # the second one's start took its place away
    commit(first, write(first, 0, 3), upto(3))

    with pytest.raises(ExportConflictError):
        commit(second, first_files, upto(3))
    second.close()
    assert Parquet().offsets(path) == [0, 1, 2]


def test_two_programs_that_make_a_table_at_once_make_one(path):
    script = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from tests.unit.pipeline.test_export_targets import Delta
        Delta().target(Path(sys.argv[1]))
        """
    )
    running = [subprocess.Popen([sys.executable, "-c", script, path]) for _ in range(2)]

    assert [each.wait(60) for each in running] == [0, 0]
    assert [each.name for each in (path / "_delta_log").iterdir()] == ["00000000000000000000.json"]
    assert [each.name for each in path.iterdir()] == ["_delta_log"]


# --- killed between any two steps ------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from pathlib import Path
from exactlog.pipeline import export_files, delta_export, parquet_export
from tests.unit.pipeline.test_export_targets import Delta, Parquet, commit, upto, write

kind, path, at = {"Delta": Delta, "Parquet": Parquet}[sys.argv[1]], Path(sys.argv[2]), int(sys.argv[3])
target = kind().target(path)
commit(target, write(target, 0, 2), upto(2))
seen = 0

def dying(event, arguments):
    global seen
    if event in {"open", "os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "os.listdir", "os.scandir"}:
        seen += 1
        if seen == at:
            os.kill(os.getpid(), signal.SIGKILL)

if kind is Delta:  # what delta-rs does itself is not heard of: before it and after it
    sys.addaudithook(dying)
files = write(target, 2, 3)
sys.addaudithook(dying)
commit(target, files, upto(5))
seen = -1_000_000
target.close()
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Delta", "Parquet"])
def test_a_run_that_is_killed_at_any_step_has_done_all_or_nothing_and_the_next_completes_it(name, tmp_path):
    kind = {"Delta": Delta, "Parquet": Parquet}[name]()
    outcomes = []
    for at in range(1, 100):
        path = tmp_path / f"killed-{at}"
        died = subprocess.run([sys.executable, "-c", KILLED, name, path, str(at)], check=False).returncode

        before = kind.offsets(path)
        target = kind.target(path)  # the next run
        reached = target.exported("id", 0)
        assert reached in {ExportedUpTo(2, 1), ExportedUpTo(5, 1)}
        assert kind.offsets(path) == list(range(reached.offset))
        assert before in ([0, 1], list(range(reached.offset)))  # a reader in between saw whole steps alone
        if reached.offset == 2:
            commit(target, write(target, 2, 3), upto(5))
        target.close()
        assert kind.offsets(path) == [0, 1, 2, 3, 4]
        outcomes.append(reached.offset)
        if died == 0:
            break
        assert died == -signal.SIGKILL
    assert died == 0
    assert {2, 5} <= set(outcomes)


@settings(max_examples=15)
@given(steps=st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["done", "lost", "restart"])), max_size=6))
def test_whatever_is_lost_on_the_way_each_row_is_there_once(tmp_path_factory, steps):
    for kind in (Delta(), Parquet()):
        path = tmp_path_factory.mktemp("target") / "t"
        target = kind.target(path)
        for count, fate in steps:
            reached = target.exported("id", 0)
            start = 0 if reached is None else reached.offset
            files = write(target, start, count)
            if fate != "lost":
                commit(target, files, upto(start + count))
            if fate == "restart":
                target.close()
                target = kind.target(path)
        reached = target.exported("id", 0)
        target.close()
        assert kind.offsets(path) == list(range(0 if reached is None else reached.offset))


# --- recovery of a directory of files --------------------------------------------------------------------------------


def test_a_batch_that_was_decided_but_not_named_is_completed(path, monkeypatch):
    target = Parquet().target(path)
    monkeypatch.setattr(target, "_finish", lambda manifest: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        commit(target, write(target, 0, 3), upto(3))
    target._lock.release()
    assert Parquet().offsets(path) == []

    again = Parquet().target(path)

    assert again.exported("id", 0) == ExportedUpTo(3, 1)
    assert Parquet().offsets(path) == [0, 1, 2]
    again.close()
    assert sorted(each.name for each in (path / "_exactlog").iterdir()) == ["0.json", "lock"]


def test_a_batch_whose_files_are_gone_is_damage_that_names_it(path):
    target = Parquet().target(path)
    commit(target, write(target, 0, 3), upto(3))
    target.close()
    (path / "batch=0").rename(path.parent / "elsewhere")

    with pytest.raises(DamageError, match=r"the files of batch 0 in .* are gone"):
        Parquet().target(path)


@pytest.mark.parametrize("content", [b"", b"{", b'{"layout":1}', b"[]"])
def test_a_manifest_that_is_none_is_damage_that_names_it(path, content):
    target = Parquet().target(path)
    commit(target, write(target, 0, 3), upto(3))
    target.close()
    (path / "_exactlog" / "0.json").write_bytes(content)

    with pytest.raises(DamageError, match=r"0\.json is no manifest"):
        Parquet().target(path)


# --- which directories -----------------------------------------------------------------------------------------------


def test_a_target_inside_a_log_is_refused(tmp_path):
    (tmp_path / "catalog.db").write_bytes(b"")

    for target in (tmp_path, tmp_path / "export", tmp_path / "topic=a-part=0"):
        with pytest.raises(TargetError, match="is part of the log in"):
            local_target(target)
    with pytest.raises(TargetError):
        local_target("/somewhere/topic=a-part=0")


def test_a_target_is_a_directory_of_this_machine(tmp_path):
    assert local_target(f"file://{tmp_path}/x") == tmp_path / "x"
    assert local_target("x").is_absolute()
    for text in ("s3://bucket/x", "", "hdfs://host/x"):
        with pytest.raises(InvalidOptionError):
            local_target(text)


def test_a_table_of_somebody_else_in_the_log_format_is_refused(path):
    (path / "_delta_log").mkdir(parents=True)
    (path / "_delta_log" / "00000000000000000000.json").write_text('{"version":0}\n')

    with pytest.raises(TargetError, match="is no Delta table"):
        Delta().target(path)


def test_what_a_run_told_of_outlasts_a_power_cut(path, monkeypatch):
    """delta-rs flushes nothing; every file and name of a commit is flushed before it is told of."""
    synced = []
    fsync = os.fsync

    def noted(descriptor):
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)

    target = Delta().target(path)
    (file,) = write(target, 0, 1)
    commit(target, [file], upto(1))

    folder = path / file.path
    assert {str(folder), str(folder.parent), str(path)} <= set(synced)
    assert {str(path / "_delta_log"), str(path / "_delta_log" / "00000000000000000001.json")} <= set(synced)
    target.close()
