"""Seed 004: its configuration (TransactionTimeoutConfig), persistence, APIs and error codes, a test a row or sentence.

Where ours is otherwise than the seed, docs/differences.md says why.
"""

import json
import subprocess
import sys

import pytest

from exactlog.core.config.broker_configs import BrokerConfig, find_broker_config_key
from exactlog.core.model.authorization import Operation, ResourceType
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import ConfigError
from exactlog.core.protocol.api_keys import APIS, ApiKey
from exactlog.node.config import load_config
from exactlog.node.node import Node
from exactlog.storage.filesystem import MemoryFilesystem, OsFilesystem
from exactlog.testing import Broker
from tests.support.counting_filesystem import CountingFilesystem
from tests.support.denying_authorizer import DenyingAuthorizer, broker_with
from tests.support.raw_client import RawClient, Topic
from tests.support.raw_transactions import (
    ABORT,
    COMMIT,
    TransactionalProducer,
    describe,
    write_marker,
)
from tests.support.transaction_steps import FLOWS, ends, no_markers, open_producer, settle, state_of, visible
from tests.support.watching import wait_until

NONE = ErrorCode.NONE
TV1, TV2 = FLOWS

both = pytest.mark.parametrize("flow", FLOWS, ids=repr)

DAY_MS = 86_400_000


@pytest.fixture
def configured():
    """Starts a broker with some of the configuration, and gives it with a connection."""
    started = []

    def start(**config):
        broker = Broker(config={"in.memory": True, **config})
        broker.start()
        started.append((broker, RawClient(broker.port)))
        return started[-1]

    yield start
    for broker, raw in started:
        raw.close()
        broker.stop()


# --- TransactionTimeoutConfig ---------------------------------------------------------------------------------------

FIELDS = {
    "check_interval_ms": 10_000,
    "write_abort_markers": True,
    "fence_on_timeout": True,
    "min_timeout_ms": 1_000,
    "max_timeout_ms": 900_000,
}


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_has_the_seeds_name_and_default(name):
    """TransactionTimeoutConfig: Field, Default; each can be set by the seed's name."""
    key = find_broker_config_key(name)
    other = "false" if FIELDS[name] is True else "1500"

    assert getattr(BrokerConfig(), key.attribute) == key.default == FIELDS[name]
    assert getattr(load_config(overrides=[(name, other)]), key.attribute) == (other == "1500" and 1_500)


def test_the_longest_timeout_has_kafkas_name_too():
    """max_timeout_ms is Kafka's transaction.max.timeout.ms: one value; two different ones are an error."""
    for name in ("max_timeout_ms", "transaction.max.timeout.ms"):
        assert load_config(overrides=[(name, "60000")]).transaction_max_timeout_ms == 60_000
    with pytest.raises(ConfigError, match=r"transaction\.max\.timeout\.ms"):
        load_config(overrides=[("max_timeout_ms", "60000"), ("transaction.max.timeout.ms", "70000")])


@pytest.mark.parametrize(("asked_ms", "given_ms"), [(1, 1_000), (999, 1_000), (1_000, 1_000), (60_000, 60_000)])
def test_a_timeout_below_the_least_is_raised_to_it(raw, topic, asked_ms, given_ms):
    """min_timeout_ms: minimum allowed client timeout; under both policies."""
    open_producer(raw, topic.name, timeout_ms=asked_ms)

    assert describe(raw, topic.name).transaction_timeout_ms == given_ms


def test_a_timeout_above_the_greatest_is_refused(raw, topic):
    """max_timeout_ms: maximum allowed client timeout (15 min): by Kafka's rule error 50, and no id is made."""
    assert TransactionalProducer(raw, topic.name, timeout_ms=900_001).init() is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert ErrorCode(describe(raw, topic.name).error_code) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert TransactionalProducer(raw, topic.name, timeout_ms=900_000).init() is NONE


