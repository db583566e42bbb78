"""Two processes on one directory: one owns it, the other is turned away or reads what is published, nothing else."""

import json
import os
import subprocess

import pytest

from demo.served_broker import EXACTLOG, ServedBroker
from exactlog.core.model.errors import DirectoryLockedError
from exactlog.log import open_partition
from tests.support.idempotent_load import IdempotentLoad

pytestmark = pytest.mark.slow

TOPIC = "orders"
LOOKS = 40
RECORDS = 1_000


def serve(data_dir):
    command = [str(EXACTLOG), "serve", "--data-dir", str(data_dir), "--port", "0"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("flush_mode", ["commit", "none"])
def test_a_reader_beside_a_broker_under_load_sees_whole_versions_that_only_grow(tmp_path, flush_mode):
    data = tmp_path / "data"
    options = ["--flush-mode", flush_mode, "--set", "num.partitions=1", "--set", "segment.bytes=50000"]
    with ServedBroker(data, log=tmp_path / "broker.log", options=options) as broker:
        load = IdempotentLoad(broker.address, TOPIC, partitions=1, producers=2)
        load.go_on(until=200)
        directory = data / f"topic={TOPIC}-part=0"
        before, seen, looks = -1, [], 0
        with open_partition(directory, read_only=True) as reader:
            while looks < LOOKS or len(seen) < RECORDS:  # in `none`, versions follow a moment later
                looks += 1
                load.go_on(until=len(load.acknowledged) + 100)
                state = reader.load_state()
                assert state.version >= before
                records = [(record.offset, record.value) for record in reader.read(0, state.next_offset)]
                assert [offset for offset, _ in records] == list(range(state.next_offset)), "whole versions"
                assert records[: len(seen)] == seen, "each state is a beginning of the next"
                before, seen = state.version, records
                if flush_mode == "commit" and looks % 10 == 0:
                    published = {name.name for name in (directory / "_delta_log").iterdir()}
                    assert f"{state.version:020d}.json" in published
        load.finish()


def test_who_comes_second_is_turned_away_and_told_by_whom(tmp_path):
    data = tmp_path / "data"
    with ServedBroker(data, log=tmp_path / "broker.log", options=[]) as broker:
        second = serve(data)
        error = json.loads(second.stderr.strip().splitlines()[-1])["error"]
        assert (second.returncode, error["code"]) == (9, "directory-locked")
        assert str(broker.ready["pid"]) in error["message"]
        with pytest.raises(DirectoryLockedError, match=str(broker.ready["pid"])):
            open_partition(data / "topic=orders-part=0")

    another = tmp_path / "another"
    with open_partition(another / "topic=orders-part=0"):
        third = serve(another)
    error = json.loads(third.stderr.strip().splitlines()[-1])["error"]
    assert (third.returncode, error["code"]) == (9, "directory-locked")
    assert f"process {os.getpid()} " in error["message"]
