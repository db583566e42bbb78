"""The kill matrix: fifty producers, and a broker that dies at every step of a transaction and of the disk under it.

The producers write transactions over several partitions; some copy, with the offsets of a group among what commits;
some abort, are fenced, or leave things open. The broker dies, by a kill or with the power, is started on what is left,
and the same producers go on, with whatever they were told or not. Then every transaction is there whole or not at all,
what was acknowledged is there, nothing is open, the last stable offsets are the ends, and an audit finds nothing.
"""

from random import Random

import pytest

from exactlog.testing import FailingFilesystem, check
from exactlog.testing.faults import points
from exactlog.testing.history_format import Place
from exactlog.testing.workload import Workload
from exactlog.testing.workload_calls import FetchOffsets, FindEnd
from tests.support.dying_brokers import BETWEEN_PARTITIONS, Death, DyingBroker, DyingSystem, ServedDyingBroker
from tests.support.kill_workload import run

WRITERS, COPIERS, PARTITIONS = 44, 6, 6
SEEDS = 200
TIMEOUT_OF_TRANSACTIONS_MS = 61_000

# How often the load comes by a point at the least, halved: a broker that dies there dies under load.
STEPS = {
    "txn.add.before_data": 50,
    "txn.add.after_data": 50,
    "txn.end.before_prepare": 24,
    "txn.end.after_prepare": 24,
    "txn.marker.before": 50,
    "txn.marker.after_some": 26,
    "txn.marker.after_all": 24,
    "txn.end.before_complete": 24,
}
STORAGE_STEPS = {
    "storage.round.before_write": 150,
    "storage.round.after_segment_write": 150,
    "storage.round.after_segment_sync": 150,
    "storage.round.after_directory_sync": 20,
    "storage.publish.after_write": 150,
    "storage.publish.before_link": 150,
    "storage.publish.after_link": 150,
    "storage.publish.after_unlink": 150,
    "storage.publish.after_directory_sync": 150,
    "storage.checkpoint.before_rename": 12,
    "storage.checkpoint.after_rename": 12,
    "storage.checkpoint.after_directory_sync": 12,
}
STORAGE_STEPS_WITHOUT_SYNCS = {  # there, versions follow by the clock
    "storage.round.before_write": 200,
    "storage.round.after_segment_write": 200,
    "storage.publish.after_write": 6,
    "storage.publish.before_link": 6,
    "storage.publish.after_link": 6,
    "storage.publish.after_unlink": 6,
}
STORAGE_STEPS_WITH_JOURNAL = {
    "storage.round.before_write": 150,
    "storage.round.after_segment_write": 150,
    "storage.journal.before_write": 30,
    "storage.journal.after_write": 30,
    "storage.journal.after_sync": 30,
    "storage.publish.after_write": 6,
    "storage.publish.before_link": 6,
    "storage.publish.after_link": 6,
    "storage.publish.after_unlink": 6,
}
BETWEEN_AT_MAX = 40
POWER_CUT = "power cut"
JOURNAL = "journal"
POWER_CUT_JOURNAL = "power cut, journal"
MODES = ("commit", "none", "interval", JOURNAL)
"""Of flushing, for brokers that are killed while the machine runs on; the power goes where rounds are synced."""


def is_journaled(how):
    return how in (JOURNAL, POWER_CUT_JOURNAL)


def settings_of(how):
    """How such a broker makes its rounds durable."""
    mode = how if how in ("none", "interval") else "commit"
    return {"flush.mode": mode, "commit.engine": "journal" if is_journaled(how) else "files"}


def steps_of(how):
    """The points where such a broker may die, and up to which time."""
    if is_journaled(how):
        return STEPS | STORAGE_STEPS_WITH_JOURNAL
    return STEPS | (STORAGE_STEPS_WITHOUT_SYNCS if how in ("none", "interval") else STORAGE_STEPS)


def some_death(how, chance):
    steps = steps_of(how)
    point = chance.choice(list(steps))
    return Death(point, chance.randint(1, steps[point]))


