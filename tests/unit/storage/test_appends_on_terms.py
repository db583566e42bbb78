"""Expected versions, ids of clients and sequences of origins, decided in memory and kept in the delta log."""

import itertools

import pytest

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.deltalog.append_terms import Committed, Conflicted, PayloadDiffers, Superseded
from exactlog.core.deltalog.commit_format import decode_commit
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.limits import ORIGINS_PER_PARTITION_MAX, TXN_ID_LENGTH_MAX
from exactlog.storage.partition_log import AppendRefused
from exactlog.storage.round import StorageRefused
from exactlog.storage.settings import FlushMode
from tests.support.partitions import DELTA_LOG, DataDirectory, batch_of, sequenced, state_of, values_of

REFUSED = StorageRefused("the disk is full", 0)


@pytest.fixture(params=FlushMode)
def disk(request):
    with DataDirectory(flush_mode=request.param, config=TopicConfig(segment_bytes=400)) as disk:
        yield disk


@pytest.fixture
def partition(disk):
    return disk.make()


def commit_of(disk, version):
    path = f"{DELTA_LOG}/{version:020d}.json"
    return decode_commit(disk.filesystem.read_file(path), path_hint=path).commit


def refuse_round(disk):
    round_ = disk.take_round()
    disk.complete_round(round_, [REFUSED] * len(round_))


# --- expected versions -------------------------------------------------------------------------------------------


def test_an_expected_version_holds_once_and_conflicts_afterwards(disk, partition):
    assert disk.commit_on_terms(partition, batch_of(b"a"), expected_version=0) == Committed(1, 0, 0)
    assert disk.commit_on_terms(partition, batch_of(b"b"), expected_version=0) == Conflicted(0, 1)
    assert disk.commit_on_terms(partition, batch_of(b"b", b"c"), expected_version=1) == Committed(2, 1, 2)
    assert values_of(partition) == [b"a", b"b", b"c"]


def test_of_two_with_the_same_expectation_one_wins_and_the_other_can_expect_the_version_it_is_told(disk, partition):
    winner = disk.append_on_terms(partition, batch_of(b"a"), expected_version=0)
    loser = disk.append_on_terms(partition, batch_of(b"b"), expected_version=0)
    assert loser.outcome == Conflicted(0, 1)
    again = disk.append_on_terms(partition, batch_of(b"b"), expected_version=1)
    assert [ask.told for ask in (winner, loser, again)] == [None, None, None], "nothing is told before it is published"
    disk.run_round()

    assert [ask.told for ask in (winner, loser, again)] == [ErrorCode.NONE] * 3
    assert (winner.outcome, again.outcome) == (Committed(1, 0, 0), Committed(2, 1, 1))
    assert partition.table.version == 2


def test_blind_appends_that_are_forming_conflict_with_an_expectation_and_are_closed_by_it(disk, partition):
    disk.append(partition, batch_of(b"blind"))
    assert disk.append_on_terms(partition, batch_of(b"a"), expected_version=0).outcome == Conflicted(0, 1)
    disk.append(partition, batch_of(b"blind too"))
    disk.run_round()

    assert commit_of(disk, 1).end_offset == 1
    assert disk.commit_on_terms(partition, batch_of(b"a"), expected_version=2) == Committed(3, 2, 2)


def test_what_was_committed_without_a_version_yet_conflicts_too(disk, partition):
    disk.commit(partition, batch_of(b"blind"))

    assert disk.commit_on_terms(partition, batch_of(b"a"), expected_version=0) == Conflicted(0, 1)
    assert disk.commit_on_terms(partition, batch_of(b"a"), expected_version=1) == Committed(2, 1, 1)


def test_a_version_that_is_not_there_yet_is_no_expectation_to_meet(disk, partition):
    assert disk.commit_on_terms(partition, batch_of(b"a"), expected_version=7) == Conflicted(7, 0)


def test_an_append_whose_round_is_refused_was_never_there(disk, partition):
    refused = disk.append_on_terms(partition, batch_of(b"a"), expected_version=0, txn_id="t")
    conflicting = disk.append_on_terms(partition, batch_of(b"b"), expected_version=0)
    refuse_round(disk)
    assert refused.error is conflicting.error is ErrorCode.KAFKA_STORAGE_ERROR

    assert disk.commit_on_terms(partition, batch_of(b"c"), expected_version=0, txn_id="t") == Committed(1, 0, 0)


