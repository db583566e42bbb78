"""The ghost: A opens a transaction under T, writes "ghost" and vanishes; B initialises T, writes "real", commits.

Readers of committed records see "real" and nothing else, for ever; A, should it come back, is told 47 where it writes
and 90 where it ends. Both seeds promise it (001: 使用 Epoch 检测僵尸生产者; 004: fenced by a new instance). Here by
both versions of the protocol, by real clients, and with the broker killed by SIGKILL in every gap.
"""

import contextlib
import gc
import re
import signal
import subprocess
import sys
import warnings

import pytest

from demo.served_broker import ServedBroker
from exactlog.core.model.error_code import ErrorCode
from tests.conformance.clients.adapters import CLIENTS
from tests.peers.gate import skip_without_peer
from tests.support.isolated_reader import UNCOMMITTED, read_on, values
from tests.support.raw_client import RawClient, Topic
from tests.support.raw_transactions import ABORT, COMMIT, TransactionalProducer, describe
from tests.support.transaction_steps import COMES_BACK_TO, FLOWS, open_producer, settle, visible
from tests.support.transactional_clients import consume

NONE = ErrorCode.NONE
T = "T"
IS_FENCED = r"(?i)fenced|epoch"

GAPS = ("behind the ghost", "while it is aborted", "before the commit", "behind the commit")
PYTHON_CLIENTS = ("confluent-kafka", "kafka-python", "aiokafka")


@pytest.fixture
def serve(tmp_path):
    """Starts a broker as a process of its own; it ends with the test."""
    with contextlib.ExitStack() as stack:

        def start(*, level=2):
            options = ("--set", f"transaction.version={level}")
            served = ServedBroker(tmp_path / "data", log=tmp_path / "broker.log", options=options)
            return stack.enter_context(served)

        yield start
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        gc.collect()  # kafka-python leaves the sockets open of connections that were refused


class Story:
    """One broker, killed in some of the gaps; and a connection to whichever there is now."""

    def __init__(self, served, deaths):
        self._served = served
        self._deaths = deaths
        self.raw = RawClient(served.port)

    def pause(self, gap):
        assert gap in GAPS
        if gap in self._deaths:
            self._served.kill()
            self._served.start()
        self.reconnect()

    def reconnect(self):
        self.raw.close()
        self.raw = RawClient(self._served.port)

    def over(self, producer):
        producer.raw = self.raw
        return producer


LEVELS = [(FLOWS[0], 1), (FLOWS[0], 2), (FLOWS[1], 2)]


@pytest.mark.slow
@pytest.mark.parametrize(("flow", "level"), LEVELS, ids=[f"{flow} at level {level}" for flow, level in LEVELS])
@pytest.mark.parametrize(
    "deaths", [(), *[(gap,) for gap in GAPS], GAPS], ids=lambda gaps: ", ".join(gaps) or "no death"
)
def test_a_ghost_is_never_seen(serve, flow, level, deaths):
    story = Story(serve(level=level), deaths)
    topic = story.raw.create_topic("topic", partitions=2)
    ghost = open_producer(story.raw, T)
    assert flow.write(ghost, (topic, 0, b"ghost")) == [NONE]
    story.pause("behind the ghost")

    real = TransactionalProducer(story.raw, T)
    assert real.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    story.pause("while it is aborted")
    while (error := story.over(real).init()) is not NONE:
        assert error in COMES_BACK_TO
    assert flow.write(real, (topic, 0, b"real")) == [NONE]
    story.pause("before the commit")
    assert flow.end(story.over(real)) is NONE
    story.pause("behind the commit")
    settle(story.raw, T)

    story.over(ghost)
    for partition in range(2):
        refused = ghost.produce((topic, partition, b"ghost again"), version=flow.produce_version)
        assert [int(code) for code in refused] == [47]
    assert [int(flow.end(ghost, outcome)) for outcome in (COMMIT, ABORT)] == [90, 90]
    assert [visible(story.raw, topic, index) for index in range(2)] == [[b"real"], []]
    assert values(read_on(story.raw, topic, isolation=UNCOMMITTED)) == [b"ghost", b"real"]
    story.raw.close()


# --- with real clients ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def opened(name, address):
    """A client, as the cases of the clients have it."""
    with skip_without_peer():
        client = CLIENTS[name].open(address)
    try:
        yield client
    finally:
        getattr(client, "close", lambda: None)()


