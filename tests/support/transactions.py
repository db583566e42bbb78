"""Transactions of one partition, written straight into its log: what its coordinator and its producers make of it."""

import asyncio

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.record.batch_format import decode_header
from exactlog.core.record.control_record_format import TransactionMarker
from exactlog.storage.partition_log import AppendRefused
from tests.support.partitions import FIRST_MS, batch_of


class TransactionalWriter:
    """Producers that write into the partition of a `DataDirectory`, each with its next sequence."""

    def __init__(self, disk, partition):
        self.disk = disk
        self.partition = partition
        self._sequences = {}

    def write(self, producer_id, *values, timestamp_ms=FIRST_MS, is_transactional=True, **fields):
        """A batch of a transaction, which begins with it if there is none; to be committed by the next round."""
        sequence = self._sequences.get(producer_id, 0)
        self._sequences[producer_id] = sequence + len(values)
        batch = batch_of(
            *values,
            timestamp_ms=timestamp_ms,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=is_transactional,
            **fields,
        )
        return self._check(
            self.partition.append(
                decode_header(batch), memoryview(batch), now_ms=self.disk.clock.now_ms(), is_verified=True
            )
        )

    def end(self, producer_id, *, is_commit, coordinator_epoch=0):
        """The marker that ends a producer's transaction; to be committed by the next round."""
        return self._check(
            self.partition.append_marker(
                TransactionMarker(is_commit=is_commit, coordinator_epoch=coordinator_epoch),
                producer_id=producer_id,
                producer_epoch=0,
                transaction_version=0,
                now_ms=self.disk.clock.now_ms(),
            )
        )

    def commit(self, producer_id):
        """A committed transaction's marker."""
        return self.end(producer_id, is_commit=True)

    def abort(self, producer_id):
        """An aborted transaction's marker."""
        return self.end(producer_id, is_commit=False)

    def plain(self, *values, **fields):
        """A batch of no transaction."""
        batch = batch_of(*values, **fields)
        return self._check(
            self.partition.append(decode_header(batch), memoryview(batch), now_ms=self.disk.clock.now_ms())
        )

    def in_a_round(self, append, *args, **fields):
        """Any of the above, in a round, so in a version, of its own; its offset."""
        offset = append(*args, **fields)
        self.disk.run_round()
        return offset

    def _check(self, outcome):
        assert not isinstance(outcome, AppendRefused), outcome
        told = []
        self.partition.when_committed(told.append)
        assert told in ([], [ErrorCode.NONE])
        return outcome.base_offset


class BrokerWriter:
    """The same on a partition of a running broker of `exactlog.testing`; an append has its version when it returns."""

    def __init__(self, broker, topic, *, partition=0):
        self._broker = broker
        self._topic = topic
        self._index = partition
        self._sequences = {}

    def write(self, producer_id, *values, timestamp_ms=None, is_transactional=True, epoch=0, **fields):
        """A batch of a transaction, which begins with it if there is none; its offset."""
        sequence = self._sequences.get((producer_id, epoch), 0)
        self._sequences[producer_id, epoch] = sequence + len(values)
        return self.append(
            batch_of(
                *values,
                timestamp_ms=self._time_of(timestamp_ms),
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                is_transactional=is_transactional,
                **fields,
            )
        )

    def plain(self, *values, timestamp_ms=None, **fields):
        """A batch of no transaction; its offset."""
        return self.append(batch_of(*values, timestamp_ms=self._time_of(timestamp_ms), **fields))

    def append(self, batch):
        """Any batch; its offset."""
        return self._carry_out(
            lambda partition, now_ms: partition.append(
                decode_header(batch), memoryview(batch), now_ms=now_ms, is_verified=True
            )
        )

    def end(self, producer_id, *, is_commit, epoch=0, coordinator_epoch=0):
        """The marker that ends a producer's transaction; its offset."""
        return self._carry_out(
            lambda partition, now_ms: partition.append_marker(
                TransactionMarker(is_commit=is_commit, coordinator_epoch=coordinator_epoch),
                producer_id=producer_id,
                producer_epoch=epoch,
                transaction_version=0,
                now_ms=now_ms,
            )
        )

    def commit(self, producer_id, **fields):
        """A committed transaction's marker; its offset."""
        return self.end(producer_id, is_commit=True, **fields)

    def abort(self, producer_id, **fields):
        """An aborted transaction's marker; its offset."""
        return self.end(producer_id, is_commit=False, **fields)

    def _time_of(self, timestamp_ms):
        """Records are as old as their markers: else these begin a new segment."""
        return self._broker.clock.now_ms() if timestamp_ms is None else timestamp_ms

    def _carry_out(self, append):
        async def work():
            services = self._broker._running_node().services
            await services.topics.open(self._topic, self._index)
            partition = services.topics.partition(self._topic, self._index)
            outcome = append(partition, services.clock.now_ms())
            assert not isinstance(outcome, AppendRefused), outcome
            committed = asyncio.get_running_loop().create_future()
            partition.when_committed(committed.set_result)
            assert await committed is ErrorCode.NONE
            await services.rounds.flush()
            return outcome.base_offset

        return self._broker._call(work)
