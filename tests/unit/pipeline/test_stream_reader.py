"""Streams of directories, as Spark would ask for them, against what was written."""

import json
import pickle
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.model.errors import NotFoundError, UnsupportedError, VersionExpiredError, VersionUnknownError
from exactlog.core.model.ids import TopicPartition
from exactlog.pipeline.stream_offsets import (
    OtherLogError,
    StreamOffsetError,
    StreamRecordsRemovedError,
    StreamVersionExpiredError,
)
from exactlog.storage.filesystem import OsFilesystem
from exactlog.storage.table_reader import TableReader, open_table
from exactlog.storage.vacuum import vacuum
from exactlog.testing import Broker
from tests.support.partitions import TOPIC_ID, DataDirectory
from tests.support.stream_queries import StreamQuery, through_json
from tests.support.transactions import TransactionalWriter

CONFIG = TopicConfig(segment_bytes=2_000, index_interval_bytes=200)
PARTITIONS = 2


@dataclass
class Written:
    """A partition, and what is known of it by construction."""

    writer: TransactionalWriter
    end: int = 0
    seen: dict[int, bytes] = field(default_factory=dict)  # offset: value, of what is decided and committed
    open: dict[int, dict[int, bytes]] = field(default_factory=dict)  # by producer


class Log:
    """A data directory that is written to by hand."""

    def __init__(self, root, *, topic_id=TOPIC_ID):
        self.root = str(root)
        self.topic_id = topic_id
        self.disk = DataDirectory(OsFilesystem(), root=self.root, config=CONFIG)
        self.written = {}

    def add_partition(self, number, topic="orders"):
        place = TopicPartition(topic, number)
        self.disk.store.create(place, self.topic_id, config=CONFIG, created_ms=self.disk.clock.now_ms())
        log = self.disk.store.open(place, self.topic_id, CONFIG)
        self.written[place] = Written(TransactionalWriter(self.disk, log))
        return place

    def make_again(self, place):
        """Deletes the topic, and makes it again."""
        shutil.rmtree(self.directory(place))
        self.disk.restart()
        self.topic_id = uuid4()
        return self.add_partition(place.partition, place.topic)

    def directory(self, place):
        return f"{self.root}/topic={place.topic}-part={place.partition}"

    def write_versions(self, place, count):
        """So many versions, of one record each."""
        for _ in range(count):
            self.write(place, 1)

    def remove_before(self, place, offset):
        self.disk.move_log_start(self.written[place].writer.partition, offset)

    def vacuum(self, place, *, versions_keep):
        """Lets old versions expire; the oldest that is left, which is behind what there was."""
        report = vacuum(OsFilesystem(), self.directory(place), versions_keep=versions_keep)
        assert report.versions_expired, report
        return report.oldest_version

    def write(self, place, count, *, producer_id=None):
        written = self.written[place]
        values = [b"%d" % (written.end + n) for n in range(count)]
        records = dict(enumerate(values, written.end))
        if producer_id is None:
            written.writer.in_a_round(written.writer.plain, *values)
            written.seen |= records
        else:
            written.writer.in_a_round(written.writer.write, producer_id, *values)
            written.open.setdefault(producer_id, {}).update(records)
        written.end += count

    def finish(self, place, producer_id, *, is_commit):
        written = self.written[place]
        records = written.open.pop(producer_id, None)
        if records is None:
            return
        written.writer.in_a_round(written.writer.end, producer_id, is_commit=is_commit)
        written.end += 1
        if is_commit:
            written.seen |= records

    def finish_all(self):
        for place, written in self.written.items():
            for producer_id in list(written.open):
                self.finish(place, producer_id, is_commit=True)

    def rows(self, place):
        """What a reader of committed records sees in the end."""
        return [
            (place.topic, place.partition, offset, value, number)
            for number, (offset, value) in enumerate(sorted(self.written[place].seen.items()))
        ]

    def close(self):
        self.disk.close()


@pytest.fixture
def log(tmp_path):
    log = Log(tmp_path)
    yield log
    log.close()


