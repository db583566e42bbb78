"""Shared by all tests: Hypothesis profiles, the switches `--long` and `--engine`, real peers as fixtures."""

import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from _pytest._code.code import ExceptionChainRepr
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from tests.peers import PROJECT
from tests.peers.apache_cassandra import ApacheCassandra, cassandra_jars
from tests.peers.apache_kafka import ApacheKafka, kafka_jars
from tests.peers.gate import in_ci, skip_without_peer
from tests.peers.go_programs import build_go_program
from tests.peers.java_options import QUICK_START, start_spark_quickly
from tests.support.commit_engine import BOTH_ENGINES, ENGINES, use_engine
from tests.support.standstill import brokers_of, tell_standstill

LONG_TIMEOUT_SECONDS = 3_600  # thousands of examples in place of fifty
NEED_APACHE_KAFKA = (
    "tests/conformance/mutants/test_apache_kafka_is_right.py",
    "tests/conformance/eos/",
    "tests/conformance/protocol/test_delete_records.py::test_apache_kafka",
    "tests/conformance/wire/test_real_transactions.py",
    "tests/contract/test_wal_",
    "tests/peers/test_apache_kafka.py",
    "tests/peers/test_event_journal.py",
    "tests/peers/test_go_programs.py",
    "tests/pipeline/test_broker_source.py",
    "tests/unit/client/test_real_brokers.py",
    "tests/unit/client/test_real_groups.py",
)
"""The tests that start it. They are all for one worker, so that a run starts one."""

ONE_BY_ONE = (
    "tests/conformance/differential/test_apache",
    "tests/conformance/records/test_apache_kafka.py",
    "tests/peers/test_apache_cassandra.py",
    "tests/pipeline/",
)
"""Files whose tests share something that is expensive to start: one of their own, the code of Apache Kafka, Spark."""

PEER_TIMEOUT_SECONDS = 900  # a first run downloads and builds what the peer needs

# A busy machine is no failure: no deadlines, no complaint about slow generation.
settings.register_profile("dev", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("dev"), max_examples=100, print_blob=True)
settings.register_profile("long", settings.get_profile("ci"), max_examples=5_000)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the full matrices too (make test-long)")
    parser.addoption("--engine", choices=ENGINES, help="the commit.engine of brokers for which a test names none")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: a full matrix; runs with --long only")
    config.addinivalue_line("markers", "both_engines: make test runs it with either --engine; set by path")
    if config.getoption("--engine"):
        use_engine(config.getoption("--engine"))
    start_spark_quickly()
    ApacheKafka.java_options = QUICK_START
    usual = "long" if config.getoption("--long") else "ci" if in_ci() else "dev"
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", usual))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Tests go to whichever worker is free, but those that need one Apache Kafka to the one that started it."""
    return OnePeerScheduling(config, log)


class OnePeerScheduling(LoadScopeScheduling):
    """As `--dist loadgroup`, by path: what a worker knows of a test besides is not told to the others."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(NEED_APACHE_KAFKA):
            return "apache kafka"
        return next((place for place in ONE_BY_ONE if nodeid.startswith(place)), nodeid)


@pytest.hookimpl(tryfirst=True)  # before `-m` looks at markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    is_long = config.getoption("--long")
    for item in items:
        if item.nodeid.startswith(BOTH_ENGINES):
            item.add_marker(pytest.mark.both_engines)
        if item.get_closest_marker("long") and not is_long:
            item.add_marker(pytest.mark.skip(reason="a full matrix: --long (make test-long) runs it"))
        if is_long:
            item.add_marker(pytest.mark.timeout(LONG_TIMEOUT_SECONDS), append=False)
        elif item.get_closest_marker("peer") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(PEER_TIMEOUT_SECONDS))
        if "apache_kafka" in getattr(item, "fixturenames", ()) and not is_long:
            assert item.nodeid.startswith(NEED_APACHE_KAFKA), f"{item.nodeid} would start an Apache Kafka of its own"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that has waited in vain tells where its broker stands."""
    report = yield
    if call.excinfo is not None and call.excinfo.errisinstance((TimeoutError, pytest.fail.Exception)):
        for broker in brokers_of(getattr(item, "funcargs", {})):
            standstill = tell_standstill(broker)
            report.sections.append(("where the broker stands", standstill))
            if in_ci() and isinstance(report.longrepr, ExceptionChainRepr) and report.longrepr.reprcrash is not None:
                report.longrepr.reprcrash.message += f"\n{standstill}"  # the last lines are what is kept of a run
    return report


@pytest.fixture(scope="session")
def apache_kafka() -> Iterator[ApacheKafka]:
    """A real Apache Kafka, started once for the whole run. Tests that ask for it are marked `peer`."""
    with skip_without_peer():
        kafka_jars()
    with ApacheKafka() as broker:
        yield broker


@pytest.fixture(scope="module")
def apache_cassandra() -> Iterator[ApacheCassandra]:
    """A real Apache Cassandra, for the tests of one file: it takes half a gigabyte. They are marked `peer`."""
    with skip_without_peer():
        cassandra_jars()
    with ApacheCassandra() as node:
        yield node


@pytest.fixture(scope="session")
def loadgen() -> Path:
    """The Go load generator (franz-go), built once. Tests that ask for it are marked `peer`."""
    with skip_without_peer():
        return build_go_program(PROJECT / "bench" / "loadgen")
