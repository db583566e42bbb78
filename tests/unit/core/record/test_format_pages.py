"""The tables of the format pages and docstrings are those of the code, and the examples are what it writes."""

import re
import struct
from pathlib import Path

import msgspec
import pytest

from exactlog.core.record import batch_format, control_record_format
from exactlog.core.record.batch_builder import NewRecord, build_batch
from exactlog.core.record.batch_format import BATCH_OVERHEAD, HEADER, BatchHeader
from exactlog.core.record.control_record_format import TransactionMarker, build_marker_batch

PAGES = Path(__file__).parents[4] / "docs" / "formats"


def layout(codes, names):
    """(offset, size, name) of each field of a struct format."""
    rows, offset = [], 0
    for code, name in zip(codes, names, strict=True):
        size = struct.calcsize(f">{code}")
        rows.append((offset, size, name))
        offset += size
    return rows


HEADER_LAYOUT = layout(HEADER.format.removeprefix(">"), BatchHeader.__struct_fields__)
KEY_LAYOUT = layout(control_record_format._KEY.format.removeprefix(">"), ["version", "type"])
VALUE_LAYOUT = layout(control_record_format._VALUE.format.removeprefix(">"), ["version", "coordinator_epoch"])


def table_of_docstring(docstring):
    rows = re.findall(r"^ +(\d+) +(\d+) +u?int\d+ +(\w+)", docstring, re.MULTILINE)
    return [(int(offset), int(size), name) for offset, size, name in rows]


def table_of_page(page):
    rows = re.findall(r"^\| (\d+) \| (\d+) \| ([^|]+) \|", (PAGES / page).read_text(), re.MULTILINE)
    return [(int(offset), int(size), name.replace(" ", "_")) for offset, size, name in rows]


def example_of_page(page):
    (block,) = re.findall(r"^```text\n(.*?)^```", (PAGES / page).read_text(), re.MULTILINE | re.DOTALL)
    return block


def test_the_tables_of_the_header_are_its_layout():
    assert table_of_docstring(batch_format.__doc__) == HEADER_LAYOUT
    assert table_of_page("batch_format.md") == HEADER_LAYOUT
    assert sum(size for _, size, _ in HEADER_LAYOUT) == BATCH_OVERHEAD == 61


def test_the_positions_that_are_patched_are_those_of_the_layout():
    positions = {name: offset for offset, _, name in HEADER_LAYOUT}

    assert positions["base_offset"] == 0
    assert positions["batch_length"] + 4 == batch_format.LENGTH_OVERHEAD
    assert positions["leader_epoch"] == batch_format.LEADER_EPOCH_POSITION
    assert positions["magic"] == batch_format.MAGIC_POSITION
    assert positions["crc"] == batch_format.CRC_POSITION
    assert positions["attributes"] == batch_format.ATTRIBUTES_POSITION
    assert positions["max_timestamp"] == batch_format.MAX_TIMESTAMP_POSITION


def test_the_tables_of_the_control_record_are_its_layout():
    assert table_of_docstring(control_record_format.__doc__) == KEY_LAYOUT + VALUE_LAYOUT
    assert table_of_page("control_record_format.md") == KEY_LAYOUT + VALUE_LAYOUT


def test_the_example_of_a_batch_is_what_is_written():
    batch = build_batch(
        [NewRecord(b"debit", key=b"alice", headers=(("trace", b"\x07"),), timestamp_ms=1_700_000_000_000)],
        base_offset=42,
        producer_id=1000,
        producer_epoch=0,
        base_sequence=7,
        is_transactional=True,
        leader_epoch=3,
    )

    assert bytes.fromhex(example_of_page("batch_format.md")) == batch
    record = "".join(line[:16] for line in example_of_page("record_format.md").splitlines())
    assert bytes.fromhex(record) == batch[BATCH_OVERHEAD:]


def test_the_example_of_a_control_record_is_what_is_written():
    batch = build_marker_batch(
        TransactionMarker(is_commit=True, coordinator_epoch=5),
        producer_id=1000,
        producer_epoch=0,
        timestamp_ms=1_700_000_000_050,
        base_offset=43,
        leader_epoch=3,
    )

    assert bytes.fromhex(example_of_page("control_record_format.md")) == batch


@pytest.mark.parametrize("field", [name for _, _, name in HEADER_LAYOUT])
def test_each_field_is_read_from_where_the_table_says(field):
    offset, size, _ = next(row for row in HEADER_LAYOUT if row[2] == field)
    blank = bytearray(build_batch([NewRecord(b"")])[:BATCH_OVERHEAD])
    changed = bytearray(blank)
    changed[offset + size - 1] ^= 1

    before = msgspec.structs.asdict(BatchHeader(*HEADER.unpack(blank)))
    after = msgspec.structs.asdict(BatchHeader(*HEADER.unpack(changed)))

    assert [name for name in before if before[name] != after[name]] == [field]
