"""The sentences of seed 000 about storage at work: each is quoted by the test that holds it.

§5.1 to §5.3 (writing, reading, recovery), §6 (concurrency and isolation) and §7 (its test strategy) as far as one
broker goes. The formats themselves are held by the tests of §1 to §3.
"""

import errno
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.model.error_code import ErrorCode
from exactlog.storage.filesystem import OsFilesystem
from exactlog.storage.round import ForeignVersion, StorageRefused, Stored
from exactlog.storage.table_reader import TableReader
from tests.architecture.tree import PROJECT
from tests.support.counting_filesystem import CountingFilesystem
from tests.support.partitions import DataDirectory, batch_of, batches_of, remove_checkpoints, state_of, values_of

VERSIONS = 25


class Partition:
    """One partition in a real directory."""

    def __init__(self, root, *, node_id=1):
        self.directory = root / "topic=orders-part=0"
        self.delta_log = self.directory / "_delta_log"
        self.segment = self.directory / f"{0:020d}.log"
        self.index = self.directory / f"{0:020d}.index"
        self.filesystem = CountingFilesystem(OsFilesystem())
        self.disk = DataDirectory(
            self.filesystem, root=str(root), config=TopicConfig(index_interval_bytes=200), node_id=node_id
        )
        self.log = self.disk.make()

    def reopen(self):
        self.disk.restart()
        self.log = self.disk.open()
        return self.log

    def document(self, version):
        return json.loads(self.commit_file(version).read_bytes())

    def commit_file(self, version):
        return self.delta_log / f"{version:020d}.json"

    def size(self):
        return self.segment.stat().st_size

    def documents_read(self):
        """The names of the documents that were read, in order."""
        return [Path(op.path).name for op in self.filesystem.operations if op.name == "read_file"]


@pytest.fixture
def partition(tmp_path):
    made = Partition(tmp_path)
    yield made
    made.disk.close()


@pytest.fixture
def filled(partition):
    partition.disk.commit(partition.log, *batches_of(VERSIONS))
    return partition


# --- §5.1 Escrita transacional -----------------------------------------------------------------------------------


def test_bytes_are_written_before_the_operations_that_name_them(partition):
    """Escreve bytes no segmento ativo (com flush local).

    Constrói `operations` usando offsets/segment positions.
    """
    partition.filesystem.clear()
    partition.disk.commit(partition.log, batch_of(b"a", b"b"))

    names = partition.filesystem.names("write_at", "sync_data", "link")
    assert names == ["write_at", "sync_data", "write_at", "link"]
    (operation,) = partition.document(1)["operations"]
    assert (operation["segment"], operation["position"]) == (f"{0:020d}.log", 0)
    assert (operation["offset_start"], operation["offset_end"]) == (0, 1)
    assert operation["size"] == partition.size()


def test_success_answers_the_offsets_and_failure_removes_the_bytes(filled):
    """Em caso de sucesso, responde offsets finais; em falha, `Abort` remove bytes (truncate)."""
    assert filled.disk.commit(filled.log, batch_of(b"x", b"y")) == VERSIONS
    size = filled.size()

    def refuse(operation):
        if operation.name == "link":
            raise OSError(errno.ENOSPC, "No space left on device")

    filled.filesystem.before = refuse
    ask = filled.disk.append(filled.log, batch_of(b"refused"))
    filled.disk.run_round()
    filled.filesystem.before = lambda operation: None

    assert ask.error == ErrorCode.KAFKA_STORAGE_ERROR
    assert filled.size() == size


# --- §5.2 Leitura consistente ------------------------------------------------------------------------------------


def test_only_committed_offsets_are_read(filled):
    """`partitionLog.readRecords` somente expõe offsets ≤ `snapshot.LastCommittedOffset`."""
    filled.disk.append(filled.log, batch_of(b"not committed"))
    ((_, write),) = filled.disk.take_round()
    filled.disk.engine._files.write_bytes(write)

    assert filled.log.table.freeze().last_offset == VERSIONS - 1
    content = filled.log.committed.read(VERSIONS, end_offset=1_000, bytes_max=1_000, at_least_one_batch=True)
    assert content == b""
    assert len(values_of(filled.log)) == VERSIONS


def test_a_reader_of_the_directory_uses_one_snapshot_and_never_goes_back(filled):
    """Replicas lendo diretamente dos segmentos usam mesmo snapshot, garantindo leitores monotônicos."""
    ends = []
    for batch in batches_of(5):
        table = TableReader(filled.filesystem, str(filled.directory))
        filled.disk.commit(filled.log, batch)
        assert len(list(table.read())) == table.snapshot().next_offset
        ends.append(table.snapshot().next_offset)

    assert ends == list(range(VERSIONS, VERSIONS + 5))


