"""Seed 000 ("Plano de Evolução ACID inspirado no Delta Lake"), §2 and §3: formats and replay.

One test for each sentence that the names, the documents and the replay decide; it stands quoted above what proves it.
What is written, when, and what readers see of it, the tests of the storage prove.
"""

import json
import random

import msgspec
import pytest
from msgspec import UNSET

from exactlog.core.deltalog.as_of import VersionFound, find_version
from exactlog.core.deltalog.checkpoint_format import Checkpoint, decode_checkpoint, encode_checkpoint
from exactlog.core.deltalog.checkpoint_policy import decide_checkpoint, is_checkpoint_due
from exactlog.core.deltalog.commit_format import DecodedCommit, decode_commit, encode_commit
from exactlog.core.deltalog.log_path import (
    DELTA_LOG_DIRECTORY,
    SegmentFileKind,
    parse_delta_log_name,
    print_checkpoint_name,
    print_commit_name,
    print_partition_directory_name,
    print_segment_file_name,
)
from exactlog.core.deltalog.table_state import TableSnapshot, TableState
from exactlog.core.model.errors import DamageError
from tests.unit.core.deltalog.histories import History, details_of, history_of, replayed, spell

# The seed's own documents. Their comments and dots are left out; all keys and values are the seed's.
SEED_COMMIT = """{
  "version": 11,
  "timestamp": "2025-11-07T18:15:02.883Z",
  "txn_id": "broker-1:1730993702883:42",
  "operations": [
    {
      "type": "add",
      "origin_id": 1,
      "origin_seq": 78,
      "offset_start": 420,
      "offset_end": 427,
      "segment": "00000000000000000400.log",
      "position": 8192,
      "size": 384
    }
  ],
  "checkpoint_hint": false
}"""
SEED_CHECKPOINT_KEYS = ["version", "timestamp", "last_offset", "segments", "origins"]
SEED_SEGMENT_KEYS = ["name", "base", "next_offset", "size"]
SEED_ORIGIN_KEYS = ["origin_id", "last_seq"]


def checkpoint_of(history: History) -> Checkpoint:
    snapshot = replayed(history.commits).freeze()
    return snapshot.to_checkpoint(segment_details=details_of(snapshot))


def partition_at_the_seeds_commit() -> History:
    """A history whose version 11 is the commit that the seed shows."""
    history = History()
    history.commit()
    for _ in range(8):
        history.commit(history.add(records=50))
    history.commit(history.add(records=10, size=4096, new_segment=True))
    history.commit(history.add(records=10, size=4096))
    history.sequences[1] = 77
    return history


# --- §2.1 Estrutura de diretórios por partição ---------------------------------------------------------------


def test_the_directory_of_a_partition_is_as_drawn():
    """`{DATA_DIR}/topic={topic}-part={partition}/` … `_delta_log/` … `00000000000000000010.checkpoint.json`."""
    assert print_partition_directory_name("orders", 0) == "topic=orders-part=0"
    assert print_segment_file_name(0) == "00000000000000000000.log"
    assert print_segment_file_name(0, kind=SegmentFileKind.INDEX) == "00000000000000000000.index"
    assert DELTA_LOG_DIRECTORY == "_delta_log"
    assert print_commit_name(0) == "00000000000000000000.json"
    assert print_checkpoint_name(10) == "00000000000000000010.checkpoint.json"


# --- §2.2 Schema de commit (`CommitLogEntry`) ----------------------------------------------------------------


def test_the_commit_that_the_seed_shows_is_a_commit_of_ours_with_its_keys_first_and_in_its_order():
    """The `CommitLogEntry` of §2.2, key for key."""
    shown = json.loads(SEED_COMMIT)
    history = partition_at_the_seeds_commit()
    operation = history.add(records=8, size=384)

    commit = history.build(operation, txn_id=shown["txn_id"])
    document = json.loads(encode_commit(commit).document)

    assert document["operations"] == shown["operations"]
    assert {key: document[key] for key in shown} == shown
    assert list(document)[: len(shown)] == list(shown)
    assert list(document["operations"][0]) == list(shown["operations"][0])
    assert replayed([*history.commits, decode_commit(encode_commit(commit).document, path_hint="x")]).next_offset == 428


def test_version_is_a_sequential_number_of_the_partition():
    """`version`: número sequencial global por partição."""
    history = history_of(versions=3)

    assert [decoded.commit.version for decoded in history.commits] == [0, 1, 2, 3]
    with pytest.raises(DamageError, match="version 2 was to be next"):
        replayed([*history.commits[:2], history.commits[3]])


def test_operations_are_an_immutable_list():
    """`operations`: lista imutável de adições."""
    commit = history_of(versions=1).commits[1].commit

    assert isinstance(commit.operations, tuple)
    with pytest.raises(AttributeError, match="immutable"):
        commit.operations = ()  # type: ignore[misc]
    with pytest.raises(AttributeError, match="immutable"):
        commit.operations[0].offset_end = 9  # type: ignore[misc]


