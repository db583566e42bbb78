"""Spark on the log alone: the flights are sent to a broker, and then it is the last step of `demo.flights`.

Run by `make demo-spark`. Ends with one line `DEMO OK {json}`, or with the reason and a non-zero exit.
"""

import argparse
import json
import sys

from demo.exchange import Sender
from demo.flights import EXIT_FAILED, middle_version, numbers_of_spark, serve, take_flights, temporary_folder
from demo.served_broker import ServedBroker
from demo.spark_stage import run_spark, why_without_spark
from demo.story import DemoFailedError, Story


def main() -> int:
    """Tell the story, and whether it ended well."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    story = Story()
    try:
        missing = why_without_spark()
        if missing is not None:
            raise DemoFailedError(missing)
        story.title("exactlog: real flights as a table of Apache Spark.")
        flights = take_flights(story)
        with (
            temporary_folder() as folder,
            ServedBroker(folder / "data", log=folder / "broker.log") as broker,
        ):
            serve(story, broker)
            sender = Sender(broker, story=story, total=len(flights))
            sender.send(flights)
            sender.finish()
            story.step("Spark reads the log as a table, writes back exactly once, and exports it")
            as_of = middle_version(folder / "data")
            spark = run_spark(story, broker, folder / "data", flights, folder=folder, as_of=as_of)
    except DemoFailedError as failure:
        print(f"\nDEMO FAILED: {failure}", file=sys.stderr)
        return EXIT_FAILED
    summary = {"records": len(flights), **numbers_of_spark(spark), "seconds": round(story.seconds, 1)}
    story.end(f"DEMO OK {json.dumps(summary)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
