"""Go programs are built once and run."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.peers import PROJECT
from tests.peers.apache_kafka import ApacheKafka
from tests.peers.go_programs import build_go_program

pytestmark = pytest.mark.peer


def test_a_program_whose_sources_did_not_change_is_not_built_again(loadgen: Path) -> None:
    built_at = loadgen.stat().st_mtime_ns

    again = build_go_program(PROJECT / "bench" / "loadgen")

    assert again == loadgen
    assert again.stat().st_mtime_ns == built_at


def test_the_load_generator_reads_back_what_it_wrote(loadgen: Path, apache_kafka: ApacheKafka) -> None:
    def run(*arguments: str) -> dict[str, object]:
        address = ("-broker", apache_kafka.bootstrap_servers, "-topic", "load")
        output = subprocess.run([loadgen, *arguments, *address], capture_output=True, check=True, text=True).stdout
        return json.loads(output)

    produced = run("produce", "-n", "1000", "-size", "100")
    consumed = run("consume", "-n", "1000")

    assert (produced["records"], produced["errors"]) == (1000, 0)
    assert (consumed["records"], consumed["errors"]) == (1000, 0)


def test_the_load_generator_refuses_an_address_off_this_machine(loadgen: Path) -> None:
    elsewhere = [loadgen, "produce", "-broker", "192.0.2.1:9092"]

    result = subprocess.run(elsewhere, capture_output=True, check=False, text=True)

    assert result.returncode == 1
    assert "not a loopback address" in result.stderr
