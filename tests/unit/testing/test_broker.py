import asyncio
from pathlib import Path

import pytest

from exactlog.core.model.errors import ConfigError
from exactlog.testing import Broker, BrokerNotRunningError, StandsStillError
from exactlog.testing import broker as broker_module
from exactlog.testing.loop_thread import LoopDiedError


class FakeNode:
    """Records what is done to it; `port` 0 becomes 4711."""

    def __init__(self, config, clock):
        self.config, self.clock = config, clock
        self.port = config.port or 4711
        self.bootstrap_servers = f"127.0.0.1:{self.port}"
        self.done = []
        self.looks = []
        self.stop_reason = None

    async def start(self):
        if self.config.num_partitions == 13:
            raise OSError("unlucky")
        if self.config.data_dir is not None:
            (self.config.data_dir / "lock").touch()
        self.done.append("start")

    async def stop(self):
        self.done.append("stop")

    def kill(self):
        self.done.append("kill")

    def look_at_clock(self):
        self.looks.append(self.clock.monotonic_ms())

    def metrics(self):
        return {"exactlog_topics": 2.0}


@pytest.fixture
def nodes():
    return []


@pytest.fixture
def make_node(nodes):
    def make(config, clock):
        nodes.append(FakeNode(config, clock))
        return nodes[-1]

    return make


def test_a_broker_runs_inside_the_with_statement(nodes, make_node):
    with Broker(make_node=make_node) as broker:
        assert broker.bootstrap_servers == "127.0.0.1:4711"
        assert broker.port == 4711
        assert broker.metrics() == {"exactlog_topics": 2.0}
        assert nodes[0].clock is broker.clock

    assert nodes[0].done == ["start", "stop"]


def test_configuration_is_given_by_keys_and_plain_values(nodes, make_node):
    with Broker(
        config={"flush.mode": "none", "num.partitions": 3, "auto.create.topics.enable": False}, make_node=make_node
    ):
        config = nodes[0].config

    assert (config.flush_mode, config.num_partitions, config.auto_create_topics_enable) == ("none", 3, False)


def test_configuration_that_is_wrong_is_refused_naming_where_it_came_from(make_node):
    with pytest.raises(ConfigError, match=r"unknown configuration flush.mod \(from Broker\(config=...\)\)"):
        Broker(config={"flush.mod": "none"}, make_node=make_node)


def test_the_environment_does_not_reach_a_test_broker(nodes, make_node, monkeypatch):
    monkeypatch.setenv("EXACTLOG_NUM_PARTITIONS", "7")

    with Broker(make_node=make_node):
        assert nodes[0].config.num_partitions == 1


def test_a_temporary_directory_outlives_kill_and_restart_and_is_removed_at_the_end(nodes, make_node):
    with Broker(make_node=make_node) as broker:
        directory = broker.data_dir
        broker.kill()
        assert (directory / "lock").exists()
        broker.restart()
        assert (directory / "lock").exists()
        assert nodes[1].config.data_dir == directory

    assert not directory.exists()
    assert [node.done for node in nodes] == [["start", "kill"], ["start", "stop"]]


def test_a_directory_that_was_given_stays(make_node, tmp_path):
    with Broker(tmp_path, make_node=make_node) as broker:
        assert broker.data_dir == tmp_path

    assert (tmp_path / "lock").exists()


def test_in_memory_there_is_no_directory(make_node, nodes):
    with Broker(config={"in.memory": True}, make_node=make_node) as broker:
        assert broker.data_dir is None
        assert nodes[0].config.data_dir is None


def test_restart_keeps_port_and_clock(nodes, make_node):
    with Broker(make_node=make_node) as broker:
        broker.clock.advance_ms(1_000)
        broker.restart()

        assert nodes[1].config.port == 4711
        assert nodes[1].clock is broker.clock
        assert nodes[0].done == ["start", "stop"]


