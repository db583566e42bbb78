import io
import json
import uuid

import pytest

from exactlog.cli import client as client_module
from exactlog.cli.commands.produce import Manner, acknowledged_rows, produce_lines
from exactlog.cli.errors import PartlyDoneError
from exactlog.cli.output import RowPrinter
from exactlog.client.ports import ProducedRecord
from exactlog.core.codec.compression import Compression
from exactlog.core.model.errors import UnavailableError


@pytest.fixture
def wide_topic(exactlog_broker):
    name = f"wide-{uuid.uuid4().hex[:8]}"
    exactlog_broker.create_topic(name, partitions=3)
    return name


def values(ran):
    return [row["value"] for row in ran.rows]


def test_a_line_is_a_record(run, exactlog_topic):
    ran = run("produce", exactlog_topic, stdin=b"a\n\nc")

    assert (ran.code, sum(row["records"] for row in ran.rows)) == (0, 3)
    assert values(run("consume", exactlog_topic)) == ["a", "", "c"]


def test_where_records_went_is_printed_range_by_range(run, exactlog_topic):
    rows = [
        *run("produce", exactlog_topic, stdin=b"a\nb\n").rows,
        *run("produce", exactlog_topic, "-p", 0, stdin=b"c\n").rows,
    ]

    assert rows == [
        {"topic": exactlog_topic, "partition": 0, "first_offset": 0, "last_offset": 1, "records": 2},
        {"topic": exactlog_topic, "partition": 0, "first_offset": 2, "last_offset": 2, "records": 1},
    ]


def test_people_see_a_table_of_ranges(run, exactlog_topic):
    lines = run("produce", exactlog_topic, "-o", "table", stdin=b"a\nb\n").out.splitlines()

    assert [line.split() for line in lines] == [
        ["PARTITION", "FIRST", "OFFSET", "LAST", "OFFSET", "RECORDS"],
        ["0", "0", "1", "2"],
    ]


def test_no_lines_are_no_records(run, exactlog_topic):
    ran = run("produce", exactlog_topic)

    assert (ran.code, ran.out) == (0, "")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_key_headers_and_compression_are_those_asked_for(run, exactlog_topic, codec):
    run("produce", exactlog_topic, "-k", "k", "-H", "a=1", "-H", "b=", "-z", codec, stdin=b"v\n" * 3)

    rows = run("consume", exactlog_topic).rows

    assert [(row["key"], row["headers"], row["value"]) for row in rows] == [("k", [["a", "1"], ["b", ""]], "v")] * 3


def test_equal_keys_go_to_one_partition_and_a_named_partition_goes_before_the_key(run, wide_topic):
    run("produce", wide_topic, "-k", "same", stdin=b"1\n2\n3\n")
    run("produce", wide_topic, "-k", "same", "-p", 0, stdin=b"4\n")
    run("produce", wide_topic, "-k", "same", "-p", 1, stdin=b"5\n")

    rows = run("consume", wide_topic).rows

    assert len({row["partition"] for row in rows if row["value"] in "123"}) == 1
    assert {row["value"]: row["partition"] for row in rows if row["value"] in "45"} == {"4": 0, "5": 1}


def test_what_is_consumed_can_be_produced_again(run, wide_topic, exactlog_broker):
    lines = [
        {"key": "k", "value": {"base64": "/wA="}, "headers": [["h", None]], "timestamp": 5, "partition": 2},
        {"value": None, "key": "t", "partition": 0},
    ]
    run("produce", wide_topic, "--json", stdin="\n\n".join(map(json.dumps, lines)).encode())
    copy = f"{wide_topic}-copy"
    exactlog_broker.create_topic(copy, partitions=3)

    run("produce", copy, "--json", stdin=run("consume", wide_topic).out.encode())

    def told(topic):
        kept = ("partition", "offset", "timestamp", "key", "value", "headers")
        return sorted(json.dumps([row[name] for name in kept]) for row in run("consume", topic).rows)

    assert told(copy) == told(wide_topic)
    assert len(told(copy)) == 2


def test_a_partition_on_the_command_line_goes_before_those_in_the_lines(run, wide_topic):
    run("produce", wide_topic, "--json", "-p", 1, stdin=b'{"value":"x","partition":2}')

    assert [row["partition"] for row in run("consume", wide_topic).rows] == [1]


def test_lines_can_come_from_a_file(run, exactlog_topic, tmp_path):
    file = tmp_path / "lines"
    file.write_bytes(b"from file\n")

    run("produce", exactlog_topic, "--file", file)

    assert values(run("consume", exactlog_topic)) == ["from file"]


def test_a_line_that_is_no_record_is_named(run, exactlog_topic):
    ran = run("produce", exactlog_topic, "--json", stdin=b'{}\n\n{"value":1}\n')

    assert ran.code == 2
    assert ran.error["message"].startswith("line 3 is no record")
    assert values(run("consume", exactlog_topic)) == []


def test_what_arrived_before_such_a_line_is_written_and_counted(run, exactlog_topic):
    ran = run("produce", exactlog_topic, "--json", stdin=b'{}\n{"value":1}')  # the end of a line sends it

    assert ran.code == 8
    assert ran.error["message"].startswith("1 records are written, then: line 2 is no record")
    assert values(run("consume", exactlog_topic)) == [None]


def test_a_key_beside_json_lines_is_refused(run, exactlog_topic):
    assert run("produce", exactlog_topic, "--json", "-k", "x").code == 2


