"""`exactlog txn`: see transactions, find those that hang, end them (KIP-664)."""

from collections.abc import Collection, Iterable
from functools import partial
from typing import Final

import click
from msgspec import Struct

from exactlog.cli.client import run_with_client
from exactlog.cli.commands.txn_abort import abort
from exactlog.cli.commands.txn_watch import watch
from exactlog.cli.completion_names import complete_topics, complete_transactional_ids
from exactlog.cli.durations import parse_duration_ms
from exactlog.cli.offsets import find_places
from exactlog.cli.output import Row, write_line, write_object, write_rows
from exactlog.cli.settings import Group, Settings
from exactlog.cli.targets import split_target
from exactlog.cli.transaction_rows import (
    LIST_COLUMNS,
    list_transactions,
    now_ms,
    shown_times,
    shown_transaction,
    transaction_row,
)
from exactlog.client.hanging_transactions import (
    WITHOUT_TRANSACTIONS,
    HeldPartition,
    OpenTransaction,
    existing,
    find_hanging,
    held_partitions,
    started_at,
)
from exactlog.client.ports import Client
from exactlog.client.transactions import STATES, ActiveProducer
from exactlog.core.model.ids import TopicPartition

_PARTITION_COLUMNS: Final = (
    "topic",
    "partition",
    "start_offset",
    "last_stable_offset",
    "end_offset",
    "waiting_groups",
)
_PRODUCER_COLUMNS: Final = (
    "topic",
    "partition",
    "producer_id",
    "producer_epoch",
    "last_sequence",
    "last_timestamp",
    "coordinator_epoch",
    "start_offset",
)
_HANGING_COLUMNS: Final = (
    "topic",
    "partition",
    "start_offset",
    "started_at",
    "transactional_id",
    "producer_id",
    "producer_epoch",
    "end_offset",
    "waiting_groups",
    "command",
)


class DescribedTransaction(Struct, frozen=True):
    """A transaction as rows: itself, and the partitions that wait for it."""

    transaction: Row
    partitions: list[Row]


@click.group(cls=Group)
def txn() -> None:
    """See transactions, find those that hang, and end them."""


@txn.command("list")
@click.option(
    "--state", "states", multiple=True, type=click.Choice(STATES, case_sensitive=False), help="Only in this state."
)
@click.option("--producer-id", "producer_ids", multiple=True, type=click.IntRange(0), help="Only of this producer.")
@click.option("--duration", metavar="DURATION", help="Only those that have been open for so long, as 90s or 1h30m.")
@click.option("--id-pattern", metavar="REGEX", help="Only ids that match this expression, whole (RE2).")
@click.pass_obj
def list_command(
    settings: Settings,
    /,
    *,
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    duration: str | None,
    id_pattern: str | None,
) -> None:
    """List the transactional ids, with the transaction that each has open."""
    work = partial(
        list_transactions,
        states=states,
        producer_ids=producer_ids,
        open_for_ms_min=None if duration is None else parse_duration_ms(duration),
        id_pattern=id_pattern,
    )
    found = run_with_client(settings, work)
    asked_at_ms = now_ms()
    rows: Iterable[Row] = (transaction_row(description, now_ms=asked_at_ms) for description in found)
    output = settings.output_of_list()
    write_rows(map(shown_transaction, rows) if output == "table" else rows, columns=LIST_COLUMNS, output=output)


@txn.command()
@click.argument("transactional_id", metavar="ID", shell_complete=complete_transactional_ids)
@click.pass_obj
def describe(settings: Settings, /, *, transactional_id: str) -> None:
    """Describe the transaction of ID: since when it is open, and which partitions wait for it.

    Readers of committed records do not get past the last stable offset of a partition; groups that are there wait.
    """
    described = run_with_client(settings, lambda client: describe_transaction(client, transactional_id))
    output = settings.output_of_list()
    if output != "table":
        write_object({**described.transaction, "partitions": described.partitions}, output=output)
        return
    write_object(shown_transaction(described.transaction), output=output)
    if described.partitions:
        write_line("")
        write_rows(described.partitions, columns=_PARTITION_COLUMNS, output=output)


@txn.command()
@click.argument("targets", metavar="TOPIC[:PARTITION]...", nargs=-1, required=True, shell_complete=complete_topics)
@click.pass_obj
def producers(settings: Settings, /, *, targets: tuple[str, ...]) -> None:
    """List the producers that each TOPIC, or one PARTITION of it, remembers."""
    rows = run_with_client(settings, lambda client: describe_producers(client, targets))
    _write(rows, columns=_PRODUCER_COLUMNS, settings=settings)


