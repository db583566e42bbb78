"""Transactions of the wire client and of the command line, against our own broker and against Apache Kafka."""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import time
import uuid

import pytest
from confluent_kafka import Producer as ConfluentProducer

from exactlog.client.adapters import connect
from exactlog.client.hanging_transactions import find_hanging
from exactlog.client.ports import LATEST, ClientSettings, IsolationLevel
from exactlog.client.transactions import ProducerFencedError
from exactlog.client.wire import transactional_producer
from exactlog.core.model.ids import TopicPartition
from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from exactlog.core.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from exactlog.core.record.batch_builder import NewRecord, build_batch
from exactlog.testing import Broker

SETTINGS = ClientSettings(deadline_ms=60_000)
EXACTLOG = (sys.executable, "-m", "exactlog.cli.main")
PATIENCE_S = 60
PARTITIONS = 3
_BROKER_CONFIG, _WHOLE_CLUSTER = 4, ""
VERIFICATION = "transaction.partition.verification.enable"


@pytest.fixture(scope="module")
def our_broker():
    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture(params=["exactlog", pytest.param("apache kafka", marks=pytest.mark.peer)])
def bootstrap(request):
    if request.param == "exactlog":
        return request.getfixturevalue("our_broker")
    return request.getfixturevalue("apache_kafka").bootstrap_servers


@pytest.fixture(params=[1, 2])
def level(request, monkeypatch):
    """The client works at that level of `transaction.version`; both brokers serve both."""
    usual = transactional_producer.transaction_version_of
    monkeypatch.setattr(
        transactional_producer, "transaction_version_of", lambda versions: min(request.param, usual(versions))
    )
    return request.param


@pytest.fixture
def name():
    """Of a topic, a group and a transactional id."""
    return f"txn-{uuid.uuid4().hex[:12]}"


@contextlib.asynccontextmanager
async def topic_on(bootstrap, name):
    async with connect(f"kafka://{bootstrap}", SETTINGS) as client:
        await client.create_topic(name, partition_count=PARTITIONS)
        yield client


async def committed_values(client, name, *, count):
    """What a reader of committed records gets, once there is so much; markers take a while on Apache Kafka."""
    places = [TopicPartition(name, partition) for partition in range(PARTITIONS)]
    values = []
    reading = client.consume(dict.fromkeys(places, 0), isolation=IsolationLevel.READ_COMMITTED)
    async with asyncio.timeout(PATIENCE_S), contextlib.aclosing(reading):
        while len(values) < count:
            values.append((await anext(reading)).record.value)
    return sorted(values)


async def test_records_count_together_or_not_at_all(bootstrap, level, name):
    async with topic_on(bootstrap, name) as client, client.transactional_producer(name) as producer:
        for round_number in range(3):
            async with producer.transaction():
                for partition in range(PARTITIONS):
                    await producer.produce(name, [NewRecord(b"%d" % round_number)], partition=partition)
            await producer.begin()
            await producer.produce(name, [NewRecord(b"aborted")] * 2, partition=round_number)
            await producer.abort()
        async with producer.transaction():
            await producer.produce(name, [NewRecord(b"end")] * PARTITIONS)
        values = await committed_values(client, name, count=4 * PARTITIONS)
    assert values == sorted([b"0", b"1", b"2", b"end"] * PARTITIONS)


async def test_offsets_move_with_a_commit_and_not_with_an_abort(bootstrap, level, name):
    place = TopicPartition(name, 0)
    async with topic_on(bootstrap, name) as client, client.transactional_producer(name) as producer:
        async with producer.transaction():
            await producer.produce(name, [NewRecord(b"a")], partition=0)
            await producer.send_offsets(name, {place: 1})
        await producer.begin()
        await producer.send_offsets(name, {place: 99})
        await producer.abort()
        async with producer.transaction():  # waits for the markers of the one before
            await producer.send_offsets(name, {TopicPartition(name, 1): 5})
        async with asyncio.timeout(PATIENCE_S):
            # Only the broker knows when it has come that far.
            while len(committed := await client.list_committed_offsets(name)) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    assert {found.partition: offset.offset for found, offset in committed.items()} == {0: 1, 1: 5}


