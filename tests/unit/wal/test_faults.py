"""What a region does when the program dies, or an append fails, at each step of a write, a snapshot and a clean-up."""

import asyncio

import pytest

from exactlog.core.model.errors import UnavailableError
from exactlog.wal import MemoryBackend, RegionFenced, Wal, WriteOutcomeUnknownError
from tests.unit.wal.failing_backend import CrashedError, FailingBackend

NAMESPACE = "ts"
DATA, META = "ts_data_1", "ts_meta_1"


def opened(backend):
    return Wal.open(backend, namespace=NAMESPACE, clean_interval_s=None)


async def story(backend):
    """Writes of two tables, a mark, a clean-up, a drop: every step that a region has. What was promised, on the way."""
    promised = {"written": {}, "marked": {}}
    wal = await opened(backend).__aenter__()
    region = await wal.open_region(1, create=True)
    yield promised
    promised["written"][3] = await region.write(3, [b"a", b"b", b"c"])
    yield promised
    promised["written"] |= await region.write_batch({3: [b"d"], 4: [b"x", b"y"]})
    yield promised
    await region.mark_deleted(3, 2, durable=True)
    promised["marked"][3] = 2
    yield promised
    promised["written"][4] = await region.write(4, [b"z"])
    yield promised
    await region.clean()
    yield promised
    await region.mark_deleted(3, 4)
    await region.clean()
    promised["marked"][3] = 4
    yield promised
    await region.drop_table(4)
    promised["marked"][4] = 3
    yield promised
    await wal.close()


async def promised_before_crash(backend):
    promised = {"written": {}, "marked": {}}
    try:
        async for so_far in story(backend):
            promised = so_far
    except CrashedError:
        return promised
    pytest.fail("it was to crash")


PAYLOADS = {3: [b"a", b"b", b"c", b"d"], 4: [b"x", b"y", b"z"]}


async def count_steps():
    backend = FailingBackend()
    async for _ in story(backend):
        pass
    return backend.steps


STEPS = asyncio.run(count_steps())


def test_the_story_has_every_kind_of_step():
    kinds = {(step.split()[0], step.split()[1].rstrip(":"), step.split()[2]) for step in STEPS}

    assert kinds == {
        (action, topic, when)
        for action in ("create", "append", "delete")
        for topic in (DATA, META)
        for when in ("before", "after")
    }


@pytest.mark.parametrize("step", range(len(STEPS)), ids=lambda step: f"{step} {STEPS[step]}")
async def test_a_crash_at_any_step_loses_nothing_that_was_promised(step):
    store = MemoryBackend()
    backend = FailingBackend(store, crash_at=step)
    promised = await promised_before_crash(backend)

    async with opened(store) as wal:
        region = await wal.open_region(1, create=True)
        for table, payloads in PAYLOADS.items():
            last = await region.sequence_num(table)
            assert last >= promised["written"].get(table, 0)
            if not last:
                continue
            entries = [(entry.sequence, entry.payload) async for entry in region.read(table)]
            first = entries[0][0] if entries else last + 1
            assert entries == [(number, payloads[number - 1]) for number in range(first, last + 1)]
            assert first >= promised["marked"].get(table, 0) + 1
        if await region.sequence_num(3):
            before = await region.sequence_num(3)
            assert await region.write(3, [b"next"]) == before + 1


async def test_a_write_of_several_tables_is_whole_or_not_at_all():
    for step in range(len(STEPS)):
        store = MemoryBackend()
        await promised_before_crash(FailingBackend(store, crash_at=step))
        async with opened(store) as wal:
            region = await wal.open_region(1, create=True)
            assert (await region.sequence_num(3) == 4) == (await region.sequence_num(4) >= 2)


async def test_a_snapshot_is_durable_before_records_are_deleted():
    snapshots = [index for index, step in enumerate(STEPS) if step == f"append {META}: after"]
    deletions = [index for index, step in enumerate(STEPS) if step == f"delete {DATA}: before"]

    assert deletions
    for deletion in deletions:
        since = max(index for index in snapshots if index < deletion)
        assert not [step for step in STEPS[since:deletion] if step.startswith(f"append {DATA}")]


# --- appends that fail -------------------------------------------------------------------------------------------


@pytest.fixture
async def failing():
    return FailingBackend()


