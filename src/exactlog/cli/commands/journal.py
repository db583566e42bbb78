"""`exactlog journal`: the journals of entities: append, read, delete, and the jobs that keep their store."""

import sys
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import click
import msgspec

from exactlog.cli.client import DEADLINE_MS, run_with_client
from exactlog.cli.errors import InvalidUsageError
from exactlog.cli.line_source import read_line_chunks
from exactlog.cli.output import Row, RowPrinter, cell, write_object, write_rows
from exactlog.cli.records import encode_bytes
from exactlog.cli.settings import Group, Settings, split_assignment
from exactlog.client.ports import LATEST, Client, ClientSettings
from exactlog.core.journal.errors import JournalInputError
from exactlog.core.journal.expectation import ANY, EXISTS, NO_STREAM, Expectation
from exactlog.core.journal.keys import Place
from exactlog.core.model.ids import TopicPartition
from exactlog.journal.brokers import open_brokers
from exactlog.journal.event_record import Envelope, EventRecord
from exactlog.journal.journals import Journals
from exactlog.journal.parking import SkippedRecord
from exactlog.journal.replicator import Replicator
from exactlog.journal.settings import JournalSettings
from exactlog.journal.stores.store_url import journal_store
from exactlog.node.clock import SystemClock

Result = TypeVar("Result")

STORE_VARIABLE: Final = "EXACTLOG_JOURNAL_STORE"
_EXPECTATIONS: Final = {"any": ANY, "none": NO_STREAM, "exists": EXISTS}
_LAG_COLUMNS: Final = ("topic", "partition", "pointer", "end", "lag")
_HEADING: Final = "SEQ NR  OFFSET  TIMESTAMP      EVENT"

_store = click.option(
    "-s",
    "--store",
    default="memory:",
    envvar=STORE_VARIABLE,
    metavar="URL",
    help=f"Where they are replicated to, as sqlite:///FILE; ${STORE_VARIABLE}. Without it all is read from the log.",
)
store_option = click.option(
    "-s",
    "--store",
    required=True,
    envvar=STORE_VARIABLE,
    metavar="URL",
    help=f"The store, as sqlite:///FILE or cassandra://HOST:PORT/KEYSPACE; ${STORE_VARIABLE}.",
)
_topic = click.argument("topic")
_id = click.argument("key_id", metavar="ID")
_yes = click.option("--yes", is_flag=True, help="Yes, it cannot be taken back.")


@click.group(cls=Group)
def journal() -> None:
    """Append to, read and replicate the journals of entities."""


@journal.command()
@_topic
@_id
@_store
@click.option("--expect", default="any", metavar="any|none|exists|N", help="What the journal has to be like.")
@click.option("--event-id", "event_ids", multiple=True, metavar="TEXT", help="One for each event: safe to repeat.")
@click.option("--tag", "tags", multiple=True, metavar="TEXT", help="Of all events.")
@click.option("--metadata", metavar="JSON", help="Of the append.")
@click.option("-H", "--header", "headers", multiple=True, metavar="KEY=VALUE", help="Of its record.")
@click.option("--expire-after", metavar="TIME", help='As "30 days": the journal may be purged then.')
@click.option("--text", "is_text", is_flag=True, help="Lines are text, not JSON.")
@click.pass_obj
def append(
    settings: Settings,
    /,
    *,
    topic: str,
    key_id: str,
    store: str,
    expect: str,
    event_ids: tuple[str, ...],
    tags: tuple[str, ...],
    metadata: str | None,
    headers: tuple[str, ...],
    expire_after: str | None,
    is_text: bool,
) -> None:
    """Append the lines of standard input to a journal, each an event, all of them together."""
    expected = _expectation(expect)
    said = None if metadata is None else _json(metadata.encode(), "--metadata")

    async def work(journals: Journals) -> Row:
        lines = [line async for chunk in read_line_chunks(sys.stdin.buffer) for line in chunk if line.strip()]
        events = [line.decode() if is_text else _json(line, "a line of the input") for line in lines]
        told = await journals[topic, key_id].append(
            [Envelope(event, frozenset(tags)) for event in events],
            expected,
            event_ids=event_ids,
            metadata=said,
            headers=dict(map(split_assignment, headers)),
            expire_after=expire_after,
        )
        return {"seq_nr": told.seq_nr, "partition": told.partition, "offset": told.offset}

    write_object(_run(settings, store, work), output=settings.output_of_list())