def rows_of(query, place):
    return [row for row in query.rows if row[:2] == tuple(place)]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, PARTITIONS - 1), st.integers(1, 8)),
        st.tuples(st.just("begin"), st.integers(0, PARTITIONS - 1), st.integers(1, 3)),
        st.tuples(st.just("commit"), st.integers(0, PARTITIONS - 1), st.integers(1, 3)),
        st.tuples(st.just("abort"), st.integers(0, PARTITIONS - 1), st.integers(1, 3)),
        st.tuples(st.just("batch"), st.sampled_from([None, "planned", "read"])),
        st.just(("join",)),
        st.just(("restart",)),
    ),
    min_size=4,
    max_size=20,
)


@given(steps=STEPS, rows_max=st.none() | st.integers(1, 12), bytes_max=st.none() | st.integers(1, 900))
def test_every_committed_row_comes_once_in_order_whatever_happens_in_between(steps, rows_max, bytes_max):
    limits = {"maxRowsPerTrigger": rows_max, "maxBytesPerTrigger": bytes_max}
    with tempfile.TemporaryDirectory() as folder:
        log = Log(folder)
        for number in range(PARTITIONS):
            log.add_partition(number)
        query = StreamQuery(path=folder, **{name: value for name, value in limits.items() if value})
        for step in steps:
            take(log, query, step)
        log.finish_all()
        while query.run_batch():
            pass
        assert query.run_batch() is False
        log.close()
        for place in log.written:
            assert rows_of(query, place) == log.rows(place)
        assert rows_max is None or all(len(batch) <= rows_max for batch in query.batches)


def take(log, query, step):
    places = sorted(log.written)
    match step:
        case "write", index, count:
            log.write(places[index], count)
        case "begin", index, producer_id:
            log.write(places[index], 2, producer_id=producer_id)
        case "commit" | "abort" as outcome, index, producer_id:
            log.finish(places[index], producer_id, is_commit=outcome == "commit")
        case "batch", dies:
            query.run_batch(dies=dies)
        case ("join",):
            log.write(log.add_partition(len(places)), 3)
        case ("restart",):
            query.restart()


# --- where a stream begins ---------------------------------------------------------------------------------------


def offset_of(query, number=0, topic="orders"):
    """What the checkpoint says of a partition."""
    return json.loads(query.committed[-1])["partitions"][topic][str(number)]


def values_of(query):
    return [int(row[3]) for row in query.rows]


def test_the_checkpoint_names_version_offset_and_rows(log):
    place = log.add_partition(0)
    log.write(place, 3)
    log.write(place, 4)
    query = StreamQuery(path=log.root, maxRowsPerTrigger=5)
    query.run_batch()
    assert offset_of(query) == {"version": 2, "offset": 5, "rows": 5, "from": 0}
    query.run_batch()
    assert offset_of(query) == {"version": 2, "offset": 7, "rows": 7}
    assert json.loads(query.committed[-1])["topics"] == {"orders": str(TOPIC_ID)}


def test_rows_are_counted_only_where_they_are_asked_for(log):
    place = log.add_partition(0)
    log.write(place, 3)
    query = StreamQuery(columns=("offset",), path=log.root)
    query.run_batch()
    assert offset_of(query) == {"version": 1, "offset": 3, "from": 0}
    log.write(place, 3)
    query.columns = ("offset", "row_seq")
    with pytest.raises(StreamOffsetError, match=r"rows of topic orders, partition 0 have not been counted .*offset 3"):
        query.restart().run_batch()


@pytest.mark.parametrize(
    ("start", "expected"), [(None, 9), ("earliest", 9), ("latest", 0), (0, 9), (1, 9), (2, 6), (3, 3)]
)
def test_a_stream_begins_where_it_is_told(log, start, expected):
    place = log.add_partition(0)
    for _ in range(3):
        log.write(place, 3)
    query = StreamQuery(path=log.root, **({} if start is None else {"startingVersion": start}))
    query.run_batch()
    assert values_of(query) == list(range(9 - expected, 9))
    log.write(place, 2)
    query.run_batch()
    assert values_of(query) == list(range(9 - expected, 11))
    assert [row[4] for row in query.rows] == list(range(expected + 2))


def test_a_version_that_is_not_there_yet_is_no_beginning(log):
    log.add_partition(0)
    with pytest.raises(VersionUnknownError, match="topic orders, partition 0, version 4"):
        StreamQuery(path=log.root, startingVersion=4).run_batch()