def test_with_the_policy_clamp_every_timeout_is_clamped(configured):
    """Client-requested timeouts are clamped to `[min_timeout_ms, max_timeout_ms]`."""
    _, raw = configured(timeout_policy="clamp", min_timeout_ms=2_000, max_timeout_ms=50_000)

    asked = [-(2**31), -1, 0, 1, 1_999, 2_000, 2_001, 49_999, 50_000, 50_001, 2**31 - 1]
    given = []
    for number, timeout_ms in enumerate(asked):
        open_producer(raw, f"mine-{number}", timeout_ms=timeout_ms)
        given.append(describe(raw, f"mine-{number}").transaction_timeout_ms)

    assert given == [2_000] * 6 + [2_001, 49_999] + [50_000] * 3


def test_the_checker_runs_as_often_as_it_is_told(configured):
    """check_interval_ms: how often the timeout checker runs (ms)."""
    broker, raw = configured(check_interval_ms=300_000)
    topic = raw.create_topic()
    producer = open_producer(raw, "mine", timeout_ms=1_000)
    producer.produce((topic, 0, b"slow"))
    broker.clock.advance_ms(250_000)
    assert state_of(raw, "mine") == "Ongoing"

    broker.clock.advance_ms(51_000)

    wait_until(lambda: state_of(raw, "mine") == "CompleteAbort")


@both
def test_what_times_out_is_ended_by_abort_markers(configured, flow):
    """write_abort_markers, true: write ABORT control records for timed-out transactions, in every partition."""
    broker, raw = configured()
    topic = raw.create_topic(partitions=2)
    producer = open_producer(raw, "mine", timeout_ms=1_000)
    flow.write(producer, (topic, 0, b"slow"), (topic, 1, b"slow"))
    broker.clock.advance_ms(11_001)
    wait_until(lambda: state_of(raw, "mine") == "CompleteAbort")

    assert [(visible(raw, topic, index), ends(raw, topic, index)) for index in range(2)] == [([], (2, 2))] * 2


def test_without_abort_markers_nothing_times_out(configured):
    """write_abort_markers, false: there is no abort without markers; the transaction stays open, and can be ended."""
    broker, raw = configured(write_abort_markers=False)
    topic = raw.create_topic()
    producer = open_producer(raw, "mine", timeout_ms=1_000)
    producer.produce((topic, 0, b"slow"))
    broker.clock.advance_ms(100_000)
    assert (state_of(raw, "mine"), ends(raw, topic)) == ("Ongoing", (0, 1))

    TV2.finish(producer)

    assert visible(raw, topic) == [b"slow"]


@pytest.mark.parametrize("is_fenced", [True, False])
def test_whoever_timed_out_is_fenced_if_that_is_asked_for(configured, is_fenced):
    """fence_on_timeout: bump producer epoch on timeout (prevent zombies). In no case does it commit the rest of what
    was aborted; without the switch, and always with KIP-890, it may go on by its id and epoch (KIP-360).
    """
    broker, raw = configured(fence_on_timeout=is_fenced, **{"transaction.version": 1})
    topic = raw.create_topic()
    producer = open_producer(raw, "mine", timeout_ms=1_000)
    TV1.write(producer, (topic, 0, b"slow"))
    broker.clock.advance_ms(11_001)
    wait_until(lambda: state_of(raw, "mine") == "CompleteAbort")

    assert producer.add((topic, 0)) == [ErrorCode.PRODUCER_FENCED]
    assert TV1.end(producer, COMMIT) is ErrorCode.PRODUCER_FENCED
    assert producer.init(keeps=True) is (ErrorCode.PRODUCER_FENCED if is_fenced else NONE)
    assert visible(raw, topic) == []


# --- Persistence ----------------------------------------------------------------------------------------------------


def export_of(directory):
    return json.loads((directory / "transactions" / "transactions.json").read_bytes())


