"""What an audit finds of transactions: in markers, stable offsets, checkpoints and the indexes of aborted ones."""

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.deltalog.checkpoint_format import decode_checkpoint, encode_checkpoint
from exactlog.core.log.aborted_index_format import (
    ABORTED_INDEX_ROW_SIZE,
    decode_aborted_transaction,
    encode_aborted_transaction,
)
from exactlog.core.log.index_format import TRAILER_SIZE
from exactlog.core.model.ids import NO_SEQUENCE
from exactlog.core.record.control_record_format import TransactionMarker, build_marker_batch
from exactlog.storage.audit_findings import Severity
from tests.support.audits import (
    audit,
    checkpoint_name,
    commit_name,
    content_of,
    damage,
    found,
    put,
    put_version,
    remove,
    respell_commit,
)
from tests.support.partitions import FIRST_MS, DataDirectory, batch_of, copy_of, sequenced
from tests.support.transactions import TransactionalWriter

CONFIG = TopicConfig(segment_bytes=1100, index_interval_bytes=150)
FIRST, SECOND = (f"{base:020d}" for base in (0, 9))
OPEN_SINCE = 16


@pytest.fixture(scope="module")
def written():
    """Two segments, of which the first is sealed; three transactions aborted, one committed, one open; a checkpoint."""
    with DataDirectory(config=CONFIG, checkpoint_interval=17) as disk:
        writer = TransactionalWriter(disk, disk.make())
        for name, *args in (
            ("write", 1, b"a" * 60),
            ("write", 2, b"b" * 60),
            ("abort", 1),
            ("commit", 2),
            ("write", 3, b"c" * 60),
            ("plain", b"d" * 60),
            ("write", 1, b"e" * 60),
            ("abort", 3),
            ("plain", b"f" * 60),
            ("plain", b"g" * 60),
            ("abort", 1),
            *(("plain", b"h" * 60) for _ in range(5)),
            ("write", 4, b"i"),
        ):
            writer.in_a_round(getattr(writer, name), *args)
        assert [segment.base_offset for segment in writer.partition.segments] == [0, 9]
        assert writer.partition.last_stable_offset == OPEN_SINCE
        return copy_of(disk.filesystem)


@pytest.fixture
def files(written):
    return copy_of(written)


def marker(producer_id, *, is_commit=False):
    return build_marker_batch(
        TransactionMarker(is_commit=is_commit, coordinator_epoch=0),
        producer_id=producer_id,
        producer_epoch=0,
        timestamp_ms=FIRST_MS,
    )


def checkpoint_of(files):
    return decode_checkpoint(content_of(files, checkpoint_name(17)), path_hint="x")


def respell_checkpoint(files, **changes):
    put(files, checkpoint_name(17), encode_checkpoint(replace(checkpoint_of(files), **changes)))


def test_a_partition_with_transactions_of_every_kind_is_sound(files):
    assert found(files, is_deep=True) == []
    assert checkpoint_of(files).segments[0].aborted_entries == 2
    assert checkpoint_of(files).segments[1].aborted_entries == 1


def test_open_transactions_are_reported(files):
    assert [(each.producer_id, each.first_offset) for each in audit(files).open_transactions] == [(4, OPEN_SINCE)]

    put_version(files, marker(4, is_commit=True), segment=f"{SECOND}.log", last_stable_offset=18)
    assert audit(files).open_transactions == ()
    assert found(files) == []


# --- stable offsets -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("stable_offset", "is_wrong"), [(OPEN_SINCE, False), (OPEN_SINCE + 1, True), (18, True)])
def test_a_stable_offset_behind_the_beginning_of_an_open_transaction_is_damage(files, stable_offset, is_wrong):
    version = put_version(files, batch_of(b"j"), segment=f"{SECOND}.log", last_stable_offset=stable_offset)

    assert damage(files) == ([("stable-offset-wrong", commit_name(version))] if is_wrong else [])


def test_a_stable_offset_before_records_that_are_all_decided_is_damage(files):
    put_version(files, marker(4), segment=f"{SECOND}.log", last_stable_offset=18)
    version = put_version(files, batch_of(b"j"), segment=f"{SECOND}.log", last_stable_offset=18)

    ((_, kind, message),) = [(each.file, str(each.kind), each.message) for each in audit(files).findings]
    assert (kind, version) == ("stable-offset-wrong", 19)
    assert "is 18, not 19" in message


def test_of_producers_that_are_not_known_nothing_is_said(files):
    """The first versions are gone, and there is no checkpoint: nobody can say what was open."""
    remove(files, checkpoint_name(17), *(commit_name(version) for version in range(3)))

    assert "stable-offset-wrong" not in {kind for kind, _ in found(files)}


# --- markers ------------------------------------------------------------------------------------------------------


