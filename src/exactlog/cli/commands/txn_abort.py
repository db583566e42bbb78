"""`exactlog txn abort`: end a transaction from outside.

By its transactional id the coordinator is asked, which fences the producer that has the id. By a partition and an
offset a marker is written into that partition alone: for a transaction that no coordinator knows.
"""

import click

from exactlog.cli.client import run_with_client
from exactlog.cli.completion_names import complete_transactional_ids
from exactlog.cli.errors import InvalidUsageError
from exactlog.cli.offsets import find_places
from exactlog.cli.output import Row, write_object
from exactlog.cli.settings import Command, Settings
from exactlog.cli.targets import split_target
from exactlog.client.hanging_transactions import held_partitions, open_transactions
from exactlog.client.ports import Client
from exactlog.client.transactions import ONGOING
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import KafkaError, NotFoundError, UnavailableError
from exactlog.core.model.ids import TopicPartition


@click.command(cls=Command)
@click.argument("target", metavar="ID|TOPIC:PARTITION", shell_complete=complete_transactional_ids)
@click.option(
    "--start-offset",
    type=click.IntRange(0),
    help="The first offset of a hanging transaction in TOPIC:PARTITION, as find-hanging prints it.",
)
@click.option("--yes", is_flag=True, help="Yes, fence the producer that has ID.")
@click.option("--force", is_flag=True, help="With --start-offset: even if a coordinator knows the transaction.")
@click.pass_obj
def abort(settings: Settings, /, *, target: str, start_offset: int | None, yes: bool, force: bool) -> None:
    """Abort the open transaction of ID, or a hanging one in a PARTITION.

    To abort by ID takes the id away from the producer that has it: its next request fails, and it can write no more
    until it is started again. A hanging transaction has no producer any more that could come to harm.
    """
    if start_offset is not None:
        place = _place(target)
        row = run_with_client(
            settings, lambda client: abort_hanging(client, place, start_offset=start_offset, is_forced=force)
        )
    elif force:
        raise InvalidUsageError("--force goes with --start-offset")
    elif not yes:
        raise InvalidUsageError(
            f"aborting the transaction of {target} fences its producer: its next request fails, "
            "and what it wrote in the transaction does not count",
            hint="Add --yes if that is meant; for one partition of a hanging transaction give --start-offset.",
        )
    else:
        row = run_with_client(settings, lambda client: abort_by_id(client, target))
        settings.say(f"the producer of {target} is fenced; start it again if it still runs")
    write_object(row, output=settings.output_of_list())


async def abort_by_id(client: Client, transactional_id: str) -> Row:
    """Let the coordinator abort the transaction of an id, which fences its producer.

    Raises:
        NotFoundError: there is no such id.
        KafkaError: INVALID_TXN_STATE: it has no open transaction.
    """
    described = await client.describe_transaction(transactional_id)
    if described.state != ONGOING:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"transaction {transactional_id} is {described.state}: there is nothing to abort",
            hint="Its coordinator ends it." if described.is_open else "",
        )
    waited = await held_partitions(client, described.partitions)
    taken = await client.fence_producers(transactional_id, timeout_ms=described.timeout_ms)
    return {
        "transactional_id": transactional_id,
        "aborted": True,
        "partitions": [{"topic": place.topic, "partition": place.partition} for place in described.partitions],
        "producer_id": taken.producer_id,
        "producer_epoch": taken.producer_epoch,
        "unblocked_groups": sorted({group for held in waited.values() for group in held.waiting_groups}),
    }


async def abort_hanging(client: Client, place: TopicPartition, *, start_offset: int, is_forced: bool) -> Row:
    """Write an abort marker for the transaction that begins at an offset of a partition.

    Raises:
        NotFoundError: no open transaction begins there.
        UnavailableError: no coordinator can be asked about it, and it was not forced.
        KafkaError: INVALID_TXN_STATE: a coordinator knows it, and will end it, and it was not forced.
    """
    await find_places(client, place.topic, (place.partition,))
    there = await open_transactions(client, (place,))
    found = next((transaction for transaction in there if transaction.start_offset == start_offset), None)
    if found is None:
        starts = ", ".join(str(transaction.start_offset) for transaction in there)
        raise NotFoundError(
            f"no open transaction of {place.topic}:{place.partition} begins at offset {start_offset}",
            hint=f"Open ones begin at {starts}." if starts else "None is open there.",
        )
    if found.is_undecided and not is_forced:
        raise UnavailableError(
            f"the coordinator of the transaction at offset {start_offset} of {place.topic}:{place.partition} cannot be "
            "asked: it may still commit it",
            hint="Try again when it can (the log of its broker says more); --force aborts it here all the same.",
        )
    if found.coordinated is not None and not found.hangs and not is_forced:
        transactional_id = found.coordinated.transactional_id
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"that is the transaction of {transactional_id}, which is {found.coordinated.state}: its coordinator will "
            "end it, and a marker in one partition would tear it apart",
            hint=f"`exactlog txn abort {transactional_id} --yes` aborts it everywhere; --force does it here alone.",
        )
    waited = await held_partitions(client, (place,))
    await client.write_abort_marker(
        place,
        producer_id=found.producer.producer_id,
        producer_epoch=found.producer.producer_epoch,
        coordinator_epoch=found.producer.coordinator_epoch or 0,
    )
    return {
        "topic": place.topic,
        "partition": place.partition,
        "start_offset": start_offset,
        "producer_id": found.producer.producer_id,
        "producer_epoch": found.producer.producer_epoch,
        "aborted": True,
        "unblocked_groups": list(waited[place].waiting_groups),
    }


def _place(target: str) -> TopicPartition:
    topic, partition = split_target(target)
    if partition is None:
        raise InvalidUsageError(
            f"--start-offset is one of a partition, and {target!r} is not of the form TOPIC:PARTITION"
        )
    return TopicPartition(topic, partition)
