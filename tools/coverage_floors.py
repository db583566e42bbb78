"""Hold the coverage of the last test run against the project's floors; exit 1 below one.

Run by `make check`, after pytest has written `.coverage`.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from coverage import Coverage
from coverage.exceptions import NoDataError


class Floor(NamedTuple):
    """A least coverage, in percent.

    `measure` names a number of coverage's JSON report: `percent_covered` counts lines and branches together.
    """

    name: str
    include: str
    measure: str
    percent_min: float


FLOORS = (
    Floor("all code", include="src/exactlog/*", measure="percent_covered", percent_min=80),
    Floor("the core", include="src/exactlog/core/*", measure="percent_covered", percent_min=95),
    Floor("the core's branches", include="src/exactlog/core/*", measure="percent_branches_covered", percent_min=95),
)


def measured_percent(coverage: Coverage, floor: Floor) -> float:
    """What the loaded run reached.

    Raises:
        NoDataError: nothing that the floor speaks of was measured.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "coverage.json"
        coverage.json_report(include=[floor.include], outfile=str(report))
        return float(json.loads(report.read_text())["totals"][floor.measure])


def main() -> int:
    """Print a line for every floor, and below a missed one what is not covered."""
    coverage = Coverage(messages=False)
    coverage.load()
    missed = []
    for floor in FLOORS:
        percent = measured_percent(coverage, floor)
        if percent < floor.percent_min:
            missed.append(floor)
        verdict = "TOO LOW" if floor in missed else "ok"
        print(f"coverage of {floor.name}: {percent:.1f} %, at least {floor.percent_min:g} %: {verdict}")
    if missed:
        coverage.report(include=sorted({floor.include for floor in missed}), show_missing=True, skip_covered=True)
    return 1 if missed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except NoDataError as error:
        sys.exit(f"no coverage to judge: {error}")
