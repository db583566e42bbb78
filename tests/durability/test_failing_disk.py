"""A broker whose disk fills up or fails to sync while clients write: nothing that was acknowledged is missing."""

import pytest

from exactlog.testing.broker import BrokerNotRunningError
from tests.support.faulty_broker import FaultyBroker
from tests.support.idempotent_load import IdempotentLoad, consume
from tests.support.watching import wait_until

TOPIC = "orders"
PARTITIONS = 3


@pytest.fixture
def faulty():
    with FaultyBroker() as faulty:
        faulty.broker.create_topic(TOPIC, partitions=PARTITIONS, config={"segment.bytes": 20_000})
        yield faulty


def start_load(faulty):
    return IdempotentLoad(
        faulty.broker.bootstrap_servers, TOPIC, partitions=PARTITIONS, producers=2, in_flight_max=500, batch_size=20
    )


def refused_rounds(faulty):
    return faulty.broker.metrics()["exactlog_rounds_refused_total"]


def test_on_a_full_disk_writers_wait_readers_go_on_and_all_is_there_when_there_is_room_again(faulty):
    load = start_load(faulty)
    for times in range(1, 4):
        load.go_on(until=len(load.acknowledged) + 500)
        faulty.files.capacity_bytes = faulty.files.used_bytes + 3_000
        refused = refused_rounds(faulty)
        wait_until(lambda refused=refused: load.send(20) or refused_rounds(faulty) > refused)
        known = len(load.acknowledged)

        found = consume(faulty.broker.bootstrap_servers, TOPIC, partitions=PARTITIONS)
        load.check(found)
        assert sum(map(len, found.values())) >= known >= 500 * times, "reads go on"
        faulty.files.capacity_bytes = None
    load.finish()

    load.check_complete(consume(faulty.broker.bootstrap_servers, TOPIC, partitions=PARTITIONS))


@pytest.mark.parametrize("operation", ["sync_data", "sync", "sync_directory"])
def test_after_a_failed_sync_no_answer_leaves_and_the_broker_says_why_it_stopped(faulty, operation):
    load = start_load(faulty)
    load.go_on(until=500)
    faulty.files.fail(operation, times=1)
    wait_until(lambda: load.send(20) or has_stopped(faulty))
    load.send(100)

    with pytest.raises(BrokerNotRunningError, match="a sync failed"):
        faulty.broker.metrics()
    load.abandon()
    faulty.restart_after_power_cut()
    load.check(consume(faulty.broker.bootstrap_servers, TOPIC, partitions=PARTITIONS))


def has_stopped(faulty):
    try:
        faulty.broker.metrics()
    except BrokerNotRunningError:
        return True
    return False
