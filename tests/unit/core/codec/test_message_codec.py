"""Encoding and decoding, on messages made for the purpose: every type and every rule, byte by byte."""

from typing import Annotated
from uuid import UUID

import pytest

from exactlog.core.codec.encoder_source import RECORDS_COPIED_BYTES_MAX
from exactlog.core.codec.message_codec import decode, decoder, encode, encode_bytes, encoder
from exactlog.core.codec.message_schema import Message, Structure
from exactlog.core.codec.wire_types import (
    Bool,
    Bytes,
    Field,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
    String,
    Uint16,
    Uint32,
    Uuid,
)
from exactlog.core.model.errors import DecodeError, EncodeError, InvariantError

SOME_UUID = UUID("00112233-4455-6677-8899-aabbccddeeff")


class Scalars(Message):
    api_key = 99
    versions = "0-1"
    flexible = "1+"

    flag: Bool = False
    tiny: Int8 = 0
    short: Int16 = 0
    number: Int32 = 0
    long: Int64 = 0
    port: Uint16 = 0
    count: Uint32 = 0
    ratio: Float64 = 0.0
    id: Uuid = UUID(int=0)


def test_scalars_are_big_endian_in_every_version():
    message = Scalars(flag=True, tiny=-2, short=1, number=2, long=-1, port=65_535, count=2**31, ratio=1.0, id=SOME_UUID)
    expected = bytes.fromhex(
        "01 fe 0001 00000002 ffffffffffffffff ffff 80000000 3ff0000000000000 00112233445566778899aabbccddeeff"
    )

    assert encode_bytes(message, 0) == expected
    assert encode_bytes(message, 1) == expected + b"\x00"
    assert decode(Scalars, 0, expected) == message


def test_any_byte_but_zero_is_true():
    assert decode(Scalars, 0, b"\x02" + bytes(45)).flag is True


class Texts(Message):
    api_key = 99
    versions = "0-2"
    flexible = "2+"

    name: String = ""
    note: Annotated[String | None, Field(nullable="1+")] = ""
    key: Bytes = b""
    value: Bytes | None = None


def test_before_flexible_versions_lengths_are_fixed_and_null_is_minus_one():
    message = Texts(name="é", note=None, key=b"k", value=None)
    expected = b"\x00\x02\xc3\xa9" + b"\xff\xff" + b"\x00\x00\x00\x01k" + b"\xff\xff\xff\xff"

    assert encode_bytes(message, 1) == expected
    assert decode(Texts, 1, expected) == message


def test_in_flexible_versions_lengths_are_varints_of_one_more_and_null_is_zero():
    message = Texts(name="é", note=None, key=b"k" * 200, value=b"v")
    expected = b"\x03\xc3\xa9" + b"\x00" + b"\xc9\x01" + b"k" * 200 + b"\x02v" + b"\x00"

    assert encode_bytes(message, 2) == expected
    assert decode(Texts, 2, expected) == message


def test_null_where_the_version_does_not_allow_it_is_an_error_both_ways():
    with pytest.raises(EncodeError, match="Texts v0: note is null"):
        encode(Texts(note=None), 0)
    with pytest.raises(DecodeError, match="Texts v0: note is null"):
        decode(Texts, 0, b"\x00\x00\xff\xff\x00\x00\x00\x00\xff\xff\xff\xff")
    with pytest.raises(DecodeError, match="Texts v2: name is null"):
        decode(Texts, 2, bytes(20))


def test_a_negative_length_that_is_not_null_is_an_error():
    with pytest.raises(DecodeError, match="Texts v1: note has the size -2"):
        decode(Texts, 1, b"\x00\x00\xff\xfe" + bytes(20))


def test_a_length_beyond_the_end_is_an_error_that_says_how_far():
    with pytest.raises(DecodeError, match=r"Texts v1: name claims a size of 5, with 4 bytes left"):
        decode(Texts, 1, b"\x00\x05abcd")


def test_text_is_strict_utf8():
    with pytest.raises(DecodeError, match="Texts v1 holds text that is not UTF-8"):
        decode(Texts, 1, b"\x00\x01\xff\x00\x00" + bytes(8))
    with pytest.raises(EncodeError, match="not Unicode"):
        encode(Texts(name="\ud800"), 1)


@pytest.mark.parametrize("version", [1, 2])
def test_a_string_holds_32767_bytes_in_every_version(version):
    longest = Texts(name="x" * 32_767)
    too_long = Texts(name="x" * 32_768)

    assert decode(Texts, version, encode_bytes(longest, version)) == longest
    with pytest.raises(EncodeError):
        encode(too_long, version)


def test_a_compact_string_that_claims_more_is_an_error():
    with pytest.raises(DecodeError, match="Texts v2: name claims a size of 32768"):
        decode(Texts, 2, b"\x81\x80\x02" + b"x" * 32_768 + bytes(10))


