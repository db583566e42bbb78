"""The checker is silent about a right model, whatever happens to it, and finds every fault of a wrong one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exactlog.testing import check
from exactlog.testing.workload import Workload, run
from tests.unit.testing.model_broker import ModelBroker
from tests.unit.testing.model_mutations import AFTER_A_CRASH, MUTATIONS

ALLOWED_TO_MISS = {
    "a fenced epoch may write",  # the partition that knows the newer epoch refuses all the same
    "an abort after a commit succeeds",  # shows only if the answer comes
    "offsets hold before the commit",  # shows only if the transaction is aborted
    "replay forgets producers",  # shows only if somebody sends again what it sent before
    "replay loses an offset",  # shows only if nobody commits another one before it is read
}
"""What happens without harm at times."""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("histories") / "history.jsonl"


@given(
    seed=st.integers(0, 10**6),
    version=st.sampled_from([1, 2]),
    partitions=st.integers(1, 4),
    writers=st.integers(1, 4),
    copiers=st.integers(0, 2),
    lost=st.sampled_from([0, 0.05, 0.3]),
    patience=st.sampled_from([0, 0.5, 1]),
    crashes=st.integers(0, 3),
)
@settings(max_examples=30)
def test_a_right_broker_is_never_blamed(  # noqa: PLR0917
    path, seed, version, partitions, writers, copiers, lost, patience, crashes
):
    workload = Workload(
        seed=seed,
        rounds=5,
        partition_count=partitions,
        transactional_writers=writers,
        copiers=copiers,
        lost_answers=lost,
        patience=patience,
        crashes=crashes,
    )
    run(workload, ModelBroker(transaction_version=version, seed=seed), path)

    report = check.history(path)
    assert report.is_clean, report


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_wrong_broker_is_found_out(mutation, path):
    caught = 0
    for seed in range(12):
        version = 1 + seed % 2
        broker = ModelBroker(transaction_version=version, seed=seed, mutation=mutation)
        workload = Workload(seed=seed, rounds=10, crashes=3 if mutation in AFTER_A_CRASH else 0, lost_answers=0.08)
        run(workload, broker, path)
        if not broker.has_mutated:
            continue
        kinds = set(map(str, check.history(path).kinds))
        if not kinds and mutation in ALLOWED_TO_MISS:
            continue
        assert kinds & MUTATIONS[mutation], f"seed {seed}: {kinds}"
        caught += 1
        if caught == 2:
            return
    assert caught, "it was not found out, or did not happen"


def test_a_workload_is_the_same_for_the_same_seed(path):
    def history_of(seed):
        run(Workload(seed=seed, crashes=1), ModelBroker(seed=5), path)
        return path.read_bytes()

    first = history_of(1)

    assert history_of(1) == first
    assert history_of(2) != first


def test_a_workload_ends_transactions_in_every_way(path):
    run(Workload(seed=3, rounds=40), ModelBroker(seed=3), path)

    text = path.read_text()
    for wanted in ("PRODUCER_FENCED", "INVALID_TXN_STATE", "INVALID_PRODUCER_EPOCH", '"is_commit":false', '"unknown"'):
        assert wanted in text, wanted
