"""Where exactlog answers otherwise than Apache Kafka 4.4, on purpose; `docs/differences.md` says why, to everybody."""

from fnmatch import fnmatchcase
from typing import NamedTuple


class KnownDifference(NamedTuple):
    """Fields that may differ in a known way. Texts are patterns with `*`.

    Attributes:
        api: name of an API.
        scenario: of it.
        path: the field.
        theirs: Apache Kafka's value, as a text.
        ours: exactlog's.
        row: what Apache Kafka does, as the row of the page of differences begins.
        versions: of the API.
    """

    api: str
    scenario: str
    path: str
    theirs: str
    ours: str
    row: str
    versions: str = "0+"

    def covers(self, difference):
        return False


KNOWN_DIFFERENCES = ()
