"""A file of the commit journal: what rounds have made durable and other files do not hold durably yet.

    file header, 32 bytes, big-endian
    0   4  magic "exlj"
    4   2  format version: 1
    6   2  0
    8   8  number of the file, as in its name
    16  8  sequence of the first record
    24  4  salt: any number that is not known outside
    28  4  CRC-32C of the 28 bytes before

    then records, each from a multiple of 32 bytes on
    0   4  size of the payload
    4   4  CRC-32C of the 4 bytes of the salt, the 8 bytes of the sequence and the payload
    8   8  sequence: one more than that of the record before, also from file to file
    16  4  size of the head
    20     head: a MessagePack array, as `JournaledRound` says
           content: the bytes and documents that the head lists, in its order
           zeros up to the next multiple of 32

One record is one round, whole or absent: of all partitions that it touches. A file ends with its last whole record;
what stands behind it was torn by a crash. The salt keeps bytes that a client sent from passing for a record of a file
in which they stand. Layout: docs/formats/journal_format.md.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import crc32c
import msgspec

from exactlog.core.codec.wire_types import Buffer
from exactlog.core.model.errors import DamageError, DecodeError

JOURNAL_DIRECTORY: Final = "journal"
HEADER_BYTES: Final = 32
ALIGNMENT: Final = 32

_MAGIC: Final = b"exlj"
_FORMAT_VERSION: Final = 1
_HEADER: Final = struct.Struct(">4sHHqqI")
_SEED: Final = struct.Struct(">Iq")
_CRC: Final = struct.Struct(">I")
_RECORD: Final = struct.Struct(">IIq")
_HEAD_SIZE: Final = struct.Struct(">I")
_SUFFIX: Final = ".journal"
_NUMBER_DIGITS: Final = 20
_NUMBER_MAX: Final = 2**63 - 1


ReadBytes = Callable[[int, int], memoryview]
"""So many bytes from a position on."""


class FileHeader(msgspec.Struct, frozen=True):
    """What the first bytes of a file say.

    Attributes:
        number: of the file, as in its name.
        first_sequence: the sequence of its first record.
        salt: 32 bits that go into the checksum of each of its records.
    """

    number: int
    first_sequence: int
    salt: int


class JournaledBytes(msgspec.Struct, frozen=True, array_like=True):
    """Bytes for one segment.

    Attributes:
        segment: the name of its file.
        position: where they go in it.
        size: how many there are.
        is_new: whether the segment begins with them.
        crc: their CRC-32C where they stand in the segment, durably, and not in the journal; None: they are in the
            content.
    """

    segment: str
    position: int
    size: int
    is_new: bool
    crc: int | None = None

    @property
    def stored_size(self) -> int:
        """How many of them are in the content."""
        return self.size if self.crc is None else 0


class JournaledCommit(msgspec.Struct, frozen=True, array_like=True):
    """A delta commit, whose document is in the content."""

    version: int
    size: int


class JournaledPartition(msgspec.Struct, frozen=True, array_like=True):
    """What a round brought to one partition; in the content stand first all bytes, then all documents.

    Attributes:
        directory: the name of its directory.
        topic_id: of the topic that it belongs to: a later topic of the same name is another one.
    """

    directory: str
    topic_id: str
    bytes: tuple[JournaledBytes, ...]
    commits: tuple[JournaledCommit, ...]


class JournaledRound(msgspec.Struct, frozen=True, array_like=True):
    """What one round made durable."""

    partitions: tuple[JournaledPartition, ...]


class FoundRound(msgspec.Struct, frozen=True):
    """A round in a file: its sequence, where its record begins and ends, what it says, and its content."""

    sequence: int
    position: int
    end: int
    round: JournaledRound
    content: memoryview

    def parts(self) -> Iterator[tuple[JournaledPartition, memoryview]]:
        """What it brought to each partition, with its part of the content."""
        start = 0
        for partition in self.round.partitions:
            size = sum(piece.stored_size for piece in partition.bytes) + sum(each.size for each in partition.commits)
            yield partition, self.content[start : start + size]
            start += size


_encode_head = msgspec.msgpack.Encoder().encode
_decode_head = msgspec.msgpack.Decoder(JournaledRound).decode


def print_journal_name(number: int) -> str:
    """The name of a file of the journal."""
    return f"{number:0{_NUMBER_DIGITS}d}{_SUFFIX}"


def parse_journal_name(name: str) -> int | None:
    """The number of a file of the journal; None for a foreign name."""
    digits = name.removesuffix(_SUFFIX)
    if not (len(digits) == _NUMBER_DIGITS and digits.isascii() and digits.isdecimal()):
        return None
    number = int(digits)
    return number if 0 < number <= _NUMBER_MAX and print_journal_name(number) == name else None


def encode_file_header(header: FileHeader) -> bytes:
    """The first bytes of a file."""
    encoded = _HEADER.pack(_MAGIC, _FORMAT_VERSION, 0, header.number, header.first_sequence, header.salt)
    return encoded + _CRC.pack(crc32c.crc32c(encoded))


def decode_file_header(content: Buffer, *, number: int) -> FileHeader:
    """What the first bytes of a file say.

    Raises:
        DecodeError: these are not the first bytes of the file with that number.
    """
    if len(content) < HEADER_BYTES:
        raise DecodeError(f"the header takes {HEADER_BYTES} bytes, {len(content)} are there")
    magic, version, _, found, first_sequence, salt = _HEADER.unpack_from(content)
    if magic != _MAGIC or _CRC.unpack_from(content, _HEADER.size)[0] != crc32c.crc32c(content[: _HEADER.size]):
        raise DecodeError("it does not begin with the header of a journal")
    if version != _FORMAT_VERSION:
        raise DecodeError(f"it has format version {version}; only {_FORMAT_VERSION} is known")
    if found != number:
        raise DecodeError(f"it says that it is file {found}")
    return FileHeader(found, first_sequence, salt)


def encode_round(sequence: int, journaled: JournaledRound, content: Sequence[Buffer], *, salt: int) -> list[Buffer]:
    """The bytes of a record, in parts; together a multiple of the alignment.

    Args:
        content: the bytes and documents that the round lists, in its order.
        salt: of the file.
    """
    head = _encode_head(journaled)
    head = _HEAD_SIZE.pack(len(head)) + head
    size = len(head) + sum(map(len, content))
    crc = crc32c.crc32c(head, _seed(salt, sequence))
    for part in content:
        crc = crc32c.crc32c(part, crc)
    padding = -(_RECORD.size + size) % ALIGNMENT
    return [_RECORD.pack(size, crc, sequence) + head, *content, bytes(padding)]


def scan_rounds(read: ReadBytes, size_bytes: int, header: FileHeader) -> Iterator[FoundRound]:
    """The rounds of a file, in order, up to the last one that is whole. No more than one is looked at at a time.

    Args:
        read: so many bytes of the file, from a position on; they do not change later.
        size_bytes: of the file.
        header: what the first bytes of it say.

    Raises:
        DamageError: a record is damaged, and later ones are whole: no crash does that.
    """
    position, sequence = HEADER_BYTES, header.first_sequence
    while (found := _find_round(read, size_bytes, position, sequence, header.salt)) is not None:
        yield found
        position, sequence = found.end, sequence + 1
    for behind in range(position + ALIGNMENT, size_bytes - _RECORD.size + 1, ALIGNMENT):
        later: int = _RECORD.unpack(read(_RECORD.size, behind))[2]
        # A record takes the alignment at least: so many fit in between.
        is_possible = sequence < later <= sequence + (behind - position) // ALIGNMENT
        if is_possible and _find_round(read, size_bytes, behind, later, header.salt) is not None:
            raise DamageError(
                f"record {sequence} at byte {position} is damaged, and record {later} at byte {behind} is whole",
                hint="restore the file from a copy: rounds that were acknowledged are missing",
            )


def _seed(salt: int, sequence: int) -> int:
    """Where the checksum of a record begins."""
    return crc32c.crc32c(_SEED.pack(salt, sequence))


def _find_round(read: ReadBytes, size_bytes: int, position: int, sequence: int, salt: int) -> FoundRound | None:
    """The round at a position; None where there is none, or not a whole one."""
    if position + _RECORD.size + _HEAD_SIZE.size > size_bytes:
        return None
    size, crc, found = _RECORD.unpack(read(_RECORD.size, position))
    start = position + _RECORD.size
    if found != sequence or size < _HEAD_SIZE.size or start + size > size_bytes:
        return None
    payload = read(size, start)
    if crc32c.crc32c(payload, _seed(salt, sequence)) != crc:
        return None
    head_end = _HEAD_SIZE.size + _HEAD_SIZE.unpack_from(payload)[0]
    try:
        journaled = _decode_head(payload[_HEAD_SIZE.size : head_end])
    except msgspec.MsgspecError as error:
        raise DamageError(f"the record {sequence} at byte {position} has its checksum and no head: {error}") from error
    end = start + size
    return FoundRound(sequence, position, end + -end % ALIGNMENT, journaled, payload[head_end:])
