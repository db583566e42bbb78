"""336,776 real flights through a Kafka client and a broker that is killed half-way: every one back, exactly once.

Run by `make demo`. Ends with one line `DEMO OK {json}`, or with the reason and a non-zero exit.
"""

import argparse
import json
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, NoReturn

from demo.exactly_once import ExactlyOnce, sum_up_exactly_once
from demo.exchange import PARTITIONS, TOPIC, Crash, Sender, create_topic, read_back
from demo.flight_table import ARCHIVE, PACKAGE, VERSION, Flight, fetch_archive, read_flights
from demo.group_reading import GroupReading, read_as_group
from demo.served_broker import ServedBroker
from demo.spark_stage import SparkStage, run_spark, why_without_spark
from demo.story import DemoFailedError, Story, tell_to_its_end
from demo.versions import Version, append_expecting, audit, read_as_of, versions_of

CACHE = Path(__file__).resolve().parents[1] / ".cache" / PACKAGE
SHOWN_PARTITION = 0
SEATS = "seats"
EXIT_CONFLICT = 4
EXIT_INTERRUPTED = 130


class Comparison(NamedTuple):
    """What came back against what was sent, both as multisets."""

    duplicates: int
    missing: int
    strangers: int


class TimeTravel(NamedTuple):
    """One partition as it was at an earlier version."""

    versions: int
    version: int
    records: int


