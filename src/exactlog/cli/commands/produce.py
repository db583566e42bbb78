"""`exactlog produce`: write records from standard input or a file."""

from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import groupby
from typing import BinaryIO, Final, assert_never

import click
from msgspec import Struct

from exactlog.cli.client import run_with_client
from exactlog.cli.errors import InvalidUsageError, PartlyDoneError, PayloadDiffersError, VersionConflictError
from exactlog.cli.line_source import read_line_chunks
from exactlog.cli.output import Row, RowPrinter, flush_output
from exactlog.cli.records import ProducibleRecord, parse_record
from exactlog.cli.settings import Command, Settings, split_assignment
from exactlog.client.ports import Client
from exactlog.client.produced import ProducedRecord
from exactlog.client.transactions import TransactionalProducer, TransactionPart
from exactlog.core.codec.compression import Compression
from exactlog.core.deltalog.append_terms import Committed, Conflicted, PayloadDiffers, Unavailable
from exactlog.core.model.errors import ExactlogError, UnavailableError
from exactlog.core.model.limits import FRAME_BYTES_MAX
from exactlog.core.record.batch_builder import NewRecord
from exactlog.core.record.record_format import Headers

_HEADING: Final = f"{'PARTITION':>9}  {'FIRST OFFSET':>12}  {'LAST OFFSET':>12}  {'RECORDS':>9}"
_APPEND_HEADING: Final = f"{_HEADING}  {'DELTA VERSION':>13}"
_TRANSACTION_HEADING: Final = f"{_HEADING}  {'OUTCOME':<9}"
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


class Transactions(Struct, frozen=True, kw_only=True):
    """How lines go into transactions.

    Attributes:
        transactional_id: whose transactions they are.
        batch: how many records a transaction has; None: all there are.
        abort_after: after so many records in all, the transaction that has the last one is aborted, and that is that.
    """

    transactional_id: str
    batch: int | None
    abort_after: int | None

    def room(self, *, in_transaction: int, in_all: int) -> int | None:
        """How many records may be written before a transaction ends; None: however many there are."""
        limits = ((self.batch, in_transaction), (self.abort_after, in_all))
        return min((limit - count for limit, count in limits if limit is not None), default=None)


class Terms(Struct, frozen=True, kw_only=True):
    """What an append of all lines together rests on, and its id; None where nothing is said."""

    expected_version: int | None
    txn_id: str | None


@click.command(cls=Command)
@click.argument("topic")
@click.option("-p", "--partition", type=click.IntRange(0), help="The partition; the key decides by default.")
@click.option("-k", "--key", help="The key of every record.")
@click.option("-H", "--header", "headers", metavar="NAME=VALUE", multiple=True, help="A header of every record.")
@click.option("-z", "--compression", type=click.Choice(_CODECS), default="none", help="How batches are compressed.")
@click.option("--json", "is_json", is_flag=True, help="A line is a record in JSON, as consume prints it.")
@click.option("--file", type=click.File("rb"), default="-", help="Where the lines are; standard input by default.")
@click.option(
    "--expect-version",
    type=click.IntRange(0),
    help="All lines in one delta version, if this one is the partition's newest.",
)
@click.option("--txn-id", metavar="ID", help="All lines in one delta version, once, however often this id is used.")
@click.option("--txn", "transactional_id", metavar="ID", help="All lines in one transaction of this transactional id.")
@click.option("--batch", type=click.IntRange(1), metavar="N", help="With --txn: a transaction for every N lines.")
@click.option(
    "--abort-after", type=click.IntRange(1), metavar="N", help="With --txn: abort the transaction after N lines."
)
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
    expect_version: int | None,
    txn_id: str | None,
    transactional_id: str | None,
    batch: int | None,
    abort_after: int | None,
) -> None:
    """Write a record to TOPIC for every line, and print where they went, batch by batch.

    With --expect-version or --txn-id all lines are appended together, to one partition, or none of them. With --txn
    they count together, in whichever partitions, or none of them does.
    """
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
    output = settings.output_of_records()
    transactions = _transactions(transactional_id, batch, abort_after)
    if transactions is not None:
        if expect_version is not None or txn_id is not None:
            raise InvalidUsageError("--txn does not go with --expect-version or --txn-id")
        with RowPrinter(output, heading=_TRANSACTION_HEADING, line_of=_transaction_line_of) as printer:
            run_with_client(
                settings, lambda client: produce_in_transactions(client, manner, transactions, file, printer)
            )
        return
    if expect_version is not None or txn_id is not None:
        terms = Terms(expected_version=expect_version, txn_id=txn_id)
        row = run_with_client(settings, lambda client: append_lines(client, manner, terms, file))
        with RowPrinter(output, heading=_APPEND_HEADING, line_of=_append_line_of) as printer:
            printer.write(row)
        return
    with RowPrinter(output, heading=_HEADING, line_of=_line_of) as printer:
        run_with_client(settings, lambda client: produce_lines(client, manner, file, printer))


