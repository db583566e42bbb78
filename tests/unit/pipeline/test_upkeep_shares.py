"""A store in shares: every journal is in one of them; a store that no task can open is refused before any begins."""

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.core.journal.expiry import ExpireAfter
from exactlog.core.journal.keys import JournalKey
from exactlog.core.journal.segments import SEGMENTS
from exactlog.core.model.errors import ConfigError, NotFoundError
from exactlog.journal.stores.errors import StoreUrlError
from exactlog.journal.stores.sqlite_store import SqliteJournalStore
from exactlog.pipeline.upkeep_stores import Share, open_share, reachable_url, shares_of
from exactlog.pipeline.upkeep_tasks import rounds_of
from exactlog.testing.journal_store_contract.action_script import ActionScript, apply

TOPIC = "flights"
IDS = [f"Flight-{number}" for number in range(60)] + ["", "İ", "polygenelubricants", "\U0001f6e9"]
SECOND = ExpireAfter(1_000_000_000)
LATER = date(2100, 1, 1)


@given(st.integers(1, 12_000))
def test_shares_have_every_segment_once(count):
    shares = shares_of(count)

    assert len(shares) == min(count, SEGMENTS)
    segments = [segment for share in shares for segment in share.segments()]
    assert sorted(segments) == list(range(SEGMENTS))


@given(st.lists(st.integers()), st.integers(1, 7))
def test_rounds_have_every_piece_in_its_order(pieces, at_a_time):
    rounds = list(rounds_of(pieces, at_a_time=at_a_time))

    assert [piece for some in rounds for piece in some] == pieces
    assert all(1 <= len(some) <= at_a_time for some in rounds)


@pytest.fixture
async def url(tmp_path):
    async with SqliteJournalStore(tmp_path / "journals.db") as store:
        for offset, key_id in enumerate(IDS):
            expire_after = SECOND if offset % 2 else None
            script = ActionScript(JournalKey(TOPIC, key_id), offset=offset)
            await apply(store, script.append(1, expire_after=expire_after))
    return reachable_url(f"sqlite:{tmp_path / 'journals.db'}", master="local[2]")


@pytest.mark.parametrize("count", [1, 2, 7, 500])
async def test_every_journal_and_every_one_that_is_due_is_in_one_share(url, count):
    ids, due = [], []
    for share in shares_of(count):
        async with open_share(url, share) as store:
            ids += [key_id async for key_id in store.ids(TOPIC)]
            due += [found.key.id async for found in store.due(TOPIC, through=LATER)]

    assert sorted(ids) == sorted(IDS)
    assert sorted(due) == sorted(IDS[1::2])


async def test_a_share_reads_and_writes_as_the_whole_store_does(url):
    async with open_share(url, Share(0, 500)) as store:
        for key_id in IDS:
            assert (await store.head(JournalKey(TOPIC, key_id))).seq_nr == 1


def test_the_url_of_a_file_is_that_of_any_folder(url, tmp_path, monkeypatch):
    absolute = f"sqlite:{tmp_path / 'journals.db'}"
    monkeypatch.chdir(tmp_path)

    for given_url in ("sqlite:journals.db", "sqlite:///journals.db", f"sqlite:///{tmp_path}/journals.db", absolute):
        assert reachable_url(given_url, master="local[*]") == absolute


@pytest.mark.parametrize("url", ["memory:", "file:journals.db", "sqlite:", "cassandra://", "nonsense"])
def test_stores_that_no_task_can_open_are_refused(url):
    with pytest.raises(StoreUrlError):
        reachable_url(url, master="local")


def test_a_file_is_refused_where_tasks_run_on_other_machines(url):
    with pytest.raises(ConfigError, match="is a file of one machine, and tasks run on those of spark://host:7077"):
        reachable_url(url, master="spark://host:7077")
    cassandra = "cassandra://host/keyspace"
    assert reachable_url(cassandra, master="spark://host:7077") == cassandra


def test_a_file_that_is_not_there_is_not_made(tmp_path):
    with pytest.raises(NotFoundError, match=r"nosuch\.db"):
        reachable_url(f"sqlite:{tmp_path}/nosuch.db", master="local")

    told = reachable_url(f"sqlite:{tmp_path}/nosuch.db", master="local", must_exist=False)
    assert told == f"sqlite:{tmp_path}/nosuch.db"
    assert list(tmp_path.iterdir()) == []
