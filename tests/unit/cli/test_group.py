import asyncio
import threading
import uuid

import pytest

from exactlog.client.adapters import connect


class Member:
    """A member of a group in a thread of its own, as a context; it has its partitions when the context is entered."""

    def __init__(self, bootstrap, group, topic):
        self._bootstrap, self._group, self._topic = bootstrap, group, topic
        self._has_read = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    async def _run(self):
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with (
            connect(f"kafka://{self._bootstrap}") as client,
            client.join_group(self._group, self._topic) as member,
        ):
            await anext(member.records())
            member.done()
            self._has_read.set()
            await self._stop.wait()

    def __enter__(self):
        self._thread.start()
        assert self._has_read.wait(timeout=60)
        return self

    def __exit__(self, *exception):
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()


@pytest.fixture
def topic(run, exactlog_topic):
    """A topic with three records in its one partition."""
    run("produce", exactlog_topic, stdin=b"a\nb\nc\n")
    return exactlog_topic


@pytest.fixture
def member(exactlog_broker, exactlog_group, topic):
    """A member that has read one record."""
    with Member(exactlog_broker.bootstrap_servers, exactlog_group, topic) as running:
        yield running


@pytest.fixture
def left_group(run, exactlog_group, topic):
    """A group whose member has read two records, and left."""
    run("consume", topic, "-g", exactlog_group, "-n", 2)
    return exactlog_group


def test_groups_are_listed(run, left_group):
    rows = {row["group"]: row for row in run("group", "list").value}

    assert rows[left_group] == {
        "group": left_group,
        "state": "Empty",
        "protocol_type": "consumer",
        "type": "classic",
    }
    assert run("group", "list", "-o", "table").out.splitlines()[0].split() == [
        *["GROUP", "STATE", "PROTOCOL", "TYPE", "TYPE"]
    ]


def test_a_group_is_described_with_its_lag(run, left_group, topic):
    described = run("group", "describe", left_group).value

    assert (described["state"], described["protocol"], described["members"], described["lag"]) == ("Empty", None, [], 1)
    assert described["offsets"] == [
        {
            "topic": topic,
            "partition": 0,
            "committed_offset": 2,
            "last_stable_offset": 3,
            "end_offset": 3,
            "lag": 1,
            "member_id": None,
            "metadata": "",
        }
    ]


def test_a_group_is_described_with_its_members(run, member, exactlog_group, topic):
    described = run("group", "describe", exactlog_group).value

    (living,) = described["members"]
    assert (described["state"], described["protocol"]) == ("Stable", "range")
    assert living["assigned"] == [{"topic": topic, "partition": 0}]
    assert (living["client_id"], living["host"], living["instance_id"]) == ("exactlog", "/127.0.0.1", None)
    (row,) = described["offsets"]
    assert (row["committed_offset"], row["lag"], row["member_id"]) == (None, None, living["member_id"])
    assert described["lag"] is None


def test_people_see_a_group_as_tables(run, member, exactlog_group, topic):
    head, members, offsets = run("group", "describe", exactlog_group, "-o", "table").out.split("\n\n")

    assert "state          Stable" in head
    assert f"{topic}:0" in members
    assert offsets.splitlines()[1].split()[:2] == [topic, "0"]


def test_offsets_of_a_topic_that_is_gone_are_shown_without_a_lag(run, left_group, topic, exactlog_broker):
    exactlog_broker.create_topic(f"{topic}-other")
    run("group", "reset-offsets", left_group, f"{topic}-other", "--to", "start")
    run("topic", "delete", f"{topic}-other", "--yes")

    described = run("group", "describe", left_group)

    assert described.code == 0
    lags = {row["topic"]: row["lag"] for row in described.value["offsets"]}
    assert lags.get(f"{topic}-other") is None
    assert lags[topic] == 1


def test_a_group_that_is_not_there_is_not_found(run):
    for arguments in (["describe", "nobody"], ["delete", "nobody", "--yes"]):
        ran = run("group", *arguments)
        assert (ran.code, ran.error["code"], ran.error["kafka_error"]) == (3, "not-found", 69)


# --- reset-offsets --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("place", "offset"), [("start", 0), ("end", 3), ("1", 1), ("99", 3), ("@0", 0)])
def test_offsets_are_set_to_a_place(run, left_group, topic, place, offset):
    (row,) = run("group", "reset-offsets", left_group, topic, "--to", place).value

    assert row == {
        "topic": topic,
        "partition": 0,
        "committed_offset": 2,
        "new_offset": offset,
        "end_offset": 3,
        "applied": True,
    }
    assert run("group", "describe", left_group).value["offsets"][0]["committed_offset"] == offset