def test_a_marker_that_does_not_say_how_a_transaction_ended_is_damage(files):
    broken = sequenced(4, NO_SEQUENCE, b"no marker", is_transactional=True, is_control=True)
    put_version(files, broken, segment=f"{SECOND}.log", last_stable_offset=OPEN_SINCE)

    assert damage(files) == [("marker-damaged", f"{SECOND}.log")]


# --- the index of aborted transactions ------------------------------------------------------------------------------


def rows_of(files, name):
    content = content_of(files, f"{name}.txnindex")
    count = len(content) // ABORTED_INDEX_ROW_SIZE
    return [
        decode_aborted_transaction(content[row * ABORTED_INDEX_ROW_SIZE : (row + 1) * ABORTED_INDEX_ROW_SIZE])
        for row in range(count)
    ]


def put_row(files, name, row, aborted):
    content = bytearray(content_of(files, f"{name}.txnindex"))
    start = row * ABORTED_INDEX_ROW_SIZE
    content[start : start + ABORTED_INDEX_ROW_SIZE] = encode_aborted_transaction(aborted)
    put(files, f"{name}.txnindex", bytes(content))


@pytest.mark.parametrize("field", ["producer_id", "first_offset", "last_offset", "last_stable_offset"])
@pytest.mark.parametrize("name", [FIRST, SECOND])
def test_a_row_that_says_otherwise_than_the_log_is_harmless_damage(files, name, field):
    row = rows_of(files, name)[0]
    put_row(files, name, 0, replace(row, **{field: getattr(row, field) + 1}))

    assert damage(files) == [("index-damaged", f"{name}.txnindex")]
    assert {each.severity for each in audit(files).findings} == {Severity.HARMLESS}


@pytest.mark.parametrize("name", [FIRST, SECOND])
def test_missing_rows_are_a_note(files, name):
    content = content_of(files, f"{name}.txnindex")
    put(files, f"{name}.txnindex", content[: ABORTED_INDEX_ROW_SIZE - 1])
    assert found(files) == [("index-incomplete", f"{name}.txnindex")]

    remove(files, f"{name}.txnindex")
    assert found(files) == [("index-incomplete", f"{name}.txnindex")]


def test_rows_that_no_checkpoint_counts_do_not_matter(files):
    content = content_of(files, f"{SECOND}.txnindex")
    put(files, f"{SECOND}.txnindex", content + b"anything")
    assert found(files) == []

    put_version(files, marker(4), segment=f"{SECOND}.log", last_stable_offset=18)
    assert found(files) == []


def test_a_missing_trailer_of_a_sealed_one_is_a_note(files):
    put(files, f"{FIRST}.txnindex", content_of(files, f"{FIRST}.txnindex")[:-TRAILER_SIZE])

    assert found(files) == [("index-incomplete", f"{FIRST}.txnindex")]


def test_a_row_of_a_transaction_that_began_before_the_first_segment_may_begin_later(files):
    """It was made anew from what was left of it."""
    checkpoint = checkpoint_of(files)
    respell_checkpoint(files, segments=checkpoint.segments[1:], log_start_offset=9)
    row = rows_of(files, SECOND)[0]
    assert row.first_offset < 9
    put_row(files, SECOND, 0, replace(row, first_offset=9))

    assert ("index-damaged", f"{SECOND}.txnindex") not in damage(files)


# --- checkpoints --------------------------------------------------------------------------------------------------


def fewer_rows(checkpoint):
    first, second = checkpoint.segments
    return {"segments": (replace(first, aborted_entries=1), second)}


def no_rows(checkpoint):
    first, second = checkpoint.segments
    return {"segments": (first, replace(second, aborted_entries=UNSET, aborted_crc=UNSET))}


def other_crc(checkpoint):
    first, second = checkpoint.segments
    return {"segments": (replace(first, aborted_crc="00000000"), second)}


def no_open_transactions(checkpoint):
    return {"open_transactions": ()}


def another_beginning(checkpoint):
    (opened,) = checkpoint.open_transactions
    return {"open_transactions": (replace(opened, first_offset=opened.first_offset - 1),)}


def decided_producers(checkpoint):
    return {"producers": tuple(replace(producer, txn_start_offset=None) for producer in checkpoint.producers)}


@pytest.mark.parametrize(
    "change", [fewer_rows, no_rows, other_crc, no_open_transactions, another_beginning, decided_producers]
)
def test_a_checkpoint_that_tells_transactions_otherwise_than_the_log_is_damage(files, change):
    respell_checkpoint(files, **change(checkpoint_of(files)))

    assert ("checkpoint-differs", checkpoint_name(17)) in damage(files)


def test_a_version_that_tells_too_much_is_told_once(files):
    """What comes behind it cannot be lower: the stable offset never goes back."""
    respell_commit(files, 17, last_stable_offset=17)
    remove(files, checkpoint_name(17))
    put_version(files, batch_of(b"j"), segment=f"{SECOND}.log", last_stable_offset=17)

    assert damage(files) == [("stable-offset-wrong", commit_name(17))]
