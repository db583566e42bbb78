"""`docs/spark.md` does what it says: its code, from top to bottom, as one program beside a broker."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from exactlog.cli.main import main
from exactlog.testing import Broker
from tests.architecture.snippets import USUAL_PORT, blocks
from tests.peers.gate import skip_without_peer
from tests.peers.toolchain import PROJECT, require_tools

pytestmark = pytest.mark.peer

HERE = "here; the tests of the pipeline run this page"
STARTS_BROKER = "exactlog serve"
PROGRAM_SECONDS = 300


def pieces():
    """The code of the page that is for here."""
    page = (PROJECT / "docs" / "spark.md").read_text(encoding="utf-8")
    return [block for block in blocks(page) if block.reason_not_to_run.startswith(HERE)]


def run_commands(text):
    """Commands of the page; jobs run in the session of the program, and the broker is there already."""
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith("exactlog pipeline"):
            assert main(shlex.split(line)[1:]) == 0, line
        elif not line.startswith(STARTS_BROKER):
            path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            subprocess.run(["bash", "-euc", line], env={**os.environ, "PATH": path}, check=True, timeout=60)


def program(page):
    """The page as one program."""
    parts = ["from tests.pipeline.test_spark_page import run_commands"]
    for block in page:
        parts += [f"# docs/spark.md:{block.line}"]
        parts += [block.text if block.language == "python" else f"run_commands({block.text!r})"]
    return "\n".join(parts)


def run_page(page, directory, broker):
    """How the page ended, as one program in a directory, beside a broker."""
    (directory / "page.py").write_text(program(page).replace(USUAL_PORT, str(broker.port)))
    return subprocess.run(
        [sys.executable, "page.py"],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(PROJECT), "EXACTLOG_BOOTSTRAP": broker.bootstrap_servers},
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS,
        check=False,
    )


def test_the_code_of_the_page_does_what_the_page_says(tmp_path):
    with skip_without_peer():
        require_tools("java")
    page = pieces()
    with Broker(data_dir=tmp_path / "data") as broker:
        done = run_page(page, tmp_path, broker)

    assert done.returncode == 0, done.stderr
    assert len(page) >= 10
    assert "|1        |0     |" in done.stdout, "a table is shown"
    assert "version-unknown: " in done.stdout
    assert '"is_stopped":false' in done.stdout
    assert "\tat " not in done.stdout + done.stderr
    assert "batch 0: 3 rows so far" in done.stderr
