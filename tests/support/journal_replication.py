"""A replicator of event journals that crashes and is told things twice: logs, polls, and what the store is to be after.

A store without transactions can end anywhere within a step; one with transactions has all of a poll or nothing.
"""

from hypothesis import strategies as st
from msgspec.structs import replace

from exactlog.core.journal.batch_optimizer import optimize_actions
from exactlog.core.journal.expectation import ANY, EXISTS, NO_STREAM, Expectation
from exactlog.core.journal.expiry import ExpireAfter
from exactlog.core.journal.keys import JournalKey, SeqRange
from exactlog.core.journal.rows import DeleteRows, WriteRows
from exactlog.core.journal.segments import event_segments
from exactlog.core.model.ids import TopicPartition
from exactlog.testing.journal_store_contract.action_script import ActionScript, rows_of
from tests.support.naive_journal import journal_after

TOPIC, PARTITION = "topic", 1
"""A store that outlives a test wants other topics: see `topic` of what is below."""
IDS = ("a", "b", "c")
SMALL = st.integers(1, 9)


class CrashError(Exception):
    """The replicator has died."""


# --- a log ------------------------------------------------------------------------------------------------------------

EXPECTATIONS = st.one_of(
    st.just(ANY), st.just(ANY), st.just(NO_STREAM), st.just(EXISTS), st.builds(Expectation, seq_nr=SMALL)
)
ACTIONS = st.one_of(
    st.tuples(
        st.just("append"),
        st.integers(0, 3),  # a gap before it
        st.integers(1, 4),  # events
        st.sampled_from([0, 0, 0, 1, 3]),  # how far back, as a second writer goes
        st.none() | st.integers(1, 10**12).map(ExpireAfter),
    ),
    st.tuples(st.just("delete"), SMALL | st.just(2**63 - 1)),
    st.tuples(st.just("purge")),
    st.tuples(st.just("mark")),
)
LOGS = st.lists(st.tuples(st.sampled_from(IDS), ACTIONS, EXPECTATIONS), min_size=1, max_size=25)


def written(log, topic=TOPIC):
    """Each action at its offset; appends go on where their journal is, more or less."""
    records = []
    for offset, (key_id, action, expect) in enumerate(log):
        script = ActionScript(JournalKey(topic, key_id), partition=PARTITION, offset=offset)
        match action:
            case ("append", gap, count, back, expire_after):
                last = journal_after([record for record in records if record.key.id == key_id]).last
                first = max(last + 1 + gap - back, 1)
                numbers = range(first, min(first + count, 2**63))
                if not numbers:
                    continue
                timestamp_ms = 1_000 * offset
                record = script.append(*numbers, expire_after=expire_after, expect=expect, timestamp_ms=timestamp_ms)
            case ("delete", to):
                record = script.delete(to, expect=expect)
            case ("purge",):
                record = script.purge(expect=expect)
            case _:
                record = script.mark()
        records.append(record)
    return records


# --- a replicator that fails ------------------------------------------------------------------------------------------


POLLS = st.lists(
    st.fixed_dictionaries(
        {
            "records": st.integers(1, 8),
            "told_again": st.integers(0, 6),  # records from before the pointer
            "crash_at": st.none() | st.integers(0, 6),  # after so many steps
            "part": st.floats(0, 1),  # of the step at which it crashes
        }
    ),
    min_size=1,
    max_size=12,
)


async def replicate(opened, records, polls, crashing, *, topic=TOPIC):
    """Poll after poll, then the rest; after each that goes well the store is as the log up to there.

    Not when the one before had more, and died in the middle of it: then the store is ahead, for a part.
    """
    pointer = tried = 0  # in `records`
    whole = {"records": len(records), "told_again": 0, "crash_at": None, "part": 0}
    for poll in [*polls, whole, {**whole, "told_again": len(records)}]:
        start = max(pointer - poll["told_again"], 0)
        end = min(pointer + poll["records"], len(records))
        tried = max(tried, end)
        try:
            with crashing(poll["crash_at"], poll["part"]):
                await apply_to_all(opened.store, records[start:end], topic=topic, now_ms=end)
        except CrashError:
            pointer = start  # what it was at when this poll was told
            await check_between(opened, topic=topic)
            continue
        pointer = end
        await opened.store.topic(topic).partition(PARTITION).move_pointer(end, now_ms=end)
        if end == tried:
            await check(opened, records[:end], topic=topic)
    assert (await opened.store.pointer(TopicPartition(topic, PARTITION))).offset == len(records)


async def apply_to_all(store, records, *, topic, now_ms):
    partition = store.topic(topic).partition(PARTITION)
    for key_id in IDS:
        batches = optimize_actions([record for record in records if record.key.id == key_id])
        await partition.key(key_id).apply(batches, now_ms=now_ms)


async def check_between(opened, *, topic):
    """What readers meet after a crash: events may be missing at the front, none is doubled or of another life."""
    for key_id in IDS:
        key = JournalKey(topic, key_id)
        head = await opened.store.head(key)
        rows = await rows_of(opened.store, key)
        numbers = [row.seq_nr for row in rows]
        assert numbers == sorted(set(numbers))
        assert all(row.record_id == head.record_id and row.seq_nr <= head.seq_nr for row in rows)


async def check(opened, records, *, topic):
    for key_id in IDS:
        key = JournalKey(topic, key_id)
        wanted = journal_after([record for record in records if record.key == key])
        head = await opened.store.head(key)
        found = head and (head.seq_nr, head.delete_to, head.is_reset, head.record_id, head.offset, head.expiry)
        assert found == wanted.seen, key_id
        rows = await rows_of(opened.store, key)
        assert [(row.seq_nr, row.place.offset) for row in rows] == sorted(wanted.events.items())
        # nothing is left that nobody reads
        assert [number for number, _ in await opened.stored_events(key)] == sorted(wanted.events)


class Crashing:
    """Lets steps pass until it is time."""

    def __init__(self, carry_out):
        self.carry_out = carry_out
        self.left = None
        self.part = 0.0

    def __call__(self, *place_and_step):
        if self.left is None:
            return self.carry_out(*place_and_step)
        if self.left == 0:
            *place, step = place_and_step
            for part in parts_of(step, self.part):
                self.carry_out(*place, part)
            raise CrashError
        self.left -= 1
        return self.carry_out(*place_and_step)

    def at(self, left, part):
        self.left, self.part = left, part
        return self

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.left = None


def parts_of(step, part):
    """What of a step is done when it ends half-way: some rows, or rows of some segments, the last ones first."""
    match step:
        case WriteRows(rows=rows):
            yield replace(step, rows=rows[len(rows) - int(len(rows) * part) :])
        case DeleteRows(range=deleted, segment_size=size):
            segments = list(event_segments(SeqRange(deleted.first, min(deleted.last, 100)), size))
            for segment in segments[len(segments) - int(len(segments) * part) :]:
                first, last = max(deleted.first, segment * size + 1), min(deleted.last, (segment + 1) * size)
                yield replace(step, range=SeqRange(first, last))
        case _:
            return


class CrashingCoroutine(Crashing):
    """The same for a store whose steps are coroutines."""

    async def __call__(self, *place_and_step):
        if self.left is None:
            return await self.carry_out(*place_and_step)
        if self.left == 0:
            *place, step = place_and_step
            for part in parts_of(step, self.part):
                await self.carry_out(*place, part)
            raise CrashError
        self.left -= 1
        return await self.carry_out(*place_and_step)
