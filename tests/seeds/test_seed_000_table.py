"""Seed 000 §7, the strategy of tests, a test a sentence, on the table without a broker; and the seed's own tests.

The sentences about HTTP and replication are tested where these are served.
"""

import os
import signal
import subprocess
import sys
import threading
from itertools import islice

import pytest

from exactlog.core.model.errors import DirectoryLockedError
from exactlog.log import Committed, Conflicted, DeltaStore, NewRecord, open_partition
from exactlog.log.errors import InvalidArgumentError, PartitionStoppedError, TransactionEndedError
from exactlog.storage.filesystem import OsFilesystem
from tests.support.by_hand import put_version_in_place


@pytest.fixture
def path(tmp_path):
    return tmp_path / "topic=orders-part=0"


@pytest.fixture
def orders(path):
    with open_partition(path) as orders:
        yield orders


def values(partition, **options):
    return [record.value for record in partition.read(0, **options)]


def documents(path):
    return sorted(entry.name for entry in (path / "_delta_log").iterdir())


def commit_name(version):
    return f"{version:020d}.json"


# --- §7.1 deltalog -----------------------------------------------------------------------------------------------


def test_a_commit_is_created(orders, path):
    """Unitários: criação de commit. The seed's own test: commit 0, then 1, and the files exist."""
    assert orders.current_version() == 0
    assert orders.append([b"a"]) == Committed(1, 0, 0)
    assert orders.append([b"b"]) == Committed(2, 1, 1)

    assert documents(path) == [commit_name(version) for version in range(3)]


def test_a_conflict_is_detected(orders, path):
    """Detecção de conflito. The seed's own test: a stale expected version conflicts, and nothing is written."""
    orders.append([b"a"], expected_version=0)
    before = documents(path)

    assert orders.append([b"b"], expected_version=0) == Conflicted(expected=0, actual=1)
    assert (documents(path), values(orders)) == (before, [b"a"])


def test_a_checkpoint_and_a_reload_give_the_same_state(orders, path):
    """Checkpoint + reload. The seed's own test: a checkpoint, then one commit more; replay = checkpoint + that one."""
    for number in range(21):
        orders.append([b"%d" % number], origin_id=7, origin_seq=number + 1)
    before = orders.load_state()
    orders.close()
    assert any(name.endswith(".checkpoint.json") for name in documents(path))

    with open_partition(path) as again:
        after = again.load_state()
        assert (after.version, after.segments, after.origins) == (before.version, before.segments, before.origins)
        assert values(again) == [b"%d" % number for number in range(21)]


# --- §7.2 logstore -----------------------------------------------------------------------------------------------


def test_recovery_truncates_extra_bytes_and_the_offsets_go_on(orders, path):
    """Teste de recovery truncando bytes extras e verificando offsets; its own test: orphan bytes are cut on reopen."""
    orders.append([b"a", b"b"])
    orders.close()
    (segment,) = path.glob("*.log")
    whole = segment.read_bytes()
    segment.write_bytes(whole + b"bytes of no delta commit")

    with open_partition(path) as again:
        assert segment.read_bytes() == whole
        assert again.append([b"c"]) == Committed(2, 2, 2)
        assert values(again) == [b"a", b"b", b"c"]


def test_aborted_bytes_are_not_visible(orders, path):
    """Commit abort → bytes não visíveis. The seed's own test: a commit after an abort is an error, nothing moves."""
    orders.append([b"a"])
    transaction = orders.append_transactional([b"never"])
    transaction.abort()

    with pytest.raises(TransactionEndedError, match="aborted"):
        transaction.commit()
    assert values(orders) == [b"a"]
    assert orders.load_state().next_offset == 1
    assert b"never" not in b"".join(log.read_bytes() for log in path.glob("*.log"))


# --- §7.3 broker -------------------------------------------------------------------------------------------------


def test_two_producers_that_expect_versions_lose_nothing(path):
    """Concorrência: simular dois produtores com OCC."""
    won = {b"ada": [], b"grace": []}

    def produce(name):
        with open_partition(path) as mine:
            for number in range(25):
                while True:
                    outcome = mine.append([b"%s %d" % (name, number)], expected_version=mine.current_version())
                    if isinstance(outcome, Committed):
                        won[name].append(outcome.version)
                        break

    threads = [threading.Thread(target=produce, args=(name,)) for name in won]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(won[b"ada"] + won[b"grace"]) == list(range(1, 51)), "each version was won once"
    with open_partition(path) as orders:
        found = values(orders)
    assert len(found) == 50
    for name in won:
        assert [value for value in found if value.startswith(name)] == [b"%s %d" % (name, n) for n in range(25)]


