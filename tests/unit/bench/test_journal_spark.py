"""The measurement of jobs of journals: what is written, what is made of what was seen, one process in its smallest."""

import asyncio
import json
import os
import subprocess
import sys
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.json import encode
from msgspec.structs import replace

from bench.journal_jobs import Job, Resident, family_of, resident_of_family
from bench.journal_load import Appended, Load, read_times, records_of
from bench.journal_load import main as write
from bench.journal_spark import CASSANDRA, SQLITE, column, markdown
from bench.journal_spark_cases import Engine, Look, Measuring, Sizes, lags_of
from bench.spark_progress import MicroBatch, micro_batches, settings_of_progress
from bench.workloads import MeasurementError
from exactlog.core.journal.event_journal_format import decode_action
from exactlog.core.model.ids import Offset, TimestampMs, TopicPartition
from exactlog.core.record.record_format import Record
from exactlog.testing import Broker
from tests.support.replicated_store import log_ends

LOAD = Load(bootstrap="127.0.0.1:1", topic="orders", partitions=4, journals=6, appends=18, events=3, expire_every=2)
SMALLEST = Sizes(events=200, journals=6, rate=50, seconds=1, warm_seconds=1)


# --- what is written --------------------------------------------------------------------------------------------------


def actions_of(load):
    for offset, record in enumerate(records_of(load)):
        place = TopicPartition(load.topic, record.partition)
        read = Record(Offset(offset), TimestampMs(1), record.key, record.value, record.headers)
        yield decode_action(place, read)


def test_each_journal_is_appended_to_in_turn_and_its_numbers_have_no_gap():
    last = defaultdict(int)
    for record in actions_of(LOAD):
        assert record.action.range.first == last[record.key.id] + 1
        last[record.key.id] = record.action.range.last

    assert len(last) == LOAD.journals
    assert set(last.values()) == {9}


def test_a_second_load_goes_on_where_the_first_has_ended():
    half = LOAD.appends // 2
    first, second = replace(LOAD, appends=half), replace(LOAD, appends=half, before=half)

    ranges = [(record.key, record.action.range) for load in (first, second) for record in actions_of(load)]

    assert ranges == [(record.key, record.action.range) for record in actions_of(LOAD)]


def test_what_is_written_comes_to_stand_where_its_times_say(tmp_path):
    times = tmp_path / "times.json"
    with Broker(config={"in.memory": True}) as broker:
        broker.create_topic(LOAD.topic, partitions=LOAD.partitions)
        write([encode(replace(LOAD, bootstrap=broker.bootstrap_servers, times=str(times))).decode()])
        ends = log_ends(broker, LOAD.topic)

    found = [(each.partition, each.offset) for each in read_times(times)]
    assert sorted(found) == [(partition, offset) for partition, end in enumerate(ends) for offset in range(end)]


# --- what is made of what was seen ------------------------------------------------------------------------------------


def test_a_lag_ends_with_the_first_look_that_finds_the_append():
    looks = [Look(1.0, {}), Look(2.0, {0: 4}), Look(3.0, {0: 4, 1: 0}), Look(5.0, {0: 9, 1: 7})]
    appended = [Appended(0, 4, 1.5), Appended(0, 5, 1.5), Appended(1, 0, 2.75)]

    assert lags_of(appended, looks) == [0.5, 3.5, 0.25]


def test_an_append_that_never_came_is_no_lag():
    with pytest.raises(MeasurementError, match="offset 5 of partition 0"):
        lags_of([Appended(0, 5, 1.0)], [Look(2.0, {0: 4})])


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30))
def test_a_look_after_each_append_tells_each_lag(gaps):
    appended = [Appended(0, number, float(number * 10)) for number in range(len(gaps))]
    looks = [Look(each.at_s + gap, {0: each.offset}) for each, gap in zip(appended, gaps, strict=True)]

    assert lags_of(appended, looks) == [float(gap) for gap in gaps]


def test_micro_batches_are_those_that_had_rows(tmp_path):
    settings = settings_of_progress(tmp_path / "progress")
    folder = tmp_path / "progress" / "eventlog_v2_local-1"
    folder.mkdir()
    told = [
        {"Event": "SparkListenerApplicationStart", "App Name": "exactlog"},
        *(
            {
                "Event": "org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent",
                "progress": {
                    "batchId": batch,
                    "durationMs": {"addBatch": 7, "triggerExecution": 250},
                    "sources": [{"numInputRows": rows, "description": "exactlog"}],
                },
            }
            for batch, rows in enumerate([40, 0, 2])
        ),
    ]
    (folder / "events_1_local-1").write_text("".join(f"{json.dumps(each, separators=(',', ':'))}\n" for each in told))
    (folder / "appstatus_local-1").write_text("")

    assert micro_batches(tmp_path / "progress") == [MicroBatch(40, 0.25), MicroBatch(2, 0.25)]
    assert f"spark.eventLog.dir=file://{tmp_path}/progress" in settings


def test_a_family_is_a_process_and_all_below_it():
    assert sorted(family_of(2, {2: 1, 3: 2, 4: 3, 5: 1, 6: 4})) == [2, 3, 4, 6]


def test_the_memory_of_a_family_has_that_of_what_it_started():
    alone = resident_of_family(os.getpid())
    started = "import time; kept = bytearray(50_000_000); print('ready', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", started], stdout=subprocess.PIPE) as child:
        try:
            child.stdout.readline()
            assert resident_of_family(os.getpid()).all_mb > alone.all_mb + 40
        finally:
            child.kill()
    assert resident_of_family(child.pid) == Resident(0.0, 0.0)


def test_numbers_of_spark_stand_beside_their_ratio_to_one_process_with_the_same_store():
    numbers = defaultdict(lambda: defaultdict(list))
    numbers["events/s"] = {
        column(Engine.EMBEDDED, SQLITE): [100, 300],
        column(Engine.SPARK, SQLITE): [50],
        column(Engine.SPARK, CASSANDRA): [20],
    }

    assert markdown(numbers).splitlines() == [
        "|  | one process, SQLite | Spark, SQLite | Spark, Apache Cassandra 5.0.8 |",
        "| --- | ---: | ---: | ---: |",
        "| events/s | 200 | 50.0 (0.25x) | 20.0 |",
    ]


# --- commands under measurement ---------------------------------------------------------------------------------------


def test_what_a_command_prints_is_told_with_its_time():
    with Job("--version") as job:
        at_s, printed = job.wait()

    assert at_s > job.began_s
    assert printed
    with pytest.raises(MeasurementError, match="does not say 'hello'"):
        job.wait_until_said("hello")


def test_a_command_that_fails_is_no_measurement():
    with Job("log", "verify", "/nowhere") as job, pytest.raises(MeasurementError, match="ended with"):
        job.wait()


@pytest.mark.slow
def test_one_process_is_measured_in_all_that_it_does(tmp_path, monkeypatch):
    """Without what runs on Spark, and so without the look at what that has replicated."""
    monkeypatch.setattr(Measuring, "_measure_verify_store", lambda _self: None)
    found = {}
    with Broker(tmp_path / "data") as broker:
        stores = "sqlite:///{}/{}.db".format
        notes = {Engine.EMBEDDED: found.__setitem__}
        measuring = Measuring(broker.bootstrap_servers, tmp_path, lambda name: stores(tmp_path, name), notes, SMALLEST)
        asyncio.run(measuring.run([Engine.EMBEDDED]))

    assert all(number > 0 for number in found.values())
    assert "purge-expired, from its start, journals/s" in found
    assert "verify a log, each record, from its start, records/s" in found
