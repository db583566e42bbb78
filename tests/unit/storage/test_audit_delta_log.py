"""Every document of a delta log, in order of version, wherever it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.storage.audit_delta_log import DeltaLogListing, is_half_written
from exactlog.testing import FailingFilesystem
from tests.support.audits import (
    commit_name,
    content_of,
    damage,
    pack_name,
    put,
    remove,
    written,
)
from tests.support.counting_filesystem import CountingFilesystem
from tests.support.partitions import DIRECTORY

FILES = written()
DOCUMENT = content_of(FILES, commit_name(7))


@pytest.fixture
def files():
    return written()


def put_pack(filesystem, first, last):
    lines = [content_of(FILES, commit_name(version)) for version in range(first, last + 1)]
    put(filesystem, pack_name(first, last), b"".join(lines))


def sources(filesystem):
    """Of each version, the files that have it."""
    return {
        version: [document.file for document in documents]
        for version, documents in DeltaLogListing(filesystem, DIRECTORY).versions()
    }


def test_versions_come_in_order_with_every_document_of_each(files):
    put_pack(files, 3, 6)
    put_pack(files, 5, 8)
    put_pack(files, 9, 9)
    remove(files, *map(commit_name, range(4, 10)))

    found = sources(files)

    assert list(found) == list(range(34))
    assert found[2] == [commit_name(2)]
    assert found[3] == [commit_name(3), pack_name(3, 6)]
    assert found[4] == [pack_name(3, 6)]
    assert found[5] == [pack_name(3, 6), pack_name(5, 8)]
    assert found[9] == [pack_name(9, 9)]
    assert damage(files) == []


def test_of_many_packs_no_more_is_open_than_one_after_the_other(files):
    for first in range(0, 30, 2):
        put_pack(files, first, first + 1)
        remove(files, commit_name(first), commit_name(first + 1))
    counting = CountingFilesystem(files)
    versions = DeltaLogListing(counting, DIRECTORY).versions()

    next(versions)

    assert len([each for each in counting.operations if each.name == "open"]) == 1


def test_documents_that_cannot_be_read_are_told_and_the_others_go_on(files):
    put_pack(files, 3, 6)
    remove(files, *map(commit_name, range(3, 7)))
    failing = FailingFilesystem(files)
    failing.fail("read_file", path_pattern=f"*/{commit_name(20)}")
    failing.fail("read_at", path_pattern=f"*/{pack_name(3, 6)}")

    problems = {
        version: documents[0].problem
        for version, documents in DeltaLogListing(failing, DIRECTORY).versions()
        if documents[0].problem
    }

    assert list(problems) == [3, 20]
    assert all("cannot be read" in problem for problem in problems.values())


def test_a_name_that_has_gone_is_told_at_once(files):
    listing = DeltaLogListing(files, DIRECTORY)
    remove(files, commit_name(5))

    with pytest.raises(FileNotFoundError):
        list(listing.versions())


def test_a_pack_that_names_more_versions_than_there_can_be_costs_no_more_than_its_bytes(files):
    put(files, pack_name(100, 2**62), DOCUMENT)

    assert list(sources(files))[-2:] == [100, 101]
    assert ("commit-damaged", pack_name(100, 2**62)) in damage(files)


# --- half written ----------------------------------------------------------------------------------------------


@given(size=st.integers(0, len(DOCUMENT) - 1))
def test_the_beginning_of_a_document_is_half_written(size):
    assert is_half_written(DOCUMENT[:size])


@given(start=st.integers(0, len(DOCUMENT) - 2), size=st.integers(2, 600))
def test_a_document_with_a_hole_of_zeros_is_half_written(start, size):
    hole = bytes(min(size, len(DOCUMENT) - start))

    assert is_half_written(DOCUMENT[:start] + hole + DOCUMENT[start + len(hole) :])


@given(byte=st.integers(0, len(DOCUMENT) - 1), bit=st.integers(0, 7))
def test_a_document_with_a_bit_turned_over_is_not_half_written_but_damaged(byte, bit):
    changed = bytearray(DOCUMENT)
    changed[byte] ^= 1 << bit

    assert not is_half_written(DOCUMENT)
    assert not is_half_written(bytes(changed))


@pytest.mark.parametrize("content", [b"\xff", b"nonsense", b"[" * 100_000])
def test_what_is_no_beginning_of_a_document_is_not_half_written(content):
    assert not is_half_written(content)
