"""What a test does when a peer is missing."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.peers.toolchain import PeerMissingError


def in_ci() -> bool:
    """Whether this is continuous integration, where nothing may be left out."""
    return os.environ.get("CI") == "true"


@contextmanager
def skip_without_peer() -> Iterator[None]:
    """Turn `PeerMissingError` into a skip that says why; in continuous integration, into a failure."""
    try:
        yield
    except PeerMissingError as missing:
        if in_ci():
            pytest.fail(f"CI=true and a peer is missing: {missing}", pytrace=False)
        pytest.skip(str(missing))