# --- §5.3 Recuperação --------------------------------------------------------------------------------------------


def test_a_start_reads_the_newest_checkpoint(filled):
    """Ao iniciar, `deltalog.LoadState`: lê checkpoint mais recente."""
    filled.disk.restart()
    filled.filesystem.clear()
    filled.disk.open()

    read = filled.documents_read()
    assert read[0] == f"{20:020d}.checkpoint.json"
    assert sum("checkpoint" in name for name in read) == 1


def test_a_start_applies_the_remaining_commits_in_order(filled):
    """aplica commits restantes em ordem (ordenar por nome de arquivo)."""
    filled.disk.restart()
    filled.filesystem.clear()
    filled.disk.open()

    read = filled.documents_read()
    assert read[:2] == [f"{20:020d}.checkpoint.json", f"{20:020d}.json"], "the two must be of one history"
    assert read[2:] == [f"{version:020d}.json" for version in range(21, VERSIONS + 1)]


def test_a_start_rebuilds_segments_origins_and_the_next_offset(filled):
    """Reconstrói `segments`, `originSeq` e `nextOffset`."""
    before = filled.log.table.freeze()

    after = filled.reopen().table.freeze()

    assert (after.segments, after.origins, after.next_offset) == (before.segments, before.origins, before.next_offset)
    assert after == before
    assert [(origin.origin_id, origin.last_seq) for origin in after.origins] == [(1, VERSIONS)]


@pytest.mark.parametrize("surplus", [b"\0" * 5_000, b"half a batch"])
def test_a_start_truncates_bytes_behind_the_last_committed_offset(filled, surplus):
    """Trunca arquivos `.log/.index` usando `fs.Truncate` caso tenham bytes além do último offset confirmado."""
    size = filled.size()
    for path in (filled.segment, filled.index):
        path.write_bytes(path.read_bytes() + surplus)

    reopened = filled.reopen()

    assert filled.size() == size
    assert len(values_of(reopened)) == VERSIONS
    filled.disk.commit(reopened, *batches_of(5))  # up to the next checkpoint: it writes the rows that are still to come
    assert filled.index.stat().st_size == 8 * reopened.segments[0].index.row_counts[0]


# --- §6 Controle de concorrência e isolamento --------------------------------------------------------------------


def test_a_commits_file_is_made_only_when_it_is_not_there_yet(filled):
    """Operação de commit só cria arquivo `%020d.json` se ainda não existir; caso exista, outro produtor venceu
    (conflito).
    """
    winner = Partition(filled.directory.parent / "winner", node_id=2)
    winner.disk.commit(winner.log, *batches_of(VERSIONS + 1))
    theirs = winner.commit_file(VERSIONS + 1).read_bytes()
    filled.commit_file(VERSIONS + 1).write_bytes(theirs)

    ask = filled.disk.append(filled.log, batch_of(b"loser"))
    (outcome,) = filled.disk.run_round()

    assert isinstance(outcome, ForeignVersion)
    assert outcome.version == VERSIONS + 1
    assert (outcome.our_txn_id[:9], outcome.their_txn_id[:9]) == ("broker-1:", "broker-2:")
    assert ask.error == ErrorCode.KAFKA_STORAGE_ERROR
    assert filled.commit_file(VERSIONS + 1).read_bytes() == theirs
    winner.disk.close()


def test_the_txn_id_makes_a_retry_idempotent(filled):
    """`TxnID` usado para idempotência de retries."""
    ask = filled.disk.append(filled.log, batch_of(b"once"))
    round_ = filled.disk.take_round()
    writes = [write for _, write in round_]
    assert filled.disk.engine.commit(writes) == [Stored()]

    filled.disk.complete_round(round_, filled.disk.engine.commit(writes))

    assert ask.offset == VERSIONS
    assert values_of(filled.reopen()).count(b"once") == 1


def test_a_transaction_that_was_not_persisted_may_be_applied_again(filled):
    """(broker pode reaplicar transação se confirmar que não foi persistida)."""
    first = filled.disk.append(filled.log, batch_of(b"again"))
    round_ = filled.disk.take_round()
    filled.disk.complete_round(round_, [StorageRefused("no room", 0)])
    assert first.error == ErrorCode.KAFKA_STORAGE_ERROR

    assert filled.disk.commit(filled.log, batch_of(b"again")) == VERSIONS
    assert values_of(filled.reopen()).count(b"again") == 1


