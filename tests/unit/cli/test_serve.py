import asyncio
import gc
import json
import os
import signal
import sys
import types
from pathlib import Path

import pytest

from exactlog import __version__
from exactlog.cli.commands import serve as serve_module
from exactlog.cli.commands.serve import (
    CannotStartError,
    StopRequests,
    announce,
    collect_rarely,
    ready_line,
    serve_until_asked,
)
from exactlog.cli.errors import InvalidUsageError
from exactlog.cli.main import main
from exactlog.cli.output import OutputClosed
from exactlog.cli.settings import Settings, split_assignment
from exactlog.core.config.broker_configs import BrokerConfig
from exactlog.core.model.errors import DirectoryLockedError
from exactlog.node.node import NodeStoppedError
from exactlog.storage.fault_points import CREATE_BEFORE_RENAME, disarm_all


class FakeNode:
    host = "127.0.0.1"
    port = 4711
    bootstrap_servers = "127.0.0.1:4711"
    cluster_id = "c1"
    node_id = 1

    def __init__(self, config=None, *, fault=None):
        self.config, self.fault = config, fault
        self.done = []
        self.ended = asyncio.Event()

    async def start(self):
        self.done.append("start")
        if self.fault is not None:
            raise self.fault

    async def stop(self):
        self.done.append("stop")

    async def wait_stopped(self):
        await self.ended.wait()

    def kill(self):
        self.done.append("kill")


@pytest.fixture
def collector():
    """As it was, afterwards."""
    threshold = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*threshold)


def test_what_a_broker_begins_with_is_not_searched_for_garbage_and_the_rest_rarely(collector):
    gc.set_threshold(700, 10, 10)
    collect_rarely()

    assert gc.get_freeze_count() > 1_000
    assert gc.get_threshold() == (10_000, 10, 10)


def test_what_is_garbage_all_the_same_goes(collector):
    collect_rarely()
    gone = []

    class Link:
        def __del__(self):
            gone.append(self)

    link = Link()
    link.itself = link
    del link
    kept = [[] for _ in range(2 * gc.get_threshold()[0])]

    assert len(gone) == 1
    assert kept


def announced(node, config, *, settings=None, is_ready_printed=True):
    announce(node, config, settings or Settings(), is_ready_printed=is_ready_printed)


async def test_the_node_is_served_until_asked_to_stop():
    node, requests, shown = FakeNode(), StopRequests(), []

    def on_ready(ready):
        shown.append(ready)
        requests.ask()

    assert await serve_until_asked(node, requests, on_ready) == 0
    assert (node.done, shown) == (["start", "stop"], [node])


async def test_asked_while_it_starts_it_stops_once_started():
    node, requests = FakeNode(), StopRequests()
    requests.ask()

    assert await serve_until_asked(node, requests, lambda _: None) == 0
    assert node.done == ["start", "stop"]


async def test_asked_twice_it_does_not_wait_for_the_end():
    class StubbornNode(FakeNode):
        async def stop(self):
            self.done.append("stop")
            requests.ask()
            await asyncio.Event().wait()

    node, requests = StubbornNode(), StopRequests()

    assert await serve_until_asked(node, requests, lambda _: requests.ask()) == 130
    assert node.done == ["start", "stop", "kill"]


async def test_asked_twice_while_it_starts_it_gives_up_the_start():
    class SlowNode(FakeNode):
        async def start(self):
            self.done.append("start")
            requests.ask()
            requests.ask()
            await asyncio.Event().wait()

    node, requests = SlowNode(), StopRequests()

    assert await serve_until_asked(node, requests, lambda _: None) == 130
    assert node.done == ["start", "kill"]


async def test_a_node_that_stops_by_itself_is_an_error_with_the_reason():
    class FailingNode(FakeNode):
        async def wait_stopped(self):
            raise NodeStoppedError("a sync failed: No space left on device")

    with pytest.raises(NodeStoppedError, match="No space left on device"):
        await serve_until_asked(FailingNode(), StopRequests(), lambda _: None)