@journal.command()
@_topic
@_id
@_store
@click.option("--from", "from_seq", type=int, default=1, show_default=True, help="The first number.")
@click.option("--to", "to_seq", type=int, help="The last number.")
@click.pass_obj
def read(settings: Settings, /, *, topic: str, key_id: str, store: str, from_seq: int, to_seq: int | None) -> None:
    """Print the events of a journal."""

    async def work(journals: Journals) -> None:
        with RowPrinter(settings.output_of_records(), heading=_HEADING, line_of=_event_line) as printer:
            async for record in journals[topic, key_id].read(from_seq, to_seq):
                printer.write(_event_row(record))

    _run(settings, store, work)


@journal.command()
@_topic
@_id
@_store
@click.pass_obj
def pointer(settings: Settings, /, *, topic: str, key_id: str, store: str) -> None:
    """Print the number of a journal's last event."""
    seq_nr = _run(settings, store, lambda journals: journals[topic, key_id].pointer())
    write_object({"topic": topic, "id": key_id, "seq_nr": seq_nr}, output=settings.output_of_list())


@journal.command()
@_topic
@_id
@_store
@click.option("--to", required=True, type=int, help="The last number that goes.")
@_yes
@click.pass_obj
def delete(settings: Settings, /, *, topic: str, key_id: str, store: str, to: int, yes: bool) -> None:
    """Delete the events of a journal up to a number."""
    _check_yes(yes=yes, what=f"the events of journal {topic}/{key_id} up to {to} are deleted")
    place = _run(settings, store, lambda journals: journals[topic, key_id].delete(to))
    write_object(_place_row(place), output=settings.output_of_list())


@journal.command()
@_topic
@_id
@_store
@click.option("--expect", default="any", metavar="any|exists|N", help="What the journal has to be like.")
@_yes
@click.pass_obj
def purge(settings: Settings, /, *, topic: str, key_id: str, store: str, expect: str, yes: bool) -> None:
    """Leave nothing of a journal."""
    _check_yes(yes=yes, what=f"all of journal {topic}/{key_id} is deleted")
    expected = _expectation(expect)
    place = _run(settings, store, lambda journals: journals[topic, key_id].purge(expect=expected))
    write_object(_place_row(place), output=settings.output_of_list())


@journal.command()
@_topic
@_id
@store_option
@click.option("--take", "is_taken", is_flag=True, help="Take one: the state is standard input, JSON.")
@click.option("--seq-nr", type=int, help="Of the last event that went into it; else the newest there is.")
@click.pass_obj
def snapshot(settings: Settings, /, *, topic: str, key_id: str, store: str, is_taken: bool, seq_nr: int | None) -> None:
    """Print the newest snapshot of a journal, or take one."""

    async def work(journals: Journals) -> Row:
        entity = journals[topic, key_id]
        if is_taken:
            state = _json(sys.stdin.buffer.read(), "the input")
            return {"seq_nr": await entity.snapshot(state, seq_nr=seq_nr), "state": state}
        found = await entity.latest_snapshot(to_seq=seq_nr)
        return {"seq_nr": None} if found is None else {"seq_nr": found.seq_nr, "state": _shown(found.state)}

    write_object(_run(settings, store, work), output=settings.output_of_list())


@journal.command()
@store_option
@click.option("--topic-prefix", "prefixes", multiple=True, help="Topics that begin so; else all.")
@click.option(
    "--skip", "skipped", multiple=True, metavar="TOPIC:PARTITION:OFFSET", help="Pass over a record that is parked."
)
@click.pass_obj
def replicate(settings: Settings, /, *, store: str, prefixes: tuple[str, ...], skipped: tuple[str, ...]) -> None:
    """Replicate topics into the store, until interrupted. Several may: they share the partitions.

    A record that cannot be replicated is parked: its journal waits, all others go on, and the log says which it is.
    """
    to_skip = tuple(map(parse_skipped, skipped))

    async def work(_: Client) -> None:
        async with open_brokers(f"kafka://{settings.bootstrap}") as brokers, journal_store(store) as opened:
            replicator = Replicator(brokers, opened, SystemClock(), topic_prefixes=prefixes or ("",), skipped=to_skip)
            settings.say(f"replicating into {store}; Ctrl-C ends it")
            await replicator.run()

    run_with_client(settings, work)


