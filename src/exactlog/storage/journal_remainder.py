"""What has to stay of files of the commit journal that go: the rounds of partitions that stand still.

A partition that has stopped, or could not be opened, gets no delta versions; until a start can give it some, the
journal alone says what of it is committed. All that a file holds of such partitions is written into the present one
once more, as it is, and the file goes: so one partition never keeps the journal of all the others.
"""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from exactlog.core.deltalog.journal_format import (
    HEADER_BYTES,
    JOURNAL_DIRECTORY,
    JournaledPartition,
    JournaledRound,
    decode_file_header,
    print_journal_name,
)
from exactlog.storage.filesystem import Buffer, Filesystem
from exactlog.storage.journal_reading import read_rounds

REMAINDER_RECORD_BYTES = 1024 * 1024
"""About so much goes into one record: each is synced, and delays the rounds behind it."""


class Remainder(Struct, frozen=True):
    """A round to be written once more.

    Attributes:
        round: what it says.
        content: its bytes and documents.
        last_sequence: of the last round of the file that was looked at for it.
    """

    round: JournaledRound
    content: list[Buffer]
    last_sequence: int


def read_remainder(filesystem: Filesystem, root: str, number: int, kept: Mapping[str, int]) -> Iterator[Remainder]:
    """What a file that has ended holds of partitions; in order, in a few rounds.

    Args:
        kept: the partitions, by the names of their directories, and up to which sequence they need nothing more.

    Raises:
        OSError, DecodeError, DamageError: the file cannot be read any more.
    """
    file = filesystem.open(f"{root}/{JOURNAL_DIRECTORY}/{print_journal_name(number)}", read_only=True)
    header = decode_file_header(file.read_at(HEADER_BYTES, 0), number=number)
    partitions: list[JournaledPartition] = []
    content: list[Buffer] = []
    size = sequence = 0
    for found in read_rounds(file, file.size(), header):
        sequence = found.sequence
        for partition, part in found.parts():
            if sequence > kept.get(partition.directory, sequence):
                partitions.append(partition)
                content.append(bytes(part))
                size += len(part)
        if size >= REMAINDER_RECORD_BYTES:
            yield Remainder(JournaledRound(tuple(partitions)), content, sequence)
            partitions, content, size = [], [], 0
    if partitions:
        yield Remainder(JournaledRound(tuple(partitions)), content, sequence)
