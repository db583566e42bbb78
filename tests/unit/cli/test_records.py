import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.cli.errors import InvalidUsageError
from exactlog.cli.records import (
    RECORD_FIELDS,
    RECORD_HEADING,
    encode_bytes,
    parse_record,
    record_line,
    record_printer,
    record_row,
)
from exactlog.core.model.ids import NO_TIMESTAMP, TopicPartition
from exactlog.core.record.batch_builder import NewRecord, build_batch
from exactlog.core.record.batch_format import decode_header
from exactlog.core.record.record_format import Record, decode_records

ORDERS = TopicPartition("orders", 3)


def rows_of(records, *, delta_version=None, **batch):
    content = build_batch(records, **batch)
    header = decode_header(content)
    return [record_row(ORDERS, record, batch=header, delta_version=delta_version) for record in decode_records(content)]


def test_a_record_is_printed_with_all_its_fields_in_order():
    [row] = rows_of([NewRecord(b"v", key=b"k", headers=[("h", b"x"), ("n", None)], timestamp_ms=5)], base_offset=9)

    assert tuple(row) == RECORD_FIELDS
    assert row == {
        "topic": "orders",
        "partition": 3,
        "offset": 9,
        "timestamp": 5,
        "timestamp_type": "CreateTime",
        "key": "k",
        "value": "v",
        "headers": [["h", "x"], ["n", None]],
        "transactional": False,
        "control": False,
        "producer_id": None,
        "producer_epoch": None,
        "sequence": None,
        "delta_version": None,
    }


def test_each_record_has_its_own_sequence_over_the_end_of_the_range():
    rows = rows_of(
        [NewRecord(b"a", timestamp_ms=1), NewRecord(b"b", timestamp_ms=1)],
        producer_id=7,
        producer_epoch=2,
        base_sequence=2**31 - 1,
        is_transactional=True,
        base_offset=40,
        delta_version=11,
    )

    assert [row["sequence"] for row in rows] == [2**31 - 1, 0]
    assert {(row["producer_id"], row["producer_epoch"], row["transactional"]) for row in rows} == {(7, 2, True)}
    assert {row["delta_version"] for row in rows} == {11}


def test_a_batch_stamped_by_the_broker_says_so():
    [row] = rows_of([NewRecord(b"v", timestamp_ms=1)], append_time_ms=77)

    assert (row["timestamp"], row["timestamp_type"]) == (77, "LogAppendTime")


def test_what_is_not_known_of_a_record_is_null():
    row = record_row(ORDERS, Record(4, 1, None, b"v"), batch=None)

    unknown = {"timestamp_type", "transactional", "control", "producer_id", "producer_epoch", "sequence"}
    assert tuple(row) == RECORD_FIELDS
    assert {row[name] for name in unknown} == {None}


def test_a_record_without_a_time_has_null():
    [row] = rows_of([NewRecord(None)])

    assert (row["timestamp"], row["value"]) == (None, None)


def test_bytes_are_text_where_they_are_utf_8():
    assert encode_bytes("é".encode()) == "é"
    assert encode_bytes(b"") == ""
    assert encode_bytes(b"\xff\x00") == {"base64": "/wA="}
    assert encode_bytes(None) is None


new_records = st.builds(
    NewRecord,
    value=st.none() | st.binary(),
    key=st.none() | st.binary(),
    headers=st.lists(st.tuples(st.text(), st.none() | st.binary()), max_size=3).map(tuple),
    timestamp_ms=st.just(NO_TIMESTAMP) | st.integers(0, 2**53),
)


@given(new_records)
def test_a_printed_record_can_be_read_again(record):
    [row] = rows_of([record])

    again = parse_record(json.dumps(row), number=1)

    assert (again.record, again.partition) == (record, 3)


def test_every_field_of_a_read_record_is_optional():
    assert parse_record("{}", number=1).record == NewRecord(None)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("no json", "line 4 is no record: JSON is malformed"),
        ("[]", "line 4 is no record: Expected `object`, got `array`"),
        ('{"vlaue": "x"}', "line 4 is no record: Object contains unknown field `vlaue`"),
        ('{"value": 1}', "line 4 is no record: Expected"),
        ('{"value": {"base64": "?"}}', "line 4 is no record: Invalid base64 encoded string"),
        ('{"value": {"hex": "00"}}', "line 4 is no record: Object contains unknown field `hex`"),
        ('{"headers": {"a": "b"}}', "line 4 is no record: Expected `array`, got `object`"),
        ('{"headers": [["a"]]}', "line 4 is no record: Expected `array` of length 2"),
        ('{"partition": -1}', "line 4 is no record: Expected `int` >= 0"),
        ('{"timestamp": true}', "line 4 is no record: Expected"),
        (r'{"value": "\ud800"}', "line 4 is no record"),
        ("\ud800", "line 4 is no record"),
        ('{"control": true}', "line 4 is a transaction marker"),
    ],
)
def test_a_line_that_is_no_record_is_refused_naming_line_and_field(line, fault):
    with pytest.raises(InvalidUsageError) as caught:
        parse_record(line, number=4)

    assert str(caught.value).startswith(fault)


def test_a_line_for_people_aligns_with_its_heading_and_obeys_no_control_character():
    [row] = rows_of([NewRecord(b"a\x1b[2J\nb", key=b"\xff", timestamp_ms=1_732_701_600_000)], base_offset=12)

    line = record_line(row)

    assert line == "        3          12  2024-11-27T10:00:00.000Z  base64:/w==  a\\x1b[2J\\nb"
    assert RECORD_HEADING.index("KEY") == line.index("base64:")


def test_a_marker_is_called_one():
    [row] = rows_of([NewRecord(b"v", timestamp_ms=2**62)], is_control=True)

    assert record_line(row).endswith("v  (transaction marker)")


def printed(capsys, rows, output):
    with record_printer(output) as printer:
        for row in rows:
            printer.write(row)
    return capsys.readouterr().out


def test_records_are_printed_as_lines_of_json_as_an_array_or_for_people(capsys):
    rows = rows_of([NewRecord(b"a", timestamp_ms=1), NewRecord(b"b", timestamp_ms=1)])

    assert [json.loads(line) for line in printed(capsys, rows, "jsonl").splitlines()] == rows
    assert json.loads(printed(capsys, rows, "json")) == rows
    assert printed(capsys, rows, "table").splitlines() == [RECORD_HEADING, *map(record_line, rows)]


def test_no_records_are_an_empty_array(capsys):
    assert json.loads(printed(capsys, [], "json")) == []
    assert printed(capsys, [], "jsonl") == ""