def main() -> int:
    """Tell the story, and whether it ended well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="leave the broker's data directory here, to look around"
    )
    keep = parser.parse_args().keep
    signal.signal(signal.SIGTERM, _stop)
    try:
        return tell_to_its_end(lambda story: run_and_keep(story, keep=keep))
    except KeyboardInterrupt:
        print("\nDEMO INTERRUPTED", file=sys.stderr)
        return EXIT_INTERRUPTED


def run_and_keep(story: Story, *, keep: Path | None) -> dict[str, Any]:
    """The demo in a folder of its own, of which the data directory may be kept.

    Raises:
        DemoFailedError: something is not as promised, or something stands where the data is to go.
    """
    refuse_to_overwrite(keep)
    with temporary_folder() as folder:
        summary = run(story, folder=folder)
        if keep is not None:
            shutil.move(folder / "data", keep)
            story.tell(f"The data directory is in {keep}")
    return summary


def run(story: Story, *, folder: Path) -> dict[str, Any]:
    """The demo, in an empty folder; returns what it showed, in numbers.

    Raises:
        DemoFailedError: something is not as promised.
    """
    story.title("exactlog: real flights, an ordinary Kafka client, and a broker that is killed half-way.")
    flights = take_flights(story)
    with ServedBroker(folder / "data", log=folder / "broker.log") as broker:
        serve(story, broker)
        crash = send_through_a_crash(story, broker, flights)
        partitions, comparison = read_back_and_compare(story, broker, flights)
        reading = read_by_group(story, broker, partitions, folder=folder)
        sums = sum_up(story, broker, flights)
        travel = travel_in_time(story, folder / "data", partitions[SHOWN_PARTITION])
        conflicts = expect_versions(story, broker)
        verified = verify(story, folder / "data", records=len(flights))
        spark = read_with_spark(story, broker, flights, folder=folder)
    return {
        "records": sum(map(len, partitions)),
        "partitions": len(partitions),
        "duplicates": comparison.duplicates,
        "missing": comparison.missing,
        "acknowledged_at_kill": crash.acknowledged,
        "in_flight_at_kill": crash.in_flight,
        "broker_away_seconds": round(crash.away_seconds, 2),
        "group_records": reading.records,
        "group_read_again": reading.read_again,
        "group_takeover_seconds": round(reading.away_seconds, 1),
        "transactions": sums.transactions,
        "records_aborted": sums.records_aborted,
        "worker_kills": sums.worker_kills,
        "versions": travel.versions,
        "as_of_version": travel.version,
        "as_of_records": travel.records,
        "conflicts": conflicts,
        "batches_verified": verified,
        **({} if spark is None else numbers_of_spark(spark)),
    }


def take_flights(story: Story) -> list[Flight]:
    """Step 1: the records."""
    story.step(f"Flights that left New York City in 2013 (the package {PACKAGE} {VERSION})")
    if not (CACHE / ARCHIVE).exists():
        story.tell("fetching the package, 8.7 MB; this happens once")
    flights = read_flights(fetch_archive(CACHE))
    without_key = sum(flight.key is None for flight in flights)
    story.tell(f"{len(flights):,} records, keyed by tail number; {without_key:,} have none and get a null key")
    story.tell(f"the first: {flights[0].value.decode()}")
    return flights


def serve(story: Story, broker: ServedBroker) -> None:
    """Step 2: the broker, which is running already, and the topic."""
    story.step("A broker")
    version, pid, mode = (broker.ready[name] for name in ("version", "pid", "flush_mode"))
    story.tell(f"exactlog {version} at {broker.address}, process {pid}, ready after {broker.start_seconds:.2f} s")
    story.tell(f"flush.mode is {mode}: nothing is acknowledged before it is on the disk")
    create_topic(broker)
    story.tell(f"topic {TOPIC} with {PARTITIONS} partitions")


def send_through_a_crash(story: Story, broker: ServedBroker, flights: Sequence[Flight]) -> Crash:
    """Step 3: all records through one producer object, with a SIGKILL between the halves."""
    story.step("One idempotent producer (confluent-kafka) sends them all, and the broker is killed half-way")
    sender = Sender(broker, story=story, total=len(flights))
    half = len(flights) // 2
    sender.send(flights[:half])
    crash = sender.crash_broker()
    story.tell(f"kill -9 after {crash.acknowledged:,} acknowledged records, with {crash.in_flight:,} on their way")
    story.tell(f"back at {broker.address} as process {broker.ready['pid']} after {crash.away_seconds:.2f} s")
    sender.send(flights[half:])
    sender.finish()
    return crash


def read_back_and_compare(
    story: Story, broker: ServedBroker, flights: Sequence[Flight]
) -> tuple[list[list[Flight]], Comparison]:
    """Step 4: every record of every partition, against the source.

    Raises:
        DemoFailedError: they are not the same records, each as often.
    """
    story.step("Reading every partition from its first offset to its end, removing nothing")
    partitions = read_back(broker, story=story)
    comparison = compare(flights, (flight for partition in partitions for flight in partition))
    story.tell(
        f"against the source: {comparison.duplicates} duplicates, {comparison.missing} missing, "
        f"{comparison.strangers} that were never sent"
    )
    if any(comparison):
        raise DemoFailedError("what came back is not what was sent")
    return partitions, comparison


def compare(sent: Iterable[Flight], received: Iterable[Flight]) -> Comparison:
    """What came back too often, not often enough, or was never sent."""
    sent_counts, received_counts = Counter(sent), Counter(received)
    surplus = received_counts - sent_counts
    return Comparison(
        duplicates=sum(count for flight, count in surplus.items() if flight in sent_counts),
        missing=(sent_counts - received_counts).total(),
        strangers=sum(count for flight, count in surplus.items() if flight not in sent_counts),
    )


def read_by_group(
    story: Story, broker: ServedBroker, partitions: Sequence[Sequence[Flight]], *, folder: Path
) -> GroupReading:
    """Step 5: a consumer group of two, of which one is killed.

    Raises:
        DemoFailedError: a record was missed.
    """
    story.step("A consumer group of two reads them all, and one of the two is killed")
    reading = read_as_group(story, broker, partitions, folder=folder)
    story.tell(
        f"{reading.records:,} records noted, 0 missed; {reading.read_again:,} noted twice: "
        "what the killed member had read and not committed"
    )
    return reading


def sum_up(story: Story, broker: ServedBroker, flights: Sequence[Flight]) -> ExactlyOnce:
    """Step 6: consume, sum up, produce, in transactions.

    Raises:
        DemoFailedError: a sum is not right to the last flight.
    """
    story.step("Delays by carrier in transactions: the worker is killed three times, the broker once")
    return sum_up_exactly_once(story, broker, flights)


def travel_in_time(story: Story, data: Path, records: Sequence[Flight]) -> TimeTravel:
    """Step 7: the log is a versioned table; one partition as it was before.

    Raises:
        DemoFailedError: the earlier version is not the beginning of the partition.
    """
    story.step("The log is a table with versions: one partition as it was half-way")
    directory = data / f"topic={TOPIC}-part={SHOWN_PARTITION}"
    versions = versions_of(directory)
    for version in (versions[0], versions[-1]):
        story.tell(f"version {version.number:>5} of {version.timestamp} ends at offset {version.end_offset:,}")
    earlier = versions[len(versions) // 2]
    as_of = read_as_of(directory, earlier.number)
    if as_of != list(records[: earlier.end_offset]):
        raise DemoFailedError(
            f"version {earlier.number} is not the first {earlier.end_offset:,} records of {directory.name}"
        )
    story.tell(f"exactlog log read {directory.name} --as-of {earlier.number}")
    story.tell(f"{len(as_of):,} of its {len(records):,} records, the very ones that were there at {earlier.timestamp}")
    return TimeTravel(len(versions), earlier.number, len(as_of))


def expect_versions(story: Story, broker: ServedBroker) -> int:
    """Step 8: of two writers that expect the same version, one wins.

    Raises:
        DemoFailedError: both did, or none.
    """
    story.step("Two writers have seen version 0 of a table; one of them may write")
    create_topic(broker, SEATS, partitions=1)
    endings = [append_expecting(broker.address, SEATS, 0, f"seat 1A: {who}") for who in ("Ada", "Grace")]
    if [ending.returncode for ending in endings] != [0, EXIT_CONFLICT]:
        raise DemoFailedError("of two writers with the same expectation exactly one must win")
    story.tell(f"exactlog produce {SEATS} --expect-version 0: Ada has the seat")
    story.tell(f"the same for Grace: exit {EXIT_CONFLICT}, {json.loads(endings[1].stderr)['error']['message']}")
    return sum(ending.returncode == EXIT_CONFLICT for ending in endings)


def verify(story: Story, data: Path, *, records: int) -> int:
    """Step 9: an audit of every byte, every delta commit and every checkpoint, beside the running broker.

    Raises:
        DemoFailedError: something is damaged, or not all records are there.
    """
    story.step("An audit of the whole data directory, while the broker runs")
    report = audit(data)
    batches, found = (sum(table[what] for table in report["tables"]) for what in ("batches", "records"))
    story.tell(f"exactlog log verify: {found:,} records in {batches:,} batches, {report['damage']} damaged")
    if report["damage"] or found < records:
        raise DemoFailedError("the audit does not find what was written")
    return int(batches)


def read_with_spark(
    story: Story, broker: ServedBroker, flights: Sequence[Flight], *, folder: Path
) -> SparkStage | None:
    """Step 10: the log as a table of Spark, where there is what Spark needs.

    Raises:
        DemoFailedError: something is not as promised.
    """
    story.step("Spark reads the log as a table, writes back exactly once, and exports it")
    missing = why_without_spark()
    if missing is not None:
        story.tell(f"left out: {missing}")
        return None
    return run_spark(story, broker, folder / "data", flights, folder=folder, as_of=middle_version(folder / "data"))


def middle_version(data: Path) -> Version:
    """The version of the shown partition when about half of its records were there."""
    versions = versions_of(data / f"topic={TOPIC}-part={SHOWN_PARTITION}")
    return versions[len(versions) // 2]


def numbers_of_spark(spark: SparkStage) -> dict[str, int]:
    """What the stage with Spark showed, for the last line."""
    return {
        "spark_batches": spark.batches,
        "spark_batches_replayed": spark.batches_replayed,
        "spark_as_of_records": spark.as_of_records,
        "delta_rows": spark.exported_rows,
    }


def refuse_to_overwrite(keep: Path | None) -> None:
    """Check before the work, not after it, that there is room for what shall be kept.

    Raises:
        DemoFailedError: something stands there.
    """
    if keep is not None and keep.exists():
        raise DemoFailedError(f"{keep} is there already")


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder that is gone afterwards, however the demo ends."""
    folder = Path(tempfile.mkdtemp(prefix="exactlog-demo-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _stop(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
