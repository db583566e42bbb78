"""A crash at every write of one idempotent batch: what is saved of its producer and what the log alone tells agree.

A client that is killed between its data and its saved sequence cannot tell any more what it has sent (B122, franz-go
c7cc61e2); a broker must not get there: the log alone is enough.
"""

from random import Random

import pytest

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.storage.settings import FlushMode
from exactlog.testing import Crashed, FailingFilesystem
from tests.support.partitions import DataDirectory, copy_of, remove_checkpoints, sequenced, state_of, values_of

CONFIG = TopicConfig(segment_bytes=300, index_interval_bytes=100)
BATCH = b"the batch"


class Attempt:
    """One attempt to append the batch behind so many others, ended at one operation on files."""

    def __init__(self, flush_mode, *, before):
        self.settings = {"config": CONFIG, "flush_mode": flush_mode, "checkpoint_interval": 4}
        self.filesystem = FailingFilesystem(sector_bytes=16)
        self.filesystem.make_directories("/data")
        self.filesystem.sync_directory("/")
        self.disk = DataDirectory(self.filesystem, **self.settings)
        self.partition = self.disk.make()
        self.sequence = before
        self.values = [b"%06d" % number for number in range(before)]
        for number, value in enumerate(self.values):
            self.disk.commit(self.partition, sequenced(7, number, value))
            self.disk.publish(self.partition)
        self.before = state_of(self.partition)

    def run(self):
        """Sends the batch; returns its offset, if its producer was told one."""
        ask = self.disk.append(self.partition, self.batch())
        try:
            self.disk.run_round()
            self.disk.publish(self.partition)
        except Crashed:
            pass
        return ask.offset

    def batch(self):
        return sequenced(7, self.sequence, BATCH)

    def check(self, left, *, told):
        """What is left has the batch or has it not, from every start alike; sent again, it is there once."""
        rebuilt = copy_of(left)
        remove_checkpoints(rebuilt)
        with DataDirectory(left, **self.settings) as disk, DataDirectory(rebuilt, **self.settings) as other:
            partition, from_log_alone = disk.open(), other.open()
            assert state_of(from_log_alone) == state_of(partition)
            found = values_of(partition)
            assert found in (self.values, [*self.values, BATCH])
            assert told is None or found[-1] == BATCH
            if found == self.values:
                assert state_of(partition) == self.before
            assert disk.commit(partition, self.batch()) == self.sequence
            assert values_of(partition) == [*self.values, BATCH]
            assert disk.commit(partition, sequenced(7, self.sequence + 1, b"next")) == self.sequence + 1


def steps(flush_mode, *, before):
    attempt = Attempt(flush_mode, before=before)
    attempt.filesystem.clear()
    assert attempt.run() == before
    attempt.disk.close()
    return attempt.filesystem.steps


@pytest.mark.parametrize("before", [0, 2, 3, 4, 6, 7])
@pytest.mark.parametrize("flush_mode", FlushMode)
def test_a_producer_is_known_from_the_log_alone_as_from_what_was_saved(flush_mode, before):
    """Behind a checkpoint, at one, at the beginning of a segment and within it."""
    crashes = 0
    for step in range(steps(flush_mode, before=before)):
        attempt = Attempt(flush_mode, before=before)
        attempt.filesystem.clear()
        attempt.filesystem.crash_at(step)
        told = attempt.run()
        attempt.disk.close()
        attempt.check(attempt.filesystem.after_kill(), told=told)
        if flush_mode is FlushMode.COMMIT:
            for random in (None, Random(step)):
                attempt.check(attempt.filesystem.after_power_cut(random), told=told)
        crashes += 1
    assert crashes >= 2
