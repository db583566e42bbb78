"""Batches into record batches of Arrow: every column against the reader of single records."""

from datetime import UTC, datetime, timedelta

import msgspec
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from exactlog.core.codec.compression import Compression, decompress
from exactlog.core.model.errors import DamageError, DecodeError, InvariantError
from exactlog.core.model.sequences import add_to_sequence
from exactlog.core.record.batch_builder import NewRecord, build_batch
from exactlog.core.record.batch_format import BATCH_OVERHEAD, decode_header
from exactlog.core.record.record_format import decode_records, encode_record
from exactlog.pipeline import arrow_rows
from exactlog.pipeline.arrow_rows import ROWS_MAX, read_rows
from exactlog.pipeline.schema import COLUMN_NAMES, COLUMNS, arrow_schema
from exactlog.pipeline.source import Slice, VisibleBatch
from tests.support.spark_schemas import schema_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECONDS_MAX = 2**63 - 1
END = 2**62
PIECE = Slice("orders", 3, 0, END, version=7, first_row=0)
FULL = arrow_schema(schema_of())
PLAIN = arrow_schema(schema_of(*(column.name for column in COLUMNS if not column.is_in_records)))

SHORT_OR_LONG = st.binary(max_size=70) | st.binary(min_size=60, max_size=70).map(lambda text: text * 130)
NULLABLE_BYTES = st.none() | SHORT_OR_LONG
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple)
TIMES = st.integers(-1, 10**13) | st.integers(-(2**63), 2**63 - 1)
NEW_RECORDS = st.builds(NewRecord, value=NULLABLE_BYTES, key=NULLABLE_BYTES, headers=HEADERS)


class Batches:
    """A source that has these."""

    def __init__(self, *batches):
        self.found = batches

    def batches(self, piece):
        for batch in self.found:
            yield msgspec.structs.replace(batch, start_offset=piece.start_offset, end_offset=piece.end_offset)


def visible(encoded, **more):
    """A batch as a source gives it."""
    header = decode_header(encoded)
    records = decompress(header.compression, bytes(encoded[BATCH_OVERHEAD:]))
    return VisibleBatch(header, records, 0, END, **more)


def plain_batch(count, **fields):
    return visible(build_batch([NewRecord(value=b"%d" % number) for number in range(count)], **fields))


def gapped(base_offset, deltas, *, last=None):
    """A batch of which compaction has left only the records with these offset deltas."""
    content = b"".join(
        encode_record(offset_delta=delta, timestamp_delta=0, key=None, value=b"%d" % delta, headers=())
        for delta in deltas
    )
    header = msgspec.structs.replace(
        decode_header(build_batch([NewRecord(value=b"")], base_offset=base_offset)),
        record_count=len(deltas),
        last_offset_delta=deltas[-1] if last is None else last,
    )
    return VisibleBatch(header, content, 0, END)


def rows_of(batches, schema=FULL, *, pieces=(PIECE,)):
    """The rows of all pieces, as dicts; timestamps as microseconds since 1970."""
    found = list(read_rows(Batches(*batches), pieces, schema))
    assert all(0 < len(part) <= ROWS_MAX and part.schema.equals(schema) for part in found)
    rows = []
    for part in found:
        part.validate(full=True)
        if "timestamp" in schema.names:
            index = schema.names.index("timestamp")
            rows += part.set_column(index, "timestamp", part.column(index).view(pa.int64())).to_pylist()
        else:
            rows += part.to_pylist()
    return rows


def expected_rows(batch, piece=PIECE):
    """The same, record by record, without any column of the source's."""
    header = batch.header
    for record in stored_records(batch):
        if not piece.start_offset <= record.offset < piece.end_offset:
            continue
        microseconds = record.timestamp_ms * 1_000
        has_producer, has_sequence = header.producer_id != -1, header.base_sequence != -1
        yield {
            "key": record.key,
            "value": record.value,
            "headers": [{"name": name, "value": value} for name, value in record.headers],
            "topic": piece.topic,
            "partition": piece.partition,
            "offset": record.offset,
            "timestamp": None if microseconds == -1_000 or abs(microseconds) > MICROSECONDS_MAX else microseconds,
            "timestamp_type": "LogAppendTime" if header.is_log_append_time else "CreateTime",
            "producer_id": header.producer_id if has_producer else None,
            "producer_epoch": header.producer_epoch if has_producer else None,
            "sequence": add_to_sequence(header.base_sequence, record.offset - header.base_offset)
            if has_producer and has_sequence
            else None,
            "transactional": header.is_transactional,
            "control": header.is_control,
            "delta_version": batch.delta_version,
            "origin_id": batch.origin_id,
        }


