"""A broker that is killed again and again under load, as a process of its own, with clients as people have them."""

import random

import pytest

from demo.served_broker import ServedBroker
from tests.support.idempotent_load import IdempotentLoad, consume, read_directory

TOPIC = "killed"
PARTITIONS = 5
PRODUCERS = 4

pytestmark = pytest.mark.slow


def kill_again_and_again(tmp_path, *, times, flush_mode):
    chance = random.Random(times)
    options = ["--flush-mode", flush_mode, "--set", f"num.partitions={PARTITIONS}", "--set", "segment.bytes=100000"]
    with ServedBroker(tmp_path / "data", log=tmp_path / "broker.log", options=options) as broker:
        load = IdempotentLoad(broker.address, TOPIC, partitions=PARTITIONS, producers=PRODUCERS)
        for _ in range(times):
            load.go_on(until=len(load.acknowledged) + chance.choice([1, 200, 1_000, 3_000]))
            broker.kill()
            load.send(chance.randrange(200))
            broker.start()
        load.finish()
        load.check_complete(consume(broker.address, TOPIC, partitions=PARTITIONS))

        load.go_on(until=len(load.acknowledged) + 1_000)
        broker.kill()
        load.abandon()
        broker.start()
        consumed = consume(broker.address, TOPIC, partitions=PARTITIONS)
        load.check(consumed)
        broker.stop()
        assert read_directory(tmp_path / "data") == consumed
    segments = list((tmp_path / "data" / f"topic={TOPIC}-part=0").glob("*.log"))
    assert len(segments) > 2


def test_twenty_kills_in_a_row_lose_nothing_double_nothing_and_mix_nothing_up(tmp_path):
    kill_again_and_again(tmp_path, times=20, flush_mode="commit")


@pytest.mark.parametrize("flush_mode", ["none", "interval"])
def test_what_the_operating_system_has_outlives_the_process(tmp_path, flush_mode):
    kill_again_and_again(tmp_path, times=6, flush_mode=flush_mode)
