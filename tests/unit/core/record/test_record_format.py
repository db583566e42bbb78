import pytest

from exactlog.core.codec.compression import Compression, compress
from exactlog.core.codec.zigzag import encode_varint
from exactlog.core.model.errors import DecodeError
from exactlog.core.record.batch_builder import NewRecord, build_batch
from exactlog.core.record.batch_format import BATCH_OVERHEAD, decode_header
from exactlog.core.record.record_format import Record, decode_records, encode_record


def batch_of(content: bytes, *, count: int, codec: Compression = Compression.NONE) -> bytearray:
    """A batch of ``content`` as it stands, whatever it is."""
    batch = build_batch([NewRecord(b"")])[:BATCH_OVERHEAD] + compress(codec, content)
    batch[8:12] = (len(batch) - 12).to_bytes(4)
    batch[21:23] = codec.to_bytes(2)
    batch[57:61] = count.to_bytes(4, signed=True)
    return batch


def record_of(body: bytes) -> bytes:
    return encode_varint(len(body)) + body


def test_a_record_has_the_bytes_that_kafka_gives_it():
    encoded = encode_record(
        offset_delta=1, timestamp_delta=-2, key=None, value=b"va", headers=[("h", b"x"), ("é", None)]
    )

    assert encoded.hex(" ") == (
        "20 "  # 16 bytes follow
        "00 "  # attributes
        "03 "  # timestamp delta
        "02 "  # offset delta
        "01 "  # null key
        "04 76 61 "  # value
        "04 "  # headers
        "02 68 02 78 "
        "04 c3 a9 01"
    )


def test_records_come_back_with_their_offsets_and_times():
    batch = build_batch(
        [
            NewRecord(b"v", key=b"k", timestamp_ms=1000, headers=(("h", b"x"), ("h", None), ("", b""))),
            NewRecord(None, timestamp_ms=-1),
            NewRecord(b"", key=b"", timestamp_ms=2**40),
        ],
        base_offset=100,
    )

    assert list(decode_records(batch)) == [
        Record(100, 1000, b"k", b"v", (("h", b"x"), ("h", None), ("", b""))),
        Record(101, -1, None, None),
        Record(102, 2**40, b"", b""),
    ]


@pytest.mark.parametrize("codec", list(Compression))
def test_records_are_decoded_from_the_middle_of_a_buffer(codec):
    batch = build_batch([NewRecord(b"value" * 100)] * 3, compression=codec)

    records = list(decode_records(memoryview(b"before" + batch + b"after"), 6, header=decode_header(batch)))

    assert [record.value for record in records] == [b"value" * 100] * 3


def test_nothing_is_decoded_before_the_first_record_is_asked_for():
    records = decode_records(b"no batch at all")

    with pytest.raises(DecodeError):
        next(records)


def test_gaps_between_offsets_as_the_cleaner_leaves_them_are_kept():
    content = b"".join(
        encode_record(offset_delta=delta, timestamp_delta=0, key=b"k", value=None, headers=()) for delta in (0, 5, 7)
    )

    assert [record.offset for record in decode_records(batch_of(content, count=3))] == [0, 5, 7]


@pytest.mark.parametrize("codec", list(Compression))
def test_a_batch_that_the_cleaner_has_emptied_has_no_records(codec):
    batch = batch_of(b"", count=0)
    batch[21:23] = codec.to_bytes(2)

    assert list(decode_records(batch)) == []


def test_any_negative_length_is_read_as_null():
    body = b"\x00\x00\x00" + encode_varint(-5) + encode_varint(-2) + b"\x00"

    assert list(decode_records(batch_of(record_of(body), count=1))) == [Record(0, -1, None, None)]


def test_a_header_name_that_is_not_utf8_is_read_as_kafka_reads_it():
    body = b"\x00\x00\x00\x01\x01\x02\x02\xff\x02x"

    (record,) = decode_records(batch_of(record_of(body), count=1))

    assert record.headers == (("\ufffd", b"x"),)


WELL_FORMED = encode_record(offset_delta=0, timestamp_delta=0, key=b"key", value=b"value", headers=[("h", b"x")])


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize(
    ("content", "count", "message"),
    [
        pytest.param(WELL_FORMED, 2, "ends inside record 1 of 2", id="fewer records than counted"),
        pytest.param(WELL_FORMED * 2, 1, "follow the last of 1", id="more records than counted"),
        pytest.param(WELL_FORMED, 0, "follow the last of 0", id="records where none are counted"),
        pytest.param(WELL_FORMED, -1, "claims -1 records", id="a negative count"),
        pytest.param(WELL_FORMED, 2**31 - 1, "ends inside record 1", id="a count in the billions"),
        pytest.param(WELL_FORMED[:-1], 1, "ends inside|does not end|claims", id="cut short"),
        pytest.param(b"\x02" + WELL_FORMED[1:], 1, "does not end", id="a record longer than its length"),
        pytest.param(b"\x40" + WELL_FORMED[1:], 1, "does not end", id="a record shorter than its length"),
        pytest.param(b"\x01" + WELL_FORMED[1:], 1, "does not end", id="a negative length"),
        pytest.param(b"\xff" * 9, 1, "longer than 32 bits", id="an endless number"),
        pytest.param(record_of(b"\x00\x00\x00\xfe\xff\xff\xff\x0f"), 1, "ends inside", id="a key of 2 GiB"),
        pytest.param(record_of(b"\x00\x00\x00\x01\xfe\xff\xff\xff\x0f"), 1, "ends inside", id="a value of 2 GiB"),
        pytest.param(record_of(b"\x00\x00\x00\x01\x01\x01"), 1, "claims -1 headers", id="a negative header count"),
        pytest.param(
            record_of(b"\x00\x00\x00\x01\x01\xfe\xff\xff\xff\x0f"),
            1,
            "2147483647 headers",
            id="headers in the billions",
        ),
        pytest.param(record_of(b"\x00\x00\x00\x01\x01\x02\x01\x01"), 1, "no name", id="a header without a name"),
    ],
)
def test_records_that_lie_are_malformed(codec, content, count, message):
    with pytest.raises(DecodeError, match=message):
        list(decode_records(batch_of(content, count=count, codec=codec)))


def test_a_batch_that_is_not_whole_is_malformed():
    batch = build_batch([NewRecord(b"value")])

    with pytest.raises(DecodeError, match="are left"):
        list(decode_records(batch[:-1]))


def test_records_of_an_unknown_codec_are_malformed():
    batch = batch_of(WELL_FORMED, count=1)
    batch[22] = 6

    with pytest.raises(DecodeError, match="codec 6"):
        list(decode_records(batch))
