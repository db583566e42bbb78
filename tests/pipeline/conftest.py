"""One Spark session for all tests of a worker that need one; they are marked `peer`, for Spark is a JVM."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.peers.gate import skip_without_peer
from tests.peers.toolchain import require_tools


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A local session with two cores, as `exactlog.pipeline.session` makes it."""
    with skip_without_peer():
        require_tools("java")
    from exactlog.pipeline import session

    running = session("local[2]", config={"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))})
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store of journals of this test is, if it has one."""
    return tmp_path / "journals.db"


@pytest.fixture
def store(path: Path) -> str:
    """Its URL."""
    return f"sqlite:{path}"