@journal.command()
@store_option
@click.option("--topic-prefix", "prefixes", multiple=True, help="Topics that begin so; else all that are replicated.")
@click.pass_obj
def lag(settings: Settings, /, *, store: str, prefixes: tuple[str, ...]) -> None:
    """Print how far each partition is replicated."""

    async def work(client: Client) -> list[Row]:
        async with journal_store(store) as opened:
            rows: list[Row] = []
            replicated = await opened.topics()
            for topic in await client.list_topics():
                is_wanted = topic.name.startswith(prefixes) if prefixes else topic.name in replicated
                if not is_wanted:
                    continue
                pointers = await opened.pointers(topic.name)
                places = [TopicPartition(topic.name, partition) for partition in range(topic.partition_count)]
                ends = await client.list_offsets(dict.fromkeys(places, LATEST))
                for place in places:
                    found = pointers.get(place.partition)
                    rows.append(_lag_row(place, None if found is None else found.offset, int(ends[place].offset or 0)))
            return rows

    write_rows(run_with_client(settings, work), columns=_LAG_COLUMNS, output=settings.output_of_list())


@journal.command("purge-expired")
@store_option
@click.option("--topic", "topics", multiple=True, help="Only of these topics.")
@click.pass_obj
def purge_expired(settings: Settings, /, *, store: str, topics: tuple[str, ...]) -> None:
    """Purge the journals whose time is over (UTC). An append that comes first wins."""
    count = _run(settings, store, lambda journals: journals.purge_expired(topics or None))
    write_object({"purges": count}, output=settings.output_of_list())


# --- arguments --------------------------------------------------------------------------------------------------------


def _expectation(text: str) -> Expectation | int:
    if text in _EXPECTATIONS:
        return _EXPECTATIONS[text]
    if not (text.isascii() and text.isdigit()):
        raise InvalidUsageError(f"--expect {text}: any, none, exists, or the number of the last event")
    return int(text)


def parse_skipped(text: str) -> SkippedRecord:
    """The record that `--skip TOPIC:PARTITION:OFFSET` names. Raises `InvalidUsageError`."""
    topic, _, rest = text.partition(":")
    partition, _, offset = rest.partition(":")
    if not topic or not all(number.isascii() and number.isdigit() for number in (partition, offset)):
        raise InvalidUsageError(f"--skip {text}: write TOPIC:PARTITION:OFFSET")
    return SkippedRecord(TopicPartition(topic, int(partition)), int(offset))


def _json(text: bytes, what: str) -> object:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise InvalidUsageError(f"{what} is not JSON: {error}", hint="--text takes lines as they are") from None


def _check_yes(*, yes: bool, what: str) -> None:
    if not yes:
        raise InvalidUsageError(f"{what}, which cannot be taken back", hint="say --yes if you mean it")


# --- rows -------------------------------------------------------------------------------------------------------------


def _event_row(record: EventRecord) -> Row:
    return {
        "seq_nr": record.seq_nr,
        "event": _shown(record.event),
        "tags": sorted(record.tags),
        "timestamp": record.timestamp,
        "partition": record.partition,
        "offset": record.offset,
        "origin": record.origin,
        "version": record.version,
        "metadata": record.metadata,
        "headers": dict(record.headers),
        "event_id": record.event_id,
    }


def _event_line(row: Row) -> str:
    return f"{row['seq_nr']:>6}  {row['offset']:>6}  {row['timestamp']:>13}  {cell(row['event'])}"


def _shown(value: object) -> object:
    return encode_bytes(value) if isinstance(value, bytes) else value


def _place_row(place: Place | None) -> Row:
    if place is None:
        return {"partition": None, "offset": None}
    return {"partition": place.partition, "offset": place.offset}


def _lag_row(place: TopicPartition, pointer_offset: int | None, end: int) -> Row:
    behind = end - 1 - (-1 if pointer_offset is None else pointer_offset)
    return {
        "topic": place.topic,
        "partition": place.partition,
        "pointer": pointer_offset,
        "end": end,
        "lag": max(0, behind),
    }


def _run(settings: Settings, store: str, work: Callable[[Journals], Awaitable[Result]]) -> Result:
    """What `work` returns, given the journals of the broker that the settings name."""

    async def run(_: Client) -> Result:
        async with Journals.open(
            f"kafka://{settings.bootstrap}",
            store=store,
            settings=JournalSettings(head_cache=False),
            client_settings=ClientSettings(deadline_ms=DEADLINE_MS),
        ) as journals:
            return await work(journals)

    try:
        return run_with_client(settings, run)
    except JournalInputError as error:
        raise InvalidUsageError(str(error), hint=error.hint) from error
