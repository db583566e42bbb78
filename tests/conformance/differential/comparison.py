"""Runs scenarios on two brokers and finds where their answers differ."""

from typing import NamedTuple

from exactlog.core.protocol.api_keys import APIS
from tests.conformance.differential.peer import NotServedError, Peer

MISSING = "missing"


class Difference(NamedTuple):
    """One field in which the answers differ.

    Attributes:
        api: the name of the API the scenario is about.
        version: of that API.
        scenario: its name.
        path: the number and the API of the question, and the field in its answer.
        theirs: Apache Kafka's value.
        ours: exactlog's.
    """

    api: str
    version: int
    scenario: str
    path: str
    theirs: object
    ours: object


class Comparison:
    """Two brokers, and the versions both serve.

    Args:
        ours: exactlog.
        theirs: Apache Kafka.
        run: what tells the names of this run from those of another on the same brokers.
    """

    def __init__(self, *, ours, theirs, run):
        self.ours = ours
        self.theirs = theirs
        self._run = run
        self._scenarios = 0
        self.common_versions = {
            api_key: range(max(lowest, theirs.versions[api_key][0]), min(highest, theirs.versions[api_key][1]) + 1)
            for api_key, (lowest, highest) in ours.versions.items()
            if api_key in theirs.versions
        }

    def versions_of(self, scenario):
        """The versions in which a scenario runs."""
        return [version for version in self.common_versions[scenario.api_key] if version in scenario.versions]

    def differences(self, scenario, version):
        """Runs a scenario in one version on both brokers.

        Raises:
            NotServedError: exactlog does not serve an API that the scenario asks.
        """
        self._scenarios += 1
        prefix = f"d{self._run}-{self._scenarios}-"
        our_answers = self._run_on(self.ours, scenario, version, prefix)
        their_answers = self._run_on(self.theirs, scenario, version, prefix)
        name = APIS[scenario.api_key].name
        return [
            Difference(name, version, part or scenario.name, path, theirs, ours)
            for part, path, theirs, ours in _unequal(their_answers, our_answers)
        ]

    def _run_on(self, broker, scenario, version, prefix):
        peer = Peer(
            broker,
            prefix=prefix,
            api_key=scenario.api_key,
            version=version,
            common_versions=self.common_versions,
        )
        try:
            scenario.script(peer)
        except NotServedError:
            raise
        except Exception as error:
            error.add_note(f"{APIS[scenario.api_key].name} v{version} on {broker.name}: {scenario.name}")
            raise
        finally:
            peer.close()
        return peer.answers


def _unequal(theirs, ours):
    their_forms, our_forms = ({(part, label): form for part, label, form in answers} for answers in (theirs, ours))
    for part, label in {**their_forms, **our_forms}:
        forms = (found.get((part, label), MISSING) for found in (their_forms, our_forms))
        for path, *values in _unequal_fields(*forms, path=label):
            yield part, path, *values


def _unequal_fields(theirs, ours, *, path):
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for name in {**theirs, **ours}:
            yield from _unequal_fields(theirs.get(name, MISSING), ours.get(name, MISSING), path=f"{path}/{name}")
    elif theirs != ours or type(theirs) is not type(ours):
        yield path, theirs, ours
