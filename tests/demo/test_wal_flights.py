"""The demo of the write-ahead log, as a stranger runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.peers import PROJECT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_every_flight_is_recovered_and_what_is_flushed_is_cleaned(tmp_path: Path) -> None:
    demo = [sys.executable, "-m", "demo.wal_flights"]
    surroundings = os.environ | {"TMPDIR": str(tmp_path)}

    result = subprocess.run(demo, cwd=PROJECT, env=surroundings, capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stderr
    verdict, _, summary = result.stdout.splitlines()[-1].partition(" {")
    shown = json.loads("{" + summary)
    assert verdict == "DEMO OK"
    assert (shown["entries"], shown["tables"], shown["regions"]) == (336_776, 16, 4)
    assert 0 < shown["acknowledged_at_kill"] <= shown["recovered_entries"] < shown["entries"]
    assert 0 < shown["offsets_freed_at_first"] < shown["offsets_freed"]
    assert "has another owner now" in result.stdout
    assert list(tmp_path.iterdir()) == []