class Item(Structure):
    name: String = ""
    amount: Annotated[Int32, Field("1+")] = -1


class Lists(Message):
    api_key = 99
    versions = "0-2"
    flexible = "2+"

    numbers: tuple[Int32, ...] = ()
    names: tuple[String, ...] | None = ()
    ids: tuple[Uuid, ...] = ()
    items: tuple[Item, ...] | None = ()


def test_arrays_before_flexible_versions():
    message = Lists(numbers=(1, 2), names=None, ids=(SOME_UUID,), items=(Item(name="a", amount=5),))
    expected = (
        b"\x00\x00\x00\x02\x00\x00\x00\x01\x00\x00\x00\x02"
        b"\xff\xff\xff\xff"
        b"\x00\x00\x00\x01" + SOME_UUID.bytes + b"\x00\x00\x00\x01\x00\x01a\x00\x00\x00\x05"
    )

    assert encode_bytes(message, 1) == expected
    assert decode(Lists, 1, expected) == message


def test_arrays_in_flexible_versions():
    message = Lists(numbers=tuple(range(130)), names=("x",), items=None)
    numbers = b"".join(number.to_bytes(4, "big") for number in range(130))
    expected = b"\x83\x01" + numbers + b"\x02\x02x" + b"\x01" + b"\x00" + b"\x00"

    assert encode_bytes(message, 2) == expected
    assert decode(Lists, 2, expected) == message


def test_null_in_place_of_an_array_that_may_not_be_null_is_an_error():
    with pytest.raises(DecodeError, match="Lists v2: numbers is null"):
        decode(Lists, 2, bytes(10))
    with pytest.raises(DecodeError, match="Lists v1: numbers is null"):
        decode(Lists, 1, b"\xff" * 10)


def test_a_count_is_checked_against_the_bytes_its_elements_need():
    with pytest.raises(DecodeError, match="Lists v1: numbers claims a size of 3, with 11 bytes left"):
        decode(Lists, 1, b"\x00\x00\x00\x03" + bytes(11))


class Optional(Message):
    api_key = 99
    versions = "0-1"
    flexible = "1+"

    item: Item | None = None


def test_a_structure_that_may_be_null_has_a_byte_before_it():
    assert encode_bytes(Optional(), 1) == b"\xff\x00"
    assert encode_bytes(Optional(item=Item(name="a", amount=1)), 1) == b"\x01\x02a\x00\x00\x00\x01\x00\x00"
    assert decode(Optional, 1, b"\xff\x00") == Optional()
    assert decode(Optional, 1, b"\x01\x02a\x00\x00\x00\x01\x00\x00") == Optional(item=Item(name="a", amount=1))


def test_any_other_byte_before_it_is_an_error():
    with pytest.raises(DecodeError, match="Optional v1: item is neither there nor null, but 2"):
        decode(Optional, 1, b"\x02\x02a\x00\x00\x00\x01\x00\x00")


class Tagged(Message):
    api_key = 99
    versions = "0-3"
    flexible = "1+"

    kept: Int8 = 0
    second: Annotated[Int16, Field("1+", tag=1, ignorable=True)] = -1
    first: Annotated[String | None, Field("1+", tag=0)] = None
    far: Annotated[tuple[Item, ...], Field("1+", tag=200)] = ()
    plain_then_tagged: Annotated[Int8, Field("1+", tag=2, tagged="2+")] = 0
    place: Annotated[Item, Field("3+", tag=3)] = Item()


def test_tagged_fields_are_sent_only_where_they_differ_from_the_default():
    assert encode_bytes(Tagged(kept=5), 2) == b"\x05\x00"
    assert decode(Tagged, 2, b"\x05\x00") == Tagged(kept=5)


def test_tagged_fields_are_sent_in_the_order_of_their_tags():
    message = Tagged(second=7, first="x", far=(Item(name="y", amount=0),), plain_then_tagged=1)
    expected = (
        b"\x00\x04"  # kept, four tagged fields
        b"\x00\x02\x02x"  # tag 0
        b"\x01\x02\x00\x07"  # tag 1
        b"\x02\x01\x01"  # tag 2
        b"\xc8\x01\x08\x02\x02y\x00\x00\x00\x00\x00"  # tag 200
    )

    assert encode_bytes(message, 2) == expected
    assert decode(Tagged, 2, expected) == message


def test_a_field_may_be_plain_first_and_tagged_later():
    message = Tagged(plain_then_tagged=9)

    assert encode_bytes(message, 1) == b"\x00\x09\x00"
    assert encode_bytes(message, 2) == b"\x00\x01\x02\x01\x09"
    assert decode(Tagged, 1, b"\x00\x09\x00") == decode(Tagged, 2, b"\x00\x01\x02\x01\x09") == message


