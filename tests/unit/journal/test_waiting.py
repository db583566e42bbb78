"""The twin for code that waits: the same answers, without an event loop of the caller's."""

import pytest

from exactlog.journal import NO_STREAM, Conflict, Journals


@pytest.fixture
def journals(log_url):
    with Journals.open_sync(log_url) as journals:
        yield journals


def test_everything_waits(journals, topic):
    journal = journals[topic, "e"]
    told = journal.append([str(n) for n in range(1, 251)], NO_STREAM)

    assert told.seq_nr == 250
    assert [record.seq_nr for record in journal.read()] == list(range(1, 251))
    assert next(iter(journal.read(100))).seq_nr == 100
    with pytest.raises(Conflict):
        journal.append(["x"], NO_STREAM)
    assert list(journal.read_replicated()) == []
    with journal.for_writing(list, lambda state, event: [*state, event]) as entity:
        entity.append(str(len(entity.state) + 1))
    with journals.transaction() as transaction:
        pending = transaction.append(journals[topic, "other"], ["a"])
    assert pending.appended.seq_nr == 1
    assert journal.snapshot({"sum": 3}) == 251
    assert journal.latest_snapshot().state == {"sum": 3}
    assert journal.delete(250).offset > told.offset
    assert [record.event for record in journal.read()] == ["251"]
    assert [event.key_id for event in journals.subscribe(topic, follow=False)][-1] == "other"
    assert journals.purge_expired() == 0
    assert journal.mark("here").offset > 0
    journal.purge()
    assert journal.pointer() is None


def test_a_block_that_fails_does_nothing(journals, topic):
    with pytest.raises(RuntimeError), journals.transaction() as transaction:  # noqa: PT012  the block is what is tested
        transaction.append(journals[topic, "e"], ["x"])
        raise RuntimeError
    assert journals[topic, "e"].pointer() is None


def test_a_log_of_ones_own_and_a_store_in_a_file(tmp_path):
    log, store = f"embedded:{tmp_path / 'log'}", f"sqlite:///{tmp_path / 'journals.db'}"
    with Journals.open_sync(log, store=store, replicate=("",)) as journals:
        journals["orders", "order-7"].append(["placed", b"\x00", {"paid": 3}])
    with Journals.open_sync(log, store=store) as journals:
        records = list(journals["orders", "order-7"].read())
    assert [record.event for record in records] == ["placed", b"\x00", {"paid": 3}]


async def test_a_log_in_memory(topic):
    async with Journals.open("memory:") as journals:
        assert (await journals["orders", "order-7"].append(["placed"])).seq_nr == 1
