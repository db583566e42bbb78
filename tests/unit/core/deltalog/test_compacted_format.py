"""Packs: what is in them comes out as it was, and damage costs the versions it hits."""

import json
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.core.deltalog.commit_format import decode_commit
from exactlog.core.deltalog.compacted_format import Pack, encode_line
from exactlog.core.deltalog.log_path import CompactedName
from exactlog.core.model.errors import DamageError
from tests.unit.core.deltalog.histories import PAGES, history_of, page_blocks, seal

FIRST, LAST = 3, 12
HISTORY = history_of(versions=20)
NAME = CompactedName(first_version=FIRST, last_version=LAST)
LINES = HISTORY.documents[FIRST : LAST + 1]


def pack_of(content, name=NAME, *, reads=None):
    """The pack that these bytes are."""

    def read_at(size, position):
        if reads is not None:
            reads.append((size, position))
        return content[position : position + size]

    return Pack(name, read_at, path_hint="_delta_log/p.compacted.json")


def readable(content):
    """The versions that can be read of these bytes, each as it was; nothing else comes out."""
    pack = pack_of(content)
    found = []
    for version in range(FIRST, LAST + 1):
        try:
            assert pack.read(version) == (HISTORY.commits[version], len(HISTORY.documents[version]))
        except DamageError:
            with pytest.raises(DamageError, match=rf"p.compacted.json.*version {version}\b"):
                pack.read(version)
        else:
            found.append(version)
    return found


# --- writing -----------------------------------------------------------------------------------------------------


def test_a_line_is_the_document_of_its_own_file_byte_for_byte():
    assert [encode_line(decoded.commit) for decoded in HISTORY.commits] == HISTORY.documents


def test_a_document_that_somebody_spelled_by_hand_becomes_one_line_with_the_same_checksums():
    spaced = HISTORY.documents[4].replace(b",", b" ,\n  ")
    decoded = decode_commit(spaced, path_hint="x")

    assert encode_line(decoded.commit) == HISTORY.documents[4]
    assert decoded == HISTORY.commits[4]


def test_unknown_keys_stay_where_they_are():
    document = seal(json.loads(HISTORY.documents[0]), unknown={"later": {"b": 1, "a": [2]}})

    line = encode_line(decode_commit(document, path_hint="x").commit)

    assert line == document
    assert line.count(b"\n") == 1


# --- reading -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [range(FIRST, LAST + 1), reversed(range(FIRST, LAST + 1)), [7, 3, 12, 7]])
def test_every_version_of_a_pack_is_found(order):
    pack = pack_of(b"".join(LINES))

    assert pack.is_complete
    for version in order:
        assert pack.read(version) == (HISTORY.commits[version], len(HISTORY.documents[version]))


def test_after_the_lines_are_found_only_what_is_asked_for_is_read():
    reads = []
    pack = pack_of(b"".join(LINES), reads=reads)
    reads.clear()

    pack.read(5)

    assert reads == [(len(HISTORY.documents[5]), len(b"".join(LINES[:2])))]


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
def test_lines_are_found_in_whatever_portions_a_file_is_read(monkeypatch, size):
    monkeypatch.setattr("exactlog.core.deltalog.compacted_format._CHUNK_BYTES", size)

    assert readable(b"".join(LINES)) == list(range(FIRST, LAST + 1))


# --- damage ------------------------------------------------------------------------------------------------------


@given(st.integers(0, len(b"".join(LINES)) - 1), st.integers(0, 7))
def test_a_flipped_bit_costs_the_versions_it_touches_and_no_other(position, bit):
    content = bytearray(b"".join(LINES))
    content[position] ^= 1 << bit
    line = b"".join(LINES)[:position].count(b"\n")

    lost = set(range(FIRST, LAST + 1)) - set(readable(bytes(content)))

    # A line end that is gone joins its line to the next one.
    is_line_end = b"".join(LINES)[position : position + 1] == b"\n"
    assert lost == {FIRST + line} | ({FIRST + line + 1} - {LAST + 1} if is_line_end else set())


@given(st.integers(0, len(b"".join(LINES))))
def test_a_pack_that_was_cut_short_still_has_the_lines_before_the_cut(size):
    content = b"".join(LINES)[:size]

    assert readable(content) == list(range(FIRST, FIRST + content.count(b"\n")))


@given(st.data())
def test_lines_that_are_lost_doubled_or_elsewhere_do_not_move_the_others(data):
    lines = [
        data.draw(st.sampled_from([b"", b"{}\n", b"\n", *HISTORY.documents])) if data.draw(st.booleans()) else line
        for line in LINES
    ]
    lines = data.draw(st.permutations(lines))
    whole = [version for version in range(FIRST, LAST + 1) if HISTORY.documents[version] in lines]

    assert readable(b"".join(lines)) == whole


@given(st.binary(max_size=400))
def test_bytes_that_are_no_pack_give_nothing_and_break_nothing(content):
    assert readable(content) == []


def test_bytes_behind_the_last_line_hide_nothing_and_are_noticed():
    content = b"".join(LINES) + b"garbage"

    assert readable(content) == list(range(FIRST, LAST + 1))
    assert not pack_of(content).is_complete


# --- the page ----------------------------------------------------------------------------------------------------


def test_the_example_of_the_page_is_read_as_a_pack():
    (example,) = page_blocks("compacted_format.md", "jsonl")
    name = re.search(r"`(0{19}[0-9])\.(0{19}[0-9])\.compacted\.json`", (PAGES / "compacted_format.md").read_text())
    first, last = int(name[1]), int(name[2])

    pack = pack_of(example.encode(), CompactedName(first_version=first, last_version=last))

    assert pack.is_complete
    commits = [pack.read(version)[0] for version in range(first, last + 1)]
    for before, after in pairwise(commits):
        assert after.commit.prev_crc == before.chain_crc
    assert "".join(encode_line(found.commit).decode() for found in commits) == example