# --- §7.5 chaos and durability -----------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from exactlog.log import open_partition
from exactlog.storage import fault_points
orders = open_partition(sys.argv[1])
orders.append([b"acknowledged"])
fault_points.arm(sys.argv[2], lambda: os.kill(os.getpid(), signal.SIGKILL))
orders.append([b"lost"])
"""


@pytest.mark.parametrize(
    ("point", "is_there"),
    [
        ("storage.round.after_segment_write", False),
        ("storage.round.after_segment_sync", False),
        ("storage.publish.before_link", False),
        ("storage.publish.after_link", True),
    ],
)
def test_killed_between_data_and_commit_recovery_truncates(path, point, is_there):
    """Matar processo entre escrita de dados e commit → recovery garante truncamento."""
    process = subprocess.run([sys.executable, "-c", KILLED, str(path), point], check=False)
    assert process.returncode == -signal.SIGKILL
    expected = [b"acknowledged"] + [b"lost"] * is_there

    with open_partition(path, read_only=True) as reader:
        assert values(reader) == expected, "a reader beside it sees only what has a delta commit"
    with open_partition(path) as orders:
        assert values(orders) == expected
        (segment,) = path.glob("*.log")
        assert segment.stat().st_size == orders.load_state().segments[0].size
        orders.append([b"next"])
        assert values(orders) == [*expected, b"next"]


def test_without_the_newest_checkpoint_the_commits_rebuild_the_state(orders, path):
    """Remover checkpoint mais recente → replay de commits reconstroi estado."""
    for number in range(25):
        orders.append([b"%d" % number], txn_id=f"t{number}")
    before = orders.load_state()
    orders.close()
    newest = max(name for name in documents(path) if "checkpoint" in name)
    (path / "_delta_log" / newest).unlink()

    with open_partition(path) as again:
        assert again.load_state() == before
        assert again.append([b"3"], txn_id="t3") == Committed(4, 3, 3), "an old id is still known"


# --- the seed's own tests, and what its code gets wrong ----------------------------------------------------------


def test_an_empty_commit_is_an_error(orders):
    """The seed's own test."""
    with pytest.raises(InvalidArgumentError):
        orders.append([])
    with pytest.raises(InvalidArgumentError):
        orders.append_transactional([]).commit()
    assert orders.current_version() == 0


def test_a_payload_that_is_changed_after_the_append_keeps_its_old_bytes(orders):
    """The seed's own test."""
    payload = bytearray(b"old")
    transaction = orders.append_transactional([NewRecord(payload)])
    payload[:] = b"new"
    transaction.commit()

    assert values(orders) == [b"old"]


def test_the_store_of_the_seed_is_there_by_its_names(orders):
    """§3.2: CurrentVersion, BeginTransaction, Commit, Abort, LoadState, MaybeCheckpoint."""
    store = DeltaStore(orders)
    first, second = store.begin_transaction([b"a"]), store.begin_transaction()
    second.append([b"b"])

    assert store.commit(first, expected_version=store.current_version()) == Committed(1, 0, 0)
    assert store.commit(second, expected_version=0) == Conflicted(0, 1)
    dropped = store.begin_transaction([b"c"])
    store.abort(dropped)
    with pytest.raises(TransactionEndedError):
        store.commit(dropped)
    assert store.load_state().next_offset == 1
    assert store.maybe_checkpoint() in (True, False)


def test_a_commit_of_somebody_else_is_never_overwritten(orders, path):
    """The seed's own code renames over it; delta-io #7567, #1410, #683: both writers believe they won."""
    orders.append([b"a"])
    put_version_in_place(OsFilesystem(), str(path), b"of a stranger", txn_id="stranger:1")
    theirs = (path / "_delta_log" / commit_name(2)).read_bytes()

    with pytest.raises(PartitionStoppedError, match="stranger:1"):
        orders.append([b"mine"])
    assert (path / "_delta_log" / commit_name(2)).read_bytes() == theirs
    orders.close()


def test_every_append_is_a_delta_commit_and_is_there_after_a_restart(orders, path):
    """The seed's own code acknowledges a plain append, shows it, and cuts it off at the next start."""
    orders.append([b"plain"])
    orders.close()

    with open_partition(path, read_only=True) as again:
        assert values(again) == [b"plain"]


def test_version_zero_is_a_version(orders):
    """The seed's own code takes 0 for "no version"."""
    orders.append([b"a"])

    assert values(orders, as_of_version=0) == []
    assert values(orders, as_of_version=1) == [b"a"]


def test_an_empty_read_is_empty(orders):
    """The seed's own code cannot tell an empty read from one that ends where it was asked to begin."""
    orders.append([b"a"])

    assert list(orders.read(1)) == []
    assert [record.offset for record in orders.read(0)] == [0]


def test_bytes_that_are_no_text_come_back_as_they_were(orders):
    """The seed's own code mangles them unless asked for raw ones."""
    payload = bytes(range(256))
    orders.append([payload, ("key", b"\xff")])

    assert [(record.key, record.value) for record in orders.read(0)][-1] == (b"key", b"\xff")
    assert values(orders)[0] == payload


def test_a_retry_with_its_id_gets_the_first_result(orders, path):
    """The seed's own code plans txn_id and does not use it; delta-rs #268, delta #7345, delta-rs #2580: duplicates."""
    first = orders.append([b"a"], txn_id="app/1")
    orders.close()
    with open_partition(path) as again:
        assert again.append([b"a"], txn_id="app/1") == first
        assert values(again) == [b"a"]


def test_two_overwrites_from_one_snapshot_conflict_and_two_blind_appends_do_not(orders):
    """delta-rs #3622; connectors #489."""
    seen = orders.current_version()
    assert [type(orders.append([b"x"], expected_version=seen)) for _ in range(2)] == [Committed, Conflicted]
    assert [type(orders.append([b"x"])) for _ in range(2)] == [Committed, Committed]


WAITING = """
import sys
from exactlog.log import open_partition
orders = open_partition(sys.argv[1])
orders.append([b"of the other process"])
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_turned_away_naming_the_first_and_may_read(path):
    """The seed's own code lets both write, and the second silently overwrites the first."""
    process = subprocess.Popen(
        [sys.executable, "-c", WAITING, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert list(islice(process.stdout, 1)) == ["ready\n"]
        with pytest.raises(DirectoryLockedError, match=str(process.pid)):
            open_partition(path)
        with open_partition(path, read_only=True) as reader:
            assert values(reader) == [b"of the other process"]
        with pytest.raises(DirectoryLockedError):
            open_partition(path.parent / "topic=another-part=0")
    finally:
        process.communicate()
    with open_partition(path) as mine:
        assert mine.append([b"mine"]) == Committed(2, 1, 1)
    assert process.returncode == 0
    assert os.getpid() != process.pid
