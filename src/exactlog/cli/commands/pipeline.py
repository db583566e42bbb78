"""`exactlog pipeline`: jobs on Apache Spark, in this process or on a cluster."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import click
import msgspec
from msgspec import Struct

from exactlog.cli.output import write_object, write_rows
from exactlog.cli.positions import AsOfVersion, parse_as_of
from exactlog.cli.settings import Group, Settings, import_command, split_assignment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from exactlog.pipeline.official_connector import Connector
    from exactlog.pipeline.stopping import StopOnSignal

_WAREHOUSE = "spark.sql.warehouse.dir"
_LOG_LEVELS = ("WARN", "INFO")
_TABLE_COLUMNS = (
    "view",
    "topic",
    "partition",
    "version",
    "log_start_offset",
    "last_stable_offset",
    "end_offset",
    "records",
    "committed",
    "waiting",
    "aborted",
    "open",
    "markers",
    "bytes",
)
_ELSEWHERE: Final = {
    "replicate-journal": "exactlog.cli.commands.pipeline_journal",
    "compact": "exactlog.cli.commands.pipeline_upkeep",
    "export-journals": "exactlog.cli.commands.pipeline_upkeep",
    "purge-expired": "exactlog.cli.commands.pipeline_upkeep",
    "verify": "exactlog.cli.commands.pipeline_upkeep",
}
"""Jobs of other modules, which are imported when they are called."""
_EXPORT_COLUMNS = ("topic", "partition", "from_offset", "to_offset", "version", "rows", "lag")


class Job(Struct, frozen=True, kw_only=True):
    """What every job is told: what it reads, and the session that it runs in."""

    path: str | None
    bootstrap: str | None
    topics: tuple[str, ...]
    master: str | None
    config: Mapping[str, str]
    jars: tuple[str, ...]


class JobGroup(Group):
    """The jobs that are defined here, and those of other modules."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all jobs."""
        return sorted({*super().list_commands(ctx), *_ELSEWHERE})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The job, imported now if it is not here."""
        if cmd_name not in _ELSEWHERE:
            return super().get_command(ctx, cmd_name)
        return import_command(_ELSEWHERE[cmd_name], cmd_name)


def job_options(command: Callable[..., object], *, reads_path: bool = True) -> Callable[..., object]:
    """Gives a command the options that every job takes, and hands them over as a `Job`.

    Args:
        command: it.
        reads_path: whether it can read a data directory; else it is for brokers alone.
    """

    @wraps(command)
    def with_job(
        settings: Settings,
        /,
        *,
        topics: tuple[str, ...],
        master: str | None,
        assignments: tuple[str, ...],
        jars: tuple[str, ...],
        path: str | None = None,
        **own: object,
    ) -> object:
        config = dict(split_assignment(assignment) for assignment in assignments)
        if settings.verbose:
            config.setdefault("spark.log.level", _LOG_LEVELS[min(settings.verbose, len(_LOG_LEVELS)) - 1])
        bootstrap = settings.bootstrap if path is None else None
        job = Job(path=path, bootstrap=bootstrap, topics=topics, master=master, config=config, jars=jars)
        return command(settings, job=job, **own)

    path_help = "Read a data directory, or one partition; else the broker at -b."
    options = (
        *((click.option("--path", metavar="DIR", help=path_help),) if reads_path else ()),
        click.option("--topic", "topics", multiple=True, help="Only this one; all but internal ones by default."),
        click.option("--master", metavar="URL", help="Where: local[N], spark://HOST:PORT, yarn; here by default."),
        click.option("--conf", "assignments", metavar="KEY=VALUE", multiple=True, help="Set a property of Spark."),
        click.option("--jar", "jars", metavar="FILE", multiple=True, help="Load a jar, as a connector's."),
    )
    described: Callable[..., object] = with_job
    for option in reversed(options):
        described = option(described)
    return described


connector_option = click.option(
    "--connector",
    type=click.Choice(["exactlog", "kafka"]),
    default="exactlog",
    show_default=True,
    help="Which source reads the broker; kafka is Spark's own, with its jars.",
)
as_of_option = click.option("--as-of", metavar="VERSION|TIMESTAMP", help="The log as of then; needs --path.")


@click.group(cls=JobGroup)
def pipeline() -> None:
    """Run jobs on Apache Spark, in this process or on a cluster: export a log, look at it as tables, copy topics."""


@pipeline.command()
@as_of_option
@connector_option
@click.option("--target", metavar="DIR", required=True, help="The table or directory that rows are added to.")
@click.option("--format", "kind", type=click.Choice(["delta", "parquet"]), default="delta", show_default=True)
@click.option("--schema", metavar="DDL", help="The values are JSON of this type, as 'id BIGINT, name STRING'.")
@click.option("--no-date", is_flag=True, help="Do not part the files by the day of the timestamp.")
@click.option("--allow-loss", is_flag=True, help="Go on where records went before they were exported.")
@click.pass_obj
@job_options
def export(
    settings: Settings,
    /,
    *,
    job: Job,
    as_of: str | None,
    connector: "Connector",
    target: str,
    kind: str,
    schema: str | None,
    no_date: bool,
    allow_loss: bool,
) -> None:
    """Add the committed records that are not there yet to a Delta table or a directory of Parquet files.

    Every record comes once, however often the job is killed or repeated. The first SIGTERM or Ctrl-C lets it end after
    the step that it is in, the second at once.
    """
    from exactlog.pipeline import export_delta, export_parquet  # noqa: PLC0415  nothing of Spark before it is needed

    version, timestamp_ms = _version_and_time(as_of)
    with running(settings, job) as (spark, stop):
        run = export_delta if kind == "delta" else export_parquet
        report = run(
            spark,
            target=target,
            path=job.path,
            bootstrap=job.bootstrap,
            topics=job.topics,
            connector=connector,
            schema=schema,
            partition_by_date=not no_date,
            version_as_of=version,
            timestamp_as_of=timestamp_ms,
            fail_on_data_loss=not allow_loss,
            progress=settings.say,
            is_stopping=stop.is_asked,
        )
    write_report(settings, report, rows_of="partitions", columns=_EXPORT_COLUMNS)


@pipeline.command()
@as_of_option
@click.pass_obj
@job_options
def tables(settings: Settings, /, *, job: Job, as_of: str | None) -> None:
    """Say what is in each partition, and how its topic is called in Spark SQL.

    Committed, aborted and open records are counted by Spark; `waiting` are committed and stand behind an open
    transaction.
    """
    from exactlog.pipeline import explain, profile, register_tables  # noqa: PLC0415  as above

    named = zip(("versionAsOf", "timestampAsOf"), _version_and_time(as_of), strict=True)
    options = {name: str(value) for name, value in named if value is not None}
    with running(settings, job) as (spark, _):
        views = register_tables(spark, path=job.path, bootstrap=job.bootstrap, topics=job.topics, options=options)
        counted = profile(spark, path=job.path, bootstrap=job.bootstrap, topics=job.topics, options=options)
        try:
            found = counted.collect()
        except Exception as error:
            raise explain(error) from error
    rows = ({"view": views[row["topic"]], **row.asDict()} for row in found)
    write_rows(rows, columns=_TABLE_COLUMNS, output=settings.output_of_list())


@pipeline.command()
@connector_option
@click.option("--to", metavar="HOST:PORT", required=True, help="The broker that is written to.")
@click.option("--id", "txn_app_id", required=True, help="The name of this copy; the same when it goes on.")
@click.option(
    "--checkpoint", metavar="DIR", required=True, help="Where it keeps how far it is; the same when it goes on."
)
@click.option("--target-topic", metavar="TOPIC", help="Where all goes; topics keep their names by default.")
@click.option("--by-key", is_flag=True, help="Let keys choose the partition; it stays the same by default.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until SIGTERM or Ctrl-C.")
@click.pass_obj
@job_options
def copy(
    settings: Settings,
    /,
    *,
    job: Job,
    connector: "Connector",
    to: str,
    txn_app_id: str,
    checkpoint: str,
    target_topic: str | None,
    by_key: bool,
    follow: bool,
) -> None:
    """Copy the committed records of topics into a broker, each once, in the order of its partition.

    However often it is killed: it goes on where it was, and nothing comes twice. The first SIGTERM or Ctrl-C lets it
    end after the transaction that it is in, the second at once.
    """
    from exactlog.pipeline import copy_topics  # noqa: PLC0415  as above

    with running(settings, job) as (spark, stop):
        report = copy_topics(
            spark,
            to=to,
            txn_app_id=txn_app_id,
            checkpoint=checkpoint,
            path=job.path,
            bootstrap=job.bootstrap,
            topics=job.topics,
            connector=connector,
            target_topic=target_topic,
            keep_partitions=not by_key,
            follow=follow,
            progress=settings.say,
            is_stopping=stop.is_asked,
        )
    write_object(msgspec.to_builtins(report), output=settings.output_of_list())


@contextmanager
def running(settings: Settings, job: Job) -> "Iterator[tuple[SparkSession, StopOnSignal]]":
    """A session for a job, and whether it is to stop."""
    from exactlog.pipeline import session  # noqa: PLC0415  as above
    from exactlog.pipeline.spark_session import is_running  # noqa: PLC0415
    from exactlog.pipeline.stopping import StopOnSignal  # noqa: PLC0415

    was_running = is_running()
    settings.say("starting Spark")
    with TemporaryDirectory(prefix="exactlog-spark-") as warehouse:  # Spark makes one where it runs, for no table
        own = {} if was_running else {_WAREHOUSE: warehouse}
        spark = session(job.master, app_name="exactlog pipeline", config={**own, **job.config}, jars=job.jars)
        settings.say(f"Spark {spark.version} runs on {spark.sparkContext.master}")
        try:
            with StopOnSignal(lambda: settings.say("stopping after this step; once more stops at once")) as stop:
                yield spark, stop
        finally:
            if not was_running:
                spark.stop()


def write_report(settings: Settings, report: object, *, rows_of: str, columns: tuple[str, ...]) -> None:
    """Prints a report: as JSON whole, for people its numbers and below them the rows of one of its fields."""
    output = settings.output_of_list()
    metrics = msgspec.to_builtins(report)
    if output != "table":
        write_object(metrics, output=output)
        return
    rows = metrics.pop(rows_of)
    write_object({name: value for name, value in metrics.items() if not isinstance(value, list)}, output=output)
    if rows:
        write_rows(rows, columns=columns, output=output)


def _version_and_time(text: str | None) -> tuple[int | None, int | None]:
    """The version, or the time in milliseconds, that `--as-of` names."""
    if text is None:
        return None, None
    moment = parse_as_of(text)
    return (moment.version, None) if isinstance(moment, AsOfVersion) else (None, moment.timestamp_ms)