def test_refused_with_blind_appends_before_it_that_are_committed_those_stay():
    with DataDirectory(flush_mode=FlushMode.NONE) as disk:
        partition = disk.make()
        disk.commit(partition, batch_of(b"blind"))
        refused = disk.append_on_terms(partition, batch_of(b"a"), txn_id="t")
        refuse_round(disk)
        assert refused.error is ErrorCode.KAFKA_STORAGE_ERROR
        disk.commit(partition, batch_of(b"blind too"))
        disk.publish(partition)

        assert values_of(partition) == [b"blind", b"blind too"]
        assert partition.table.txn_ids == {}
        before = state_of(partition)
        disk.restart()
        assert state_of(disk.open()) == before


# --- ids of clients ----------------------------------------------------------------------------------------------


def test_the_same_txn_id_again_gets_the_first_result_and_appends_nothing(disk, partition):
    first = disk.commit_on_terms(partition, batch_of(b"a"), txn_id="order-7")
    disk.commit_on_terms(partition, batch_of(b"b"), txn_id="order-8")

    assert disk.commit_on_terms(partition, batch_of(b"a"), txn_id="order-7") == first
    assert disk.commit_on_terms(partition, batch_of(b"a"), txn_id="order-7", expected_version=0) == first
    assert values_of(partition) == [b"a", b"b"]


def test_a_retry_before_the_first_try_is_published_waits_for_it(disk, partition):
    first = disk.append_on_terms(partition, batch_of(b"a"), txn_id="t")
    again = disk.append_on_terms(partition, batch_of(b"a"), txn_id="t")
    assert again.told is None
    disk.run_round()

    assert first.outcome == again.outcome == Committed(1, 0, 0)
    assert values_of(partition) == [b"a"]


def test_a_txn_id_with_another_payload_is_refused_naming_the_version(disk, partition):
    disk.commit_on_terms(partition, batch_of(b"a"), txn_id="t", payload_crc="00000001")

    differs = disk.commit_on_terms(partition, batch_of(b"b"), txn_id="t", payload_crc="00000002")

    assert isinstance(differs, PayloadDiffers)
    assert differs.version == 1
    assert "'t'" in differs.message


def test_txn_ids_outlive_a_restart_with_and_without_a_checkpoint(disk, partition):
    outcomes = [disk.commit_on_terms(partition, batch_of(b"%d" % n), txn_id=f"t{n}") for n in range(13)]
    disk.restart()
    partition = disk.open()

    assert [disk.commit_on_terms(partition, batch_of(b"%d" % n), txn_id=f"t{n}") for n in range(13)] == outcomes
    assert partition.high_watermark == 13


def test_each_append_with_an_id_is_an_add_of_its_own_and_what_lies_between_is_the_nodes(disk, partition):
    disk.append(partition, batch_of(b"blind"))
    disk.append(partition, batch_of(b"blind"))
    disk.append_on_terms(partition, batch_of(b"a", b"b"), txn_id="t1", payload_crc="00000001")
    disk.append_on_terms(partition, batch_of(b"c"), origin_id=9, origin_seq=5, payload_crc="00000002")
    disk.append(partition, batch_of(b"blind"))
    disk.run_round()

    operations = [op for version in range(1, partition.table.version + 1) for op in commit_of(disk, version).operations]
    found = [(op.origin_id, op.origin_seq, op.offset_start, op.offset_end, op.txn_id or None) for op in operations]
    assert [row[:4] for row in found] == [(1, 1, 0, 1), (1, 2, 2, 3), (9, 5, 4, 4), (1, 3, 5, 5)]
    assert operations[1].txn_id == "t1"
    assert [op.payload_crc for op in operations[1:3]] == ["00000001", "00000002"]
    ends = [(op.segment, op.position, op.position + op.size) for op in operations]
    for (segment, _, end), (following, position, _) in itertools.pairwise(ends):
        assert position == (end if segment == following else 0)


@pytest.mark.parametrize("txn_id", ["", "x" * (TXN_ID_LENGTH_MAX + 1)])
def test_a_txn_id_has_a_sensible_length(disk, partition, txn_id):
    outcome = disk.append_on_terms(partition, batch_of(b"a"), txn_id=txn_id).outcome

    assert outcome.error_code is ErrorCode.INVALID_REQUEST


# --- origins -----------------------------------------------------------------------------------------------------


