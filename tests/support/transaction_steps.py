"""Transactions as whole steps, in both versions of the protocol, for cases that ask what comes of them."""

from contextlib import contextmanager

from exactlog.broker.coordinator.transaction_fault_points import END_AFTER_PREPARE
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.record.batch_format import iter_headers
from exactlog.core.record.record_format import decode_records
from tests.support.isolated_reader import COMMITTED, read_on, values
from tests.support.raw_transactions import (
    COMMIT,
    WITH_IMPLICIT_ADD,
    WITHOUT_IMPLICIT_ADD,
    TransactionalProducer,
    describe,
)

NONE = ErrorCode.NONE
ENDED = {"CompleteCommit", "CompleteAbort"}
COMES_BACK_TO = {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
"""What InitProducerId is asked again after."""


def open_producer(raw, transactional_id, *, version=5, **settings):
    """A producer that has the transactional id, whatever its last owner left open."""
    producer = TransactionalProducer(raw, transactional_id, **settings)
    while (error := producer.init(version=version)) is not NONE:
        assert error in COMES_BACK_TO
    return producer


def state_of(raw, transactional_id):
    """The name of the state that is committed."""
    return describe(raw, transactional_id).transaction_state


def settle(raw, transactional_id):
    """Waits until nothing is on its way for a transactional id; its state."""
    while (state := state_of(raw, transactional_id)) in {"PrepareCommit", "PrepareAbort"}:
        pass
    return state


class Flow:
    """One version of the protocol: how a producer writes and ends.

    Attributes:
        version: 1 names partitions beforehand; 2 (KIP-890) does not, and has an epoch for each transaction.
        produce_version, end_version: of Produce and EndTxn.
    """

    def __init__(self, version):
        self.version = version
        self.produce_version = WITH_IMPLICIT_ADD if version > 1 else WITHOUT_IMPLICIT_ADD
        self.end_version = 5 if version > 1 else 4

    def __repr__(self):
        return f"TV{self.version}"

    def write(self, producer, *writes):
        """Writes (topic, index, values...) in a transaction, which begins with it; the error of each."""
        if self.version == 1:
            added = producer.add(*[(topic, index) for topic, index, *_ in writes])
            if set(added) != {NONE}:
                return added
        return producer.produce(*writes, version=self.produce_version)

    def move(self, producer, group_id, topic, offset, **place):
        """Commits an offset in the transaction; the error."""
        if self.version > 1:
            return producer.commit_offsets(group_id, topic, offset, **place)
        added = producer.add_offsets(group_id)
        return added if added is not NONE else producer.commit_offsets(group_id, topic, offset, version=3, **place)

    def end(self, producer, outcome=COMMIT):
        """Commits or aborts, without waiting for the markers; the error."""
        return producer.end(outcome, version=self.end_version)

    def finish(self, producer, outcome=COMMIT):
        """Commits or aborts, and waits until readers can see it."""
        assert self.end(producer, outcome) is NONE
        assert settle(producer.raw, producer.transactional_id) in ENDED


FLOWS = (Flow(1), Flow(2))


def visible(raw, topic, partition=0):
    """The values that a reader of committed records finds."""
    return values(read_on(raw, topic, partition=partition))


def all_batches(raw, topic, partition=0, *, offset=0):
    """(header, records) of everything that is in a partition from an offset on, markers too."""
    found = []
    while len(data := raw.fetch(topic, offset, partition=partition).records):
        for position, header in iter_headers(data):
            found.append((header, list(decode_records(data, position, header=header))))
        offset = found[-1][0].next_offset
    return found


def ends(raw, topic, partition=0):
    """(last stable offset, high watermark)."""
    listed = [raw.list_offset(topic, -1, partition=partition, isolation_level=level) for level in (COMMITTED, 0)]
    assert [found.error_code for found in listed] == [0, 0]
    return tuple(found.offset for found in listed)


@contextmanager
def no_markers():
    """Keeps every outcome that is decided meanwhile from going on to its markers: it stays prepared.

    Where it ends, the broker tries again after a second.
    """

    def refuse():
        END_AFTER_PREPARE.arm(refuse)
        raise OSError("no markers for now")

    END_AFTER_PREPARE.arm(refuse)
    try:
        yield
    finally:
        END_AFTER_PREPARE.disarm()
