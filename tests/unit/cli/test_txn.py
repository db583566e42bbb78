"""`exactlog txn` without a broker: what it makes of what a cluster says."""

import pytest

from exactlog.cli import client as client_module
from exactlog.cli.commands import txn_watch
from exactlog.cli.commands.txn_watch import changes, follow, picture
from exactlog.cli.transaction_rows import shown_transaction, transaction_row
from exactlog.client.groups import CommittedOffset, GroupListing
from exactlog.client.ports import IsolationLevel, ListedOffset, TopicListing
from exactlog.client.produced import ProducerIdentity
from exactlog.client.transactions import ActiveProducer, TransactionDescription, TransactionListing
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import KafkaError, NotFoundError, OffsetOutOfRangeError, UnavailableError
from exactlog.core.model.ids import TopicPartition

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
GONE = TopicPartition("gone", 0)
NOW = 1_000_000


def transaction(transactional_id="pay", **fields):
    values = {
        "state": "Ongoing",
        "producer_id": 7,
        "producer_epoch": 3,
        "timeout_ms": 60_000,
        "started_at_ms": NOW - 843_000,
        "partitions": (A,),
        "coordinator": "b:9092",
    }
    return TransactionDescription(transactional_id, **(values | fields))


def finished(transactional_id="pay", **fields):
    return transaction(transactional_id, **({"state": "CompleteCommit", "partitions": ()} | fields))


class ToldClient:
    """A cluster of one topic with two partitions, whose state is what a test says."""

    def __init__(self, *transactions, active=None, committed=None):
        self.transactions = {found.transactional_id: found for found in transactions}
        self.active = {A: (), B: ()} | dict(active or {})
        self.committed = committed or {}
        self.ends = {A: (4, 9), B: (6, 6)}
        self.done = []

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exception): ...

    async def list_topics(self, *, include_internal=False):
        state = TopicListing("__transaction_state", None, 50, is_internal=True)
        return (TopicListing("orders", None, 2, is_internal=False), *([state] if include_internal else []))

    async def describe_topic(self, name):
        if name != "orders":
            raise NotFoundError(f"topic {name} does not exist")
        return type("Described", (), {"partitions": [type("P", (), {"partition": number}) for number in (0, 1)]})

    async def describe_producers(self, places):
        return {place: self.active[place] for place in places}

    async def list_transactions(self, *, states=(), producer_ids=(), open_for_ms_min=None, id_pattern=None):
        self.done.append((tuple(states), tuple(producer_ids), open_for_ms_min, id_pattern))
        return tuple(
            TransactionListing(found.transactional_id, found.producer_id, found.state, 1)
            for found in self.transactions.values()
        )

    async def describe_transactions(self, transactional_ids):
        return {name: self.transactions[name] for name in transactional_ids if name in self.transactions}

    async def describe_transaction(self, transactional_id):
        if transactional_id not in self.transactions:
            raise NotFoundError(f"transactional id {transactional_id} does not exist")
        return self.transactions[transactional_id]

    async def list_offsets(self, timestamps, *, isolation=IsolationLevel.READ_UNCOMMITTED):
        which = 0 if isolation is IsolationLevel.READ_COMMITTED else 1
        return {place: ListedOffset(self.ends[place][which], -1, 0) for place in timestamps}

    async def list_groups(self):
        return tuple(GroupListing(group, "Empty", "consumer", "classic") for group in self.committed)

    async def list_committed_offsets(self, group_id):
        return {place: CommittedOffset(offset, 0, "") for place, offset in self.committed[group_id].items()}

    async def consume(self, starts, *, ends):
        if starts == {B: 1}:
            raise OffsetOutOfRangeError("orders-1", oldest=6)
        yield type("Found", (), {"record": type("Record", (), {"timestamp_ms": 86_400_000})})

    async def fence_producers(self, transactional_id, *, timeout_ms):
        self.done.append(("fence", transactional_id, timeout_ms))
        return ProducerIdentity(7, 5)

    async def write_abort_marker(self, place, **numbers):
        self.done.append(("marker", place, numbers))


@pytest.fixture
def told(run, monkeypatch):
    """Runs the command line against what a test says."""

    def run_told(client, *arguments):
        monkeypatch.setattr(client_module, "connect", lambda url, settings: client)
        return run("txn", *arguments)

    return run_told


def producing(offset, *, producer_id=7, coordinator_epoch=None):
    return (ActiveProducer(producer_id, 3, 0, 500, coordinator_epoch, offset),)


# --- list, describe, producers --------------------------------------------------------------------------------


