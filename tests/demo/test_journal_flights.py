"""The demo of the event journal, as a stranger runs it."""

from pathlib import Path

import pytest

from tests.demo.running import run_demo
from tests.peers.gate import in_ci

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_every_aircraft_is_told_alike_with_and_without_its_store(tmp_path: Path) -> None:
    told, shown = run_demo("demo.journal_flights", tmp_path)

    assert (shown["journals"], shown["events"], shown["expired"]) == (4_043, 334_264, 1)
    assert shown["answers_compared"] > 0
    assert shown["replicated_by_spark_events_per_second"] or not in_ci()
    assert "expected its last event to be 575, but its last event is 576" in told
    assert list(tmp_path.iterdir()) == []