async def test_who_takes_the_id_fences_who_had_it(bootstrap, level, name):
    async with topic_on(bootstrap, name) as client, client.transactional_producer(name) as old:
        await old.begin()
        await old.produce(name, [NewRecord(b"ghost")], partition=0)
        async with client.transactional_producer(name) as new:
            async with new.transaction():
                await new.produce(name, [NewRecord(b"real")], partition=0)
            with pytest.raises(ProducerFencedError):
                await old.produce(name, [NewRecord(b"ghost")], partition=1)
            with pytest.raises(ProducerFencedError):
                await old.commit()
        assert await committed_values(client, name, count=1) == [b"real"]


async def test_a_client_of_another_make_fences_and_is_fenced(bootstrap, level, name):
    async with topic_on(bootstrap, name) as client, client.transactional_producer(name) as ours:
        await ours.begin()
        await ours.produce(name, [NewRecord(b"ours")], partition=0)
        theirs = ConfluentProducer({"bootstrap.servers": bootstrap, "transactional.id": name})
        await asyncio.to_thread(theirs.init_transactions, PATIENCE_S)
        theirs.begin_transaction()
        theirs.produce(name, b"theirs", partition=0)
        await asyncio.to_thread(theirs.commit_transaction, PATIENCE_S)
        with pytest.raises(ProducerFencedError):
            await ours.commit()
        assert await committed_values(client, name, count=1) == [b"theirs"]


async def test_processes_share_a_transaction_and_late_ones_are_fenced(bootstrap, level, name):
    async with topic_on(bootstrap, name) as client, client.transactional_producer(name) as driver:
        for number in range(2):
            shared = await driver.begin_shared()
            parts = [client.join_transaction(shared) for _ in range(PARTITIONS)]
            await asyncio.gather(
                *(
                    part.produce(name, [NewRecord(b"%d-%d" % (number, partition))] * 2, partition=partition)
                    for partition, part in enumerate(parts)
                )
            )
            await driver.commit()
        await (await begin_and_end_empty(driver)).commit()
        await driver.begin_shared()
        with pytest.raises(ProducerFencedError):
            await client.join_transaction(shared).produce(name, [NewRecord(b"late")], partition=0)
        values = await committed_values(client, name, count=4 * PARTITIONS)
    assert values == sorted(
        b"%d-%d" % (number, partition) for number in (0, 1) for partition in (0, 1, 2) for _ in "ab"
    )


@pytest.mark.parametrize("is_commit", [True, False])
async def test_a_transaction_is_begun_written_and_ended_by_three_clients(bootstrap, level, name, is_commit):
    place, group = TopicPartition(name, 0), f"{name}-group"
    async with topic_on(bootstrap, name) as client:
        async with connect(f"kafka://{bootstrap}", SETTINGS) as beginner:
            producer = beginner.transactional_producer(name)
            shared = await producer.begin_shared()
            assert await producer.stable_offsets(group) == {}
            assert await beginner.partition_count(name) == PARTITIONS
        async with connect(f"kafka://{bootstrap}", SETTINGS) as writer:
            part = writer.join_transaction(shared)
            for sequence in range(0, 4, 2):
                await part.send_batch(place, two_records(shared, sequence))
        async with connect(f"kafka://{bootstrap}", SETTINGS) as ender:
            producer = ender.resume_transaction(shared)
            await producer.send_offsets(group, {place: 7}, metadata="seven")
            await (producer.commit() if is_commit else producer.abort())
            async with ender.transactional_producer(name) as next_producer, next_producer.transaction():
                await next_producer.produce(name, [NewRecord(b"next")], partition=0)
                found = await next_producer.stable_offsets(group)
        values = await committed_values(client, name, count=5 if is_commit else 1)
    assert values == [b"next", *[b"record"] * (4 * is_commit)]
    assert {place: (offset.offset, offset.metadata) for place, offset in found.items()} == (
        {place: (7, "seven")} if is_commit else {}
    )


