"""Every client commits, aborts, is fenced, times out and crashes; readers of committed records see it right."""

import contextlib
import itertools

import pytest

from exactlog.testing import Broker
from tests.conformance.clients.adapters import CLIENTS
from tests.conformance.clients.copiers import Copier
from tests.conformance.clients.face import SESSION_TIMEOUT_MS, Copying, Sent
from tests.peers.gate import skip_without_peer
from tests.support.transactional_clients import committed_offset, consume, consume_decided, wait_for_stable_ends

IS_FENCED = r"(?i)fenced|epoch"
IS_OVER = r"(?i)fenced|epoch|abort|state"
"""What clients say of a transaction that somebody else has ended."""


@pytest.fixture
def open_producer(client):
    """Opens transactional producers of the client; they end with the test."""
    with contextlib.ExitStack() as stack:

        def open_one(transactional_id, **settings):
            producer = client.transactional(transactional_id, **settings)
            stack.callback(close, producer)
            return producer

        yield open_one


def close(producer):
    with contextlib.suppress(Exception):  # some do not like to end in the middle of something
        producer.close()


@pytest.fixture
def reader(client, client_name, control):
    """The client itself, where it can tell what is committed."""
    return control if "read committed" in CLIENTS[client_name].cannot else client


@pytest.fixture
def topic(control, new_name):
    """A topic of two partitions."""
    control.create_topic(new_name, partitions=2)
    return new_name


def values(received):
    return [record.value for record in received]


@pytest.mark.needs("transactions")
def test_what_is_committed_is_seen_and_what_is_aborted_is_not(reader, bootstrap_servers, topic, open_producer):
    producer = open_producer(topic)
    for number in range(7):
        producer.begin()
        producer.send(topic, 0, b"a%d" % number)
        producer.send(topic, 1, b"b%d" % number)
        if number % 2:
            producer.abort()
        else:
            producer.commit()

    for partition, letter in enumerate((b"a", b"b")):
        place = {"partition": partition}
        committed = values(reader.consume(topic, 0, 4, **place, isolation="read_committed"))
        assert committed == [b"%b%d" % (letter, number) for number in range(0, 7, 2)]
        everything = values(reader.consume(topic, 0, 7, **place))
        assert everything == [b"%b%d" % (letter, number) for number in range(7)]
    assert [len(found) for found in consume_decided(bootstrap_servers, topic, partitions=2)] == [4, 4]


@pytest.mark.needs("transactions")
def test_nothing_behind_an_open_transaction_is_seen_before_it_ends(reader, bootstrap_servers, topic, open_producer):
    first, second = open_producer(f"{topic}-1"), open_producer(f"{topic}-2")
    first.begin()
    first.send(topic, 0, b"first")
    second.begin()
    second.send(topic, 0, b"second")
    second.commit()
    assert consume(bootstrap_servers, topic) == [[]]

    first.commit()

    assert values(reader.consume(topic, 0, 2, isolation="read_committed")) == [b"first", b"second"]


@pytest.mark.needs("transactions")
def test_a_second_instance_fences_the_first(reader, bootstrap_servers, topic, open_producer):
    first = open_producer(topic)
    first.begin()
    first.send(topic, 0, b"first")

    second = open_producer(topic)
    second.begin()
    second.send(topic, 0, b"second")
    second.commit()

    with pytest.raises(Exception, match=IS_FENCED):
        first.commit()
    assert values(reader.consume(topic, 0, 1, isolation="read_committed")) == [b"second"]
    assert consume_decided(bootstrap_servers, topic) == [[b"second"]]


@pytest.mark.needs("transactions")
def test_offsets_are_committed_with_the_transaction_and_dropped_with_it(bootstrap_servers, topic, open_producer):
    group = f"group-of-{topic}"
    producer = open_producer(topic)

    producer.begin()
    producer.send(topic, 1, b"out")
    producer.send_offset(topic, 0, 7, group)
    producer.abort()
    assert committed_offset(bootstrap_servers, topic, 0, group) is None

    producer.begin()
    producer.send(topic, 1, b"out")
    producer.send_offset(topic, 0, 8, group)
    producer.commit()
    assert committed_offset(bootstrap_servers, topic, 0, group) == 8
    assert consume_decided(bootstrap_servers, topic, partitions=2) == [[], [b"out"]]


