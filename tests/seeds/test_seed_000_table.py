"""Seed 000 §7, the strategy of tests, a test a sentence, on the table without a broker; and the seed's own tests.

The sentences about HTTP (§7.4) and replication (the second of §7.3) are tested where these are served.
"""

import json
import signal
import subprocess
import sys
import threading
from itertools import islice

import pytest

from exactlog.core.model.errors import DamageError, DirectoryLockedError
from exactlog.core.record.batch_format import decode_header, place
from exactlog.log import Committed, Conflicted, DeltaStore, NewRecord, open_partition
from exactlog.log.errors import (
    InvalidArgumentError,
    PartitionClosedError,
    PartitionStoppedError,
    TransactionEndedError,
)
from exactlog.storage.filesystem import OsFilesystem
from tests.support.by_hand import put_version_in_place
from tests.support.partitions import DELTA_LOG, DIRECTORY, DataDirectory, batch_of, batches_of


@pytest.fixture
def path(tmp_path):
    return tmp_path / "topic=orders-part=0"


@pytest.fixture
def orders(path):
    with open_partition(path) as orders:
        yield orders


def values(partition, *bounds, **options):
    return [record.value for record in partition.read(*bounds, **options)]


def documents(path):
    return sorted(entry.name for entry in (path / "_delta_log").iterdir())


def commit_name(version):
    return f"{version:020d}.json"


def checkpoint_name(version):
    return f"{version:020d}.checkpoint.json"


def checkpoints(path):
    return [name for name in documents(path) if name.endswith(".checkpoint.json")]


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
    for number in range(11):
        orders.append([b"%d" % number], origin_id=7, txn_id=f"t{number}")
    before = orders.load_state()
    orders.close()
    (checkpoint,) = checkpoints(path)
    assert checkpoint == checkpoint_name(10)

    with open_partition(path) as again:
        assert again.load_state() == before
        assert values(again) == [b"%d" % number for number in range(11)]


def test_what_a_checkpoint_covers_is_not_read_from_the_commits_and_what_follows_it_is(orders, path):
    """Aplicar commits pendentes (§5.3): the last checkpoint, then the commits behind it, in order."""
    for number in range(12):
        orders.append([b"%d" % number])
    before = orders.load_state()
    orders.close()
    for version in range(10):
        (path / "_delta_log" / commit_name(version)).unlink()
    with open_partition(path, read_only=True) as reader:
        assert reader.load_state() == before

    (path / "_delta_log" / commit_name(11)).unlink()
    with pytest.raises(DamageError, match="11"), open_partition(path) as broken:
        broken.current_version()


def test_with_an_interval_of_one_every_commit_has_a_checkpoint():
    """The seed's own test: with an interval of 1 the first commit makes one, whose next offset is 1."""
    with DataDirectory(checkpoint_interval=1) as disk:
        partition = disk.make()
        disk.commit(partition, *batches_of(1))
        document = json.loads(disk.filesystem.read_file(f"{DELTA_LOG}/{checkpoint_name(1)}"))

    assert (document["version"], document["segments"][0]["next_offset"]) == (1, 1)
    with open_partition(DIRECTORY, filesystem=disk.filesystem) as table:
        assert (table.current_version(), table.load_state().next_offset) == (1, 1)


def test_maybe_checkpoint_writes_one_when_one_is_due_and_only_then(orders, path):
    """§3.2 MaybeCheckpoint, §2.3 "a cada 10 commits"; its own test: a checkpoint of the newest version, once."""
    for number in range(20):  # at 20 the one at 10 is too young for another, unless somebody asks
        orders.append([b"%d" % number])
    assert checkpoints(path) == [checkpoint_name(10)]

    assert orders.maybe_checkpoint()
    assert checkpoints(path) == [checkpoint_name(10), checkpoint_name(20)]
    assert not orders.maybe_checkpoint(), "nothing is due"
    orders.append([b"more"])
    assert not orders.maybe_checkpoint(), "nothing is due before version 30"
    assert len(checkpoints(path)) == 2