def stored_records(batch):
    """What the reader of single records makes of a batch's records."""
    opened = msgspec.structs.replace(
        batch.header,
        attributes=batch.header.attributes & ~0b111,
        batch_length=BATCH_OVERHEAD - 12 + len(batch.records),
    )
    return list(decode_records(bytes(BATCH_OVERHEAD) + batch.records, header=opened))


def expected(batches, piece=PIECE):
    rows = [row for batch in batches for row in expected_rows(batch, piece)]
    return [row | {"row_seq": piece.first_row + index} for index, row in enumerate(rows)]


def kept(rows, names):
    return [{name: row[name] for name in names} for row in rows]


@st.composite
def batches(draw):
    """Some batches one after the other, of any producer, kind and compression, with times far apart now and then."""
    found, base_offset = [], draw(st.integers(0, 2**40))
    for number in range(draw(st.integers(1, 4))):
        records = draw(st.lists(NEW_RECORDS, min_size=1, max_size=5))
        base_time = draw(TIMES)
        times = [base_time, *(base_time + draw(st.integers(-3, 3) | st.integers(-(2**40), 2**40)) for _ in records[1:])]
        records = [
            msgspec.structs.replace(record, timestamp_ms=min(max(time, -(2**63)), 2**63 - 1))
            for record, time in zip(records, times, strict=True)
        ]
        has_producer = draw(st.booleans())
        encoded = build_batch(
            records,
            compression=draw(st.sampled_from(Compression)),
            base_offset=base_offset,
            producer_id=draw(st.integers(0, 2**63 - 1)) if has_producer else -1,
            producer_epoch=draw(st.integers(0, 2**15 - 1)) if has_producer else -1,
            base_sequence=draw(st.integers(0, 3) | st.integers(2**31 - 4, 2**31 - 1)) if has_producer else -1,
            is_transactional=draw(st.booleans()),
            is_control=draw(st.booleans()),
            append_time_ms=draw(st.none() | st.integers(-1, 10**13)),
        )
        found.append(
            visible(
                encoded,
                delta_version=draw(st.none() | st.just(number)),
                origin_id=draw(st.none() | st.sampled_from(["1", "2"])),
            )
        )
        base_offset += len(records) + draw(st.integers(0, 2))
    return found


# --- what comes out -------------------------------------------------------------------------------------------------


@given(batches())
def test_every_column_is_what_the_reader_of_single_records_finds(found):
    assert rows_of(found) == expected(found)


@given(batches(), st.data())
def test_a_piece_has_exactly_the_offsets_between_its_ends(found, data):
    first, end = found[0].header.base_offset, found[-1].header.next_offset
    start = data.draw(st.integers(first, end))
    piece = Slice("orders", 3, start, data.draw(st.integers(start, end)), first_row=9)

    assert rows_of(found, pieces=[piece]) == expected(found, piece)
    assert rows_of(found, PLAIN, pieces=[piece]) == kept(expected(found, piece), PLAIN.names)


@given(batches(), st.lists(st.sampled_from(COLUMN_NAMES), min_size=1, unique=True))
def test_fewer_columns_are_the_same_columns(found, names):
    assert rows_of(found, arrow_schema(schema_of(*names))) == kept(expected(found), names)


@given(batches())
def test_columns_that_headers_have_come_without_any_record(found):
    without = [msgspec.structs.replace(batch, records=b"") for batch in found]

    assert rows_of(without, PLAIN) == kept(expected(found), PLAIN.names)


@given(st.lists(st.integers(0, 300), min_size=1, max_size=20, unique=True).map(sorted), st.integers(0, 3))
def test_offsets_that_compaction_has_taken_are_no_rows(deltas, more):
    found = [
        plain_batch(2, base_offset=10),
        gapped(12, deltas, last=deltas[-1] + more),
        plain_batch(1, base_offset=900),
    ]

    assert rows_of(found) == expected(found)
    assert rows_of(found, PLAIN) == kept(expected(found), PLAIN.names)


