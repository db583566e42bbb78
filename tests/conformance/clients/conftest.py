"""Each case runs with every client that can (`adapters.py`), against exactlog. With `--long` it runs against Apache
Kafka as well: what a case expects is what Kafka does.
"""

import contextlib
import time
import uuid

import pytest

from tests.conformance.clients.adapters import CLIENTS, FEATURES
from tests.conformance.clients.face import Membership
from tests.conformance.clients.kafka_python_adapter import kafka
from tests.conformance.clients.members import Members
from tests.peers.gate import skip_without_peer
from tests.support.broker_fixtures import exactlog_broker  # noqa: F401  a fixture

BROKER_MARKS = {"exactlog": (), "apache-kafka": (pytest.mark.peer,)}


def pytest_configure(config):
    config.addinivalue_line("markers", "needs(*features): what a case takes; it runs with the clients that can")
    config.addinivalue_line("markers", "only_exactlog: a case that Apache Kafka is not asked")


def pytest_generate_tests(metafunc):
    brokers = ["exactlog"]
    if metafunc.config.getoption("--long") and not metafunc.definition.get_closest_marker("only_exactlog"):
        brokers.append("apache-kafka")
    if "broker_name" in metafunc.fixturenames:  # else the case starts a broker of its own
        metafunc.parametrize("broker_name", [pytest.param(name, marks=BROKER_MARKS[name]) for name in brokers])
    if "client_name" in metafunc.fixturenames:
        needed = {feature for mark in metafunc.definition.iter_markers("needs") for feature in mark.args}
        assert needed, "a case says what it needs"
        assert needed <= FEATURES, needed - FEATURES
        able = {name: client for name, client in CLIENTS.items() if needed.isdisjoint(client.cannot)}
        marks = {name: [pytest.mark.peer] if client.is_peer else [] for name, client in able.items()}
        metafunc.parametrize("client_name", [pytest.param(name, marks=marks[name]) for name in able])


@pytest.fixture(scope="session")
def judge(apache_kafka):
    """Apache Kafka, with a group coordinator: it makes none before it is asked for one."""
    with contextlib.closing(
        kafka.KafkaConsumer(bootstrap_servers=apache_kafka.bootstrap_servers, group_id="first")
    ) as first:
        first.committed(kafka.TopicPartition("none", 0))
    return apache_kafka


@pytest.fixture
def bootstrap_servers(request, broker_name):
    """Where the broker of this case is."""
    fixture = {"exactlog": "exactlog_broker", "apache-kafka": "judge"}[broker_name]
    return request.getfixturevalue(fixture).bootstrap_servers


@pytest.fixture(scope="session")
def open_clients():
    """Adapters that stay open for the whole run: a program costs a second to start."""
    with contextlib.ExitStack() as stack:
        opened = {}

        def open_client(name, address):
            if (name, address) not in opened:
                with skip_without_peer():
                    adapter = CLIENTS[name].open(address)
                stack.callback(getattr(adapter, "close", lambda: None))
                opened[name, address] = adapter
            return opened[name, address]

        yield open_client


@pytest.fixture
def client(open_clients, client_name, bootstrap_servers):
    """One of the clients, told where the broker is."""
    return open_clients(client_name, bootstrap_servers)


@pytest.fixture
def client_of_its_own(client_name):
    """Opens the client for a broker that the case has started itself: ``with client_of_its_own(address) as client``."""

    @contextlib.contextmanager
    def opened(bootstrap_servers):
        with skip_without_peer():
            client = CLIENTS[client_name].open(bootstrap_servers)
        try:
            yield client
        finally:
            getattr(client, "close", lambda: None)()

    return opened


@pytest.fixture
def refused_sockets_are_closed(monkeypatch):
    """kafka-python leaves a socket open when it is refused; which test is blamed for it would be chance."""
    socket_class = kafka.net.inet.KafkaNetSocket
    sock_connect = socket_class.sock_connect

    async def connect_or_close(self, net, sock, sockaddr, timeout_at=None):
        try:
            return await sock_connect(self, net, sock, sockaddr, timeout_at=timeout_at)
        except BaseException:
            sock.close()
            raise

    monkeypatch.setattr(socket_class, "sock_connect", connect_or_close)


@pytest.fixture
def control(open_clients, bootstrap_servers):
    """A client that makes what a case needs and looks at what came of it, where that is not what the case is about."""
    return open_clients("confluent-kafka", bootstrap_servers)


@pytest.fixture
def let_time_pass(request, broker_name):
    """Moves the broker's clock, where it can be moved; Apache Kafka takes its time."""
    return request.getfixturevalue("exactlog_broker").clock.advance_ms if broker_name == "exactlog" else lambda _: None


@pytest.fixture
def now_ms(request, broker_name):
    """Reads the broker's clock: other tests may have moved it."""
    if broker_name == "exactlog":
        return request.getfixturevalue("exactlog_broker").clock.now_ms
    return lambda: time.time_ns() // 1_000_000


@pytest.fixture
def found(broker_name):
    """Whether a condition holds: at once; with Apache Kafka, which answers before its broker knows, soon."""

    def holds(condition):
        deadline = time.monotonic() + (5 if broker_name == "apache-kafka" else 0)
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.05)
        return condition()

    return holds


@pytest.fixture
def new_name():
    """A name that no topic and no group has."""
    return f"client-{uuid.uuid4().hex}"


@pytest.fixture
def topic(client, new_name):
    """A topic of one partition, made by the client under test."""
    client.create_topic(new_name)
    return new_name


@pytest.fixture
def members():
    """The members of the group of this case."""
    with Members() as all_of_them:
        yield all_of_them


@pytest.fixture
def join(members, bootstrap_servers, new_name):
    """Starts a member: ``join(client name, its client id, topics, **membership)``."""

    def join_group(client_name, client_id, topics, **more):
        with skip_without_peer():
            command = CLIENTS[client_name].member_command(bootstrap_servers)
        return members.join(command, Membership(topics=topics, group=new_name, client_id=client_id, **more))

    return join_group