# --- §7.2 logstore -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["rubbish", "zeros", "a whole batch", "half a batch"])
def test_recovery_truncates_extra_bytes_and_the_offsets_go_on(orders, path, kind):
    """Teste de recovery truncando bytes extras e verificando offsets; its own test: orphan bytes are cut on reopen."""
    orders.append([b"a", b"b"])
    orders.close()
    (segment,) = path.glob("*.log")
    whole = segment.read_bytes()
    orphan = batch_of(b"of no delta commit")
    place(orphan, decode_header(orphan), base_offset=2, leader_epoch=0)
    extra = {"rubbish": b"~" * 99, "zeros": bytes(4096), "a whole batch": orphan, "half a batch": orphan[:40]}[kind]
    segment.write_bytes(whole + extra)

    with open_partition(path, read_only=True) as reader:
        assert values(reader) == [b"a", b"b"]
    with open_partition(path) as again:
        assert segment.read_bytes() == whole
        assert again.append([b"c"]) == Committed(2, 2, 2)
        assert values(again) == [b"a", b"b", b"c"]
        assert [record.offset for record in again.read(0)] == [0, 1, 2]


def test_recovery_heeds_no_index_rows_that_nobody_committed(orders, path):
    """Truncar bytes não confirmados em `.log`/`.index` comparando com o snapshot (§4.1)."""
    written = [b"%05d" % number * 1_000 for number in range(12)]
    for value in written:
        orders.append([value])
    orders.close()
    (index,) = path.glob("*.index")
    index.write_bytes(index.read_bytes() + b"\xff" * 24)

    with open_partition(path, read_only=True) as reader:
        assert [value for offset in range(12) for value in values(reader, offset, offset + 1)] == written
    with open_partition(path) as again:
        again.append([b"next"])
        assert [value for offset in range(13) for value in values(again, offset, offset + 1)] == [*written, b"next"]


def test_aborted_bytes_are_not_visible(orders, path):
    """Commit abort → bytes não visíveis. The seed's own test: a commit after an abort is an error, nothing moves."""
    orders.append([b"a"])
    transaction = orders.append_transactional([b"never"])
    transaction.abort()

    with pytest.raises(TransactionEndedError, match="aborted"):
        transaction.commit()
    with pytest.raises(TransactionEndedError, match="aborted"):
        transaction.append([b"more"])
    with pytest.raises(TransactionEndedError, match="aborted"):
        transaction.abort()
    assert values(orders) == values(orders, isolation="read_uncommitted") == [b"a"]
    assert orders.load_state().next_offset == 1
    assert orders.append([b"b"]) == Committed(2, 1, 1)
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
    assert store.maybe_checkpoint()
    assert not store.maybe_checkpoint()
    with open_partition(orders.directory) as other, pytest.raises(InvalidArgumentError, match="another partition"):
        store.commit(other.append_transactional([b"d"]))
    with store:
        pass
    with pytest.raises(PartitionClosedError):
        store.current_version()


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


def test_a_commit_without_its_bytes_is_refused_by_name_and_not_taken_for_an_empty_version(orders, path):
    """The seed's own code takes over a commit of another node without its bytes, and cannot be opened again."""
    orders.append([b"a"])
    whole = orders.load_state().segments[0].size
    orders.append([b"b"])
    orders.close()
    (segment,) = path.glob("*.log")
    segment.write_bytes(segment.read_bytes()[:whole])
    before = documents(path)

    with pytest.raises(DamageError, match=r"version 2\b") as refused:
        open_partition(path)
    assert refused.value.hint
    assert (documents(path), segment.stat().st_size) == (before, whole), "nothing is changed"
    with open_partition(path, read_only=True) as reader, pytest.raises(DamageError):
        values(reader)


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
