"""A record may leave a gap of any size: nobody walks through it, and nothing is kept of it.

What walked through one of these would not come to its end.
"""

import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exactlog.core.journal.batch_optimizer import optimize_actions
from exactlog.core.journal.head_summary import summarize
from exactlog.core.journal.key_journal import plan_batches
from exactlog.core.journal.key_plan import Terms
from exactlog.core.journal.keys import SEQ_NR_MAX
from exactlog.core.journal.partition_cache import PartitionCache
from exactlog.journal import Conflict, Envelope, ForkedJournalError, Journals, JournalSettings
from exactlog.journal.stores.memory_store import MemoryJournalStore
from exactlog.journal.stores.sqlite_store import SqliteJournalStore
from tests.support.event_journals import KEY, TOPIC_PARTITION, append, delete, purge
from tests.unit.journal.replicating import pointer_at, replicating

pytestmark = pytest.mark.timeout(60)

FAR = (1, 2, 2**40, 2**62, SEQ_NR_MAX - 1)


@pytest.fixture(params=["memory-2", "memory-10000", "sqlite-2", "sqlite-10000"])
async def store(request, tmp_path):
    kind, size = request.param.split("-")
    store = (
        MemoryJournalStore(segment_size=int(size))
        if kind == "memory"
        else SqliteJournalStore(str(tmp_path / "journals.db"), segment_size=int(size))
    )
    async with store:
        yield store


async def numbers(journal, *bounds):
    return [record.seq_nr async for record in journal.read(*bounds)]


@pytest.mark.parametrize("is_replicated", [False, True])
@pytest.mark.parametrize("head_cache", [False, True])
async def test_a_journal_with_gaps_as_wide_as_can_be_is_read_deleted_and_purged(
    log_url, store, topic, is_replicated, head_cache
):
    async with Journals.open(log_url, store=store, settings=JournalSettings(head_cache=head_cache)) as journals:
        journal = journals[topic, "e"]

        async def replicated():
            if is_replicated:
                place = await journal.mark("x")
                async with replicating(log_url, store, topic):
                    await pointer_at(store, topic, place.offset)

        for seq_nr in FAR:
            await journal.append([Envelope(str(seq_nr), seq_nr=seq_nr)])
        await replicated()
        assert await numbers(journal) == list(FAR)
        assert await numbers(journal, 3, 2**62) == [2**40, 2**62]
        assert await numbers(journal, 3, 2**40 - 1) == []
        with pytest.raises(Conflict) as refused:
            await journal.append(["x"], 2)
        assert [record.seq_nr for record in refused.value.events] == list(FAR[2:])
        with pytest.raises(ForkedJournalError):
            await journal.append([Envelope("x", seq_nr=2**61)])
        assert await journal.snapshot("state", seq_nr=2**61) == 2**61
        assert (await journal.append(["last"])).seq_nr == SEQ_NR_MAX
        await journal.delete(2**62)
        await replicated()
        assert await numbers(journal) == [SEQ_NR_MAX - 1, SEQ_NR_MAX]
        await journal.purge()
        await replicated()
        assert await numbers(journal) == []
        assert (await journal.append(["anew"])).seq_nr == 1


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(seq_nrs=st.lists(st.integers(1, SEQ_NR_MAX), min_size=1, max_size=6, unique=True).map(sorted))
def test_what_is_kept_and_done_depends_on_the_events_and_not_on_their_numbers(seq_nrs):
    records = [append(offset, seq_nr) for offset, seq_nr in enumerate(seq_nrs)]
    records += [delete(len(records), seq_nrs[-1]), purge(len(records) + 1)]
    terms = Terms(topic_partition=TOPIC_PARTITION, now_ms=1, segment_size=2)
    cache = PartitionCache(TOPIC_PARTITION, start=0)
    tracemalloc.start()
    try:
        head = None
        for record in records:
            plan = plan_batches(head, optimize_actions([record]), terms)
            head = plan.head
            assert len(plan.steps) <= 4
        cache.add(records, end=len(records))
        assert cache.steps <= len(records)
        assert summarize(TOPIC_PARTITION, records, start=0, end=len(records)).state_after(None) is None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1024 * 1024
    assert cache.get(KEY.id, end=len(records)).summary.size == 1