def test_a_batch_that_the_cleaner_has_emptied_has_no_rows():
    emptied = msgspec.structs.replace(plain_batch(3), records=b"")
    emptied = msgspec.structs.replace(emptied, header=msgspec.structs.replace(emptied.header, record_count=0))

    for schema in (FULL, PLAIN):
        assert rows_of([emptied], schema) == []
        assert len(rows_of([emptied, plain_batch(2, base_offset=3)], schema)) == 2


def test_a_time_that_sparks_timestamps_cannot_hold_is_null():
    fits, nanoseconds = MICROSECONDS_MAX // 1_000, 1_762_539_302_883_000_000
    records = [NewRecord(value=b"", timestamp_ms=time) for time in (fits, -fits, fits + 1, -fits - 1, nanoseconds, -1)]

    found = rows_of([visible(build_batch([record])) for record in records])

    assert [row["timestamp"] for row in found] == [fits * 1_000, -fits * 1_000, None, None, None, None]


def test_a_timestamp_is_in_utc():
    (part,) = read_rows(Batches(visible(build_batch([NewRecord(value=b"", timestamp_ms=1_500)]))), [PIECE], FULL)

    assert part.column(part.schema.names.index("timestamp"))[0].as_py() == EPOCH + timedelta(milliseconds=1_500)


# --- rows that are counted ------------------------------------------------------------------------------------------


def test_rows_are_counted_in_each_piece_from_its_first_row_on():
    found = [plain_batch(3, base_offset=base) for base in (0, 3, 6)]
    pieces = [
        Slice("orders", 3, 0, 4, first_row=10),
        Slice("orders", 3, 5, 9, first_row=20),
        Slice("payments", 0, 0, 2, first_row=0),
    ]

    for schema in (FULL, PLAIN):
        rows = rows_of(found, schema, pieces=pieces)

        assert [row["row_seq"] for row in rows] == [10, 11, 12, 13, 20, 21, 22, 23, 0, 1]
        assert [row["topic"] for row in rows] == ["orders"] * 8 + ["payments"] * 2
        assert [row["offset"] for row in rows] == [0, 1, 2, 3, 5, 6, 7, 8, 0, 1]


def test_rows_that_are_wanted_uncounted_are_a_mistake_of_the_plan():
    with pytest.raises(InvariantError):
        rows_of([plain_batch(1)], pieces=[Slice("orders", 3, 0, 9)])


def test_nobody_needs_a_first_row_who_does_not_ask_for_it():
    schema = arrow_schema(schema_of("offset"))

    assert rows_of([plain_batch(2)], schema, pieces=[Slice("orders", 3, 0, 9)]) == [{"offset": 0}, {"offset": 1}]


def test_batches_are_gathered_and_large_ones_handed_over_in_parts():
    small = [plain_batch(100, base_offset=100 * number) for number in range(300)]
    large = [plain_batch(ROWS_MAX * 2 + 1, base_offset=0)]

    gathered = [len(part) for part in read_rows(Batches(*small), [PIECE], FULL)]
    parts = [len(part) for part in read_rows(Batches(*large), [PIECE], FULL)]

    assert gathered == [ROWS_MAX] * 3
    assert parts == [ROWS_MAX, ROWS_MAX, 1]
    assert [row["row_seq"] for row in rows_of(small)] == list(range(30_000))
    assert [row["row_seq"] for row in rows_of(large)] == list(range(ROWS_MAX * 2 + 1))


def test_no_more_is_gathered_than_some_megabytes(monkeypatch):
    monkeypatch.setattr(arrow_rows, "GATHERED_BYTES_MAX", 1_000)
    found = [visible(build_batch([NewRecord(value=bytes(600))], base_offset=number)) for number in range(5)]

    assert [len(part) for part in read_rows(Batches(*found), [PIECE], FULL)] == [2, 2, 1]


def test_nothing_comes_of_nothing():
    assert rows_of([]) == []
    assert rows_of([plain_batch(3)], pieces=[]) == []
    assert rows_of([plain_batch(3)], pieces=[Slice("orders", 3, 7, 9, first_row=0)]) == []


# --- damage ---------------------------------------------------------------------------------------------------------


