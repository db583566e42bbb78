"""Clients on a topic that was compacted while its broker was stopped: gaps between offsets, batches without records."""

import pytest
from msgspec.structs import replace

from exactlog.storage.table_reader import open_table
from exactlog.testing import Broker
from tests.conformance.clients.face import Sent
from tests.support.compacted_tables import COMPACT, compact_at
from tests.support.raw_client import RawClient

NAME = "topic=t-part=0"
KEYS = 7
RECORDS = [Sent(b"%d" % number, key=b"key-%d" % (number % KEYS)) for number in range(200)]


@pytest.mark.usefixtures("refused_sockets_are_closed")
@pytest.mark.only_exactlog
@pytest.mark.needs("produce", "consume")
def test_a_client_reads_the_newest_record_of_each_key_where_it_was(client_of_its_own, tmp_path):
    with Broker(tmp_path) as broker, client_of_its_own(broker.bootstrap_servers) as client:
        with RawClient(broker.port) as raw:
            raw.create_topic("t", cleanup_policy="compact", segment_bytes=600)
        for start in range(0, len(RECORDS), 10):
            client.produce("t", RECORDS[start : start + 10])
    sealed = compact_at(tmp_path, NAME)
    assert sealed.records_removed > 100

    with Broker(tmp_path) as broker, client_of_its_own(broker.bootstrap_servers) as client:
        left = [offset for offset in range(len(RECORDS)) if offset >= 150]
        newest = left[-KEYS:]
        (first,) = client.consume("t", 0, 1)
        assert first.offset > 0
        found = client.consume("t", newest[0], KEYS)
        assert [(record.offset, record.value) for record in found] == [(o, RECORDS[o].value) for o in newest]
        assert client.produce("t", [Sent(b"after", key=b"key-0")]) == [len(RECORDS)]


@pytest.mark.usefixtures("refused_sockets_are_closed")
@pytest.mark.only_exactlog
@pytest.mark.needs("produce", "idempotence", "consume")
def test_batches_without_records_stop_no_client(client_of_its_own, tmp_path):
    """B098: each producer's last batch stays without records; a reader is to get over all of them."""
    with Broker(tmp_path) as broker, client_of_its_own(broker.bootstrap_servers) as client:
        with RawClient(broker.port) as raw:
            raw.create_topic("t", cleanup_policy="compact", segment_bytes=300)
        for _ in range(6):
            client.produce("t", [Sent(b"old", key=b"k")] * 5, idempotent=True)
        offsets = client.produce("t", [Sent(b"new", key=b"k")])
        for _ in range(2):
            client.produce("t", [Sent(b"x" * 300, key=b"end")])
    assert compact_at(tmp_path, NAME).records_removed == 30

    with Broker(tmp_path) as broker, client_of_its_own(broker.bootstrap_servers) as client:
        (first,) = client.consume("t", 0, 1)
        assert (first.offset, first.value) == (offsets[0], b"new")


@pytest.mark.usefixtures("refused_sockets_are_closed")
@pytest.mark.only_exactlog
@pytest.mark.needs("produce", "consume")
def test_a_segment_that_ends_with_a_batch_of_nobody_stops_no_client(client_of_its_own, tmp_path):
    """B098: such a batch has no records and no producer."""
    with Broker(tmp_path) as broker, client_of_its_own(broker.bootstrap_servers) as client:
        with RawClient(broker.port) as raw:
            raw.create_topic("t", cleanup_policy="compact", segment_bytes=450)
        for size, value, key in (
            (250, b"a", b"a"),
            (3, b"o", b"k"),
            (330, b"n", b"k"),
            (330, b"x", b"e"),
            (1, b"y", b"e"),
        ):
            client.produce("t", [Sent(value * size, key=key)])
    assert compact_at(tmp_path, NAME, config=replace(COMPACT, segment_bytes=450)).records_removed == 1
    headers = [batch.header for batch in open_table(tmp_path / NAME).read_batches()]
    assert [header.base_offset for header in headers if not header.record_count] == [1]

    with Broker(tmp_path) as broker, client_of_its_own(broker.bootstrap_servers) as client:
        assert [record.offset for record in client.consume("t", 0, 2)] == [0, 2]
        assert [record.offset for record in client.consume("t", 1, 1)] == [2]