@contextlib.contextmanager
def producing(client):
    """A transactional producer under T; some do not like to end in the middle of something."""
    producer = client.transactional(T)
    try:
        yield producer
    finally:
        with contextlib.suppress(Exception):
            producer.close()


def all_said(error):
    """An error and what is behind it: confluent-kafka hides a fatal one behind that of whoever it interrupted."""
    while error is not None:
        yield str(error)
        error = error.__cause__ or error.__context__


def go_on(producer):
    """As if nothing had happened."""
    producer.send("topic", 0, b"ghost again")
    producer.commit()


EACH_CLIENT = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.peer] if client.is_peer else [])
        for name, client in CLIENTS.items()
        if "transactions" not in client.cannot
    ],
)


@pytest.mark.slow
@EACH_CLIENT
@pytest.mark.parametrize("is_killed", [False, True], ids=["the broker lives", "the broker is killed"])
def test_a_ghost_of_a_real_client_is_fenced(serve, name, is_killed):
    served = serve()
    with RawClient(served.port) as raw:
        raw.create_topic("topic")
    with opened(name, served.address) as client, producing(client) as ghost:
        ghost.begin()
        ghost.send("topic", 0, b"ghost")
        if is_killed:
            served.kill()
            served.start()
        with producing(client) as real:
            real.begin()
            real.send("topic", 0, b"real")
            real.commit()

        with pytest.raises(Exception) as refusal:
            go_on(ghost)
        assert re.search(IS_FENCED, "; ".join(all_said(refusal.value)))

    with RawClient(served.port) as raw:
        settle(raw, T)
    assert consume(served.address, "topic") == [[b"real"]]
    assert consume(served.address, "topic", isolation_level="read_uncommitted") == [[b"ghost", b"real"]]


VANISHING = """
import sys
import warnings
from tests.conformance.clients.adapters import CLIENTS

ghost = CLIENTS[sys.argv[1]].open(sys.argv[2]).transactional("T")
ghost.begin()
ghost.send("topic", 0, b"ghost")
print("open", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", PYTHON_CLIENTS)
@pytest.mark.parametrize("is_killed", [False, True], ids=["the broker lives", "the broker is killed"])
def test_a_client_that_is_killed_leaves_a_ghost_that_is_never_seen(serve, name, is_killed):
    """A is a process that dies by SIGKILL. What it could still send, had it lived, is sent in its name."""
    served = serve()
    with RawClient(served.port) as raw:
        topic = raw.create_topic("topic")
    command = [sys.executable, "-W", "ignore", "-c", VANISHING, name, served.address]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as ghost:
        assert ghost.stdout.readline() == "open\n"
        ghost.send_signal(signal.SIGKILL)
    with RawClient(served.port) as raw:
        before = describe(raw, T)
        assert before.transaction_state == "Ongoing"
    if is_killed:
        served.kill()
        served.start()

    with opened(name, served.address) as client, producing(client) as real:
        real.begin()
        real.send("topic", 0, b"real")
        real.commit()

    with RawClient(served.port) as raw:
        settle(raw, T)
        late = TransactionalProducer(raw, T).become(before.producer_id, before.producer_epoch)
        assert [int(code) for code in late.produce((Topic("topic", topic.topic_id), 0, b"late"))] == [47]
        assert [int(late.end(COMMIT, version=version)) for version in range(2, 6)] == [90] * 4
        assert visible(raw, topic) == [b"real"]


@pytest.mark.slow
@EACH_CLIENT
def test_a_ghost_of_another_make_is_fenced_by_whoever_comes(serve, name):
    """A speaks the bare protocol, B is a real client."""
    served = serve()
    with RawClient(served.port) as raw:
        topic = raw.create_topic("topic")
        ghost = open_producer(raw, T)
        ghost.produce((topic, 0, b"ghost"))
        with opened(name, served.address) as client, producing(client) as real:
            real.begin()
            real.send("topic", 0, b"real")
            real.commit()
        settle(raw, T)

        assert [int(code) for code in ghost.produce((topic, 0, b"ghost again"))] == [47]
        assert int(ghost.end(COMMIT)) == 90
        assert visible(raw, topic) == [b"real"]