def wait_for_export(directory, is_expected):
    """Waits for an export that has something in it; it is whole whenever it is read."""
    path = directory / "transactions" / "transactions.json"
    wait_until(lambda: path.exists() and is_expected(export_of(directory)["transactions"]))


def test_the_state_is_saved_to_transactions_json(tmp_path):
    """The coordinator saves state to `<data_dir>/transactions/transactions.json`: readable, within a second."""
    with Broker(tmp_path) as broker, RawClient(broker.port) as raw:
        topic = raw.create_topic("orders", partitions=2)
        producer = open_producer(raw, "my-txn", timeout_ms=60_000)
        producer.produce((topic, 1, b"value"), (topic, 0, b"value"))
        broker.clock.advance_ms(1_000)
        wait_for_export(tmp_path, lambda found: found and found[0]["state"] == "Ongoing")
        (entry,) = export_of(tmp_path)["transactions"]

        assert (entry["transactional_id"], entry["timeout_ms"]) == ("my-txn", 60_000)
        assert (entry["producer_id"], entry["producer_epoch"]) == producer.identity
        assert entry["partitions"] == [{"topic": "orders", "partition": index} for index in range(2)]
        TV2.finish(producer)
    (entry,) = export_of(tmp_path)["transactions"]

    assert (entry["state"], entry["partitions"]) == ("CompleteCommit", [])


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b'{"transactions": [{"transactional_id": "ghost"}]}'])
def test_the_export_is_never_read(tmp_path, content):
    """The seed's own system does not start with a damaged one; ours is a copy: gone or damaged, nothing changes."""
    with Broker(tmp_path) as broker:
        with RawClient(broker.port) as raw:
            topic = raw.create_topic()
            producer = open_producer(raw, "mine")
            producer.produce((topic, 0, b"value"))
        broker.stop()
        path = tmp_path / "transactions" / "transactions.json"
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        broker.start()

        with RawClient(broker.port) as raw:
            producer.raw = raw
            TV2.finish(producer)
            assert visible(raw, topic) == [b"value"]
            assert ErrorCode(describe(raw, "ghost").error_code) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def counted(files, **config):
    """A broker over files that note what is done to them."""
    return Broker(make_node=lambda given, clock: Node(given, clock=clock, filesystem=files), **config)


def of_export(files):
    return [found for found in list(files.operations) if "/transactions" in found.path]


def test_the_export_is_replaced_whole_and_costs_no_commit_anything(tmp_path):
    """After every mutation, in the seed: each call costs the whole file. Here many share one, renamed into place."""
    files = CountingFilesystem(OsFilesystem())
    with counted(files, data_dir=tmp_path) as broker, RawClient(broker.port) as raw:
        topic = raw.create_topic()
        producer = open_producer(raw, "mine")
        for _ in range(20):
            producer.produce((topic, 0, b"value"))
            TV2.finish(producer)
    found = of_export(files)

    renamed = [operation.path for operation in found if operation.name == "rename"]
    assert set(renamed) == {f"{tmp_path}/transactions/transactions.json"}
    assert 0 < len(renamed) < 20  # of 60 changes
    assert not [each for each in found if each.name in {"write_at", "create"} and each.path == renamed[0]]
    assert not [each for each in found if each.name in {"sync", "sync_data", "sync_directory"}]


def test_in_memory_there_is_no_export():
    """In-memory mode skips all I/O: counted by a file system: nothing of an export, and nothing is synced."""
    files = CountingFilesystem(MemoryFilesystem())
    with counted(files, config={"in.memory": True}) as broker, RawClient(broker.port) as raw:
        topic = raw.create_topic()
        producer = open_producer(raw, "mine")
        producer.produce((topic, 0, b"value"))
        TV2.finish(producer)
        broker.clock.advance_ms(5_000)
        assert visible(raw, topic) == [b"value"]

    assert of_export(files) == []
    assert files.operations  # it has counted


