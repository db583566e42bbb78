"""`exactlog consume`: read records of a topic."""

import time
from collections.abc import AsyncIterator, Sequence

import click
from msgspec import Struct

from exactlog.cli.client import run_with_client
from exactlog.cli.completion_names import complete_groups, complete_topics
from exactlog.cli.errors import InvalidUsageError, NotAvailableError
from exactlog.cli.isolation import ISOLATION_LEVELS, control_option, isolation_option
from exactlog.cli.offsets import ends_of, find_places, resolve
from exactlog.cli.output import OutputClosed, RowPrinter, flush_output
from exactlog.cli.positions import Position, parse_position
from exactlog.cli.records import record_printer, record_row
from exactlog.cli.settings import Command, Settings
from exactlog.client.ports import Client, ConsumedRecord, IsolationLevel
from exactlog.core.model.ids import Offset, TimestampMs, TopicPartition


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
@click.argument("topic", shell_complete=complete_topics)
@click.option("-p", "--partition", "partitions", type=click.IntRange(0), multiple=True, help="All by default.")
@click.option("--from", "start", default="start", help="start (default), end, an offset, or @TIME.", metavar="PLACE")
@click.option(
    "--to", "end", help="Where to stop: end, an offset, or @TIME; the ends of now by default.", metavar="PLACE"
)
@click.option("-n", "--count", "count_max", type=click.IntRange(1), help="Stop after so many records.")
@click.option("-f", "--follow", is_flag=True, help="Do not stop at the ends: wait for more.")
@isolation_option
@control_option
@click.option(
    "-g", "--group", shell_complete=complete_groups, help="Read on where this group is, share with its other members."
)
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

    With a group the partitions are shared by its members, and what was printed is committed: the next reader of the
    group goes on behind it. --from is for partitions of which the group has no offset yet.
    """
    if group is not None and partitions:
        raise InvalidUsageError("a group decides itself who reads which partition", hint="Leave out -p, or -g.")
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
        isolation=ISOLATION_LEVELS[isolation],
        has_control=control,
    )
    with record_printer(settings.output_of_records()) as printer:
        if group is None:
            run_with_client(settings, lambda client: consume_extent(client, extent, printer))
        else:
            run_with_client(settings, lambda client: consume_in_group(client, group, extent, printer))


async def consume_extent(client: Client, extent: Extent, printer: RowPrinter) -> None:
    """Print the records of an extent."""
    places = await find_places(client, extent.topic, extent.partitions)
    starts, ends = await find_bounds(client, extent, places)
    records = client.consume(starts, ends=ends, isolation=extent.isolation, include_control=extent.has_control)
    await print_records(records, extent, printer)


async def consume_in_group(client: Client, group_id: str, extent: Extent, printer: RowPrinter) -> None:
    """Print the records of an extent that the other members of a group do not read, and commit what is printed."""
    places = await find_places(client, extent.topic, ())
    starts, ends = await find_bounds(client, extent, places)
    is_bounded = not extent.is_followed or extent.end is not None
    is_output_closed = False

    def flush_all() -> None:
        if is_output_closed:  # what was written last is lost, and a further flush would not say so
            raise OutputClosed
        flush_output()

    async with client.join_group(
        group_id,
        extent.topic,
        starts=starts,
        ends=ends if is_bounded else None,
        isolation=extent.isolation,
        include_control=extent.has_control,
        before_commit=flush_all,
    ) as member:
        try:
            await print_records(member.records(), extent, printer)
        except OutputClosed:
            is_output_closed = True
            raise
        member.done()


async def print_records(records: AsyncIterator[ConsumedRecord], extent: Extent, printer: RowPrinter) -> None:
    """Print records until there are no more, or enough."""
    count = 0
    async for found in records:
        printer.write(record_row(found.place, found.record, batch=found.batch))
        if extent.is_followed:
            flush_output()
        count += 1
        if count == extent.count_max:
            return


async def find_bounds(
    client: Client, extent: Extent, places: Sequence[TopicPartition]
) -> tuple[dict[TopicPartition, Offset], dict[TopicPartition, Offset]]:
    """The offset to start at and the offset to stop before, of each partition.

    A partition that is followed without a bound has no end. The ends are those of records that can be read at the
    isolation level, so that an open transaction does not hold up the reader.
    """
    ends_now = await ends_of(client, places, isolation=extent.isolation)
    starts = await resolve(client, extent.start, ends_now)
    if extent.end is None:
        ends = {} if extent.is_followed else dict(ends_now)
    else:
        ends = await resolve(client, extent.end, ends_now)
    if not extent.is_followed:
        ends = {place: min(end, ends_now[place]) for place, end in ends.items()}
    return starts, ends
