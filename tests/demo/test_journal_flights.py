"""The demo of the event journal, as a stranger runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.peers import PROJECT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_every_aircraft_is_told_alike_with_and_without_its_store(tmp_path: Path) -> None:
    demo = [sys.executable, "-m", "demo.journal_flights"]
    surroundings = os.environ | {"TMPDIR": str(tmp_path)}

    result = subprocess.run(demo, cwd=PROJECT, env=surroundings, capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stderr
    verdict, _, summary = result.stdout.splitlines()[-1].partition(" {")
    shown = json.loads("{" + summary)
    assert verdict == "DEMO OK"
    assert (shown["journals"], shown["events"], shown["expired"]) == (4_043, 334_264, 1)
    assert shown["answers_compared"] > 0
    assert "expected its last event to be 575, but its last event is 576" in result.stdout
    assert list(tmp_path.iterdir()) == []
