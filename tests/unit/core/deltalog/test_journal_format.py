"""Files of the commit journal: rounds come back as they were written, whole or not at all."""

import re
from dataclasses import dataclass

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from exactlog.core.deltalog.journal_format import (
    ALIGNMENT,
    HEADER_BYTES,
    FileHeader,
    JournaledBytes,
    JournaledCommit,
    JournaledPartition,
    JournaledRound,
    decode_file_header,
    encode_file_header,
    encode_round,
    parse_journal_name,
    print_journal_name,
)
from exactlog.core.model.errors import DamageError, DecodeError
from tests.support.journal_rounds import find_rounds
from tests.unit.core.deltalog.histories import page_blocks

HEADER = FileHeader(number=7, first_sequence=42, salt=0x5CA1AB1E)
TOPIC_ID = "0b2f6c1e-6a3f-4f0e-9f57-3c1d2e4a5b60"
INT64 = st.integers(0, 2**63 - 1)


@dataclass
class Round:
    """A round and its content, part by part."""

    journaled: JournaledRound
    content: list[bytes]


def round_of(*sizes: int, commits: int = 1, fill: bytes = b"x") -> Round:
    """A round of one partition with runs of so many bytes, and so many delta commits."""
    runs = tuple(JournaledBytes("0.log", position, size, False) for position, size in enumerate(sizes))
    documents = [b'{"version":%d}\n' % version for version in range(commits)]
    listed = tuple(JournaledCommit(version, len(document)) for version, document in enumerate(documents))
    partition = JournaledPartition("topic=orders-part=0", TOPIC_ID, runs, listed)
    return Round(JournaledRound((partition,)), [*(fill * size for size in sizes), *documents])


def file_of(*rounds: Round, header: FileHeader = HEADER) -> bytes:
    parts = [encode_file_header(header)]
    for place, each in enumerate(rounds):
        parts += encode_round(header.first_sequence + place, each.journaled, each.content, salt=header.salt)
    return b"".join(parts)


def found_in(content: bytes, header: FileHeader = HEADER) -> list[tuple[int, JournaledRound, bytes]]:
    return [(found.sequence, found.round, bytes(found.content)) for found in find_rounds(content, header)]


def expected_of(*rounds: Round, first: int = HEADER.first_sequence) -> list[tuple[int, JournaledRound, bytes]]:
    return [(first + place, each.journaled, b"".join(each.content)) for place, each in enumerate(rounds)]


texts = st.text(max_size=40)
runs = st.builds(
    JournaledBytes,
    segment=texts,
    position=INT64,
    size=INT64,
    is_new=st.booleans(),
    crc=st.none() | st.integers(0, 2**32 - 1),
)
partitions = st.builds(
    JournaledPartition,
    directory=texts,
    topic_id=texts,
    bytes=st.lists(runs, max_size=3).map(tuple),
    commits=st.lists(st.builds(JournaledCommit, version=INT64, size=INT64), max_size=3).map(tuple),
)
rounds = st.builds(
    Round,
    journaled=st.builds(JournaledRound, partitions=st.lists(partitions, max_size=3).map(tuple)),
    content=st.lists(st.binary(max_size=100), max_size=4),
)
headers = st.builds(
    FileHeader, number=st.integers(1, 2**63 - 1), first_sequence=st.integers(0, 2**62), salt=st.integers(0, 2**32 - 1)
)


# --- a whole file ------------------------------------------------------------------------------------------------


@given(headers, st.lists(rounds, max_size=5))
def test_rounds_come_back_as_they_were_written(header: FileHeader, written: list[Round]) -> None:
    content = file_of(*written, header=header)

    assert decode_file_header(content, number=header.number) == header
    assert found_in(content, header) == expected_of(*written, first=header.first_sequence)


@given(st.lists(rounds, max_size=5))
def test_every_record_begins_at_a_multiple_of_the_alignment(written: list[Round]) -> None:
    content = file_of(*written)
    found = list(find_rounds(content, HEADER))

    assert len(content) % ALIGNMENT == 0
    assert [each.position for each in found] == [HEADER_BYTES, *(each.end for each in found)][: len(found)]
    assert all(each.position % ALIGNMENT == 0 for each in found)
    assert not found or found[-1].end == len(content)