def test_transactions_are_listed_with_filters(told):
    client = ToldClient(transaction(), finished("bill"))

    ran = told(
        client,
        "list",
        "--state",
        "ongoing",
        "--state",
        "Empty",
        "--producer-id",
        7,
        "--duration",
        "90s",
        "--id-pattern",
        "p.*",
    )

    assert [row["transactional_id"] for row in ran.value] == ["pay", "bill"]
    assert client.done == [(("Ongoing", "Empty"), (7,), 90_000, "p.*")]
    assert told(ToldClient(), "list", "--state", "open").code == 2
    assert told(ToldClient(), "list", "--duration", "soon").code == 2


def test_an_open_transaction_has_times_and_one_that_is_over_has_none():
    assert transaction_row(transaction(), now_ms=NOW) == {
        "transactional_id": "pay",
        "state": "Ongoing",
        "producer_id": 7,
        "producer_epoch": 3,
        "coordinator": "b:9092",
        "timeout_ms": 60_000,
        "started_at": NOW - 843_000,
        "open_for_ms": 843_000,
        "partitions": [{"topic": "orders", "partition": 0}],
    }
    over = transaction_row(finished(), now_ms=NOW)
    assert (over["started_at"], over["open_for_ms"], over["partitions"]) == (None, None, [])


def test_people_see_how_long_it_is_open_and_how_much_is_left():
    shown = shown_transaction(transaction_row(transaction(), now_ms=NOW))
    assert (shown["open_for"], shown["time_left"], shown["timeout"], shown["partitions"]) == (
        "14m3s",
        "-13m3s",
        "1m",
        1,
    )
    assert shown["started_at"] == "1970-01-01T00:02:37.000Z"
    over = shown_transaction(transaction_row(finished(), now_ms=NOW))
    assert (over["open_for"], over["time_left"], over["partitions"]) == (None, None, 0)


def test_a_transaction_is_described_with_the_partitions_that_wait_and_the_groups_that_do(told):
    client = ToldClient(
        transaction(partitions=(GONE, A)),
        active={A: (*producing(2, producer_id=9), *producing(4))},
        committed={"slow": {A: 2}, "waiting": {A: 4}},
    )

    described = told(client, "describe", "pay").value

    held = {"last_stable_offset": 4, "end_offset": 9, "waiting_groups": ["waiting"]}
    unknown = {"last_stable_offset": None, "end_offset": None, "waiting_groups": None}
    assert described["partitions"] == [
        {"topic": "gone", "partition": 0, "start_offset": None, **unknown},
        {"topic": "orders", "partition": 0, "start_offset": 4, **held},
    ]
    head, partitions = told(client, "describe", "pay", "-o", "table").out.split("\n\n")
    assert "state             Ongoing" in head
    assert partitions.splitlines()[2].split() == ["orders", "0", "4", "4", "9", "waiting"]


def test_an_id_without_an_open_transaction_is_described_without_partitions(told):
    assert told(ToldClient(finished()), "describe", "pay").value["partitions"] == []
    assert told(ToldClient(), "describe", "pay").code == 3


def test_producers_of_partitions_are_listed(told):
    client = ToldClient(active={A: producing(4, coordinator_epoch=2), B: producing(None)})

    rows = told(client, "producers", "orders:1", "orders").value

    assert rows == [
        {
            "topic": "orders",
            "partition": place.partition,
            "producer_id": 7,
            "producer_epoch": 3,
            "last_sequence": 0,
            "last_timestamp": 500,
            "coordinator_epoch": coordinator_epoch,
            "start_offset": start_offset,
        }
        for place, coordinator_epoch, start_offset in ((A, 2, 4), (B, None, None))
    ]
    assert "1970-01-01T00:00:00.500Z" in told(client, "producers", "orders:0", "-o", "table").out
    assert [told(client, "producers", *bad).code for bad in ([], ["orders:7"], ["nothing"], ["orders:x"])] == [
        2,
        3,
        3,
        2,
    ]


# --- find-hanging ---------------------------------------------------------------------------------------------


def test_hanging_transactions_are_found_with_who_waits_and_what_to_do(told):
    client = ToldClient(
        transaction(partitions=(B,)), active={A: producing(4)}, committed={"waiting": {A: 4}, "behind": {A: 0}}
    )

    ran = told(client, "find-hanging")

    assert ran.value == [
        {
            "topic": "orders",
            "partition": 0,
            "start_offset": 4,
            "started_at": 86_400_000,
            "transactional_id": "pay",
            "producer_id": 7,
            "producer_epoch": 3,
            "coordinator_epoch": None,
            "last_timestamp": 500,
            "last_stable_offset": 4,
            "end_offset": 9,
            "waiting_groups": ["waiting"],
            "undecided": False,
            "command": "exactlog txn abort orders:0 --start-offset 4",
        }
    ]
    assert ran.err == ""
    assert "1970-01-02T00:00:00.000Z" in told(client, "find-hanging", "-o", "table").out