@txn.command("find-hanging")
@click.argument("targets", metavar="[TOPIC[:PARTITION]]...", nargs=-1, shell_complete=complete_topics)
@click.pass_obj
def find_hanging_command(settings: Settings, /, *, targets: tuple[str, ...]) -> None:
    """Find transactions that no coordinator will end: in each TOPIC, or one PARTITION of it, or everywhere.

    Readers of committed records wait for them until they are aborted; the command that does it is printed. Without a
    command are those whose coordinator cannot be asked now: it may still end them.
    """
    rows, count = run_with_client(settings, lambda client: describe_hanging(client, targets))
    _write(rows, columns=_HANGING_COLUMNS, settings=settings)
    if not rows:
        settings.say(f"{count} partitions looked at: every open transaction has a coordinator that will end it")
    undecided = sum(row["undecided"] is True for row in rows)
    if undecided:
        settings.say(f"{undecided} may have a coordinator that will end them; it cannot be asked now, its log says why")


txn.add_command(abort)
txn.add_command(watch)


async def describe_transaction(client: Client, transactional_id: str) -> DescribedTransaction:
    """All about a transactional id.

    Raises:
        NotFoundError: there is no such id.
    """
    description = await client.describe_transaction(transactional_id)
    row = transaction_row(description, now_ms=now_ms())
    waiting = description.partitions if description.is_open else ()
    producers_of = await client.describe_producers(await existing(client, waiting))
    held = await held_partitions(client, waiting)
    partitions: list[Row] = []
    for place in description.partitions:
        own = (found for found in producers_of.get(place, ()) if found.producer_id == description.producer_id)
        partitions.append(
            {
                **_place_row(place),
                "start_offset": next((found.txn_start_offset for found in own), None),
                **held_row(held.get(place)),
            }
        )
    return DescribedTransaction(row, partitions)


async def describe_producers(client: Client, targets: Collection[str]) -> list[Row]:
    """A row for each producer of each partition."""
    places = await places_of(client, targets)
    found = await client.describe_producers(places)
    return [_producer_row(place, producer) for place in places for producer in found[place]]


async def describe_hanging(client: Client, targets: Collection[str]) -> tuple[list[Row], int]:
    """A row for each hanging transaction, and how many partitions were looked at."""
    places = await places_of(client, targets)
    hanging = await find_hanging(client, places)
    held = await held_partitions(client, {found.place for found in hanging})
    rows = [await _hanging_row(client, found, held[found.place]) for found in hanging]
    return rows, len(places)


async def places_of(client: Client, targets: Collection[str]) -> list[TopicPartition]:
    """The partitions that were named; none named: all in which there can be a transaction.

    Raises:
        NotFoundError: one of them is not there.
    """
    if not targets:
        topics = await client.list_topics(include_internal=True)
        return [
            TopicPartition(topic.name, number)
            for topic in topics
            if topic.name != WITHOUT_TRANSACTIONS
            for number in range(topic.partition_count)
        ]
    places: set[TopicPartition] = set()
    for target in targets:
        topic_name, number = split_target(target)
        places.update(await find_places(client, topic_name, () if number is None else (number,)))
    return sorted(places)


def held_row(held: HeldPartition | None) -> Row:
    """How far readers come, as a part of a row."""
    return {
        "last_stable_offset": None if held is None else held.last_stable_offset,
        "end_offset": None if held is None else held.end_offset,
        "waiting_groups": None if held is None else list(held.waiting_groups),
    }


async def _hanging_row(client: Client, found: OpenTransaction, held: HeldPartition) -> Row:
    place, start_offset = found.place, found.start_offset
    since_ms = await started_at(client, place, start_offset)
    is_first = held.last_stable_offset == start_offset  # those behind it do not hold anybody up yet
    return {
        **_place_row(place),
        "start_offset": start_offset,
        "started_at": since_ms if since_ms is not None else found.producer.last_timestamp_ms,
        "transactional_id": None if found.coordinated is None else found.coordinated.transactional_id,
        "producer_id": found.producer.producer_id,
        "producer_epoch": found.producer.producer_epoch,
        "coordinator_epoch": found.producer.coordinator_epoch,
        "last_timestamp": found.producer.last_timestamp_ms,
        **held_row(held),
        "waiting_groups": list(held.waiting_groups) if is_first else [],
        "undecided": found.is_undecided,
        "command": None if found.is_undecided else _abort_command(place, start_offset),
    }


def _abort_command(place: TopicPartition, start_offset: int) -> str:
    return f"exactlog txn abort {place.topic}:{place.partition} --start-offset {start_offset}"


def _producer_row(place: TopicPartition, producer: ActiveProducer) -> Row:
    return {
        **_place_row(place),
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "last_sequence": producer.last_sequence,
        "last_timestamp": producer.last_timestamp_ms,
        "coordinator_epoch": producer.coordinator_epoch,
        "start_offset": producer.txn_start_offset,
    }


def _place_row(place: TopicPartition) -> Row:
    return {"topic": place.topic, "partition": place.partition}


def _write(rows: Iterable[Row], *, columns: tuple[str, ...], settings: Settings) -> None:
    output = settings.output_of_list()
    write_rows(map(shown_times, rows) if output == "table" else rows, columns=columns, output=output)
