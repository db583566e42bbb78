"""A key says whether this version acts on it; this compares what it says with who reads it."""

import re
from pathlib import Path

import pytest

import exactlog
from exactlog.core.config.broker_keys import BROKER_CONFIG_KEYS
from exactlog.core.config.topic_configs import TOPIC_CONFIG_KEYS

READERS = ("broker", "node", "storage", "network", "log")
# Read under another name, or decided before anybody reads it.
ACTING_UNSEEN = {"advertised", "commit.engine", "in.memory", "message.max.bytes"}


@pytest.fixture(scope="module")
def read_attributes():
    package = Path(exactlog.__file__).parent
    sources = [path.read_text() for reader in READERS for path in (package / reader).rglob("*.py")]
    return {name for source in sources for name in re.findall(r"config\.(\w+)", source)}


@pytest.mark.parametrize("key", [*BROKER_CONFIG_KEYS, *TOPIC_CONFIG_KEYS], ids=lambda key: key.name)
def test_a_key_that_somebody_reads_acts_and_one_that_nobody_reads_does_not(key, read_attributes):
    assert key.acts == (key.attribute in read_attributes or key.name in ACTING_UNSEEN)
