"""What an audit finds in the indexes of a partition."""

import struct

import pytest

from exactlog.core.log.index_format import encode_trailer
from exactlog.storage.audit_findings import Severity
from tests.support.audits import (
    CHECKPOINTS,
    SEGMENTS,
    audit,
    checkpoint_name,
    content_of,
    damage,
    flip,
    found,
    put,
    remove,
    written,
)


@pytest.fixture
def files():
    return written()


# --- indexes ---------------------------------------------------------------------------------------------------

INDEXES = [name.replace(".log", end) for name in SEGMENTS for end in (".index", ".timeindex")]


@pytest.mark.parametrize("name", INDEXES)
def test_a_damaged_index_is_harmless(files, name):
    flip(files, name, 7)

    assert damage(files) == [("index-damaged", name)]
    assert {each.severity for each in audit(files).findings} == {Severity.HARMLESS}


@pytest.mark.parametrize("name", INDEXES)
def test_missing_index_rows_are_a_note(files, name):
    put(files, name, content_of(files, name)[:5])
    assert found(files) == [("index-incomplete", name)]

    remove(files, name)
    assert found(files) == [("index-incomplete", name)]


@pytest.mark.parametrize("name", INDEXES[:4])
def test_a_missing_trailer_is_a_note_and_a_wrong_one_is_damage(files, name):
    content = content_of(files, name)
    put(files, name, content[:-3])
    assert found(files) == [("index-incomplete", name)]

    put(files, name, content[:-16] + bytes(16))
    assert damage(files) == [("index-damaged", name)]


def test_a_row_that_fits_no_batch_is_damage_though_its_file_is_whole(files):
    rows = struct.pack(">II", 2, 149)
    put(files, INDEXES[0], rows + encode_trailer(rows, row_size=8))

    assert ("index-damaged", INDEXES[0]) in damage(files)


def test_a_row_behind_the_segment_is_damage(files):
    content = content_of(files, INDEXES[4])
    put(files, INDEXES[4], content[:-8] + struct.pack(">II", 99, 9999))

    assert damage(files) == [("index-damaged", INDEXES[4])]


def test_nothing_is_said_of_index_rows_of_bytes_that_cannot_be_walked(files):
    flip(files, SEGMENTS[0], 10)

    assert {kind for kind, _ in found(files)} == {"batch-damaged"}


def test_rows_that_no_checkpoint_counts_do_not_matter(files):
    put(files, INDEXES[4], content_of(files, INDEXES[4]) + b"anything")
    remove(files, *map(checkpoint_name, CHECKPOINTS))
    put(files, INDEXES[0], b"anything")

    assert found(files) == []


def test_a_sealed_index_that_no_checkpoint_counts_still_has_its_crc(files):
    remove(files, *map(checkpoint_name, CHECKPOINTS))
    flip(files, INDEXES[0], 0)

    assert damage(files) == [("index-damaged", INDEXES[0])]
