"""The example of a store on a region: killed, it has everything that it said it had."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[3] / "examples" / "table_store.py"


@pytest.fixture
def store(tmp_path):
    def run(*arguments):
        return subprocess.run(
            [sys.executable, PROGRAM, tmp_path, *map(str, arguments)], capture_output=True, text=True, check=False
        )

    return run


def shown(store):
    return json.loads(store("show").stdout)


@pytest.mark.slow
def test_a_store_that_is_killed_recovers_and_a_flushed_table_is_not_replayed(store):
    assert store("put", 1, "a", "one").returncode == 0

    killed = store("fill", 2, 20)

    assert killed.returncode == -signal.SIGKILL
    promised = killed.stdout.splitlines()
    assert len(promised) == 20
    expected = {"1": {"a": "one"}, "2": {f"key {number}": f"value {number}" for number in range(20)}}
    assert shown(store) == {"replayed": 21, "tables": expected}

    assert store("flush", 2).returncode == 0
    assert shown(store) == {"replayed": 1, "tables": expected}
    assert store("put", 2, "key 3", "another").returncode == 0
    expected["2"]["key 3"] = "another"
    assert shown(store) == {"replayed": 2, "tables": expected}


def test_a_command_that_is_none_is_told(store):
    assert "table_store.py DIR put" in store("nothing").stderr