@pytest.fixture
async def region(failing):
    async with opened(failing) as wal:
        yield await wal.open_region(1, create=True)


async def payloads_of(region, table):
    return [(entry.sequence, entry.payload) async for entry in region.read(table)]


async def test_a_write_that_failed_takes_no_sequence(failing, region):
    await region.write(3, [b"a"])
    failing.fail = "before"
    with pytest.raises(UnavailableError):
        await region.write(3, [b"b"])

    assert await region.write(3, [b"b"]) == 2
    assert await payloads_of(region, 3) == [(1, b"a"), (2, b"b")]


async def test_a_write_whose_answer_was_lost_is_found_out_about_and_not_written_twice(failing, region):
    failing.fail = "unknown"

    assert await region.write(3, [b"a", b"b"]) == 2
    assert await region.write(3, [b"c"]) == 3
    assert await payloads_of(region, 3) == [(1, b"a"), (2, b"b"), (3, b"c")]


async def test_a_write_that_turns_out_not_to_count_may_be_tried_again(failing, region):
    failing.fail = "unknown-lost"
    with pytest.raises(UnavailableError, match="did not come through") as failed:
        await region.write(3, [b"a"])
    assert failed.value.retryable

    assert await region.write(3, [b"a"]) == 1


@pytest.mark.parametrize(("how", "last"), [("unknown", 2), ("unknown-lost", 0)])
async def test_a_write_of_which_nothing_is_known_is_found_out_about_by_the_next_call(failing, region, how, last):
    failing.fail, failing.settling_fails = how, 1
    with pytest.raises(WriteOutcomeUnknownError) as unknown:
        await region.write(3, [b"a", b"b"])
    assert not unknown.value.retryable
    assert unknown.value.region == 1

    assert await region.sequence_num(3) == last
    assert await region.write(3, [b"c"], expected_last=last) == last + 1


async def test_while_nothing_can_be_found_out_nothing_is_written(failing, region):
    failing.fail, failing.settling_fails = "unknown", 2
    with pytest.raises(WriteOutcomeUnknownError):
        await region.write(3, [b"a"])
    with pytest.raises(UnavailableError):
        await region.write(3, [b"b"])

    assert await region.write(3, [b"b"]) == 2
    assert await payloads_of(region, 3) == [(1, b"a"), (2, b"b")]


async def test_a_snapshot_whose_answer_was_lost_does_not_stop_writes(failing, region):
    await region.write(3, [b"a"])
    failing.fail, failing.settling_fails = "unknown", 1
    with pytest.raises(WriteOutcomeUnknownError):
        await region.mark_deleted(3, 1, durable=True)

    assert await region.write(3, [b"b"]) == 2


async def test_writes_that_come_while_one_is_under_way_are_the_next_append(failing, region):
    before = len(failing.steps)

    last = await asyncio.gather(*(region.write(3, [b"%d" % number]) for number in range(50)))

    appends = [step for step in failing.steps[before:] if step == f"append {DATA}: before"]
    assert sorted(last) == list(range(1, 51))
    assert len(appends) < 10


async def test_a_refused_write_does_not_take_the_others_of_its_group_along(region):
    await region.write(9, [b"x"])
    await region.drop_table(9)

    results = await asyncio.gather(
        *(region.write(table, [b"a"]) for table in (1, 9, 2)),
        region.write(1, [b"b"], expected_last=7),
        return_exceptions=True,
    )

    assert [result if isinstance(result, int) else result.code for result in results] == [
        1,
        "table-dropped",
        1,
        "sequence-conflict",
    ]


async def test_whoever_is_cancelled_does_not_take_a_write_back(failing, region):
    writing = asyncio.create_task(region.write(3, [b"a"]))
    await asyncio.sleep(0)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing

    assert await region.write(3, [b"b"]) >= 1
    assert [payload for _, payload in await payloads_of(region, 3)][-1] == b"b"


async def test_a_fenced_owner_stays_fenced(failing, region):
    await region.write(3, [b"a"])
    async with opened(failing) as other:
        await other.open_region(1)
        for _ in range(2):
            with pytest.raises(RegionFenced):
                await region.write(3, [b"b"])
        assert not region.is_usable
        with pytest.raises(RegionFenced):
            await region.drop_table(3)
