"""What `consume` and `log read` print of transactions."""

import pytest

from tests.support.transactions import BrokerWriter

ABORT, COMMIT = "\u0000\u0000\u0000\u0000", "\u0000\u0000\u0000\u0001"


@pytest.fixture
def writer(exactlog_broker, exactlog_topic):
    return BrokerWriter(exactlog_broker, exactlog_topic)


@pytest.fixture
def partition(exactlog_broker, exactlog_topic):
    return exactlog_broker.data_dir / f"topic={exactlog_topic}-part=0"


@pytest.fixture(params=["consume", "log read"])
def read(request, run, exactlog_topic, partition):
    """Reads the topic by a running broker, or its directory beside it; the rows."""
    command = ("consume", exactlog_topic) if request.param == "consume" else ("log", "read", partition)

    def read_rows(*options):
        ran = run(*command, *options)
        assert ran.code == 0, ran.err
        return ran.rows

    return read_rows


def values(rows):
    return [row["value"] for row in rows]


def test_committed_records_are_read_unless_told_otherwise(read, writer):
    writer.write(1, b"aborted")
    writer.write(2, b"committed")
    writer.abort(1)
    writer.commit(2)
    writer.write(1, b"open")
    writer.plain(b"behind it")

    assert values(read()) == ["committed"]
    assert values(read("--isolation", "read_committed")) == ["committed"]
    assert values(read("--isolation", "read_uncommitted")) == ["aborted", "committed", "open", "behind it"]


def test_a_record_says_what_is_known_of_its_transaction(read, writer):
    writer.write(7, b"a", b"b")
    writer.write(7, b"c")
    writer.commit(7)
    writer.plain(b"d")

    fields = ("offset", "transactional", "control", "producer_id", "producer_epoch", "sequence")
    assert [tuple(row[field] for field in fields) for row in read("--control")] == [
        (0, True, False, 7, 0, 0),
        (1, True, False, 7, 0, 1),
        (2, True, False, 7, 0, 2),
        (3, True, True, 7, 0, None),
        (4, False, False, None, None, None),
    ]


def test_markers_are_printed_on_request_and_say_how_the_transaction_ended(read, writer):
    writer.write(1, b"a")
    writer.abort(1)
    writer.write(1, b"b")
    writer.commit(1)

    assert values(read()) == ["b"]
    assert [(row["offset"], row["key"]) for row in read("--control") if row["control"]] == [(1, ABORT), (3, COMMIT)]
    everything = read("--control", "--isolation", "read_uncommitted")
    assert [row["offset"] for row in everything] == [0, 1, 2, 3]


def test_an_isolation_level_there_is_not_is_a_wrong_use(run, exactlog_topic, partition, writer):
    writer.plain(b"a")

    for command in (("consume", exactlog_topic), ("log", "read", partition)):
        ran = run(*command, "--isolation", "dirty")
        assert (ran.code, ran.error["code"]) == (2, "usage")


def test_a_reader_that_stops_at_the_end_does_not_wait_for_an_open_transaction(run, exactlog_topic, writer):
    writer.plain(b"a")
    writer.write(1, b"b")

    assert values(run("consume", exactlog_topic).rows) == ["a"]
    assert values(run("consume", exactlog_topic, "--to", 2).rows) == ["a"]


def test_what_was_open_as_of_a_version_is_not_printed_for_that_version(run, partition, writer):
    writer.write(1, b"a")
    writer.plain(b"b")
    writer.commit(1)

    assert values(run("log", "read", partition, "--as-of", 2).rows) == []
    assert values(run("log", "read", partition, "--as-of", 2, "--isolation", "read_uncommitted").rows) == ["a", "b"]
    assert values(run("log", "read", partition, "--as-of", 3).rows) == ["a", "b"]


def test_people_see_which_line_is_a_marker(run, partition, writer):
    writer.write(1, b"a")
    writer.commit(1)

    lines = run("log", "read", partition, "--control", "-o", "table").out.splitlines()

    assert [line.endswith("(transaction marker)") for line in lines[1:]] == [False, True]
