"""Rounds on a real event loop: one at a time, what arrives meanwhile is the next, a failed one is final."""

import asyncio
import threading
from concurrent.futures import Future

import pytest

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import TopicPartition
from exactlog.core.model.metrics import Registry
from exactlog.core.model.topic_name import CONSUMER_OFFSETS, TRANSACTION_STATE
from exactlog.storage import round_committer
from exactlog.storage.filesystem import MemoryFilesystem
from exactlog.storage.round import StorageRefused, SyncFailed
from exactlog.storage.round_committer import RoundCommitter
from exactlog.storage.settings import FlushMode
from exactlog.testing.failing_filesystem import FailingFilesystem
from tests.support.counting_filesystem import CountingFilesystem
from tests.support.partitions import Ask, DataDirectory, ManualClock, batch_of, batches_of, decode_header, values_of

PATIENCE_S = 20


class GatedEngine:
    """Carries rounds out when a test lets it, as the test says."""

    is_atomic_across_partitions = False

    def __init__(self, engine):
        self._engine = engine
        self._may_end = threading.Semaphore(0)
        self._begun = threading.Semaphore(0)
        self.is_gated = False
        self.running = 0
        self.rounds = []
        self.outcome_of = lambda write: None

    def take_sync_seconds(self):
        return self._engine.take_sync_seconds()

    def commit(self, writes):
        assert self.running == 0, "two rounds at a time"
        self.running += 1
        self.rounds.append([write.name for write in writes])
        if self.is_gated:
            self._begun.release()
            assert self._may_end.acquire(timeout=PATIENCE_S)
        stored = self._engine.commit([write for write in writes if self.outcome_of(write) is None])
        outcomes = [self.outcome_of(write) or stored.pop(0) for write in writes]
        self.running -= 1
        return outcomes

    async def begun(self):
        assert await asyncio.to_thread(self._begun.acquire, timeout=PATIENCE_S)

    def let_end(self):
        self._may_end.release()


class Served:
    """Partitions whose rounds a committer runs on this loop."""

    def __init__(self, filesystem, flush_mode):
        self.failed_syncs = []
        self.metrics = Registry()
        self.disk = DataDirectory(filesystem, flush_mode=flush_mode)
        self.engine = GatedEngine(self.disk.engine)
        self.committer = RoundCommitter(
            self.engine,
            flush_mode=flush_mode,
            publishes_in_round=flush_mode is FlushMode.COMMIT,
            loop=asyncio.get_running_loop(),
            clock=ManualClock(),
            metrics=self.metrics,
            on_sync_failed=self.failed_syncs.append,
        )
        self.disk.store._mark_dirty = self.committer.mark_dirty

    def make(self, name="orders"):
        return self.disk.make(TopicPartition(name, 0))

    def append(self, partition, batch):
        ask = Ask(partition.append(decode_header(batch), memoryview(batch), now_ms=0))
        partition.when_committed(ask.tell)
        return ask

    def close(self):
        self.engine.let_end()
        self.committer.stop()
        self.disk.close()


@pytest.fixture
async def serve():
    """Makes a `Served` of a flush mode; closed at the end."""
    made = []

    def make(flush_mode=FlushMode.COMMIT, filesystem=None):
        made.append(Served(MemoryFilesystem() if filesystem is None else filesystem, flush_mode))
        return made[-1]

    yield make
    for served in made:
        served.close()


async def until(condition):
    """Lets the loop turn until something holds; the test's own timeout is the limit."""
    while not condition():  # noqa: ASYNC110  the loop under test is what turns
        await asyncio.sleep(0)


async def some_turns():
    for _ in range(5):
        await asyncio.sleep(0)


# --- one round at a time -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("flush_mode", FlushMode)
async def test_what_is_appended_is_committed_and_published(serve, flush_mode):
    served = serve(flush_mode)
    orders, others = served.make(), served.make("others")
    asks = [served.append(partition, batch) for partition in (orders, others) for batch in batches_of(3)]
    await served.committer.flush()

    assert [ask.offset for ask in asks] == [0, 1, 2, 0, 1, 2]
    assert orders.table.version == others.table.version == 1
    assert served.metrics.snapshot()["exactlog_delta_commits_total"] == 2


@pytest.mark.parametrize("flush_mode", FlushMode)
async def test_who_gathers_for_a_round_may_wait_for_another_one_though_nothing_was_written(serve, flush_mode):
    served = serve(flush_mode)
    gathered = []

    def gather():
        gathered.append(len(gathered))
        if len(gathered) < 3:
            served.committer.before_next_round(gather)

    served.committer.before_next_round(gather)
    await some_turns()
    assert gathered == [0, 1, 2]