def test_the_example_of_the_page_is_what_is_written() -> None:
    header, record = (bytes.fromhex(re.sub(r"\s", "", block)) for block in page_blocks("journal_format.md", "text"))
    runs = (JournaledBytes("00000000000000000000.log", 0, 5, True),)
    partition = JournaledPartition("topic=orders-part=0", TOPIC_ID, runs, (JournaledCommit(1, 3),))
    example = Round(JournaledRound((partition,)), [b"bytes", b"{}\n"])

    assert encode_file_header(HEADER) == header
    assert file_of(example) == header + record
    assert found_in(header + record) == expected_of(example)


def test_each_partition_of_a_round_has_its_part_of_the_content() -> None:
    here = round_of(3, 0, commits=2)
    (partition,) = round_of(2, fill=b"y").journaled.partitions
    in_place = JournaledBytes("1.log", 0, 99, True, crc=7)
    there = JournaledPartition("topic=orders-part=1", TOPIC_ID, (in_place, *partition.bytes), ())
    written = Round(JournaledRound((*here.journaled.partitions, there)), [*here.content, b"yy"])
    (found,) = find_rounds(file_of(written), HEADER)

    parts = [(partition, bytes(part)) for partition, part in found.parts()]

    assert parts == [(here.journaled.partitions[0], b"".join(here.content)), (there, b"yy")]


# --- a file that ends too early ----------------------------------------------------------------------------------


def test_a_file_that_is_torn_at_any_byte_has_the_rounds_before_it() -> None:
    written = [round_of(30), round_of(0, commits=0), round_of(5, 90, commits=2), round_of(3)]
    content = file_of(*written)
    ends = [each.position + 16 + _size_at(content, each.position) for each in find_rounds(content, HEADER)]

    for size in range(HEADER_BYTES, len(content) + 1):
        whole = sum(end <= size for end in ends)
        assert found_in(content[:size]) == expected_of(*written[:whole])
        assert found_in(content[:size] + bytes(100)) == expected_of(*written[:whole]), "zeros in place of the rest"


def _size_at(content: bytes, position: int) -> int:
    return int.from_bytes(content[position : position + 4], "big")


@given(st.lists(rounds, min_size=1, max_size=3), st.data())
def test_a_last_record_of_which_any_part_is_lost_is_left_out(written: list[Round], data: st.DataObject) -> None:
    """A disk writes sectors in any order; those that were not written are zeros."""
    content, before = bytearray(file_of(*written)), len(file_of(*written[:-1]))
    whole = before + 16 + _size_at(content, before)
    start = data.draw(st.integers(before, whole - 1))
    end = data.draw(st.integers(start + 1, whole))
    lost = bytes(content[start:end])
    content[start:end] = bytes(end - start)

    expected = written if not any(lost) else written[:-1]
    assert found_in(bytes(content)) == expected_of(*expected)


# --- damage ------------------------------------------------------------------------------------------------------


def test_any_flipped_bit_in_the_last_record_drops_it() -> None:
    """Nothing tells it from one that was torn."""
    written = [round_of(30), round_of(7)]
    content = file_of(*written)
    start = len(file_of(written[0]))
    end = start + 16 + _size_at(content, start)
    for bit in range(start * 8, end * 8):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        assert found_in(bytes(damaged)) == expected_of(written[0])


def test_any_flipped_bit_in_a_record_with_whole_ones_behind_is_damage() -> None:
    written = [round_of(30), round_of(7), round_of(50), round_of(1)]
    content = file_of(*written)
    second, third = (len(file_of(*written[:count])) for count in (1, 2))
    end = second + 16 + _size_at(content, second)
    for bit in range(second * 8, end * 8):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamageError, match=rf"record 43 at byte {second} is damaged, and record 44 at byte {third}"):
            found_in(bytes(damaged))


def test_damage_is_found_however_many_records_it_has_taken() -> None:
    written = [round_of(30) for _ in range(20)]
    content = bytearray(file_of(*written))
    start, end = len(file_of(*written[:2])), len(file_of(*written[:19]))
    content[start:end] = bytes(end - start)

    with pytest.raises(DamageError, match=r"record 44 .* is damaged, and record 61 .* is whole") as caught:
        found_in(bytes(content))
    assert caught.value.hint


