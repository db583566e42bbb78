"""The command `exactlog`: finds the command that is meant, runs it, and turns how it ends into an exit code."""

import sys
from collections.abc import Sequence
from typing import Final

import click

from exactlog import __version__
from exactlog.cli.errors import InvalidUsageError, OperatingSystemError, error_line, error_text
from exactlog.cli.exit_codes import ExitCode, exit_code_of
from exactlog.cli.output import OutputClosed, discard_output, flush_output
from exactlog.cli.settings import LazyGroup, Settings
from exactlog.core.model.errors import ExactlogError

COMMANDS: Final = {
    "serve": ("exactlog.cli.commands.serve", "Run a broker."),
    "topic": ("exactlog.cli.commands.topic", "Create, list, describe, alter and delete topics."),
    "produce": ("exactlog.cli.commands.produce", "Write records from standard input."),
    "consume": ("exactlog.cli.commands.consume", "Read records."),
    "group": ("exactlog.cli.commands.group", "List, describe, reset and delete consumer groups."),
    "txn": ("exactlog.cli.commands.txn", "See transactions, find those that hang, and end them."),
    "log": ("exactlog.cli.commands.log", "Look into a data directory, without a broker."),
    "wal": ("exactlog.cli.commands.wal", "Look at and clean the regions of a write-ahead log."),
    "journal": ("exactlog.cli.commands.journal", "Append to, read and replicate the journals of entities."),
    "pipeline": ("exactlog.cli.commands.pipeline", "Run jobs on Apache Spark: export, look at, copy a log."),
    "doctor": ("exactlog.cli.commands.doctor", "Check what a broker needs, and the one that runs."),
    "completion": ("exactlog.cli.commands.completion", "Let a shell complete what is typed."),
}

EXAMPLES: Final = """\b
To begin with:
  exactlog serve --data-dir ./data &
  exactlog topic create orders -p 3
  echo hello | exactlog produce orders
  exactlog consume orders
  exactlog log versions ./data/topic=orders-part=0
"""


@click.command(
    cls=LazyGroup,
    lazy=COMMANDS,
    invoke_without_command=True,
    epilog=EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="exactlog %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """A Kafka-protocol-compatible, exactly-once event log whose storage is an ACID table."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; `arguments` None: those of the process."""
    settings = Settings()
    try:
        result = cli.main(arguments, "exactlog", standalone_mode=False, obj=settings)
        flush_output()
    except OutputClosed:
        discard_output()
        return ExitCode.OK
    except ExactlogError as error:
        _report(error, settings)
        return exit_code_of(error)
    except click.UsageError as error:
        if settings.output_of_list() == "table" and error.ctx is not None:
            click.echo(error.ctx.get_usage(), err=True)
        _report(InvalidUsageError(error.format_message(), hint=_help_hint(error)), settings)
        return ExitCode.USAGE
    except OSError as error:
        _report(OperatingSystemError(str(error)), settings)
        return ExitCode.FAILED
    except (KeyboardInterrupt, click.Abort):
        return ExitCode.INTERRUPTED
    return result if isinstance(result, int) else ExitCode.OK


def _report(error: ExactlogError, settings: Settings) -> None:
    as_text = settings.output_of_list() == "table"
    click.echo(error_text(error) if as_text else error_line(error), err=True)


def _help_hint(error: click.UsageError) -> str:
    command = error.ctx.command_path if error.ctx is not None else "exactlog"
    return f"{command} --help tells what it takes."


if __name__ == "__main__":
    sys.exit(main())
