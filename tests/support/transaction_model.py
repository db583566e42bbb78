"""A partition's log as a list of batches and markers: slow, obvious, and what transactions must look like by it."""

from msgspec import Struct

from exactlog.core.log.aborted_index_format import AbortedTransaction
from exactlog.core.log.producer_state import ProducerEntry, RememberedBatch
from tests.support.partitions import FIRST_MS

REMEMBERED = 5


class Entry(Struct, frozen=True):
    """A batch, or a marker where `is_commit` says how it ends a transaction."""

    offset: int
    count: int
    producer: int | None = None
    epoch: int = 0
    sequence: int = -1
    is_transactional: bool = False
    is_commit: bool | None = None
    coordinator_epoch: int = -1

    @property
    def end(self):
        return self.offset + self.count

    @property
    def is_marker(self):
        return self.is_commit is not None


def open_transactions(log):
    """The first offsets of the open transactions, by their producers."""
    found = {}
    for entry in log:
        if entry.is_marker:
            found.pop(entry.producer, None)
        elif entry.is_transactional:
            found.setdefault(entry.producer, entry.offset)
    return found


def end_of(log):
    return log[-1].end if log else 0


def stable_offset(log, log_start=0):
    """The last stable offset of a log that ends here."""
    return max(log_start, min(open_transactions(log).values(), default=end_of(log)))


def aborted_transactions(log, start, end):
    """The aborted transactions that reach into a range of offsets, by their beginnings."""
    found = []
    for index, entry in enumerate(log):
        if entry.is_commit is False:
            first = open_transactions(log[:index]).get(entry.producer)
            if first is not None and first < end and entry.offset >= start:
                stable = stable_offset(log[: index + 1])
                found.append(
                    AbortedTransaction(
                        producer_id=entry.producer,
                        first_offset=first,
                        last_offset=entry.offset,
                        last_stable_offset=stable,
                    )
                )
    return tuple(sorted(found, key=lambda aborted: aborted.first_offset))


def producer_entry(log, producer):
    """What the log says of one producer; None where it has written nothing."""
    mine = [entry for entry in log if entry.producer == producer]
    if not mine:
        return None
    epoch = mine[-1].epoch
    of_this_epoch = []
    for entry in reversed(mine):
        if entry.epoch != epoch:
            break
        of_this_epoch.insert(0, entry)
    batches = [
        RememberedBatch(entry.sequence, entry.sequence + entry.count - 1, entry.offset, entry.end - 1, FIRST_MS)
        for entry in of_this_epoch
        if entry.sequence >= 0
    ]
    return ProducerEntry(
        producer,
        epoch,
        next((entry.coordinator_epoch for entry in reversed(mine) if entry.is_marker), -1),
        FIRST_MS,
        tuple(batches[-REMEMBERED:]),
        open_transactions(log).get(producer),
    )


def producer_entries(log):
    """The producers of a checkpoint of this log."""
    producers = sorted({entry.producer for entry in log if entry.producer is not None})
    return tuple(producer_entry(log, producer) for producer in producers)