@pytest.mark.needs("transactions")
def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_learns_of_it(
    reader, bootstrap_servers, topic, open_producer, let_time_pass
):
    producer = open_producer(topic, timeout_ms=1_000)
    producer.begin()
    producer.send(topic, 0, b"slow")

    let_time_pass(20_000)
    wait_for_stable_ends(bootstrap_servers, topic, partitions=2, are_ends=True)

    with pytest.raises(Exception, match=IS_OVER):
        producer.commit()
    again = open_producer(topic)
    again.begin()
    again.send(topic, 0, b"in time")
    again.commit()
    assert values(reader.consume(topic, 0, 1, isolation="read_committed")) == [b"in time"]
    assert consume_decided(bootstrap_servers, topic) == [[b"in time"]]


@pytest.mark.peer
def test_kafka_go_takes_records_that_were_aborted_and_markers_for_committed_ones(
    open_clients, bootstrap_servers, topic, control
):
    client = open_clients("kafka-go", bootstrap_servers)
    with contextlib.closing(control.transactional(topic)) as producer:
        producer.begin()
        producer.send(topic, 0, b"aborted")
        producer.abort()
        producer.begin()
        producer.send(topic, 0, b"committed")
        producer.commit()

    read = values(client.consume(topic, 0, 4, isolation="read_committed"))

    assert [read[0], read[2]] == [b"aborted", b"committed"]
    assert [len(read[1]), len(read[3])] == [6, 6], "the values of markers"


@pytest.mark.usefixtures("refused_sockets_are_closed")
@pytest.mark.only_exactlog
@pytest.mark.needs("transactions")
def test_transactions_go_on_when_the_broker_comes_back(client_of_its_own):
    with Broker() as broker, client_of_its_own(broker.bootstrap_servers) as client:
        broker.create_topic("t")
        producer = client.transactional("id")
        producer.begin()
        producer.send("t", 0, b"before")
        broker.kill()
        broker.restart()

        producer.send("t", 0, b"behind")
        producer.commit()
        close(producer)

        assert consume_decided(broker.bootstrap_servers, "t") == [[b"before", b"behind"]]


@pytest.fixture
def start_copying(client_name, bootstrap_servers, control, new_name):
    """Starts processes that copy one topic to another, with one group and one transactional id."""
    for name in (f"{new_name}-from", f"{new_name}-to"):
        control.create_topic(name, partitions=2)
    how = Copying(source=f"{new_name}-from", target=f"{new_name}-to", group=new_name, transactional_id=new_name)
    with contextlib.ExitStack() as stack:

        def start():
            with skip_without_peer():
                command = CLIENTS[client_name].copy_command(bootstrap_servers)
            return stack.enter_context(Copier(command, how))

        yield start


@pytest.mark.needs("copy")
def test_a_process_that_is_killed_in_mid_transaction_goes_on_without_loss_or_duplicates(
    start_copying, bootstrap_servers, control, new_name, let_time_pass
):
    records = [Sent(b"%d" % number, partition=number % 2) for number in range(60)]
    control.produce(f"{new_name}-from", records)

    first = start_copying()
    done = list(itertools.chain.from_iterable(first.copy_some() for _ in range(2)))
    lost = first.wait_until_open()
    first.kill()
    let_time_pass(SESSION_TIMEOUT_MS + 1)  # its group waits for it no longer
    second = start_copying()
    while len(done) < len(records):
        done += second.copy_some()

    target = f"{new_name}-to"
    expected = [[record.value for record in records if record.partition == partition] for partition in range(2)]
    assert consume_decided(bootstrap_servers, target, partitions=2) == expected
    assert [committed_offset(bootstrap_servers, f"{new_name}-from", index, new_name) for index in range(2)] == [30, 30]
    everything = consume(bootstrap_servers, target, partitions=2, isolation_level="read_uncommitted")
    assert sorted(itertools.chain(*everything)) == sorted([*itertools.chain(*expected), *lost])