def test_a_tagged_structure_has_tagged_fields_of_its_own():
    message = Tagged(place=Item(name="a", amount=2))

    assert encode_bytes(message, 3) == b"\x00\x01\x03\x07\x02a\x00\x00\x00\x02\x00"
    assert decode(Tagged, 3, encode_bytes(message, 3)) == message


def test_unknown_tagged_fields_are_skipped_between_known_ones():
    encoded = b"\x00\x03" + b"\x01\x02\x00\x07" + b"\x09\x03abc" + b"\xff\xff\x03\x00"

    assert decoder(Tagged, 2)(encoded, 0) == (Tagged(second=7), len(encoded))
    assert decode(Optional, 1, b"\xff\x01\x09\x03abc") == Optional()


def test_a_known_tagged_field_must_fill_its_size():
    with pytest.raises(DecodeError, match="Tagged v2: second does not fill the 3 bytes"):
        decode(Tagged, 2, b"\x00\x01\x01\x03\x00\x07\x00")


def test_a_tagged_field_that_is_cut_short_is_an_error():
    with pytest.raises(DecodeError, match=r"Tagged v2: \(tagged field\) claims a size of 100"):
        decode(Tagged, 2, b"\x00\x01\x01\x64\x00\x07")
    with pytest.raises(DecodeError, match="Optional v1 is cut short"):
        decode(Optional, 1, b"\xff\x01\x01\x64\x00\x07")


def test_a_varint_of_more_than_32_bits_is_an_error():
    with pytest.raises(DecodeError, match="Lists v2 has a varint longer than 32 bits"):
        decode(Lists, 2, b"\xff" * 10)


class Changing(Message):
    api_key = 99
    versions = "0-3"
    flexible = "none"

    old: Annotated[Int32, Field("0-1")] = -1
    new: Annotated[Int32, Field("2+", ignorable=True)] = -1
    strict: Annotated[String | None, Field("2+")] = None
    flag: Annotated[Bool, Field("3+")] = False
    item: Annotated[Item, Field("3+")] = Item()


def test_a_version_has_only_its_own_fields():
    assert encode_bytes(Changing(old=1), 1) == b"\x00\x00\x00\x01"
    assert encode_bytes(Changing(new=2), 2) == b"\x00\x00\x00\x02\xff\xff"
    assert decode(Changing, 1, b"\x00\x00\x00\x01") == Changing(old=1)


def test_an_ignorable_field_is_dropped_where_the_version_lacks_it():
    assert encode_bytes(Changing(new=5), 1) == b"\xff\xff\xff\xff"


@pytest.mark.parametrize(
    ("message", "version", "field"),
    [
        (Changing(old=5), 2, "old"),
        (Changing(strict=""), 1, "strict"),
        (Changing(flag=True), 2, "flag"),
        (Changing(item=Item(name="x")), 2, "item"),
    ],
)
def test_any_other_field_cannot_be_dropped(message, version, field):
    with pytest.raises(
        EncodeError, match=f"Changing v{version}: {field} has a value, but that version lacks the field"
    ):
        encode(message, version)


def test_that_holds_inside_structures_too():
    with pytest.raises(EncodeError, match=r"Lists v0: items\.amount has a value"):
        encode(Lists(items=(Item(amount=3),)), 0)


def test_a_number_out_of_range_is_an_error():
    with pytest.raises(EncodeError, match="Scalars v0 has a number that is out of range"):
        encode(Scalars(short=32_768), 0)


def test_there_are_no_other_versions():
    with pytest.raises(EncodeError, match="Scalars has no version 2, but 0-1"):
        encode(Scalars(), 2)
    with pytest.raises(DecodeError, match="Scalars has no version -1, but 0-1"):
        decode(Scalars, -1, b"")


class Part(Structure):
    index: Int32 = 0
    records: Records | None = b""


class Parts(Message):
    api_key = 99
    versions = "0-1"
    flexible = "1+"

    parts: tuple[Part, ...] = ()
    end: Int8 = 0


LARGE = b"x" * (RECORDS_COPIED_BYTES_MAX + 1)


def test_large_records_are_passed_on_without_a_copy():
    first, second = memoryview(LARGE), bytearray(LARGE)
    message = Parts(parts=(Part(records=first), Part(records=second)), end=7)

    parts = encode(message, 1)

    assert [part for part in parts if part is first or part is second] == [first, second]
    assert [len(part) for part in parts] == [7, len(LARGE), 7, len(LARGE), 3]
    assert decode(Parts, 1, b"".join(parts)) == message


def test_small_records_are_joined_with_what_is_around_them():
    message = Parts(parts=(Part(records=b"abc"), Part(records=None), Part(records=memoryview(b""))), end=7)

    assert len(encode(message, 0)) == 1
    assert decode(Parts, 0, encode_bytes(message, 0)) == message