def test_a_partition_there_is_not_is_an_error(run, exactlog_topic):
    assert run("produce", exactlog_topic, "-p", 9, stdin=b"x").code == 3
    assert run("consume", exactlog_topic, "-p", 9).code == 3


class FailingClient:
    """Acknowledges the first batch, not the second."""

    def __init__(self):
        self.batches = 0

    async def produce(self, topic, records, *, partition, compression):
        self.batches += 1
        if self.batches == 2:
            raise UnavailableError("the broker has gone", hint="Wait.")
        return tuple(ProducedRecord(0, offset) for offset in range(len(records)))


async def test_an_error_after_some_records_says_how_many_are_written():
    manner = Manner("t", None, None, (), Compression.NONE, is_json=True)
    lines = io.BytesIO(b'{"partition":0}\n{"partition":0}\n{"partition":1}\n')

    with pytest.raises(PartlyDoneError, match="2 records are written, then: the broker has gone") as caught:
        await produce_lines(FailingClient(), manner, lines, RowPrinter("jsonl", heading="", line_of=str))
    assert (caught.value.retryable, caught.value.hint) == (True, "Wait.")


def test_ranges_are_contiguous_and_offsets_may_be_unknown():
    produced = [ProducedRecord(0, 5), ProducedRecord(1, 7), ProducedRecord(0, 6), ProducedRecord(0, 9)]
    rows = acknowledged_rows("t", produced)

    assert [(row["partition"], row["first_offset"], row["last_offset"], row["records"]) for row in rows] == [
        (0, 5, 6, 2),
        (0, 9, 9, 1),
        (1, 7, 7, 1),
    ]


def test_reading_stops_at_the_ends_of_the_beginning_and_within_the_bounds_asked_for(run, exactlog_topic):
    run("produce", exactlog_topic, stdin=b"0\n1\n2\n3\n4\n")

    assert values(run("consume", exactlog_topic)) == ["0", "1", "2", "3", "4"]
    assert values(run("consume", exactlog_topic, "--from", 3)) == ["3", "4"]
    assert values(run("consume", exactlog_topic, "--from", 1, "--to", 3)) == ["1", "2"]
    assert values(run("consume", exactlog_topic, "--to", "end", "-n", 2)) == ["0", "1"]
    assert values(run("consume", exactlog_topic, "--to", 99, "-n", 9)) == ["0", "1", "2", "3", "4"]
    assert values(run("consume", exactlog_topic, "--from", "end")) == []
    assert values(run("consume", exactlog_topic, "--from", 99)) == []
    assert values(run("consume", exactlog_topic, "--from", 3, "--to", 1)) == []


def test_reading_by_time(run, exactlog_topic):
    lines = [{"value": str(hour), "timestamp": hour * 3_600_000} for hour in range(1, 4)]
    run("produce", exactlog_topic, "--json", stdin="\n".join(map(json.dumps, lines)).encode())

    assert values(run("consume", exactlog_topic, "--from", "@1970-01-01T01:30:00Z")) == ["2", "3"]
    assert values(run("consume", exactlog_topic, "--to", "@7200000")) == ["1"]
    assert values(run("consume", exactlog_topic, "--from", "@-1h")) == []


def test_following_goes_on_behind_the_ends_of_the_beginning(run, exactlog_topic):
    run("produce", exactlog_topic, stdin=b"0\n1\n")

    assert values(run("consume", exactlog_topic, "-f", "-n", 2)) == ["0", "1"]
    assert values(run("consume", exactlog_topic, "-f", "--to", 1)) == ["0"]


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_both_isolation_levels_show_records_without_a_transaction(run, exactlog_topic, isolation):
    run("produce", exactlog_topic, stdin=b"x\n")

    assert values(run("consume", exactlog_topic, "--isolation", isolation, "--control")) == ["x"]


def test_people_see_a_line_a_record(run, exactlog_topic):
    run("produce", exactlog_topic, "-k", "k", stdin=b"v\n")

    heading, line = run("consume", exactlog_topic, "-o", "table").out.splitlines()

    assert heading.split() == ["PARTITION", "OFFSET", "TIME", "KEY", "VALUE"]
    assert line.split()[:2] == ["0", "0"]
    assert line.split()[-2:] == ["k", "v"]


def test_a_topic_there_is_not_is_an_error(run):
    assert run("consume", "there-is-no-such-topic").code == 3


@pytest.mark.parametrize(("arguments", "code"), [(["--as-of", "3"], 1), (["--from", "yesterday"], 2), (["-n", "0"], 2)])
def test_what_cannot_be_read_that_way_is_refused(run, exactlog_topic, arguments, code):
    assert run("consume", exactlog_topic, *arguments).code == code


def test_an_older_version_is_pointed_to_the_directory(run, exactlog_topic):
    assert f"topic={exactlog_topic}-part=N --as-of 3" in run("consume", exactlog_topic, "--as-of", 3).error["hint"]


def test_an_address_that_is_none_is_an_error(run):
    ran = run("-b", "host:port", "topic", "list")

    assert (ran.code, ran.error["code"]) == (2, "invalid-url")


def test_a_broker_that_cannot_be_reached_is_unavailable(run, monkeypatch):
    monkeypatch.setattr(client_module, "DEADLINE_MS", 1)

    ran = run("-b", "127.0.0.1:1", "topic", "list")

    assert (ran.code, ran.error["code"], ran.error["retryable"]) == (6, "unavailable", True)
