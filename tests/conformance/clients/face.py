"""The face that every client shows to the cases: what goes in, what comes out, and how a refusal looks."""

from contextlib import contextmanager
from typing import NamedTuple

import pytest

from exactlog.core.model.error_code import ErrorCode

PATIENCE_S = 30
BYTES_MAX = 32 * 1024 * 1024
"""Above the largest record of any test; clients have limits of their own."""

SESSION_TIMEOUT_MS = 6_000
"""The shortest that Kafka allows by default."""


TRANSACTION_TIMEOUT_MS = 30_000


class Sent(NamedTuple):
    """A record to be produced."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_ms: int = 1_700_000_000_000
    partition: int = 0


class Received(NamedTuple):
    """A record as a client hands it out."""

    offset: int
    value: bytes | None
    key: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int


class GroupDescription(NamedTuple):
    """A group as administration sees it: the partitions of each member by its client id."""

    state: str
    protocol: str
    members: dict[str, set[tuple[str, int]]]


class Membership(NamedTuple):
    """How a member of a group is to behave."""

    topics: list[str]
    group: str
    client_id: str
    assignor: str = "range"
    instance_id: str | None = None
    session_timeout_ms: int = SESSION_TIMEOUT_MS


class Copying(NamedTuple):
    """How one topic is to be copied to another, in transactions of a few records that hold the group's offsets too."""

    source: str
    target: str
    group: str
    transactional_id: str
    each: int = 10
    timeout_ms: int = TRANSACTION_TIMEOUT_MS
    session_timeout_ms: int = SESSION_TIMEOUT_MS


class Refused(Exception):  # noqa: N818  what a case asks for
    """The broker refused, with Kafka's name for why."""

    def __init__(self, code, message=""):
        super().__init__(f"{ErrorCode(code).name}: {message}")
        self.name = ErrorCode(code).name


@contextmanager
def refused(*names):
    """What is done here is refused by the broker, in one of these ways."""
    with pytest.raises(Refused) as refusal:
        yield
    assert refusal.value.name in names


def nothing():
    """What happens while records are on their way, unless a test wants something to."""