def test_a_flipped_bit_in_the_padding_is_no_damage() -> None:
    written = [round_of(30), round_of(7)]
    content = bytearray(file_of(*written))
    content[len(file_of(written[0])) - 1] ^= 1

    assert found_in(bytes(content)) == expected_of(*written)


def test_a_record_with_its_checksum_and_no_head_is_damage() -> None:
    payload = b"\0\0\0\x01\xc1"
    crc = crc32c(payload, crc32c(HEADER.salt.to_bytes(4, "big") + HEADER.first_sequence.to_bytes(8, "big")))
    record = len(payload).to_bytes(4, "big") + crc.to_bytes(4, "big") + HEADER.first_sequence.to_bytes(8, "big")

    with pytest.raises(DamageError, match="record 42 at byte 32 has its checksum and no head"):
        found_in(encode_file_header(HEADER) + record + payload)


def test_a_record_of_another_file_is_none() -> None:
    """The same number and the same sequence, and another salt."""
    other = FileHeader(HEADER.number, HEADER.first_sequence, salt=HEADER.salt ^ 1)
    content = encode_file_header(HEADER) + file_of(round_of(30), header=other)[HEADER_BYTES:]

    assert found_in(content) == []


def test_what_looks_like_a_record_among_the_bytes_of_a_client_is_none_when_theirs_is_torn() -> None:
    """A client can send whole records, with the sequence that comes next, at every place; it does not know the salt."""

    def torn(*, salt: int) -> bytes:
        next_one = FileHeader(HEADER.number, HEADER.first_sequence + 1, salt)
        forged = file_of(round_of(3), header=next_one)[HEADER_BYTES:]
        content = bytearray(file_of(Round(round_of(commits=0).journaled, [(forged + b"\0") * ALIGNMENT])))
        content[HEADER_BYTES + 8] ^= 1
        return bytes(content)

    for guess in range(100):
        assert found_in(torn(salt=guess)) == []
    with pytest.raises(DamageError):
        found_in(torn(salt=HEADER.salt))


# --- headers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", range(HEADER_BYTES))
def test_a_header_that_is_cut_short_is_none(size: int) -> None:
    with pytest.raises(DecodeError, match=f"32 bytes, {size} are there"):
        decode_file_header(encode_file_header(HEADER)[:size], number=7)


def test_any_flipped_bit_in_a_header_is_found() -> None:
    header = encode_file_header(HEADER)
    for bit in range(HEADER_BYTES * 8):
        damaged = bytearray(header)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DecodeError, match="does not begin with the header of a journal"):
            decode_file_header(bytes(damaged), number=7)


def test_the_header_of_another_file_is_refused() -> None:
    with pytest.raises(DecodeError, match="it says that it is file 7"):
        decode_file_header(encode_file_header(HEADER), number=8)


def test_a_later_format_version_is_refused_by_its_number() -> None:
    header = bytearray(encode_file_header(HEADER)[:28])
    header[5] = 2

    with pytest.raises(DecodeError, match="format version 2; only 1 is known"):
        decode_file_header(bytes(header) + crc32c(header).to_bytes(4, "big"), number=7)


# --- names -------------------------------------------------------------------------------------------------------


@given(st.integers(1, 2**63 - 1))
def test_names_are_parsed_as_they_are_printed(number: int) -> None:
    name = print_journal_name(number)

    assert parse_journal_name(name) == number
    assert len(name) == 28


@given(st.lists(st.integers(1, 2**63 - 1)))
def test_names_sort_as_their_numbers(numbers: list[int]) -> None:
    assert sorted(map(print_journal_name, numbers)) == [print_journal_name(number) for number in sorted(numbers)]


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".journal",
        "1.journal",
        f"{1:020d}",
        f"{1:020d}.log",
        f"{1:019d}.journal",
        f"{1:021d}.journal",
        f"{0:020d}.journal",
        f"{-1:020d}.journal",
        f"{2**63:020d}.journal",
        f".{1:020d}.journal.tmp",
        f"{1:020d}.journal.tmp",
        f"{1:020d}.journal.journal",
        "0000000000000000000\N{SUPERSCRIPT ONE}.journal",
        "0000000000000000000\N{ARABIC-INDIC DIGIT ONE}.journal",
        f"+{1:019d}.journal",
        f"{1:010d}_{1:09d}.journal",
    ],
)
def test_a_foreign_name_is_none_of_a_journal(name: str) -> None:
    assert parse_journal_name(name) is None