def death_at(point, how):
    """In the middle of the load, at the same time in every run."""
    steps = steps_of(how)
    return Death(point, Random(point + how).randint(steps[point] // 3 or 1, steps[point]))


def broker_in(directory, how, deaths, *, seed=0):
    chance = Random(seed)
    order = Random(seed) if seed % 4 else None
    if how in (POWER_CUT, POWER_CUT_JOURNAL):
        return DyingBroker(
            directory,
            deaths=deaths,
            leave=lambda files: files.after_power_cut(chance if chance.random() < 0.8 else None),
            is_power_cut=True,
            order=order,
            **settings_of(how),
        )
    return DyingBroker(directory, deaths=deaths, leave=FailingFilesystem.after_kill, order=order, **settings_of(how))


def workload(seed, **fields):
    """Fifty producers in transactions."""
    usual = {"rounds": 1, "readers": 1, "plain_writers": 0, "idempotent_writers": 0, "partition_count": PARTITIONS}
    return Workload(seed=seed, transactional_writers=WRITERS, copiers=COPIERS, **usual | fields)


def check_lives(tmp_path, how, deaths, *, seed, after_crash=None, **fields):
    """Lets a broker die under the workload, and looks at all that is left; returns where it has died."""
    with broker_in(tmp_path / "data", how, deaths, seed=seed) as broker:
        unknown = []

        def look():
            unknown.extend(broker.unknown_transactions())

        system = DyingSystem(broker, transaction_version=1 + seed % 2, after_crash=after_crash or look)
        run(workload(seed, **fields), system, tmp_path / "history.jsonl")
        system.close()
        assert unknown == [], "somebody ends every transaction that a start finds open"
        assert broker.unsettled() == []
        assert broker.damage() == []
    report = check.history(tmp_path / "history.jsonl")
    assert report.is_clean, report
    return broker.died_at


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "how"),
    [(point, POWER_CUT) for point in STEPS | STORAGE_STEPS]
    + [(point, POWER_CUT_JOURNAL) for point in STEPS | STORAGE_STEPS_WITH_JOURNAL],
)
def test_a_power_cut_at_each_step_leaves_every_transaction_whole_or_not_at_all(tmp_path, point, how):
    death = death_at(point, how)

    assert check_lives(tmp_path, how, [death], seed=death.at) == [death]


@pytest.mark.slow
@pytest.mark.parametrize("at", range(4, BETWEEN_AT_MAX + 1, 3))
def test_a_round_that_reaches_some_of_its_partitions_leaves_every_transaction_whole_or_not_at_all(tmp_path, at):
    death = Death(BETWEEN_PARTITIONS, at)

    assert check_lives(tmp_path, POWER_CUT, [death], seed=4 * at + 1 + at % 2) == [death]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "how"),
    [(point, MODES[number % len(MODES)]) for number, point in enumerate(STEPS)]
    + [(point, MODES[1 + number % 2]) for number, point in enumerate(STORAGE_STEPS_WITHOUT_SYNCS)]
    + [(point, JOURNAL) for point in STORAGE_STEPS_WITH_JOURNAL],
)
def test_a_kill_at_each_step_leaves_every_transaction_whole_or_not_at_all(tmp_path, point, how):
    death = death_at(point, how)

    assert check_lives(tmp_path, how, [death], seed=death.at) == [death]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(SEEDS))
