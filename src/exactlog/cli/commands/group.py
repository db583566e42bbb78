"""`exactlog group`: list, describe, reset and delete consumer groups."""

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import click
from msgspec import Struct

from exactlog.cli.client import run_with_client
from exactlog.cli.completion_names import complete_groups, complete_topics
from exactlog.cli.errors import InvalidUsageError
from exactlog.cli.offsets import ends_of, find_places, resolve, starts_of
from exactlog.cli.output import Row, write_line, write_object, write_rows
from exactlog.cli.positions import Position, parse_position
from exactlog.cli.settings import Group, Settings
from exactlog.cli.targets import split_target
from exactlog.client.groups import EMPTY, CommittedOffset, GroupDescription, GroupListing
from exactlog.client.ports import Client, IsolationLevel
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import KafkaError, NotFoundError
from exactlog.core.model.ids import Offset, TimestampMs, TopicPartition

_GROUP_COLUMNS: Final = ("group", "state", "protocol_type", "type")
_MEMBER_COLUMNS: Final = ("member_id", "instance_id", "client_id", "host", "assigned")
_OFFSET_COLUMNS: Final = (
    "topic",
    "partition",
    "committed_offset",
    "last_stable_offset",
    "end_offset",
    "lag",
    "member_id",
    "metadata",
)
_RESET_COLUMNS: Final = ("topic", "partition", "committed_offset", "new_offset", "end_offset", "applied")


class DescribedGroup(Struct, frozen=True):
    """A group as rows: itself, its members, its offsets."""

    group: Row
    members: Sequence[Row]
    offsets: Sequence[Row]


@click.group(cls=Group)
def group() -> None:
    """List, describe, reset and delete consumer groups."""


@group.command("list")
@click.pass_obj
def list_groups(settings: Settings, /) -> None:
    """List the groups by name."""
    listings = run_with_client(settings, lambda client: client.list_groups())
    write_rows(map(group_row, listings), columns=_GROUP_COLUMNS, output=settings.output_of_list())


@group.command()
@click.argument("group_id", metavar="GROUP", shell_complete=complete_groups)
@click.pass_obj
def describe(settings: Settings, /, *, group_id: str) -> None:
    """Describe GROUP: its members with what they read, and how far it has come in each partition.

    The lag is what lies between the committed offset and the last stable offset: what a committed reader can read now.
    """
    described = run_with_client(settings, lambda client: describe_group(client, group_id))
    output = settings.output_of_list()
    if output != "table":
        write_object({**described.group, "members": described.members, "offsets": described.offsets}, output=output)
        return
    write_object({**described.group, "members": len(described.members)}, output=output)
    for rows, columns in ((described.members, _MEMBER_COLUMNS), (described.offsets, _OFFSET_COLUMNS)):
        if rows:
            write_line("")
            write_rows(map(_shown, rows), columns=columns, output=output)


