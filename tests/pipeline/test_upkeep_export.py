"""The events of a store in a table of the lake: each once, run after run, whatever happens between and during runs."""

import asyncio
import shutil
import sqlite3
from contextlib import closing

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from exactlog.core.journal.keys import JournalKey
from exactlog.core.model.errors import DecodeError, DirectoryLockedError, NotFoundError
from exactlog.journal.stores.errors import NewerSchemaError
from exactlog.journal.stores.event_journal_store_format import payload_columns
from exactlog.journal.stores.store_url import journal_store
from exactlog.pipeline import upkeep_export
from exactlog.pipeline.export_plan import LogReplacedError
from exactlog.pipeline.export_run import ExportConflictError, TargetError
from exactlog.pipeline.upkeep_export import export_journals
from exactlog.testing import Broker
from exactlog.testing.journal_store_contract.action_script import rows_of
from tests.support.replicated_store import replicate, rows_in, write_journals

pytestmark = pytest.mark.peer

TOPICS = ("flights", "trains")


@pytest.fixture(scope="module")
def broker():
    with Broker(config={"in.memory": True}) as running:
        yield running


@pytest.fixture
def topics(broker, tmp_path):
    """Two topics of this test's own."""
    names = tuple(f"{topic}-{tmp_path.name}" for topic in TOPICS)
    for name in names:
        broker.create_topic(name, partitions=2)
    return names


@pytest.fixture(params=["delta", "parquet"])
def kind(request):
    return request.param


@pytest.fixture
def target(tmp_path):
    return tmp_path / "exported"


@pytest.fixture
def write(broker, store, topics):
    """Writes, and replicates all that is written."""

    def run(writing):
        write_journals(broker, store, writing)
        for topic in topics:
            replicate(broker, store, topic)

    return run


@pytest.fixture(autouse=True)
def filled(write, topics):
    async def fill(journals):
        for topic in topics:
            for number in range(6):
                journal = journals[topic, f"{number}"]
                await journal.append(
                    [{"n": number}, "text", b"\x00\xff", None], headers={"from": "test"}, metadata=[number]
                )
            await journals[topic, "1"].delete(3)
            await journals[topic, "2"].purge()
            await journals[topic, "2"].append(["another life"], event_ids=["e1"], expire_after="30 days")

    write(fill)


@pytest.fixture
def export(spark, store, target, kind):
    given = {"store": store, "target": target, "kind": kind, "share_count": 4}
    return lambda **more: export_journals(spark, **given | more)


@pytest.fixture
def exported(kind, target):
    """Gives the rows of the target, by topic, id and number."""
    read = {"delta": lambda: DeltaTable(target).to_pyarrow_table(), "parquet": lambda: _files(target)}[kind]
    return lambda: _sorted_rows(read().to_pylist())


@pytest.fixture
def stored(store, topics):
    """Gives the same, as the store's readers have them, of the topics that are named."""
    return lambda *named: _stored(store, named or topics)


def _sorted_rows(rows):
    for row in rows:
        assert str(row.pop("date")) == f"{row['timestamp']:%Y-%m-%d}"
        row.pop("batch", None)
        row["timestamp"] = round(row["timestamp"].timestamp() * 1_000)
        row["headers"] = dict(row["headers"])
    return sorted(rows, key=lambda row: (row["topic"], row["id"], row["record_id"], row["seq_nr"]))


def _files(target):
    return ds.dataset(target, format="parquet", partitioning="hive").to_table()


def _stored(store, topics):

    async def read():
        rows = []
        async with journal_store(store) as opened:
            for topic in topics:
                async for key_id in opened.ids(topic):
                    rows += [(key_id, topic, row) for row in await rows_of(opened, JournalKey(topic, key_id))]
        return rows

    found = []
    for key_id, topic, row in asyncio.run(read()):
        payload = payload_columns(row.event.payload)
        found.append(
            {
                "topic": topic,
                "id": key_id,
                "seq_nr": row.seq_nr,
                "partition": row.place.partition,
                "offset": row.place.offset,
                "timestamp": row.timestamp_ms,
                "record_id": str(row.record_id),
                "event_id": row.event_id,
                "tags": sorted(row.event.tags),
                "payload_type": payload.kind,
                "payload_txt": payload.text,
                "payload_bin": payload.content,
                "metadata": upkeep_export.encode_row_metadata(row.metadata),
                "headers": dict(row.headers),
                "origin": row.origin,
                "version": row.version,
            }
        )
    return sorted(found, key=lambda row: (row["topic"], row["id"], row["record_id"], row["seq_nr"]))


