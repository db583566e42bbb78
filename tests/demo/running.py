"""Running a demo as a stranger does."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.peers import PROJECT


def surroundings(temporary: Path) -> dict[str, str]:
    """An environment whose temporary files go there."""
    return os.environ | {"TMPDIR": str(temporary)}


def run_demo(module: str, temporary: Path) -> tuple[str, dict[str, Any]]:
    """What a demo that ended well has printed, and the numbers of its last line."""
    demo = [sys.executable, "-m", module]

    result = subprocess.run(demo, cwd=PROJECT, env=surroundings(temporary), capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stderr
    verdict, _, summary = result.stdout.splitlines()[-1].partition(" {")
    assert verdict == "DEMO OK"
    shown: dict[str, Any] = json.loads("{" + summary)
    return result.stdout, shown