async def test_to_resume_a_transaction_takes_nothing_over(bootstrap, level, name):
    async with topic_on(bootstrap, name) as client:
        shared = await client.transactional_producer(name).begin_shared()
        await client.join_transaction(shared).send_batch(TopicPartition(name, 0), two_records(shared, 0))
        async with client.transactional_producer(name) as other, other.transaction():
            await other.produce(name, [NewRecord(b"other")], partition=0)
            with pytest.raises(ProducerFencedError):
                await client.resume_transaction(shared).abort()
        assert await committed_values(client, name, count=1) == [b"other"]


def two_records(shared, sequence):
    return build_batch(
        [NewRecord(b"record")] * 2,
        producer_id=shared.producer_id,
        producer_epoch=shared.producer_epoch,
        base_sequence=sequence,
        is_transactional=True,
    )


async def begin_and_end_empty(driver):
    """A shared transaction in which nobody wrote can be aborted, and another one begun."""
    await driver.begin_shared()
    await driver.abort()
    await driver.begin_shared()
    return driver


async def test_a_transaction_is_seen_from_outside(bootstrap, level, name):
    place = TopicPartition(name, 1)
    async with topic_on(bootstrap, name) as client, client.transactional_producer(name, timeout_ms=54_321) as producer:
        await producer.begin()
        await producer.produce(name, [NewRecord(b"a")], partition=1)
        identity = producer.identity

        found = await client.describe_transaction(name)
        assert (found.state, found.partitions, found.timeout_ms) == ("Ongoing", (place,), 54_321)
        assert (found.producer_id, found.producer_epoch) == (identity.producer_id, identity.producer_epoch)
        assert abs(found.started_at_ms - time.time() * 1000) < PATIENCE_S * 1000

        (active,) = (await client.describe_producers([place]))[place]
        assert (active.producer_id, active.producer_epoch) == (identity.producer_id, identity.producer_epoch)
        assert (active.txn_start_offset, active.last_sequence) == (0, 0)
        assert await find_hanging(client, [place]) == ()

        async def listed(**filters):
            return [found.transactional_id for found in await client.list_transactions(**filters)]

        assert await listed(states=["Ongoing"], producer_ids=[identity.producer_id]) == [name]
        assert await listed(states=["Empty"], producer_ids=[identity.producer_id]) == []
        assert await listed(open_for_ms_min=3_600_000, id_pattern=f"{name}.*") == []
        assert await listed(open_for_ms_min=0, id_pattern=f"{name}.*") == [name]
        assert await listed(id_pattern=name[:-1]) == []

        await producer.commit()
        assert set(await client.describe_transactions([name, "no such id"])) == {name}


# --- the command line -----------------------------------------------------------------------------------------


