"""Which Python makes the virtual environment, and what is said when none can."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.peers import PROJECT

# Stands in for an interpreter: tells a version, and whether it is recent and complete.
STAND_IN = """\
#!/bin/sh
case "$2" in
  *version_info\\[:3\\]*) echo {version} ;;
  *"(3, 11)"*) exit {too_old} ;;
  *ensurepip*) [ -z "{missing}" ] || {{ echo "ModuleNotFoundError: No module named '{missing}'"; exit 1; }} ;;
esac
"""


@pytest.fixture
def find_python(tmp_path: Path):
    """Runs the script where only the stand-ins in a folder are on the PATH."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "tail"):
        (tools / name).symlink_to(f"/bin/{name}" if Path(f"/bin/{name}").exists() else f"/usr/bin/{name}")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(tmp_path), str(tools)])
        script = PROJECT / "tools" / "find-python"
        return subprocess.run([script, *arguments], env={"PATH": path}, capture_output=True, text=True, check=False)

    return run


def stand_in(folder: Path, name: str, *, version: str = "3.11.4", too_old: int = 0, missing: str = "") -> Path:
    program = folder / name
    program.write_text(STAND_IN.format(version=version, too_old=too_old, missing=missing))
    program.chmod(0o755)
    return program


def test_the_first_suitable_python_is_taken(tmp_path: Path, find_python) -> None:
    stand_in(tmp_path, "python3", version="3.10.2", too_old=1)
    suitable = stand_in(tmp_path, "python3.12", version="3.12.1")

    result = find_python()

    assert (result.returncode, result.stdout) == (0, f"{suitable}\n")


def test_what_is_too_old_is_named(tmp_path: Path, find_python) -> None:
    stand_in(tmp_path, "python3", version="3.10.2", too_old=1)

    result = find_python()

    assert result.returncode == 1
    assert "needs Python 3.11 or later" in result.stderr
    assert "too old:     python3 (3.10.2)" in result.stderr


def test_a_missing_venv_module_is_named_with_its_remedy(tmp_path: Path, find_python) -> None:
    stand_in(tmp_path, "python3", missing="ensurepip")

    result = find_python()

    assert result.returncode == 1
    assert "No module named 'ensurepip'" in result.stderr
    assert "apt-get install python3-venv" in result.stderr


def test_a_python_that_is_asked_for_by_name_is_taken(find_python) -> None:
    result = find_python(sys.executable)

    assert (result.returncode, result.stdout) == (0, f"{sys.executable}\n")
