"""What a broker counts of its storage: commits, conflicts, rounds, syncs, versions, checkpoints and recoveries."""

import pytest

from exactlog.core.protocol.messages.produce import ProduceTerms
from exactlog.testing import Broker
from tests.support.raw_client import RawClient, batch_of
from tests.support.watching import wait_published

SYNCS_OF_A_VERSION = {"files": 1, "journal": 2}
"""Of its segment; or of the journal, by its round and by its publication."""


@pytest.fixture(params=SYNCS_OF_A_VERSION)
def engine(request):
    return request.param


@pytest.fixture
def broker(tmp_path, engine):
    config = {"delta.checkpoint.min.interval.ms": 60_000, "commit.engine": engine}
    with Broker(data_dir=tmp_path, config=config) as broker:
        yield broker


def produce_versions(broker, client, topic, count):
    """Each batch is a version of its own, whether rounds publish what they commit or not."""
    for _ in range(count):
        client.produce(topic, batch_of(b"v"))
        wait_published(broker)


def test_each_number_says_what_happened(broker, engine):
    with RawClient(broker.port) as client:
        topic = client.create_topic()
        before = broker.metrics()
        produce_versions(broker, client, topic, 3)
        client.produce(topic, batch_of(b"v"), terms=ProduceTerms(expected_version=99))
        after = broker.metrics()

    grown = {name: after[name] - before.get(name, 0) for name in after}
    assert grown["exactlog_delta_commits_total"] == 3
    assert grown["exactlog_delta_conflicts_total"] == 1
    assert grown["exactlog_rounds_total"] == grown["exactlog_round_size_bytes_count"] == 3
    assert grown["exactlog_round_bytes_total"] == grown["exactlog_round_size_bytes_sum"] > 0
    assert grown["exactlog_fsync_seconds_count"] == 3 * SYNCS_OF_A_VERSION[engine]
    assert grown["exactlog_fsync_seconds_sum"] > 0
    assert after["exactlog_delta_versions"] == 4
    assert after["exactlog_recovery_seconds_count"] == 1
    assert after["exactlog_rounds_refused_total"] == 0


def test_the_age_of_a_checkpoint_counts_from_the_first_commit_behind_it(broker):
    with RawClient(broker.port) as client:
        topic = client.create_topic()
        produce_versions(broker, client, topic, 10)
        while broker.metrics()["exactlog_checkpoint_age_seconds_max"] > 0:
            pass  # the checkpoint is on its way
        broker.clock.advance_ms(7_000)
        assert broker.metrics()["exactlog_checkpoint_age_seconds_max"] == 0, "it is as new as the table"
        produce_versions(broker, client, topic, 1)

    assert broker.metrics()["exactlog_checkpoint_age_seconds_max"] >= 7


def test_what_a_restart_replays_is_counted(broker):
    with RawClient(broker.port) as client:
        topic = client.create_topic()
        produce_versions(broker, client, topic, 4)
    broker.kill()
    broker.restart()
    with RawClient(broker.port) as client:
        client.list_offset(topic, -2)

    assert broker.metrics()["exactlog_recovery_versions_replayed_total"] == 5