def run(bootstrap, *arguments, stdin=""):
    command = [*EXACTLOG, "-b", bootstrap, *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def value_of(ran):
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def wait_for_committed(bootstrap, name, count):
    """So many records can be read by a reader of committed records."""
    ran = run(bootstrap, "consume", name, "-f", "-n", count, "--isolation", "read_committed")
    return [json.loads(line)["value"] for line in ran.stdout.splitlines()]


def test_lines_are_produced_in_transactions(bootstrap, name):
    assert run(bootstrap, "topic", "create", name).returncode == 0
    batches = run(bootstrap, "produce", name, "--txn", name, "--batch", 2, stdin="a\nb\nc\n")
    aborted = run(bootstrap, "produce", name, "--txn", name, "--abort-after", 1, stdin="x\ny\n")
    last = run(bootstrap, "produce", name, "--txn", name, stdin="d\n")

    assert [json.loads(line)["records"] for line in batches.stdout.splitlines()] == [2, 1], batches.stderr
    assert json.loads(aborted.stdout)["outcome"] == "aborted"
    assert json.loads(last.stdout)["outcome"] == "committed"
    assert wait_for_committed(bootstrap, name, 4) == ["a", "b", "c", "d"]


def test_an_interrupted_producer_aborts_what_is_open(bootstrap, name):
    assert run(bootstrap, "topic", "create", name).returncode == 0
    command = [*EXACTLOG, "-b", bootstrap, "produce", name, "--txn", name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as producer:
        producer.stdin.write("a\n")
        producer.stdin.flush()
        wait_until(lambda: described(bootstrap, name).get("state") == "Ongoing")
        producer.send_signal(signal.SIGINT)
        producer.communicate(timeout=PATIENCE_S)

    assert producer.returncode == 130
    wait_until(lambda: described(bootstrap, name)["state"] == "CompleteAbort")
    assert run(bootstrap, "produce", name, stdin="b\n").returncode == 0
    assert wait_for_committed(bootstrap, name, 1) == ["b"]


def described(bootstrap, name):
    ran = run(bootstrap, "txn", "describe", name)
    return json.loads(ran.stdout) if ran.returncode == 0 else {}


def wait_until(is_so):
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextlib.contextmanager
def open_transaction(bootstrap, name):
    """A transaction of a confluent producer with one record; the producer."""
    producer = ConfluentProducer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(name, b"held", partition=0)
    producer.flush(PATIENCE_S)
    yield producer


def test_an_open_transaction_is_shown_with_who_waits_and_is_aborted_by_its_id(bootstrap, name):
    run(bootstrap, "topic", "create", name)
    run(bootstrap, "produce", name, stdin="a\n")
    waiting = ("consume", name, "-g", name, "--isolation", "read_committed")
    assert run(bootstrap, *waiting).returncode == 0
    with open_transaction(bootstrap, name) as producer:
        shown = described(bootstrap, name)
        assert shown["partitions"] == [
            {
                "topic": name,
                "partition": 0,
                "start_offset": 1,
                "last_stable_offset": 1,
                "end_offset": 2,
                "waiting_groups": [name],
            }
        ]
        assert name in run(bootstrap, "txn", "list", "--state", "ongoing", "-o", "table").stdout
        rows = value_of(run(bootstrap, "txn", "producers", f"{name}:0"))
        assert [row["start_offset"] for row in rows if row["producer_id"] == shown["producer_id"]] == [1]
        assert value_of(run(bootstrap, "txn", "find-hanging", name)) == []
        assert run(bootstrap, "txn", "abort", f"{name}:0", "--start-offset", 1).returncode == 4

        assert value_of(run(bootstrap, "txn", "abort", name, "--yes"))["unblocked_groups"] == [name]

        with pytest.raises(Exception, match=r"FENCED|fenced|_STATE"):
            producer.commit_transaction(PATIENCE_S)
    assert run(bootstrap, "txn", "abort", name, "--yes").returncode == 4
    run(bootstrap, "produce", name, stdin="b\n")
    assert wait_for_committed(bootstrap, name, 2) == ["a", "b"]


def test_an_open_transaction_can_be_aborted_in_one_partition_by_force(bootstrap, name):
    run(bootstrap, "topic", "create", name)
    with open_transaction(bootstrap, name) as producer:
        run(bootstrap, "produce", name, stdin="b\n")
        aborting = ("txn", "abort", f"{name}:0", "--start-offset", 0)
        assert run(bootstrap, *aborting).returncode == 4
        assert value_of(run(bootstrap, *aborting, "--force"))["aborted"]
        assert wait_for_committed(bootstrap, name, 1) == ["b"]
        assert [row["start_offset"] for row in value_of(run(bootstrap, "txn", "producers", name))] == [None, None]
        assert run(bootstrap, *aborting).returncode == 3
        producer.abort_transaction(PATIENCE_S)


def test_watching_tells_every_change_until_it_is_interrupted(bootstrap, name):
    run(bootstrap, "topic", "create", name)
    command = [*EXACTLOG, "-b", bootstrap, "txn", "watch", name, "--interval", "20ms", "-o", "jsonl"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watcher:
        with open_transaction(bootstrap, name) as producer:
            seen = []
            while "Ongoing" not in seen:
                seen.append(json.loads(watcher.stdout.readline())["state"])
            producer.commit_transaction(PATIENCE_S)
            while "CompleteCommit" not in seen:
                seen.append(json.loads(watcher.stdout.readline())["state"])
        watcher.send_signal(signal.SIGINT)
        _, err = watcher.communicate(timeout=PATIENCE_S)
    assert (watcher.returncode, err.strip()) == (130, "")


# --- transactions that hang: Apache Kafka alone can be made to have one ----------------------------------------


async def set_verification(client, *, is_on):
    """Whether Apache Kafka asks the coordinator before it takes records of a transaction (KIP-890)."""
    config = AlterableConfig(name=VERIFICATION, config_operation=0, value=str(is_on).lower())
    resource = AlterConfigsResource(resource_type=_BROKER_CONFIG, resource_name=_WHOLE_CLUSTER, configs=(config,))
    connection = await client._cluster.any_connection()
    response = await connection.request(
        IncrementalAlterConfigsRequest(resources=(resource,)), IncrementalAlterConfigsResponse, version=1
    )
    assert [found.error_code for found in response.responses] == [0]


async def make_hanging(bootstrap, name):
    """Records of a transaction that was never begun, as a lost AddPartitionsToTxn once left them."""
    async with connect(f"kafka://{bootstrap}", SETTINGS) as client:
        identity = await client.init_producer_id()
        batch = build_batch(
            [NewRecord(b"ghost", timestamp_ms=1_000)],
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )
        data = PartitionProduceData(index=0, records=batch)
        request = ProduceRequest(
            transactional_id=name,
            acks=-1,
            timeout_ms=PATIENCE_S * 1000,
            topic_data=(TopicProduceData(name=name, partition_data=(data,)),),
        )
        await set_verification(client, is_on=False)
        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    connection = await client._cluster.connection_to(
                        await client._cluster.leader_of(TopicPartition(name, 0))
                    )
                    assert ApiKey.PRODUCE in connection.versions.served
                    answer = await connection.request(request, ProduceResponse, version=10)
                    if answer.responses[0].partition_responses[0].error_code == 0:
                        return identity
                    await asyncio.sleep(0.05)  # the setting is on its way
        finally:
            await set_verification(client, is_on=True)


@pytest.mark.peer
def test_a_hanging_transaction_is_found_and_aborted(apache_kafka, name):
    bootstrap = apache_kafka.bootstrap_servers
    run(bootstrap, "topic", "create", name)
    run(bootstrap, "produce", name, stdin="a\n")
    assert run(bootstrap, "consume", name, "-g", name, "--isolation", "read_committed").returncode == 0
    identity = asyncio.run(make_hanging(bootstrap, name))
    run(bootstrap, "produce", name, stdin="b\n")

    (row,) = value_of(run(bootstrap, "txn", "find-hanging"))

    assert (row["topic"], row["partition"], row["start_offset"], row["end_offset"]) == (name, 0, 1, 3)
    assert (row["producer_id"], row["transactional_id"], row["started_at"]) == (identity.producer_id, None, 1_000)
    assert row["waiting_groups"] == [name]
    _, *arguments = row["command"].split()
    aborted = value_of(run(bootstrap, *arguments))
    assert aborted["unblocked_groups"] == [name]
    assert value_of(run(bootstrap, "txn", "find-hanging")) == []
    assert wait_for_committed(bootstrap, name, 2) == ["a", "b"]


@pytest.mark.peer
async def test_what_hangs_is_told_from_what_is_open(apache_kafka, name):
    async with (
        topic_on(apache_kafka.bootstrap_servers, name) as client,
        client.transactional_producer(name) as producer,
    ):
        await make_hanging(apache_kafka.bootstrap_servers, name)
        await producer.begin()
        await producer.produce(name, [NewRecord(b"open")], partition=0)
        place = TopicPartition(name, 0)
        (found,) = await find_hanging(client, [place])
        assert (found.start_offset, found.coordinated) == (0, None)
        await client.write_abort_marker(
            place,
            producer_id=found.producer.producer_id,
            producer_epoch=found.producer.producer_epoch,
            coordinator_epoch=0,
        )
        await producer.commit()
        assert await committed_values(client, name, count=1) == [b"open"]
        ends = await client.list_offsets({place: LATEST})
        assert ends[place].offset == 4
