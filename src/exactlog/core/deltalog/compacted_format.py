r"""Old delta commits in one file, a pack: `_delta_log/{first:020d}.{last:020d}.compacted.json`.

    {"version":0,…,"crc":"ffee3884"}\n      line 1: the delta commit of version `first`
    {"version":1,…,"crc":"57271c06"}\n      line 2: of the version after it
    …                                       the last line: of version `last`

Each line is a whole delta commit in its canonical form: what its own file was, byte for byte, unless somebody had
spelled that by hand. So each has its own checksum, and damage to a line is damage to one version.

Layout: docs/formats/compacted_format.md.
"""

from array import array
from collections.abc import Callable
from functools import cached_property
from typing import Final

from exactlog.core.deltalog.canonical_json import encode_document
from exactlog.core.deltalog.commit_format import DecodedCommit, DeltaCommit, decode_commit
from exactlog.core.deltalog.log_path import CompactedName
from exactlog.core.model.errors import DamageError
from exactlog.core.model.ids import DeltaVersion

ReadAt = Callable[[int, int], bytes]
"""Reads bytes of a file: how many, and from where; fewer only at its end."""

_CHUNK_BYTES: Final = 1024 * 1024


def encode_line(commit: DeltaCommit) -> bytes:
    """A commit as a line of a pack, its newline included."""
    return encode_document(commit)


class Pack:
    """A pack that is read document by document.

    To find where its lines are, it is read through once; eight bytes of memory stay for each. Where lines have been
    lost or torn apart, those that are whole are known by the version they state.

    Args:
        name: of the file: which versions it should hold.
        read_at: reads the file.
        path_hint: what to call it in errors.
    """

    def __init__(self, name: CompactedName, read_at: ReadAt, *, path_hint: str) -> None:
        self.name = name
        self._read_at = read_at
        self._path_hint = path_hint
        self._ends = _find_line_ends(read_at)

    @property
    def is_complete(self) -> bool:
        """Whether it has as many lines as its name says, whatever is in them."""
        return len(self._ends) == self.name.last_version - self.name.first_version + 1

    def read(self, version: DeltaVersion) -> tuple[DecodedCommit, int]:
        """The delta commit of a version, and the size of its document in bytes.

        Raises:
            DamageError: it is damaged, or not there.
        """
        damage = DamageError(
            f"{self._path_hint}: delta version {version} is damaged or missing in it",
            hint="restore the file from a copy",
        )
        if self.is_complete:
            try:
                found = self._read_line(version - self.name.first_version, expected=version)
            except DamageError as error:
                damage = error
            else:
                if found[0].commit.version == version:
                    return found
        line = self._lines.get(version)
        if line is None:
            raise damage
        return self._read_line(line, expected=version)

    @cached_property
    def _lines(self) -> dict[DeltaVersion, int]:
        """The lines that are whole, by the version they state; for a pack whose lines are not where they should be."""
        lines: dict[DeltaVersion, int] = {}
        for line in range(len(self._ends)):
            try:
                decoded, _ = self._read_line(line, expected=None)
            except DamageError:
                continue  # told when its version is asked for
            lines.setdefault(decoded.commit.version, line)
        return lines

    def _read_line(self, line: int, *, expected: DeltaVersion | None) -> tuple[DecodedCommit, int]:
        start = self._ends[line - 1] if line else 0
        document = self._read_at(self._ends[line] - start, start)
        where = f"line {line + 1}" if expected is None else f"delta version {expected}"
        return decode_commit(document, path_hint=f"{self._path_hint}, {where}"), len(document)


def _find_line_ends(read_at: ReadAt) -> "array[int]":
    """Where each line ends, its newline included; the last one may lack it."""
    ends = array("Q")
    position = 0
    while chunk := read_at(_CHUNK_BYTES, position):
        newline = chunk.find(b"\n")
        while newline >= 0:
            ends.append(position + newline + 1)
            newline = chunk.find(b"\n", newline + 1)
        position += len(chunk)
    if position > (ends[-1] if ends else 0):
        ends.append(position)
    return ends
