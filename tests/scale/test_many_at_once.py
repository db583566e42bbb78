"""A thousand connections, a thousand partitions, readers that do not read: what they cost is bounded."""

import asyncio
import os
import socket
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from demo.served_broker import ServedBroker
from exactlog.core.protocol.messages.metadata import MetadataRequest
from exactlog.node.config import load_config
from exactlog.node.node import Node
from exactlog.storage.filesystem import OsFilesystem
from tests.support.counting_filesystem import CountingFilesystem
from tests.support.raw_client import RawClient, batch_of, encode_request, fetch_request, frame

MANY = 1_000
DESCRIPTORS_OF_A_BROKER = 40  # its own: sockets, catalog, loop, executable
CONNECTION_BYTES_MAX = 32 * 1024
PARTITION_BYTES_MAX = 64 * 1024
MIB = 1024 * 1024

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def serve(tmp_path):
    """Serves brokers, each a process of its own."""
    with ExitStack() as stack:

        def start(*options):
            broker = ServedBroker(tmp_path / "data", log=tmp_path / "broker.log", options=options)
            return stack.enter_context(broker)

        yield start


class Served:
    def __init__(self, broker):
        self.folder = Path("/proc") / str(broker.ready["pid"])

    @property
    def resident_bytes(self):
        for line in (self.folder / "status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS")

    @property
    def descriptors(self):
        return sum(1 for _ in (self.folder / "fd").iterdir())

    def wait_for_descriptors(self, least):
        give_up_at = time.monotonic() + 30
        while self.descriptors > least and time.monotonic() < give_up_at:
            time.sleep(0.05)
        return self.descriptors


def test_a_thousand_connections_take_a_thousand_descriptors_and_little_memory(serve):
    """B057 nisshi PR#730: a thousand connections with one request each hung on a pool without bound."""
    broker = serve("--flush-mode", "none")
    process = Served(broker)
    with RawClient(broker.port) as raw:
        raw.ask(MetadataRequest(topics=()), 12)
        descriptors, resident = process.descriptors, process.resident_bytes
        clients = [RawClient(broker.port) for _ in range(MANY)]
        for client in clients:
            client.send(MetadataRequest(topics=()), 12)
        assert all(client.receive().cluster_id for client in clients)

        assert process.descriptors <= descriptors + MANY
        assert process.resident_bytes - resident < MANY * CONNECTION_BYTES_MAX
        for client in clients:
            client.close()
        assert process.wait_for_descriptors(descriptors) <= descriptors
        assert raw.ask(MetadataRequest(topics=()), 12).cluster_id


def test_a_thousand_partitions_in_use_keep_few_files_open_and_take_little_memory(serve):
    files_max = 100
    broker = serve("--flush-mode", "none", "--set", f"open.files.max={files_max}")
    process = Served(broker)
    with RawClient(broker.port) as raw:
        resident = process.resident_bytes
        topic = raw.create_topic(partitions=MANY)
        for partition in range(MANY):
            produced = raw.produce(topic, batch_of(b"%d" % partition), partition=partition)
            assert (produced.error_code, produced.base_offset) == (0, 0)
        assert process.descriptors < files_max + DESCRIPTORS_OF_A_BROKER
        assert process.resident_bytes - resident < MANY * PARTITION_BYTES_MAX
        for partition in range(0, MANY, 97):
            assert raw.fetch(topic, 0, partition=partition).high_watermark == 1


async def _start_and_stop(data_dir, work=None):
    filesystem = CountingFilesystem(OsFilesystem())
    config = load_config(overrides=[("data.dir", str(data_dir)), ("port", "0"), ("flush.mode", "none")])
    node = Node(config, filesystem=filesystem)
    await node.start()
    operations = Counter(operation.name for operation in filesystem.operations)
    if work is not None:
        await asyncio.to_thread(work, node.port)
    await node.stop()
    return operations


def _make(partitions):
    def work(port):
        with RawClient(port) as raw:
            topic = raw.create_topic(partitions=partitions)
            raw.produce(topic, batch_of(b"one"))

    return work


async def test_a_start_looks_at_no_partition_however_many_there_are(tmp_path):
    counts = {}
    for partitions in (1, MANY):
        directory = tmp_path / str(partitions)
        await _start_and_stop(directory, _make(partitions))
        counts[partitions] = await _start_and_stop(directory)
    assert counts[1] == counts[MANY]
    assert sum(counts[1].values()) < 50


def test_readers_that_do_not_read_hold_nobody_up_and_stay_within_their_bytes(serve):
    in_flight_max = 16 * MIB
    broker = serve("--flush-mode", "none", "--set", f"fetch.bytes.in.flight.max={in_flight_max}")
    process = Served(broker)
    with RawClient(broker.port) as raw, ExitStack() as stack:
        topic = raw.create_topic()
        for _ in range(64):
            raw.produce(topic, batch_of(os.urandom(MIB // 2)))
        resident = process.resident_bytes
        wanted = frame(encode_request(fetch_request(topic, 0, max_bytes=32 * MIB, partition_max_bytes=32 * MIB), 12))
        for _ in range(100):
            slow = stack.enter_context(socket.create_connection(("127.0.0.1", broker.port)))
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.sendall(wanted)
        for _ in range(20):  # the one that reads goes on
            assert raw.fetch(topic, 0, max_bytes=MIB).records
            assert raw.produce(topic, batch_of(b"more")).error_code == 0
        # Each of them gets its first batch whatever the budget says (KIP-74).
        assert process.resident_bytes - resident < in_flight_max + 100 * MIB