def test_a_killed_broker_keeps_its_address_and_refuses_calls_until_restarted(make_node):
    with Broker(make_node=make_node) as broker:
        broker.kill()

        assert broker.bootstrap_servers == "127.0.0.1:4711"
        with pytest.raises(BrokerNotRunningError, match="not running"):
            broker.metrics()
        with pytest.raises(BrokerNotRunningError):
            broker.kill()
        broker.restart()
        assert broker.metrics()


def test_a_broker_that_stopped_by_itself_says_why_until_it_is_restarted(nodes, make_node):
    with Broker(make_node=make_node) as broker:
        nodes[0].stop_reason = "a sync failed"
        with pytest.raises(BrokerNotRunningError, match="stopped by itself: a sync failed"):
            broker.metrics()

        broker.restart()

        assert broker.metrics() == {"exactlog_topics": 2.0}


def test_a_broker_that_was_never_started_says_so(make_node):
    broker = Broker(make_node=make_node)

    with pytest.raises(BrokerNotRunningError):
        _ = broker.bootstrap_servers
    with pytest.raises(BrokerNotRunningError):
        broker.metrics()
    assert broker.data_dir is None
    broker.stop()


def test_what_keeps_the_broker_from_starting_is_raised_and_nothing_is_left(nodes, make_node):
    broker = Broker(config={"num.partitions": 13}, make_node=make_node)

    with pytest.raises(OSError, match="unlucky"):
        broker.start()

    assert broker.data_dir is None
    assert not nodes[0].config.data_dir.exists()


def test_a_node_looks_at_its_clock_before_and_after_it_is_moved(nodes, make_node):
    with Broker(make_node=make_node) as broker:
        broker.clock.advance_ms(3_600_000)

    before, after = nodes[0].looks
    assert after - before >= 3_600_000


def test_the_clock_can_be_moved_while_no_broker_runs(nodes, make_node):
    broker = Broker(make_node=make_node)
    broker.clock.advance_ms(1_000)
    with broker:
        broker.kill()
        broker.clock.advance_ms(1_000)

    assert nodes[0].looks == []


def test_starting_twice_starts_once(nodes, make_node):
    with Broker(make_node=make_node) as broker:
        broker.start()

    assert len(nodes) == 1


def test_a_dead_loop_is_told_to_the_caller_its_node_killed_and_restart_brings_it_back(nodes, make_node):
    async def exit_loop():
        asyncio.get_running_loop().call_soon(_raise_system_exit)
        await asyncio.Event().wait()

    with Broker(make_node=make_node) as broker:
        with pytest.raises(LoopDiedError, match=r"exactlog-broker has ended"):
            broker._call(exit_loop)
        with pytest.raises(LoopDiedError):
            broker.metrics()
        assert nodes[0].done == ["start", "kill"]

        broker.restart()

        assert broker.metrics()


def test_a_broker_that_does_not_stop_is_killed_and_tells_where_it_stood(monkeypatch, nodes, make_node):
    monkeypatch.setattr(broker_module, "_STOP_TIMEOUT_S", 0.01)
    broker = Broker(make_node=make_node)
    broker.start()

    async def wait_for_nothing():
        await asyncio.Event().wait()

    nodes[0].stop = wait_for_nothing
    with pytest.raises(StandsStillError, match="in wait_for_nothing"):
        broker.stop()

    assert nodes[0].done == ["start", "kill"]
    with pytest.raises(BrokerNotRunningError):
        broker.metrics()


def test_stopping_after_the_loop_died_raises_nothing(make_node):
    async def exit_loop():
        asyncio.get_running_loop().call_soon(_raise_system_exit)
        await asyncio.Event().wait()

    with Broker(make_node=make_node) as broker:
        directory = broker.data_dir
        with pytest.raises(LoopDiedError):
            broker._call(exit_loop)

    assert not Path(directory).exists()


def _raise_system_exit():
    raise SystemExit(3)