async def test_whatever_goes_wrong_while_it_runs_the_node_is_let_go():
    node = FakeNode()

    def on_ready(_):
        raise OutputClosed

    with pytest.raises(OutputClosed):
        await serve_until_asked(node, StopRequests(), on_ready)
    assert node.done == ["start", "kill"]


async def test_a_directory_that_cannot_be_used_is_named():
    node = FakeNode(fault=PermissionError(13, "Permission denied", "/srv/d"))

    with pytest.raises(CannotStartError, match="Permission denied: /srv/d") as caught:
        await serve_until_asked(node, StopRequests(), lambda _: None)
    assert "--data-dir" in caught.value.hint


def test_the_ready_line_says_where_and_how_the_broker_runs():
    line = ready_line(FakeNode(), BrokerConfig(data_dir=Path("d"), flush_mode="none"))

    assert json.loads(line) == {
        "event": "ready",
        "bootstrap_servers": "127.0.0.1:4711",
        "host": "127.0.0.1",
        "port": 4711,
        "pid": os.getpid(),
        "data_dir": str(Path("d").absolute()),
        "cluster_id": "c1",
        "node_id": 1,
        "version": __version__,
        "flush_mode": "none",
    }
    assert json.loads(ready_line(FakeNode(), BrokerConfig()))["data_dir"] is None


def test_people_are_told_on_standard_error_and_programs_on_standard_output(capsys):
    announced(FakeNode(), BrokerConfig(data_dir=Path("d")))

    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 1
    assert "127.0.0.1:4711" in captured.err
    assert "in d (flush mode commit)" in captured.err


def test_nothing_is_printed_on_standard_output_unasked(capsys):
    announced(FakeNode(), BrokerConfig(), is_ready_printed=False)

    captured = capsys.readouterr()
    assert captured.out == ""
    assert "in memory" in captured.err


def test_an_address_no_client_can_connect_to_is_warned_of(capsys):
    announced(FakeNode(), BrokerConfig(host="0.0.0.0"))
    assert "--advertised" in capsys.readouterr().err

    announced(FakeNode(), BrokerConfig(host="0.0.0.0", advertised="h:1"))
    assert "--advertised" not in capsys.readouterr().err


def test_an_assignment_is_key_and_value():
    assert split_assignment("flush.mode = none=x") == ("flush.mode", " none=x")


@pytest.mark.parametrize("assignment", ["flush.mode", "=x", ""])
def test_what_is_no_assignment_is_refused(assignment):
    with pytest.raises(InvalidUsageError, match="not of the form key=value"):
        split_assignment(assignment)


@pytest.fixture
def nodes(monkeypatch):
    """The nodes that `exactlog serve` made; each stops the broker as soon as it is ready."""
    made = []

    def make(config):
        made.append(FakeNode(config))
        return made[-1]

    async def serve_at_once(node, on_ready):
        on_ready(node)
        return 0

    monkeypatch.setitem(sys.modules, "exactlog.node.node", types.SimpleNamespace(Node=make))
    monkeypatch.setattr(serve_module, "_serve", serve_at_once)
    for name in [name for name in os.environ if name.startswith("EXACTLOG_")]:
        monkeypatch.delenv(name)
    return made


def test_flags_reach_the_configuration(nodes, tmp_path):
    file = tmp_path / "exactlog.toml"
    file.write_text("[broker]\nnum.partitions = 4\nport = 1\n")
    arguments = ["--data-dir", str(tmp_path), "--host", "h", "--port", "0", "--advertised", "a:1", "--node-id", "5"]

    code = main(["serve", *arguments, "--config", str(file), "--set", "segment.bytes=100", "--flush-mode", "interval"])

    assert code == 0
    assert nodes[0].config == BrokerConfig(
        data_dir=tmp_path,
        host="h",
        port=0,
        advertised="a:1",
        node_id=5,
        num_partitions=4,
        segment_bytes=100,
        flush_mode="interval",
    )


