"""Checks a history of a Kafka-compatible broker: whether what its clients saw is what Kafka promises.

    report = check.history("history.jsonl")
    assert report.is_clean, report

Every check is a function of the facts of a history and yields findings. They know what Kafka allows: a commit whose
outcome is unknown may be either, but whole; a fenced producer is refused; who reads uncommitted records is given those
of aborted transactions; a transaction may be empty, or outlast a restart. They hold for topics that are not compacted,
and for a broker that loses nothing it has acknowledged.
"""

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final

from exactlog.testing import check_offsets, check_reads, check_records, check_transactions
from exactlog.testing.check_facts import Facts, gather
from exactlog.testing.check_findings import Finding, Kind, Report
from exactlog.testing.history import History, load
from exactlog.testing.history_format import HistoryError

__all__ = ["CHECKS", "Finding", "HistoryError", "Kind", "Report", "events", "history"]

CHECKS: Final[tuple[Callable[[Facts], Iterator[Finding]], ...]] = (
    check_reads.aborted_reads,
    check_records.lost_writes,
    check_transactions.torn_transactions,
    check_records.duplicates,
    check_records.phantom_records,
    check_records.refused_writes,
    check_records.wrong_offsets,
    check_records.reordered_records,
    check_records.replay_differences,
    check_records.offsets_of_batches,
    check_transactions.contradicting_ends,
    check_transactions.fenced_producers,
    check_transactions.missing_markers,
    check_transactions.extra_markers,
    check_transactions.wrong_markers,
    check_transactions.epochs_and_sequences,
    check_reads.unstable_reads,
    check_reads.skipped_records,
    check_reads.nonmonotonic_reads,
    check_reads.values_read,
    check_reads.offsets_going_back,
    check_reads.stable_offsets,
    check_reads.aborted_lists,
    check_reads.aborted_list_order,
    check_offsets.group_offsets,
    check_offsets.copies,
)
"""Every check, the plainest findings first."""


def history(path: str | Path, *, allow: Collection[Kind] = ()) -> Report:
    """Check the history in a file.

    Args:
        path: of the file.
        allow: what is not worth a finding. Apache Kafka needs `Kind.ABORTED_LIST_UNSORTED`.

    Raises:
        HistoryError: the file is not a history, or contradicts itself: a value that was sent twice, an outcome
            without a request.
        OSError: it cannot be read.
    """
    return events(load(path), allow=allow)


def events(joined: History, *, allow: Collection[Kind] = ()) -> Report:
    """Check a history that is in memory; raises `HistoryError` as `history` does."""
    facts = gather(joined)
    return Report(tuple(finding for check in CHECKS for finding in check(facts) if finding.kind not in allow))
