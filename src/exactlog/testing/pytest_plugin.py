"""The pytest plug-in: a real broker for the whole run, a topic and a group of its own for every test, faults, time.

pytest loads this module into every run of everybody who has the package installed, so it imports nothing heavy: the
broker is imported when a fixture first asks for it.
"""

import re
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from exactlog.testing.broker import Broker
    from exactlog.testing.clock import MovableClock
    from exactlog.testing.faults import Faults

TEST_PART_LENGTH_MAX = 60

_running = pytest.StashKey["dict[str, Broker]"]()  # by the name of its fixture


@pytest.fixture(scope="session")
def exactlog_broker(request: pytest.FixtureRequest) -> "Iterator[Broker]":
    """A broker on a free port, started once per run (per worker under xdist) and stopped at its end."""
    yield from _broker(request)


@pytest.fixture
def exactlog_own_broker(request: pytest.FixtureRequest) -> "Iterator[Broker]":
    """A broker that no other test uses: for tests that kill it, move its clock, or count what it holds."""
    yield from _broker(request)


@pytest.fixture
def exactlog_topic(exactlog_broker: "Broker", request: pytest.FixtureRequest) -> str:
    """The name of a new topic of `exactlog_broker` with one partition, used by no other test."""
    name = _unique_name(request)
    exactlog_broker.create_topic(name)
    return name


@pytest.fixture
def exactlog_group(request: pytest.FixtureRequest) -> str:
    """The name of a consumer group, used by no other test; the group is there once somebody joins it."""
    return _unique_name(request)


@pytest.fixture
def exactlog_faults(exactlog_broker: "Broker") -> "Iterator[Faults]":
    """What is to go wrong in `exactlog_broker`, during this test only."""
    yield exactlog_broker.faults
    exactlog_broker.faults.clear()


@pytest.fixture
def exactlog_clock(exactlog_own_broker: "Broker") -> "MovableClock":
    """The clock of `exactlog_own_broker`. Time does not go back, so a broker that others use is not moved."""
    return exactlog_own_broker.clock


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> "Generator[None, Any, None]":
    """Shows what the brokers hold with a test that failed."""
    outcome = yield
    report: pytest.TestReport = outcome.get_result()
    if report.failed and report.when == "call":
        asked_for = getattr(item, "fixturenames", ())
        running = item.config.stash.get(_running, {})
        report.sections += [(name, _description(broker)) for name, broker in running.items() if name in asked_for]


def _broker(request: pytest.FixtureRequest) -> "Iterator[Broker]":
    from exactlog.testing.broker import Broker  # noqa: PLC0415  heavy: only for runs that use the fixture

    with Broker() as broker:
        running = request.config.stash.setdefault(_running, {})
        running[str(request.fixturename)] = broker
        yield broker
        del running[str(request.fixturename)]


def _description(broker: "Broker") -> str:
    from exactlog.core.model.errors import ExactlogError  # noqa: PLC0415  a broker runs: it is imported already

    try:
        return broker.describe()
    except ExactlogError as error:
        return str(error)


def _unique_name(request: pytest.FixtureRequest) -> str:
    test_part = re.sub(r"[^a-zA-Z0-9._-]", "-", request.node.name)[:TEST_PART_LENGTH_MAX]
    return f"{test_part}-{uuid4().hex[:8]}"