async def produce_lines(client: Client, manner: Manner, source: BinaryIO, printer: RowPrinter) -> None:
    """Write a record for every line of `source`, and print a row for each contiguous range that was acknowledged.

    Raises:
        PartlyDoneError: something went wrong after some records had been acknowledged.
    """
    acknowledged_count = 0
    try:
        async for records in read_records(manner, source):
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


class TransactionalLines:
    """Writes records in transactions, and prints a row for each contiguous range of one once it has ended.

    Attributes:
        committed_count: how many records count for certain.
    """

    def __init__(
        self, producer: TransactionalProducer, manner: Manner, transactions: Transactions, printer: RowPrinter
    ) -> None:
        self.committed_count = 0
        self._producer = producer
        self._manner = manner
        self._transactions = transactions
        self._printer = printer
        self._written: list[ProducedRecord] = []

    async def write(self, records: Sequence[ProducibleRecord]) -> bool:
        """Write some more; False: a transaction was aborted as asked for, and that is that."""
        while records:
            if not self._written:
                await self._producer.begin()
            count = len(self._written)
            room = self._transactions.room(in_transaction=count, in_all=self.committed_count + count)
            share, records = records[:room], records[room:] if room is not None else ()
            self._written += await _produce_runs(self._producer, self._manner, share)
            if self.committed_count + len(self._written) == self._transactions.abort_after:
                await self._end(is_commit=False)
                return False
            if len(self._written) == self._transactions.batch:
                await self._end(is_commit=True)
        return True

    async def finish(self) -> None:
        """There are no more records."""
        if self._written:
            await self._end(is_commit=True)

    async def _end(self, *, is_commit: bool) -> None:
        await (self._producer.commit() if is_commit else self._producer.abort())
        self.committed_count += len(self._written) * is_commit
        for row in acknowledged_rows(self._manner.topic, self._written):
            self._printer.write({**row, "outcome": "committed" if is_commit else "aborted"})
        flush_output()
        self._written = []


async def produce_in_transactions(
    client: Client, manner: Manner, transactions: Transactions, source: BinaryIO, printer: RowPrinter
) -> None:
    """Write a record for every line of `source`, in transactions. An interruption aborts the one that is open.

    Raises:
        PartlyDoneError: something went wrong after some transactions had been committed.
    """
    async with client.transactional_producer(transactions.transactional_id) as producer:
        lines = TransactionalLines(producer, manner, transactions, printer)
        try:
            async for records in read_records(manner, source):
                if not await lines.write(records):
                    return
            await lines.finish()
        except ExactlogError as error:
            if not lines.committed_count:
                raise
            raise PartlyDoneError(f"{lines.committed_count} records are committed, then: {error}", error) from error


async def _produce_runs(
    producer: TransactionPart, manner: Manner, records: Sequence[ProducibleRecord]
) -> list[ProducedRecord]:
    """Write records in a transaction, those that name a partition to that one."""
    produced: list[ProducedRecord] = []
    for partition, run in groupby(records, key=lambda record: _first_of(manner.partition, record.partition)):
        batch = [record.record for record in run]
        produced += await producer.produce(manner.topic, batch, partition=partition, compression=manner.compression)
    return produced