def test_one_that_is_behind_another_holds_nobody_up_yet_and_may_have_lost_its_first_record(told):
    client = ToldClient(active={B: producing(1, producer_id=8)}, committed={"waiting": {B: 6}})

    (row,) = told(client, "find-hanging", "orders:1").value

    assert (row["waiting_groups"], row["started_at"], row["transactional_id"]) == ([], 500, None)


def test_where_nothing_hangs_it_says_how_far_it_looked(told):
    ran = told(ToldClient(transaction(), active={A: producing(4)}), "find-hanging")

    assert (ran.code, ran.value) == (0, [])
    assert ran.err.startswith("2 partitions looked at")
    assert told(ToldClient(), "find-hanging", "orders:0", "-q").err == ""


class UnaskedClient(ToldClient):
    """A cluster whose coordinator cannot be asked."""

    async def list_transactions(self, **filters):
        error = UnavailableError("list transactions: gave up")
        error.kafka_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        raise error


def test_while_the_coordinator_cannot_be_asked_what_is_open_is_shown_and_no_command_to_abort_it(told):
    ran = told(UnaskedClient(active={A: producing(4)}), "find-hanging")

    (row,) = ran.value
    assert (row["start_offset"], row["undecided"], row["command"]) == (4, True, None)
    assert "cannot be asked" in ran.err
    assert "txn abort" not in told(UnaskedClient(active={A: producing(4)}), "find-hanging", "-o", "table").out


def test_what_a_coordinator_may_still_commit_is_aborted_only_if_forced(told):
    client = UnaskedClient(active={A: producing(4)})

    refused = told(client, "abort", "orders:0", "--start-offset", 4)

    assert (refused.code, "may still commit" in refused.error["message"]) == (6, True)
    assert client.done == []
    assert told(client, "abort", "orders:0", "--start-offset", 4, "--force").code == 0
    assert client.done[-1][0] == "marker"


# --- abort ----------------------------------------------------------------------------------------------------


def test_a_transaction_is_aborted_by_its_id_with_its_own_timeout_and_only_if_that_is_meant(told):
    client = ToldClient(transaction(), committed={"waiting": {A: 4}})

    hesitating = told(client, "abort", "pay")
    ran = told(client, "abort", "pay", "--yes")

    assert (hesitating.code, "fences its producer" in hesitating.error["message"]) == (2, True)
    assert client.done == [("fence", "pay", 60_000)]
    assert ran.value == {
        "transactional_id": "pay",
        "aborted": True,
        "partitions": [{"topic": "orders", "partition": 0}],
        "producer_id": 7,
        "producer_epoch": 5,
        "unblocked_groups": ["waiting"],
    }
    assert "is fenced" in ran.err


@pytest.mark.parametrize(("state", "hint"), [("CompleteCommit", ""), ("PrepareCommit", "Its coordinator ends it.")])
def test_an_id_without_an_ongoing_transaction_keeps_its_producer(told, state, hint):
    client = ToldClient(transaction(state=state))

    ran = told(client, "abort", "pay", "--yes")

    assert (ran.code, ran.error["kafka_error"], ran.error["hint"]) == (4, ErrorCode.INVALID_TXN_STATE, hint)
    assert client.done == []


@pytest.mark.parametrize(("known", "sent"), [(None, 0), (2, 2)])
def test_a_hanging_transaction_is_aborted_where_it_begins(told, known, sent):
    client = ToldClient(active={A: producing(4, coordinator_epoch=known)}, committed={"waiting": {A: 4}})

    ran = told(client, "abort", "orders:0", "--start-offset", 4)

    numbers = {"producer_id": 7, "producer_epoch": 3, "coordinator_epoch": sent}
    assert client.done[-1] == ("marker", A, numbers)
    assert ran.value["unblocked_groups"] == ["waiting"]


def test_a_transaction_that_a_coordinator_knows_is_not_torn_apart_unless_forced(told):
    client = ToldClient(transaction(), active={A: producing(4)})

    refused = told(client, "abort", "orders:0", "--start-offset", 4)

    assert (refused.code, refused.error["kafka_error"]) == (4, ErrorCode.INVALID_TXN_STATE)
    assert "exactlog txn abort pay --yes" in refused.error["hint"]
    assert [action for action in client.done if action[0] == "marker"] == []
    assert told(client, "abort", "orders:0", "--start-offset", 4, "--force").code == 0
    assert client.done[-1][0] == "marker"


def test_where_the_coordinator_knows_other_partitions_of_it_alone_a_transaction_is_aborted(told):
    client = ToldClient(transaction(partitions=(B,)), active={A: producing(4)})

    assert told(client, "abort", "orders:0", "--start-offset", 4).code == 0
    assert client.done[-1][0] == "marker"


