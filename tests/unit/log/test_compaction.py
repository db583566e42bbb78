"""Partitions with all that a log can hold, compacted without a broker: what readers, audits and producers see then."""

import pytest
from msgspec.structs import replace

from exactlog.core.deltalog.commit_format import decode_commit, encode_commit
from exactlog.core.model.errors import DamageError
from exactlog.core.record.batch_format import iter_headers
from exactlog.storage.filesystem import OsFilesystem
from exactlog.storage.table_reader import TableReader
from tests.support.compacted_tables import (
    COMPACT,
    NOW_MS,
    committed,
    compact_at,
    everything,
    findings_of,
    newest_by_key,
)
from tests.support.generated_logs import PLACES, write_log
from tests.support.partitions import DataDirectory, state_of
from tests.support.transactions import TransactionalWriter

NAME = "topic=orders-part=0"
SEEDS = (0, 1, 2, 3, 5, 8, 11, 13)
PLACE = PLACES[:1]


def opened(root, **settings):
    """The partition, opened by the next start: its state."""
    epoch = TableReader(OsFilesystem(), f"{root}/{NAME}").snapshot().leader_epoch + 1
    with DataDirectory(OsFilesystem(), root=str(root), config=COMPACT, leader_epoch=epoch, **settings) as disk:
        return state_of(disk.open(PLACE[0]))


@pytest.mark.parametrize("seed", SEEDS)
def test_readers_audits_and_recovery_agree_on_a_compacted_log(tmp_path, seed):
    write_log(tmp_path, seed=seed, places=PLACE)
    before = committed(tmp_path, NAME)
    state_before = opened(tmp_path)

    report = compact_at(tmp_path, NAME, keys_max=3 if seed % 2 else 1_000)

    after = committed(tmp_path, NAME)
    assert newest_by_key(after) == newest_by_key(before)
    assert {record.offset: record for record in before}.items() >= {record.offset: record for record in after}.items()
    assert report.segments_before > 2
    assert report.bytes < report.bytes_before
    assert findings_of(tmp_path, NAME) == []
    state = opened(tmp_path)
    assert state[1] == state_before[1], "producers"
    assert state[3:5] == state_before[3:5], "high watermark and last stable offset"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_second_run_publishes_nothing_and_leaves_every_segment(tmp_path, seed):
    write_log(tmp_path, seed=seed, places=PLACE)
    first = compact_at(tmp_path, NAME)
    names = [segment.name for segment in TableReader(OsFilesystem(), f"{tmp_path}/{NAME}").snapshot().segments]
    second = compact_at(tmp_path, NAME)
    assert (second.version, second.bytes, second.records_removed) == (first.version, first.bytes, 0)
    assert [s.name for s in TableReader(OsFilesystem(), f"{tmp_path}/{NAME}").snapshot().segments] == names


@pytest.mark.parametrize("seed", SEEDS)
def test_a_full_replay_of_all_versions_gives_what_the_checkpoint_gives(tmp_path, seed):
    write_log(tmp_path, seed=seed, places=PLACE, removes=False)
    compact_at(tmp_path, NAME)
    by_checkpoint = opened(tmp_path)
    for checkpoint in (tmp_path / NAME / "_delta_log").glob("*.checkpoint.json"):
        checkpoint.unlink()
    assert opened(tmp_path) == by_checkpoint


@pytest.mark.parametrize("seed", SEEDS)
def test_an_earlier_version_has_the_records_that_it_had(tmp_path, seed):
    write_log(tmp_path, seed=seed, places=PLACE, removes=False)
    newest = TableReader(OsFilesystem(), f"{tmp_path}/{NAME}").snapshot().version
    versions = range(0, newest + 1, 5)
    before = {version: everything(tmp_path, NAME, as_of_version=version) for version in versions}
    times_before = [first_times(tmp_path, version) for version in versions]
    compact_at(tmp_path, NAME)
    for version in versions:
        assert everything(tmp_path, NAME, as_of_version=version) == before[version]
    assert [first_times(tmp_path, version) for version in versions] == times_before


def first_times(root, version):
    """From where on a version has records of a time or younger ones, for some times."""
    table = TableReader(OsFilesystem(), f"{root}/{NAME}")
    end = table.bounds(version).end_offset
    times = sorted({record.timestamp_ms for record in everything(root, NAME, as_of_version=version)})[::7]
    return [table.first_not_older(time, 0, end, as_of_version=version) for time in times]


@pytest.mark.parametrize("seed", SEEDS)
def test_runs_at_later_times_end_with_neither_tombstones_nor_markers_of_nothing(tmp_path, seed):
    write_log(tmp_path, seed=seed, places=PLACE)
    before = newest_by_key(committed(tmp_path, NAME))
    for days in (0, 2, 4):
        compact_at(tmp_path, NAME, now_ms=NOW_MS + days * 86_400_000)
        assert newest_by_key(committed(tmp_path, NAME)) == before
        assert findings_of(tmp_path, NAME) == []
    table = TableReader(OsFilesystem(), f"{tmp_path}/{NAME}")
    sealed_end = table.snapshot().segments[-1].base
    left = [record for record in committed(tmp_path, NAME) if record.offset < min(sealed_end, limit_of(table))]
    assert all(record.value is not None for record in left)


