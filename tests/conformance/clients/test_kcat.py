"""kcat, the command line of librdkafka: what it produces it consumes, from anywhere, alone or in a group."""

import json
import subprocess

import pytest

from tests.conformance.clients.face import Sent
from tests.peers.gate import skip_without_peer
from tests.peers.kcat import kcat
from tests.support.transactional_clients import wait_for_stable_ends

pytestmark = pytest.mark.peer


@pytest.fixture
def run(bootstrap_servers):
    """Runs kcat to its end and returns what it printed."""
    with skip_without_peer():
        command, environment = kcat()

    def to_the_end(*arguments, written=""):
        return subprocess.run(
            [*command, "-b", bootstrap_servers, *arguments],
            env=environment,
            input=written,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout

    return to_the_end


@pytest.fixture
def filled(control, new_name):
    """A topic with ten numbered records, ten milliseconds apart."""
    control.create_topic(new_name)
    control.produce(new_name, [Sent(b"%d" % number, timestamp_ms=1_000 + 10 * number) for number in range(10)])
    return new_name


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_it_produces_it_consumes(run, control, new_name, codec):
    control.create_topic(new_name)
    lines = "".join(f"key{number}:value {number}\n" for number in range(100))

    run("-P", "-t", new_name, "-p", "0", "-K", ":", "-z", codec, "-H", "trace=yes", "-H", "empty=", written=lines)
    consumed = run("-C", "-t", new_name, "-p", "0", "-e", "-q", "-f", "%o %k:%s %h\n")

    assert consumed.splitlines() == [f"{number} key{number}:value {number} trace=yes,empty=" for number in range(100)]


def test_an_empty_line_can_be_no_value(run, control, new_name):
    control.create_topic(new_name)

    run("-P", "-t", new_name, "-K", ":", "-Z", written="tombstone:\n:no key\n")
    consumed = run("-C", "-t", new_name, "-e", "-q", "-J").splitlines()

    assert [(record["key"], record["payload"]) for record in map(json.loads, consumed)] == [
        ("tombstone", None),
        (None, "no key"),
    ]


def test_an_idempotent_producer_makes_the_topic_that_it_writes_to(run, new_name):
    run("-P", "-t", new_name, "-X", "enable.idempotence=true", written="first\nsecond\n")

    assert run("-C", "-t", new_name, "-e", "-q").split() == ["first", "second"]


@pytest.mark.parametrize(
    ("start", "first"), [("beginning", 0), ("4", 4), ("-3", 7), ("s@1045", 5), ("s@1050", 5)],
)  # fmt: skip
def test_it_starts_at_an_offset_or_a_time(run, filled, start, first):
    consumed = run("-C", "-t", filled, "-p", "0", "-o", start, "-e", "-q")

    assert [int(value) for value in consumed.split()] == list(range(first, 10))


def test_it_stops_at_a_time(run, filled):
    consumed = run("-C", "-t", filled, "-p", "0", "-o", "s@1020", "-o", "e@1060", "-e", "-q")

    assert [int(value) for value in consumed.split()] == [2, 3, 4, 5]


@pytest.mark.parametrize(("timestamp_ms", "offset"), [(-2, 0), (-1, 10), (1_045, 5), (99_999, -1)])
def test_it_finds_the_offset_of_a_time(run, filled, timestamp_ms, offset):
    told = run("-Q", "-t", f"{filled}:0:{timestamp_ms}")

    assert told.strip() == f"{filled} [0] offset {offset}"


def test_it_lists_brokers_topics_and_partitions(run, control, new_name, bootstrap_servers):
    control.create_topic(new_name, partitions=3)

    listed = json.loads(run("-L", "-J", "-t", new_name))

    assert [broker["name"] for broker in listed["brokers"]] == [bootstrap_servers]
    (topic,) = listed["topics"]
    assert [partition["partition"] for partition in topic["partitions"]] == [0, 1, 2]


def test_in_a_group_it_goes_on_where_it_stopped(run, control, filled):
    in_group = ("-G", filled, filled, "-q", "-X", "auto.offset.reset=earliest")

    first = run("-c", "4", *in_group)
    assert control.committed(filled, filled)[0][0] == 4
    rest = run("-c", "6", *in_group)

    assert [int(value) for value in (first + rest).split()] == list(range(10))


def test_what_it_produces_in_a_transaction_counts_and_it_passes_over_what_does_not(
    run, control, new_name, bootstrap_servers
):
    control.create_topic(new_name)
    producer = control.transactional(f"{new_name}-other")
    producer.begin()
    producer.send(new_name, 0, b"aborted")
    producer.abort()

    run("-P", "-t", new_name, "-X", f"transactional.id={new_name}", written="one\ntwo\n")

    wait_for_stable_ends(bootstrap_servers, new_name, are_ends=True)
    read = ("-C", "-t", new_name, "-p", "0", "-e", "-q", "-X")
    assert run(*read, "isolation.level=read_committed").split() == ["one", "two"]
    assert run(*read, "isolation.level=read_uncommitted").split() == ["aborted", "one", "two"]
    producer.close()