def test_a_numbered_writer_is_never_added_twice_and_gets_its_last_result_again(disk, partition):
    first = disk.commit_on_terms(partition, batch_of(b"a"), origin_id=9, origin_seq=5)
    assert disk.commit_on_terms(partition, batch_of(b"a"), origin_id=9, origin_seq=5) == first
    second = disk.commit_on_terms(partition, batch_of(b"b"), origin_id=9)
    assert commit_of(disk, second.version).operations[-1].origin_seq == 6
    assert disk.commit_on_terms(partition, batch_of(b"a"), origin_id=9, origin_seq=5) == Superseded(9, 5, 6)
    assert isinstance(
        disk.commit_on_terms(partition, batch_of(b"x"), origin_id=9, origin_seq=6, payload_crc="00000003"),
        PayloadDiffers,
    )
    disk.restart()
    partition = disk.open()
    assert disk.commit_on_terms(partition, batch_of(b"b"), origin_id=9, origin_seq=6) == second
    assert values_of(partition) == [b"a", b"b"]


def test_an_expected_origin_seq_fences_one_origin_beside_blind_appends(disk, partition):
    assert isinstance(
        disk.commit_on_terms(partition, batch_of(b"a"), origin_id=9, expected_origin_seq=0, origin_seq=4), Committed
    )
    disk.commit(partition, batch_of(b"blind"))
    assert isinstance(disk.commit_on_terms(partition, batch_of(b"b"), origin_id=9, expected_origin_seq=4), Committed)
    assert disk.commit_on_terms(partition, batch_of(b"c"), origin_id=9, expected_origin_seq=4) == Conflicted(4, 5)
    assert disk.commit_on_terms(partition, batch_of(b"c"), origin_id=8, expected_origin_seq=1) == Conflicted(1, 0)


@pytest.mark.parametrize(
    "terms",
    [
        {"origin_seq": 5},
        {"expected_origin_seq": 5},
        {"origin_id": 1, "origin_seq": 5},
        {"origin_id": 9, "origin_seq": 0},
        {"txn_id": "t", "payload_crc": None},
    ],
    ids=str,
)
def test_terms_that_make_no_sense_are_refused(disk, partition, terms):
    outcome = disk.append_on_terms(partition, batch_of(b"a"), **terms).outcome

    assert isinstance(outcome, AppendRefused)
    assert outcome.error_code is ErrorCode.INVALID_REQUEST
    assert partition.high_watermark == 0


def test_origins_are_bounded(disk, partition, monkeypatch):
    assert ORIGINS_PER_PARTITION_MAX >= 1_000
    monkeypatch.setattr("exactlog.core.deltalog.append_terms.ORIGINS_PER_PARTITION_MAX", 2)
    disk.commit_on_terms(partition, batch_of(b"a"), origin_id=8)
    disk.commit_on_terms(partition, batch_of(b"a"), origin_id=9)

    assert isinstance(disk.append_on_terms(partition, batch_of(b"b"), origin_id=10).outcome, AppendRefused)
    assert isinstance(disk.commit_on_terms(partition, batch_of(b"b"), origin_id=9), Committed)


# --- with all the rest -------------------------------------------------------------------------------------------


def test_an_idempotent_producers_batch_takes_no_terms(disk, partition):
    outcome = disk.append_on_terms(partition, sequenced(1, 0, b"a"), txn_id="t").outcome

    assert isinstance(outcome, AppendRefused)


def test_a_stopped_partition_refuses_at_once(disk, partition):
    partition.fail("for a test")
    ask = disk.append_on_terms(partition, batch_of(b"a"), txn_id="t")

    assert ask.told is ErrorCode.NONE
    assert ask.outcome.error_code is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("flush_mode", [FlushMode.INTERVAL, FlushMode.NONE])
def test_a_round_that_publishes_waits_for_a_publication_that_is_under_way(flush_mode):
    with DataDirectory(flush_mode=flush_mode) as disk:
        partition = disk.make()
        disk.commit(partition, batch_of(b"a"))
        write = partition.take_publication(now_ms=disk.clock.now_ms())
        ask = disk.append_on_terms(partition, batch_of(b"b"), txn_id="t")
        disk.run_round()
        assert ask.told is None

        partition.complete_publication(disk.engine.commit([write])[0], now_ms=disk.clock.now_ms())
        disk.run_round()

        assert ask.outcome == Committed(2, 1, 1)
        assert ask.told is ErrorCode.NONE
        before = state_of(partition)
        disk.restart()
        assert state_of(disk.open()) == before