@pytest.mark.parametrize("flush_mode", FlushMode)
async def test_what_nobody_waits_for_goes_along_with_the_next_round(serve, flush_mode):
    served = serve(flush_mode)
    partition = served.make()
    asks = []
    served.committer.with_next_round(lambda: asks.append(served.append(partition, batch_of(b"patient"))))
    await some_turns()
    assert asks == []
    asks.append(served.append(partition, batch_of(b"urgent")))
    await until(lambda: len(asks) == 2 and all(ask.offset is not None for ask in asks))

    assert served.metrics.snapshot()["exactlog_rounds_total"] == 1


@pytest.mark.parametrize("flush_mode", FlushMode)
async def test_what_nobody_waits_for_has_a_round_of_its_own_where_none_comes(serve, flush_mode):
    served = serve(flush_mode)
    partition = served.make()
    asks = []
    for name in (b"a", b"b"):
        served.committer.with_next_round(lambda name=name: asks.append(served.append(partition, batch_of(name))))
        await until(lambda: asks and asks[-1].offset is not None)
        asks.clear()

    assert served.metrics.snapshot()["exactlog_rounds_total"] == 2


@pytest.mark.parametrize("is_running", [False, True])
async def test_who_begins_to_wait_brings_about_the_round_also_while_another_one_runs(serve, monkeypatch, is_running):
    monkeypatch.setattr(round_committer, "PATIENCE_MS", 3_600_000)
    served = serve()
    partition = served.make()
    served.engine.is_gated = True
    if is_running:
        served.append(partition, batch_of(b"first"))
        await served.engine.begun()
    asks = []
    served.committer.with_next_round(lambda: asks.append(served.append(partition, batch_of(b"patient"))))
    served.committer.hurry()
    for _ in range(1 + is_running):
        served.engine.let_end()
    await until(lambda: asks and asks[0].offset is not None)

    assert len(served.engine.rounds) == 1 + is_running


async def test_who_asks_for_nothing_is_not_left_behind_by_a_flush(serve, monkeypatch):
    monkeypatch.setattr(round_committer, "PATIENCE_MS", 3_600_000)
    served = serve()
    partition = served.make()
    served.committer.with_next_round(lambda: served.append(partition, batch_of(b"patient")))
    await served.committer.flush()

    assert values_of(partition) == [b"patient"]


async def test_who_cannot_gather_keeps_nobody_from_the_round(serve, caplog):
    served = serve()
    partition = served.make()

    def break_down():
        raise ZeroDivisionError

    served.committer.before_next_round(break_down)
    ask = served.append(partition, batch_of(b"a"))
    await served.committer.flush()
    later = served.append(partition, batch_of(b"b"))
    await served.committer.flush()

    assert (ask.offset, later.offset) == (0, 1)
    assert "what was to go into a round" in caplog.text


async def test_a_partition_that_cannot_give_its_part_stops_and_who_waits_is_told(serve, monkeypatch):
    served = serve()
    broken, sound = served.make(), served.make("others")

    def break_down(*, now_ms):
        raise ZeroDivisionError

    monkeypatch.setattr(broken, "take_write", break_down)
    asks = [served.append(partition, batch_of(b"a")) for partition in (broken, sound)]
    await until(lambda: asks[1].offset is not None)

    assert asks[0].told is ErrorCode.KAFKA_STORAGE_ERROR
    assert "ZeroDivisionError" in broken.failure


async def test_a_partition_that_cannot_give_its_version_stops_and_the_others_are_published(serve, monkeypatch):
    served = serve(FlushMode.NONE)
    broken, sound = served.make(), served.make("others")

    def break_down(pending, *, now_ms):
        raise ZeroDivisionError

    monkeypatch.setattr(broken, "_close", break_down)
    for number in (1, 2):
        for partition in (broken, sound):
            served.append(partition, batch_of(b"a"))
        await served.committer.flush()
        assert sound.table.version == number

    assert "ZeroDivisionError" in broken.failure


async def test_what_decides_how_transactions_end_goes_first(serve):
    served = serve(FlushMode.NONE)
    partitions = [served.make(name) for name in ("orders", TRANSACTION_STATE, CONSUMER_OFFSETS)]
    for partition in partitions:
        served.append(partition, batch_of(b"a"))
    await served.committer.flush()

    assert served.engine.rounds[0] == [f"{TRANSACTION_STATE}-0", "orders-0", f"{CONSUMER_OFFSETS}-0"]


