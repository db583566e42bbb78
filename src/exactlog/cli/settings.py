"""The options every command takes, wherever on the line they stand, and the groups that load commands when called."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Final

import click

from exactlog.cli.errors import InvalidUsageError
from exactlog.cli.output import OutputFormat, is_terminal

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

BOOTSTRAP_DEFAULT: Final = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE: Final = "EXACTLOG_BOOTSTRAP"


@dataclass(slots=True)
class Settings:
    """What the global options say.

    Attributes:
        bootstrap: HOST:PORT of a broker; several with commas between them.
        output: None: not said.
        quiet: say nothing on standard error but errors.
        verbose: how often -v was given.
    """

    bootstrap: str = BOOTSTRAP_DEFAULT
    output: OutputFormat | None = None
    quiet: bool = False
    verbose: int = 0

    def output_of_list(self) -> OutputFormat:
        """The format for a list or a single thing: what was asked for, else a table on a terminal, else JSON."""
        return self.output or ("table" if is_terminal(sys.stdout) else "json")

    def output_of_records(self) -> OutputFormat:
        """The format for a stream: what was asked for, else a table on a terminal and JSON lines elsewhere."""
        return self.output or ("table" if is_terminal(sys.stdout) else "jsonl")

    def start_logging(self) -> None:
        """Let the program's logs go to standard error: warnings, with -v what it does, with -vv everything."""
        import logging  # noqa: PLC0415  not needed to say a version

        logging.basicConfig(
            level=(logging.WARNING, logging.INFO, logging.DEBUG)[min(self.verbose, 2)],
            format="%(asctime)s %(levelname)s %(name)s: %(message)s",
            stream=sys.stderr,
        )

    def say(self, line: str) -> None:
        """Tell a person something, on standard error, unless asked to be quiet."""
        if not self.quiet:
            click.echo(line, err=True)


def global_options(*, is_root: bool) -> list[click.Parameter]:
    """The options, new ones for every command; only the root looks at the environment, so that a flag always wins."""
    return [
        click.Option(
            ["-b", "--bootstrap"],
            metavar="HOST:PORT",
            envvar=BOOTSTRAP_VARIABLE if is_root else None,
            callback=_store,
            expose_value=False,
            help=f"The broker; {BOOTSTRAP_DEFAULT} by default, or ${BOOTSTRAP_VARIABLE}.",
        ),
        click.Option(
            ["-o", "--output"],
            type=click.Choice(["table", "json", "jsonl"]),
            callback=_store,
            expose_value=False,
            help="The format; by default a table on a terminal, else JSON.",
        ),
        click.Option(
            ["--json", "output"], flag_value="json", default=None, callback=_store, expose_value=False, help="-o json."
        ),
        click.Option(
            ["-q", "--quiet"], flag_value=True, default=None, callback=_store, expose_value=False, help="Only errors."
        ),
        click.Option(
            ["-v", "--verbose"], count=True, callback=_store, expose_value=False, help="Say more; twice: still more."
        ),
    ]


def split_assignment(assignment: str) -> tuple[str, str]:
    """Key and value of `key=value`.

    Raises:
        InvalidUsageError: there is no `=`, or nothing before it.
    """
    name, equals, value = assignment.partition("=")
    if not equals or not name.strip():
        raise InvalidUsageError(f"{assignment!r} is not of the form key=value")
    return name.strip(), value


class Command(click.Command):
    """A command that takes the global options as well as its own; its own win where they are spelled the same."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        _add_global_options(self, is_root=False)


class Group(click.Group):
    """A group that takes the global options; its commands do too. To name none of them is wrong usage."""

    command_class = Command

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.no_args_is_help = False
        _add_global_options(self, is_root=False)


class LazyGroup(click.Group):
    """The root: it knows of each command its module and what to say of it, and imports only the one that is called."""

    def __init__(self, *args: object, lazy: Mapping[str, tuple[str, str]], **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self._lazy = lazy
        _add_global_options(self, is_root=True)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """The commands and options that begin so, without importing any command."""
        from click.shell_completion import CompletionItem  # noqa: PLC0415  only who completes pays for it

        commands = [
            CompletionItem(name, help=explanation)
            for name, (_, explanation) in self._lazy.items()
            if name.startswith(incomplete)
        ]
        return commands + click.Command.shell_complete(self, ctx, incomplete)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        """The names of all commands, in the order they are listed."""
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  click's signature
        """The command, imported now."""
        if cmd_name not in self._lazy:
            return None
        module, _ = self._lazy[cmd_name]
        return import_command(module, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The commands as help lists them, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, explanation) for name, (_, explanation) in self._lazy.items()])


def import_command(module: str, name: str) -> click.Command:
    """The command of this name, imported now: a module has it under its name as Python writes that."""
    command = getattr(import_module(module), name.replace("-", "_"))
    assert isinstance(command, click.Command)
    return command


def _add_global_options(command: click.Command, *, is_root: bool) -> None:
    own = {name for parameter in command.params for name in parameter.opts}
    command.params.extend(option for option in global_options(is_root=is_root) if own.isdisjoint(option.opts))


def _store(context: click.Context, parameter: click.Parameter, value: object) -> None:
    settings = context.ensure_object(Settings)
    if value and parameter.name is not None:
        setattr(settings, parameter.name, value)
