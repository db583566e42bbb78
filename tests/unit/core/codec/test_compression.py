import gzip

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.core.codec.compression import Compression, compress, compression_of_attributes, decompress
from exactlog.core.model.errors import DecodeError

CODECS = list(Compression)
REAL_CODECS = [codec for codec in Compression if codec is not Compression.NONE]


@pytest.mark.parametrize("codec", CODECS)
@given(content=st.one_of(st.binary(max_size=200), st.binary(min_size=1, max_size=4).map(lambda unit: unit * 30_000)))
def test_what_was_compressed_comes_back(codec, content):
    assert decompress(codec, memoryview(compress(codec, memoryview(content)))) == content


@pytest.mark.parametrize("codec", CODECS)
def test_content_far_larger_than_its_compressed_form_comes_back(codec):
    content = bytes(5_000_000)

    assert decompress(codec, compress(codec, content)) == content


@pytest.mark.parametrize("codec", CODECS)
def test_the_same_content_gives_the_same_bytes(codec):
    assert compress(codec, b"content " * 100) == compress(codec, b"content " * 100)


def test_snappy_is_written_in_the_blocks_of_the_xerial_library():
    compressed = compress(Compression.SNAPPY, bytes(33 * 1024))

    assert compressed[:16].hex() == "82534e41505059000000000100000001"
    first_size = int.from_bytes(compressed[16:20])
    assert bytes(cramjam.snappy.decompress_raw(compressed[20 : 20 + first_size])) == bytes(32 * 1024)
    assert bytes(cramjam.snappy.decompress_raw(compressed[24 + first_size :])) == bytes(1024)


def test_snappy_without_blocks_is_read():
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(b"librdkafka" * 50))) == b"librdkafka" * 50


def test_a_xerial_stream_of_a_producer_that_writes_its_version_little_endian_is_read():
    compressed = bytearray(compress(Compression.SNAPPY, b"redpanda"))
    compressed[8:16] = bytes.fromhex("0100000001000000")

    assert decompress(Compression.SNAPPY, compressed) == b"redpanda"


def test_lz4_is_written_in_independent_blocks():
    flags = compress(Compression.LZ4, b"kafka cannot read linked blocks" * 10)[4]

    assert flags & 0b0010_0000


def test_gzip_of_several_members_is_read():
    assert decompress(Compression.GZIP, gzip.compress(b"one ") + gzip.compress(b"two")) == b"one two"


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_content_of_the_largest_size_allowed_is_decompressed(codec):
    content = bytes(100_000)

    assert decompress(codec, compress(codec, content), bytes_max=len(content)) == content


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_content_that_opens_to_more_than_allowed_is_refused(codec):
    with pytest.raises(DecodeError, match="more"):
        decompress(codec, compress(codec, bytes(100_000)), bytes_max=99_999)


def test_a_raw_snappy_block_that_claims_gigabytes_is_refused_before_any_are_taken():
    with pytest.raises(DecodeError, match="more bytes than allowed"):
        decompress(Compression.SNAPPY, bytes.fromhex("ffffffff0f00"))


@pytest.mark.parametrize("codec", REAL_CODECS)
@pytest.mark.parametrize("content", [b"", b"\x01", b"not compressed at all", bytes(100), b"\xff" * 100])
def test_what_no_codec_wrote_is_malformed(codec, content):
    with pytest.raises(DecodeError):
        decompress(codec, content)


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_what_is_cut_short_is_malformed(codec):
    compressed = compress(codec, bytes(range(256)) * 4)

    for size in range(len(compressed)):
        if codec is Compression.SNAPPY and size == 16:
            continue  # a stream of no blocks is whole
        with pytest.raises(DecodeError):
            decompress(codec, compressed[:size])


@pytest.mark.parametrize("size", [-1, -(2**31), 12, 2**31 - 1])
def test_a_snappy_block_that_lies_about_its_size_is_malformed(size):
    compressed = bytearray(compress(Compression.SNAPPY, b"content"))
    compressed[16:20] = size.to_bytes(4, signed=True)

    with pytest.raises(DecodeError, match="claims"):
        decompress(Compression.SNAPPY, compressed)


@pytest.mark.parametrize("codec", CODECS)
def test_the_codec_stands_in_the_low_bits_of_the_attributes(codec):
    assert compression_of_attributes(0b111_1000 | codec) is codec


@pytest.mark.parametrize("number", [5, 6, 7])
def test_a_number_without_a_codec_is_malformed(number):
    with pytest.raises(DecodeError, match=f"codec {number} is unknown"):
        compression_of_attributes(number)
