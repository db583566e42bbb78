"""`exactlog produce --txn` without a broker: which records go into which transaction, and how these end."""

import pytest

from exactlog.cli import client as client_module
from exactlog.client.produced import ProducedRecord
from exactlog.client.transactions import ProducerFencedError
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import KafkaError, UnavailableError

LINES = b"a\nb\nc\nd\ne\n"


class NotingClient:
    """A client and its transactional producer, which note what is asked of them; `endings` are raised by ends."""

    def __init__(self, *endings):
        self.log = []
        self.endings = list(endings)
        self.offset = 0

    async def __aenter__(self):
        return self

    async def __aexit__(self, kind, *exception):
        self.log.append("left")

    def transactional_producer(self, transactional_id):
        self.transactional_id = transactional_id
        return self

    async def begin(self):
        self.log.append("begin")

    async def produce(self, topic, records, *, partition, compression):
        self.log += [record.value.decode() for record in records]
        places = [ProducedRecord(partition or 0, self.offset + index) for index in range(len(records))]
        self.offset += len(records)
        return tuple(places)

    async def _end(self, name):
        error = self.endings.pop(0) if self.endings else None
        if error is not None:
            raise error
        self.log.append(name)
        self.offset += 1  # the marker

    async def commit(self):
        await self._end("commit")

    async def abort(self):
        await self._end("abort")


@pytest.fixture
def produce(run, monkeypatch):
    def run_produce(client, *arguments, stdin=LINES):
        monkeypatch.setattr(client_module, "connect", lambda url, settings: client)
        return run("produce", "orders", "--txn", "pay", *arguments, stdin=stdin)

    return run_produce


def done(client):
    return " ".join(client.log).removesuffix(" left left")


def ranges(ran):
    return [(row["first_offset"], row["last_offset"], row["outcome"]) for row in ran.rows]


def test_all_lines_are_one_transaction(produce):
    client = NotingClient()

    ran = produce(client)

    assert (client.transactional_id, done(client)) == ("pay", "begin a b c d e commit")
    assert ran.rows == [
        {
            "topic": "orders",
            "partition": 0,
            "first_offset": 0,
            "last_offset": 4,
            "records": 5,
            "outcome": "committed",
        }
    ]
    assert produce(NotingClient(), "-o", "table").out.splitlines()[1].split() == ["0", "0", "4", "5", "committed"]


def test_without_a_line_there_is_no_transaction(produce):
    client = NotingClient()

    assert (produce(client, stdin=b"").out, client.log) == ("", ["left", "left"])


def test_a_batch_is_a_transaction(produce):
    client = NotingClient()

    assert ranges(produce(client, "--batch", 2)) == [(0, 1, "committed"), (3, 4, "committed"), (6, 6, "committed")]
    assert done(client) == "begin a b commit begin c d commit begin e commit"


def test_a_whole_batch_at_the_end_is_followed_by_no_empty_one(produce):
    client = NotingClient()
    produce(client, "--batch", 5)
    assert done(client) == "begin a b c d e commit"


@pytest.mark.parametrize(
    ("options", "expected", "outcome"),
    [
        (("--abort-after", 3), "begin a b c abort", [(0, 2, "aborted")]),
        (
            ("--abort-after", 3, "--batch", 2),
            "begin a b commit begin c abort",
            [(0, 1, "committed"), (3, 3, "aborted")],
        ),
        (("--abort-after", 2, "--batch", 2), "begin a b abort", [(0, 1, "aborted")]),
        (("--abort-after", 9), "begin a b c d e commit", [(0, 4, "committed")]),
    ],
)
def test_after_so_many_lines_it_aborts_and_ends(produce, options, expected, outcome):
    client = NotingClient()

    ran = produce(client, *options)

    assert (ran.code, done(client), ranges(ran)) == (0, expected, outcome)


def test_lines_that_name_partitions_go_there_in_the_same_transaction(produce):
    client = NotingClient()

    ran = produce(client, "--json", stdin=b'{"value":"a","partition":1}\n{"value":"b","partition":0}\n')

    assert done(client) == "begin a b commit"
    assert [(row["partition"], row["records"]) for row in ran.rows] == [(0, 1), (1, 1)]


def test_a_fenced_producer_ends_with_4(produce):
    client = NotingClient(ProducerFencedError(ErrorCode.PRODUCER_FENCED, "taken over"))

    ran = produce(client)

    assert (ran.code, ran.out, ran.error["code"]) == (4, "", "fenced")
    assert ran.error["kafka_error"] == ErrorCode.PRODUCER_FENCED


def test_an_error_after_some_transactions_says_how_many_records_count(produce):
    ran = produce(NotingClient(None, UnavailableError("the broker has gone")), "--batch", 2)

    assert (ran.code, ranges(ran)) == (8, [(0, 1, "committed")])
    assert ran.error["message"] == "2 records are committed, then: the broker has gone"


def test_a_line_that_is_no_record_ends_it_before_anything_counts(produce):
    client = NotingClient()

    ran = produce(client, "--json", stdin=b'{"value":"a"}\n{"value":1}\n')

    assert (ran.code, "commit" in client.log) == (2, False)


def test_other_errors_keep_their_codes(produce):
    refusal = KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    assert produce(NotingClient(refusal)).code == 5


@pytest.mark.parametrize(
    "arguments",
    [
        ["--txn", "pay", "--txn-id", "x"],
        ["--txn", "pay", "--expect-version", "1"],
        ["--batch", "2"],
        ["--abort-after", "2"],
    ],
)
def test_what_does_not_go_together_is_refused(run, arguments):
    assert run("produce", "orders", *arguments, stdin=LINES).code == 2
