"""Replication was off for a day: Spark catches up with a long head, while somebody reads all of it again and again."""

import asyncio
import sqlite3
import time
from contextlib import closing

import pytest

from exactlog.client.adapters import connect
from exactlog.core.journal.actions import Delete, Purge
from exactlog.core.journal.event_journal_format import encode_action
from exactlog.core.journal.keys import JournalKey
from exactlog.core.journal.new_actions import NewEvent, new_append
from exactlog.core.journal.payload import TextPayload
from exactlog.core.journal.read_plan import ReadPath
from exactlog.pipeline import ReplicationSettings, replicate_journals
from exactlog.testing import Broker
from tests.support.journal_reading_program import SMALL
from tests.support.spark_programs import SparkProgram

pytestmark = [pytest.mark.peer, pytest.mark.slow]

EVENTS, EVENTS_LONG = 100_000, 5_000_000
TOPIC = "orders"
PER_APPEND = 100
PRODUCED_TOGETHER = 20
BATCHES = 4
BYTES_PER_EVENT = 40
"""Of the log, and not more, so that there are that many micro-batches."""
GROWN_BYTES_MAX = 32 * 1024 * 1024
"""Some answers to fetches, and pages of the store; all events of the smaller size would take twice as much."""
PATIENCE_S = 1_000


async def fill(broker, size):
    """Event n of each journal says "n"; the first and the last event of each that are to be read."""
    reborn = 5 * PER_APPEND
    script = [
        ("whole", size * 8 // 10),
        ("deleted", size // 10),
        ("reborn", size // 10),
        ("deleted", Delete(to=size // 20)),
        ("reborn", Purge()),
        ("reborn", reborn),
        (SMALL, PER_APPEND),
    ]
    async with connect(f"kafka://{broker.bootstrap_servers}") as client:
        for key_id, action in script:
            actions = [action] if not isinstance(action, int) else list(appends_of(action))
            key = JournalKey(TOPIC, key_id)
            for at in range(0, len(actions), PRODUCED_TOGETHER):
                together = actions[at : at + PRODUCED_TOGETHER]
                now_ms = int(time.time() * 1_000)
                await client.produce(TOPIC, [encode_action(key, each, timestamp_ms=now_ms) for each in together])
    return {
        "whole": (1, size * 8 // 10),
        "deleted": (size // 20 + 1, size // 10),
        "reborn": (1, reborn),
        SMALL: (1, PER_APPEND),
    }


def appends_of(size):
    for last in range(0, size, PER_APPEND):
        events = [NewEvent(TextPayload(str(number))) for number in range(last + 1, last + PER_APPEND + 1)]
        yield new_append(events, last_seq_nr=last)


def stored(path):
    """The first and the last event of each journal, and how many there are."""
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT id, min(seq_nr), max(seq_nr), count(*) FROM journal GROUP BY id")
        return {key_id: (first, last, count) for key_id, first, last, count in found}


@pytest.mark.parametrize("size", [EVENTS, pytest.param(EVENTS_LONG, marks=pytest.mark.long)])
def test_a_long_head_comes_into_the_store_once_while_every_read_is_right(spark, store, path, tmp_path, size):
    with Broker() as broker:
        broker.create_topic(TOPIC, partitions=2)
        wanted = asyncio.run(fill(broker, size))
        order = {"log": f"kafka://{broker.bootstrap_servers}", "store": store, "topic": TOPIC, "wanted": wanted}
        with SparkProgram("tests.support.journal_reading_program", order, output=tmp_path / "reads") as reader:

            def wait_for_a_read(_):
                told, deadline = len(reader.told()), time.monotonic() + PATIENCE_S
                while len(reader.told()) == told:
                    assert not reader.has_ended, reader.output.read_text()[-3_000:]
                    assert time.monotonic() < deadline
                    time.sleep(0.02)

            for _ in range(3):
                wait_for_a_read("of the log alone")
            report = replicate_journals(
                spark,
                path=broker.data_dir,
                store=store,
                checkpoint=tmp_path / "checkpoint",
                settings=ReplicationSettings(bytes_per_batch=size * BYTES_PER_EVENT // BATCHES),
                progress=wait_for_a_read,
            )
            for _ in range(3):
                wait_for_a_read("of the store alone")
            told = reader.told()

    assert (report.forks, report.refused, report.parked) == (0, 0, ())
    assert report.batches >= BATCHES
    assert stored(path) == {key_id: (first, last, last - first + 1) for key_id, (first, last) in wanted.items()}
    assert {each["event"] for each in told} == {"read"}
    assert min(told[-1]["paths"][each.name] for each in (ReadPath.LOG, ReadPath.STORE_THEN_LOG, ReadPath.STORE)) > 0
    assert told[-1]["grown_bytes"] < GROWN_BYTES_MAX