async def test_the_appends_of_one_turn_are_one_round(serve):
    served = serve()
    orders, others = served.make(), served.make("others")
    for batch in batches_of(3):
        served.append(orders, batch)
        served.append(others, batch_of(b"x"))
    await served.committer.flush()

    assert served.engine.rounds == [["orders-0", "others-0"]]
    assert served.metrics.snapshot()["exactlog_rounds_total"] == 1


async def test_what_arrives_during_a_round_is_the_next_one(serve):
    served = serve()
    served.engine.is_gated = True
    partition = served.make()
    first = served.append(partition, batch_of(b"a"))
    await served.engine.begun()
    rest = [served.append(partition, batch) for batch in batches_of(4)]
    served.engine.let_end()
    await served.engine.begun()

    assert first.offset == 0
    assert [ask.told for ask in rest] == [None] * 4
    served.engine.let_end()
    await served.committer.flush()
    assert [ask.offset for ask in rest] == [1, 2, 3, 4]
    assert len(served.engine.rounds) == 2
    assert partition.table.version == 2


async def test_the_loop_goes_on_while_a_round_is_in_flight(serve):
    served = serve()
    served.engine.is_gated = True
    served.append(served.make(), batch_of(b"a"))
    await served.engine.begun()
    await some_turns()
    served.engine.let_end()
    await served.committer.flush()


async def test_a_refused_round_never_lets_two_rounds_of_a_partition_overlap(serve):
    """What a refused partition drops, what others have waiting and what comes next must not end in two rounds at once:
    the second one's batches would be acknowledged when the first one ends.
    """
    served = serve()
    served.engine.is_gated = True
    refused, other = served.make("refused"), served.make("other")
    served.engine.outcome_of = lambda write: StorageRefused("full", 0) if write.name == "refused-0" else None
    lost = served.append(refused, batch_of(b"lost"))
    await served.engine.begun()
    second = served.append(other, batch_of(b"second"))
    # The round ends: in the same turn the refused partition gives up what it holds, and the next round begins.
    loop = asyncio.get_running_loop()
    third = []
    served.engine.let_end()
    while lost.told is None:
        await asyncio.sleep(0)
        if lost.told is not None:
            loop.call_soon(lambda: None)
            third.append(served.append(other, batch_of(b"third")))
    await served.engine.begun()
    await some_turns()
    assert (second.told, third[0].told) == (None, None)

    served.engine.let_end()
    await until(lambda: second.told is not None)

    assert second.offset == 0
    assert third[0].told is None, "its round has not even begun"
    served.engine.let_end()
    await served.committer.flush()
    assert third[0].offset == 1
    assert values_of(other) == [b"second", b"third"]


async def test_a_refused_partition_fails_alone(serve):
    served = serve()
    orders, others = served.make(), served.make("others")
    served.engine.outcome_of = lambda write: StorageRefused("full", 0) if write.name == "orders-0" else None
    asks = [served.append(partition, batch_of(b"a")) for partition in (orders, others)]
    await served.committer.flush()

    assert asks[0].error == ErrorCode.KAFKA_STORAGE_ERROR
    assert asks[1].offset == 0
    served.engine.outcome_of = lambda write: None
    again = served.append(orders, batch_of(b"again"))
    await served.committer.flush()
    assert again.offset == 0


async def test_a_partition_that_breaks_an_invariant_stops_alone(serve, monkeypatch, caplog):
    served = serve()
    broken, other = served.make("broken"), served.make("other")

    def fail(outcome, *, now_ms):
        raise AssertionError("an invariant of ours")

    monkeypatch.setattr(broken, "complete_write", fail)
    asks = [served.append(partition, batch_of(b"a")) for partition in (broken, other)]
    await served.committer.flush()

    assert asks[0].error == ErrorCode.KAFKA_STORAGE_ERROR
    assert "an invariant of ours" in broken.failure
    assert "an invariant of ours" in caplog.text
    assert asks[1].offset == 0
    assert served.append(other, batch_of(b"b")).told is None
    await served.committer.flush()


# --- what is final -----------------------------------------------------------------------------------------------


async def test_after_a_failed_sync_nobody_is_told_anything_and_no_round_runs(serve):
    served = serve()
    orders, others = served.make(), served.make("others")
    served.engine.outcome_of = lambda write: SyncFailed("the disk is gone") if write.name == "others-0" else None
    asks = [served.append(partition, batch_of(b"a")) for partition in (orders, others)]
    await until(lambda: served.failed_syncs)
    later = served.append(orders, batch_of(b"b"))
    await some_turns()

    assert served.failed_syncs == ["the disk is gone"]
    assert [ask.told for ask in (*asks, later)] == [None] * 3
    assert len(served.engine.rounds) == 1


