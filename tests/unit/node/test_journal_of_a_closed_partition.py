"""A partition that cannot be opened, or has stopped, keeps its part of the commit journal, and not the whole of it."""

import pytest

from exactlog.core.deltalog.journal_format import decode_file_header, parse_journal_name
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import DecodeError
from exactlog.storage.filesystem import OsFilesystem
from exactlog.testing import Broker
from tests.support.by_hand import put_version_in_place
from tests.support.journal_rounds import find_rounds
from tests.support.raw_client import RawClient, batch_of, offsets_and_values
from tests.support.watching import wait_published, wait_until

CONFIG = {"commit.engine": "journal", "connections.max.idle.ms": 2**31 - 1, "retention.ms": -1}
CLOSED = "topic=closed-part=0"


@pytest.fixture
def broker(tmp_path):
    with Broker(tmp_path, config=CONFIG) as running:
        yield running


def journal_of(broker):
    """The names of the files, and of the partitions that they speak of; looked at when one is old enough to go."""
    directory = broker.data_dir / "journal"
    names = sorted(path.name for path in directory.iterdir())
    partitions = set()
    for name in names:
        try:
            content = (directory / name).read_bytes()
            rounds = list(find_rounds(content, decode_file_header(content, number=parse_journal_name(name))))
        except (FileNotFoundError, DecodeError):  # it has gone meanwhile, or is being made
            return journal_of(broker)
        for found in rounds:
            partitions |= {partition.directory for partition in found.round.partitions}
    return names, partitions


def wait_for_the_rest_to_go(broker):
    def has_gone():
        broker.clock.advance_ms(500)
        names, partitions = journal_of(broker)
        return len(names) == 1 and partitions == {CLOSED}

    wait_until(has_gone)


def closed_topic(broker):
    """Two topics: one with a damaged version and records that have none; the broker has been started again."""
    with RawClient(broker.port) as client:
        closed, other = client.create_topic("closed"), client.create_topic("other")
        client.produce(closed, batch_of(b"a"))
        wait_published(broker)
    commit = broker.data_dir / CLOSED / "_delta_log" / f"{0:020d}.json"
    broker.stop()
    document = commit.read_bytes()
    broker.start()
    with RawClient(broker.port) as client:
        client.produce(closed, batch_of(b"b"))
        client.produce(other, batch_of(b"b"))
    broker.kill()
    commit.write_bytes(b"{")
    broker.start()
    return closed, other, lambda: commit.write_bytes(document)


def test_what_was_left_of_a_partition_that_cannot_be_opened_is_kept_and_the_rest_goes(broker):
    closed, other, repair = closed_topic(broker)
    with RawClient(broker.port) as client:
        assert client.produce(closed, batch_of(b"c")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        wait_for_the_rest_to_go(broker)
        for number in range(3):
            assert client.produce(other, batch_of(b"%d" % number)).error_code == 0
            wait_published(broker)
            wait_for_the_rest_to_go(broker)
    broker.stop()
    assert journal_of(broker)[1] == {CLOSED}
    repair()
    broker.start()

    with RawClient(broker.port) as client:
        assert offsets_and_values(client.fetch(closed, 0).records) == [(0, b"a"), (1, b"b")]
        assert client.produce(closed, batch_of(b"c")).base_offset == 2
        found = [value for _, value in offsets_and_values(client.fetch(other, 0).records)]
    assert found == [b"b", b"0", b"1", b"2"]
    broker.stop()
    assert journal_of(broker) == ([], set())


def test_what_a_partition_that_stops_has_committed_is_kept_and_the_rest_goes(broker, tmp_path):
    with RawClient(broker.port) as client:
        topic, other = client.create_topic("closed"), client.create_topic("other")
        client.produce(topic, batch_of(b"a"))
        wait_published(broker)
        put_version_in_place(OsFilesystem(), str(tmp_path / CLOSED), b"b", txn_id="somebody-else:7")
        client.produce(topic, batch_of(b"c"))
        wait_published(broker)
        assert client.produce(topic, batch_of(b"d")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        for _ in range(3):
            client.produce(other, batch_of(b"x"))
            wait_published(broker)
            wait_for_the_rest_to_go(broker)
