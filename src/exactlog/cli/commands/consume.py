"""`exactlog consume`: read records of a topic."""

import time
from collections.abc import Mapping, Sequence
from typing import Final

import click
from msgspec import Struct

from exactlog.cli.client import run_with_client
from exactlog.cli.errors import NotAvailableError
from exactlog.cli.output import RowPrinter, flush_output
from exactlog.cli.positions import AtOffset, AtTime, End, Position, Start, parse_position
from exactlog.cli.records import record_printer, record_row
from exactlog.cli.settings import Command, Settings
from exactlog.client.ports import EARLIEST, LATEST, Client, IsolationLevel
from exactlog.core.model.errors import NotFoundError
from exactlog.core.model.ids import Offset, TimestampMs, TopicPartition

_ISOLATION_LEVELS: Final = {level.name.lower(): level for level in IsolationLevel}


class Extent(Struct, frozen=True):
    """What is to be read.

    Attributes:
        partitions: of the topic; none: all of them.
        start: where to begin.
        end: where to stop; None: nowhere when following, else at the ends the partitions have now.
        count_max: how many records to read; None: all.
        is_followed: whether to wait for records to come.
    """

    topic: str
    partitions: Sequence[int]
    start: Position
    end: Position | None
    count_max: int | None
    is_followed: bool
    isolation: IsolationLevel
    has_control: bool


@click.command(cls=Command)
@click.argument("topic")
@click.option("-p", "--partition", "partitions", type=click.IntRange(0), multiple=True, help="All by default.")
@click.option("--from", "start", default="start", help="start (default), end, an offset, or @TIME.", metavar="PLACE")
@click.option(
    "--to", "end", help="Where to stop: end, an offset, or @TIME; the ends of now by default.", metavar="PLACE"
)
@click.option("-n", "--count", "count_max", type=click.IntRange(1), help="Stop after so many records.")
@click.option("-f", "--follow", is_flag=True, help="Do not stop at the ends: wait for more.")
@click.option("--isolation", type=click.Choice(list(_ISOLATION_LEVELS)), default="read_committed", show_default=True)
@click.option("--control", is_flag=True, help="Print transaction markers too.")
@click.option("-g", "--group", help="Consumer groups are not part of this version.", hidden=True)
@click.option("--as-of", help="A broker serves the newest version; exactlog log read serves the others.", hidden=True)
@click.pass_obj
def consume(
    settings: Settings,
    /,
    *,
    topic: str,
    partitions: tuple[int, ...],
    start: str,
    end: str | None,
    count_max: int | None,
    follow: bool,
    isolation: str,
    control: bool,
    group: str | None,
    as_of: str | None,
) -> None:
    """Print the records of TOPIC, from the start up to the ends it has now, unless told otherwise.

    A TIME is how long before now (@-1h30m), RFC 3339 (@2026-11-27T10:00:00Z), or milliseconds since 1970.
    """
    if group is not None:
        raise NotAvailableError("consumer groups are not part of this version", hint="Leave out -g; choose --from.")
    if as_of is not None:
        raise NotAvailableError(
            "a broker serves the newest version of a topic only",
            hint=f"Read the partition's directory: exactlog log read DATA_DIR/topic={topic}-part=N --as-of {as_of}",
        )
    now_ms = TimestampMs(time.time_ns() // 1_000_000)
    extent = Extent(
        topic=topic,
        partitions=partitions,
        start=parse_position(start, now_ms=now_ms),
        end=None if end is None else parse_position(end, now_ms=now_ms),
        count_max=count_max,
        is_followed=follow,
        isolation=_ISOLATION_LEVELS[isolation],
        has_control=control,
    )
    with record_printer(settings.output_of_records()) as printer:
        run_with_client(settings, lambda client: consume_extent(client, extent, printer))


async def consume_extent(client: Client, extent: Extent, printer: RowPrinter) -> None:
    """Print the records of an extent."""
    places = await find_places(client, extent)
    starts, ends = await find_bounds(client, extent, places)
    count = 0
    async for found in client.consume(
        starts, ends=ends, isolation=extent.isolation, include_control=extent.has_control
    ):
        printer.write(record_row(found.place, found.record, batch=found.batch))
        if extent.is_followed:
            flush_output()
        count += 1
        if count == extent.count_max:
            return


async def find_places(client: Client, extent: Extent) -> list[TopicPartition]:
    """The partitions to read.

    Raises:
        NotFoundError: there is no such topic, or it has no such partition.
    """
    topic = await client.describe_topic(extent.topic)
    known = [partition.partition for partition in topic.partitions]
    for partition in extent.partitions:
        if partition not in known:
            raise NotFoundError(
                f"topic {extent.topic} has no partition {partition}", hint=f"It has {len(known)}, counted from 0."
            )
    return [TopicPartition(extent.topic, partition) for partition in extent.partitions or known]


async def find_bounds(
    client: Client, extent: Extent, places: Sequence[TopicPartition]
) -> tuple[dict[TopicPartition, Offset], dict[TopicPartition, Offset]]:
    """The offset to start at and the offset to stop before, of each partition that has something to read.

    A partition that is followed without a bound has no end. The ends are those of records that can be read at the
    isolation level, so that an open transaction does not hold up the reader.
    """
    ends_now = await _offsets_at(client, LATEST, places, isolation=extent.isolation)
    starts = await _resolve(client, extent.start, ends_now)
    if extent.end is None:
        ends = {} if extent.is_followed else dict(ends_now)
    else:
        ends = await _resolve(client, extent.end, ends_now)
    if not extent.is_followed:
        ends = {place: min(end, ends_now[place]) for place, end in ends.items()}
    readable = {place: start for place, start in starts.items() if place not in ends or start < ends[place]}
    return readable, {place: end for place, end in ends.items() if place in readable}


async def _resolve(
    client: Client, position: Position, ends_now: Mapping[TopicPartition, Offset]
) -> dict[TopicPartition, Offset]:
    match position:
        case Start():
            return await _offsets_at(client, EARLIEST, list(ends_now))
        case End():
            return dict(ends_now)
        case AtOffset(offset=offset):
            return dict.fromkeys(ends_now, offset)
        case AtTime(timestamp_ms=timestamp_ms):
            found = await client.list_offsets(dict.fromkeys(ends_now, timestamp_ms))
            return {
                place: ends_now[place] if listed.offset is None else listed.offset for place, listed in found.items()
            }


async def _offsets_at(
    client: Client,
    time: TimestampMs,
    places: Sequence[TopicPartition],
    *,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[TopicPartition, Offset]:
    found = await client.list_offsets(dict.fromkeys(places, time), isolation=isolation)
    return {place: Offset(0) if listed.offset is None else listed.offset for place, listed in found.items()}