@given(batches(), st.data())
def test_what_is_not_right_is_refused_where_the_reader_of_single_records_refuses_it(found, data):
    broken = [spoiled(batch, data) for batch in found]
    try:
        rows = expected(broken)
        offsets = [[record.offset for record in stored_records(batch)] for batch in broken]
    except DecodeError:
        rows = None
    else:
        in_order = all(
            each == sorted(set(each)) and batch.header.base_offset <= min(each) and max(each) < batch.header.next_offset
            for each, batch in zip(offsets, broken, strict=True)
        )
        rows = rows if in_order else None

    if rows is None:
        with pytest.raises(DamageError, match=r"topic orders, partition 3, offset \d+ as of version 7 cannot be read"):
            rows_of(broken)
    else:
        assert rows_of(broken) == rows


def spoiled(batch, data):
    """The batch with some bytes of its records changed, added or cut off, or with another count of them."""
    records = bytearray(batch.records)
    for _ in range(data.draw(st.integers(0, 2))):
        if records:
            records[data.draw(st.integers(0, len(records) - 1))] = data.draw(
                st.integers(0, 255) | st.sampled_from((0x7F, 0x80, 0xFF))
            )
    if data.draw(st.booleans()):
        del records[data.draw(st.integers(0, len(records))) :]
        records += data.draw(st.binary(max_size=3))
    count = data.draw(st.just(batch.header.record_count) | st.integers(-1, 8) | st.just(2**31 - 1))
    header = msgspec.structs.replace(batch.header, record_count=count)
    return msgspec.structs.replace(batch, records=bytes(records), header=header)


@example(b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01")
@example(b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02")
@example(b"\x80\x00")
@example(b"\xff\xff\xff\xff\x0f")
@given(st.binary(min_size=1, max_size=12))
def test_every_spelling_of_a_number_is_read_or_refused_alike(number):
    for body in (
        b"\0" + number + b"\0\x01\x01\0",  # as the time
        b"\0\0" + number + b"\x01\x01\0",  # as the offset
        b"\0\0\0" + number + b"\x01\0",  # as the length of the key
        b"\0\0\0\x01" + number + b"\0",  # as the length of the value
        b"\0\0\0\x01\x01" + number,  # as the count of headers
        b"\0\0\0\x01\x01\x02" + number,  # as the length of a header's name
        b"\0\0\0\x01\x01\x02\0" + number,  # as the length of its value
    ):
        for content in (encode_length(len(body)) + body, number + body):
            batch = msgspec.structs.replace(plain_batch(1), records=content)
            batch = msgspec.structs.replace(
                batch, header=msgspec.structs.replace(batch.header, last_offset_delta=2**31 - 1)
            )
            try:
                rows = expected([batch])
                in_order = len(rows) == 1  # else its offset lies before the batch
            except DecodeError:
                in_order = False
            if in_order:
                assert rows_of([batch]) == rows
            else:
                with pytest.raises(DamageError):
                    rows_of([batch])


def encode_length(length):
    return bytes([length * 2])


def test_a_negative_length_is_damage_even_where_all_else_fits():
    record = plain_batch(1).records
    assert record[0] == (len(record) - 1) * 2
    spelled = bytes([record[0] | 1]) + record[1:]  # its other half goes as far: only its sign is wrong

    with pytest.raises(DamageError, match="does not end where its length says"):
        rows_of([msgspec.structs.replace(plain_batch(1), records=spelled)])


def test_the_first_offset_that_cannot_be_read_is_named():
    good = plain_batch(3, base_offset=40)
    bad = plain_batch(3, base_offset=43)
    bad = msgspec.structs.replace(bad, records=bad.records[:-1])

    with pytest.raises(DamageError) as caught:
        rows_of([good, bad])

    assert str(caught.value).startswith(
        "topic orders, partition 3, offset 45 as of version 7 cannot be read: the batch ends inside record 2 of 3"
    )
    assert "exactlog log verify" in caught.value.hint


@pytest.mark.parametrize("deltas", [(0, 0), (1, 0), (0, 5)])
def test_offsets_that_are_not_those_of_the_header_are_damage(deltas):
    found = gapped(10, deltas, last=3)

    with pytest.raises(DamageError, match=r"offset 1\d as of version 7 cannot be read: a record has offset"):
        rows_of([found])