def test_a_version_that_was_vacuumed_is_no_beginning(log):
    place = log.add_partition(0)
    log.write_versions(place, 40)
    log.vacuum(place, versions_keep=5)
    with pytest.raises(VersionExpiredError, match="topic orders, partition 0, version 4"):
        StreamQuery(path=log.root, startingVersion=4).run_batch()
    query = StreamQuery(path=log.root)
    query.run_batch()
    assert values_of(query) == list(range(40))


@pytest.mark.parametrize("dies", ["planned", "read"])
def test_a_first_batch_that_is_made_again_begins_where_it_began(log, dies):
    """`latest` is later by then."""
    place = log.add_partition(0)
    log.write(place, 3)
    query = StreamQuery(path=log.root, startingVersion="latest")
    query.run_batch()  # nothing yet
    log.write(place, 3)
    query.run_batch(dies=dies)
    log.write(place, 3)
    while query.run_batch():
        pass
    assert values_of(query) == [3, 4, 5, 6, 7, 8]


def test_what_comes_between_the_beginning_and_a_death_in_the_first_batch_is_not_lost(log):
    place = log.add_partition(0)
    log.write(place, 3)
    query = StreamQuery(path=log.root, startingVersion="latest").restart()
    start = through_json(query.reader.initialOffset())
    log.write(place, 3)
    query.planned.append(json.dumps(query.reader.latestOffset(start, ReadAllAvailable())))
    query.restart()
    log.write(place, 3)
    while query.run_batch():
        pass
    assert values_of(query) == [3, 4, 5, 6, 7, 8]


def test_a_version_behind_the_last_stable_offset_begins_where_it_was_added(log):
    place = log.add_partition(0)
    log.write(place, 2, producer_id=1)
    log.write(place, 3)
    query = StreamQuery(path=log.root, startingVersion=2)
    query.run_batch()
    assert query.rows == []
    log.finish(place, 1, is_commit=True)
    query.run_batch()
    assert values_of(query) == [2, 3, 4]


# --- limits ------------------------------------------------------------------------------------------------------


def test_all_that_is_available_comes_in_batches_within_the_limit_and_nothing_newer(log):
    places = [log.add_partition(number) for number in range(2)]
    for place in places:
        log.write(place, 25)
    query = StreamQuery(path=log.root, maxRowsPerTrigger=10)
    query.restart().reader.prepareForTriggerAvailableNow()
    for place in places:
        log.write(place, 25)
    late = log.add_partition(2)
    log.write(late, 5)
    while query.run_batch():
        pass
    assert [len(batch) for batch in query.batches] == [10] * 5
    assert all({row[1] for row in batch} == {0, 1} for batch in query.batches)
    query.restart()
    assert query.run_available() == 6
    for place in [*places, late]:
        assert rows_of(query, place) == log.rows(place)
    assert query.run_available() == 0


def test_a_limit_below_the_number_of_partitions_comes_to_each(log):
    for number in range(3):
        log.write(log.add_partition(number), 4)
    query = StreamQuery(path=log.root, maxRowsPerTrigger=1)
    for _ in range(3):
        query.run_batch()
    assert sorted(row[1] for row in query.rows) == [0, 1, 2]


def test_a_limit_in_bytes_is_kept(log):
    places = [log.add_partition(number) for number in range(2)]
    for place in places:
        for _ in range(30):
            log.write(place, 2)
    query = StreamQuery(path=log.root, maxBytesPerTrigger=1_000)
    count = query.run_available()
    table = open_table(Path(log.root, "topic=orders-part=0"))
    size = table.size_between(0, 60)
    assert count >= 2 * size / 1_000
    for batch in query.batches:
        offsets = [[row[2] for row in batch if row[1] == number] for number in range(2)]
        assert all(len(each) % 2 == 0 for each in offsets)  # batches are not cut
        assert sum(table.size_between(each[0], each[-1] + 1) for each in offsets if each) <= 1_000


def test_a_batch_larger_than_the_limit_in_bytes_goes_through(log):
    place = log.add_partition(0)
    log.write(place, 50)
    log.write(place, 50)
    query = StreamQuery(path=log.root, maxBytesPerTrigger=10)
    assert query.run_available() == 2
    assert [len(batch) for batch in query.batches] == [50, 50]


