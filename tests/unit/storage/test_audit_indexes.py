"""What an audit finds in the indexes of a partition, and of its transactions."""

import struct

import pytest

from exactlog.core.log.aborted_index_format import AbortedTransaction, encode_aborted_transaction
from exactlog.core.log.index_format import encode_trailer
from exactlog.core.record.control_record_format import TransactionMarker, build_marker_batch
from exactlog.storage.audit_findings import Severity
from tests.support.audits import (
    BATCHES,
    CHECKPOINTS,
    SEGMENTS,
    audit,
    checkpoint_name,
    commit_name,
    content_of,
    damage,
    flip,
    found,
    put,
    put_version,
    remove,
    written,
)
from tests.support.partitions import FIRST_MS, batch_of, sequenced


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


# --- transactions ----------------------------------------------------------------------------------------------


def transactional(producer_id, sequence, *values):
    return sequenced(producer_id, sequence, *values, is_transactional=True)


def marker(producer_id, *, is_commit=False):
    return build_marker_batch(
        TransactionMarker(is_commit=is_commit, coordinator_epoch=0),
        producer_id=producer_id,
        producer_epoch=0,
        timestamp_ms=FIRST_MS,
    )


@pytest.fixture
def open_transactions(files):
    """Producers 50 and 51 have begun a transaction at offsets 33 and 34; 50's ends at 35, aborted."""
    put_version(files, transactional(50, 0, b"a"), segment=SEGMENTS[2], last_stable_offset=33)
    put_version(files, transactional(51, 0, b"b"), segment=SEGMENTS[2], last_stable_offset=33)
    put_version(files, marker(50), segment=SEGMENTS[2], last_stable_offset=34)
    return files


def test_open_transactions_are_reported(open_transactions):
    report = audit(open_transactions)

    assert [(each.producer_id, each.first_offset) for each in report.open_transactions] == [(51, 34)]
    assert (report.batches, report.records) == (BATCHES + 3, BATCHES + 2)
    assert {str(each.kind) for each in report.findings} == {"index-incomplete"}

    put_version(open_transactions, marker(51, is_commit=True), segment=SEGMENTS[2])
    assert audit(open_transactions).open_transactions == ()


def test_a_stable_offset_behind_an_open_transaction_is_damage(open_transactions):
    version = put_version(open_transactions, batch_of(b"c"), segment=SEGMENTS[2], last_stable_offset=36)

    assert damage(open_transactions) == [("stable-offset-wrong", commit_name(version))]


def test_a_marker_that_does_not_say_how_a_transaction_ended_is_damage(files):
    broken = sequenced(50, -1, b"no marker", is_transactional=True, is_control=True)
    put_version(files, broken, segment=SEGMENTS[2])

    assert damage(files) == [("marker-damaged", SEGMENTS[2])]


def aborted(*, producer_id=50, first_offset=33, last_offset=35):
    return encode_aborted_transaction(
        AbortedTransaction(
            producer_id=producer_id, first_offset=first_offset, last_offset=last_offset, last_stable_offset=34
        )
    )


def test_the_index_of_aborted_transactions_must_fit_the_markers(open_transactions):
    name = SEGMENTS[2].replace(".log", ".txnindex")
    put(open_transactions, name, aborted())
    assert found(open_transactions) == []

    for wrong in (aborted(producer_id=51), aborted(first_offset=32), aborted(last_offset=34), aborted()[:-1] + b"\xff"):
        put(open_transactions, name, wrong + aborted(last_offset=99))
        kinds = {kind for kind, _ in damage(open_transactions)}
        assert kinds == ({"index-damaged"} if wrong != aborted()[:-1] + b"\xff" else set())