IN_MEMORY = """
import json, sys
events = []
NAMES = {"open", "os.mkdir", "os.rename", "os.link", "os.remove", "os.truncate", "sqlite3.connect"}
from tests.support import transaction_steps as steps
from tests.support.raw_client import RawClient
from exactlog.testing import Broker

with Broker(config={"in.memory": True}) as broker, RawClient(broker.port) as raw:
    for number in range(2):
        topic = raw.create_topic()
        producer = steps.open_producer(raw, f"mine-{number}")
        producer.produce((topic, 0, b"value"))
        producer.commit_offsets("group", topic, 1)
        steps.FLOWS[1].finish(producer)
        broker.clock.advance_ms(5_000)
        if not number:  # by now every module is there
            sys.addaudithook(lambda name, arguments: events.append([name, str(arguments)]) if name in NAMES else None)
print(json.dumps(events))
"""


def test_in_memory_no_file_is_touched():
    """In-memory mode skips all I/O: the interpreter itself is asked which files the process opens, makes or renames."""
    ran = subprocess.run([sys.executable, "-c", IN_MEMORY], capture_output=True, check=True, text=True)

    assert json.loads(ran.stdout) == []


# --- Kafka protocol APIs --------------------------------------------------------------------------------------------

SEED_APIS = {
    22: ("InitProducerId", 0, 4),
    24: ("AddPartitionsToTxn", 0, 4),
    25: ("AddOffsetsToTxn", 0, 3),
    26: ("EndTxn", 0, 3),
    28: ("TxnOffsetCommit", 0, 3),
    27: ("WriteTxnMarkers", 0, 1),
    61: ("DescribeProducers", 0, 0),
    65: ("DescribeTransactions", 0, 0),
    66: ("ListTransactions", 0, 0),
}


@pytest.mark.parametrize("key", SEED_APIS)
def test_an_api_is_served_in_the_versions_of_the_seed(raw, key):
    """Kafka Protocol APIs: key, name, version range; ours go as far as Kafka's do today."""
    name, lowest, highest = SEED_APIS[key]
    request = APIS[ApiKey.API_VERSIONS].request(client_software_name="raw", client_software_version="1")
    served = {each.api_key: each for each in raw.ask(request, 3).api_keys}[key]

    assert APIS[ApiKey(key)].request.__name__ == f"{name}Request"
    assert served.min_version <= lowest
    assert served.max_version >= highest


# --- Error codes ----------------------------------------------------------------------------------------------------


def test_0_none(raw, topic):
    """0 NONE: success."""
    producer = open_producer(raw, topic.name)

    assert [int(code) for code in (*producer.produce((topic, 0, b"value")), producer.end(COMMIT))] == [0, 0]


def test_3_unknown_topic_or_partition(raw, topic):
    """3 UNKNOWN_TOPIC_OR_PARTITION: topic or partition does not exist."""
    producer = open_producer(raw, topic.name)

    for place in (topic, 1), (topic, -1), (Topic("nobody", None), 0):
        assert [int(code) for code in producer.add(place)] == [3]
        assert [int(code) for code in producer.produce((*place, b"value"))] == [3]
        assert int(write_marker(raw, place[0], *producer.identity, ABORT, partition=place[1])) == 3
    assert int(producer.commit_offsets("group", topic, 1, partition=7)) == 3


def test_15_coordinator_not_available(configured):
    """15 COORDINATOR_NOT_AVAILABLE: transaction coordinator is disabled."""
    _, raw = configured(**{"transactions.enabled": False})
    topic = raw.create_topic()
    producer = TransactionalProducer(raw, "mine").become(1, 0)

    assert [int(code) for code in (producer.init(), *producer.add((topic, 0)), producer.end(COMMIT))] == [15] * 3
    assert int(producer.add_offsets("group")) == 15
    assert describe(raw, "mine").error_code == 15


