"""`produce --expect-version --txn-id`: all lines in one delta version, or none."""

import io
import json

import pytest

from exactlog.cli.commands import produce as produce_command
from exactlog.cli.commands.produce import Manner, Terms, append_lines
from exactlog.core.codec.compression import Compression
from exactlog.core.deltalog.append_terms import Unavailable
from exactlog.core.model.errors import UnavailableError


def values(run, topic):
    return [row["value"] for row in run("consume", topic).rows]


def test_all_lines_become_one_version_and_where_they_are_is_printed(run, exactlog_topic):
    ran = run("produce", exactlog_topic, "--expect-version", 0, stdin=b"a\nb\nc\n")

    assert (ran.code, ran.err) == (0, "")
    assert ran.rows == [
        {
            "topic": exactlog_topic,
            "partition": 0,
            "first_offset": 0,
            "last_offset": 2,
            "records": 3,
            "delta_version": 1,
        }
    ]
    assert values(run, exactlog_topic) == ["a", "b", "c"]


def test_the_output_is_that_of_every_produce(run, exactlog_topic):
    ran = run("produce", exactlog_topic, "--txn-id", "t", "-o", "json", stdin=b"a\n")
    table = run("produce", exactlog_topic, "--txn-id", "u", "-o", "table", stdin=b"a\n").out.splitlines()

    assert [row["delta_version"] for row in ran.value] == [1]
    assert table[0].split() == ["PARTITION", "FIRST", "OFFSET", "LAST", "OFFSET", "RECORDS", "DELTA", "VERSION"]
    assert table[1].split() == ["0", "1", "1", "1", "2"]


def test_another_version_is_a_conflict_that_names_both_and_says_what_next(run, exactlog_topic):
    run("produce", exactlog_topic, "--expect-version", 0, stdin=b"a\n")

    ran = run("produce", exactlog_topic, "--expect-version", 0, stdin=b"b\n")

    assert (ran.code, ran.out) == (4, "")
    assert ran.error == {
        "code": "version-conflict",
        "message": f"{exactlog_topic}-0 is at version 1, not 0: nothing was appended",
        "retryable": False,
        "kafka_error": 95,
        "hint": "See what came since; then --expect-version 1 may hold.",
    }
    assert run("produce", exactlog_topic, "--expect-version", 1, stdin=b"b\n").code == 0
    assert values(run, exactlog_topic) == ["a", "b"]


def test_the_same_lines_under_the_same_id_are_appended_once(run, exactlog_topic):
    first = run("produce", exactlog_topic, "--txn-id", "t", stdin=b"a\nb\n")
    again = run("produce", exactlog_topic, "--txn-id", "t", "--expect-version", 0, stdin=b"a\nb\n")

    assert first.code == again.code == 0
    assert again.rows == first.rows
    assert values(run, exactlog_topic) == ["a", "b"]


def test_other_lines_under_the_same_id_are_refused(run, exactlog_topic):
    run("produce", exactlog_topic, "--txn-id", "t", stdin=b"a\n")

    ran = run("produce", exactlog_topic, "--txn-id", "t", stdin=b"b\n")

    assert (ran.code, ran.error["code"], ran.error["retryable"]) == (4, "payload-differs", False)
    assert "nothing was appended: txn_id 't' came before with another payload" in ran.error["message"]
    assert values(run, exactlog_topic) == ["a"]


@pytest.fixture
def wide_topic(exactlog_broker, exactlog_topic):
    name = f"{exactlog_topic}-wide"
    exactlog_broker.create_topic(name, partitions=3)
    return name


def test_among_several_partitions_one_must_be_named(run, wide_topic):
    unnamed = run("produce", wide_topic, "--txn-id", "t", "-k", "key", stdin=b"a\n")
    named = run("produce", wide_topic, "--txn-id", "t", "-p", 2, stdin=b"a\n")

    assert (unnamed.code, unnamed.error["hint"]) == (2, "Name the partition with -p.")
    assert named.rows[0]["partition"] == 2


def test_lines_may_name_the_partition_if_they_agree(run, wide_topic):
    def lines(*partitions):
        return "\n".join(json.dumps({"value": "v", "partition": partition}) for partition in partitions).encode()

    agreed = run("produce", wide_topic, "--json", "--txn-id", "t", stdin=lines(1, None, 1))
    divided = run("produce", wide_topic, "--json", "--txn-id", "u", stdin=lines(1, 2))
    overruled = run("produce", wide_topic, "--json", "--txn-id", "u", "-p", 0, stdin=lines(1, 2))

    assert (agreed.rows[0]["partition"], agreed.rows[0]["records"]) == (1, 3)
    assert divided.code == 2
    assert "2 come into question" in divided.error["message"]
    assert (overruled.rows[0]["partition"], overruled.rows[0]["records"]) == (0, 2)


@pytest.mark.parametrize("lines", [b"", b"\n\n"])
def test_no_lines_are_nothing_to_append(run, exactlog_topic, lines):
    ran = run("produce", exactlog_topic, "--json", "--txn-id", "t", stdin=lines)

    assert (ran.code, ran.error["message"]) == (2, "there is no line to append")


def test_a_line_that_is_no_record_keeps_all_of_them_out(run, exactlog_topic):
    ran = run("produce", exactlog_topic, "--json", "--txn-id", "t", stdin=b'{}\n{}\n{"value":1}\n')

    assert ran.code == 2
    assert ran.error["message"].startswith("line 3 is no record")
    assert values(run, exactlog_topic) == []


def test_more_than_one_request_can_carry_is_not_read_to_its_end(run, exactlog_topic, monkeypatch):
    monkeypatch.setattr(produce_command, "FRAME_BYTES_MAX", 3)

    ran = run("produce", exactlog_topic, "--txn-id", "t", stdin=b"ab\nc\nd\n")
    fits = run("produce", exactlog_topic, "--txn-id", "t", stdin=b"ab\nc\n")

    assert (ran.code, fits.code) == (2, 0)
    assert ran.error["message"] == "the lines have more than 3 bytes, too many for one append"


def test_lines_that_are_too_many_for_one_batch_are_refused_together(run, exactlog_broker, exactlog_topic):
    name = f"{exactlog_topic}-narrow"
    exactlog_broker.create_topic(name, config={"max.message.bytes": 100})

    ran = run("produce", name, "--txn-id", "t", stdin=b"0123456789\n" * 10)

    assert (ran.code, ran.error["kafka_error"]) == (1, 10)
    assert values(run, name) == []


def test_a_topic_there_is_not_is_not_created(run):
    assert run("produce", "there-is-no-such-topic", "--txn-id", "t", stdin=b"a\n").code == 3
    assert run("produce", "there-is-no-such-topic", "--txn-id", "t", "-p", 0, stdin=b"a\n").code == 3


@pytest.mark.parametrize("version", ["-1", "x"])
def test_a_version_that_is_none_is_wrong_usage(run, exactlog_topic, version):
    assert run("produce", exactlog_topic, "--expect-version", version, stdin=b"a\n").code == 2


class FullClient:
    """A client of a broker whose disk is full."""

    async def append(self, topic, partition, records, **terms):
        return Unavailable("no space left")


async def test_a_disk_that_refuses_is_unavailable():
    manner = Manner("t", 0, None, (), Compression.NONE, is_json=False)
    terms = Terms(expected_version=None, txn_id="t")

    with pytest.raises(UnavailableError, match="no space left") as caught:
        await append_lines(FullClient(), manner, terms, io.BytesIO(b"a\n"))
    assert caught.value.retryable
