"""Spark on the log alone: the flights are sent to a broker, and then it is the last step of `demo.flights`.

Run by `make demo-spark`. Ends with one line `DEMO OK {json}`, or with the reason and a non-zero exit.
"""

import argparse
import sys
from typing import Any

from demo.exchange import Sender
from demo.flights import middle_version, numbers_of_spark, serve, take_flights, temporary_folder
from demo.served_broker import ServedBroker
from demo.spark_stage import run_spark, why_without_spark
from demo.story import DemoFailedError, Story, tell_to_its_end


def main() -> int:
    """Tell the story, and whether it ended well."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    return tell_to_its_end(run)


def run(story: Story) -> dict[str, Any]:
    """The demo; returns what it showed, in numbers.

    Raises:
        DemoFailedError: something is not as promised, or Spark cannot run here.
    """
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
    return {"records": len(flights), **numbers_of_spark(spark)}


if __name__ == "__main__":
    sys.exit(main())