def test_both_limits_hold_together(log):
    place = log.add_partition(0)
    for _ in range(10):
        log.write(place, 10)
    query = StreamQuery(path=log.root, maxRowsPerTrigger=35, maxBytesPerTrigger=500)
    query.run_available()
    assert max(len(batch) for batch in query.batches) < 35
    query = StreamQuery(path=log.root, maxRowsPerTrigger=5, maxBytesPerTrigger=100_000)
    query.run_available()
    assert max(len(batch) for batch in query.batches) == 5


def test_no_limit_is_kept_where_spark_wants_all(log):
    place = log.add_partition(0)
    log.write(place, 9)
    reader = StreamQuery(path=log.root, maxRowsPerTrigger=2).restart().reader
    assert reader.getDefaultReadLimit() == ReadMaxRows(2)
    end = reader.latestOffset(through_json(reader.initialOffset()), ReadAllAvailable())
    assert end["partitions"]["orders"]["0"]["offset"] == 9
    assert reader.reportLatestOffset()["partitions"]["orders"]["0"] == {"version": 1, "offset": 9}
    with pytest.raises(UnsupportedError, match="ReadMinRows"):
        reader.latestOffset(end, ReadMinRows(2))


# --- tasks -------------------------------------------------------------------------------------------------------


def tasks_of(query):
    start, end = (json.loads(text) for text in [json.dumps(query.reader.initialOffset()), query.committed[0]])
    return query.reader.partitions(start, end)


def test_many_small_segments_are_one_task(log):
    place = log.add_partition(0)
    log.write_versions(place, 120)
    assert len(open_table(Path(log.root, "topic=orders-part=0")).snapshot().segments) > 3
    query = StreamQuery(path=log.root)
    query.run_batch()
    (task,) = tasks_of(query)
    assert [(piece.start_offset, piece.end_offset) for piece in task.pieces] == [(0, 120)]
    assert len(pickle.dumps(task)) < 1_000


def test_what_is_much_is_several_tasks_with_rows_counted_through(log):
    place = log.add_partition(0)
    log.write_versions(place, 60)
    query = StreamQuery(path=log.root, maxBytesPerPartition=1_000)
    query.run_batch()
    assert len(tasks_of(query)) > 3
    assert rows_of(query, place) == log.rows(place)


def test_between_batches_only_what_is_new_of_the_delta_log_is_read(log, monkeypatch):
    place = log.add_partition(0)
    log.write_versions(place, 30)
    query = StreamQuery(path=log.root).restart()
    query.run_batch()
    monkeypatch.setattr(TableReader, "_load", lambda _: pytest.fail("the table was opened anew"))
    monkeypatch.setattr(query, "read", query.reader.partitions)  # workers open it
    for _ in range(3):
        assert not query.run_batch()
        log.write(place, 3)
        assert query.run_batch()


# --- what ends a stream ------------------------------------------------------------------------------------------


def test_records_that_were_removed_before_they_were_read_are_told(log):
    place = log.add_partition(0)
    log.write(place, 5)
    query = StreamQuery(path=log.root)
    query.run_batch()
    log.write(place, 5)
    log.remove_before(place, 8)
    with pytest.raises(
        StreamRecordsRemovedError,
        match=r"at offset 5 of version 1 in topic orders, partition 0, and the records before offset 8 .*version 3",
    ) as told:
        query.run_batch()
    assert "new checkpoint" in told.value.hint
    assert len(query.planned) == 1  # no batch is planned that cannot be read


def test_records_that_were_removed_after_they_were_read_are_no_loss(log):
    place = log.add_partition(0)
    log.write(place, 5)
    query = StreamQuery(path=log.root)
    query.run_batch()
    log.remove_before(place, 5)
    log.write(place, 5)
    query.restart().run_batch()
    assert values_of(query) == list(range(10))


def test_records_that_were_removed_in_a_planned_batch_are_told(log):
    place = log.add_partition(0)
    log.write(place, 5)
    query = StreamQuery(path=log.root)
    query.run_batch(dies="planned")
    log.remove_before(place, 3)
    with pytest.raises(StreamRecordsRemovedError, match=r"offset 0 .*partition 0, and the records before offset 3"):
        query.run_batch()


