"""The demo of the write-ahead log, as a stranger runs it."""

from pathlib import Path

import pytest

from tests.demo.running import run_demo

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_every_flight_is_recovered_and_what_is_flushed_is_cleaned(tmp_path: Path) -> None:
    told, shown = run_demo("demo.wal_flights", tmp_path)

    assert (shown["entries"], shown["tables"], shown["regions"]) == (336_776, 16, 4)
    assert 0 < shown["acknowledged_at_kill"] <= shown["recovered_entries"] < shown["entries"]
    assert 0 < shown["offsets_freed_at_first"] < shown["offsets_freed"]
    assert "has another owner now" in told
    assert list(tmp_path.iterdir()) == []