def test_every_column_of_every_event_is_what_the_store_has(export, exported, stored, topics, path):
    before, told = rows_in(path), []

    report = export(progress=told.append)

    assert exported() == stored()
    assert report.rows == len(before["journal"]) == sum(part.rows for part in report.partitions)
    assert (report.is_stopped, report.topics_left) == (False, 0)
    assert {(part.topic, part.partition) for part in report.partitions} == {
        (topic, number) for topic in topics for number in (0, 1)
    }
    assert told[-1].startswith(f"topic {topics[1]}, 2 of 2: share 4 of 4: ")
    assert rows_in(path) == before


def test_a_later_run_adds_what_came_since_and_keeps_what_is_gone(export, write, exported, stored, topics):
    export()
    before = exported()
    assert export().rows == 0

    async def go_on(journals):
        await journals[topics[0], "0"].append(["more"])
        await journals[topics[0], "new"].append(["1", "2"])
        await journals[topics[0], "3"].purge()
        await journals[topics[0], "3"].append(["again"])

    write(go_on)
    report = export()

    assert report.rows == 4
    found = exported()
    assert [row for row in before if row not in found] == []
    assert [row for row in stored() if row not in found] == []
    assert len(found) == len(before) + 4


def test_topics_that_are_named_are_exported_and_the_others_by_a_later_run(export, exported, stored, topics):
    export(topics=[topics[1]])
    assert exported() == stored(topics[1])

    export()
    assert exported() == stored()
    with pytest.raises(NotFoundError, match="nothing of topic nosuch is replicated"):
        export(topics=["nosuch"])


def test_a_run_that_is_stopped_leaves_whole_topics_and_a_later_one_goes_on(export, exported, stored, topics):
    told = []

    first = export(progress=told.append, is_stopping=lambda: len(told) >= 3)

    assert (first.is_stopped, first.topics_left) == (True, 1)
    assert exported() == stored(topics[0])
    assert export().topics_left == 0
    assert exported() == stored()


def test_a_run_that_dies_before_it_commits_is_repeated_and_nothing_comes_twice(export, exported, stored, topics):
    def die(line):
        if "share 4 of 4" in line and topics[1] in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(progress=die)
    assert exported() == stored(topics[0])

    export()

    assert exported() == stored()


def test_of_two_runs_into_one_table_the_second_adds_nothing(export, exported, stored, topics, kind):
    def other(line):
        if "share 4 of 4" in line and topics[0] in line:
            export()

    with pytest.raises({"delta": ExportConflictError, "parquet": DirectoryLockedError}[kind]):
        export(progress=other)
    export()

    assert exported() == stored()


def test_what_cannot_be_exported_is_one_sentence_and_nothing_is_seen(export, kind, target, path, tmp_path):
    change(path, "UPDATE journal SET payload_type = 'nonsense' WHERE id = '4' AND seq_nr = 1")
    with pytest.raises(DecodeError, match=r"journal \S+/4 cannot be read: payload_type is"):
        export()
    assert not list(target.glob("batch=*"))
    assert kind != "delta" or DeltaTable(target).to_pyarrow_table().num_rows == 0

    with pytest.raises(NotFoundError, match="there is no store"):
        export(store=f"sqlite:{tmp_path / 'nosuch.db'}")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("x")
    with pytest.raises(TargetError):
        export(target=tmp_path / "full")
    change(path, "UPDATE setting SET value = '99' WHERE key = 'schema-version'")
    with pytest.raises(NewerSchemaError):
        export(target=tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_an_older_copy_of_the_store_is_refused(export, write, path, topics, tmp_path):
    shutil.copy(path, tmp_path / "older.db")

    async def go_on(journals):
        for number in range(6):
            await journals[topics[0], f"{number}"].append(["more"])

    write(go_on)
    export()

    with pytest.raises(LogReplacedError, match="it is another store, or an older copy"):
        export(store=f"sqlite:{tmp_path / 'older.db'}")


def change(path, statement):
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(statement).rowcount >= 1
