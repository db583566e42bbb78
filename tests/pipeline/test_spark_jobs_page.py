"""`docs/spark_jobs.md` does what it says: its code, from top to bottom, as one program beside a broker."""

import os
import subprocess
import sys

import pytest

from exactlog.testing import Broker
from tests.architecture.snippets import USUAL_PORT, blocks
from tests.peers.gate import skip_without_peer
from tests.peers.toolchain import PROJECT, require_tools
from tests.pipeline.test_spark_page import HERE, PROGRAM_SECONDS, program

pytestmark = pytest.mark.peer


def test_the_code_of_the_page_does_what_the_page_says(tmp_path):
    with skip_without_peer():
        require_tools("java")
    text = (PROJECT / "docs" / "spark_jobs.md").read_text(encoding="utf-8")
    page = [block for block in blocks(text) if block.reason_not_to_run.startswith(HERE)]
    with Broker(data_dir=tmp_path / "data") as broker:
        (tmp_path / "page.py").write_text(program(page).replace(USUAL_PORT, str(broker.port)))
        done = subprocess.run(
            [sys.executable, "page.py"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(PROJECT), "EXACTLOG_BOOTSTRAP": broker.bootstrap_servers},
            capture_output=True,
            text=True,
            timeout=PROGRAM_SECONDS,
            check=False,
        )

    assert done.returncode == 0, done.stderr
    assert len(page) >= 3
    assert "\tat " not in done.stdout + done.stderr
    assert "batch 1: 1 rows so far" in done.stderr
    assert '"lag":0' in done.stdout