async def append_lines(client: Client, manner: Manner, terms: Terms, source: BinaryIO) -> Row:
    """Append a record for every line of `source`, all in one delta version, and tell where they are.

    Raises:
        VersionConflictError: the partition is at another version.
        PayloadDiffersError: the id came before with other lines.
        InvalidUsageError: there is no line, or too much of them, or more than one partition for them.
    """
    records: list[ProducibleRecord] = []
    async for chunk in read_records(manner, source, bytes_max=FRAME_BYTES_MAX):
        records += chunk
    if not records:
        raise InvalidUsageError("there is no line to append")
    partition = await choose_partition(client, manner, records)
    ending = await client.append(
        manner.topic,
        partition,
        [record.record for record in records],
        expected_version=terms.expected_version,
        txn_id=terms.txn_id,
        compression=manner.compression,
    )
    match ending:
        case Committed(version=version, offset_start=first, offset_end=last):
            row = _range_row(manner.topic, partition, first=first, last=last, count=last - first + 1)
            return {**row, "delta_version": version}
        case Conflicted(expected=expected, actual=actual):
            raise VersionConflictError(
                f"{manner.topic}-{partition} is at version {actual}, not {expected}: nothing was appended",
                hint=f"See what came since; then --expect-version {actual} may hold.",
            )
        case PayloadDiffers(message=message):
            raise PayloadDiffersError(
                f"nothing was appended: {message}", hint="Send the same lines again, or other lines under another id."
            )
        case Unavailable(reason=reason):
            raise UnavailableError(reason)
        case unreachable:
            assert_never(unreachable)


async def choose_partition(client: Client, manner: Manner, records: Sequence[ProducibleRecord]) -> int:
    """The one partition for all records: as said, as the lines say, or the topic's only one.

    Raises:
        InvalidUsageError: there are several.
    """
    if manner.partition is not None:
        return manner.partition
    named = {record.partition for record in records if record.partition is not None}
    if not named:
        named = {found.partition for found in (await client.describe_topic(manner.topic)).partitions}
    partition, *others = sorted(named)
    if others:
        raise InvalidUsageError(
            f"the lines go to one partition of {manner.topic} together, and {len(named)} come into question",
            hint="Name the partition with -p.",
        )
    return partition


async def read_records(
    manner: Manner, source: BinaryIO, *, bytes_max: int | None = None
) -> AsyncIterator[list[ProducibleRecord]]:
    """The records that the lines stand for, as many at a time as have arrived together.

    Raises:
        InvalidUsageError: a line is no record, or the lines have more than `bytes_max` together.
    """
    line_number = line_bytes = 0
    async for lines in read_line_chunks(source):
        numbered = enumerate(lines, start=line_number + 1)
        line_number += len(lines)
        line_bytes += sum(map(len, lines))
        if bytes_max is not None and line_bytes > bytes_max:
            raise InvalidUsageError(f"the lines have more than {bytes_max} bytes, too many for one append")
        yield [manner.record_of(line, number=number) for number, line in numbered if line.strip() or not manner.is_json]


def acknowledged_rows(topic: str, produced: Sequence[ProducedRecord]) -> Iterator[Row]:
    """A row for each contiguous range of offsets."""
    by_place = sorted(produced, key=lambda record: (record.partition, -1 if record.offset is None else record.offset))
    for (partition, _), run in groupby(
        enumerate(by_place), key=lambda item: (item[1].partition, (item[1].offset or 0) - item[0])
    ):
        offsets = [record.offset for _, record in run]
        yield _range_row(topic, partition, first=offsets[0], last=offsets[-1], count=len(offsets))


def _range_row(topic: str, partition: int, *, first: int | None, last: int | None, count: int) -> Row:
    return {"topic": topic, "partition": partition, "first_offset": first, "last_offset": last, "records": count}


def _transactions(transactional_id: str | None, batch: int | None, abort_after: int | None) -> Transactions | None:
    """What --txn and the options that go with it say."""
    if transactional_id is not None:
        return Transactions(transactional_id=transactional_id, batch=batch, abort_after=abort_after)
    if batch is not None or abort_after is not None:
        raise InvalidUsageError("--batch and --abort-after go with --txn")
    return None


def _first_of(*candidates: int | None) -> int | None:
    return next((candidate for candidate in candidates if candidate is not None), None)


def _line_of(row: Row) -> str:
    return f"{row['partition']:>9}  {row['first_offset']!s:>12}  {row['last_offset']!s:>12}  {row['records']:>9}"


def _transaction_line_of(row: Row) -> str:
    return f"{_line_of(row)}  {row['outcome']:<9}"


def _append_line_of(row: Row) -> str:
    return f"{_line_of(row)}  {row['delta_version']:>13}"
