"""Who is read alone has its round at once; those that are read in one turn of the loop share one."""

import asyncio

import pytest

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import TopicPartition
from exactlog.core.model.metrics import Registry
from exactlog.storage.filesystem import MemoryFilesystem
from exactlog.storage.round_committer import RoundCommitter
from exactlog.storage.settings import FlushMode
from tests.support.partitions import DataDirectory, ManualClock, batch_of, decode_header


class Served:
    """One partition, whose rounds a committer runs on this loop."""

    def __init__(self, flush_mode):
        self.metrics = Registry()
        self.disk = DataDirectory(MemoryFilesystem(), flush_mode=flush_mode)
        self.committer = RoundCommitter(
            self.disk.engine,
            flush_mode=flush_mode,
            publishes_in_round=flush_mode is FlushMode.COMMIT,
            loop=asyncio.get_running_loop(),
            clock=ManualClock(),
            metrics=self.metrics,
            on_sync_failed=pytest.fail,
        )
        self.disk.store._mark_dirty = self.committer.mark_dirty
        self.partition = self.disk.make(TopicPartition("orders", 0))

    @property
    def rounds(self):
        return self.metrics.snapshot()["exactlog_rounds_total"]

    def read(self, reader):
        """Somebody's request is read, and a batch of it appended; gives where it is told that this is committed."""
        told = []
        batch = batch_of(b"value")
        self.committer.hold()
        self.partition.append(decode_header(batch), memoryview(batch), now_ms=0)
        self.partition.when_committed(told.append)
        self.committer.release(reader)
        return told

    def close(self):
        self.committer.stop()
        self.disk.close()


@pytest.fixture
async def serve():
    """Makes a `Served` of a flush mode; closed at the end."""
    made = []

    def make(flush_mode):
        made.append(Served(flush_mode))
        return made[-1]

    yield make
    for served in made:
        served.close()


@pytest.mark.parametrize("flush_mode", [FlushMode.INTERVAL, FlushMode.NONE])
async def test_who_is_read_alone_has_a_round_at_once(serve, flush_mode):
    served = serve(flush_mode)
    served.read("a")
    await served.committer.flush()

    for expected in (2, 3):
        assert served.read("a") == [ErrorCode.NONE]
        assert served.rounds == expected


@pytest.mark.parametrize("flush_mode", [FlushMode.INTERVAL, FlushMode.NONE])
async def test_those_that_are_read_in_one_turn_of_the_loop_share_a_round(serve, flush_mode):
    served = serve(flush_mode)

    told = [served.read(reader) for reader in ("a", "b", "c")]
    assert told == [[], [], []]
    await asyncio.sleep(0)

    assert told == [[ErrorCode.NONE]] * 3
    assert served.rounds == 1


async def test_who_is_read_again_takes_along_what_others_brought(serve):
    served = serve(FlushMode.NONE)

    told = [served.read(reader) for reader in ("a", "b", "b")]

    assert told == [[ErrorCode.NONE]] * 3
    await asyncio.sleep(0)
    assert served.rounds == 1


async def test_a_round_that_syncs_waits_for_the_loop_whoever_is_read(serve):
    served = serve(FlushMode.COMMIT)

    told = [served.read(reader) for reader in ("a", "a", "b")]

    assert told == [[], [], []]
    await served.committer.flush()
    assert told == [[ErrorCode.NONE]] * 3
    assert served.rounds == 1
