"""Kafka Streams with `exactly_once_v2`: its counts are exact, whatever becomes of the process that counts."""

import collections
import contextlib
import itertools
import subprocess

import pytest

from tests.conformance.clients.face import SESSION_TIMEOUT_MS, Sent
from tests.peers.gate import skip_without_peer
from tests.peers.java_programs import java_word_count
from tests.support.transactional_clients import consume_decided, wait_for_stable_ends

pytestmark = pytest.mark.peer

STREAMS_VERSION = "4.4.0"
LINES = [f"w{number % 7} w{number % 5} all" for number in range(200)]
COUNTED_FIRST = 50
STOP_AT = 200
"""A count in the second part; there are three to a line."""


@pytest.fixture
def count_words(bootstrap_servers, new_name, tmp_path):
    """Starts a process that counts words; it is killed at the end."""
    with skip_without_peer():
        command = java_word_count(STREAMS_VERSION)
    with contextlib.ExitStack() as stack:

        def start(*, stop_at=0):
            names = [new_name, f"{new_name}-lines", f"{new_name}-counts", str(tmp_path / "state"), str(stop_at)]
            complaints = stack.enter_context((tmp_path / "complaints").open("ab"))
            process = subprocess.Popen([*command, bootstrap_servers, *names], stdout=subprocess.PIPE, stderr=complaints)
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield start


def counted(lines):
    """What is to be told: each word, each time it is met, with how often it has been met."""
    met = collections.Counter()
    for word in itertools.chain(*map(str.split, lines)):
        met[word] += 1
        yield f"{word} {met[word]}".encode()


def told_of(word, values):
    """What was told of one word, in order."""
    return [value for value in values if value.split()[0] == word]


def test_a_word_count_that_is_killed_in_mid_transaction_counts_each_word_once(
    count_words, bootstrap_servers, control, new_name, let_time_pass
):
    lines, counts = f"{new_name}-lines", f"{new_name}-counts"
    control.create_topic(lines, partitions=2)
    control.create_topic(counts)
    records = [Sent(line.encode(), partition=number % 2) for number, line in enumerate(LINES)]
    first = count_words(stop_at=STOP_AT)
    control.produce(lines, records[:COUNTED_FIRST])
    control.consume(counts, 0, 3 * COUNTED_FIRST, isolation="read_committed")

    control.produce(lines, records[COUNTED_FIRST:])
    assert first.stdout.readline() == b"stopped\n"
    wait_for_stable_ends(bootstrap_servers, counts, are_ends=False)
    first.kill()
    let_time_pass(SESSION_TIMEOUT_MS + 1)  # its group waits for it no longer
    count_words()
    control.consume(counts, 0, 3 * len(LINES), isolation="read_committed")

    (found,) = consume_decided(bootstrap_servers, counts)
    expected = list(counted(LINES))
    assert sorted(found) == sorted(expected)
    for word in {value.split()[0] for value in expected}:
        assert told_of(word, found) == told_of(word, expected)
