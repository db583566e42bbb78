"""Imports go down only, and the core touches nothing outside itself: the contracts in pyproject.toml."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.tree import PACKAGE, PROJECT


def lint_imports(project: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("lint-imports")
    return subprocess.run(
        [program, "--no-cache", "--no-logo"],
        cwd=project,
        env={"PYTHONPATH": str(project / "src"), "PATH": "", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_contract_holds() -> None:
    result = lint_imports(PROJECT)

    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("module", "forbidden_import", "contract"),
    [
        ("core/model/ids.py", "import time", "The core does no I/O"),
        ("core/model/ids.py", "import exactlog.broker", "Imports go down only"),
        ("core/codec/varint.py", "import exactlog.core.record", "Inside the core too"),
        ("storage/filesystem.py", "import exactlog.network", "Imports go down only"),
    ],
)
def test_a_forbidden_import_breaks_its_contract(
    tmp_path: Path, module: str, forbidden_import: str, contract: str
) -> None:
    shutil.copy(PROJECT / "pyproject.toml", tmp_path)
    package = shutil.copytree(PACKAGE, tmp_path / "src" / "exactlog", ignore=shutil.ignore_patterns("__pycache__"))
    with (package / module).open("a") as source:
        source.write(f"\n{forbidden_import}\n")

    result = lint_imports(tmp_path)

    assert result.returncode == 1
    broken = [line for line in result.stdout.splitlines() if "BROKEN" in line]
    assert any(line.startswith(contract) for line in broken), result.stdout
