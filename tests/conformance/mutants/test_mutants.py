"""The checker finds out every way in which the broker is broken, and is silent about the broker as it is."""

import pytest

from exactlog.testing.faults import points
from tests.conformance.mutants import broken_partitions, broken_transactions
from tests.conformance.mutants.mutant_registry import MUTANTS
from tests.conformance.mutants.running import check_workload

BROKEN = (broken_partitions, broken_transactions)
"""Where the mutants are: with the module they are registered."""

SEEDS = 6
TRANSACTION_POINTS = [point.name for point in points() if point.name.startswith("txn.")]

pytestmark = pytest.mark.slow


@pytest.fixture
def path(tmp_path):
    return tmp_path / "history.jsonl"


def misfits(caplog):
    """What was logged of a broken function that is not called, or does not answer, as the real one is and does."""
    return [record for record in caplog.records if record.exc_info and isinstance(record.exc_info[1], TypeError)]


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_broker_is_found_out(name, path, monkeypatch, caplog):
    mutant = MUTANTS[name]
    hits = []
    mutant.breaks(monkeypatch, lambda: hits.append(name))

    seen = []
    for seed in range(SEEDS):
        hits.clear()
        report = check_workload(
            path,
            version=1 + seed % 2,
            seed=seed,
            rounds=8,
            lost_answers=0.1,
            patience=0.9,
            crashes=mutant.crashes,
            dies_at=mutant.dies_at,
            engine=mutant.engine,
        )
        kinds = {str(kind) for kind in report.kinds}
        assert not misfits(caplog), "the mutant does not fit the broker any more"
        if not hits:
            assert not kinds, report
        elif kinds & mutant.kinds:
            return
        seen.append((len(hits), kinds))
    pytest.fail(f"what went wrong, and what was found: {seen}")


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("crashes", [0, 2])
def test_the_broker_is_right(version, crashes, path):
    report = check_workload(path, version=version, crashes=crashes, seed=1, rounds=10, copiers=2, lost_answers=0.08)

    assert report.is_clean, report


@pytest.mark.parametrize(("version", "point"), [(1 + n % 2, point) for n, point in enumerate(TRANSACTION_POINTS)])
def test_the_broker_is_right_when_it_has_died_in_the_middle(version, point, path):
    report = check_workload(path, version=version, dies_at=point, seed=2, rounds=6, patience=1)

    assert report.is_clean, report


@pytest.mark.long
@pytest.mark.parametrize("at", [1, 2, 5, 9])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("point", TRANSACTION_POINTS)
def test_the_broker_is_right_wherever_it_has_died(version, point, at, path):
    report = check_workload(path, version=version, dies_at=point, at=at, seed=at, patience=1)

    assert report.is_clean, report


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100))
def test_the_broker_is_right_for_many_seeds(seed, path):
    report = check_workload(path, version=1 + seed % 2, crashes=seed % 4, seed=seed, copiers=2, lost_answers=0.1)

    assert report.is_clean, report