def test_47_invalid_producer_epoch(raw, topic):
    """47 INVALID_PRODUCER_EPOCH: producer epoch doesn't match (fenced); the seed's own: epoch 99, on each partition."""
    producer = open_producer(raw, topic.name)
    producer.become(producer.producer_id, 99)

    assert [int(code) for code in producer.add((topic, 0), version=1)] == [47]
    assert [int(code) for code in producer.produce((topic, 0, b"value"))] == [47]
    assert int(producer.end(COMMIT, version=1)) == 47


def test_48_invalid_txn_state(raw, topic):
    """48 INVALID_TXN_STATE: operation not valid for current transaction state."""
    producer = open_producer(raw, topic.name)

    assert int(producer.end(COMMIT)) == 48
    assert [int(code) for code in producer.produce((topic, 0, b"value"), version=3)] == [48]
    assert int(producer.commit_offsets("group", topic, 150, version=3)) == 48


def test_49_invalid_producer_id_mapping(raw, topic):
    """49 INVALID_PRODUCER_ID_MAPPING: producer ID doesn't match transaction."""
    producer = open_producer(raw, topic.name).become(2**40, 0)

    assert [int(code) for code in producer.add((topic, 0))] == [49]
    assert (int(producer.add_offsets("group")), int(producer.end(COMMIT))) == (49, 49)
    assert int(producer.commit_offsets("group", topic, 1)) == 49


def test_51_concurrent_transactions(broker, raw, topic):
    """51 CONCURRENT_TRANSACTIONS: another transaction is in progress."""
    producer = open_producer(raw, topic.name)
    producer.produce((topic, 0, b"value"))
    with no_markers():
        producer.end(COMMIT)
        codes = [int(TransactionalProducer(raw, topic.name).init()), *map(int, producer.add((topic, 0)))]
    broker.clock.advance_ms(1_000)
    settle(raw, topic.name)

    assert codes == [51, 51]


def test_52_transaction_coordinator_fenced(raw, topic):
    """52 TRANSACTION_COORDINATOR_FENCED: coordinator epoch mismatch."""
    assert write_marker(raw, topic, 2**40, 1, ABORT, coordinator_epoch=5) is NONE

    assert int(write_marker(raw, topic, 2**40, 2, ABORT, coordinator_epoch=4)) == 52


def test_53_transactional_id_authorization_failed():
    """53 TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ACL denied."""
    authorizer = DenyingAuthorizer()
    with broker_with(authorizer) as own, RawClient(own.port) as raw:
        topic = raw.create_topic()
        producer = open_producer(raw, "mine")
        authorizer.deny(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "mine")

        codes = [producer.init(), *producer.add((topic, 0)), *producer.produce((topic, 0, b"value"))]
        codes += [producer.add_offsets("group"), producer.commit_offsets("group", topic, 1), producer.end(COMMIT)]

        assert [int(code) for code in codes] == [53] * 6
        assert ends(raw, topic) == (0, 0)


def test_90_producer_fenced(raw, topic):
    """90 PRODUCER_FENCED: producer was fenced by a new instance."""
    producer = open_producer(raw, topic.name)
    open_producer(raw, topic.name)

    assert [int(code) for code in producer.add((topic, 0))] == [90]
    codes = [producer.add_offsets("group"), producer.end(COMMIT), producer.init(keeps=True)]
    assert [int(code) for code in codes] == [90] * 3


# --- Comparison with Apache Kafka, what is said of the seed's own ---------------------------------------------------


def test_the_partitions_of_a_transaction_are_bounded_by_the_configuration(configured):
    """Max partitions/txn: Configurable."""
    _, raw = configured(**{"transaction.partitions.max": 2})
    topic = raw.create_topic(partitions=3)
    producer = open_producer(raw, "mine")

    assert producer.produce((topic, 0, b"v"), (topic, 1, b"v")) == [NONE] * 2
    assert producer.produce((topic, 2, b"v")) == [ErrorCode.TRANSACTION_ABORTABLE]
    TV2.finish(producer, ABORT)

    assert [visible(raw, topic, index) for index in range(3)] == [[]] * 3
