"""`exactlog pipeline replicate-journal`: the replicator of journals as a job of Spark."""

from typing import TYPE_CHECKING

import click
import msgspec

from exactlog.cli.commands.journal import parse_skipped, store_option
from exactlog.cli.commands.pipeline import Job, connector_option, job_options, running, write_report
from exactlog.cli.settings import Command, Settings

if TYPE_CHECKING:
    from exactlog.pipeline.official_connector import Connector

_PARKED_COLUMNS = ("topic", "partition", "offset", "key_id", "reason")


@click.command("replicate-journal", cls=Command)
@store_option
@connector_option
@click.option(
    "--checkpoint", metavar="DIR", required=True, help="Where it keeps how far it is; the same when it goes on."
)
@click.option("--topic-prefix", "prefixes", multiple=True, help="Topics that begin so; else --topic, or all.")
@click.option(
    "--skip", "skipped", multiple=True, metavar="TOPIC:PARTITION:OFFSET", help="Pass over a record that is parked."
)
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until SIGTERM or Ctrl-C.")
@click.pass_obj
@job_options
def replicate_journal(
    settings: Settings,
    /,
    *,
    job: Job,
    store: str,
    connector: "Connector",
    checkpoint: str,
    prefixes: tuple[str, ...],
    skipped: tuple[str, ...],
    follow: bool,
) -> None:
    """Replicate the journals of topics into a store, each action once, as `exactlog journal replicate` does.

    However often it is killed: it goes on where the store is. A record that cannot be replicated is parked: its journal
    waits, all others go on. The first SIGTERM or Ctrl-C lets it end after the micro-batch that it is in, the second at
    once.
    """
    from exactlog.pipeline import replicate_journals  # noqa: PLC0415  nothing of Spark before it is needed

    to_skip = tuple(map(parse_skipped, skipped))
    with running(settings, job) as (spark, stop):
        report = replicate_journals(
            spark,
            store=store,
            checkpoint=checkpoint,
            path=job.path,
            bootstrap=job.bootstrap,
            topics=job.topics,
            topic_prefixes=prefixes,
            connector=connector,
            skipped=to_skip,
            follow=follow,
            progress=settings.say,
            is_stopping=stop.is_asked,
        )
    parked = [
        {
            "topic": record.place.topic,
            "partition": record.place.partition,
            "offset": record.offset,
            "key_id": record.key_id,
            "reason": record.reason,
        }
        for record in report.parked
    ]
    told = {**msgspec.to_builtins(report), "parked": parked}
    write_report(settings, told, rows_of="parked", columns=_PARKED_COLUMNS)