@group.command("reset-offsets")
@click.argument("group_id", metavar="GROUP", shell_complete=complete_groups)
@click.argument("targets", metavar="TOPIC[:PARTITION]...", nargs=-1, required=True, shell_complete=complete_topics)
@click.option("--to", "place", required=True, metavar="PLACE", help="start, end, an offset, or @TIME.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.pass_obj
def reset_offsets(settings: Settings, /, *, group_id: str, targets: tuple[str, ...], place: str, dry_run: bool) -> None:
    """Let GROUP go on at another place of each TOPIC, or of one PARTITION of it. It must have no members.

    An offset that a partition does not have becomes the nearest one that it has. A TIME is how long before now
    (@-1h30m), RFC 3339 (@2026-11-27T10:00:00Z), or milliseconds since 1970.
    """
    position = parse_position(place, now_ms=TimestampMs(time.time_ns() // 1_000_000))
    wanted = [split_target(target) for target in targets]
    work = partial(reset_group, group_id=group_id, targets=wanted, position=position, is_applied=not dry_run)
    rows = run_with_client(settings, work)
    write_rows(rows, columns=_RESET_COLUMNS, output=settings.output_of_list())


@group.command()
@click.argument("group_id", metavar="GROUP", shell_complete=complete_groups)
@click.option("--yes", is_flag=True, help="Yes, delete it with all its offsets.")
@click.pass_obj
def delete(settings: Settings, /, *, group_id: str, yes: bool) -> None:
    """Delete GROUP and what it has committed. It must have no members."""
    if not yes:
        raise InvalidUsageError(f"deleting {group_id} forgets its offsets", hint="Add --yes if that is meant.")
    run_with_client(settings, lambda client: client.delete_group(group_id))
    write_object({"group": group_id, "deleted": True}, output=settings.output_of_list())


def group_row(listing: GroupListing) -> Row:
    """The group as a row."""
    return {
        "group": listing.group_id,
        "state": listing.state,
        "protocol_type": listing.protocol_type,
        "type": listing.group_type,
    }


async def describe_group(client: Client, group_id: str) -> DescribedGroup:
    """All about a group: what it is, its members, its offsets and its lag."""
    described = await client.describe_group(group_id)
    committed = await client.list_committed_offsets(group_id)
    readers = {place: member.member_id for member in described.members for place in member.assigned or ()}
    places = sorted(committed.keys() | readers)
    partition_counts = {topic.name: topic.partition_count for topic in await client.list_topics(include_internal=True)}
    there = [place for place in places if place.partition < partition_counts.get(place.topic, 0)]
    stable_ends = await ends_of(client, there, isolation=IsolationLevel.READ_COMMITTED)
    ends = await ends_of(client, there, isolation=IsolationLevel.READ_UNCOMMITTED)
    offsets = [
        _offset_row(
            place,
            committed.get(place),
            stable_end=stable_ends.get(place),
            end=ends.get(place),
            reader=readers.get(place),
        )
        for place in places
    ]
    lags = [row["lag"] for row in offsets if isinstance(row["lag"], int)]
    members = [
        {
            "member_id": member.member_id,
            "instance_id": member.group_instance_id,
            "client_id": member.client_id,
            "host": member.client_host,
            "assigned": None if member.assigned is None else [_place(place) for place in member.assigned],
        }
        for member in described.members
    ]
    return DescribedGroup({**_summary(described), "lag": sum(lags) if lags else None}, members, offsets)


async def reset_group(
    client: Client,
    *,
    group_id: str,
    targets: Iterable[tuple[str, int | None]],
    position: Position,
    is_applied: bool,
) -> list[Row]:
    """Let a group go on at another place, or say what that would be.

    Raises:
        KafkaError: NON_EMPTY_GROUP: it has members.
        NotFoundError: there is no such topic or partition.
    """
    await _check_is_empty(client, group_id)
    places: set[TopicPartition] = set()
    for topic, partition in targets:
        places.update(await find_places(client, topic, () if partition is None else (partition,)))
    starts = await starts_of(client, places)
    ends = await ends_of(client, places, isolation=IsolationLevel.READ_UNCOMMITTED)
    wanted = await resolve(client, position, ends)
    new = {place: min(max(wanted[place], starts[place]), ends[place]) for place in sorted(places)}
    committed = await client.list_committed_offsets(group_id)
    if is_applied:
        await client.commit_offsets(group_id, new)
    return [_reset_row(place, committed, new[place], end=ends[place], is_applied=is_applied) for place in new]


async def _check_is_empty(client: Client, group_id: str) -> None:
    try:
        described = await client.describe_group(group_id)
    except NotFoundError:
        return  # it comes into being with its offsets
    if described.state != EMPTY:
        raise KafkaError(
            ErrorCode.NON_EMPTY_GROUP,
            f"group {group_id} is {described.state}, it has members: "
            "they would go on where they are, and commit over what is set here",
            hint=f"Stop its members; `exactlog group describe {group_id}` shows them. "
            "One that has died is forgotten when its session times out.",
        )


def _summary(described: GroupDescription) -> dict[str, object]:
    return {
        "group": described.group_id,
        "state": described.state,
        "protocol_type": described.protocol_type,
        "protocol": described.protocol or None,
        "coordinator": described.coordinator,
    }


def _offset_row(
    place: TopicPartition,
    committed: CommittedOffset | None,
    *,
    stable_end: Offset | None,
    end: Offset | None,
    reader: str | None,
) -> Row:
    lag = None if committed is None or stable_end is None else max(0, stable_end - committed.offset)
    return {
        "topic": place.topic,
        "partition": place.partition,
        "committed_offset": None if committed is None else committed.offset,
        "last_stable_offset": stable_end,
        "end_offset": end,
        "lag": lag,
        "member_id": reader,
        "metadata": None if committed is None else committed.metadata,
    }


def _reset_row(
    place: TopicPartition,
    committed: Mapping[TopicPartition, CommittedOffset],
    new_offset: Offset,
    *,
    end: Offset,
    is_applied: bool,
) -> Row:
    return {
        "topic": place.topic,
        "partition": place.partition,
        "committed_offset": committed[place].offset if place in committed else None,
        "new_offset": new_offset,
        "end_offset": end,
        "applied": is_applied,
    }


def _place(place: TopicPartition) -> Row:
    return {"topic": place.topic, "partition": place.partition}


def _shown(row: Row) -> Row:
    """The row for people: partitions as TOPIC:PARTITION, as they are written on the command line."""
    assigned = row.get("assigned")
    if not isinstance(assigned, list):
        return row
    return {**row, "assigned": [f"{place['topic']}:{place['partition']}" for place in assigned]}
