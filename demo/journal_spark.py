"""The same log carried into another store by Spark: it has to come to the same rows."""

import json
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path
from typing import Final

from demo.served_broker import EXACTLOG
from demo.story import DemoFailedError, Story

SPARK_SECONDS_MAX: Final = 300
ROWS: Final = {
    "journal": "topic, id, seq_nr, timestamp, segment, partition, offset, event_id, tags, metadata, payload_type, "
    "payload_txt, payload_bin",
    "metajournal": "topic, id, partition, offset, segment_size, seq_nr, delete_to, expire_after, expire_on, record_id",
}
"""What has to be equal, by table: everything but when it was written, and by whom."""


def replicate_by_spark(story: Story, *, address: str, topic: str, embedded: Path, folder: Path) -> float:
    """Have the job of Spark fill a store from the start of the log; how long that took, in seconds.

    Raises:
        DemoFailedError: it did not, or its rows are not those of the embedded replicator.
    """
    store = folder / "by-spark.sqlite"
    job = ["replicate-journal", "-b", address, "--topic", topic]
    places = ["--store", f"sqlite:///{store}", "--checkpoint", str(folder / "checkpoint")]
    began = time.monotonic()
    command = [str(EXACTLOG), "pipeline", *job, *places, "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=SPARK_SECONDS_MAX, check=False)
    seconds = time.monotonic() - began
    if ended.returncode != 0:
        raise DemoFailedError(f"Spark did not replicate: {ended.stderr[-2_000:]}")
    report = json.loads(ended.stdout.splitlines()[-1])
    rows = {table: compare_rows(table, columns, embedded, store) for table, columns in ROWS.items()}
    story.tell(
        f"{report['actions']:,} actions in {report['batches']} micro-batches, {seconds:.1f} s with the start of Spark; "
        f"{rows['journal']:,} events of {rows['metajournal']:,} journals are equal in both stores"
    )
    return seconds


def compare_rows(table: str, columns: str, one: Path, other: Path) -> int:
    """How many rows a table of both stores has.

    Raises:
        DemoFailedError: they are not equal.
    """
    with closing(sqlite3.connect(f"file:{one}?mode=ro", uri=True)) as connection:
        connection.execute("ATTACH ? AS other", (f"file:{other}?mode=ro",))
        mine, theirs = (f"SELECT {columns} FROM {place}.{table}" for place in ("main", "other"))  # noqa: S608  ours
        for left, right in ((mine, theirs), (theirs, mine)):
            differing = connection.execute(f"SELECT count(*) FROM ({left} EXCEPT {right})").fetchone()[0]  # noqa: S608
            if differing:
                raise DemoFailedError(f"{differing} rows of {table} are not in the other store")
        count: int = connection.execute(f"SELECT count(*) FROM main.{table}").fetchone()[0]  # noqa: S608
    return count
