"""A Spark driver as a program of its own, that replicates journals: once for each order, or until it is killed.

python -m tests.support.journal_replication_program '{"jars": [], "runs": [{"store": ..., "checkpoint": ...}]}'
"""

import json
import sys

import msgspec

from exactlog.core.model.errors import ExactlogError
from exactlog.pipeline import ReplicationSettings, replicate_journals, session
from tests.support.journal_streams import SEGMENT_SIZE, StandingClock


def main(order):
    spark = session("local[2]", jars=order.get("jars", ()))
    settings = ReplicationSettings(clock=StandingClock(), segment_size=SEGMENT_SIZE, **order.get("settings", {}))
    for run in order["runs"]:
        try:
            report = replicate_journals(
                spark,
                settings=settings,
                progress=lambda line: tell(event="progress", line=line),
                **run,
            )
        except ExactlogError as error:
            tell(event="failed", kind=type(error).__name__, message=str(error))
            sys.exit(1)
        tell(event="done", report=msgspec.to_builtins(report))
    spark.stop()


def tell(**what):
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