def test_a_message_that_ends_with_large_records_has_no_empty_part_behind_them():
    class Last(Message):
        api_key = 99
        versions = "0"
        flexible = "none"

        records: Records = b""

    assert encode(Last(records=LARGE), 0) == [len(LARGE).to_bytes(4, "big"), LARGE]


@pytest.mark.parametrize("buffer_type", [bytes, bytearray, memoryview])
def test_decoded_records_are_a_window_on_the_buffer(buffer_type):
    buffer = buffer_type(encode_bytes(Parts(parts=(Part(records=b"abc"),)), 0))

    records = decode(Parts, 0, buffer).parts[0].records

    assert isinstance(records, memoryview)
    assert records.obj is (buffer.obj if buffer_type is memoryview else buffer)


@pytest.mark.parametrize("buffer_type", [bytes, bytearray, memoryview])
def test_other_bytes_are_copies(buffer_type):
    buffer = buffer_type(encode_bytes(Texts(key=b"k", value=b"v"), 2))

    message = decode(Texts, 2, buffer)

    assert (type(message.key), type(message.value)) == (bytes, bytes)


def test_records_in_a_tagged_field_are_not_supported():
    class Strange(Message):
        api_key = 99
        versions = "0"
        flexible = "0+"

        records: Annotated[Records, Field(tag=0)] = b""

    with pytest.raises(InvariantError, match="records inside a tagged field"):
        encoder(Strange, 0)


def test_tagged_fields_need_a_flexible_version():
    class Early(Message):
        api_key = 99
        versions = "0"
        flexible = "none"

        hint: Annotated[Int8, Field(tag=0)] = 0

    for compile_function in (decoder, encoder):
        with pytest.raises(InvariantError, match="Early v0: hint is tagged in a version that is not flexible"):
            compile_function(Early, 0)


def test_a_message_is_read_at_its_offset_and_what_is_behind_it_is_left():
    encoded = encode_bytes(Texts(name="abc"), 2)

    assert decoder(Texts, 2)(b"before" + encoded + b"behind", 6) == (Texts(name="abc"), 6 + len(encoded))


def test_an_offset_beyond_the_end_is_an_error():
    with pytest.raises(DecodeError, match="cut short"):
        decode(Texts, 2, b"abc", 10)


def test_functions_are_compiled_once():
    assert decoder(Texts, 1) is decoder(Texts, 1)
    assert encoder(Texts, 1) is encoder(Texts, 1)
    assert decoder(Texts, 1) is not decoder(Texts, 2)


def test_fields_may_be_named_like_the_decoders_own_variables():
    class Awkward(Message):
        api_key = 99
        versions = "1"
        flexible = "0+"

        buffer: Int8 = 0
        offset: String = ""
        size: String | None = None
        end: tuple[Int8, ...] = ()
        len: tuple[String, ...] = ()
        message: String = ""
        parts: Annotated[String, Field(tag=0)] = ""
        tag: Annotated[Item, Field(tag=1)] = Item()

    message = Awkward(
        buffer=1, offset="o", size="s", end=(1, 2), len=("l",), message="m", parts="p", tag=Item(name="t", amount=1)
    )

    assert decode(Awkward, 1, encode_bytes(message, 1)) == message


def test_a_message_without_fields_is_empty_or_one_byte():
    class Empty(Message):
        api_key = 99
        versions = "0-1"
        flexible = "1+"

    assert [encode_bytes(Empty(), version) for version in (0, 1)] == [b"", b"\x00"]
    assert [decode(Empty, version, b"\x00") for version in (0, 1)] == [Empty(), Empty()]


class Shelf(Structure):
    item: Annotated[Item | None, Field("1+")] = None
    shade: Annotated[Item, Field("1+", tag=0)] = Item(name="grey")


class Room(Message):
    api_key = 99
    versions = "0-2"
    flexible = "2+"

    shelves: tuple[Shelf, ...] = ()
    shade: Annotated[Item, Field("2+", tag=0)] = Item(name="white")
    ratio: Annotated[Float64, Field("2+", tag=1)] = 0.5


def test_fields_of_one_name_keep_their_own_defaults():
    message = Room(shelves=(Shelf(), Shelf(item=Item(name="vase", amount=1))))

    assert encode_bytes(message, 2) == b"\x03" + b"\xff\x00" + b"\x01\x05vase\x00\x00\x00\x01\x00\x00" + b"\x00"
    assert decode(Room, 2, encode_bytes(message, 2)) == message


def test_an_element_counts_for_a_byte_at_least_even_without_fields():
    message = Room(shelves=(Shelf(), Shelf()))

    assert encode_bytes(message, 0) == b"\x00\x00\x00\x02"
    with pytest.raises(DecodeError, match="Room v0: shelves claims a size of 2, with 1 bytes left"):
        decode(Room, 0, b"\x00\x00\x00\x02\x00")
