"""Stores that Spark replicates into, in a file and in a real Apache Cassandra: what is in them, what befalls them."""

import contextlib
import itertools
import random
import sqlite3
import threading

import pytest

from exactlog.cli.exit_codes import ExitCode, exit_code_of
from exactlog.core.journal.errors import Retriable
from exactlog.pipeline import ReplicationSettings, replicate_journals
from exactlog.testing import Broker
from tests.support import journal_seed_tables
from tests.support.journal_seed_tables import SeedTables
from tests.support.journal_streams import (
    SEGMENT_SIZE,
    RandomWriters,
    StandingClock,
    actions_in,
    check_model,
    check_whole,
    contents_at,
    replicate_embedded,
    write_actions,
)
from tests.support.spark_programs import files_of_workers_bounded

pytestmark = pytest.mark.peer

TOPIC = "orders"
PARTITIONS = 2
KEPT = {"retention.ms": -1}
"""Actions of tests are old."""
SMALL, LARGE = 3_000, 1_000_000
"""Bytes of a micro-batch: so that there are many, or one."""
PAUSE_S_MAX = 0.3
ROOM_BYTES = 32 * 1024
"""What a file may still grow before its disk is full."""
WRITE_VERSION_AT = 18
"""In the header of a file of SQLite: a version that is not known may be read, and not written to."""
keyspaces = (f"replicated_{number}" for number in itertools.count(1))


@pytest.fixture
def broker():
    with Broker() as running:
        running.create_topic(TOPIC, partitions=PARTITIONS, config=KEPT)
        yield running


@pytest.fixture
def writers(request):
    return RandomWriters(request.node.name, TOPIC, PARTITIONS)


@pytest.fixture
def written(broker, writers):
    """The broker, with many actions in its log."""
    write_actions(broker, writers, 250)
    return broker


@pytest.fixture
def cassandra(apache_cassandra):
    return f"cassandra://127.0.0.1:{apache_cassandra.port}/{next(keyspaces)}"


@pytest.fixture
def replicate(spark, broker, tmp_path):
    """Replicates by one checkpoint, on and on."""

    def run(store, *, topic=TOPIC, segment_size=SEGMENT_SIZE, bytes_per_batch=LARGE, **more):
        settings = ReplicationSettings(
            clock=StandingClock(), segment_size=segment_size, bytes_per_batch=bytes_per_batch
        )
        where = {"path": broker.data_dir, "topics": [topic], "checkpoint": tmp_path / "checkpoint"}
        return replicate_journals(spark, store=store, settings=settings, **where, **more)

    return run


@pytest.fixture
def check(broker, tmp_path):
    """Whether a store is as the replicator in one process leaves it, and as the model of its log says."""

    def compare(store):
        (tmp_path / "embedded.db").unlink(missing_ok=True)
        replicate_embedded(broker, tmp_path / "embedded.db", TOPIC)
        found = contents_at(store, TOPIC)
        assert found == contents_at(f"sqlite:{tmp_path}/embedded.db", TOPIC)
        check_model(found, actions_in(broker, TOPIC))

    return compare


# --- what is in them --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["store", pytest.param("cassandra", marks=pytest.mark.slow)])
def test_every_line_of_the_tables_is_so(broker, replicate, request, kind):
    """Seed 003: how records can be stored, and what is expected of each action."""
    url = request.getfixturevalue(kind)
    broker.create_topic(journal_seed_tables.TOPIC, partitions=journal_seed_tables.PARTITIONS, config=KEPT)
    tables = SeedTables(broker, url, lambda size: replicate(url, topic=journal_seed_tables.TOPIC, segment_size=size))
    tables.fill()
    tables.check()


@pytest.mark.slow
def test_what_comes_into_apache_cassandra_is_what_comes_into_a_file(broker, writers, replicate, check, cassandra):
    for _ in range(2):
        write_actions(broker, writers, 150)
        report = replicate(cassandra, bytes_per_batch=8_000)

    check(cassandra)
    assert report.lag == 0


# --- what befalls them ------------------------------------------------------------------------------------------------


def ended_in_one_sentence(error):
    """The job knows what has happened, and says what to do; a program ends with the code for it."""
    assert "\n" not in str(error)
    assert error.hint
    return exit_code_of(error)


@pytest.mark.slow
def test_a_node_that_is_killed_while_spark_replicates_ends_the_job_and_the_next_one_goes_on(
    written, replicate, check, cassandra, apache_cassandra
):
    """It may come back without the last it was told: the store then has less than the job knows of."""
    pause_s, killing = random.Random(5).random() * PAUSE_S_MAX, []

    def kill_soon(line):
        if line.startswith("batch 1:"):
            killing.append(threading.Timer(pause_s, apache_cassandra.kill))
            killing[0].start()

    with pytest.raises(Retriable) as raised:
        replicate(cassandra, bytes_per_batch=SMALL, progress=kill_soon)
    assert ended_in_one_sentence(raised.value) == ExitCode.UNAVAILABLE
    killing[0].join()
    with pytest.raises(Retriable) as raised:
        replicate(cassandra)
    assert ended_in_one_sentence(raised.value) == ExitCode.UNAVAILABLE

    apache_cassandra.start_again()
    assert replicate(cassandra).lag == 0
    check(cassandra)


def test_a_file_that_can_grow_no_more_ends_the_job_and_the_next_one_goes_on(written, replicate, check, store, path):
    with contextlib.ExitStack() as full:

        def bound_files(line):
            if line.startswith("batch 1:"):
                size = path.with_name(f"{path.name}-wal").stat().st_size
                full.enter_context(files_of_workers_bounded(size + ROOM_BYTES))

        with pytest.raises(Retriable, match="disk I/O error") as raised:
            replicate(store, bytes_per_batch=SMALL, progress=bound_files)
    assert ended_in_one_sentence(raised.value) == ExitCode.UNAVAILABLE
    found = contents_at(store, TOPIC)
    assert sum(pointer.offset for pointer in found["pointers"].values()) > 0
    check_whole(found, actions_in(written, TOPIC))

    assert replicate(store).lag == 0
    check(store)


@contextlib.contextmanager
def read_only(path):
    """As a file system is that was mounted so, for whomever."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = path.read_bytes()[WRITE_VERSION_AT]
    _write_byte(path, before + 1)
    yield
    _write_byte(path, before)


def _write_byte(path, value):
    with path.open("r+b") as file:
        file.seek(WRITE_VERSION_AT)
        file.write(bytes([value]))


def test_a_file_that_may_only_be_read_ends_the_job_and_the_next_one_goes_on(written, replicate, check, store, path):
    told = []
    first = replicate(store, bytes_per_batch=SMALL, progress=told.append, is_stopping=lambda: len(told) > 2)
    assert (first.is_stopped, first.lag > 0) == (True, True)
    before = contents_at(store, TOPIC)

    with read_only(path):
        with pytest.raises(Retriable, match="readonly") as raised:
            replicate(store)
        assert ended_in_one_sentence(raised.value) == ExitCode.UNAVAILABLE
    assert contents_at(store, TOPIC) == before

    assert replicate(store).lag == 0
    check(store)
