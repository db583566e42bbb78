"""`exactlog txn watch`: what becomes of transactions, as it happens."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import Final

import click

from exactlog.cli.client import run_with_client
from exactlog.cli.completion_names import complete_transactional_ids
from exactlog.cli.durations import parse_duration_ms
from exactlog.cli.output import Row, RowPrinter, cell, flush_output, is_terminal, table_lines, write_line
from exactlog.cli.settings import Command, Settings
from exactlog.cli.transaction_rows import (
    LIST_COLUMNS,
    list_transactions,
    now_ms,
    shown_transaction,
    transaction_row,
)
from exactlog.client.ports import Client
from exactlog.client.transactions import TransactionDescription
from exactlog.core.deltalog.timestamps import format_timestamp
from exactlog.core.model.ids import TimestampMs

Seen = Mapping[str, TransactionDescription]

_HEADING: Final = f"{'TIME':<24}  {'STATE':<16}  {'EPOCH':>6}  {'PARTITIONS':>10}  TRANSACTIONAL ID"
_UP_AND_CLEAR: Final = "\x1b[{lines}A\x1b[J"
_CLEAR: Final = "\x1b[J"


@click.command(cls=Command)
@click.argument("transactional_ids", metavar="[ID]...", nargs=-1, shell_complete=complete_transactional_ids)
@click.option("--interval", default="1s", metavar="DURATION", help="How often to look; 1s by default.")
@click.pass_obj
def watch(settings: Settings, /, *, transactional_ids: tuple[str, ...], interval: str) -> None:
    """Watch the transactions of each ID, or all, until interrupted.

    On a terminal the open ones are shown; elsewhere every change is a line: first those that are there, then whatever
    state they come to. What comes and goes between two looks is not seen.
    """
    interval_ms = parse_duration_ms(interval)
    output = settings.output_of_records()
    if output == "table" and is_terminal(sys.stdout):
        run_with_client(settings, lambda client: show(client, transactional_ids, interval_ms=interval_ms))
        return
    with RowPrinter(output, heading=_HEADING, line_of=_line_of) as printer:
        flush_output()
        run_with_client(
            settings, lambda client: follow(client, transactional_ids, printer.write, interval_ms=interval_ms)
        )


async def follow(
    client: Client, transactional_ids: Collection[str], write: Callable[[Row], None], *, interval_ms: int
) -> None:
    """Write a row for every change, for ever."""
    before: Seen = {}
    async for seen in looks(client, transactional_ids, interval_ms=interval_ms):
        for row in changes(before, seen, now_ms=now_ms()):
            write(row)
        flush_output()
        before = seen


async def show(client: Client, transactional_ids: Collection[str], *, interval_ms: int) -> None:
    """Draw the open transactions over and over, in place."""
    lines = 0
    async for seen in looks(client, transactional_ids, interval_ms=interval_ms):
        drawn = picture(seen, now_ms=now_ms())
        write_line((_UP_AND_CLEAR.format(lines=lines) if lines else _CLEAR) + "\n".join(drawn))
        flush_output()
        lines = len(drawn)


async def looks(client: Client, transactional_ids: Collection[str], *, interval_ms: int) -> AsyncIterator[Seen]:
    """What there is, now and then."""
    while True:
        if transactional_ids:
            yield await client.describe_transactions(transactional_ids)
        else:
            yield {found.transactional_id: found for found in await list_transactions(client)}
        await asyncio.sleep(interval_ms / 1000)


def changes(before: Seen, after: Seen, *, now_ms: TimestampMs) -> list[Row]:
    """A row for each transactional id that is not as it was; one that was forgotten has no state any more."""
    rows: list[Row] = []
    for transactional_id in sorted(before.keys() | after.keys()):
        old, new = before.get(transactional_id), after.get(transactional_id)
        if _look_of(old) == _look_of(new):
            continue
        previous = {"time": now_ms, "previous_state": None if old is None else old.state}
        if new is not None:
            rows.append({**previous, **transaction_row(new, now_ms=now_ms)})
        elif old is not None:
            rows.append({**previous, **transaction_row(old, now_ms=now_ms), "state": None, "open_for_ms": None})
    return rows


def picture(seen: Seen, *, now_ms: TimestampMs) -> Sequence[str]:
    """The open transactions as lines, the oldest first."""
    by_age = sorted(
        (found for found in seen.values() if found.is_open),
        key=lambda found: (found.started_at_ms or now_ms, found.transactional_id),
    )
    rows = [shown_transaction(transaction_row(found, now_ms=now_ms)) for found in by_age]
    summary = f"{format_timestamp(now_ms)}  {len(rows)} open, {len(seen) - len(rows)} not"
    return [summary, *(table_lines(rows, columns=LIST_COLUMNS) if rows else ())]


def _look_of(found: TransactionDescription | None) -> object:
    """What makes a change; to move to another coordinator is none."""
    return found and (found.state, found.producer_id, found.producer_epoch, found.started_at_ms, found.partitions)


def _line_of(row: Row) -> str:
    time, partitions = row["time"], row["partitions"]
    assert isinstance(time, int), "as changes makes it"
    assert isinstance(partitions, list), "as changes makes it"
    state = "(forgotten)" if row["state"] is None else cell(row["state"])
    shown = (f"{format_timestamp(TimestampMs(time)):<24}", f"{state:<16}", f"{row['producer_epoch']:>6}")
    return "  ".join((*shown, f"{len(partitions):>10}", cell(row["transactional_id"])))
