"""`exactlog produce`: write records from standard input or a file."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import BinaryIO, Final

import click
from msgspec import Struct

from exactlog.cli.client import run_with_client
from exactlog.cli.errors import InvalidUsageError, PartlyDoneError
from exactlog.cli.line_source import read_line_chunks
from exactlog.cli.output import Row, RowPrinter, flush_output
from exactlog.cli.records import ProducibleRecord, parse_record
from exactlog.cli.settings import Command, Settings, split_assignment
from exactlog.client.ports import Client, ProducedRecord
from exactlog.core.codec.compression import Compression
from exactlog.core.model.errors import ExactlogError
from exactlog.core.record.batch_builder import NewRecord
from exactlog.core.record.record_format import Headers

_HEADING: Final = f"{'PARTITION':>9}  {'FIRST OFFSET':>12}  {'LAST OFFSET':>12}  {'RECORDS':>9}"
_CODECS: Final = tuple(codec.name.lower() for codec in Compression)


class Manner(Struct, frozen=True):
    """How lines become records, and how these are written.

    Attributes:
        partition: the one to write to, whatever a line says; None: as a line or its key says.
        key: of every record.
        headers: of every record.
        is_json: whether a line is a record in JSON, else it is a value.
    """

    topic: str
    partition: int | None
    key: bytes | None
    headers: Headers
    compression: Compression
    is_json: bool

    def record_of(self, line: bytes, *, number: int) -> ProducibleRecord:
        """The record a line stands for."""
        if self.is_json:
            return parse_record(line, number=number)
        return ProducibleRecord(NewRecord(value=line, key=self.key, headers=self.headers), None)


@click.command(cls=Command)
@click.argument("topic")
@click.option("-p", "--partition", type=click.IntRange(0), help="The partition; the key decides by default.")
@click.option("-k", "--key", help="The key of every record.")
@click.option("-H", "--header", "headers", metavar="NAME=VALUE", multiple=True, help="A header of every record.")
@click.option("-z", "--compression", type=click.Choice(_CODECS), default="none", help="How batches are compressed.")
@click.option("--json", "is_json", is_flag=True, help="A line is a record in JSON, as consume prints it.")
@click.option("--file", type=click.File("rb"), default="-", help="Where the lines are; standard input by default.")
@click.pass_obj
def produce(
    settings: Settings,
    /,
    *,
    topic: str,
    partition: int | None,
    key: str | None,
    headers: tuple[str, ...],
    compression: str,
    is_json: bool,
    file: BinaryIO,
) -> None:
    """Write a record to TOPIC for every line, and print where they went, batch by batch."""
    if is_json and (key is not None or headers):
        raise InvalidUsageError("with --json, keys and headers are in the lines", hint="Leave out -k and -H.")
    manner = Manner(
        topic=topic,
        partition=partition,
        key=None if key is None else key.encode(),
        headers=tuple((name, value.encode()) for name, value in map(split_assignment, headers)),
        compression=Compression[compression.upper()],
        is_json=is_json,
    )
    with RowPrinter(settings.output_of_records(), heading=_HEADING, line_of=_line_of) as printer:
        run_with_client(settings, lambda client: produce_lines(client, manner, file, printer))


async def produce_lines(client: Client, manner: Manner, source: BinaryIO, printer: RowPrinter) -> None:
    """Write a record for every line of `source`, and print a row for each contiguous range that was acknowledged.

    Raises:
        PartlyDoneError: something went wrong after some records had been acknowledged.
    """
    line_number = acknowledged_count = 0
    try:
        async for lines in read_line_chunks(source):
            numbered = enumerate(lines, start=line_number + 1)
            line_number += len(lines)
            records = [
                manner.record_of(line, number=number) for number, line in numbered if line.strip() or not manner.is_json
            ]
            for partition, run in groupby(records, key=lambda record: _first_of(manner.partition, record.partition)):
                batch = [record.record for record in run]
                produced = await client.produce(
                    manner.topic, batch, partition=partition, compression=manner.compression
                )
                acknowledged_count += len(produced)
                for row in acknowledged_rows(manner.topic, produced):
                    printer.write(row)
                flush_output()
    except ExactlogError as error:
        if not acknowledged_count:
            raise
        raise PartlyDoneError(f"{acknowledged_count} records are written, then: {error}", error) from error


def acknowledged_rows(topic: str, produced: Sequence[ProducedRecord]) -> Iterator[Row]:
    """A row for each contiguous range of offsets."""
    by_place = sorted(produced, key=lambda record: (record.partition, -1 if record.offset is None else record.offset))
    for (partition, _), run in groupby(
        enumerate(by_place), key=lambda item: (item[1].partition, (item[1].offset or 0) - item[0])
    ):
        offsets = [record.offset for _, record in run]
        yield {
            "topic": topic,
            "partition": partition,
            "first_offset": offsets[0],
            "last_offset": offsets[-1],
            "records": len(offsets),
        }


def _first_of(*candidates: int | None) -> int | None:
    return next((candidate for candidate in candidates if candidate is not None), None)


def _line_of(row: Row) -> str:
    return f"{row['partition']:>9}  {row['first_offset']!s:>12}  {row['last_offset']!s:>12}  {row['records']:>9}"