@pytest.mark.parametrize("flush_mode", FlushMode)
async def test_an_engine_that_fails_in_a_way_nobody_foresaw_is_as_final(serve, flush_mode, caplog):
    served = serve(flush_mode)

    def fail(write):
        raise ZeroDivisionError("unforeseen")

    served.engine.outcome_of = fail
    ask = served.append(served.make(), batch_of(b"a"))
    await until(lambda: served.failed_syncs)

    assert "unforeseen" in served.failed_syncs[0]
    assert "unforeseen" in caplog.text
    assert ask.told is None


async def test_a_stopped_committer_tells_nobody_how_the_round_in_flight_ended(serve):
    served = serve()
    served.engine.is_gated = True
    ask = served.append(served.make(), batch_of(b"a"))
    await served.engine.begun()
    served.engine.let_end()
    served.committer.stop()
    await some_turns()

    assert ask.told is None


# --- interval and none -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flush_mode", [FlushMode.INTERVAL, FlushMode.NONE])
async def test_without_syncs_a_round_is_over_in_the_same_turn(serve, flush_mode):
    served = serve(flush_mode)
    partition = served.make()
    ask = served.append(partition, batch_of(b"a"))
    assert ask.told is None
    await asyncio.sleep(0)

    assert ask.offset == 0
    assert partition.table.version == 0
    await served.committer.flush()
    assert partition.table.version == 1


@pytest.mark.parametrize("flush_mode", [FlushMode.INTERVAL, FlushMode.NONE])
async def test_a_publication_the_disk_refuses_is_tried_again_and_holds_nobody_up(serve, flush_mode, monkeypatch):
    monkeypatch.setattr("exactlog.storage.round_committer.REFUSED_RETRY_DELAY_MS", 0)
    served = serve(flush_mode)
    orders = served.make()
    engine_commit = served.disk.engine.commit
    refusals = iter([True, True])

    def refuse_documents(writes):
        is_publication = any(group.commit is not None for write in writes for group in write.groups)
        if is_publication and next(refusals, False):
            return [StorageRefused("the disk is full", 0) for _ in writes]
        return engine_commit(writes)

    monkeypatch.setattr(served.disk.engine, "commit", refuse_documents)
    asks = [served.append(orders, batch) for batch in batches_of(3)]

    await until(lambda: orders.table.version == 1)

    assert [ask.offset for ask in asks] == [0, 1, 2]
    assert orders.failure is None
    assert served.metrics.snapshot()["exactlog_delta_commits_total"] == 1


async def test_versions_are_published_one_at_a_time(serve):
    served = serve(FlushMode.NONE)
    partition = served.make()
    for batch in batches_of(20):
        served.append(partition, batch)
        await asyncio.sleep(0)
    await served.committer.flush()

    assert partition.table.next_offset == 20
    assert partition.table.version < 5


async def test_interval_syncs_when_its_timer_says_so_and_at_the_end(serve):
    filesystem = CountingFilesystem(MemoryFilesystem())
    served = serve(FlushMode.INTERVAL, filesystem)
    partition = served.make()
    filesystem.clear()
    served.append(partition, batch_of(b"a"))
    await some_turns()
    assert filesystem.names("sync_data") == []

    served.committer.sync()
    await until(lambda: filesystem.names("sync_data"))
    await some_turns()
    filesystem.clear()
    served.committer.sync()
    await some_turns()
    assert filesystem.names("sync_data") == [], "nothing was written since"

    served.append(partition, batch_of(b"b"))
    await served.committer.flush()
    assert filesystem.names("sync_data") == ["sync_data"]


async def test_a_slow_sync_is_not_overtaken_by_the_next(serve):
    served = serve(FlushMode.INTERVAL)
    partition = served.make()
    served.append(partition, batch_of(b"a"))
    await asyncio.sleep(0)
    served.engine.is_gated = True
    served.committer.sync()
    await served.engine.begun()
    served.engine.is_gated = False
    served.committer.sync()
    served.committer.sync()
    await some_turns()
    assert len(served.engine.rounds) == 2

    served.engine.let_end()
    await served.committer.flush()


async def test_a_failed_interval_sync_is_final(serve):
    served = serve(FlushMode.INTERVAL)
    partition = served.make()
    served.append(partition, batch_of(b"a"))
    await asyncio.sleep(0)
    served.engine.outcome_of = lambda write: SyncFailed("the disk is gone")
    served.committer.sync()
    await until(lambda: served.failed_syncs)

    assert served.failed_syncs == ["the disk is gone"]


