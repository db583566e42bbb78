"""Real outside peers (Apache Kafka, Go programs, Maven artefacts): found or made here, in `.cache/`, once.

Nothing in these modules needs pytest, so benchmarks use them too. A peer whose tool is not installed raises
`PeerMissingError`; the fixtures in `tests/conftest.py` turn that into a skip with the reason, or, in continuous
integration (`CI=true`), into a failure.
"""

from tests.peers.toolchain import CACHE, PROJECT, PeerMissingError, only_one_at_a_time, require_tools

__all__ = ["CACHE", "PROJECT", "PeerMissingError", "only_one_at_a_time", "require_tools"]