def test_removals_are_supported():
    """(remoções futuras podem ser suportadas)."""
    history = history_of(versions=2)
    history.commit(history.add(new_segment=True))
    history.commit(history.remove_oldest())

    assert json.loads(history.documents[-1])["operations"][0]["type"] == "remove"
    assert [segment.base for segment in replayed(history.commits).segments] == [2]


def test_offset_start_and_offset_end_are_contiguous_ranges():
    """`offset_start/offset_end`: intervalos contínuos escritos no segmento."""
    history = history_of(versions=0)
    history.commit(history.add(records=8), history.add(records=2))
    gap = msgspec.structs.replace(history.add(), offset_start=11, offset_end=11)

    ranges = [(operation.offset_start, operation.offset_end) for operation in history.commits[1].commit.operations]
    assert ranges == [(0, 7), (8, 9)]
    with pytest.raises(DamageError, match="an add begins at offset 11, not at 10"):
        replayed(history.commits).replay(DecodedCommit(history.build(gap, end_offset=12), "00000000"))


def test_segment_position_and_size_are_enough_to_audit_and_to_recover():
    """`segment/position/size`: metadados suficientes para auditoria e recuperação.

    Every byte that counts lies in exactly one add, so the counted size of every segment follows from the commits.
    """
    history = history_of(versions=0)
    history.commit(history.add(size=30), history.add(size=20))
    history.commit(history.add(size=7), history.add(size=40, new_segment=True))

    counted: dict[str, int] = {}
    for decoded in history.commits:
        for operation in decoded.commit.operations:
            assert operation.position == counted.get(operation.segment, 0)
            counted[operation.segment] = operation.position + operation.size

    assert {segment.name: segment.size for segment in replayed(history.commits).segments} == counted


# --- §2.3 Schema de checkpoint (`Checkpoint`) ----------------------------------------------------------------


def test_a_checkpoint_has_the_seeds_keys_first_and_in_its_order():
    """The `Checkpoint` of §2.3, key for key."""
    history = history_of(versions=2)
    history.commit(history.add(origin_id=2))

    document = json.loads(encode_checkpoint(checkpoint_of(history)))

    assert list(document)[: len(SEED_CHECKPOINT_KEYS)] == SEED_CHECKPOINT_KEYS
    assert list(document["segments"][0])[: len(SEED_SEGMENT_KEYS)] == SEED_SEGMENT_KEYS
    assert list(document["origins"][0])[: len(SEED_ORIGIN_KEYS)] == SEED_ORIGIN_KEYS
    assert document["last_offset"] == 2
    assert [(origin["origin_id"], origin["last_seq"]) for origin in document["origins"]] == [(1, 2), (2, 1)]


def test_a_checkpoint_holds_all_that_earlier_commits_say():
    """Checkpoints hold everything, quoted below.

    > checkpoints cobrem **todas** as estruturas necessárias para reconstruir `partitionLog` sem ler commits anteriores.

    That is what follows from commits; what follows from the batches (producers, open transactions, how much of the
    indexes is good) is in it too, and the log's tests prove it.
    """
    history = history_of(versions=4)
    history.commit(history.add(origin_id=7001, txn_id="a", payload_crc="9090a0ae"), history.add(new_segment=True))
    history.commit(history.remove_oldest())

    checkpoint = decode_checkpoint(encode_checkpoint(checkpoint_of(history)), path_hint="x")
    rebuilt = TableState.from_checkpoint(checkpoint, table="orders-0")

    assert rebuilt.freeze() == replayed(history.commits).freeze()
    following = history.commit(history.add(origin_id=7001))
    rebuilt.replay(following)  # and it goes on from there, the chain checked


def test_a_checkpoint_is_due_every_ten_commits():
    """cadência inicial: a cada 10 commits confirmar um checkpoint (`version % 10 == 0`)."""
    due = [version for version in range(1, 41) if is_checkpoint_due(version, interval=10)]

    assert due == [10, 20, 30, 40]
    for version in due:
        assert decide_checkpoint(version, interval=10, min_interval_ms=0, last=None, commit_bytes_since=0, now_ms=0)


# --- §3.1 Responsabilidades ----------------------------------------------------------------------------------


def test_two_commits_of_one_version_want_the_same_name():
    """Escrita de commits numerados de forma otimista: the name says nothing but the version, so one of two wins."""
    history = history_of(versions=1)
    mine, theirs = history.build(history.add()), history.build(history.add(origin_id=2), txn_id="broker-2:1:1")

    assert encode_commit(mine).document != encode_commit(theirs).document
    assert print_commit_name(mine.version) == print_commit_name(theirs.version) == "00000000000000000002.json"


def test_a_checkpoint_can_be_written_while_commits_go_on():
    """Criação de checkpoints (sincronamente após o commit gatilho, depois assíncrono)."""
    history = history_of(versions=10)
    state = replayed(history.commits)
    frozen = state.freeze()

    for _ in range(3):
        state.replay(history.commit(history.add(new_segment=True)))

    checkpoint = frozen.to_checkpoint(segment_details=details_of(frozen))
    assert (checkpoint.version, checkpoint.next_offset, len(checkpoint.segments)) == (10, 10, 1)
    assert history.commits[10].commit.checkpoint_hint