async def test_a_topic_deleted_before_its_sync_was_due_harms_nobody(serve):
    served = serve(FlushMode.INTERVAL)
    partition = served.make()
    served.append(partition, batch_of(b"a"))
    await served.committer.flush()
    served.append(partition, batch_of(b"b"))
    await asyncio.sleep(0)
    await partition.retire()
    served.disk.store.remove(partition.topic_partition, partition.table.metadata.topic_id)
    served.committer.sync()
    await served.committer.flush()

    assert served.failed_syncs == []


# --- bounds ------------------------------------------------------------------------------------------------------


async def test_reading_pauses_while_too_many_bytes_wait_and_goes_on_when_half_is_stored(serve):
    served = serve()
    served.engine.is_gated = True
    partition = served.make()
    calls = []
    size = len(batch_of(b"x" * 100))
    served.committer.bound_uncommitted(
        2 * size, pause=lambda: calls.append("pause"), resume=lambda: calls.append("resume")
    )
    served.append(partition, batch_of(b"x" * 100))
    await served.engine.begun()
    served.append(partition, batch_of(b"x" * 100))
    assert calls == []
    served.append(partition, batch_of(b"x" * 100))
    served.append(partition, batch_of(b"x" * 100))
    assert calls == ["pause"]

    served.engine.let_end()
    await served.engine.begun()
    assert calls == ["pause"], "three of four still wait"
    served.engine.let_end()
    await served.committer.flush()
    assert calls == ["pause", "resume"]


async def test_flushing_with_nothing_to_do_returns_at_once(serve):
    served = serve(FlushMode.INTERVAL)
    await served.committer.flush()
    served.committer.sync()

    assert served.engine.rounds == []


async def test_an_outcome_for_a_loop_that_is_gone_is_dropped():
    """A kill: the thread ends its round, the loop is closed, nobody is left to tell."""
    disk = DataDirectory()
    loop = asyncio.new_event_loop()
    committer = RoundCommitter(
        disk.engine,
        flush_mode=FlushMode.COMMIT,
        publishes_in_round=True,
        loop=loop,
        clock=ManualClock(),
        metrics=Registry(),
        on_sync_failed=pytest.fail,
    )
    disk.store._mark_dirty = committer.mark_dirty
    partition = disk.make()
    partition.append(decode_header(batch := batch_of(b"a")), memoryview(batch), now_ms=0)
    write = partition.take_write(now_ms=0)
    loop.close()
    ended = Future()
    committer._thread.submit(lambda: ended.set_result(None))
    committer._run([write], pytest.fail)
    committer.stop()

    assert ended.done()
    disk.restart()
    assert values_of(disk.open()) == [b"a"]
    disk.close()


# --- waiting for the versions of what is committed ------------------------------------------------------------------


async def test_who_waits_for_versions_waits_until_all_that_is_committed_has_one(serve):
    served = serve(FlushMode.NONE)
    partition = served.make()
    ask = served.append(partition, batch_of(b"a"))
    await until(lambda: ask.told is not None)
    assert partition.table.next_offset == 0

    assert await served.committer.published() == []

    assert partition.table.next_offset == 1
    assert await served.committer.published() == [], "there is nothing more"


async def test_nobody_waits_for_the_versions_of_a_topic_that_is_deleted(serve):
    served = serve(FlushMode.NONE)
    partition, other = served.make(), served.make("another")
    asks = [served.append(each, batch_of(b"a")) for each in (partition, other)]
    await until(lambda: all(ask.told is not None for ask in asks))
    retiring = asyncio.ensure_future(partition.retire())

    assert await served.committer.published() == []

    assert other.table.next_offset == 1
    await retiring


async def test_a_partition_that_has_stopped_is_told_of_each_time(serve):
    served = serve(FlushMode.NONE)
    partition = served.make()
    ask = served.append(partition, batch_of(b"a"))
    await until(lambda: ask.told is not None)
    partition.fail("somebody else writes there")

    assert await served.committer.published() == [partition]
    assert await served.committer.published() == [partition]


async def test_a_partition_whose_version_the_disk_refuses_is_told_of_until_it_has_it(serve):
    files = FailingFilesystem()
    served = serve(FlushMode.NONE, files)
    partition, other = served.make(), served.make("another")
    files.fail("link", path_pattern=f"{partition.directory}/*", times=1)
    asks = [served.append(each, batch_of(b"a")) for each in (partition, other)]
    await until(lambda: all(ask.told is not None for ask in asks))

    assert await served.committer.published() == [partition]
    served.committer._try_again(partition)

    assert await served.committer.published() == []
    assert (partition.table.next_offset, other.table.next_offset) == (1, 1)
