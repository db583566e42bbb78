"""The delta log is the truth: what somebody writes into it is what a broker serves, or what stops it."""

import pytest

from exactlog.core.model.error_code import ErrorCode
from exactlog.storage.filesystem import OsFilesystem
from exactlog.testing import Broker
from tests.support.by_hand import put_version_in_place
from tests.support.raw_client import RawClient, batch_of, offsets_and_values
from tests.support.watching import wait_published


@pytest.fixture(params=["files", "journal"])
def engine(request):
    return request.param


@pytest.fixture
def broker(tmp_path, engine):
    with Broker(tmp_path, config={"commit.engine": engine}) as running:
        yield running


def test_a_version_put_in_place_by_hand_changes_what_is_served_after_a_restart(broker, tmp_path):
    with RawClient(broker.port) as client:
        topic = client.create_topic("orders")
        client.produce(topic, batch_of(b"a", b"b"))
        wait_published(broker)
    broker.kill()
    put_version_in_place(OsFilesystem(), f"{tmp_path}/topic=orders-part=0", b"by", b"hand")
    broker.restart()

    with RawClient(broker.port) as client:
        assert client.produce(topic, batch_of(b"and on")).base_offset == 4
        records = client.fetch(topic, 0).records
    assert offsets_and_values(records) == [(0, b"a"), (1, b"b"), (2, b"by"), (3, b"hand"), (4, b"and on")]


def test_a_foreign_version_in_the_way_stops_that_partition_and_names_both_transactions(broker, engine, tmp_path):
    with RawClient(broker.port) as client:
        topic = client.create_topic("orders", partitions=2)
        for partition in (0, 1):
            client.produce(topic, batch_of(b"a"), partition=partition)
        wait_published(broker)
        put_version_in_place(OsFilesystem(), f"{tmp_path}/topic=orders-part=0", b"b", txn_id="somebody-else:7")

        if engine == "journal":  # what is committed meets it when its version follows
            client.produce(topic, batch_of(b"c"), partition=0)
            wait_published(broker)
        for _ in range(2):
            refused = client.produce(topic, batch_of(b"c"), partition=0)
            assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert "somebody-else:7" in refused.error_message
            assert "'broker-1:" in refused.error_message
        assert client.fetch(topic, 0, partition=0).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert client.produce(topic, batch_of(b"c"), partition=1).base_offset == 1
        assert offsets_and_values(client.fetch(topic, 0, partition=1).records) == [(0, b"a"), (1, b"c")]


def test_a_damaged_partition_stays_closed_until_it_is_repaired_and_the_others_serve(broker, tmp_path, caplog):
    with RawClient(broker.port) as client:
        topic = client.create_topic("orders", partitions=2)
        for partition in (0, 1):
            for value in (b"a", b"b"):
                client.produce(topic, batch_of(value), partition=partition)
    broker.stop()
    commit = tmp_path / "topic=orders-part=0" / "_delta_log" / f"{1:020d}.json"
    document = commit.read_bytes()
    commit.write_bytes(document[:-10])
    broker.restart()

    with RawClient(broker.port) as client:
        assert client.fetch(topic, 0, partition=0).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        refused = client.produce(topic, batch_of(b"c"), partition=0)
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert commit.name in caplog.text
        assert offsets_and_values(client.fetch(topic, 0, partition=1).records) == [(0, b"a"), (1, b"b")]
    broker.kill()
    commit.write_bytes(document)
    broker.restart()

    with RawClient(broker.port) as client:
        assert offsets_and_values(client.fetch(topic, 0, partition=0).records) == [(0, b"a"), (1, b"b")]
