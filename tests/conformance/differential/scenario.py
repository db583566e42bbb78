"""What both brokers are asked: scenarios, registered by the API they are about.

A scenario is a function `(peer, version)` that asks one broker. It runs on both, in every version of its API that both
serve; each answer to `peer.ask` is compared. Names come from `peer.name`: they are the same on both brokers and in no
other scenario.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

from exactlog.core.codec.wire_types import Versions, parse_versions
from exactlog.core.protocol.api_keys import ApiKey


class Scenario(NamedTuple):
    """One script.

    Attributes:
        api_key: the API whose versions it goes through.
        name: what it is about.
        versions: those it makes sense in.
        script: asks a broker.
        is_one_of_many: whether only a share of its kind is in a usual run in the lowest version too.
    """

    api_key: ApiKey
    name: str
    versions: Versions
    script: Callable
    is_one_of_many: bool = False


HANDWRITTEN: dict[ApiKey, list[Scenario]] = defaultdict(list)
"""By API, in the order they are written."""


def scenario(api_key, versions="0+"):
    """Registers a script under its own name."""

    def register(script):
        name = script.__name__.removeprefix("_").replace("_", " ")
        assert all(other.name != name for other in HANDWRITTEN[api_key]), f"two scenarios {name}"
        HANDWRITTEN[api_key].append(Scenario(api_key, name, parse_versions(versions), script))
        return script

    return register
