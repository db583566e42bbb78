"""Numbers into tables."""

from pathlib import Path

import pytest

from bench.report import END, Measurements, Table, markdown_table, text_table, update_page
from bench.systems import ALL_SYSTEMS, EXACTLOG_COMMIT, EXACTLOG_NONE, KAFKA


def some_measurements() -> Measurements:
    measurements = Measurements()
    for number in (100, 300, 200):
        measurements.add("records/s", KAFKA, number)
    measurements.add("records/s", EXACTLOG_NONE, 500)
    measurements.add("start embedded, ms", EXACTLOG_COMMIT, 80)
    return measurements


def test_a_table_shows_medians_and_the_ratio_to_the_peer() -> None:
    assert markdown_table(some_measurements(), [KAFKA, EXACTLOG_NONE, EXACTLOG_COMMIT]).splitlines() == [
        "|  | Apache Kafka 4.4.0 | exactlog, commit | exactlog, none |",
        "| --- | ---: | ---: | ---: |",
        "| records/s | 200 |  | 500 (2.50x) |",
        "| start embedded, ms |  | 80 |  |",
    ]


def test_without_the_peer_there_are_no_ratios() -> None:
    measurements = Measurements()
    measurements.add("records/s", EXACTLOG_NONE, 1500)

    assert text_table(measurements, [EXACTLOG_NONE]).splitlines() == [
        "           exactlog, none",
        "records/s           1,500",
    ]


def test_a_page_keeps_everything_but_what_is_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Before\n\n{Table.LOG.begin}\nold\n{END}\n\nafter\n")

    update_page(page, some_measurements(), ALL_SYSTEMS, table=Table.LOG, machine={"memory": "24 GB"}, repetitions=3)

    text = page.read_text()
    assert text.startswith(f"# Before\n\n{Table.LOG.begin}\n")
    assert text.endswith(f"{END}\n\nafter\n")
    assert "medians of 3. memory 24 GB." in text
    assert "old" not in text


def test_a_page_without_marks_is_not_touched(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Nothing\n")

    with pytest.raises(ValueError, match=r"page\.md has no"):
        update_page(page, some_measurements(), ALL_SYSTEMS, table=Table.LOG, machine={}, repetitions=1)

    assert page.read_text() == "# Nothing\n"