def test_without_a_flag_the_directory_is_the_default_one(nodes):
    assert main(["serve"]) == 0
    assert nodes[0].config.data_dir == Path("exactlog-data")


def test_a_flag_for_memory_goes_before_a_directory_in_the_environment(nodes, monkeypatch):
    monkeypatch.setenv("EXACTLOG_DATA_DIR", "d")

    main(["serve", "--in-memory"])

    assert nodes[0].config.data_dir is None


def test_a_flag_for_a_directory_goes_before_memory_in_the_environment(nodes, monkeypatch):
    monkeypatch.setenv("EXACTLOG_IN_MEMORY", "true")

    main(["serve", "--data-dir", "d"])

    assert nodes[0].config.data_dir == Path("d")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data-dir", "d", "--in-memory"], "exclude each other"),
        (["--set", "flush.mod=none"], "unknown configuration flush.mod (from the command line)"),
        (["--set", "port=1", "--port", "2"], "two different values"),
        (["--flush-mode", "never"], "String must be one of: commit, interval, none"),
        (["--config", "no.toml"], "cannot read configuration file no.toml"),
    ],
)
def test_a_wrong_command_line_ends_with_2_and_starts_nothing(nodes, capsys, arguments, message):
    assert main(["serve", *arguments]) == 2
    assert message in json.loads(capsys.readouterr().err)["error"]["message"]
    assert nodes == []


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("storage.create.before_renam", "unknown fault point storage.create.before_renam (from EXACTLOG_KILL_AT)"),
        ("nowhere:2", "unknown fault point nowhere (from EXACTLOG_KILL_AT)"),
        (":2", "unknown fault point  (from EXACTLOG_KILL_AT)"),
        *(
            (f"storage.create.before_rename:{count}", "is not POINT or POINT:N")
            for count in ("", "0", "-1", "+1", "x", "1:1", "1 ", "٣")
        ),
    ],
)
def test_a_wrong_fault_point_ends_with_2_and_starts_nothing(nodes, monkeypatch, capsys, value, message):
    monkeypatch.setenv("EXACTLOG_KILL_AT", value)

    assert main(["serve"]) == 2
    assert message in json.loads(capsys.readouterr().err)["error"]["message"]
    assert nodes == []


def test_a_misspelled_fault_point_names_the_nearest(nodes, monkeypatch, capsys):
    monkeypatch.setenv("EXACTLOG_KILL_AT", "storage.create.before_renam")

    main(["serve"])

    assert json.loads(capsys.readouterr().err)["error"]["hint"] == "Did you mean storage.create.before_rename?"


@pytest.mark.parametrize(("value", "at"), [("storage.create.before_rename", 1), ("storage.create.before_rename:3", 3)])
def test_a_served_broker_kills_itself_the_nth_time_it_reaches_the_fault_point(nodes, monkeypatch, capsys, value, at):
    monkeypatch.setenv("EXACTLOG_KILL_AT", value)
    kills = []
    monkeypatch.setattr(os, "kill", lambda *call: kills.append(call))

    assert main(["serve"]) == 0
    try:
        for _ in range(at - 1):
            CREATE_BEFORE_RENAME.reach()
        assert kills == []
        CREATE_BEFORE_RENAME.reach()
        assert kills == [(os.getpid(), signal.SIGKILL)]
    finally:
        disarm_all()
    assert f"SIGKILL will end this broker at storage.create.before_rename:{at}" in capsys.readouterr().err


def test_without_a_fault_point_nothing_is_armed(nodes, monkeypatch, capsys):
    monkeypatch.setenv("EXACTLOG_KILL_AT", "")

    assert main(["serve"]) == 0
    assert "SIGKILL" not in capsys.readouterr().err


async def test_a_locked_directory_ends_with_its_own_error():
    node = FakeNode(fault=DirectoryLockedError("d", owner_pid=7, owner_host="h"))

    with pytest.raises(DirectoryLockedError):
        await serve_until_asked(node, StopRequests(), lambda _: None)