def test_a_dry_run_changes_nothing(run, left_group, topic):
    lines = run(
        "group", "reset-offsets", left_group, topic, "--to", "start", "--dry-run", "-o", "table"
    ).out.splitlines()

    assert lines[1].split() == [topic, "0", "2", "0", "3", "no"]
    assert run("group", "describe", left_group).value["offsets"][0]["committed_offset"] == 2


def test_one_partition_can_be_set_alone(run, exactlog_broker, exactlog_group):
    name = f"wide-{uuid.uuid4().hex[:8]}"
    exactlog_broker.create_topic(name, partitions=3)

    run("group", "reset-offsets", exactlog_group, f"{name}:2", f"{name}:0", "--to", "start")

    described = run("group", "describe", exactlog_group).value
    assert [row["partition"] for row in described["offsets"]] == [0, 2]


def test_a_group_with_members_is_a_conflict_that_says_what_to_do(run, member, exactlog_group, topic):
    ran = run("group", "reset-offsets", exactlog_group, topic, "--to", "start")

    assert (ran.code, ran.error["kafka_error"], ran.error["retryable"]) == (4, 68, False)
    assert "it has members" in ran.error["message"]
    assert f"exactlog group describe {exactlog_group}" in ran.error["hint"]


def test_a_topic_or_partition_there_is_not_is_not_found(run, left_group, topic):
    assert run("group", "reset-offsets", left_group, f"{topic}:7", "--to", "start").code == 3
    assert run("group", "reset-offsets", left_group, "nowhere", "--to", "start").code == 3


@pytest.mark.parametrize("arguments", [["t:x", "--to", "start"], ["t", "--to", "soon"], ["t"], ["--to", "start"]])
def test_what_does_not_read_as_a_place_is_wrong_usage(run, arguments):
    assert run("group", "reset-offsets", "g", *arguments).code == 2


# --- delete ---------------------------------------------------------------------------------------------------


def test_a_deleted_group_is_gone(run, left_group):
    assert run("group", "delete", left_group, "--yes").value == {"group": left_group, "deleted": True}
    assert run("group", "describe", left_group).code == 3


def test_deleting_needs_a_yes_and_asks_no_question(run, left_group):
    ran = run("group", "delete", left_group)

    assert ran.code == 2
    assert "--yes" in ran.error["hint"]
    assert run("group", "describe", left_group).code == 0


def test_a_group_with_members_is_not_deleted(run, member, exactlog_group):
    ran = run("group", "delete", exactlog_group, "--yes")

    assert (ran.code, ran.error["kafka_error"]) == (4, 68)
    assert "stop its members first" in ran.error["hint"]


# --- consume --------------------------------------------------------------------------------------------------


def values(ran):
    return [row["value"] for row in ran.rows]


def test_a_group_reads_on_where_it_was(run, left_group, topic):
    assert values(run("consume", topic, "-g", left_group)) == ["c"]
    assert values(run("consume", topic, "-g", left_group)) == []
    run("produce", topic, stdin=b"d\n")
    assert values(run("consume", topic, "-g", left_group)) == ["d"]


def test_a_new_group_begins_where_it_is_told_to(run, exactlog_group, topic):
    assert values(run("consume", topic, "-g", exactlog_group, "--from", "end")) == []
    run("produce", topic, stdin=b"d\n")
    assert values(run("consume", topic, "-g", exactlog_group, "--from", "start")) == ["d"]


def test_a_group_stops_before_an_end(run, exactlog_group, topic):
    assert values(run("consume", topic, "-g", exactlog_group, "--to", "2")) == ["a", "b"]
    assert values(run("consume", topic, "-g", exactlog_group, "-o", "jsonl", "-f", "-n", 1)) == ["c"]
    assert run("group", "describe", exactlog_group).value["lag"] == 0


def test_a_group_that_is_set_back_reads_again(run, left_group, topic):
    run("group", "reset-offsets", left_group, topic, "--to", "start")

    assert values(run("consume", topic, "-g", left_group)) == ["a", "b", "c"]


def test_a_group_shares_out_partitions_itself(run, left_group, topic):
    ran = run("consume", topic, "-g", left_group, "-p", 0)

    assert ran.code == 2
    assert "Leave out -p" in ran.error["hint"]