def limit_of(table):
    """The first offset of a segment with an undecided one."""
    snapshot = table.snapshot()
    return next(
        (segment.base for segment in snapshot.segments if segment.next_offset > snapshot.last_stable_offset),
        snapshot.next_offset,
    )


def test_a_dry_run_says_the_same_and_changes_nothing(tmp_path):
    write_log(tmp_path, seed=1, places=PLACE)
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    trial = compact_at(tmp_path, NAME, is_trial=True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files
    real = compact_at(tmp_path, NAME)
    assert (trial.bytes, trial.segments, trial.records_removed) == (real.bytes, real.segments, real.records_removed)
    assert trial.is_dry_run
    assert not real.is_dry_run


def test_the_index_of_aborted_transactions_is_found_damaged_and_made_anew(tmp_path):
    with DataDirectory(OsFilesystem(), root=str(tmp_path), config=COMPACT) as disk:
        partition = disk.make(PLACE[0])
        writer = TransactionalWriter(disk, partition)
        for producer_id in (1, 2):
            writer.in_a_round(writer.write, producer_id, b"aborted")
        for producer_id in (1, 2):
            writer.in_a_round(writer.abort, producer_id)
        for _ in range(3):
            writer.in_a_round(writer.plain, b"x" * 1_400)
    compact_at(tmp_path, NAME)
    (index,) = (tmp_path / NAME).glob("*.g1.txnindex")
    before, rows = opened(tmp_path), index.read_bytes()
    assert [aborted.producer_id for aborted in before[-1]] == [1, 2]

    index.write_bytes(rows[:5] + bytes([rows[5] ^ 1]) + rows[6:])

    assert [str(finding.kind) for finding in findings_of(tmp_path, NAME)] == ["index-damaged"]
    assert opened(tmp_path) == before
    assert index.read_bytes() == rows
    assert findings_of(tmp_path, NAME) == []


def test_emptied_batches_are_read_only_where_nothing_else_is_left(tmp_path):
    with DataDirectory(OsFilesystem(), root=str(tmp_path), config=COMPACT) as disk:
        writer = TransactionalWriter(disk, disk.make(PLACE[0]))
        for producer_id in (1, 2):
            writer.in_a_round(writer.write, producer_id, b"aborted")
        for producer_id in (1, 2):
            writer.in_a_round(writer.abort, producer_id)
        for _ in range(3):
            writer.in_a_round(writer.plain, b"x" * 1_400)
    compact_at(tmp_path, NAME)
    with DataDirectory(OsFilesystem(), root=str(tmp_path), config=COMPACT, leader_epoch=9) as disk:
        read = disk.open(PLACE[0]).committed.read

        def offsets(offset, end_offset):
            content = read(offset, end_offset=end_offset, bytes_max=1 << 20, at_least_one_batch=True)
            return [header.base_offset for _, header in iter_headers(content)]

        assert offsets(0, 1) == [0]
        assert offsets(0, 2) == [0, 1]
        assert offsets(0, 3) == offsets(1, 3) == [2]
        assert offsets(0, 4) == [2, 3]
        assert offsets(4, 7)[-1] == 6, "in the next segment"


def test_a_rewritten_segment_that_is_damaged_is_found(tmp_path):
    write_log(tmp_path, seed=1, places=PLACE)
    compact_at(tmp_path, NAME)
    log = min((tmp_path / NAME).glob("*.g1.log"))
    content = log.read_bytes()
    for position in (3, 7, 30, len(content) - 1):
        log.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
        assert [finding for finding in findings_of(tmp_path, NAME) if finding.is_damage and finding.file == log.name]
    log.write_bytes(content[:-61])
    assert "bytes-missing" in [str(finding.kind) for finding in findings_of(tmp_path, NAME)]
    log.unlink()
    assert "segment-missing" in [str(finding.kind) for finding in findings_of(tmp_path, NAME)]


def test_the_lag_and_the_policy_of_a_topic_are_minded(tmp_path):
    write_log(tmp_path, seed=1, places=PLACE)
    newest = max(record.timestamp_ms for record in everything(tmp_path, NAME))
    young = replace(COMPACT, min_compaction_lag_ms=NOW_MS - newest + 100_000_000)
    assert compact_at(tmp_path, NAME, config=young).passes == 0
    old = replace(COMPACT, min_compaction_lag_ms=1)
    assert compact_at(tmp_path, NAME, config=old).records_removed > 0


@pytest.mark.parametrize("changed", [{"position": 7}, {"size": 61}, {"offset_end": 3}, {"segment": f"{0:020d}.log"}])
def test_a_rewriting_version_that_is_none_stops_the_partition_and_is_named(tmp_path, changed):
    write_log(tmp_path, seed=1, places=PLACE, removes=False)
    version = compact_at(tmp_path, NAME).version
    delta_log = tmp_path / NAME / "_delta_log"
    (delta_log / f"{version:020d}.checkpoint.json").unlink()
    document = delta_log / f"{version:020d}.json"
    commit = decode_commit(document.read_bytes(), path_hint=document.name).commit
    operations = [replace(each, **changed) if each.type == "add" else each for each in commit.operations]
    document.write_bytes(encode_commit(replace(commit, operations=tuple(operations))).document)

    with pytest.raises(DamageError, match=f"delta version {version}|{NAME}"):
        opened(tmp_path)