def test_bootstrap_loads_the_last_checkpoint_and_applies_the_pending_commits():
    """Replay durante bootstrap: carregar último checkpoint, aplicar commits pendentes, informar `logstore`."""
    history = history_of(versions=10)
    document = encode_checkpoint(checkpoint_of(history))
    for _ in range(4):
        history.commit(history.add(records=2))

    state = TableState.from_checkpoint(
        decode_checkpoint(document, path_hint="00000000000000000010.checkpoint.json"), table="orders-0"
    )
    for decoded in history.commits[11:]:
        state.replay(decoded)

    assert (state.version, state.next_offset) == (14, 18)
    assert state.freeze() == replayed(history.commits).freeze()


def test_the_current_version_can_be_asked_for():
    """API para consulta de versão e locking otimista."""
    state = replayed(history_of(versions=7).commits)

    assert state.version == 7
    assert find_version(7, oldest=0, newest=state.version) == VersionFound(7)


# --- §3.2 Interface proposta ---------------------------------------------------------------------------------


def test_an_operation_is_an_add_or_a_remove_with_its_offsets():
    """`Operation` (add/remove) com metadados de offsets."""
    history = history_of(versions=1)
    add, remove = history.add(records=3, new_segment=True), history.remove_oldest()

    assert (add.type, add.offset_start, add.offset_end) == ("add", 1, 3)
    assert (remove.type, remove.offset_start, remove.offset_end) == ("remove", 0, 0)


def test_a_snapshot_contains_segments_origins_and_the_next_offset():
    """`Snapshot` contendo `Segments`, `OriginSeqs`, `NextOffset`."""
    history = history_of(versions=2)
    history.commit(history.add(origin_id=2, records=3))

    snapshot = replayed(history.commits).freeze()

    assert isinstance(snapshot, TableSnapshot)
    assert [segment.name for segment in snapshot.segments] == ["00000000000000000000.log"]
    assert {origin.origin_id: origin.last_seq for origin in snapshot.origins} == {1: 2, 2: 1}
    assert snapshot.next_offset == 5
    with pytest.raises(AttributeError, match="immutable"):
        snapshot.next_offset = 6  # type: ignore[misc]


def test_a_commits_file_has_a_fixed_name_of_twenty_digits():
    """escrita de arquivo com nome fixo (`%020d.json`)."""
    for version in (0, 11, 2**63 - 1):
        assert print_commit_name(version) == "%020d.json" % version  # noqa: UP031  the seed's own spelling


# --- §3.3 Persistência ---------------------------------------------------------------------------------------


def test_files_are_json_without_indent_and_one_with_indent_is_as_good():
    """arquivos JSON formatados com `json.Encoder` (indent opcional somente para debug)."""
    history = history_of(versions=1)
    document = history.documents[1]

    assert document == spell(json.loads(document))
    for_debug = (json.dumps(json.loads(document), indent=2) + "\n").encode()
    assert decode_commit(for_debug, path_hint="00000000000000000001.json") == history.commits[1]


# --- what §4 to §7 say of the same formats -------------------------------------------------------------------


def test_the_first_commit_is_version_0():
    """se não existir, criar commit inicial com `version=0` (§4.1)."""
    history = History()
    history.commit()

    state = replayed(history.commits)

    assert (state.version, state.next_offset, state.segments) == (0, 0, [])


def test_sorting_the_names_sorts_the_versions():
    """aplica commits restantes em ordem (ordenar por nome de arquivo) (§5.3)."""
    history = history_of(versions=120)
    files = {print_commit_name(version): document for version, document in enumerate(history.documents)}
    shuffled = list(files)
    random.Random(0).shuffle(shuffled)

    state = replayed([decode_commit(files[name], path_hint=name) for name in sorted(shuffled)])

    assert state.freeze() == replayed(history.commits).freeze()


def test_without_its_newest_checkpoint_a_partition_is_rebuilt_from_commits():
    """remover checkpoint mais recente → replay de commits reconstroi estado (§7)."""
    history = history_of(versions=10)
    older = encode_checkpoint(checkpoint_of(history))
    for _ in range(15):
        history.commit(history.add())

    from_older = TableState.from_checkpoint(decode_checkpoint(older, path_hint="x"), table="orders-0")
    for decoded in history.commits[11:]:
        from_older.replay(decoded)

    assert from_older.freeze() == replayed(history.commits).freeze()
    assert parse_delta_log_name(print_checkpoint_name(20)) != parse_delta_log_name(print_commit_name(20))


def test_a_txn_id_leads_a_retry_to_its_first_result():
    """`TxnID` usado para idempotência de retries (§6): the table remembers which append it was, and where."""
    history = history_of(versions=3)
    history.commit(history.add(records=4, txn_id="order-1", payload_crc="9090a0ae"))
    history.commit(history.add())

    first = replayed(history.commits).txn_ids["order-1"]

    assert (first.version, first.offset_start, first.offset_end, first.payload_crc) == (4, 3, 6, "9090a0ae")
    assert replayed(history.commits).origins[1].payload_crc is UNSET