def test_readers_use_immutable_snapshots(filled):
    """Leitores sempre examinam `currentVersion` e só usam snapshots imutáveis → efeito MVCC simples."""
    table = TableReader(filled.filesystem, str(filled.directory))
    snapshot, seen = table.snapshot(), list(table.read())
    filled.disk.commit(filled.log, *batches_of(20))

    assert table.snapshot() == snapshot
    assert list(table.read()) == seen
    assert TableReader(filled.filesystem, str(filled.directory)).snapshot().version == snapshot.version + 20


# --- §7 Estratégia de testes -------------------------------------------------------------------------------------


def test_creation_of_commits_and_checkpoint_and_reload(filled):
    """**Unitários**: criação de commit, detecção de conflito, checkpoint + reload."""
    assert sorted(path.name for path in filled.delta_log.iterdir()) == sorted(
        [
            *(f"{version:020d}.json" for version in range(VERSIONS + 1)),
            *(f"{version:020d}.checkpoint.json" for version in (10, 20)),
        ]
    )
    before = state_of(filled.log)

    assert state_of(filled.reopen()) == before


def test_recovery_truncates_extra_bytes_and_the_offsets_are_right(filled):
    """teste de recovery truncando bytes extras e verificando offsets."""
    filled.segment.write_bytes(filled.segment.read_bytes() + batch_of(b"of no version"))

    reopened = filled.reopen()

    assert reopened.high_watermark == VERSIONS
    assert filled.disk.commit(reopened, batch_of(b"next")) == VERSIONS
    assert values_of(reopened)[VERSIONS:] == [b"next"]


def test_the_bytes_of_an_aborted_commit_are_not_visible(filled):
    """commit abort → bytes não visíveis."""
    filled.disk.append(filled.log, batch_of(b"aborted"))
    round_ = filled.disk.take_round()
    filled.disk.complete_round(round_, [StorageRefused("no room", 0)])

    for log in (filled.log, filled.reopen()):
        assert b"aborted" not in values_of(log)
        assert log.high_watermark == VERSIONS


def test_a_read_finds_no_unconfirmed_offsets(filled):
    """GET não lê offsets não confirmados."""
    filled.disk.append(filled.log, batch_of(b"in flight"))

    assert filled.log.committed.read(VERSIONS, end_offset=1_000, bytes_max=1_000, at_least_one_batch=True) == b""
    assert filled.log.committed.find_by_time(0, end_offset=1_000).offset == 0
    assert len(list(TableReader(filled.filesystem, str(filled.directory)).read())) == VERSIONS


KILLED_BETWEEN = """
import os, signal, sys
from exactlog.storage.filesystem import OsFilesystem
from tests.support.counting_filesystem import CountingFilesystem
from tests.support.partitions import DataDirectory, batch_of

filesystem = CountingFilesystem(OsFilesystem())
disk = DataDirectory(filesystem, root=sys.argv[1])
log = disk.make()
disk.commit(log, *(batch_of(b"acknowledged %d" % number) for number in range(3)))

def die(operation):
    if operation.name == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)

filesystem.before = die
disk.append(log, batch_of(b"never acknowledged"))
disk.run_round()
"""


@pytest.mark.parametrize("step", ["sync_data", "sync", "link"])
def test_a_kill_between_data_and_commit_leaves_no_trace(tmp_path, step):
    """matar processo entre escrita de dados e commit → recovery garante truncamento."""
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_BETWEEN, tmp_path, step], cwd=PROJECT, timeout=60, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    segment = tmp_path / "topic=orders-part=0" / f"{0:020d}.log"
    size = segment.stat().st_size
    assert b"never acknowledged" in segment.read_bytes()

    with DataDirectory(OsFilesystem(), root=str(tmp_path)) as disk:
        reopened = disk.open()

        assert values_of(reopened) == [b"acknowledged %d" % number for number in range(3)]
        assert segment.stat().st_size < size
        assert b"never acknowledged" not in segment.read_bytes()
        assert disk.commit(reopened, batch_of(b"next")) == 3


def test_without_the_newest_checkpoint_the_commits_rebuild_the_state(filled):
    """remover checkpoint mais recente → replay de commits reconstroi estado."""
    before = state_of(filled.log)
    (filled.delta_log / f"{20:020d}.checkpoint.json").unlink()
    assert state_of(filled.reopen()) == before

    remove_checkpoints(filled.filesystem, str(filled.delta_log))
    assert state_of(filled.reopen()) == before