def test_versions_that_were_vacuumed_before_they_were_read_are_told(log):
    place = log.add_partition(0)
    log.write_versions(place, 5)
    query = StreamQuery(path=log.root)
    query.run_batch()
    log.write_versions(place, 60)
    oldest = log.vacuum(place, versions_keep=5)
    with pytest.raises(
        StreamVersionExpiredError,
        match=f"offset 5 of version 5 in topic orders, partition 0, .* versions before {oldest} have been vacuumed",
    ) as told:
        query.restart().run_batch()
    assert f"startingVersion {oldest}" in told.value.hint


def test_versions_up_to_the_one_that_comes_next_may_be_vacuumed(log):
    place = log.add_partition(0)
    log.write_versions(place, 60)
    oldest = vacuum(OsFilesystem(), log.directory(place), versions_keep=5, dry_run=True).oldest_version
    query = StreamQuery(path=log.root, maxRowsPerTrigger=oldest - 1)
    query.run_batch()
    assert offset_of(query)["version"] == oldest - 1
    assert log.vacuum(place, versions_keep=5) == oldest
    while query.restart().run_batch():
        pass
    assert values_of(query) == list(range(60))


def test_versions_that_were_vacuumed_after_they_were_read_are_no_loss(log):
    place = log.add_partition(0)
    log.write_versions(place, 60)
    query = StreamQuery(path=log.root)
    query.run_batch()
    log.vacuum(place, versions_keep=5)
    log.write_versions(place, 3)
    query.restart().run_batch()
    assert values_of(query) == list(range(63))


def test_a_planned_batch_is_read_again_though_its_version_was_vacuumed(log):
    place = log.add_partition(0)
    log.write_versions(place, 5)
    query = StreamQuery(path=log.root)
    query.run_batch(dies="planned")
    log.write_versions(place, 60)
    log.vacuum(place, versions_keep=5)
    query.run_batch()
    assert values_of(query) == list(range(5))


def test_a_topic_that_was_deleted_and_made_again_is_told(log):
    place = log.add_partition(0)
    log.write(place, 5)
    query = StreamQuery(path=log.root)
    query.run_batch()
    log.make_again(place)
    log.write(place, 9)
    with pytest.raises(OtherLogError, match=r"topic orders is not the one .* offset 5 of version 1"):
        query.run_batch()  # it has the old table open
    with pytest.raises(OtherLogError, match=r"topic orders is not the one .* offset 5 of version 1"):
        query.restart().run_batch()


def test_a_topic_that_is_made_again_between_planning_and_reading_is_told(log):
    place = log.add_partition(0)
    log.write(place, 5)
    query = StreamQuery(path=log.root).restart()
    start = through_json(query.reader.initialOffset())
    (task,) = query.reader.partitions(start, through_json(query.reader.latestOffset(start, ReadAllAvailable())))
    log.make_again(place)
    log.write(place, 9)
    with pytest.raises(OtherLogError, match="topic orders was deleted and made again before offset 0 of partition 0"):
        list(query.reader.read(task))


def test_a_topic_that_is_gone_is_told(log):
    for topic in ("orders", "payments"):
        log.write(log.add_partition(0, topic), 5)
    query = StreamQuery(path=log.root)
    query.run_batch()
    shutil.rmtree(Path(log.root, "topic=orders-part=0"))
    with pytest.raises(
        NotFoundError, match=r"topic orders, partition 0, .*offset 5 of version 1, is not there"
    ) as told:
        query.run_batch()
    assert "option topics" in told.value.hint


def test_a_topic_that_is_not_asked_for_any_more_keeps_its_place(log):
    orders, payments = (log.add_partition(0, topic) for topic in ("orders", "payments"))
    for place in (orders, payments):
        log.write(place, 5)
    query = StreamQuery(path=log.root)
    query.run_batch()
    for place in (orders, payments):
        log.write(place, 5)
    query.restart(topics="payments").run_batch()
    assert offset_of(query, topic="orders")["offset"] == 5
    query.restart(topics="orders,payments").run_batch()
    for place in (orders, payments):
        assert rows_of(query, place) == log.rows(place)


