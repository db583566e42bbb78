"""Two zones: each has a store that follows the topic, and a job that purges what is expired in it, both at once.

Time is injected: journals are written at `WRITTEN`, the job was down since, and runs on `TODAY`.
"""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from exactlog.core.model.ids import TimestampMs
from exactlog.journal import Journals
from exactlog.pipeline import replicate_journals
from exactlog.pipeline.upkeep_purge import purge_expired
from tests.support.journal_streams import StandingClock, actions_in, check_model, contents_at
from tests.support.replicated_store import NO_CACHE, replicate, write_journals

TOPIC = "flights"
PARTITIONS = 3
WRITTEN = datetime(2026, 3, 1, 12, tzinfo=UTC)
TODAY = datetime(2026, 3, 8, 12, tzinfo=UTC)
OVER = {f"over-{number}" for number in range(16)}
KEPT = {"long-0", "long-1", "ever"}
RACED = tuple(f"over-{number}" for number in range(2, 12))
"""Those that somebody appends to while the jobs run; to the first before they begin, to the last when they are over."""
PAUSE_S = 0.2


class ClockAt(StandingClock):
    """Stands at a time."""

    def __init__(self, time):
        self._now_ms = TimestampMs(int(time.timestamp() * 1_000))

    def now_ms(self):
        return self._now_ms


class Zone:
    """A store, and the jobs that look after it.

    Args:
        checkpoint: of the replicator on Spark; None: it is the one in one process, which is done sooner.
    """

    def __init__(self, spark, broker, *, store, checkpoint=None):
        self.store = store
        self._spark = spark
        self._broker = broker
        self._checkpoint = checkpoint

    def replicate(self):
        """All that is in the log."""
        if self._checkpoint is None:
            replicate(self._broker, self.store, TOPIC)
            return
        report = replicate_journals(
            self._spark,
            bootstrap=self._broker.bootstrap_servers,
            topics=[TOPIC],
            store=self.store,
            checkpoint=self._checkpoint,
        )
        assert (report.lag, report.parked) == (0, ())

    def purge(self, through=None):
        return purge_expired(
            self._spark,
            store=self.store,
            bootstrap=self._broker.bootstrap_servers,
            through=through or TODAY.date(),
            share_count=2,
        )

    def contents(self):
        return contents_at(self.store, TOPIC)


def create_topic(broker):
    """Its records are older than a broker keeps them by default."""
    broker.create_topic(TOPIC, partitions=PARTITIONS, config={"retention.ms": -1})


def write(broker, store, living, *, at=WRITTEN):
    """Two appends to each journal, which may live so long; None: for ever."""

    async def append(journals):
        for key_id, expire_after in living.items():
            for event in ("x", "y"):
                await journals[TOPIC, key_id].append([event], expire_after=expire_after)

    write_journals(broker, store, append, clock=ClockAt(at))


def purge_beside_appends(broker, zones):
    """Both jobs at once, while somebody appends; what was appended, as (id, number, offset), and both reports."""
    appended, has_begun, is_over = [], threading.Event(), threading.Event()

    async def append_on():
        url = f"kafka://{broker.bootstrap_servers}"
        async with Journals.open(url, store=zones[0].store, settings=NO_CACHE, clock=ClockAt(TODAY)) as journals:
            for count in range(1, len(RACED) + 1):
                if count == len(RACED):
                    await asyncio.to_thread(is_over.wait)
                for key_id in RACED[:count]:
                    told = await journals[TOPIC, key_id].append(["beside"], expire_after="30 days")
                    appended.append((key_id, told.seq_nr, told.offset))
                has_begun.set()
                await asyncio.to_thread(is_over.wait, PAUSE_S)

    with ThreadPoolExecutor(len(zones) + 1) as threads:
        appending = threads.submit(asyncio.run, append_on())
        appending.add_done_callback(lambda _: has_begun.set())  # if it has failed
        has_begun.wait()
        try:
            reports = list(threads.map(Zone.purge, zones))
        finally:
            is_over.set()
        appending.result()
    return appended, reports


def check_two_zones(broker, east, west):
    """No journal that lives loses an event, none is left whose time is over, both zones come to the same."""
    living = {"long-0": "30 days", "long-1": "8 days", "ever": None}
    write(broker, east.store, dict.fromkeys(sorted(OVER), "1 day") | living)
    for zone in (east, west):
        zone.replicate()

    async def go_on(journals):
        await journals[TOPIC, "over-0"].append(["renewed"], expire_after="30 days")
        await journals[TOPIC, "over-1"].purge()
        for event in ("another", "life"):  # of as many events
            await journals[TOPIC, "over-1"].append([event])

    write_journals(broker, east.store, go_on, clock=ClockAt(TODAY))
    write(broker, east.store, {"late": "1 day"})
    east.replicate()  # the other zone is behind: to it these two are due, and it knows nothing of `late`

    appended, reports = purge_beside_appends(broker, (east, west))

    for zone in (east, west):
        zone.replicate()
    assert [report.due for report in reports] == [len(OVER) - 1, len(OVER)]
    found, actions = east.contents(), actions_in(broker, TOPIC)
    for zone in (east, west):
        check_model(zone.contents(), actions)
    stored = {(key_id, row.seq_nr, row.place.offset) for key_id, rows in found["rows"].items() for row in rows}
    assert set(appended) <= stored
    assert found["heads"].keys() == {*KEPT, "over-0", "over-1", *RACED}
    assert [row.seq_nr for row in found["rows"]["over-0"]] == [1, 2, 3]
    assert len(found["rows"]["over-1"]) == 2
    assert (found["rows"][RACED[0]][2].seq_nr, [row.seq_nr for row in found["rows"][RACED[-1]]]) == (3, [1])
    assert west.purge().due == 0

    assert east.purge(TODAY.date() + timedelta(days=1)).purges == 1  # a day later one of them asks
    west.replicate()
    assert west.contents()["heads"].keys() == {"long-0", "ever", "over-0", "over-1", *RACED}
