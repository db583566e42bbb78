"""Mutants of what readers are given: the last stable offset, lists of aborted transactions, records, a restart."""

import json
from pathlib import Path

from msgspec.structs import replace

from exactlog.core.log import producer_state
from exactlog.core.log.producer_state import ProducerStates
from exactlog.core.record.batch_format import iter_headers
from exactlog.storage import committed_log, partition_store
from exactlog.storage.committed_log import CommittedLog
from tests.conformance.mutants.mutant_registry import OURS, every, mutant, wrap

# --- the last stable offset -----------------------------------------------------------------------------------------


def on_stable_end(patch, change):
    """`change(log, offset)` gives the last stable offset that is told."""

    def make(real):
        def move(self):
            real(self)
            self.last_stable_offset = change(self, self.last_stable_offset)

        return move

    wrap(patch, CommittedLog, "_move_stable_end", make)


@mutant("the last stable offset is the high watermark", "stable-offset-too-high")
def stable_is_high(patch, hit):
    def change(log, stable):
        if stable < log.end_offset:
            hit()
        return log.end_offset

    on_stable_end(patch, change)


@mutant("the last stable offset takes in the first open record", "stable-offset-too-high")
def stable_is_one_too_high(patch, hit):
    def change(log, stable):
        if stable < log.end_offset:
            hit()
            return stable + 1
        return stable

    on_stable_end(patch, change)


@mutant("the last stable offset goes back", "stable-offset-back")
def stable_goes_back(patch, hit):
    due = every(3)

    def change(log, stable):
        if stable > 4 and due():
            hit()
            return stable - 4
        return stable

    on_stable_end(patch, change)


@mutant("the last stable offset stays behind", "stable-offset-behind")
def stable_stays_behind(patch, hit):
    def change(log, stable):
        if stable > 1:
            hit()
            return stable - 1
        return stable

    on_stable_end(patch, change)


@mutant("committed readers are given everything", "early-read", "unstable-read")
def ignore_isolation(patch, hit):
    def make(real):
        def read(self, offset, *, end_offset, bytes_max, at_least_one_batch):
            if end_offset < self.end_offset:
                hit()
            return real(
                self, offset, end_offset=self.end_offset, bytes_max=bytes_max, at_least_one_batch=at_least_one_batch
            )

        return read

    wrap(patch, CommittedLog, "read", make)


# --- aborted lists --------------------------------------------------------------------------------------------------


def on_aborted(patch, change):
    """`change(real, segments, start, end)` in place of the look into the indexes."""
    wrap(patch, committed_log, "find_aborted", lambda real: lambda *asked: change(real, *asked))


@mutant("the aborted list is unsorted", "aborted-list-unsorted")
def unsort_aborted(patch, hit):
    def change(real, segments, start, end):
        found = real(segments, start, end)
        if len(found) > 1:
            hit()
        return tuple(reversed(found))

    on_aborted(patch, change)


@mutant("the aborted list leaves one out", "aborted-list-wrong")
def leave_one_out(patch, hit):
    def change(real, segments, start, end):
        found = real(segments, start, end)
        if found:
            hit()
        return found[:-1]

    on_aborted(patch, change)


@mutant("the aborted list leaves out what began before the fetch", "aborted-list-wrong")
def leave_out_what_began_before(patch, hit):
    def change(real, segments, start, end):
        found = real(segments, start, end)
        left = tuple(one for one in found if one.first_offset >= start)
        if left != found:
            hit()
        return left

    on_aborted(patch, change)


@mutant("the aborted list names what was over", "aborted-list-wrong")
def name_what_was_over(patch, hit):
    def change(real, segments, start, end):
        found = real(segments, 0, end)
        if any(one.last_offset < start for one in found):
            hit()
        return found

    on_aborted(patch, change)


# --- reading --------------------------------------------------------------------------------------------------------


def on_read(patch, change):
    """`change(batches)` of what is read: their bytes, in order."""

    def make(real):
        def read(self, offset, **how):
            content = bytes(real(self, offset, **how))
            batches = [content[at : at + header.size_bytes] for at, header in iter_headers(content, may_be_cut=True)]
            return b"".join(change(batches))

        return read

    wrap(patch, CommittedLog, "read", make)


@mutant("a fetch leaves out a batch", "skipped-record", "offsets-broken")
def skip_batches(patch, hit):
    due = every(3)

    def change(batches):
        if len(batches) > 2 and due():
            hit()
            return [*batches[:-2], batches[-1]]
        return batches

    on_read(patch, change)


@mutant("a fetch gives batches in another order", "nonmonotonic-read")
def swap_batches(patch, hit):
    due = every(3)

    def change(batches):
        if len(batches) > 2 and due():
            hit()
            return [batches[1], batches[0], *batches[2:]]
        return batches

    on_read(patch, change)


# --- starting again -------------------------------------------------------------------------------------------------


def on_recovery(patch, change):
    """`change(recovered)` of every partition of the workload that is opened with something in it."""

    def make(real):
        def recover(filesystem, files, directory, *, name, **how):
            recovered = real(filesystem, files, directory, name=name, **how)
            if OURS in name and recovered.table.next_offset:
                change(recovered)
            return recovered

        return recover

    wrap(patch, partition_store, "recover", make)


@mutant("a restart forgets open transactions", "stable-offset-too-high", "missing-marker", crashes=3)
def forget_open(patch, hit):
    def change(recovered):
        if recovered.producers.open_transactions():
            hit()
        entries = recovered.producers.snapshot()
        recovered.producers = ProducerStates([replace(entry, txn_start_offset=None) for entry in entries])

    on_recovery(patch, change)


@mutant("a restart forgets producers", "duplicate", "sequence-broken", "fenced-write", crashes=4)
def forget_producers(patch, hit):
    def change(recovered):
        hit()
        entries = recovered.producers.open_transactions()
        recovered.producers = ProducerStates([replace(entry, batches=()) for entry in entries])

    on_recovery(patch, change)
    patch.setattr(producer_state, "_judge_unknown_producer", lambda header, sequence_max: None)
    patch.setattr(producer_state, "_judge_sequence", lambda header, entry: None)


@mutant("a restart loses the last version", "lost-write", "high-watermark-back", "replay-differs", crashes=2)
def lose_the_last_version(patch, hit):
    def make(real):
        def recover(filesystem, files, directory, *, name, **how):
            if OURS in name:
                remove_last_version(Path(directory) / "_delta_log", hit)
            return real(filesystem, files, directory, name=name, **how)

        return recover

    wrap(patch, partition_store, "recover", make)


def remove_last_version(delta_log, hit):
    """The newest version that added records goes, and all behind it."""
    versions = sorted(path for path in delta_log.glob("*.json") if path.stem.isdigit())
    added = [
        path for path in versions if any(one["type"] == "add" for one in json.loads(path.read_text())["operations"])
    ]
    if not added:
        return
    hit()
    first = int(added[-1].stem)
    for path in delta_log.iterdir():
        number = path.name.split(".")[0]
        if number.isdigit() and int(number) >= first:
            path.unlink()
