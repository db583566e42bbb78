"""What a region needs of a log: every backend gives it alike."""

import pytest

from exactlog.core.model.errors import ExactlogError, NotFoundError, OffsetOutOfRangeError
from exactlog.core.wal.region_topics import TOPIC_CONFIGS
from exactlog.wal.ports import WriterFencedError
from tests.contract.wal_backends import BACKENDS, backend_of, new_namespace


@pytest.fixture(params=BACKENDS)
async def backend(request, tmp_path):
    async with backend_of(request.param, tmp_path, request) as found:
        yield found


@pytest.fixture
async def topic(backend):
    name = f"{new_namespace()}_data_1"
    await backend.create_topic(name, TOPIC_CONFIGS)
    return name


@pytest.fixture
async def writer(backend, topic):
    return await backend.writer(f"writer of {topic}")


async def values(backend, topic, start=None, end=None):
    bounds = await backend.bounds(topic)
    start = bounds.start if start is None else start
    return [record.value async for record in backend.read(topic, start, bounds.end if end is None else end)]


async def test_a_topic_that_was_created_is_listed_with_its_settings(backend, topic):
    assert topic in await backend.list_topics()
    configs = await backend.topic_configs(topic)
    assert {name: configs[name] for name in TOPIC_CONFIGS} == TOPIC_CONFIGS


async def test_a_topic_that_is_there_stays_as_it_is(backend, topic, writer):
    await writer.append(topic, [(b"k", b"v")])

    await backend.create_topic(topic, {"retention.ms": "1000"})

    assert await values(backend, topic) == [b"v"]
    assert (await backend.topic_configs(topic))["retention.ms"] == "-1"


async def test_what_is_not_there_is_not_found(backend):
    with pytest.raises(NotFoundError):
        await backend.topic_configs("nowhere")


async def test_a_new_topic_is_empty(backend, topic):
    bounds = await backend.bounds(topic)

    assert (bounds.start, bounds.stable_end, bounds.end) == (0, 0, 0)
    assert await values(backend, topic) == []


async def test_records_lie_where_their_append_says(backend, topic, writer):
    first = await writer.append(topic, [(b"a", b"1"), (b"b", b"2")])
    second = await writer.append(topic, [(b"c", b"3")])
    bounds = await backend.bounds(topic)

    records = [record async for record in backend.read(topic, 0, max(bounds.end, second[-1] + 1))]

    assert [record.offset for record in records] == [*first, *second]
    assert [(record.key, record.value) for record in records] == [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")]
    assert first == [0, 1]
    assert second[0] >= 2


async def test_a_read_is_of_the_offsets_it_names(backend, topic, writer):
    offsets = await writer.append(topic, [(b"k", bytes([number])) for number in range(5)])

    assert await values(backend, topic, offsets[1], offsets[3]) == [b"\x01", b"\x02"]
    assert await values(backend, topic, offsets[3], offsets[3]) == []


async def test_what_was_appended_is_read_at_once(backend, topic, writer):
    for number in range(20):
        (offset,) = await writer.append(topic, [(b"k", str(number).encode())])

        assert await values(backend, topic, offset, offset + 1) == [str(number).encode()]


async def test_an_append_of_many_records_is_whole(backend, topic, writer):
    offsets = await writer.append(topic, [(b"k", bytes(1_000))] * 3_000)

    assert offsets == list(range(3_000))
    assert len(await values(backend, topic, end=3_000)) == 3_000


async def test_records_that_were_deleted_are_gone(backend, topic, writer):
    offsets = await writer.append(topic, [(b"k", bytes([number])) for number in range(5)])

    await backend.delete_before(topic, offsets[3])

    assert (await backend.bounds(topic)).start == offsets[3]
    assert await values(backend, topic, end=offsets[-1] + 1) == [b"\x03", b"\x04"]
    with pytest.raises(OffsetOutOfRangeError) as refused:
        await values(backend, topic, 0)
    assert refused.value.oldest == offsets[3]


async def test_deleting_never_runs_backwards(backend, topic, writer):
    offsets = await writer.append(topic, [(b"k", bytes([number])) for number in range(5)])
    await backend.delete_before(topic, offsets[3])

    await backend.delete_before(topic, offsets[1])

    assert (await backend.bounds(topic)).start == offsets[3]


async def test_everything_can_be_deleted_and_offsets_go_on(backend, topic, writer):
    offsets = await writer.append(topic, [(b"k", b"1"), (b"k", b"2")])
    await backend.delete_before(topic, offsets[-1] + 1)
    assert await values(backend, topic) == []

    (behind,) = await writer.append(topic, [(b"k", b"3")])

    assert behind > offsets[-1]
    assert await values(backend, topic, end=behind + 1) == [b"3"]


async def test_whoever_takes_the_id_fences_the_writer_before(backend, topic, writer):
    await writer.append(topic, [(b"k", b"first")])
    other = await backend.writer(f"writer of {topic}")

    with pytest.raises(WriterFencedError):
        await writer.append(topic, [(b"k", b"late")])
    with pytest.raises(WriterFencedError):
        await writer.append(topic, [(b"k", b"later")])

    (last,) = await other.append(topic, [(b"k", b"second")])
    assert await values(backend, topic, end=last + 1) == [b"first", b"second"]
    await writer.close()


async def test_writers_of_other_ids_do_not_meet(backend, topic, writer):
    other = await backend.writer(f"another writer of {topic}")

    await other.append(topic, [(b"k", b"1")])
    (last,) = await writer.append(topic, [(b"k", b"2")])

    assert await values(backend, topic, end=last + 1) == [b"1", b"2"]


async def test_an_append_that_is_refused_leaves_nothing_and_the_writer_goes_on(backend, topic, writer):
    with pytest.raises(ExactlogError):
        await writer.append("no name / of a topic", [(b"k", b"1")])

    (last,) = await writer.append(topic, [(b"k", b"2")])

    assert await values(backend, topic, end=last + 1) == [b"2"]
