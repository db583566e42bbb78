import subprocess
import sys

import pytest

from tests.architecture.snippets import blocks
from tests.peers import PROJECT

HEAVY = ("msgspec", "asyncio", "exactlog.node", "exactlog.broker", "exactlog.testing.broker", "click", "uvloop")


def test_importing_the_plugin_imports_nothing_heavy():
    program = f"""
import pytest, sys
before = set(sys.modules)
import exactlog.testing.pytest_plugin
print(sorted((set(sys.modules) - before) & set({HEAVY!r})))
"""

    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert shown.stdout.strip() == "[]"


def test_the_package_knows_its_names_without_importing_them():
    program = "import exactlog.testing, sys; print('exactlog.testing.broker' in sys.modules)"

    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert shown.stdout.strip() == "False"


def test_a_name_the_package_does_not_have_is_an_attribute_error():
    import exactlog.testing

    with pytest.raises(AttributeError, match="no attribute 'Breaker'"):
        _ = exactlog.testing.Breaker


@pytest.fixture
def run_suite(tmp_path):
    """Runs a suite of somebody else; gives what pytest prints."""

    def run(text, *options):
        suite = tmp_path / "test_suite.py"
        suite.write_text(text)
        options = ("-q", "-p", "no:randomly", "-p", "no:cacheprovider", *options)
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", *options, suite], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        return ran.stdout + ran.stderr

    return run


WITHOUT_ASYNC_PLUGINS = ("-p", "no:asyncio", "-p", "no:anyio")


def test_the_fixtures_work_in_a_suite_of_somebody_else(run_suite):
    shown = run_suite(
        """
import pytest

seen = []

@pytest.mark.parametrize("n", [1, 2])
def test_topic(exactlog_broker, exactlog_topic, n):
    assert exactlog_broker.metrics()["exactlog_topics"] == n
    assert exactlog_topic.startswith(f"test_topic-{n}-")
    seen.append(exactlog_topic)

def test_names_differ(exactlog_topic, exactlog_group):
    assert exactlog_topic not in seen
    assert exactlog_group.startswith("test_names_differ-")
    assert exactlog_group != exactlog_topic
""",
        *WITHOUT_ASYNC_PLUGINS,
    )

    assert "3 passed" in shown, shown


def test_the_tests_of_the_documentation_pass(run_suite):
    page = (PROJECT / "docs" / "embedding.md").read_text()
    examples = [block.text for block in blocks(page) if "def test_" in block.text]

    assert f"{len(examples)} passed" in run_suite("\n\n".join(examples))
    assert len(examples) == 3


def test_faults_are_ordered_from_the_shared_broker_and_end_with_their_test(run_suite):
    shown = run_suite(
        """
def test_order(exactlog_broker, exactlog_faults):
    exactlog_faults.drop("Produce")
    assert exactlog_broker.faults is exactlog_faults
    assert len(exactlog_faults.orders) == 1

def test_next(exactlog_broker):
    assert exactlog_broker.faults.orders == ()
"""
    )

    assert "2 passed" in shown, shown


def test_the_clock_is_that_of_a_broker_of_the_tests_own(run_suite):
    shown = run_suite(
        """
import time

def test_move(exactlog_broker, exactlog_own_broker, exactlog_clock):
    exactlog_clock.advance_ms(3_600_000)
    assert exactlog_own_broker is not exactlog_broker
    assert exactlog_own_broker.clock.now_ms() > time.time() * 1000 + 3_000_000
    assert exactlog_broker.clock.now_ms() < time.time() * 1000 + 3_000_000
    exactlog_own_broker.create_topic("mine")

def test_next(exactlog_own_broker):
    assert exactlog_own_broker.metrics()["exactlog_topics"] == 0
"""
    )

    assert "2 passed" in shown, shown


@pytest.mark.slow
def test_every_worker_of_xdist_has_a_broker_of_its_own(run_suite):
    shown = run_suite(
        """
import pytest

@pytest.mark.parametrize("n", range(4))
def test_worker(exactlog_broker, exactlog_topic, worker_id, n):
    print(exactlog_broker.port)
    exactlog_broker.kill()
    exactlog_broker.restart()
""",
        "-n2",
    )

    assert "4 passed" in shown, shown


def test_a_test_that_fails_is_shown_with_what_its_broker_holds(run_suite):
    shown = run_suite(
        """
def test_fails(exactlog_broker):
    exactlog_broker.create_topic("orders", partitions=9)
    assert False

def test_of_another_broker(exactlog_own_broker):
    exactlog_own_broker.kill()
    assert False

def test_without_a_broker():
    assert False

def test_passes(exactlog_broker):
    pass
"""
    )

    first, second, third = (shown.split(f"_ {name} _")[1].split("\n__")[0] for name in FAILING)
    assert "exactlog_broker" in first
    assert "1 topics, 0 groups" in first
    assert "topic orders: 0: not used yet" in first
    assert "and 1 more" in first
    assert "the broker is not running" in second
    assert "1 topics" not in second
    assert "topics" not in third.split("short test summary")[0]


FAILING = ("test_fails", "test_of_another_broker", "test_without_a_broker")