def test_another_data_directory_is_told(log, tmp_path):
    place = log.add_partition(0)
    log.write(place, 5)
    query = StreamQuery(path=log.root)
    query.run_batch()
    other = Log(tmp_path / "other", topic_id=uuid4())
    other.write(other.add_partition(0), 9)
    with pytest.raises(OtherLogError, match="topic orders is not the one that the stream was reading"):
        query.restart(path=other.root).run_batch()
    other.close()


def test_a_log_that_is_shorter_than_what_was_read_is_told(log, tmp_path):
    place = log.add_partition(0)
    log.write(place, 5)
    shutil.copytree(log.root, tmp_path / "copy")
    log.write(place, 5)
    query = StreamQuery(path=log.root)
    query.run_batch()
    with pytest.raises(
        OtherLogError, match=r"offset 10 of version 2 in topic orders, partition 0, .* ends at offset 5"
    ):
        query.restart(path=tmp_path / "copy").run_batch()


def test_a_broker_in_place_of_a_directory_is_told():
    kept = {"v": 1, "partitions": {"orders": {"0": {"offset": 5, "version": 2}}}}
    with Broker(config={"in.memory": True}) as broker:
        reader = StreamQuery(bootstrap=broker.bootstrap_servers).restart().reader
        with pytest.raises(OtherLogError, match="a stream from a directory, and this one reads a broker"):
            reader.latestOffset(kept, ReadAllAvailable())
        reader.stop()


def test_an_offset_of_another_source_is_told(log):
    log.add_partition(0)
    reader = StreamQuery(path=log.root).restart().reader
    with pytest.raises(StreamOffsetError, match="not one of an exactlog stream"):
        reader.latestOffset({"orders": {"0": 5}}, ReadAllAvailable())


# --- transactions ------------------------------------------------------------------------------------------------


def test_a_batch_ends_at_the_last_stable_offset(log):
    """B107, SPARK-24720: the end came from the high watermark, and the job waited for what cannot be read."""
    place = log.add_partition(0)
    log.write(place, 3)
    log.write(place, 2, producer_id=1)
    log.write(place, 4)
    query = StreamQuery(path=log.root)
    assert query.run_available() == 1
    assert values_of(query) == [0, 1, 2]
    assert query.run_available() == 0
    log.finish(place, 1, is_commit=True)
    assert query.run_available() == 1
    assert rows_of(query, place) == log.rows(place)


def test_a_range_of_nothing_but_markers_and_aborted_records_is_passed(log):
    """B106, SPARK-25005: a range that begins or ends in them looked like loss, or was asked for again and again."""
    place = log.add_partition(0)
    log.write(place, 3, producer_id=1)
    log.finish(place, 1, is_commit=False)
    query = StreamQuery(path=log.root)
    assert query.run_available() == 1
    assert query.rows == []
    log.write(place, 2, producer_id=1)
    log.finish(place, 1, is_commit=True)
    assert query.run_available() == 1
    assert rows_of(query, place) == log.rows(place)
    assert query.run_available() == 0


def test_a_transaction_that_straddles_two_batches_is_seen_whole_once(log):
    place = log.add_partition(0)
    log.write(place, 6, producer_id=1)
    log.write(place, 6, producer_id=1)
    log.finish(place, 1, is_commit=True)
    log.write(place, 6, producer_id=2)
    log.finish(place, 2, is_commit=False)
    query = StreamQuery(path=log.root, maxRowsPerTrigger=4)
    assert query.run_available() == 5
    assert [len(batch) for batch in query.batches] == [4, 4, 4, 0, 0]
    assert rows_of(query, place) == log.rows(place)


def test_a_stream_that_goes_on_with_committed_records_alone_waits_where_it_stood(log):
    place = log.add_partition(0)
    log.write(place, 2, producer_id=1)
    query = StreamQuery(path=log.root, isolation="read_uncommitted")
    query.run_batch()
    assert len(query.rows) == 2
    query.restart(isolation="read_committed")
    assert not query.run_batch()
    log.finish(place, 1, is_commit=True)
    log.write(place, 1)
    query.run_batch()
    assert rows_of(query, place) == log.rows(place)