def test_deaths_one_after_the_other_leave_every_transaction_whole_or_not_at_all(tmp_path, seed):
    """Of all kinds, some of them while the broker is still busy with what the one before has left."""
    chance = Random(seed)
    how = chance.choice([POWER_CUT, POWER_CUT_JOURNAL, *MODES])
    first = some_death(how, chance)
    if how == POWER_CUT and seed % 4 and chance.random() < 0.4:
        first = Death(BETWEEN_PARTITIONS, chance.randint(1, BETWEEN_AT_MAX))
    later = [some_death(how, chance) for _ in range(chance.choice([0, 1, 1, 2]))]
    later = [Death(death.point, max(1, death.at // 8)) for death in later]
    crashes = chance.choice([0, 0, 1])

    died_at = check_lives(
        tmp_path,
        how,
        [first, *later],
        seed=seed,
        rounds=chance.choice([1, 1, 2, 3]),
        lost_answers=chance.choice([0, 0.04, 0.15]),
        patience=chance.choice([0.5, 0.8, 1]),
        crashes=crashes,
    )

    assert died_at[:1] == [first] or crashes


@pytest.mark.slow
@pytest.mark.parametrize("how", [POWER_CUT, POWER_CUT_JOURNAL, "none"])
def test_what_a_dead_broker_has_left_open_times_out(tmp_path, how):
    """Nobody needs to come by: after the timeout of the transactions none is open, whoever had it."""
    point = "txn.marker.after_all"
    left = []

    with broker_in(tmp_path / "data", how, [death_at(point, how)]) as broker:

        def look():
            assert broker.unknown_transactions() == []
            broker.advance_ms(TIMEOUT_OF_TRANSACTIONS_MS)
            left.extend(broker.unsettled())

        system = DyingSystem(broker, after_crash=look)
        run(workload(1), system, tmp_path / "history.jsonl")
        system.close()
        assert left == []
        assert broker.damage() == []
    report = check.history(tmp_path / "history.jsonl")
    assert report.is_clean, report
    assert broker.died_at


# --- a process of its own -------------------------------------------------------------------------------------------


def check_served_lives(tmp_path, how, deaths, *, seed, **fields):
    """The same where the broker is a process, and the disk is one."""
    with ServedDyingBroker(tmp_path, deaths=deaths, **settings_of(how)) as broker:
        system = DyingSystem(broker, transaction_version=1 + seed % 2)
        asked = workload(seed, **fields)
        groups = run(asked, system, tmp_path / "history.jsonl")
        check_ends(system, asked, groups)
        system.close()
        assert broker.damage() == []
    report = check.history(tmp_path / "history.jsonl")
    assert report.is_clean, report
    return broker.died_at


def check_ends(system, asked, groups):
    """Nothing is open, nor about to change: in no partition, and in no group."""
    session = system.connect()

    def ask(call):
        session.start(call)
        return session.finish()

    topics = (asked.topic, f"{asked.topic}-copy")
    places = [Place(topic, index) for topic in topics for index in range(asked.partition_count)]
    for place in [*places, Place("__consumer_offsets", 0)]:
        stable, high = (ask(FindEnd(place, is_committed)) for is_committed in (True, False))
        assert stable == high
        assert not stable.error_code
    for group in groups:
        assert not ask(FetchOffsets(group, tuple(places[: asked.partition_count]), is_stable=True)).error_code


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "how"),
    [(point, MODES[number % len(MODES)]) for number, point in enumerate(STEPS)]
    + [
        ("storage.journal.after_write", JOURNAL),
        ("storage.journal.after_sync", JOURNAL),
        ("storage.round.after_segment_write", "none"),
        ("storage.publish.after_link", "commit"),
        ("storage.publish.after_link", "interval"),
        ("storage.checkpoint.after_rename", "commit"),
    ],
)
def test_sigkill_at_each_step_leaves_every_transaction_whole_or_not_at_all(tmp_path, point, how):
    death = death_at(point, how)

    assert check_served_lives(tmp_path, how, [death], seed=death.at) == [death]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(SEEDS))
def test_sigkills_one_after_the_other_leave_every_transaction_whole_or_not_at_all(tmp_path, seed):
    chance = Random(seed)
    how = chance.choice(MODES)
    first = some_death(how, chance)
    second = some_death(how, chance)

    died_at = check_served_lives(
        tmp_path,
        how,
        [first, Death(second.point, max(1, second.at // 8))],
        seed=seed,
        rounds=chance.choice([1, 2]),
        lost_answers=chance.choice([0, 0.1]),
        patience=chance.choice([0.5, 1]),
    )

    assert died_at[:1] == [first]


def test_the_matrix_has_every_step_of_a_transaction():
    assert list(STEPS) == [point.name for point in points() if point.name.startswith("txn.")]
    of_storage = {point.name for point in points() if point.name.startswith(("storage.round.", "storage.publish."))}
    assert of_storage <= STORAGE_STEPS.keys()
