"""`docs/spark_jobs.md` does what it says: its code, from top to bottom, as one program beside a broker."""

import pytest

from exactlog.testing import Broker
from tests.architecture.snippets import blocks
from tests.peers.gate import skip_without_peer
from tests.peers.toolchain import PROJECT, require_tools
from tests.pipeline.test_spark_page import HERE, run_page

pytestmark = pytest.mark.peer


def test_the_code_of_the_page_does_what_the_page_says(tmp_path):
    with skip_without_peer():
        require_tools("java")
    text = (PROJECT / "docs" / "spark_jobs.md").read_text(encoding="utf-8")
    page = [block for block in blocks(text) if block.reason_not_to_run.startswith(HERE)]
    with Broker(data_dir=tmp_path / "data") as broker:
        done = run_page(page, tmp_path, broker)

    assert done.returncode == 0, done.stderr
    assert len(page) >= 3
    assert "\tat " not in done.stdout + done.stderr
    assert "batch 1: 1 rows so far" in done.stderr
    assert '"lag":0' in done.stdout
