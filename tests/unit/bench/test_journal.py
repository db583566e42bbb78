"""The measurement of journals, in its smallest form."""

from collections import defaultdict
from contextlib import contextmanager

import pytest

from bench.journal import EXACTLOG, KAFKA, ON_EXACTLOG, ON_SQLITE, markdown, measure
from bench.journal_cases import COLD, HALF_AND_HALF, IN_HEAD, IN_STORE, LAG, WARM, Sizes, append_row, recovery_row
from exactlog.testing import Broker

SMALLEST = Sizes(seconds=0.05, events=40, reads=1, replicated_events=100, lag_appends=3, consumers=1)


@contextmanager
def in_memory(_folder):
    with Broker(config={"in.memory": True}) as broker:
        yield f"kafka://{broker.bootstrap_servers}"


def no_numbers():
    return defaultdict(lambda: defaultdict(list))


def test_everything_is_measured_of_journals_and_of_what_one_would_otherwise_pick(monkeypatch):
    pytest.importorskip("eventsourcing")
    monkeypatch.setattr("bench.journal.exactlog", in_memory)
    numbers = no_numbers()

    measure({EXACTLOG: in_memory}, numbers, SMALLEST)

    assert {name for of_system in numbers.values() for name in of_system} == {EXACTLOG, ON_SQLITE, ON_EXACTLOG}
    for recovery in (IN_STORE, IN_HEAD, HALF_AND_HALF):
        for way in (COLD, WARM):
            assert len(numbers[recovery_row(recovery, way)][EXACTLOG]) == 1
    for what in (f"{append_row(10)}, P99, ms", recovery_row(IN_STORE, WARM)):
        assert numbers[what].keys() == {EXACTLOG, ON_SQLITE, ON_EXACTLOG}
    assert f"{LAG}, P95, ms" in numbers
    assert all(number > 0 for of_system in numbers.values() for found in of_system.values() for number in found)


def test_without_the_library_journals_are_measured_alone(monkeypatch, capsys):
    monkeypatch.setattr("bench.journal.find_spec", lambda _name: None)

    measure({}, no_numbers(), SMALLEST)

    assert "pip install 'exactlog[eventsourcing]'" in capsys.readouterr().err


def test_the_table_has_the_ratio_to_the_peer_beside_each_number():
    numbers = no_numbers()
    numbers["appends/s"] = defaultdict(list, {EXACTLOG: [300, 100, 200], KAFKA.name: [50]})
    numbers["P50, ms"] = defaultdict(list, {ON_SQLITE: [0.51]})

    assert markdown(numbers).splitlines() == [
        "|  | Apache Kafka 4.4.0 | exactlog, commit | eventsourcing, SQLite |",
        "| --- | ---: | ---: | ---: |",
        "| appends/s | 50.0 | 200 (4.00x) |  |",
        "| P50, ms |  |  | 0.5 |",
    ]