@pytest.mark.parametrize(
    ("active", "hint"), [({A: producing(4)}, "Open ones begin at 4."), ({}, "None is open there.")]
)
def test_where_no_transaction_begins_none_is_aborted(told, active, hint):
    ran = told(ToldClient(active=active), "abort", "orders:0", "--start-offset", 5)

    assert (ran.code, ran.error["hint"]) == (3, hint)


def test_what_makes_no_sense_is_refused(told):
    for arguments in (["orders", "--start-offset", 4], ["orders:0", "--force"], ["pay", "--force", "--yes"]):
        assert told(ToldClient(), "abort", *arguments).code == 2
    assert told(ToldClient(), "abort", "orders:7", "--start-offset", 4).code == 3
    assert told(ToldClient(), "abort", "pay", "--yes").code == 3


# --- watch ----------------------------------------------------------------------------------------------------


def test_a_change_is_a_row_with_the_state_before():
    before = {"pay": transaction(), "bill": finished("bill"), "old": finished("old")}
    after = {"pay": finished(), "bill": finished("bill", coordinator="c:9092"), "new": transaction("new")}

    rows = changes(before, after, now_ms=NOW)

    assert [(row["transactional_id"], row["previous_state"], row["state"], row["time"]) for row in rows] == [
        ("new", None, "Ongoing", NOW),
        ("old", "CompleteCommit", None, NOW),
        ("pay", "Ongoing", "CompleteCommit", NOW),
    ]


@pytest.mark.parametrize(
    "change", [{"producer_epoch": 4}, {"producer_id": 8}, {"started_at_ms": 1}, {"partitions": (A, B)}]
)
def test_another_transaction_in_the_same_state_is_a_change(change):
    assert len(changes({"pay": transaction()}, {"pay": transaction(**change)}, now_ms=NOW)) == 1
    assert changes({"pay": transaction()}, {"pay": transaction()}, now_ms=NOW) == []


def test_a_terminal_shows_the_open_ones_the_oldest_first():
    seen = {
        found.transactional_id: found
        for found in (
            finished("bill"),
            transaction(),
            transaction("older", started_at_ms=1),
            transaction("x", started_at_ms=None),
        )
    }

    summary, _, *lines = picture(seen, now_ms=NOW)

    assert summary == "1970-01-01T00:16:40.000Z  3 open, 1 not"
    assert [line.split()[0] for line in lines] == ["older", "pay", "x"]
    assert picture({}, now_ms=NOW) == ["1970-01-01T00:16:40.000Z  0 open, 0 not"]


class SeenEnoughError(Exception):
    """Raised where a test has seen what it wanted to see."""


async def test_watching_writes_what_changes_between_looks():
    client, rows = ToldClient(transaction()), []

    def write(row):
        rows.append((row["transactional_id"], row["state"]))
        if len(rows) == 2:
            raise SeenEnoughError
        client.transactions["pay"] = finished()

    with pytest.raises(SeenEnoughError):
        await follow(client, (), write, interval_ms=0)
    assert rows == [("pay", "Ongoing"), ("pay", "CompleteCommit")]


async def test_watching_some_ids_asks_for_these_alone():
    client, rows = ToldClient(transaction(), transaction("bill")), []

    def write(row):
        rows.append(row["transactional_id"])
        raise SeenEnoughError

    with pytest.raises(SeenEnoughError):
        await follow(client, ("bill", "nobody"), write, interval_ms=0)
    assert (rows, client.done) == (["bill"], [])


def test_a_terminal_is_drawn_over_in_place(told, monkeypatch):
    client = ToldClient(transaction())
    looked = []

    async def look_twice(*arguments, **options):
        yield client.transactions
        yield client.transactions
        looked.append(True)

    monkeypatch.setattr(txn_watch, "looks", look_twice)
    monkeypatch.setattr(txn_watch, "is_terminal", lambda stream: True)
    ran = told(client, "watch", "-o", "table")

    assert looked == [True]
    first, second = ran.out.split("\x1b[J")[1:]
    assert first.endswith("\x1b[3A")
    assert second.splitlines()[1:] == first.splitlines()[1:3]


def test_elsewhere_a_table_of_changes_is_a_line_each(told, monkeypatch):
    client = ToldClient(transaction())

    async def look_twice(*arguments, **options):
        yield client.transactions
        yield {}

    monkeypatch.setattr(txn_watch, "looks", look_twice)
    heading, first, second = told(client, "watch", "-o", "table").out.splitlines()

    assert heading.split()[:2] == ["TIME", "STATE"]
    assert (first.split()[1:], second.split()[1:]) == (["Ongoing", "3", "1", "pay"], ["(forgotten)", "3", "1", "pay"])


def test_an_error_of_a_broker_ends_the_command_with_its_code(told):
    class Refusing(ToldClient):
        async def list_transactions(self, **filters):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    assert told(Refusing(), "list").code == 5
    assert told(Refusing(), "watch").code == 5
