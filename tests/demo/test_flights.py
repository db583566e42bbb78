"""The demo, as a stranger runs it."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.demo.running import run_demo, surroundings
from tests.peers import PROJECT

MODULE = "demo.flights"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def programs_that_name(path: Path) -> list[str]:
    lines = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(entry.read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue  # it ended while we looked
    return [line for line in lines if str(path) in line]


def test_every_flight_comes_back_exactly_once(tmp_path: Path) -> None:
    _, shown = run_demo(MODULE, tmp_path)

    assert (shown["records"], shown["partitions"]) == (336_776, 6)
    assert (shown["duplicates"], shown["missing"]) == (0, 0)
    assert 0 < shown["acknowledged_at_kill"] < shown["records"]
    assert shown["in_flight_at_kill"] > 0
    assert shown["group_records"] == shown["records"]
    assert shown["group_takeover_seconds"] > 0
    assert 0 < shown["as_of_version"] < shown["versions"]
    assert 0 < shown["as_of_records"] < shown["records"]
    assert shown["delta_rows"] == shown["records"]
    assert shown["spark_batches_replayed"] == 1
    # A Spark that is killed leaves what it had in its own temporary folders.
    assert not [entry for entry in tmp_path.iterdir() if entry.name.startswith("exactlog-demo")]


def test_an_interrupted_demo_leaves_nothing_behind(tmp_path: Path) -> None:
    demo = subprocess.Popen(
        [sys.executable, "-m", MODULE],
        cwd=PROJECT,
        env=surroundings(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert demo.stdout is not None
    for line in demo.stdout:
        if "topic flights" in line:
            break

    demo.send_signal(signal.SIGINT)
    _, errors = demo.communicate()

    assert demo.returncode == 130
    assert "INTERRUPTED" in errors
    assert list(tmp_path.iterdir()) == []
    assert programs_that_name(tmp_path) == []
